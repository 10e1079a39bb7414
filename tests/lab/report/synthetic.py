"""Run folders with made-up numbers, written as training writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onegate.lab.recipes import Recipe, override, recipe
from onegate.lab.runs import ComparedUnit, Comparison, Run, RunFolder, run_name

MACHINE: Mapping[str, Any] = {
    "onegate": "0.1.0",
    "commit": "0123456789abcdef0123456789abcdef01234567",
    "torch": "2.13.0+cpu",
    "numpy": "2.4.6",
    "python": "3.11.7",
    "system": "Linux-6.1-x86_64",
    "processor": "A processor with a rather long name @ 2.60GHz",
    "cores": 2,
    "threads": 2,
    "engine": "fused: float32 on the CPU",
}
METRIC = {"adding": "mse", "ptb": "perplexity"}
_PER_EPOCH = {"adding": 100, "imdb": 250, "ptb": 1328}
_START = {"mse": 0.17, "accuracy": 0.1, "perplexity": 700.0}


def metric_of(task: str) -> str:
    return METRIC.get(task, "accuracy")


def finished(
    root: Path,
    made: Recipe,
    end: float,
    points: int = 20,
    machine: Mapping[str, Any] = MACHINE,
    seconds_per_epoch: float = 2.5,
) -> Path:
    """A finished run whose test metric ends at `end`; returns its folder."""
    metric = metric_of(made.task)
    per_epoch = _PER_EPOCH.get(made.task, 500)
    total = made.updates(made.length, per_epoch)
    folder = RunFolder(root / run_name(made))
    with folder.locked():
        folder.start(made)
        folder.note_machine({**machine, "seed": made.seed})
        for k in range(1, points + 1):
            update = max(1, round(total * k / points))
            value = _START[metric] + (end - _START[metric]) * (1 - math.exp(-6 * k / points))
            value = end if k == points else value
            line = {"update": update, "epoch": update / per_epoch, f"valid_{metric}": value * 1.01}
            if made.optimizer.kind in ("sgd", "nesterov"):
                line["flow_time"] = update * made.flow_step
            if made.test_curve:
                line[f"test_{metric}"] = value
            folder.append_metrics(line)
        result = {
            "update": total,
            "epoch": total / per_epoch,
            f"valid_{metric}": end * 1.01,
            f"test_{metric}": end,
            "seconds": seconds_per_epoch * total / per_epoch,
            "seconds_per_epoch": seconds_per_epoch,
            "parameters": 20_400,
            "parameters_paper": 20_400,
            "parameters_total": 21_000,
        }
        folder.note_status("done", update=total, result=result)
    return folder.path


def seeds(
    root: Path,
    task: str,
    name: str,
    unit: str,
    ends: Sequence[float],
    settings: Sequence[str] = (),
    **more: Any,
) -> list[Path]:
    """One finished run for each end value, with seeds 0, 1 and so on."""
    return [
        finished(root, override(recipe(task, name, unit), [*settings, f"seed={seed}"]), end, **more)
        for seed, end in enumerate(ends)
    ]


def everything(root: Path) -> None:
    """Runs of all tasks, a comparison, many units, a stopped, a failed and a damaged run."""
    for unit, better in (("gru", 0.0), ("mgu", 0.004)):
        speed = 1.0 if unit == "gru" else 0.7
        seeds(root, "adding", "paper", unit, [0.0043 + better / 9, 0.0041, 0.0047 - better / 9],
              seconds_per_epoch=5.8 * speed)  # fmt: skip
        seeds(root, "adding", "tuned", unit, [2.9e-5, 4.1e-5, 3.3e-5])
        seeds(root, "imdb", "flow", unit, [0.587 + better])
        seeds(root, "imdb", "tuned", unit, [0.874 + better, 0.871, 0.875])
        seeds(root, "mnist_rows", "flow", unit, [0.876 + better, 0.879 + better, 0.878],
              seconds_per_epoch=4.1 * speed)  # fmt: skip
        seeds(root, "mnist_rows", "tuned", unit, [0.989, 0.9885 + better / 9, 0.9893])
        seeds(root, "mnist_pixels", "flow", unit, [0.846 + better],
              ["length=0.8", "data.train=10_000"])  # fmt: skip
        for size, end in ((50, 160.0), (100, 121.0), (200, 108.0), (500, 103.0)):
            seeds(root, "ptb", "paper", unit, [end + 900 * better],
                  [f"model.hidden_size={size}"], seconds_per_epoch=90 * speed)  # fmt: skip
        seeds(root, "ptb", "tuned", unit, [88.2 + better])
    for number, unit in enumerate(("lstm", "simple", "irnn", "mgu_gate_after", "janet", "mut1",
                                   "ligru", "scrn")):  # fmt: skip
        seeds(root, "mnist_rows", "tuned", unit, [0.96 + 0.003 * number, 0.958 + 0.003 * number])
    compared(root)
    unfinished(root, recipe("mnist_permuted", "tuned", "mgu"), "stopped")
    damaged(root / "damaged")


def compared(root: Path) -> Comparison:
    rows = (
        ComparedUnit("gru", 100, (0.876, 0.879), 4.1, 38_700, 38_700, ("a", "b")),
        ComparedUnit("mgu", 100, (0.880, 0.883), 2.9, 25_800, 25_800, ("c", "d")),
    )
    made = Comparison("mnist_rows", "flow", "units", "test_accuracy", rows)
    made.write(root / "comparison-mnist_rows.json")
    return made


def unfinished(root: Path, made: Recipe, state: Any) -> Path:
    folder = RunFolder(root / run_name(made))
    with folder.locked():
        folder.start(made)
        folder.append_metrics({"update": 550, "epoch": 1.0, "valid_accuracy": 0.5})
        folder.note_status(state, update=560)
    return folder.path


def damaged(path: Path) -> Path:
    """A run whose recipe was cut in two."""
    folder = RunFolder(path)
    with folder.locked():
        folder.start(recipe("adding", "paper", "mgu"))
        folder.note_status("done", update=1, result={"test_mse": 0.1})
    text = (path / "recipe.json").read_text()
    (path / "recipe.json").write_text(text[: len(text) // 2])
    return path


def read(root: Path) -> list[Run]:
    """The finished runs in a folder, whatever else is in it."""
    folders = [p.parent for p in sorted(root.rglob("recipe.json")) if p.parent.name != "damaged"]
    return [run for run in map(Run.read, folders) if run.state == "done"]
