"""Short runs for sweeps, and what it means that two of them are equal."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from onegate.lab.recipes import Recipe
from onegate.lab.runs import Run
from onegate.lab.sweep import Grid, estimates, local
from onegate.lab.train.checkpoints import Checkpoints

# Dropout and two layers, so that random numbers matter.
SETTINGS = ("data.train=60", "data.valid=20", "data.test=20", "data.shortest=10",
            "data.longest=12", "model.num_layers=2", "model.dropout=0.3", "batch_size=10",
            "length=3")  # fmt: skip
OPTIONS = [word for setting in SETTINGS for word in ("--set", setting)]


def recipes(
    units: tuple[str, ...] = ("mgu", "gru"), seeds: tuple[int, ...] = (0, 1), *settings: str
) -> list[Recipe]:
    grid = Grid(("adding",), units=units, hidden=(5,), seeds=seeds, settings=(*SETTINGS, *settings))
    return grid.recipes()


def run_quickly(monkeypatch: pytest.MonkeyPatch, rounds: int = 1) -> None:
    """Sweeps run in this process, which may have small data; estimates take no time."""
    monkeypatch.setattr(estimates, "_SECONDS_A_MEASUREMENT", 0.0)
    monkeypatch.setattr(estimates, "_ROUNDS", rounds)
    monkeypatch.setattr(local, "cores", lambda: 1)


def same_bits(one: Path, other: Path) -> None:
    """Two finished runs: equal weights, optimiser, random numbers, metrics and result."""
    first, second = (Checkpoints(folder / "checkpoints").last() for folder in (one, other))
    assert first is not None
    assert second is not None
    assert first.update == second.update
    assert first.tensors.keys() == second.tensors.keys()
    for name, tensor in first.tensors.items():
        assert torch.equal(tensor, second.tensors[name]), name
    runs = [Run.read(folder) for folder in (one, other)]
    assert [run.state for run in runs] == ["done", "done"]
    logs = [[{k: v for k, v in m.items() if "second" not in k} for m in r.metrics] for r in runs]
    assert logs[0] == logs[1]
    results = [{k: v for k, v in r.result.items() if "second" not in k} for r in runs]
    assert results[0] | {"time_shares": 0} == results[1] | {"time_shares": 0}
