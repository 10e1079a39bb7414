"""Numbers as they are written."""

from __future__ import annotations

import pytest

from onegate.lab.recipes import TASKS
from onegate.lab.report.subjects import ACCURACY, MSE, PERPLEXITY, SUBJECTS, Metric, seconds


def test_every_task_has_a_subject() -> None:
    assert set(SUBJECTS) == set(TASKS)


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


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0.5 s"), (99.4, "99.4 s"), (119.7, "2 min"), (250, "4 min 10 s"), (3600, "1 h"),
     (7505, "2 h 5 min")],
)  # fmt: skip
def test_durations(value: float, text: str) -> None:
    assert seconds(value) == text
