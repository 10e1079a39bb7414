"""Estimates of whole runs."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from onegate.lab import tasks
from onegate.lab.recipes import Recipe
from onegate.lab.sweep import estimates
from onegate.lab.train.loop import Trainer
from tests.lab.sweep.made import recipes


def test_a_run_is_its_updates_and_evaluations() -> None:
    (made,) = recipes(("mgu",), (0,), "length=5", "evaluate_every=1")
    task = tasks.load(made)
    # 6 updates a pass; the validation set fills 2 batches, and is read 6 times.
    expected = 0.1 * (5 * 6 + estimates._FORWARD_SHARE * 6 * 2)
    assert estimates.whole_run(made, task, 0.1) == pytest.approx(expected)


def test_every_configuration_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[tuple[str, int]] = []

    def look(recipe: Recipe) -> float | None:
        looked.append((recipe.unit, torch.get_num_threads()))
        return {"mgu": 4.0, "gru": None, "lstm": 8.0}[recipe.unit]

    monkeypatch.setattr(estimates, "_look", look)
    before = torch.get_num_threads()
    found = estimates.of_runs(recipes(("mgu", "gru", "lstm"), (0, 1)), before + 1)
    assert looked == [(unit, before + 1) for unit in ("mgu", "gru", "lstm")]
    assert found == [4.0, 6.0, 8.0] * 2
    assert torch.get_num_threads() == before


def test_a_large_grid_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 15))
    # Of the module alone: threads that other tests left behind ask for the time, too.
    of_ours = SimpleNamespace(monotonic=lambda: float(next(clock)))
    monkeypatch.setattr(estimates, "time", of_ours)
    monkeypatch.setattr(estimates, "_look", lambda _: 3.0)
    made = recipes(("mgu",), (0,))[0]
    grid = [replace(made, length=float(n)) for n in range(1, 6)]
    assert estimates.of_runs(grid, 1) == [3.0] * 5
    assert next(clock) < 105


def test_a_look_is_longer_for_longer_runs_and_none_for_diverging_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(estimates, "_SECONDS_A_MEASUREMENT", 0.0)
    (made,) = recipes(("mgu",), (0,))
    monkeypatch.setattr(estimates, "whole_run", lambda _, __, seconds: seconds)
    assert (estimates._look(made) or 0) > 0

    def diverge(self: Trainer, batch: tasks.Batch) -> float:
        from onegate.lab.train.loop import DivergedError

        raise DivergedError("the loss is nan")

    monkeypatch.setattr(Trainer, "step", diverge)
    assert estimates._look(made) is None
