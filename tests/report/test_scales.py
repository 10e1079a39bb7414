"""Axes on which half of the error is as far everywhere."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from onegate.report.scales import scale
from onegate.report.subjects import ACCURACY, MSE


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
