"""Numbers as they are written."""

from __future__ import annotations

import math

import pytest

from onegate.lab.tasks import ACCURACY, MSE, PERPLEXITY, TASKS, Metric


def test_every_task_is_told_to_readers() -> None:
    assert all(task.title and task.short and task.about for task in TASKS.values())
    assert len({task.title for task in TASKS.values()}) == len(TASKS)


def test_metrics_are_computed_from_loss_and_hits() -> None:
    assert MSE.of(0.25, 0.0) == 0.25
    assert ACCURACY.of(0.25, 0.75) == 0.75
    assert PERPLEXITY.of(math.log(101.0), 0.0) == pytest.approx(101.0)
    assert math.isfinite(PERPLEXITY.of(1e9, 0.0))


@pytest.mark.parametrize(
    ("metric", "value", "spread", "text"),
    [
        (ACCURACY, 0.88414, None, "88.41%"),
        (ACCURACY, 0.88414, 0.0012, "88.41 ± 0.12%"),
        (ACCURACY, 1.0, 0.0, "100.00 ± 0.00%"),
        (MSE, 0.00447, None, "0.0045"),
        (MSE, 0.000034, 0.0000056, "0.000034 ± 0.000006"),
        (MSE, 0.0, None, "0.0000"),
        (PERPLEXITY, 101.638, None, "101.64"),
    ],
)
def test_values(metric: Metric, value: float, spread: float | None, text: str) -> None:
    assert metric.text(value, spread) == text


def test_differences_have_a_sign_unless_they_vanish() -> None:
    assert ACCURACY.difference(0.0034) == "+0.34"
    assert ACCURACY.difference(-0.0034) == "\N{MINUS SIGN}0.34"
    assert PERPLEXITY.difference(-0.001) == "0.00"


def test_which_way_is_better() -> None:
    assert ACCURACY.is_better(0.1)
    assert not PERPLEXITY.is_better(0.1)
    assert MSE.is_better(-0.1)
