"""The figures of a report."""

from __future__ import annotations

from collections.abc import Sequence

from onegate.lab.pages import canvas
from onegate.lab.pages.figures import Figure, finished
from onegate.lab.report import pareto, plots
from onegate.lab.report.groups import Group, labels
from onegate.lab.report.plots import Plot
from onegate.lab.tasks import TASKS

# Of groups that differ in units, sizes and seeds alone.
_COMPARING = (
    plots.over_sizes,
    plots.ranking,
    pareto.against_parameters,
    pareto.against_time,
)


def draw(groups: Sequence[Group]) -> list[Figure]:
    """Every figure that these groups give, in the order of the page."""
    found = []
    with canvas.style():
        for same in _belonging_together(groups):
            alike = _most_alike(same)
            drawn = [plots.over_training(same), *(kind(alike) for kind in _COMPARING)]
            found += [_finished(plot) for plot in drawn if plot is not None]
    return found


def _most_alike(groups: Sequence[Group]) -> list[Group]:
    """The most groups with the same changes of their recipe; of as many, the fewest changes."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(str(group.changes), []).append(group)
    return max(found.values(), key=lambda same: (len(same), -len(same[0].changes)))


def _belonging_together(groups: Sequence[Group]) -> list[list[Group]]:
    """One list for each task, recipe and clock: what one pair of axes can show."""
    found: dict[tuple[str, str, bool], list[Group]] = {}
    for group in groups:
        flows = group.recipe.clock == "flow_time"
        found.setdefault((group.task, group.recipe.name, flows), []).append(group)
    return list(found.values())


def _finished(plot: Plot) -> Figure:
    return finished(
        plot.figure,
        section=plot.groups[0].task,
        name=_name(plot),
        caption=plot.caption,
        alt=_alt(plot.groups),
        rows=plot.rows,
    )


def _name(plot: Plot) -> str:
    recipe = plot.groups[0].recipe
    on_a_clock_of_its_own = recipe.clock == "flow_time" and recipe.name != "flow"
    clock = ["flow"] if on_a_clock_of_its_own else []
    return "-".join([recipe.task, recipe.name, *clock, plot.kind])


def _alt(groups: Sequence[Group]) -> str:
    """The end results in words."""
    said = []
    for group, label in zip(groups, labels(groups), strict=True):
        stated = group.published()
        paper = f" (paper: {stated.printed})" if stated else ""
        said.append(f"{label}: {group.metric.text(group.value)}{paper}")
    task = TASKS[groups[0].task]
    recipe = groups[0].recipe.name
    return f"{task.title}, recipe {recipe}, test {task.metric.label}. {'; '.join(said)}."
