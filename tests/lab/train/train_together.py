"""Runs for several processes, as torchrun starts them: `-m tests.lab.train.train_together FOLDER`.

Each process notes what it saw in FOLDER/seen-<rank>.json.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from onegate.lab import StoppedError
from onegate.lab.recipes import Recipe, override, recipe
from onegate.lab.runs import RunError
from onegate.lab.train import distributed, session
from onegate.lab.train.distributed import ProcessGroup
from onegate.lab.train.progress import Position
from onegate.lab.train.session import train
from tests.lab import small_data

# Lengths differ; the last batch of a pass has one column, fewer than processes; dropout.
ADDING = override(
    recipe("adding", "tuned", "mgu"),
    ["data.train=50", "data.valid=21", "data.test=11", "data.shortest=10", "data.longest=14",
     "model.hidden_size=5", "model.num_layers=2", "model.dropout=0.3", "batch_size=7", "length=4",
     "precision=float64", "optimizer.clip_norm=0.3"],
)  # fmt: skip
# Carried state of two tensors a layer, in columns that two processes share unequally.
TEXT = override(
    recipe("ptb", "tuned", "lstm"),
    ["data.train=1000", "data.steps=5", "batch_size=5", "model.hidden_size=6", "model.embedding=6",
     "length=2", "evaluate_every=0.3", "precision=float64", "optimizer.clip_norm=0.2"],
)  # fmt: skip
CLASSES = override(
    recipe("imdb", "tuned", "gru"),
    ["data.train=50", "data.valid=21", "data.test=11", "data.vocabulary=300", "batch_size=8",
     "model.embedding=6", "model.hidden_size=5", "length=2", "precision=float64",
     "model.dropout=0.2"],
)  # fmt: skip
WHOLE = {"adding": ADDING, "text": TEXT, "classes": CLASSES}
DIVERGING = override(
    ADDING,
    ["optimizer.kind=sgd", "optimizer.momentum=0", "optimizer.lr=1e30", "optimizer.clip_norm=0",
     "schedule.kind=constant", "length=40"],
)  # fmt: skip
STOP_AT = 9


class StopAt:
    """An observer that sends this process SIGTERM at an update."""

    def __init__(self, update: int) -> None:
        self.update = update

    def started(self, title: str) -> None: ...

    def updated(self, position: Position) -> None:
        if position.update == self.update:
            os.kill(os.getpid(), signal.SIGTERM)

    def evaluated(self, position: Position, metrics: Mapping[str, float]) -> None: ...

    def ended(self) -> None: ...


class Always:
    """A throttle that lets every update be seen, so that one can be stopped at, and saves none."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def ready(self) -> bool:
        return self.seconds == 0.2


def stopped(made: Recipe, folder: Path, group: ProcessGroup, update: int = STOP_AT) -> str:
    """A run that is stopped in the middle; the last process gets the signal."""
    last = group.rank == group.size - 1
    try:
        train(made, folder, group=group, observers=[StopAt(update)] if last else [])
    except StoppedError as error:
        return str(error)
    return "not stopped"


def main(root: Path) -> None:
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as monkeypatch, distributed.joined() as group:
        small_data.use(monkeypatch)
        monkeypatch.setattr(session, "Throttle", Always)
        seen: dict[str, str] = {"processes": str(group.size)}
        for name, made in WHOLE.items():
            train(made, root / f"{name}-together", group=group)
            train(made, root / f"{name}-resumed", group=group, resume=True)
            seen[name] = stopped(made, root / f"{name}-stopped", group)
        again = train(ADDING, root / "adding-together", group=group, resume=True)
        seen["finished"] = json.dumps(sorted(again))
        for problem, made in {"diverging": DIVERGING, "in the way": ADDING}.items():
            folder = root / ("adding-together" if problem == "in the way" else problem)
            try:
                train(made, folder, group=group)
            except RunError as error:
                seen[problem] = f"{type(error).__name__}: {error}"
    threads = [name.read_text().strip() for name in Path("/proc/self/task").glob("*/comm")]
    seen["threads"] = json.dumps(threads)
    (root / f"seen-{group.rank}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
