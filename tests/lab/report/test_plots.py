"""Axes on which half of the error is as far everywhere."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from onegate.lab.report.plots import scale
from onegate.lab.tasks import ACCURACY, MSE


def axes_with(values: list[float], direction: Literal["x", "y"]) -> Axes:
    axes = Figure().subplots()
    places = list(range(len(values)))
    axes.plot(*((values, places) if direction == "x" else (places, values)))
    return axes


@pytest.mark.parametrize("direction", ["x", "y"])
def test_halving_the_errors_is_as_far_everywhere(direction: Literal["x", "y"]) -> None:
    axes = axes_with([20.0, 60.0, 80.0, 99.0], direction)
    assert scale(axes, ACCURACY, direction) == "Logarithmic in the errors."
    values = [20.0, 60.0, 80.0, 90.0]
    points = [(v, 0.0) if direction == "x" else (0.0, v) for v in values]
    places = axes.transData.transform(points)[:, 0 if direction == "x" else 1]
    first, *others = np.diff(places)
    assert first > 0
    assert others == pytest.approx([first, first])
    low, high = axes.get_xlim() if direction == "x" else axes.get_ylim()
    assert low < 20
    assert 99 < high < 100


@pytest.mark.parametrize("values", [[86.0, 90.0], [10.0, 100.0]])
def test_errors_that_differ_little_or_are_none_change_nothing(values: list[float]) -> None:
    axes = axes_with(values, "y")
    assert scale(axes, ACCURACY) == ""
    assert axes.get_yscale() == "linear"


def test_where_low_is_good_the_axis_is_logarithmic() -> None:
    axes = axes_with([0.1, 0.0001], "y")
    assert scale(axes, MSE) == "Logarithmic."
    assert axes.get_yscale() == "log"


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        ([98.6, 133.0], ["100", "110", "120", "130"]),
        ([6.2, 8.9], ["6.5", "7", "7.5", "8", "8.5"]),
        ([84.0, 210.0], ["100", "150", "200"]),
        ([0.0002, 0.1], ["0.001", "0.01", "0.1"]),
    ],
)
def test_wide_or_narrow_some_numbers_stand_at_the_axis(
    values: list[float], numbers: list[str]
) -> None:
    axes = axes_with(values, "y")
    scale(axes, MSE)
    low, high = axes.get_ylim()
    within = [v for v in axes.yaxis.get_majorticklocs() if min(values) <= v <= max(values)]
    assert [axes.yaxis.get_major_formatter()(v, 0) for v in within] == numbers
    assert low < within[0]
    assert within[-1] < high
