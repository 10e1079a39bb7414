"""SIGKILL at any moment, in a checkpoint write too: always resumable, always the same bits."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch

from onegate import files
from onegate.lab.recipes import override, recipe
from onegate.lab.runs import Run
from onegate.lab.train.checkpoints import Checkpoints
from onegate.lab.train.session import train

# Dropout, two layers and both directions: random numbers and optimiser state matter.
RECIPE = override(
    recipe("adding", "tuned", "mgu"),
    ["data.train=60", "data.valid=20", "data.test=20", "data.shortest=10", "data.longest=12",
     "model.hidden_size=4", "model.num_layers=2", "model.dropout=0.3", "batch_size=3",
     "length=20", "evaluate_every=0.5"],
)  # fmt: skip
DEATHS = 60

Processes = ForkServerContext


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(operation: str, calls: int) -> None:
    """Arranges death at the given call of an operation that writes a run folder."""
    left = calls

    def counted(before: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left <= 0:
                before(*args)
                die()
            return original(*args, **kwargs)

        return call

    def half(path: Path, content: bytes) -> None:
        path.with_name(f".{path.name}.1.draft").write_bytes(content[: len(content) // 2])

    def nothing(*_: Any) -> None: ...

    if operation == "half a file":
        files.write = counted(half, files.write)
    elif operation == "before it is on disk":
        os.fsync = counted(nothing, os.fsync)
    elif operation == "before it has its name":
        Path.replace = counted(nothing, Path.replace)  # type: ignore[method-assign]
    elif operation == "while old ones are removed":
        Path.unlink = counted(nothing, Path.unlink)  # type: ignore[method-assign]


OPERATIONS = (
    "half a file",
    "before it is on disk",
    "before it has its name",
    "while old ones are removed",
)


def live(folder: Path, checkpoint_seconds: float, death: tuple[str, int] | None) -> None:
    """A process's whole life: it resumes, trains, and perhaps dies."""
    torch.set_num_threads(1)
    if death is not None:
        die_at(*death)
    train(RECIPE, folder, resume=True, checkpoint_seconds=checkpoint_seconds)


@pytest.fixture(scope="module")
def processes() -> Processes:
    """Processes that start within milliseconds, because torch is imported once for all."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.lab.train.test_kill"])
    return context


class Life:
    """A process that trains."""

    def __init__(self, process: BaseProcess) -> None:
        self.process = process
        process.start()

    def wait(self) -> int:
        self.process.join()
        assert self.process.exitcode is not None
        return self.process.exitcode


def launch(
    processes: Processes,
    folder: Path,
    checkpoint_seconds: float = 0.02,
    death: tuple[str, int] | None = None,
) -> Life:
    return Life(processes.Process(target=live, args=(folder, checkpoint_seconds, death)))


@pytest.fixture
def fast_folder() -> Iterator[Path]:
    """A folder in memory where there is one: a thousand checkpoints wait long for a disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


@pytest.mark.slow
def test_killed_runs_end_in_the_same_bits(processes: Processes, fast_folder: Path) -> None:
    whole = fast_folder / "whole"
    assert launch(processes, whole, checkpoint_seconds=60).wait() == 0
    chance = random.Random(0)
    killed = [fast_folder / "killed-0"]
    deaths = lives = 0
    while deaths < DEATHS:
        code = one_life(processes, killed[-1], lives, chance)
        lives += 1
        deaths += code == -signal.SIGKILL
        if code == 0:  # a fast machine was done before it was hit: the next life begins anew
            killed.append(fast_folder / f"killed-{len(killed)}")
    assert launch(processes, killed[-1], checkpoint_seconds=60).wait() == 0
    for folder in killed:
        same_bits(folder, whole)


def one_life(processes: Processes, folder: Path, number: int, chance: random.Random) -> int:
    """Every second life ends at a random time, the others within an operation on files."""
    if number % 2:
        death = OPERATIONS[number // 2 % len(OPERATIONS)], chance.randint(1, 12)
        return launch(processes, folder, death=death).wait()
    life = launch(processes, folder)
    time.sleep(chance.uniform(0.0, 0.4))
    life.process.kill()
    return life.wait()


def same_bits(folder: Path, whole: Path) -> None:
    one, other = weights(folder), weights(whole)
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name
    assert metrics(folder) == metrics(whole)
    assert not list(folder.rglob("*.draft"))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    kept = Checkpoints(folder / "checkpoints").last()
    assert kept is not None
    return dict(kept.tensors)


def metrics(folder: Path) -> list[dict[str, float]]:
    run = Run.read(folder)
    assert run.state == "done"
    return [{k: v for k, v in line.items() if "second" not in k} for line in run.metrics]
