"""The tables of the page: what was measured beside what was published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onegate.lab import recipes
from onegate.lab.pages.markup import (
    Column,
    Markup,
    Table,
    count,
    escaped,
    joined,
    note_mark,
    number,
    tag,
)
from onegate.lab.report.groups import PAPER_UNITS, Group, closest, display, plain
from onegate.lab.runs import ComparedUnit, Comparison
from onegate.lab.tasks import TASKS, Metric, Published, Task

NONE = "\N{EN DASH}"
# The recipes that stand for the paper's own runs.
AS_PUBLISHED = ("paper", "flow")
_MATCHED = {"units": "numbers of hidden units", "parameters": "numbers of parameters"}


def measured(group: Group, quantity: str, metric: Metric) -> str:
    """Mean and spread over seeds of a result."""
    mean = group.mean(quantity)
    return NONE if mean is None else number(mean, metric.text(mean, group.spread(quantity)))


def stated(published: Published | None) -> str:
    """The paper's value, as printed, with its place."""
    if published is None:
        return NONE
    return tag("data", published.printed, value=repr(published.value), title=published.place)


def difference(group: Group | None, quantity: str, metric: Metric) -> str:
    """Measured minus published, marked as better or worse if it is more than the spread."""
    if group is None:
        return NONE
    published, mean = group.published(quantity), group.mean(quantity)
    if published is None or mean is None:
        return NONE
    value = mean - published.value
    kind = "better" if metric.is_better(value) else "worse"
    told = abs(value) > (group.spread(quantity) or 0.0)
    return number(value, metric.difference(value), class_=kind if told else None)


def at_a_glance(groups: Sequence[Group]) -> Table:
    """The paper's two units on every task of it: as published, as measured, and tuned.

    Of other tasks all units that were run.
    """
    rows: list[list[str]] = []
    for task in TASKS.values():
        ours = [g for g in groups if g.task == task.name]
        metric = task.metric
        quantity = f"test_{metric.name}"
        names: tuple[str, ...] = AS_PUBLISHED
        shown: tuple[str, ...] = PAPER_UNITS
        if "paper" not in task.recipes:
            names, shown = tuple(task.recipes), tuple(dict.fromkeys(g.unit for g in ours))
        for unit in shown if ours or task.place else ():
            group = closest(ours, unit, names)
            tuned = closest(ours, unit, ("tuned",))
            own = recipes.recipe(task.name, names[0], unit).model.hidden_size
            size = group.hidden_size if group else own
            rows.append(
                [
                    tag("a", f"{task.title}, {display(unit)}", href=f"#{task.name}"),
                    stated(task.find(unit, size, quantity)),
                    _marked(group, measured(group, quantity, metric)) if group else "not run",
                    difference(group, quantity, metric),
                    _marked(tuned, measured(tuned, quantity, metric)) if tuned else "not run",
                    metric.label,
                ]
            )
    return Table(
        "Results on the test sets",
        [
            Column("task and unit", numeric=False),
            Column("paper"),
            Column("measured"),
            Column("difference"),
            Column("tuned"),
            Column("metric", numeric=False),
        ],
        rows,
    )


def _marked(group: Group, text: str) -> Markup:
    """A dagger where the runs are not the recipe as it stands."""
    return escaped(text) if group.is_as_named else joined(text, tag("sup", "†"))


def results(groups: Sequence[Group]) -> Table:
    """All runs of one task, by recipe, unit and size."""
    metric = groups[0].metric
    valid = f"valid_{metric.name}"
    notes = _Notes()
    sized = len({group.hidden_size for group in groups}) > 1
    rows = [
        [
            joined(_row_name(group, sized), notes.mark(group)),
            measured(group, group.quantity, metric),
            stated(group.published()),
            difference(group, group.quantity, metric),
            count(len(group.runs)),
            count(group.hidden_size),
            measured(group, valid, metric),
            _seconds(group.mean("seconds_per_epoch")),
            _count(group, "parameters"),
            _count(group, "parameters_paper"),
        ]
        for group in groups
    ]
    return Table(
        f"Results: {metric.label}, mean \N{PLUS-MINUS SIGN} standard deviation over seeds. "
        f"{metric.direction}",
        [
            Column("recipe and unit", numeric=False),
            Column("test"),
            Column("paper"),
            Column("difference"),
            Column("seeds"),
            Column("hidden units"),
            Column("validation"),
            Column("s / epoch"),
            Column("parameters"),
            Column("as the paper counts"),
        ],
        rows,
        notes=notes.texts,
    )


def _row_name(group: Group, sized: bool) -> str:
    parts = [group.recipe.name, display(group.unit), *([str(group.hidden_size)] if sized else [])]
    return ", ".join(parts)


class _Notes:
    """What was changed in recipes, told once for all rows with the same changes."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def mark(self, group: Group | None) -> Markup:
        """The mark of the note on a group; nothing if it is the recipe as it stands."""
        if group is None or group.is_as_named:
            return Markup()
        said = [f"{path} {plain(here)} (not {plain(there)})" for path, there, here in group.changes]
        unknown = "the recipe or the unit is not known to this version"
        text = f"{group.recipe.name}, but {', '.join(said) or unknown}"
        if text not in self.texts:
            self.texts.append(text)
        return note_mark(self.texts.index(text) + 1)


def _seconds(value: float | None) -> str:
    return (
        NONE if value is None else number(value, f"{value:.3g}" if value < 100 else f"{value:.0f}")
    )


def _count(group: Group, quantity: str) -> str:
    value = group.runs[0].result.get(quantity)
    return NONE if value is None else count(int(value))


def comparison(compared: Comparison, groups: Sequence[Group]) -> Table:
    """A comparison as `onegate compare` stored it; its runs, if they are here, tell of changes."""
    task = TASKS[compared.task]
    notes = _Notes()
    rows: list[list[str]] = []
    for unit in compared.units:
        published = task.find(unit.unit, unit.hidden_size, compared.metric)
        several = len(unit.metric_values) > 1
        rows.append(
            [
                joined(display(unit.unit), notes.mark(_group_of(unit, groups))),
                count(unit.hidden_size),
                count(len(unit.metric_values)),
                number(unit.mean, task.metric.text(unit.mean, unit.spread if several else None)),
                stated(published),
                _seconds(unit.seconds_per_epoch),
                count(unit.parameters),
                NONE if unit.parameters_paper is None else count(unit.parameters_paper),
            ]
        )
    equal = _MATCHED.get(compared.match, compared.match)
    return Table(
        f"Compared at equal {equal}, recipe {compared.recipe}; times were taken in turns",
        [
            Column("unit", numeric=False),
            Column("hidden units"),
            Column("seeds"),
            Column(compared.metric.replace("_", " ")),
            Column("paper"),
            Column("s / epoch"),
            Column("parameters"),
            Column("as the paper counts"),
        ],
        rows,
        notes=notes.texts,
    )


def _group_of(unit: ComparedUnit, groups: Sequence[Group]) -> Group | None:
    """The group of the runs of a compared unit."""
    for group in groups:
        if any(run.folder.name in unit.runs for run in group.runs):
            return group
    return None


def over_sizes(task: Task, groups: Sequence[Group]) -> Table:
    """The paper's table over numbers of hidden units with ours beside, from the recipe `paper`."""
    metric = task.metric
    rows: list[list[str]] = []
    for size in task.sizes:
        row: list[str] = [count(size)]
        same_size = [g for g in groups if g.task == task.name and g.hidden_size == size]
        ours = {unit: closest(same_size, unit, ("paper",)) for unit in PAPER_UNITS}
        for quantity in ("seconds_per_epoch", f"valid_{metric.name}", f"test_{metric.name}"):
            for unit in PAPER_UNITS:
                row.append(stated(task.find(unit, size, quantity)))
                row.append(_own(ours[unit], quantity, metric))
        rows.append(row)
    pairs = [
        Column(heading)
        for _ in range(3)
        for unit in PAPER_UNITS
        for heading in (f"{display(unit)} paper", "ours")
    ]
    return Table(
        f"The paper's {task.published[0].place}: {task.title} by number of hidden units",
        [Column("hidden units", numeric=False), *pairs],
        rows,
        over=[
            ("", 1),
            ("s / epoch", 4),
            (f"validation {metric.label}", 4),
            (f"test {metric.label}", 4),
        ],
    )


def _own(group: Group | None, quantity: str, metric: Metric) -> str:
    if group is None:
        return NONE
    if quantity == "seconds_per_epoch":
        return _seconds(group.mean(quantity))
    return _marked(group, measured(group, quantity, metric))


def parameters() -> Table:
    """Every parameter count that the paper states of its two units, in its way and exactly."""
    rows: dict[tuple[str, int], dict[str, list[str]]] = {}
    for task in TASKS.values():
        for one in task.counts:
            counts = [one.stated, task.counted(one), one.exact()]
            cells = [NONE if value is None else count(value) for value in counts]
            rows.setdefault((task.title, one.hidden_size), {})[one.unit] = cells
    return Table(
        "Parameters of the hidden units",
        [
            Column("task", numeric=False),
            Column("hidden units"),
            *[
                Column(heading)
                for _ in PAPER_UNITS
                for heading in ("stated", "counted so", "exact")
            ],
        ],
        [
            [title, count(size), *by_unit["gru"], *by_unit["mgu"]]
            for (title, size), by_unit in rows.items()
        ],
        over=[("", 2), ("GRU", 3), ("MGU", 3)],
    )


@dataclass(frozen=True)
class _Pair:
    """Seconds per epoch of GRU and MGU under the same recipe; group: one of the two, if known."""

    recipe: str
    hidden_size: int
    gru: float
    mgu: float
    how: str
    group: Group | None


def times(groups: Sequence[Group], comparisons: Sequence[Comparison]) -> Table:
    """Time per epoch of MGU over that of GRU, beside the paper's ratio."""
    notes = _Notes()
    rows: list[list[str]] = []
    for name, task in TASKS.items():
        for pair in _pairs_in_turns(name, comparisons, groups) or _pairs_of_runs(name, groups):
            size = pair.hidden_size
            gru, mgu = (task.find(unit, size, "seconds_per_epoch") for unit in PAPER_UNITS)
            recipe = tag("span", pair.recipe, notes.mark(pair.group), class_="changes")
            rows.append(
                [
                    joined(task.title, recipe),
                    count(size),
                    stated(gru),
                    stated(mgu),
                    _ratio(mgu.value, gru.value) if gru and mgu else NONE,
                    _seconds(pair.gru),
                    _seconds(pair.mgu),
                    _ratio(pair.mgu, pair.gru),
                    pair.how,
                ]
            )
    return Table(
        "Seconds per epoch, and MGU's as a share of GRU's",
        [
            Column("task and recipe", numeric=False),
            Column("hidden units"),
            *[Column(heading) for _ in range(2) for heading in ("GRU", "MGU", "MGU / GRU")],
            Column("how", numeric=False),
        ],
        rows,
        over=[("", 2), ("paper", 3), ("measured", 3), ("", 1)],
        notes=notes.texts,
    )


def _ratio(one: float, other: float) -> Markup:
    return number(one / other, f"{one / other:.2f}")


def _pairs_in_turns(
    task: str, comparisons: Sequence[Comparison], groups: Sequence[Group]
) -> list[_Pair]:
    found: list[_Pair] = []
    for compared in comparisons:
        by_unit = {unit.unit: unit for unit in compared.units}
        if compared.task != task or not set(PAPER_UNITS) <= set(by_unit):
            continue
        gru, mgu = (by_unit[unit] for unit in PAPER_UNITS)
        if gru.hidden_size == mgu.hidden_size:
            times = gru.seconds_per_epoch, mgu.seconds_per_epoch
            group = _group_of(gru, groups)
            found.append(_Pair(compared.recipe, gru.hidden_size, *times, "in turns", group))
    return found


def _pairs_of_runs(task: str, groups: Sequence[Group]) -> list[_Pair]:
    """Pairs of groups that differ in the unit alone."""
    found: list[_Pair] = []
    ours = {
        (g.unit, g.recipe.name, g.hidden_size, str(g.changes)): g for g in groups if g.task == task
    }
    for (unit, recipe, size, changes), group in ours.items():
        other = ours.get(("gru", recipe, size, changes))
        if unit != "mgu" or other is None:
            continue
        gru, mgu = (g.mean("seconds_per_epoch") for g in (other, group))
        if gru and mgu:
            found.append(_Pair(recipe, size, gru, mgu, "whole runs", group))
    return found
