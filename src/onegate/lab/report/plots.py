"""What is drawn: a metric over training, over sizes, over units; logarithmic and logit axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import ArrayLike, NDArray

from onegate.lab.pages import canvas
from onegate.lab.pages.figure import Row
from onegate.lab.report.curves import Curve, axis, curve, quantity
from onegate.lab.report.groups import PAPER_UNITS, Group, display, labels, plain
from onegate.lab.tasks import TASKS, Axis, Metric

_MOST_CURVES = 8
_LINES = ("-", (0, (3.7, 1.6)), (0, (6.4, 1.6, 1, 1.6)), (0, (4, 1.4, 1, 1.4, 1, 1.4)))
_DOTTED = (0, (1.2, 1.6))
_FEWEST_RANKED = 4
_LAYERS = {2: "two", 3: "three"}

LineStyle = str | tuple[int, tuple[float, ...]]


@dataclass(frozen=True)
class Plot:
    """A drawing of groups; rows: what was drawn, headings first."""

    figure: Figure
    groups: Sequence[Group]
    kind: str
    caption: str
    rows: Sequence[Row]


def over_training(groups: Sequence[Group]) -> Plot | None:
    """The paper's figures 2 to 5: a line a group, a band over its seeds, the paper's end values."""
    logged = [group for group in groups if quantity([group])]
    shown = _most_telling(logged)
    measured = quantity(shown) if shown else None
    if measured is None:
        return None
    x_axis, metric = axis(shown[0]), shown[0].metric
    drawn = [curve(group, x_axis, measured) for group in shown]
    figure, axes = canvas.new(3.4)
    named = labels(shown)
    colors = canvas.colors([group.unit for group in shown])
    before: list[str] = []
    for line, label in zip(drawn, named, strict=True):
        unit = line.group.unit
        style = _LINES[before.count(unit)]
        _draw_curve(axes, line, x_axis, style, colors[unit].light, label)
        stated = line.group.published()
        if stated and unit not in before:
            axes.axhline(
                stated.value * metric.scale,
                color=colors[unit].light, linestyle=_DOTTED, linewidth=1.2,
                label=f"{display(unit)} in the paper: {stated.printed}",
            )  # fmt: skip
        before.append(unit)
    scaled = _label_axes(axes, x_axis, measured, metric)
    canvas.legend_below(figure, axes)
    caption = _caption_over_training(len(groups), drawn, measured, scaled)
    return Plot(figure, shown, "curves", caption, list(_curve_rows(drawn, named, x_axis)))


def _most_telling(groups: Sequence[Group]) -> list[Group]:
    """Those that one figure can hold.

    Of several sizes of a unit, the one nearest to the recipe's (another figure has the others).
    Beside the groups nearest to the recipe, those of their units that were changed but trained as
    long. Of too many the paper's units and the best of the rest; of one unit no more than there
    are kinds of lines.
    """
    if not groups:
        return []
    if len({(g.unit, g.hidden_size) for g in groups}) > len({g.unit for g in groups}):
        nearest = min(group.away_from_size for group in groups)
        groups = [group for group in groups if group.away_from_size == nearest]
    fewest = min(len(group.changes) for group in groups)
    first = [group for group in groups if len(group.changes) == fewest]
    trained = {(group.unit, group.recipe.length) for group in first}
    groups = [g for g in groups if g in first or (g.unit, g.recipe.length) in trained]
    better = -1 if groups[0].metric.higher_is_better else 1
    kept: list[Group] = []
    for group in sorted(
        groups, key=lambda g: (len(g.changes), g.unit not in PAPER_UNITS, better * g.value)
    ):
        alike = sum(other.unit == group.unit for other in kept)
        if len(kept) < _MOST_CURVES and alike < len(_LINES):
            kept.append(group)
    return [group for group in groups if group in kept]


def _draw_curve(
    axes: Axes, line: Curve, x_axis: Axis, style: LineStyle, color: str, label: str
) -> None:
    scale = line.group.metric.scale
    axes.plot(line.x, line.mean * scale, linestyle=style, color=color, label=label)
    if len(line.group.runs) > 1:
        axes.fill_between(
            line.x, line.low * scale, line.high * scale, color=color, alpha=0.2, linewidth=0
        )
    if line.quantity.startswith("valid_"):
        ends = [
            m[x_axis.column] / x_axis.unit
            for run in line.group.runs
            for m in run.metrics
            if m["update"] == run.result.get("update") and x_axis.column in m
        ]
        if ends:  # the test result, at the mean position of the models that count
            axes.plot(sum(ends) / len(ends), line.group.value * scale, "o", color=color)


def _label_axes(axes: Axes, x_axis: Axis, measured: str, metric: Metric) -> str:
    """Labels both axes; returns what is to be said of their scales."""
    split = "test" if measured.startswith("test_") else "validation"
    axes.set_xlabel(x_axis.label)
    axes.set_ylabel(with_sign(f"{split} {metric.label}", metric))
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10]))  # whole epochs
    scaled = scale(axes, metric)
    if x_axis.second:
        label, factor = x_axis.second
        above = axes.secondary_xaxis("top", functions=(_times(factor), _times(1 / factor)))
        above.set_xlabel(label)
    return scaled


def _times(factor: float) -> Callable[[ArrayLike], ArrayLike]:
    return lambda x: np.asarray(x) * factor


def with_sign(label: str, metric: Metric) -> str:
    """A label with the sign of its numbers."""
    return f"{label} ({metric.sign})" if metric.sign else label


def _caption_over_training(
    available: int, drawn: Sequence[Curve], measured: str, scaled: str
) -> str:
    first = drawn[0].group
    metric = first.metric
    split = "Test" if measured.startswith("test_") else "Validation"
    parts = [f"{split} {metric.label}, recipe {first.recipe.name}.", metric.direction]
    if any(len(line.group.runs) > 1 for line in drawn):
        parts.append("Line: mean over seeds; band: from the lowest to the highest.")
    if split == "Validation":
        parts.append("Dot: the test result of the model that counts.")
    if any(line.group.published() for line in drawn):
        parts.append("Dotted: the paper's end result.")
    if scaled:
        parts.append(scaled)
    if any(line.group.on_stand_in for line in drawn):
        parts.append("On a stand-in for the data.")
    if not all(line.group.is_as_named for line in drawn):
        parts.append("The recipe was changed: see the notes below the table.")
    if len(drawn) < available:
        parts.append(f"{len(drawn)} of {available} curves are shown; the table has all.")
    return " ".join(parts)


def _curve_rows(drawn: Sequence[Curve], named: Sequence[str], x_axis: Axis) -> Iterator[Row]:
    yield ("curve", "unit", "hidden_size", "seeds", x_axis.label, x_axis.column, "quantity",
           "mean", "lowest", "highest")  # fmt: skip
    for line, label in zip(drawn, named, strict=True):
        group = line.group
        whose = (label, group.unit, group.hidden_size, len(group.runs))
        points = zip(line.x, line.mean, line.low, line.high, strict=True)
        for x, *values in points:
            yield (*whose, float(x), float(x * x_axis.unit), line.quantity, *map(float, values))


def over_sizes(groups: Sequence[Group]) -> Plot | None:
    """The paper's table over sizes as a figure, with ours in it."""
    task = TASKS[groups[0].task]
    if not task.sizes or len({g.hidden_size for g in groups}) < 2:
        return None
    metric, measured = groups[0].metric, groups[0].quantity
    units = list(dict.fromkeys(g.unit for g in groups))
    colors = canvas.colors(units)
    figure, axes = canvas.new(3.5)
    rows: list[Row] = [("unit", "hidden_size", "source", "quantity", "value")]
    for unit in units:
        color = colors[unit].light
        stated = [
            (size, found.value) for size in task.sizes
            if (found := task.find(unit, size, measured))
        ]  # fmt: skip
        ours = sorted((g.hidden_size, g.value) for g in groups if g.unit == unit)
        if stated:
            axes.plot(
                *zip(*stated, strict=True), "o", color=color, linestyle=_DOTTED, linewidth=1.2,
                markerfacecolor="none", label=f"{display(unit)} in the paper",
            )  # fmt: skip
        axes.plot(*zip(*ours, strict=True), "-o", color=color, label=display(unit))
        rows += [(unit, size, "paper", measured, value) for size, value in stated]
        rows += [(unit, size, "measured", measured, value) for size, value in ours]
    layers = groups[0].recipe.model.num_layers
    each = f" in each of {_LAYERS.get(layers, layers)} layers" if layers > 1 else ""
    axes.set_xlabel(f"hidden neurons{each}")
    axes.set_ylabel(f"test {metric.label}")
    canvas.legend_below(figure, axes)
    caption = (
        f"Test {metric.label} by size, recipe {groups[0].recipe.name}, beside the paper's "
        f"{task.published[0].place}. "
        f"{metric.direction}"
    )
    return Plot(figure, groups, "sizes", caption, rows)


def ranking(groups: Sequence[Group]) -> Plot | None:
    """Units in their order, the best on top; for more units than curves can show well.

    Of several sizes of a unit, the one nearest to the recipe's.
    """
    nearest: dict[str, Group] = {}
    for group in sorted(groups, key=lambda g: g.away_from_size):
        nearest.setdefault(group.unit, group)
    groups = list(nearest.values())
    if len(groups) < _FEWEST_RANKED:
        return None
    metric = groups[0].metric
    best_first = sorted(groups, key=lambda g: g.value, reverse=metric.higher_is_better)
    named = labels(best_first)
    present = [unit for unit in PAPER_UNITS if any(g.unit == unit for g in groups)]
    colors = canvas.colors(present)
    figure, axes = canvas.new(1.0 + 0.22 * len(groups))
    for rank, group in enumerate(best_first, start=1):
        color = colors.get(group.unit, canvas.MUTED).light
        seeds = [value * metric.scale for value in group.values(group.quantity)]
        axes.plot(seeds, [rank] * len(seeds), "o", color=color, alpha=0.4, markeredgewidth=0)
        mean = group.value * metric.scale
        axes.plot(mean, rank, "|", color=color, markersize=11, markeredgewidth=2.2)
    axes.set_yticks(range(1, len(named) + 1), named)
    axes.tick_params(axis="y", labelcolor=canvas.INK.light, length=0)
    axes.set_ylim(len(named) + 0.7, 0.3)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(with_sign(f"test {metric.label}", metric))
    scaled = scale(axes, metric, "x")
    caption = (
        f"{TASKS[groups[0].task].title}: units ranked by test {metric.label}, recipe "
        f"{groups[0].recipe.name}{changed(groups[0])}, the best on top. Stroke: mean; dots: "
        f"single seeds. {scaled}"
    )
    return Plot(figure, best_first, "ranking", caption, list(_ranking_rows(best_first, named)))


def changed(group: Group) -> str:
    """The changes of the recipe, for a caption."""
    return "".join(f", {change.path} {plain(change.here)}" for change in group.changes)


def _ranking_rows(best_first: Sequence[Group], named: Sequence[str]) -> Iterator[Row]:
    yield "rank", "label", "unit", "hidden_size", "parameters", "seed", "quantity", "value"
    for rank, (group, label) in enumerate(zip(best_first, named, strict=True), start=1):
        for run in group.runs:
            parameters = run.result.get("parameters", "")
            yield (rank, label, group.unit, group.hidden_size, parameters, run.recipe.seed,
                   group.quantity, run.result[group.quantity])  # fmt: skip


# From this on percentages have no errors to take the logarithm of.
_ALL_RIGHT = 99.99
# The largest value as a multiple of the smallest: above it an axis is wide.
_WIDE_ERRORS, _WIDE = 8.0, 30.0
# Below it an axis is narrow. How the numbers of logarithmic axes begin, by how wide they are:
_NARROW = 2.0
_FINE = (*(n / 10 for n in range(10, 20)), *(n / 2 for n in range(4, 20)))
_COARSE = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
_PERCENTAGES = (50, 70, 80, 90, 95, 97, 98, 99, 99.5, 99.8, 99.9, 99.95, 99.98, 99.99)
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
