"""What is imported when, and what is said where a package is missing."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import onegate
from onegate import extras
from onegate.lab.cli import COMMANDS

ROOT = Path(__file__).parents[1]
LAB = ("rich", "pooch", "matplotlib")


def python(code: str, without: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Runs code in another process, in which some packages look as if they were not installed."""
    block = f"import sys; sys.modules.update(dict.fromkeys({without!r}))\n"
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", block + code], capture_output=True, text=True
    )


def started(*argv: str) -> str:
    """Code that runs the command and then fails if it has imported what takes long."""
    return f"""
sys.argv = ["onegate", *{argv!r}]
from onegate.__main__ import main
try:
    code = main()
except SystemExit as end:
    code = end.code
heavy = {{one for one in ("torch", "numpy", "rich", "matplotlib") if sys.modules.get(one)}}
assert not heavy, heavy
sys.exit(code)
"""


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_a_question_about_the_command_imports_nothing_heavy(option: str) -> None:
    done = python(started(option))
    assert (done.returncode, done.stderr) == (0, "")
    version = importlib.metadata.version("onegate")
    expected = f"onegate {version}" if option == "--version" else "usage: onegate [-h] [--version]"
    assert done.stdout.startswith(expected)


def test_every_command_has_a_line_of_help() -> None:
    told = python(started("--help")).stdout
    for name, about in COMMANDS.items():
        assert f"    {name}" in told
        assert about.split()[0] in told
        assert (ROOT / f"src/onegate/lab/cli/{name}.py").exists()


def test_a_command_that_is_none_imports_nothing_heavy() -> None:
    done = python(started("nothing"))
    assert done.returncode == 2
    assert "invalid choice: 'nothing'" in done.stderr
    assert "AssertionError" not in done.stderr


def test_exported_models_find_the_operators_of_an_imported_package() -> None:
    done = python("import onegate, torch; assert torch.ops.onegate.forward.default")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_public_names_are_there() -> None:
    done = python("""
from onegate import *
assert MGU.__name__ == "MGU" and UNITS
import onegate
assert set(onegate.__all__) <= set(dir(onegate))
assert onegate.units.get("mgu") and onegate.probe.record and onegate.trace is trace
for name in onegate.__all__:
    getattr(onegate, name)
""")
    assert (done.returncode, done.stderr) == (0, "")


def test_what_a_layer_can_do_without_is_imported_when_it_is_asked_for() -> None:
    done = python("""
import onegate
from onegate._public import LATE
onegate.MGU(3, 4)
late = {"onegate.probe", *LATE.values()} - {"onegate", "onegate.nn"}
assert not late & {*sys.modules}, late & {*sys.modules}
for name in LATE:
    assert getattr(onegate, name) is not None
assert late - {"onegate.export.targets"} <= {*sys.modules}  # the package is what is called
""")
    assert (done.returncode, done.stderr) == (0, "")


def test_units_are_listed_without_matplotlib() -> None:
    code = """
sys.argv = ["onegate", "units"]
from onegate.__main__ import main
assert main() == 0 and "matplotlib" not in sys.modules
"""
    done = python(code)
    assert (done.returncode, done.stderr) == (0, "")
    assert "mgu" in done.stdout


@pytest.mark.parametrize("name", ["units", "nn", "ops", "lab", "probe", "picture"])
def test_parts_of_the_package_are_attributes(name: str) -> None:
    done = python(f"import onegate; assert onegate.{name}.__name__ == 'onegate.{name}'")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_library_needs_torch_and_numpy_alone() -> None:
    """Every module of it is imported; the picture says what it needs."""
    done = python(
        """
import pkgutil, importlib, onegate
for found in pkgutil.walk_packages(onegate.__path__, "onegate."):
    if found.name.startswith(("onegate.lab", "onegate.picture", "onegate.__main__")):
        continue
    if not found.name.endswith("onegate_native"):  # no module of Python's
        importlib.import_module(found.name)
out, _ = onegate.MGU(3, 4)(__import__("torch").randn(2, 1, 3))
try:
    import onegate.picture.draw
except ImportError as error:
    print(error)
try:
    import onegate.lab.recipes
except ImportError as error:
    print(error)
""",
        without=LAB,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "onegate.picture needs matplotlib: pip install 'onegate[picture]'",
        "onegate.lab needs rich, pooch, matplotlib: pip install 'onegate[lab]'",
    ]


@pytest.mark.parametrize("argv", [("train", "adding"), ("--help",), ("draw", "mgu")])
def test_a_command_says_what_to_install(argv: tuple[str, ...]) -> None:
    done = python(started(*argv), without=("rich",))
    assert done.returncode == 2
    assert done.stderr == f"onegate {argv[0]} needs rich: pip install 'onegate[lab]'\n"
    assert not done.stdout


def test_the_extras_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = project["optional-dependencies"]
    for extra in ("picture", "lab", "tensorboard", "ray"):
        names = {one.partition(">")[0].partition("[")[0] for one in declared[extra]}
        assert names == {*extras.EXTRAS[extra]}
    assert {one.partition(">")[0] for one in project["dependencies"]} == {"torch", "numpy"}
    with pytest.raises(ValueError, match="something needs flax"):
        raise extras.MissingExtraError("something needs flax")


@pytest.mark.parametrize("argv", ["units --json", "units", "units mgu --program", "--help"])
def test_a_reader_that_has_seen_enough_is_no_error(argv: str) -> None:
    command = [sys.executable, "-m", "onegate", *argv.split()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode in (0, 1, 141)  # argparse and rich have their own


def test_the_version() -> None:
    assert onegate.__version__ == importlib.metadata.version("onegate")
    done = python(started("--version"), without=LAB)
    assert (done.returncode, done.stdout) == (0, f"onegate {onegate.__version__}\n")
