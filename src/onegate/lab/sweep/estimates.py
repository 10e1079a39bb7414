"""How long updates and whole runs take, before they are run."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from onegate.lab import recipes, tasks
from onegate.lab.recipes import Recipe
from onegate.lab.runs import RunError
from onegate.lab.tasks import Loaded
from onegate.lab.train.loop import Trainer

# One measurement of every unit, then the next of every unit, so many times.
_ROUNDS = 5
_SECONDS_A_MEASUREMENT = 0.3
# Of the time of an update, for estimates of evaluation.
_FORWARD_SHARE = 0.35
# For a look at every configuration of a large grid; those that are left count as the mean.
_SECONDS_FOR_ALL = 20.0
# Of /proc/stat, in a second.
_TICKS = 100.0


def seconds_per_update(trainers: Sequence[Trainer]) -> list[float]:
    """Median time of an update of each trainer, measured in turns so that noise hits all alike."""
    batches = [trainer.batches() for trainer in trainers]

    def measure(which: int, updates: int) -> float:
        start = time.perf_counter()
        for _ in range(updates):
            trainers[which].step(next(batches[which]))
        return (time.perf_counter() - start) / updates

    numbers = range(len(trainers))
    for which in numbers:  # the first update prepares things that later ones find ready
        measure(which, 1)
    slowest = max(measure(which, 1) for which in numbers)
    updates = max(1, math.ceil(_SECONDS_A_MEASUREMENT / slowest))
    rounds = [[measure(which, updates) for which in numbers] for _ in range(_ROUNDS)]
    return [statistics.median(round_[which] for round_ in rounds) for which in numbers]


def busy_cores() -> tuple[float, float] | None:
    """Seconds of all cores together since the start of the machine: busy, and in all.

    None where the system does not tell.
    """
    try:
        with Path("/proc/stat").open() as file:
            times = [int(word) for word in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return None
    idle, total = sum(times[3:5]), sum(times)
    return (total - idle) / _TICKS, total / _TICKS


class Others:
    """The share of the machine's cores that other processes take, from `with` on to its end.

    share: None where the system does not tell.
    """

    def __init__(self) -> None:
        self.share: float | None = None

    def __enter__(self) -> Others:
        self._before, self._own = busy_cores(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        after, own = busy_cores(), time.process_time() - self._own
        if self._before is None or after is None or after[1] <= self._before[1]:
            return
        busy, total = (new - old for new, old in zip(after, self._before, strict=True))
        self.share = min(1.0, max(0.0, (busy - own) / total))


def whole_run(recipe: Recipe, task: Loaded, seconds: float) -> float:
    """Seconds of a whole run whose updates take `seconds` each."""
    per_epoch = task.updates_per_epoch
    updates = recipe.updates(recipe.length, per_epoch)
    evaluations = updates // recipe.updates(recipe.evaluate_every, per_epoch) + 1
    batches = sum(task.batches_in(split) for split in recipe.curves & task.splits)
    return seconds * (updates + _FORWARD_SHARE * evaluations * batches)


def of_runs(asked: Iterable[Recipe], threads: int) -> list[float]:
    """Seconds of each run by itself, from a short look at each configuration."""
    measured: dict[str, float | None] = {}
    keys = []
    end = time.monotonic() + _SECONDS_FOR_ALL
    with computing_threads(threads):
        for recipe in asked:
            key = _configuration(recipe)
            keys.append(key)
            if key not in measured and time.monotonic() < end:
                measured[key] = _look(recipe)
    known = [seconds for seconds in measured.values() if seconds is not None]
    otherwise = statistics.fmean(known) if known else 0.0
    return [measured.get(key) or otherwise for key in keys]


def _configuration(recipe: Recipe) -> str:
    """What runs that differ in their seed alone have in common."""
    content = recipes.to_json(recipe) | {"seed": None, "reasons": None}
    return json.dumps(content, sort_keys=True)


def _look(recipe: Recipe) -> float | None:
    """The estimate of a run; None for one that diverges at once, of which the run itself tells."""
    task = tasks.load(recipe)
    trainer = Trainer(recipe, task)
    batches = trainer.batches()
    try:
        trainer.step(next(batches))
        start = time.perf_counter()
        while (spent := time.perf_counter() - start) < _SECONDS_A_MEASUREMENT or trainer.update < 2:
            trainer.step(next(batches))
    except RunError:
        return None
    return whole_run(recipe, task, spent / (trainer.update - 1))


@contextmanager
def computing_threads(count: int) -> Iterator[None]:
    """Computes with so many threads inside the `with` block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
