"""Runs in their folders: finished, stopped, resumed, and everything that can go wrong."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from onegate.lab import StoppedError, tasks
from onegate.lab.archive import finished_runs
from onegate.lab.recipes import Recipe, override, recipe
from onegate.lab.runs import Run, RunError, RunFolder
from onegate.lab.train import models, session
from onegate.lab.train.checkpoints import Checkpoint, CheckpointError, Checkpoints, layouts
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

    monkeypatch.setattr(session, "Throttle", unthrottled)


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
    monkeypatch.setattr(session, "Trainer", None)
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


def stopped(folder: Path, made: Recipe = TEXT, update: int = 35) -> Path:
    with pytest.raises(StoppedError):
        train(made, folder, observers=[stop_at(update)], checkpoint_seconds=0)
    return folder


def lines_of(content: bytes) -> list[bytes]:
    return content.splitlines(keepends=True)


LOST: dict[str, tuple[Callable[[bytes], bytes | None], str]] = {
    "deleted": (lambda _: None, "has 0 whole lines, expected 2"),
    "cut": (lambda b: b[: len(b) * 3 // 4], "has 1 whole lines, expected 2"),
    "its end off": (lambda b: b[:-1], "has 1 whole lines, expected 2"),
    "no first line": (lambda b: b"".join(lines_of(b)[1:]), "has 1 whole lines, expected 2"),
    "a digit": (lambda b: b.replace(b"0.", b"1.", 1), "was changed: its first 2 lines, of 2"),
    "other order": (lambda b: b"".join(lines_of(b)[::-1]), "was changed: its first 2 lines"),
    "no UTF-8": (lambda b: b"\xff" + b[1:], "was changed"),
}


@pytest.mark.parametrize("how", LOST)
def test_metrics_that_got_lost_are_named_and_nothing_goes_on(
    how: str, whole: Callable[[Recipe], Path], tmp_path: Path
) -> None:
    folder = stopped(tmp_path / "run")
    path, (damage, message) = folder / "metrics.jsonl", LOST[how]
    good = path.read_bytes()
    assert len(lines_of(good)) == 2
    bad = damage(good)
    path.unlink() if bad is None else path.write_bytes(bad)
    kept = RunFolder(folder).checkpoints.updates()
    with pytest.raises(RunError) as caught:
        train(TEXT, folder, resume=True)
    assert f"{path} {message}" in str(caught.value)
    assert "put the whole file back, or start the run anew in another folder" in str(caught.value)
    assert (path.read_bytes() if path.exists() else None) == bad
    assert RunFolder(folder).checkpoints.updates() == kept
    path.write_bytes(good)
    train(TEXT, folder, resume=True)
    same_run(whole(TEXT), folder)


@pytest.mark.parametrize("how", LOST)
def test_a_finished_run_that_lost_metrics_is_not_read(how: str, tmp_path: Path) -> None:
    train(ADDING, tmp_path)
    path = tmp_path / "metrics.jsonl"
    bad = LOST[how][0](path.read_bytes())
    path.unlink() if bad is None else path.write_bytes(bad)
    for read in (Run.read, lambda f: train(ADDING, f, resume=True)):
        with pytest.raises(RunError, match=r"metrics\.jsonl (has|was changed).*put the whole file"):
            read(tmp_path)
    with pytest.warns(UserWarning, match=r"is damaged and left out: .*metrics\.jsonl"):
        assert finished_runs(tmp_path) == []


def test_lines_that_a_finished_run_never_wrote_are_named(tmp_path: Path) -> None:
    train(ADDING, tmp_path)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"update": 41}\n')
    with pytest.raises(RunError, match="has more than the 8 lines that the finished run"):
        Run.read(tmp_path)


def test_lines_beyond_the_checkpoint_are_written_again(
    whole: Callable[[Recipe], Path], tmp_path: Path
) -> None:
    """A killed process may have left whole lines, half a line, or what a disk makes of one."""
    folder = stopped(tmp_path / "run")
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(b'{"update": 31, "epoch": 1.5}\n\0\0\0\n{"upda')
    train(TEXT, folder, resume=True)
    same_run(whole(TEXT), folder)


def test_metrics_that_vanish_under_a_run_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with pytest.raises(RunError, match=r"metrics\.jsonl has \d whole lines, expected 8"):
        train(ADDING, tmp_path, observers=[At(12, path.unlink)])
    assert Run.read(tmp_path).state == "failed"


def test_lost_checkpoints_are_named(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "run")
    shutil.rmtree(folder / "checkpoints")
    with pytest.raises(RunError, match=r"holds no checkpoint, although .* after update 35; put it"):
        train(TEXT, folder, resume=True)


Body = dict[str, Any]
Tensors = dict[str, torch.Tensor]


def rewrite(folder: Path, update: int, change: Callable[[Body, Tensors], object]) -> None:
    """A checkpoint with right checksums that is not what the run had saved."""
    path = folder / "checkpoints" / f"{update:08d}.json"
    tensors = safetensors.torch.load_file(path.with_suffix(".safetensors"))
    body = json.loads(path.read_text())
    body["tensors"] = None
    change(body, tensors)
    if body.get("tensors", True) is None:
        body["tensors"] = layouts(tensors)
    content = safetensors.torch.save(tensors)
    path.with_suffix(".safetensors").write_bytes(content)
    body["tensors_sha256"] = hashlib.sha256(content).hexdigest()
    del body["sha256"]
    text = json.dumps(body, sort_keys=True)
    body["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(body))


def without(*names: str) -> Callable[[Body, Tensors], object]:
    return lambda body, _: body["values"].pop(names[0]) if len(names) == 1 else (
        body["values"][names[0]].pop(names[1])
    )  # fmt: skip


LACKING: dict[str, tuple[Callable[[Body, Tensors], object], str]] = {
    "an optimiser's tensor": (
        lambda _, t: t.pop("optimizer.1.exp_avg"),
        r"optimizer\.1\.exp_avg \(float32 .*\) is missing",
    ),
    "all of the optimiser": (
        lambda _, t: [t.pop(name) for name in list(t) if name.startswith("optimizer.")],
        r"optimizer\.0\.step \(float32\) is missing; .*; and \d+ more",
    ),
    "random numbers": (lambda _, t: t.pop("random"), r"random \(uint8 \d+\) is missing"),
    "short random numbers": (
        lambda _, t: t.update(random=t["random"][:-1].clone()),
        r"random is uint8 \d+, expected uint8",
    ),
    "a parameter": (lambda _, t: t.pop("model.head.bias"), r"model\.head\.bias .* is missing"),
    "a parameter's column": (
        lambda _, t: t.update({"model.head.weight": t["model.head.weight"][:, 1:].clone()}),
        r"model\.head\.weight is float32 1x\d+, expected float32 1x\d+",
    ),
    "a parameter's precision": (
        lambda _, t: t.update({"model.head.bias": t["model.head.bias"].double()}),
        r"model\.head\.bias is float64 1, expected float32 1",
    ),
    "a tensor too many": (
        lambda _, t: t.update({"model.more": torch.zeros(2)}),
        r"model\.more \(float32 2\) is not known",
    ),
    "a listed tensor": (
        lambda b, t: (b.update(tensors=layouts(t)), t.pop("random")),
        r"safetensors: random .* is missing",
    ),
    "learning rate": (without("learning_rate"), "learning_rate is missing"),
    "drops of it": (without("learning_rate", "drops"), r"learning_rate\.drops is missing"),
    "the loss": (without("loss_sum"), "loss_sum is missing"),
    "the time": (without("seconds"), "seconds is missing"),
    "a number": (
        lambda b, _: b["values"].update(evaluated="3"),
        'evaluated is "3", expected a whole number',
    ),
    "its lines": (lambda b, _: b["values"].update(metrics=[]), "metrics is a list, expected an"),
    "its own update": (lambda b, _: b.update(update=29), "is the checkpoint of update 29"),
    "all values": (lambda b, _: b.pop("values"), "values is missing"),
}


@pytest.mark.parametrize("what", LACKING)
def test_a_checkpoint_that_lacks_something_is_passed_over(
    what: str, whole: Callable[[Recipe], Path], tmp_path: Path
) -> None:
    folder = stopped(tmp_path / "run", ADDING)
    change, message = LACKING[what]
    rewrite(folder, 35, change)
    with pytest.warns(UserWarning, match=rf"35.*{message}.*; using the checkpoint before it"):
        train(ADDING, folder, resume=True)
    same_run(whole(ADDING), folder)


def test_a_checkpoint_without_the_state_that_it_lists_is_passed_over(
    whole: Callable[[Recipe], Path], tmp_path: Path
) -> None:
    folder = stopped(tmp_path / "run")

    def forget(body: Body, tensors: Tensors) -> None:
        body["tensors"] = layouts(tensors)
        del tensors["carried.0"]

    rewrite(folder, 35, forget)
    with pytest.warns(UserWarning, match=r"carried\.0 \(float32 2x4x6\) is missing; using"):
        train(TEXT, folder, resume=True)
    same_run(whole(TEXT), folder)


def test_checkpoints_that_all_lack_something_are_an_error(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "run")
    for update in RunFolder(folder).checkpoints.updates():
        rewrite(folder, update, without("learning_rate"))
    with (
        pytest.warns(UserWarning, match="learning_rate is missing"),
        pytest.raises(CheckpointError, match=r"none of the \d checkpoints in .* is whole"),
    ):
        train(TEXT, folder, resume=True)


def as_before_lines_were_counted(folder: Path, update: int) -> None:
    def older(body: Body, _: Tensors) -> None:
        del body["tensors"], body["values"]["metrics"]

    rewrite(folder, update, older)


@pytest.mark.parametrize("made", [ADDING, TEXT], ids=["adding", "text"])
def test_older_checkpoints_are_gone_on_from(
    made: Recipe, whole: Callable[[Recipe], Path], tmp_path: Path
) -> None:
    """Those of versions that listed no tensors and counted no lines."""
    folder = stopped(tmp_path / "run", made, 17)
    for update in RunFolder(folder).checkpoints.updates():
        as_before_lines_were_counted(folder, update)
    train(made, folder, resume=True)
    same_run(whole(made), folder)


def test_lost_metrics_of_older_checkpoints_are_named(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "run")
    as_before_lines_were_counted(folder, 35)
    (folder / "metrics.jsonl").unlink()
    with pytest.raises(RunError, match=r"metrics\.jsonl has no line of update \d+, which the run"):
        train(TEXT, folder, resume=True)


def test_metrics_are_on_the_disk_before_the_checkpoint_that_counts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk: dict[str, int] = {}
    fsync, save = os.fsync, Checkpoints.save

    def watch(number: int) -> None:
        fsync(number)
        on_disk[str(Path(f"/proc/self/fd/{number}").readlink())] = os.fstat(number).st_size

    def check(self: Checkpoints, checkpoint: Checkpoint) -> None:
        save(self, checkpoint)
        content = (tmp_path / "metrics.jsonl").read_bytes()
        counted = checkpoint.values["metrics"]["lines"]
        size = sum(map(len, lines_of(content)[:counted]))
        assert on_disk.get(str(tmp_path / "metrics.jsonl"), 0) >= size
        assert str(tmp_path / "checkpoints") in on_disk, "the names of new files"

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("the names of open files are known on Linux only")
    monkeypatch.setattr(os, "fsync", watch)
    monkeypatch.setattr(Checkpoints, "save", check)
    train(ADDING, tmp_path, checkpoint_seconds=0)


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
