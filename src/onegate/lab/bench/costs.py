"""What training costs beside its layers: epochs, the output layer, sweeps; what chance gives.

Each function prints its figures and returns them for a JSON file. They are for a machine that does
nothing else; all but `output_layer`, `ray_tasks`, `latencies` and `deploy` need the data.
"""

from __future__ import annotations

import heapq
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from onegate.lab import compare, data, reproduce, sweep
from onegate.lab.archive import finished_runs
from onegate.lab.bench.accelerate import accelerate
from onegate.lab.bench.deploy import deploy
from onegate.lab.bench.inside import inside, new_units, norms
from onegate.lab.bench.latency import latencies
from onegate.lab.sweep import Grid, estimates
from onegate.lab.sweep.plan import cores
from onegate.lab.train.cross_entropy import summed_cross_entropy
from onegate.lab.train.progress import COMPUTING, duration

_EPOCHS_OF: Final = ("adding", "imdb", "mnist_rows", "mnist_pixels", "ptb")
_RAY_TASKS: Final = 1_000
_ROUNDS: Final = 21  # of the output layer


def epochs() -> dict[str, Any]:
    """Seconds per epoch of the recipe `paper`, from a few updates of MGU and GRU in turns."""
    rows = []
    for task in _EPOCHS_OF:
        with tempfile.TemporaryDirectory() as folder:
            contenders = compare.prepare(
                compare.Request(task, "paper"), Path(folder), torch.get_num_threads()
            )
        row: dict[str, Any] = {"task": task, "hidden_size": contenders[0].recipe.model.hidden_size}
        row |= {contender.recipe.unit: contender.seconds_per_epoch for contender in contenders}
        ratio = row["mgu"] / row["gru"]
        print(
            f"{task}: MGU {row['mgu']:.2f} s, GRU {row['gru']:.2f} s, ratio {ratio:.2f}", flush=True
        )
        rows.append(row)
    return {"rows": rows}


def output_layer(
    words: int = 400, width: int = 300, vocabulary: int = 10_000, rounds: int = _ROUNDS
) -> dict[str, Any]:
    """What bfloat16 products save in the output layer of a language model, on one thread.

    Loss and gradients for the 400 words of an update of ptb/tuned, with and without them in turns.
    """
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(words, width, generator=generator).requires_grad_()
    weight = (0.1 * torch.randn(vocabulary, width, generator=generator)).requires_grad_()
    bias = torch.zeros(vocabulary, requires_grad=True)
    targets = torch.randint(vocabulary, (words,), generator=generator)
    times: dict[str, list[float]] = {"highest": [], "medium": []}
    threads, precision_before = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_num_threads(1)
    try:
        for _ in range(rounds):
            for precision, measured in times.items():
                torch.set_float32_matmul_precision(precision)
                start = time.perf_counter()
                loss = summed_cross_entropy(states, weight, bias, targets)
                torch.autograd.grad(loss, (states, weight, bias))
                measured.append(time.perf_counter() - start)
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision_before)
    whole, short = (statistics.median(measured) for measured in times.values())
    print(f"float32 {1e3 * whole:.1f} ms, bfloat16 {1e3 * short:.1f} ms, ratio {short / whole:.2f}")
    return {"float32": whole, "bfloat16": short}


def baselines() -> dict[str, Any]:
    """What the test sets give to who knows only how often each answer occurs in training."""
    sums, digits, words = data.adding(seed=0), data.mnist(), data.ptb()
    mse = float(np.mean((sums.test.targets - sums.train.targets.mean()) ** 2))
    commonest = np.bincount(digits.train.labels).argmax()
    digit = float(np.mean(digits.test.labels == commonest))
    positive = float(np.mean(data.imdb().test.ratings > 5))
    perplexity = data.unigram_perplexity(words.train, words.test)
    print(f"adding   mean of the training targets   mse {mse:.3f}")
    print(f"mnist    the commonest digit ({commonest})        accuracy {digit:.2%}")
    print(f"imdb     always the same verdict        accuracy {positive:.2%}")
    print(f"ptb      word frequencies               perplexity {perplexity:.1f}")
    return {"adding": mse, "mnist": digit, "imdb": positive, "ptb": perplexity}


def local_sweep() -> dict[str, Any]:
    """The share of all cores' time in which runs of a sweep were training, start-up included.

    The IMDB experiment, MGU and GRU with three seeds each: about a quarter of an hour.
    """
    import resource  # Windows has none

    asked = Grid(("imdb",), recipe="flow", units=("mgu", "gru"), seeds=(0, 1, 2)).recipes()
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        plan = sweep.make(asked, sweep.place(folder))
        seconds = estimates.of_runs(list(plan.runs.values()), plan.threads)
        outcome = sweep.run(plan, estimates=seconds)
        wall = time.perf_counter() - start
        if outcome.failed:
            raise ValueError(outcome.describe())
        runs = finished_runs(Path(folder))
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    available = wall * cores()
    computing = sum(
        run.result["seconds"] * run.result["time_shares"][phase]
        for run in runs
        for phase in (*COMPUTING, "data", "evaluation")
    )
    busy = (spent.ru_utime + spent.ru_stime) / available
    print(f"{len(runs)} runs, {plan.threads} thread each, {wall:.1f} s on {cores()} cores")
    print(f"training and evaluating: {computing / available:.1%} of the cores' time")
    print(f"processor time of its processes: {busy:.1%}")
    return {"runs": len(runs), "seconds": wall, "computing": computing / available, "busy": busy}


def ray_tasks() -> dict[str, Any]:
    """Seconds for tasks that do nothing, from the first submission to the last answer."""
    try:
        import ray
    except ImportError:
        raise ValueError("ray is not installed: pip install 'onegate[ray]'") from None

    ray.init("local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        task = ray.remote(num_cpus=1)(_nothing)
        ray.get([task.remote(number) for number in range(2 * cores())])  # workers are started
        start = time.perf_counter()
        references = [task.remote(number) for number in range(_RAY_TASKS)]
        submitted = time.perf_counter() - start
        ray.get(references)
        wall = time.perf_counter() - start
        start = time.perf_counter()
        for number in range(100):
            ray.get(task.remote(number))
        one = (time.perf_counter() - start) / 100
    finally:
        ray.shutdown()
    print(
        f"ray {metadata.version('ray')}: {_RAY_TASKS:,} tasks in {wall:.2f} s, "
        f"{wall / _RAY_TASKS * 1e3:.2f} ms a task ({submitted / _RAY_TASKS * 1e3:.2f} ms to "
        f"submit); one at a time {one * 1e3:.2f} ms"
    )
    return {"tasks": _RAY_TASKS, "seconds": wall, "submitting": submitted, "one": one}


def _nothing(number: int) -> int:
    return number


def full_grid() -> dict[str, Any]:
    """Time of the paper's full grid on 1, 10 and 100 machines like this one, for 1 and 10 seeds.

    Every run of `onegate reproduce --full` is looked at for some seconds.
    """
    with tempfile.TemporaryDirectory() as folder:
        plan = reproduce.prepare(reproduce.requests(full=True), Path(folder), print)
    # A run was measured on all cores; with one core to itself it takes about that many times it.
    seconds = [estimate * cores() for _, estimate in plan.runs()]
    for (recipe, _), estimate in zip(plan.runs(), seconds, strict=True):
        size = recipe.model.hidden_size
        print(f"{recipe.task}/{recipe.name} {recipe.unit} {size}: {duration(estimate)}")
    print(f"{len(seconds)} runs, {duration(sum(seconds))} of one core's time")
    rows = []
    for seeds in (1, 10):
        for machines in (1, 10, 100):
            workers = machines * cores()
            wall = makespan(seconds * seeds, workers)
            busy = sum(seconds) * seeds / (wall * workers)
            print(f"{seeds} seeds on {machines} machines: {duration(wall)}, cores {busy:.0%} busy")
            rows.append({"seeds": seeds, "machines": machines, "seconds": wall, "busy": busy})
    return {"seconds_of_one_core": sum(seconds), "rows": rows}


def makespan(seconds: Sequence[float], workers: int) -> float:
    """When the last run ends, if the longest go first, each to the first worker that is free.

    >>> makespan([3.0, 1.0, 2.0], 2)
    3.0
    """
    free = [0.0] * workers
    for run in sorted(seconds, reverse=True):
        heapq.heappush(free, heapq.heappop(free) + run)
    return max(free)


COSTS: Final[Mapping[str, Callable[[], dict[str, Any]]]] = {
    "epochs": epochs,
    "accelerate": accelerate,
    "inside": inside,
    "norms": norms,
    "new-units": new_units,
    "output-layer": output_layer,
    "baselines": baselines,
    "local-sweep": local_sweep,
    "ray": ray_tasks,
    "full-grid": full_grid,
    "streaming": latencies,
    "deploy": deploy,
}
