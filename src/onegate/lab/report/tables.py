"""The tables of the page: what was measured beside what was published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from onegate.lab import recipes
from onegate.lab.pages.markup import (
    Column,
    Markup,
    Table,
    count,
    escaped,
    identifier,
    joined,
    note_mark,
    number,
    tag,
)
from onegate.lab.report.committed import Committed
from onegate.lab.report.groups import PAPER_UNITS, Group, closest, display, plain
from onegate.lab.runs import BUSY, ComparedUnit, Comparison
from onegate.lab.tasks import TASKS, Metric, Published, Task

NONE = "\N{EN DASH}"
# The recipes that stand for the paper's own runs.
AS_PUBLISHED = ("paper", "flow")
_MATCHED = {"units": "numbers of hidden neurons", "parameters": "numbers of parameters"}


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
    """Measured minus published, marked as better or worse if it is more than the spread.

    Nothing for runs that were cut short or that had other data.
    """
    if group is None or not group.is_comparable:
        return NONE
    published, mean = group.published(quantity), group.mean(quantity)
    if published is None or mean is None:
        return NONE
    value = mean - published.value
    kind = "better" if metric.is_better(value) else "worse"
    told = abs(value) > (group.spread(quantity) or 0.0)
    return number(value, metric.difference(value), class_=kind if told else None)


def at_a_glance(groups: Sequence[Group], kept: Sequence[Group] | None = None) -> Table:
    """The paper's two units on every task of it: as published, as measured, and tuned.

    Of other tasks all units that were run. With `kept` what was measured here has columns of its
    own, and the kept results on the real data have others.
    """
    judged = groups if kept is None else kept
    rows: list[list[str]] = []
    for task in TASKS.values():
        ours = [g for g in groups if g.task == task.name]
        theirs = [g for g in judged if g.task == task.name]
        for names, unit in _glanced(task, [*ours, *theirs]) if ours or task.place else ():
            row = _glance(task, unit, names, theirs)
            if kept is not None:
                row.insert(2, _here(task, unit, names, ours))
            rows.append(row)
    metric = Column("metric", numeric=False)
    paper = [Column("task and unit", numeric=False), Column("paper")]
    title = "Results on the test sets"
    measured = [Column("measured"), Column("difference"), Column("tuned")]
    if kept is None:
        return Table(title, [*paper, *measured, metric], rows)
    here = [Column("measured", kind="here")]
    over = [("", 2), ("here", 1), ("committed, on the real data", 3), ("", 1)]
    if not groups:  # a column that says nothing but that
        rows = [row[:2] + row[3:] for row in rows]
        here, over = [], [over[0], *over[2:]]
    measured = [Column(each.heading, kind="kept") for each in measured]
    return Table(title, [*paper, *here, *measured, metric], rows, over)


def _glanced(task: Task, groups: Sequence[Group]) -> list[tuple[tuple[str, ...], str]]:
    """The rows of a task: recipes, of which one is taken, and unit."""
    if "paper" not in task.recipes:
        names = tuple(task.recipes)
        return [(names, unit) for unit in dict.fromkeys(g.unit for g in groups)]
    run = {group.recipe.name for group in groups} - {*AS_PUBLISHED, "tuned"}
    further = [name for name in task.recipes if name in run]
    return [
        (names, unit)
        for names in (AS_PUBLISHED, *((name,) for name in further))
        for unit in PAPER_UNITS
    ]


def _glance(task: Task, unit: str, names: tuple[str, ...], groups: Sequence[Group]) -> list[str]:
    metric, quantity = task.metric, f"test_{task.metric.name}"
    as_published, tuned = (closest(groups, unit, each) for each in (AS_PUBLISHED, ("tuned",)))
    alike = [g for g in groups if as_published and g.hidden_size == as_published.hidden_size]
    group = closest(alike, unit, names) or closest(groups, unit, names)
    own = recipes.recipe(task.name, names[0], unit).model.hidden_size
    size = group.hidden_size if group else own
    first = names[0] == AS_PUBLISHED[0] or "paper" not in task.recipes
    label = [task.title, *([] if first else names), display(unit)]
    label += [str(size)] if task.sizes else []
    return [
        tag("a", ", ".join(label), href=f"#{task.name}"),
        stated(task.find(unit, size, quantity)),
        _marked(group, measured(group, quantity, metric)) if group else "not run",
        difference(group, quantity, metric),
        _tuned(tuned, metric, size) if first else NONE,
        metric.label,
    ]


def _tuned(group: Group | None, metric: Metric, size: int) -> str:
    """The result; with its size, where that is not the one of the row."""
    if group is None:
        return "not run"
    text = _marked(group, measured(group, group.quantity, metric))
    if group.hidden_size == size:
        return text
    return joined(text, tag("span", f"{group.hidden_size} neurons", class_="changes"))


def _here(task: Task, unit: str, names: tuple[str, ...], groups: Sequence[Group]) -> str:
    """What was measured here of a row, and what that was."""
    if names == AS_PUBLISHED:
        names = (*AS_PUBLISHED, "tuned")
    group = closest(groups, unit, names)
    if group is None:
        return "not run"
    said = [group.recipe.name, *([f"{group.hidden_size} neurons"] if task.sizes else [])]
    if group.on_stand_in:
        said.append("stand-in")
    elif not group.is_comparable:
        said.append("shortened")
    value = measured(group, group.quantity, task.metric)
    return joined(value, tag("span", ", ".join(said), class_="changes"))


def of_results(groups: Sequence[Group], comparisons: Sequence[Comparison]) -> dict[str, Table]:
    """The tables of results by name, as a paper may want them."""
    found: dict[tuple[str, ...], Table] = {
        ("glance",): _explained(at_a_glance(groups)),
        ("times",): times(groups, comparisons),
    }
    for task in TASKS.values():
        ours = [group for group in groups if group.task == task.name]
        if ours:
            found[task.name, "results"] = results(ours)
        if ours and task.sizes:
            found[task.name, "sizes"] = over_sizes(task, ours)
        for place, one in enumerate([c for c in comparisons if c.task == task.name], start=1):
            found[task.name, "comparison", str(place)] = comparison(one, ours)
    return {identifier(*words): table for words, table in found.items() if table.rows}


def _explained(table: Table) -> Table:
    """A table that stands alone, with what its daggers mean."""
    if not any("†" in cell for row in table.rows for cell in row):
        return table
    said = "† The runs differ from the recipe of that name, in length for example."
    return replace(table, caption=f"{table.caption}. {said}")


def _marked(group: Group, text: str) -> Markup:
    """A dagger where the runs are not the recipe as it stands; stand-in data are named."""
    if group.on_stand_in:
        return joined(text, tag("span", "stand-in", class_="changes"))
    return escaped(text) if group.is_as_named else joined(text, tag("sup", "†"))


def results(groups: Sequence[Group], timed: bool = True) -> Table:
    """All runs of one task, by recipe, unit and size; with their times, if `timed`."""
    metric = groups[0].metric
    valid = f"valid_{metric.name}"
    notes = _Notes()
    rows = [
        [
            joined(f"{group.recipe.name}, {display(group.unit)}", notes.mark(group)),
            count(group.hidden_size),
            measured(group, group.quantity, metric),
            stated(group.published()),
            difference(group, group.quantity, metric),
            count(len(group.runs)),
            measured(group, valid, metric),
            *([_seconds(group.mean("seconds_per_epoch"))] if timed else []),
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
            Column("hidden neurons"),
            Column("test"),
            Column("paper"),
            Column("difference"),
            Column("seeds"),
            Column("validation"),
            *([Column("s / epoch")] if timed else []),
            Column("parameters"),
            Column("as the paper counts"),
        ],
        rows,
        notes=notes.texts,
    )


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
    for unit, chance in zip(compared.units, compared.chances, strict=True):
        several = len(unit.metric_values) > 1
        rows.append(
            [
                joined(display(unit.unit), notes.mark(_group_of(unit, groups))),
                count(unit.hidden_size),
                count(len(unit.metric_values)),
                number(unit.mean, task.metric.text(unit.mean, unit.spread if several else None)),
                NONE if chance is None else number(chance, f"{chance:.2g}"),
                _seconds(unit.seconds_per_epoch),
                count(unit.parameters),
            ]
        )
    equal = _MATCHED.get(compared.match, compared.match)
    return Table(
        f"Compared at equal {equal}, recipe {compared.recipe}; {_taken(compared)}",
        [
            Column("unit", numeric=False),
            Column("hidden neurons"),
            Column("seeds"),
            Column(compared.metric.replace("_", " ")),
            Column(f"p against {display(compared.units[0].unit)}"),
            Column("s / epoch"),
            Column("parameters"),
        ],
        rows,
        notes=notes.texts,
    )


def _taken(compared: Comparison) -> str:
    """How times were taken, and what p is where there is one."""
    said = ["times were taken in turns"]
    if compared.threads:
        said.append(f"with {_threads(compared.threads)}")
    if _was_busy(compared):
        said.append(f"on a busy machine (others took {compared.busy:.0%} of its cores)")
    welch = "; p: Welch's t test over seeds" if any(compared.chances) else ""
    return " ".join(said) + welch


def _threads(count: int) -> str:
    return f"{count} {'thread' if count == 1 else 'threads'}"


def _was_busy(compared: Comparison) -> bool:
    return compared.busy is not None and compared.busy > BUSY


def _group_of(unit: ComparedUnit, groups: Sequence[Group]) -> Group | None:
    """The group of the runs of a compared unit."""
    for group in groups:
        if any(run.folder.name in unit.runs for run in group.runs):
            return group
    return None


def over_sizes(
    task: Task, groups: Sequence[Group], recipe: str = "paper", timed: bool = True
) -> Table:
    """The paper's table over hidden neurons with ours of a recipe beside; see `results`."""
    metric = task.metric
    quantities = {
        **({"seconds_per_epoch": "s / epoch"} if timed else {}),
        f"valid_{metric.name}": f"validation {metric.label}",
        f"test_{metric.name}": f"test {metric.label}",
    }
    rows: list[list[str]] = []
    for size in task.sizes:
        row: list[str] = [count(size)]
        same_size = [g for g in groups if g.task == task.name and g.hidden_size == size]
        ours = {unit: closest(same_size, unit, (recipe,)) for unit in PAPER_UNITS}
        for quantity in quantities:
            for unit in PAPER_UNITS:
                row.append(stated(task.find(unit, size, quantity)))
                row.append(_own(ours[unit], quantity, metric))
        rows.append(row)
    pairs = [
        Column(heading)
        for _ in quantities
        for unit in PAPER_UNITS
        for heading in (f"{display(unit)} paper", "ours")
    ]
    return Table(
        f"The paper's {task.published[0].place}: {task.title} by number of hidden neurons, ours "
        f"by the recipe {recipe}",
        [Column("hidden neurons", numeric=False), *pairs],
        rows,
        over=[("", 1), *((heading, 4) for heading in quantities.values())],
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
        "Parameters of the recurrent layers",
        [
            Column("task", numeric=False),
            Column("hidden neurons"),
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


def times(
    groups: Sequence[Group], comparisons: Sequence[Comparison], kept: Committed | None = None
) -> Table:
    """Time per epoch of MGU over that of GRU, beside the paper's ratio."""
    notes = _Notes()
    rows: list[list[str]] = []
    for name, task in TASKS.items():
        pairs = _pairs_in_turns(name, comparisons, groups) or _pairs_of_runs(name, groups)
        for pair in [*pairs, *(_kept_pairs(name, kept) if kept else ())]:
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
            Column("hidden neurons"),
            *[Column(heading) for _ in range(2) for heading in ("GRU", "MGU", "MGU / GRU")],
            Column("how", numeric=False, kind="phrase"),
        ],
        rows,
        over=[("", 2), ("paper", 3), ("measured", 3), ("", 1)],
        notes=notes.texts,
    )


def _kept_pairs(task: str, kept: Committed) -> list[_Pair]:
    return [
        _Pair("committed", size, gru, mgu, f"in turns, {kept.how}", None)
        for (name, size), (gru, mgu) in kept.seconds_per_epoch.items()
        if name == task
    ]


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
            how = ["in turns"]
            how += [_threads(compared.threads)] if compared.threads else []
            how += ["busy machine"] if _was_busy(compared) else []
            found.append(_Pair(compared.recipe, gru.hidden_size, *times, ", ".join(how), group))
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
