"""Units and tasks of one's own: files and packages that every command takes."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onegate.lab import plugins, recipes
from onegate.lab.cli import main
from onegate.lab.plugins import PluginError
from onegate.lab.runs import Run, run_name
from onegate.lab.sweep import estimates, local, make, place, read_toml
from onegate.lab.sweep import run as run_sweep
from onegate.lab.sweep.cluster import Cluster
from onegate.lab.sweep.preflight import ClusterError
from onegate.lab.tasks import TASKS
from onegate.units import UNITS

pytestmark = pytest.mark.usefixtures("runs_alone")

FILE = '''
"""A leaky unit, one that nobody registers, and a task."""
import numpy as np
import onegate
from onegate import Affine, Unit, sigmoid, tanh
from onegate.lab.tasks import Task


class Base(Unit, abstract=True):
    """No unit by itself."""


@onegate.register("own_leaky")
class Leaky(Base):
    """Moves a part of the way."""

    rate: float = 0.5
    W_g = Affine()
    W_h = Affine()

    def step(self, x, h):
        g = sigmoid(self.W_g[x])
        return h + self.rate * g * (tanh(self.W_h[h, x]) - h)


class Plain(Unit):
    """Forgets."""

    W_h = Affine()

    def step(self, x, h):
        return tanh(self.W_h[h, x])


class First(Task):
    """The first word of five."""

    name = "own_first"
    vocabulary = classes = ("a", "b", "c")

    def sets(self, options):
        rng = np.random.default_rng(options.seed)
        sets = {}
        for split in ("train", "valid", "test"):
            words = rng.integers(3, size=(getattr(options, split), 5))
            sets[split] = words, words[:, 0]
        return sets
'''
SMALL = ("data.train=40", "data.valid=20", "data.test=12", "model.hidden_size=5", "batch_size=10",
         "length=1")  # fmt: skip
OPTIONS = [word for setting in SMALL for word in ("--set", setting)]


@pytest.fixture(autouse=True)
def registries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As they were, afterwards; the file is in the folder that tests run in."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(FILE)
    yield
    forget()


def forget() -> None:
    """A new process would know nothing of what was loaded."""
    for name in list(plugins.PLUGINS):
        del plugins.PLUGINS[name], sys.modules[name]
    for table in (UNITS, TASKS):
        for key, one in list(table.items()):
            if not type(one).__module__.startswith("onegate."):
                del table[key]


def trained(*more: str) -> Path:
    folder = Path("runs/mine")
    argv = ["train", "mine.py:First", "--unit", "mine.py:Plain", *OPTIONS, "--run", str(folder)]
    assert main([*argv, "--quiet", *more]) == 0
    return folder


def test_a_class_of_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["units", "mine.py:Leaky", "--latex"]) == 0
    assert r"g_t &= \sigma(W_g x_t + b_g)" in capsys.readouterr().out
    assert main(["units", "--plugin", "mine.py", "Plain", "--latex"]) == 0
    assert main(["draw", "mine.py:Plain", "own_leaky", "-o", "both.svg"]) == 0
    assert Path("both.svg").exists()
    assert "Base" not in UNITS
    assert main(["recipes", "show", "./mine.py:First/default", "--unit", "mine.py:Plain"]) == 0
    assert "plugins" in capsys.readouterr().out


def test_a_file_is_run_once_and_again_when_it_has_changed() -> None:
    first = plugins.load("mine.py")
    assert plugins.load(Path("mine.py")) is first
    Path("mine.py").write_text(FILE.replace("rate: float = 0.5", "rate: float = 0.25"))
    again = plugins.load("mine.py")
    assert again.sha256 != first.sha256
    assert UNITS["own_leaky"].options() == {"rate": 0.25}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import nothing_of_this_name", "own.py, line 2: ModuleNotFoundError: No module named"),
        ("def (", "own.py, line 2: SyntaxError: "),
        ("onegate.register('gru')(A)", "own.py, line 2: NameError: "),
        (FILE + "\n@onegate.register('mgu')\nclass Mine(Plain): ...", "the name 'mgu' is taken"),
    ],
)
def test_a_file_with_an_error_registers_nothing(
    text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own.py").write_text(f"\n{text}\n")
    units, modules = dict(UNITS), {*sys.modules}
    with pytest.raises(SystemExit):
        main(["units", "--plugin", "own.py"])
    assert said in capsys.readouterr().err
    assert units == UNITS
    assert not {name for name in {*sys.modules} - modules if name.startswith("onegate_plugin")}


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("mine.py:Nothing", "mine.py has no class 'Nothing' that is a onegate.Unit"),
        ("mine.py:First", "mine.py has no class 'First' that is a onegate.Unit"),
        ("mine.py:Unit", "mine.py has no class 'Unit' that is a onegate.Unit; there is mine.py:"),
        ("mine.py:Base", "mine.py has no class 'Base'"),
        ("mine.py", "mine.py is a file: name a class in it .*; there is mine.py:"),
        ("gone.py:First", "gone.py cannot be read: No such file or directory"),
    ],
)
def test_what_a_file_does_not_have(argument: str, said: str) -> None:
    with pytest.raises(PluginError, match=said):
        plugins.unit(argument)


def test_a_run_keeps_the_file_s_path_and_hash() -> None:
    kept = json.loads((trained() / "recipe.json").read_text())["plugins"]
    assert kept == {"mine.py": plugins.load("mine.py").sha256}


def test_recipes_of_our_own_units_have_no_such_field() -> None:
    plugins.load("mine.py")
    ours = recipes.recipe("adding", "tuned", "mgu")
    assert "plugins" not in recipes.to_json(ours)
    theirs = recipes.override(ours, ["unit=Plain"])
    assert [*theirs.plugins] == ["mine.py"]
    assert not recipes.override(theirs, ["unit=gru"]).plugins
    assert recipes.from_json(recipes.to_json(theirs)) == theirs


def test_a_run_s_name_depends_on_what_is_in_the_file_not_on_where_it_is() -> None:
    Path("other").mkdir()
    names = []
    for path, text in (("mine.py", FILE), ("other/mine.py", FILE), ("mine.py", FILE + "#")):
        forget()
        Path(path).write_text(text)
        plugins.load(path)
        names.append(run_name(recipes.recipe("adding", "tuned", "Plain")))
    assert names[0] == names[1] != names[2]


def test_a_file_that_a_run_folder_names_is_never_run(capsys: pytest.CaptureFixture[str]) -> None:
    folder = trained()
    forget()
    Path("mine.py").write_text("raise SystemExit('this must not run')")
    for argv in (["inspect"], ["train", "--resume", "--run"]):
        assert main([*argv, str(folder)]) == 2
        assert "add --plugin mine.py" in capsys.readouterr().err
    for argv in (["report", "runs"], ["results", "keep", "runs"]):
        main(argv)
        said = capsys.readouterr().err
        assert "task 'own_first' is from mine.py, which was not given: add --plugin mine.py" in said
        assert "damaged" not in said  # nor is it
    Path("mine.py").unlink()
    assert main(["inspect", str(folder)]) == 2
    assert "add --plugin and where that file is now; there is none" in capsys.readouterr().err


def test_a_run_of_another_file_is_opened_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    folder = trained()
    forget()
    shutil.move("mine.py", "moved.py")  # where it is does not matter
    assert main(["inspect", str(folder), "--plugin", "moved.py"]) == 0
    assert main(["train", "--resume", "--run", str(folder), "--plugin", "moved.py"]) == 0
    assert main(["report", "runs", "--plugin", "moved.py"]) == 0
    assert "warning" not in capsys.readouterr().err


def test_a_file_that_has_changed_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    folder = trained()
    forget()
    Path("mine.py").write_text(FILE + "# a remark\n")
    status = folder / "status.json"
    status.write_text(status.read_text().replace('"done"', '"stopped"'))
    assert main(["train", "--resume", "--run", str(folder), "--plugin", "mine.py"]) == 2
    assert "mine.py is not as it was when the run began" in capsys.readouterr().err
    assert main(["inspect", str(folder), "--plugin", "mine.py"]) == 0
    assert "warning: runs/mine: mine.py is not as it was" in capsys.readouterr().err
    argv = ["train", "mine.py:First", "--unit", "mine.py:Plain", *OPTIONS, "--run", str(folder)]
    assert main([*argv, "--resume"]) == 2
    assert "differ in what is in mine.py" in capsys.readouterr().err


def test_a_report_lists_runs_of_units_that_are_not_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    argv = ["train", "adding", "--unit", "mine.py:Plain", *OPTIONS, "--run", "runs/a", "--quiet"]
    assert main(argv) == 0
    forget()
    assert main(["report", "runs"]) == 0
    assert "Plain" in Path("report/index.html").read_text()
    assert main(["inspect", "runs/a"]) == 2
    assert "which was not given: add --plugin mine.py" in capsys.readouterr().err


def test_processes_of_a_sweep_get_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "cores", lambda: 2)
    plugins.load("mine.py")
    asked = [
        recipes.override(recipes.recipe("own_first", None, unit), SMALL)
        for unit in ("Plain", "own_leaky")
    ]
    Path("mine.py").unlink()
    plan = make(asked, place(Path("runs")), 1)
    assert not run_sweep(plan).failed
    for name, asked_for in plan.runs.items():
        assert Run.read(Path("runs") / name).recipe == asked_for


def test_a_sweep_and_a_comparison_of_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimates, "_SECONDS_A_MEASUREMENT", 0.0)
    monkeypatch.setattr(local, "cores", lambda: 1)
    units = ["--units", "mine.py:Plain", "mgu"]
    assert main(["sweep", "mine.py:First", *units, *OPTIONS]) == 0
    assert main(["compare", "own_first", *units, *OPTIONS, "--seeds", "1"]) == 0
    assert main(["gradients", "own_first", *units, "--plugin", "mine.py"]) == 0
    assert "Plain" in capsys.readouterr().out


def test_a_grid_in_a_file_names_units_and_tasks_of_a_file_beside_it() -> None:
    Path("grids").mkdir()
    Path("mine.py").rename("grids/mine.py")
    Path("grids/grid.toml").write_text(
        'task = "mine.py:First"\nunits = ["mgu", "mine.py:Plain", "own_leaky"]\n'
    )
    made = read_toml(Path("grids/grid.toml")).recipes()
    assert [(r.task, r.unit) for r in made] == [
        ("own_first", unit) for unit in ("mgu", "Plain", "own_leaky")
    ]
    assert made[1].plugins == {
        "grids/mine.py": hashlib.sha256(FILE.encode()).hexdigest(),
    }


def test_a_grid_names_a_class_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    Path("grid.toml").write_text('task = "mine.py:First"\nunits = ["mine.py:Nobody"]\n')
    assert main(["sweep", "grid.toml"]) == 2
    assert "mine.py has no class 'Nobody' that is a onegate.Unit" in capsys.readouterr().err


def test_a_task_of_a_file_is_reproduced(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimates, "_SECONDS_A_MEASUREMENT", 0.0)
    monkeypatch.setattr(local, "cores", lambda: 1)
    for task in TASKS.values():  # ours take minutes
        monkeypatch.setattr(task, "quick", ())
    planned = f'quick = (Planned("default", {SMALL!r}),)'
    Path("planned.py").write_text(
        FILE.replace('name = "own_first"', f'name = "own_first"\n    {planned}').replace(
            "import Task", "import Task\nfrom onegate.lab.tasks.base import Planned"
        )
    )
    assert main(["reproduce", "--plugin", "planned.py", "--threads", "1"]) == 0
    assert "2 runs left, " in capsys.readouterr().out
    assert "own_first" in Path("report/index.html").read_text()


NOTEBOOK = f"""
import sys
from pathlib import Path
{FILE}
onegate.lab.tasks.register(First)
onegate.register("plain")(Plain)
onegate.lab.tasks.register(First)


class Plain(Plain):
    "The cell is run again."


onegate.register("plain")(Plain)
from onegate.lab.compare import Request, compare
from onegate.lab.sweep import local
local.cores = lambda: 2
made = compare(Request("own_first", "default", ("plain", "mgu"), (0,), settings={SMALL!r}),
               Path("runs"), threads=1)
print(*[row.unit for row in made.units])
"""


def test_units_and_tasks_of_a_notebook_are_compared() -> None:
    done = subprocess.run([sys.executable, "-"], input=NOTEBOOK, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "plain mgu"


def test_a_worker_of_a_cluster_gets_the_text() -> None:
    """What Ray sends to a worker, which is another process, without Ray."""
    plugins.load("mine.py")
    asked = recipes.override(recipes.recipe("own_first", None, "Plain"), SMALL)
    sent = (recipes.to_json(asked), "run", "runs", 1, 60.0, "cpu", tuple(plugins.luggage()))
    Path("sent").write_bytes(pickle.dumps(sent))
    Path("mine.py").unlink()
    code = """
import pickle
from onegate.lab.sweep.cluster import _run
print(_run(*pickle.load(open("sent", "rb")))[0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("done\n", "")


def test_a_cluster_refuses_what_only_this_process_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    plugins.load("mine.py")
    asked = recipes.override(recipes.recipe("own_first", None, "Plain"), SMALL)
    monkeypatch.setattr(type(UNITS["Plain"]), "__module__", "__main__")
    with pytest.raises(ClusterError, match=r"Plain is defined in a notebook .* with --plugin"):
        Cluster(None).check(make([asked], place(Path("runs")), 1))


def test_packages_that_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Path("site")
    (site / "own_units-1.5.dist-info").mkdir(parents=True)
    shutil.move("mine.py", site / "own_units.py")
    (site / "own_units-1.5.dist-info/METADATA").write_text("Name: own-units\nVersion: 1.5\n")
    (site / "own_units-1.5.dist-info/entry_points.txt").write_text(
        "[onegate.units]\nown_plain = own_units:Plain\nbroken = own_units:Nothing\n"
        "[onegate.tasks]\nown_first = own_units:First\n"
    )
    monkeypatch.syspath_prepend(str(site.resolve()))
    plugins.installed.cache_clear()
    with pytest.warns(UserWarning, match="own_units:Nothing of the package own-units is left out"):
        plugins.installed()
    assert plugins.unit("own_plain") in UNITS
    made = recipes.recipe("own_first", None, "own_plain")
    assert made.plugins == {"own-units": "1.5"}
    assert importlib.metadata.version("own-units") == "1.5"
    for table, name in ((UNITS, "own_plain"), (TASKS, "own_first")):
        del table[name]
    with pytest.raises(recipes.NotGivenError, match="not given: pip install own-units"):
        recipes.from_json(recipes.to_json(made))
    del sys.modules["own_units"]
