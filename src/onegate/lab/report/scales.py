"""Logarithmic and logit axes of a metric, with plain numbers at their ticks."""

from __future__ import annotations

from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter
from numpy.typing import ArrayLike, NDArray

from onegate.lab.tasks import Metric

# From this on percentages have no errors to take the logarithm of.
_ALL_RIGHT = 99.99
# The largest value as a multiple of the smallest: above it an axis is wide.
_WIDE_ERRORS, _WIDE = 8.0, 30.0
# Below it an axis is narrow. How the numbers of logarithmic axes begin, by how wide they are:
_NARROW = 2.0
_FINE = (*(n / 10 for n in range(10, 20)), *(n / 2 for n in range(4, 20)))
_COARSE = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
_PERCENTAGES = (50, 70, 80, 90, 95, 97, 98, 99, 99.5)
# Between the outermost points and the ends of the axis, as a share of what it shows.
_MARGIN = 0.05


def scale(axes: Axes, metric: Metric, direction: Literal["x", "y"] = "y") -> str:
    """Scales an axis that holds all its points; returns what a caption has to say about it.

    Logarithmic where low is good. Where high is good, the logarithm is of what is missing, if that
    differs much; if it does not, the axis stays as it is.
    """
    axis = axes.yaxis if direction == "y" else axes.xaxis
    set_scale = axes.set_yscale if direction == "y" else axes.set_xscale
    set_limits = axes.set_ylim if direction == "y" else axes.set_xlim
    low, high = axis.get_data_interval()
    if not metric.higher_is_better:
        set_scale("log")
        spans = high / low
        begins = (1.0,) if spans > _WIDE else _COARSE if spans > _NARROW else _FINE
        axis.set_major_locator(LogLocator(subs=begins))
        said = "Logarithmic."
    elif high < _ALL_RIGHT and (100 - low) / (100 - high) > _WIDE_ERRORS:
        set_scale("function", functions=(_to_errors, _from_errors))
        ends = _to_errors([low, high])
        set_limits(*_from_errors(ends + _MARGIN * np.ptp(ends) * np.array([-1, 1])))
        axis.set_major_locator(FixedLocator(_PERCENTAGES))
        said = "Logarithmic in the errors."
    else:
        return ""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
    return said


def _to_errors(percentage: ArrayLike) -> NDArray[np.float64]:
    missing = np.maximum(100 - np.asarray(percentage, dtype=np.float64), 100 - _ALL_RIGHT)
    return -np.log(missing)


def _from_errors(scaled: ArrayLike) -> NDArray[np.float64]:
    return 100 - np.exp(-np.asarray(scaled, dtype=np.float64))
