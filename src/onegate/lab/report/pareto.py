"""What a result costs: the metric of units and sizes against parameters, and against time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from onegate.lab.pages import canvas
from onegate.lab.pages.figure import Row
from onegate.lab.report.groups import PAPER_UNITS, Group, display, labels
from onegate.lab.report.plots import Plot, changed, scale, with_sign

# With fewer there is nothing to weigh.
_FEWEST_COSTS = 3
# Beyond so many units, those that are not the paper's step back.
_MOST_STRONG = 8
_SIZES = {True: 7.0, False: 4.5}
# Of two that coincide, both can be seen.
_PAPER_MARKERS = {"gru": "o", "mgu": "D"}
# Costs this many times apart take an axis with fewer numbers.
_WIDE = 30


@dataclass(frozen=True)
class Cost:
    """A quantity of results that is to be low."""

    quantity: str
    label: str
    kind: str


PARAMETERS = Cost("parameters", "parameters of the recurrent layers", "parameters")
TIME = Cost("seconds", "seconds of a run, evaluation included", "time")


def against_parameters(groups: Sequence[Group]) -> Plot | None:
    """The metric against the number of parameters."""
    return _against(groups, PARAMETERS)


def against_time(groups: Sequence[Group]) -> Plot | None:
    """The metric against the time of a run, if one machine made them all."""
    makers = {
        tuple(str(run.machine.get(fact)) for fact in ("processor", "threads", "processes"))
        for group in groups
        for run in group.runs
    }
    return _against(groups, TIME) if len(makers) == 1 else None


def _against(groups: Sequence[Group], cost: Cost) -> Plot | None:
    known = [group for group in groups if (group.mean(cost.quantity) or 0) > 0]
    if len({group.mean(cost.quantity) for group in known}) < _FEWEST_COSTS:
        return None
    best = frontier(known, cost)
    metric = known[0].metric
    figure, axes = canvas.new(3.6)
    _draw_units(axes, known, cost)
    axes.plot(
        [_cost(group, cost) for group in best],
        [group.value * metric.scale for group in best],
        color=canvas.MUTED.light, linestyle=":", linewidth=1.2, zorder=1,
        drawstyle="steps-post",
        label="Pareto front",
    )  # fmt: skip
    axes.set_xscale("log")
    costs = [_cost(group, cost) for group in known]
    wide = max(costs) / min(costs) > _WIDE
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0) if wide else (1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.9g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(cost.label)
    axes.set_ylabel(with_sign(f"test {metric.label}", metric))
    scaled = scale(axes, metric)
    canvas.legend_below(figure, axes)
    caption = (
        f"Test {metric.label} against {cost.label}, recipe {known[0].recipe.name}"
        f"{changed(known[0])}. {metric.direction} Point: mean over seeds; bar: from the lowest to "
        "the highest; line: sizes of one unit. Dotted: the Pareto front. "
        f"{scaled}"
    )
    rows = list(_rows(known, best, cost))
    return Plot(figure, known, cost.kind, caption, rows)


def frontier(groups: Sequence[Group], cost: Cost) -> list[Group]:
    """The groups that no cheaper one equals or beats, from the cheapest on."""
    better = 1 if groups[0].metric.higher_is_better else -1
    found: list[Group] = []
    for group in sorted(groups, key=lambda g: (_cost(g, cost), -better * g.value)):
        if not found or better * group.value > better * found[-1].value:
            found.append(group)
    return found


def _cost(group: Group, cost: Cost) -> float:
    return group.mean(cost.quantity) or 0.0


def _draw_units(axes: Axes, groups: Sequence[Group], cost: Cost) -> None:
    """Every unit by its own colour and marker; the paper's two lie on top of all others."""
    units = sorted({group.unit for group in groups}, key=_paper_units_first)
    colors, markers = canvas.colors(units), canvas.markers(units)
    many = len(units) > _MOST_STRONG
    for unit in units:
        same = sorted((g for g in groups if g.unit == unit), key=lambda g: _cost(g, cost))
        first = unit in PAPER_UNITS
        strong = first or not many
        axes.errorbar(
            [_cost(group, cost) for group in same],
            [group.value * group.metric.scale for group in same],
            yerr=_over_seeds(same),
            color=colors[unit].light, marker=_PAPER_MARKERS.get(unit, markers[unit]),
            markersize=_SIZES[first if many else True], alpha=1.0 if strong else 0.75,
            linewidth=1.2 if strong else 0.6, capsize=2, label=display(unit),
            markeredgecolor="#ffffff", markeredgewidth=0.6,
            zorder=3 + PAPER_UNITS.index(unit) if first else 2,
        )  # fmt: skip


def _paper_units_first(unit: str) -> tuple[int, str]:
    return (PAPER_UNITS.index(unit) if unit in PAPER_UNITS else len(PAPER_UNITS), unit)


def _over_seeds(same: Sequence[Group]) -> tuple[list[float], list[float]]:
    """How far the lowest and the highest seed are from the mean."""
    below, above = [], []
    for group in same:
        values, scale = group.values(group.quantity), group.metric.scale
        below.append((group.value - min(values)) * scale)
        above.append((max(values) - group.value) * scale)
    return below, above


def _rows(groups: Sequence[Group], best: Sequence[Group], cost: Cost) -> Iterator[Row]:
    yield ("label", "unit", "hidden_size", "seeds", cost.quantity, "quantity", "mean", "lowest",
           "highest", "on_frontier")  # fmt: skip
    for group, label in zip(groups, labels(groups), strict=True):
        values = group.values(group.quantity)
        yield (label, group.unit, group.hidden_size, len(values), _cost(group, cost),
               group.quantity, group.value, min(values), max(values), group in best)  # fmt: skip
