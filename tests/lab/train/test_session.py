"""Runs in their folders: finished, stopped, resumed, and everything that can go wrong."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import torch

from onegate.lab import StoppedError, tasks
from onegate.lab.recipes import Recipe, override, recipe
from onegate.lab.runs import Run, RunError, RunFolder, finished_runs
from onegate.lab.train import models
from onegate.lab.train import session as training
from onegate.lab.train.checkpoints import Checkpoints
from onegate.lab.train.loop import DivergedError, Trainer
from onegate.lab.train.progress import Position, Throttle
from onegate.lab.train.session import resume_command, train
from tests.lab import small_data

SMALL = ["data.train=200", "data.valid=50", "data.test=50", "model.hidden_size=5", "batch_size=20"]
ADDING = override(recipe("adding", "tuned", "mgu"), [*SMALL, "length=4", "evaluate_every=0.5"])
TEXT = override(
    recipe("ptb", "tuned", "mgu"),
    ["data.train=1000", "data.steps=5", "batch_size=4", "model.hidden_size=6", "model.embedding=6",
     "length=2", "evaluate_every=0.3"],
)  # fmt: skip
TIMES = ("seconds", "training_seconds", "sequences_per_second", "words_per_second")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    small_data.use(monkeypatch)


class At:
    """An observer that does something at an update."""

    def __init__(self, update: int, action: object) -> None:
        self.update, self.action = update, action

    def started(self, title: str) -> None: ...

    def updated(self, position: Position) -> None:
        if position.update == self.update and callable(self.action):
            self.action()

    def evaluated(self, position: Position, metrics: Mapping[str, float]) -> None: ...

    def ended(self) -> None: ...


@pytest.fixture(autouse=True)
def show_every_update(monkeypatch: pytest.MonkeyPatch) -> None:
    def unthrottled(seconds: float) -> Throttle:
        return Throttle(0.0 if seconds == 0.2 else seconds)

    monkeypatch.setattr(training, "Throttle", unthrottled)


def stop_at(update: int, number: int = signal.SIGTERM) -> At:
    return At(update, lambda: os.kill(os.getpid(), number))


_WHOLE: dict[str, Path] = {}


@pytest.fixture
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Recipe], Path]:
    """The folder of a run that nothing disturbed."""

    def folder(made: Recipe) -> Path:
        if made.task not in _WHOLE:
            _WHOLE[made.task] = tmp_path_factory.mktemp("whole")
            train(made, _WHOLE[made.task])
        return _WHOLE[made.task]

    return folder


def last_weights(folder: Path) -> dict[str, torch.Tensor]:
    kept = Checkpoints(folder / "checkpoints").last()
    assert kept is not None
    return {k: v for k, v in kept.tensors.items() if k != "random"}


def same_run(one: Path, other: Path) -> None:
    """Equal to the bit: weights, optimiser, carried state, metrics and result."""
    first, second = last_weights(one), last_weights(other)
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name
    logs = [
        [{k: v for k, v in m.items() if k not in TIMES} for m in Run.read(f).metrics]
        for f in (one, other)
    ]
    assert logs[0] == logs[1]
    for key, value in Run.read(one).result.items():
        if "seconds" not in key and "time" not in key:
            assert Run.read(other).result[key] == value


@pytest.mark.parametrize("made", [ADDING, TEXT], ids=["adding", "text"])
def test_a_run_leaves_a_complete_folder(made: Recipe, tmp_path: Path) -> None:
    result = train(made, tmp_path / "run")
    (run,) = finished_runs(tmp_path)
    assert run.result == result
    assert run.recipe == made
    metric = "mse" if made is ADDING else "perplexity"
    updates = [m["update"] for m in run.metrics]
    assert updates == sorted(set(updates))
    assert updates[-1] == json.loads((tmp_path / "run" / "status.json").read_text())["update"]
    best = min(run.metrics, key=lambda m: m[f"valid_{metric}"])
    assert (result["update"], result[f"valid_{metric}"]) == (
        best["update"],
        best[f"valid_{metric}"],
    )
    assert math.isfinite(result[f"test_{metric}"])
    for fact in ("torch", "threads", "engine", "commit", "processor", "seed", "python", "onegate"):
        assert fact in run.machine
    assert run.machine["threads"] == torch.get_num_threads()
    assert result["parameters"] > 0
    assert result["seconds_per_epoch"] > 0


def test_the_result_is_that_of_the_best_model(tmp_path: Path) -> None:
    made = override(ADDING, ["optimizer.lr=0.3", "schedule.kind=constant", "length=6"])
    result = train(made, tmp_path)
    run = Run.read(tmp_path)
    last = run.metrics[-1]
    assert result["update"] < last["update"], "the test needs a run whose end is not its best"
    trainer = Trainer(made, tasks.load(made))
    models.load_weights(trainer.model, run.weights())
    assert trainer.measure("test")["test_mse"] == result["test_mse"]
    assert trainer.measure("valid")["valid_mse"] == result["valid_mse"]
    assert result["test_mse"] != train(override(made, ["keep=last"]), tmp_path / "l")["test_mse"]


def test_the_test_set_is_read_once_unless_its_curve_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    original = Trainer.measure

    def watch(self: Trainer, split: tasks.Split) -> dict[str, float]:
        read.append(split)
        return original(self, split)

    monkeypatch.setattr(Trainer, "measure", watch)
    train(ADDING, tmp_path / "tuned")
    assert (read.count("test"), read.count("valid"), read[-1]) == (1, 8, "test")
    read.clear()
    train(override(ADDING, ["test_curve=true"]), tmp_path / "both")
    assert (read.count("test"), read.count("valid")) == (8, 8)
    read.clear()
    train(override(ADDING, ["test_curve=true", "keep=last"]), tmp_path / "curve")
    assert (read.count("test"), read.count("valid")) == (8, 1)


@pytest.mark.parametrize("made", [ADDING, TEXT], ids=["adding", "text"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("update", [1, 10, 17])
def test_stopped_and_resumed_equals_uninterrupted(
    made: Recipe, number: int, update: int, whole: Callable[[Recipe], Path], tmp_path: Path
) -> None:
    folder = tmp_path / "stopped"
    with pytest.raises(StoppedError) as stopped:
        train(made, folder, observers=[stop_at(update, number)])
    assert resume_command(folder) in str(stopped.value)
    assert stopped.value.signal_number == number
    assert Run.read(folder).state == "stopped"
    assert RunFolder(folder).checkpoints.updates()[-1] == update
    assert signal.getsignal(number) is not None
    train(made, folder, resume=True)
    same_run(whole(made), folder)


def test_checkpoints_do_not_change_the_run(whole: Callable[[Recipe], Path], tmp_path: Path) -> None:
    train(TEXT, tmp_path, checkpoint_seconds=0)
    same_run(whole(TEXT), tmp_path)
    assert len(RunFolder(tmp_path).checkpoints.updates()) <= 3


def test_a_finished_run_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = train(ADDING, tmp_path)
    monkeypatch.setattr(training, "Trainer", None)
    assert train(ADDING, tmp_path, resume=True) == result


def test_resume_without_anything_begins(tmp_path: Path) -> None:
    train(ADDING, tmp_path / "new", resume=True)
    assert Run.read(tmp_path / "new").state == "done"


def test_a_folder_with_a_run_is_not_overwritten(tmp_path: Path) -> None:
    train(ADDING, tmp_path)
    with pytest.raises(RunError, match="holds a run already: add --resume"):
        train(ADDING, tmp_path)
    with pytest.raises(RunError, match=r"another recipe; they differ in optimizer\.lr"):
        train(override(ADDING, ["optimizer.lr=0.7"]), tmp_path, resume=True)


def test_a_folder_in_use_is_refused_and_stays_whole(tmp_path: Path) -> None:
    seen = []

    def second() -> None:
        with pytest.raises(RunError, match=f"in use by process {os.getpid()}"):
            train(ADDING, tmp_path, resume=True)
        seen.append(True)

    train(ADDING, tmp_path, observers=[At(5, second)])
    assert seen
    assert Run.read(tmp_path).state == "done"


@pytest.mark.parametrize("suffix", ["safetensors", "json"])
def test_a_damaged_checkpoint_costs_time_and_nothing_else(
    suffix: str, whole: Callable[[Recipe], Path], tmp_path: Path
) -> None:
    folder = tmp_path / "damaged"
    with pytest.raises(StoppedError):
        train(TEXT, folder, observers=[stop_at(30)], checkpoint_seconds=0)
    path = folder / "checkpoints" / f"00000030.{suffix}"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    with pytest.warns(UserWarning, match=r"00000030.*using the checkpoint before it"):
        train(TEXT, folder, resume=True)
    same_run(whole(TEXT), folder)


def test_a_damaged_best_model_is_noticed(tmp_path: Path) -> None:
    made = override(ADDING, ["optimizer.lr=0.3", "schedule.kind=constant", "length=6"])
    result = train(made, tmp_path)
    (tmp_path / "status.json").unlink()
    path = tmp_path / "checkpoints" / f"{result['update']:08d}.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="the last model counts instead of the best"):
        again = train(made, tmp_path, resume=True)
    assert again["update"] == Run.read(tmp_path).metrics[-1]["update"]


def test_divergence_stops_the_run_and_keeps_what_was_good(tmp_path: Path) -> None:
    made = override(ADDING, ["optimizer.kind=sgd", "optimizer.momentum=0", "optimizer.lr=1e25",
                             "optimizer.clip_norm=0", "schedule.kind=constant"])  # fmt: skip
    with pytest.raises(DivergedError, match=r"Try a smaller optimizer\.lr"):
        train(made, tmp_path, checkpoint_seconds=0)
    status = json.loads((tmp_path / "status.json").read_text())
    assert status["state"] == "failed"
    assert "optimizer.lr" in status["error"]
    assert not finished_runs(tmp_path)
    kept = RunFolder(tmp_path).checkpoints.last()
    if kept is not None:
        assert all(t.isfinite().all() for t in kept.tensors.values() if t.is_floating_point())


def test_another_machine_is_mentioned(tmp_path: Path) -> None:
    with pytest.raises(StoppedError):
        train(ADDING, tmp_path, observers=[stop_at(3)])
    path = tmp_path / "machine.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "torch": "1.0"}))
    with pytest.warns(UserWarning, match="torch: '1.0', now"):
        train(ADDING, tmp_path, resume=True)


def test_unknown_options_of_a_unit_are_refused_before_any_work(tmp_path: Path) -> None:
    made = override(ADDING, ["model.unit_options.speed=3"])
    with pytest.raises(ValueError, match="mgu has no option 'speed'"):
        train(made, tmp_path)
    assert not (tmp_path / "recipe.json").exists()


def test_every_update_in_float64_and_on_the_reference_engine(tmp_path: Path) -> None:
    made = override(ADDING, ["precision=float64", "model.engine=reference", "length=1"])
    train(made, tmp_path)
    run = Run.read(tmp_path)
    assert {t.dtype for t in run.weights().values()} == {torch.float64}
    assert run.machine["engine"].startswith("reference")


@pytest.mark.parametrize(
    ("task", "settings", "metric", "chance"),
    [
        ("mnist_rows", ["data.train=400", "data.valid=100", "data.test=100", "length=8",
                        "batch_size=20", "schedule.warmup=0", "optimizer.lr=0.01"],
         "test_accuracy", 0.1),
        ("imdb", ["data.train=250", "data.valid=50", "data.test=40", "data.vocabulary=300",
                  "model.embedding=10", "batch_size=10", "length=8", "evaluate_every=1",
                  "optimizer.lr=0.02", "model.dropout=0.2"],
         "test_accuracy", 0.5),
    ],
    ids=["mnist_rows", "imdb"],
)  # fmt: skip
def test_tuned_recipes_learn(
    task: str, settings: list[str], metric: str, chance: float, tmp_path: Path
) -> None:
    made = override(recipe(task, "tuned", "mgu"), ["model.hidden_size=20", *settings])
    assert train(made, tmp_path)[metric] > chance + 0.2


def test_the_language_model_learns(tmp_path: Path) -> None:
    made = override(
        recipe("ptb", "tuned", "mgu"),
        ["data.train=2000", "data.steps=10", "model.hidden_size=20", "model.embedding=20",
         "model.dropout=0.1", "length=12", "model.init_value=0.3", "batch_size=5"],
    )  # fmt: skip
    assert train(made, tmp_path)["test_perplexity"] < 5  # ten words, each as frequent: 10


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def mounts_allowed() -> None:
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root on Linux")


@pytest.mark.parametrize("free", [3_000, 20_000, 60_000])
def test_a_full_disk_is_explained_and_the_run_can_go_on(
    mounts_allowed: None, small_disk: Path, free: int, whole: Callable[[Recipe], Path]
) -> None:
    folder = small_disk / "run"
    with pytest.raises(StoppedError):
        train(TEXT, folder, observers=[stop_at(12)], checkpoint_seconds=0)
    room = os.statvfs(small_disk)
    filler = small_disk / "filler"
    filler.write_bytes(bytes(max(0, room.f_bavail * room.f_bsize - free)))
    with pytest.raises(RunError, match=r"No space left on device.* --resume") as caught:
        train(TEXT, folder, resume=True, checkpoint_seconds=0, observers=[FillUp(filler)])
    assert "is whole" in str(caught.value)
    filler.unlink()
    train(TEXT, folder, resume=True)
    same_run(whole(TEXT), folder)


class FillUp(At):
    """Takes what room is left as soon as a few updates are done."""

    def __init__(self, filler: Path) -> None:
        super().__init__(16, self.fill)
        self.filler = filler

    def fill(self) -> None:
        try:
            with self.filler.open("ab", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
        except OSError:
            pass


def test_a_read_only_folder_is_explained(mounts_allowed: None, small_disk: Path) -> None:
    remount = ["mount", "-o", "remount,ro", str(small_disk)]
    subprocess.run(remount, check=True)
    with pytest.raises(RunError, match=r"cannot be written: Read-only file system; choose another"):
        train(ADDING, small_disk / "run")


def test_a_folder_that_is_taken_away_is_explained(tmp_path: Path) -> None:
    def take_away() -> None:
        (tmp_path / "run" / "checkpoints").rename(tmp_path / "elsewhere")
        (tmp_path / "run" / "checkpoints").write_text("in the way")

    with pytest.raises(RunError, match="cannot be written"):
        train(TEXT, tmp_path / "run", observers=[At(7, take_away)], checkpoint_seconds=0)
    assert Checkpoints(tmp_path / "elsewhere").last() is not None
