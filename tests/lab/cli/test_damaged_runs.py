"""Damaged run files, through the commands that read them: a message, never a traceback."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from onegate.lab import StoppedError, tasks
from onegate.lab.cli import main
from onegate.lab.recipes import override, recipe
from onegate.lab.runs import Comparison, Run, RunFolder
from onegate.lab.train.checkpoints import Checkpoints
from onegate.lab.train.loop import Trainer
from onegate.lab.train.progress import Position
from onegate.lab.train.session import train
from tests.lab import small_data
from tests.lab.sweep.made import run_quickly

pytestmark = pytest.mark.usefixtures("runs_alone")

SIZES = ["data.train=60", "data.valid=20", "data.test=12", "batch_size=30", "length=2",
         "model.hidden_size=5"]  # fmt: skip
SETTINGS = [word for setting in SIZES for word in ("--set", setting)]
RECIPE = override(recipe("adding", "tuned", "mgu"), SIZES)
COMPARE = ["compare", "adding", "--units", "mgu", "--seeds", "1", "--runs", "compared", *SETTINGS]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    small_data.use(monkeypatch)
    run_quickly(monkeypatch)


class _Stop:
    """An observer that asks for a stop at once."""

    def started(self, title: str) -> None: ...

    def updated(self, position: Position) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    def evaluated(self, *_: object) -> None: ...

    def ended(self) -> None: ...


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A finished run, a stopped one, and a comparison."""
    root = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        small_data.use(patch)
        run_quickly(patch)
        patch.chdir(root)
        train(RECIPE, root / "runs" / "done")
        with pytest.raises(StoppedError):
            train(RECIPE, root / "runs" / "stopped", observers=[_Stop()])
        assert main(COMPARE) == 0
    yield root
    shutil.rmtree(root)


@pytest.fixture
def copied(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def edited(**changes: Any) -> Callable[[bytes], bytes]:
    """The same JSON object with names replaced; None takes one out."""

    def edit(content: bytes) -> bytes:
        made = {**json.loads(content), **changes}
        return json.dumps(
            {name: value for name, value in made.items() if value is not None}
        ).encode()

    return edit


def always(content: bytes) -> Callable[[bytes], bytes]:
    return lambda _: content


ANY_JSON = {
    "empty": (always(b""), "is not JSON"),
    "cut": (lambda b: b[: len(b) // 2], "is not JSON"),
    "a list": (always(b"[]"), "its content is a list, expected an object"),
    "a number": (always(b"3"), "its content is 3, expected an object"),
    "null": (always(b"null"), "its content is null, expected an object"),
    "nested": (always(b'{"state":' * 100_000), "nested too deeply"),
    "not UTF-8": (always(b'{"\xff": 1}'), "is not JSON: 'utf-8' codec"),
    "huge": (always(b'{"update": ' + b"9" * 5000 + b"}"), "a number of 5000 digits"),
    "overflow": (always(b'{"update": 1e999}'), "1e999 is no finite number"),
    "NaN": (always(b'{"update": NaN}'), "NaN is no finite number"),
}
STATUS = {
    **ANY_JSON,
    "unknown state": (edited(state="finished"), 'state is "finished", expected one of done'),
    "no state": (edited(state=None), "state is missing"),
    "state of another type": (edited(state=[]), "state is a list, expected one of"),
    "done without a result": (
        edited(state="done", result=None),
        "says done, but result is missing",
    ),
    "a result of nothing": (edited(state="done", result={}), "result.update is missing"),
    "a result in words": (
        edited(state="done", result={"update": 4, "test_mse": "good"}),
        'result.test_mse is "good", expected a number',
    ),
    "a list of results": (edited(result=[1]), "result is a list, expected an object"),
    "a result before": (edited(result={"update": -1}), "result.update is -1, expected a whole"),
}
RECIPES = {
    **ANY_JSON,
    "unknown task": (edited(task="chess"), "task='chess': expected one of adding"),
    "a model in a word": (edited(model="mgu"), 'model is "mgu", expected an object'),
    "no optimizer": (edited(optimizer=None), "optimizer is missing"),
    "unknown field": (edited(speed=3), "a recipe has no field 'speed'"),
    "wrong value": (edited(batch_size=-1), "batch_size=-1: expected a number of at least 1"),
}
LINES = {
    "no object": (b"[]\n", "its content is a list, expected an object"),
    "a number": (b"3\n", "its content is 3, expected an object"),
    "null": (b"null\n", "its content is null, expected an object"),
    "no update": (b'{"epoch": 1}\n', "update is missing"),
    "words": (b'{"update": 1, "epoch": "one"}\n', 'epoch is "one", expected a number'),
    "null loss": (b'{"update": 1, "train_loss": null}\n', "train_loss is null, expected a number"),
    "NaN": (b'{"update": 1, "train_loss": NaN}\n', "NaN is no finite number"),
    "not UTF-8": (b"\xff\xfe\n", "'utf-8' codec can't decode"),
    "nested": (b"[" * 100_000 + b"\n", "nested too deeply"),
    "half a line": (b'{"update"\n', "Expecting ':' delimiter"),
    "no line": (b"\n", "Expecting value"),
}
DAMAGES = [
    *(("status.json", what, *damage) for what, damage in STATUS.items()),
    *(("recipe.json", what, *damage) for what, damage in RECIPES.items()),
    *(("machine.json", what, *damage) for what, damage in ANY_JSON.items()),
    *(("metrics.jsonl", what, always(line), why) for what, (line, why) in LINES.items()),
]
EVERY = pytest.mark.parametrize(
    ("name", "damage", "why"),
    [(name, damage, why) for name, _, damage, why in DAMAGES],
    ids=[f"{name}, {what}" for name, what, _, _ in DAMAGES],
)


def forget_lines(run: Path) -> None:
    """As runs were before their lines were counted; otherwise the count alone is a reason."""
    status = json.loads((run / "status.json").read_text())
    status.pop("metrics", None)
    (run / "status.json").write_text(json.dumps(status))


@EVERY
def test_inspect_and_report_name_it(
    copied: Path,
    name: str,
    damage: Callable[[bytes], bytes],
    why: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = copied / "runs" / "done"
    forget_lines(run)
    (run / name).write_bytes(damage((run / name).read_bytes()))
    assert main(["inspect", "runs/done"]) == 2
    message = capsys.readouterr().err
    assert message.startswith("onegate: ")
    assert message.count("\n") == 1
    assert f"runs/done/{name}" in message
    assert why in message
    if name == "machine.json":  # a page takes a second; all files are read in one place
        shutil.copytree(next((copied / "compared").glob("adding-*")), copied / "runs" / "other")
        assert main(["report", "runs"]) == 0
        assert f"done/{name}" in (copied / "report" / "index.html").read_text()


# What a resumed run needs; its metrics are in tests/test_training.py.
@pytest.mark.parametrize(
    ("name", "damage", "why"),
    [
        (name, damage, why)
        for name, _, damage, why in DAMAGES
        if name in ("status.json", "recipe.json", "machine.json")
    ],
    ids=[f"{n}, {what}" for n, what, _, _ in DAMAGES if n != "metrics.jsonl"],
)
def test_resuming_names_it(
    copied: Path,
    name: str,
    damage: Callable[[bytes], bytes],
    why: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = copied / "runs" / "stopped" / name
    path.write_bytes(damage(path.read_bytes()))
    assert main(["train", "--run", "runs/stopped", "--resume", "--quiet"]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert f"runs/stopped/{name}" in message
    assert why in message


@pytest.mark.parametrize(
    "name", ["status.json", "recipe.json", "machine.json", "metrics.jsonl", "lock", "checkpoints"]
)
@pytest.mark.parametrize("run", ["done", "stopped"])
def test_a_folder_in_a_file_s_place_is_named(
    copied: Path, run: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copied / "runs" / run / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.write_text("") if name == "checkpoints" else path.mkdir()
    codes = [
        main(["train", "--run", f"runs/{run}", "--resume", "--quiet"]),
        main(["inspect", f"runs/{run}", "-o", "looked"]),
    ]
    message = capsys.readouterr().err
    if any(codes):
        assert f"runs/{run}" in message
    needed = {"status.json", "recipe.json"} | ({"lock"} if name == "lock" else set())
    assert 2 in codes or name not in needed


def test_a_unit_that_nobody_knows_is_named(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copied / "runs" / "stopped" / "recipe.json"
    path.write_bytes(edited(unit="mug")(path.read_bytes()))
    assert main(["train", "--run", "runs/stopped", "--resume", "--quiet"]) == 2
    assert main(["inspect", "runs/stopped"]) == 2
    assert capsys.readouterr().err.count("no unit is called 'mug'") == 2


@pytest.mark.parametrize(
    ("pattern", "damage", "why"),
    [
        ("adding-*/status.json", always(b"[]"), "status.json: its content is a list"),
        ("adding-*/status.json", edited(result=None), "says done, but result is missing"),
        ("adding-*/status.json", edited(result={"update": 4}), "have no test metric in common"),
        ("adding-*/metrics.jsonl", always(b""), "has 0 whole lines, expected"),
        ("adding-*/recipe.json", always(b"\xff"), "recipe.json is not JSON"),
        ("sweep-*.json", always(b"[" * 100_000), "is damaged: remove it"),
    ],
)
def test_compare_names_it(
    copied: Path,
    pattern: str,
    damage: Callable[[bytes], bytes],
    why: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (path,) = (copied / "compared").glob(pattern)
    path.write_bytes(damage(path.read_bytes()))
    assert main(COMPARE) == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"units": []}, "compares nothing"),
        ({"units": None}, "units is missing"),
        ({"units": [3]}, r"units\[0\] is 3, expected an object"),
        ({"units": [{"unit": "mgu"}]}, r"units\[0\]\.hidden_size is missing"),
        ({"settings": "all"}, 'settings is "all", expected a list'),
        ({"task": 3}, "task is 3, expected a text"),
    ],
)
def test_a_damaged_comparison_is_named(copied: Path, changes: dict[str, Any], why: str) -> None:
    (path,) = (copied / "compared").glob("comparison-*.json")
    path.write_bytes(edited(**changes)(path.read_bytes()))
    with pytest.raises(ValueError, match=rf"comparison-.*\.json:? {why}"):
        Comparison.read(path)
    assert main(["report", "compared"]) == 0
    assert path.name in (copied / "report" / "index.html").read_text()


ODD: tuple[Any, ...] = (None, True, -1, 10**19, 1e308, "", "x", [], [None], {}, {"x": {}})


def variants(value: Any) -> Iterator[Any]:
    """The value with one part of it replaced by something odd, or taken out."""
    yield from ODD
    keys = value if isinstance(value, dict) else range(len(value) if isinstance(value, list) else 0)
    for key in keys:
        part = value[key]
        for other in variants(part):
            changed = value.copy()
            changed[key] = other
            yield changed
        changed = value.copy()
        del changed[key]
        yield changed


@pytest.mark.parametrize("name", ["status.json", "recipe.json", "machine.json", "metrics.jsonl"])
def test_no_odd_value_is_a_surprise(copied: Path, name: str) -> None:
    """Whatever stands in a file, reading it ends well or in a `ValueError`."""
    path = copied / "runs" / "done" / name
    forget_lines(path.parent)
    text = path.read_text()
    for content in variants(json.loads(text.splitlines()[0] if name == "metrics.jsonl" else text)):
        path.write_text(json.dumps(content) + "\n")
        with contextlib.suppress(ValueError):
            run = Run.read(path.parent)
            run.curve("epoch", "valid_mse")
            RunFolder(path.parent).result()


def test_no_odd_value_of_a_comparison_is_a_surprise(copied: Path) -> None:
    (path,) = (copied / "compared").glob("comparison-*.json")
    for content in variants(json.loads(path.read_text())):
        path.write_text(json.dumps(content))
        with contextlib.suppress(ValueError):
            assert [row.mean + row.spread for row in Comparison.read(path).units]


def test_no_odd_value_of_a_checkpoint_is_a_surprise(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checksum is right, as if it had been written so."""
    kept = Checkpoints(copied / "runs" / "stopped" / "checkpoints")
    trainer = Trainer(RECIPE, tasks.load(RECIPE))
    (path,) = kept.folder.glob("*.json")
    monkeypatch.setattr("onegate.lab.train.checkpoints._checksum", lambda _: "right")
    for content in variants({**json.loads(path.read_text()), "sha256": "right"}):
        path.write_text(json.dumps(content))
        with contextlib.suppress(ValueError):
            found = kept.load(int(path.stem))
            trainer.check(found)
            trainer.load(found)


@pytest.mark.parametrize("run", ["done", "stopped"])
def test_no_flipped_byte_is_a_surprise(copied: Path, run: str) -> None:
    chance = random.Random(0)
    found = sorted((copied / "runs" / run).glob("*.json*"))
    files = [path for path in found if path.stat().st_size]  # a run stopped at once has no metrics
    for path in files:
        good = path.read_bytes()
        for _ in range(100):
            bad = bytearray(good)
            for _ in range(chance.randint(1, 3)):
                bad[chance.randrange(len(bad))] = chance.randrange(256)
            path.write_bytes(bytes(bad[: chance.choice((len(bad), chance.randrange(len(bad))))]))
            with contextlib.suppress(ValueError):
                Run.read(path.parent)
        path.write_bytes(good)
    assert Run.read(files[0].parent).state == run
