"""The figures of a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onegate.lab.pages import canvas
from onegate.lab.pages.figure import Figure, finished
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


def draw(
    groups: Sequence[Group],
    before: Sequence[str] = (),
    notify: Callable[[str], None] = lambda _: None,
    timed: bool = True,
) -> list[Figure]:
    """Every figure that these groups give, in the order of the page.

    before: of their names. notify: is called for each task. timed: also what results cost in time.
    """
    kinds = [kind for kind in _COMPARING if timed or kind is not pareto.against_time]
    found = []
    with canvas.style():
        for same in _belonging_together(groups):
            notify(f"drawing {TASKS[same[0].task].title}, recipe {same[0].recipe.name}")
            alike = _most_alike(same)
            drawn = [plots.over_training(same), *(kind(alike) for kind in kinds)]
            found += [_finished(plot, before) for plot in drawn if plot is not None]
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


def _finished(plot: Plot, before: Sequence[str]) -> Figure:
    return finished(
        plot.figure,
        section=plot.groups[0].task,
        words=[*before, *_words(plot)],
        caption=plot.caption,
        alt=_alt(plot.groups),
        rows=plot.rows,
    )


def _words(plot: Plot) -> list[str]:
    """As `_belonging_together` tells groups apart, each has figures of its own."""
    recipe = plot.groups[0].recipe
    flows = recipe.clock == "flow_time"
    as_named = flows == (recipe.name == "flow")
    clock = [] if as_named else ["flow" if flows else "epochs"]
    return [recipe.task, recipe.name, *clock, plot.kind]


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
