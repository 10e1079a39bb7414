"""What a sweep costs beside its training, and what clusters would take for the paper's grid.

    python benchmarks/measure_sweeps.py busy RUNS   how busy a local sweep keeps the cores
    python benchmarks/measure_sweeps.py ray         1,000 trivial tasks through Ray on this machine
    python benchmarks/measure_sweeps.py grid        the paper's full grid on 1, 10 and 100 machines

`busy` runs the IMDB experiment, MGU and GRU with three seeds each, into a new folder RUNS (about
a quarter of an hour), `ray` takes a minute; both on a machine that does nothing else. `grid` looks
at every run of `onegate reproduce --full` for some seconds and plays the schedule through: the
longest runs first, each to the first core that is free. `busy` and `grid` need the data.
"""

from __future__ import annotations

import heapq
import logging
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from onegate.lab import reproduce, sweep
from onegate.lab.runs import finished_runs
from onegate.lab.sweep import Grid, estimates
from onegate.lab.sweep.plan import cores
from onegate.lab.train import machine
from onegate.lab.train.profiling import COMPUTING
from onegate.lab.train.progress import duration

_TASKS = 1_000


def main() -> None:
    match sys.argv[1:]:
        case ["busy", folder]:
            busy(Path(folder))
        case ["ray"]:
            ray_tasks()
        case ["grid"]:
            grid()
        case _:
            sys.exit(__doc__)
    packages = ", ".join(f"{name} {metadata.version(name)}" for name in ("onegate", "torch"))
    print(f"{datetime.now(UTC):%Y-%m-%d}, {machine.processor()}, {cores()} cores, "
          f"Python {platform.python_version()}, {packages}, commit {machine.commit()}")  # fmt: skip


def busy(folder: Path) -> None:
    """The share of all cores' time in which runs of a sweep were training, start-up included."""
    if folder.exists():
        sys.exit(f"{folder} is there: name a new folder, so that nothing in it is finished")
    asked = Grid(("imdb",), recipe="flow", units=("mgu", "gru"), seeds=(0, 1, 2)).recipes()
    start = time.perf_counter()
    plan = sweep.make(asked, sweep.place(str(folder)))
    seconds = estimates.of_runs(list(plan.runs.values()), plan.threads)
    outcome = sweep.run(plan, estimates=seconds)
    wall = time.perf_counter() - start
    assert not outcome.failed, outcome.describe()
    runs = finished_runs(folder)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    available = wall * cores()
    computing = sum(
        run.result["seconds"] * run.result["time_shares"][phase]
        for run in runs
        for phase in (*COMPUTING, "data", "evaluation")
    )
    print(f"{len(runs)} runs, {plan.threads} thread each, {wall:.1f} s on {cores()} cores")
    print(f"training and evaluating: {computing / available:.1%} of the cores' time")
    print(f"processor time of its processes: {(spent.ru_utime + spent.ru_stime) / available:.1%}")


def ray_tasks() -> None:
    """Seconds for tasks that do nothing, from the first submission to the last answer."""
    import ray

    ray.init("local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        task = ray.remote(num_cpus=1)(_nothing)
        ray.get([task.remote(number) for number in range(2 * cores())])  # workers are started
        start = time.perf_counter()
        references = [task.remote(number) for number in range(_TASKS)]
        submitted = time.perf_counter() - start
        ray.get(references)
        wall = time.perf_counter() - start
        start = time.perf_counter()
        for number in range(100):
            ray.get(task.remote(number))
        one = (time.perf_counter() - start) / 100
    finally:
        ray.shutdown()
    print(f"ray {metadata.version('ray')}: {_TASKS:,} tasks in {wall:.2f} s, "
          f"{wall / _TASKS * 1e3:.2f} ms a task ({submitted / _TASKS * 1e3:.2f} ms to submit); "
          f"one at a time {one * 1e3:.2f} ms")  # fmt: skip


def _nothing(number: int) -> int:
    return number


def grid() -> None:
    """Hours of the paper's full grid by machines like this one, for 1 and for 10 seeds."""
    with tempfile.TemporaryDirectory() as folder:
        plan = reproduce.prepare(reproduce.FULL, Path(folder), print)
    # A run was measured on all cores; with one core to itself it takes about that many times it.
    seconds = [estimate * cores() for _, estimate in plan.runs()]
    for recipe, estimate in plan.runs():
        print(f"{recipe.task}/{recipe.name} {recipe.unit} {recipe.model.hidden_size}: "
              f"{duration(estimate * cores())}")  # fmt: skip
    print(f"{len(seconds)} runs, {duration(sum(seconds))} of one core's time")
    for seeds in (1, 10):
        for machines in (1, 10, 100):
            wall = schedule(seconds * seeds, machines * cores())
            busy = sum(seconds) * seeds / (wall * machines * cores())
            print(f"{seeds} seeds on {machines} machines: {duration(wall)}, cores {busy:.0%} busy")


def schedule(seconds: Sequence[float], workers: int) -> float:
    """When the last run ends, the longest being given out first."""
    free = [0.0] * workers
    for run in sorted(seconds, reverse=True):
        heapq.heappush(free, heapq.heappop(free) + run)
    return max(free)


if __name__ == "__main__":
    main()
