"""Runs that differ in their seed alone, taken together."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from onegate.lab import recipes
from onegate.lab.pages.markup import short
from onegate.lab.recipes import Recipe
from onegate.lab.runs import Run
from onegate.lab.tasks import TASKS, Metric, Published

# The paper's two come first, its baseline before its proposal, as in its tables.
PAPER_UNITS = ("gru", "mgu")
# Told apart in columns of their own, not among the changes.
_IN_COLUMNS = ("unit", "seed", "reasons", "model.hidden_size")


class Change(NamedTuple):
    """A field of a recipe, as the named recipe has it and as the runs have it."""

    path: str
    there: Any
    here: Any


@dataclass(frozen=True, eq=False)
class Group:
    """Finished runs of one recipe, by seed."""

    runs: tuple[Run, ...]

    @property
    def recipe(self) -> Recipe:
        """The recipe of the first run; the others differ from it in the seed."""
        return self.runs[0].recipe

    @property
    def task(self) -> str:
        return self.recipe.task

    @property
    def unit(self) -> str:
        return self.recipe.unit

    @property
    def hidden_size(self) -> int:
        """How many hidden neurons a layer has."""
        return self.recipe.model.hidden_size

    @property
    def metric(self) -> Metric:
        """What the task is judged by."""
        return TASKS[self.task].metric

    @property
    def quantity(self) -> str:
        """The result that counts, such as `test_accuracy`."""
        return f"test_{self.metric.name}"

    @property
    def seeds(self) -> tuple[int, ...]:
        """Every seed, one a run."""
        return tuple(run.recipe.seed for run in self.runs)

    def values(self, quantity: str) -> list[float]:
        """One value a run, of the runs that have it."""
        return [float(run.result[quantity]) for run in self.runs if quantity in run.result]

    def mean(self, quantity: str) -> float | None:
        """Mean over seeds; None if no run has the quantity."""
        values = self.values(quantity)
        return statistics.fmean(values) if values else None

    def spread(self, quantity: str) -> float | None:
        """Standard deviation over seeds; None for a single one."""
        values = self.values(quantity)
        return statistics.stdev(values) if len(values) > 1 else None

    @property
    def value(self) -> float:
        """Mean over seeds of the result that counts."""
        return statistics.fmean(self.values(self.quantity))

    @property
    def on_stand_in(self) -> bool:
        """Whether the data are made here in the form of the real ones."""
        return getattr(self.recipe.data, "source", "real") == "stand-in"

    @property
    def is_comparable(self) -> bool:
        """Whether a difference from the paper's number means something.

        Not on other data, and not for runs that were cut short or learned from less.
        """
        return not self.on_stand_in and not any(
            path in ("length", "clock") or path.startswith("data.") for path, _, _ in self.changes
        )

    def published(self, quantity: str | None = None) -> Published | None:
        """The paper's value for this task, unit and number of hidden neurons, on its data."""
        if self.on_stand_in:
            return None
        return TASKS[self.task].find(self.unit, self.hidden_size, quantity or self.quantity)

    @cached_property
    def named(self) -> Recipe | None:
        """The recipe of that name as it stands; None for a recipe or a unit not known here."""
        try:
            return recipes.recipe(self.task, self.recipe.name, self.unit)
        except ValueError:
            return None

    @cached_property
    def differences(self) -> tuple[Change, ...]:
        """Where the runs differ from the recipe of that name, apart from what columns tell."""
        if self.named is None:
            return ()
        pairs = zip(recipes.values(self.named), recipes.values(self.recipe), strict=True)
        return tuple(
            Change(path, there, here)
            for (path, there), (_, here) in pairs
            if there != here and path not in _IN_COLUMNS
        )

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """Those of the differences that bear on the result."""
        recipe = self.recipe
        chooses = recipe.keep == "best" or recipe.schedule.kind == "plateau"
        only_watched = ("test_curve",) if chooses else ("test_curve", "evaluate_every")
        return tuple(change for change in self.differences if change.path not in only_watched)

    @property
    def is_as_named(self) -> bool:
        """Whether the runs are the recipe of that name, apart from size and seed."""
        return self.named is not None and not self.changes

    @property
    def away_from_size(self) -> int:
        """How far the number of hidden neurons is from that of the recipe of that name."""
        own = self.named.model.hidden_size if self.named else self.hidden_size
        return abs(self.hidden_size - own)


def display(unit: str) -> str:
    """A unit's name for reading: acronyms in capitals, variants as registered.

    >>> display("mgu"), display("mgu_gate_after")
    ('MGU', 'mgu_gate_after')
    """
    return unit.upper() if unit in ("mgu", "gru", "lstm", "irnn", "scrn") else unit


def grouped(runs: Iterable[Run]) -> list[Group]:
    """The runs by recipe, in the order in which a page shows them."""
    by_recipe: dict[str, list[Run]] = {}
    for run in runs:
        content = {
            name: value
            for name, value in recipes.to_json(run.recipe).items()
            if name not in ("seed", "reasons")
        }
        by_recipe.setdefault(json.dumps(content, sort_keys=True), []).append(run)
    groups = [
        Group(tuple(sorted(same, key=lambda r: (r.recipe.seed, str(r.folder)))))
        for same in by_recipe.values()
    ]
    return sorted(groups, key=_order)


def _order(group: Group) -> tuple[Any, ...]:
    names = list(TASKS[group.task].recipes)
    name = group.recipe.name
    return (
        list(TASKS).index(group.task),
        names.index(name) if name in names else len(names),
        name,
        len(group.changes),
        json.dumps([(path, here) for path, _, here in group.changes], default=str),
        PAPER_UNITS.index(group.unit) if group.unit in PAPER_UNITS else len(PAPER_UNITS),
        group.unit,
        group.hidden_size,
        json.dumps(recipes.to_json(group.recipe), sort_keys=True),
    )


def closest(groups: Sequence[Group], unit: str, names: Sequence[str]) -> Group | None:
    """The group that stands for a unit, of the named recipes.

    At a size that the paper has, at the recipe's own size if possible, with the fewest changes.
    The result plays no part in it.
    """
    candidates = [g for g in groups if g.unit == unit and g.recipe.name in names]

    def distance(group: Group) -> tuple[Any, ...]:
        return (
            group.published() is None,
            group.named is None,
            len(group.changes),
            names.index(group.recipe.name),
            group.away_from_size,
            _order(group),
        )

    return min(candidates, key=distance, default=None)


def labels(groups: Sequence[Group]) -> list[str]:
    """What tells the groups apart: the unit; the size if it differs; changes that not all have."""
    sizes = {group.hidden_size for group in groups}
    common = [change for change in groups[0].changes if all(change in g.changes for g in groups)]
    return [
        ", ".join(
            [
                short(display(group.unit)),
                *([f"{group.hidden_size} neurons"] if len(sizes) > 1 else []),
                *(
                    f"{change.path.rpartition('.')[2]} {short(plain(change.here))}"
                    for change in group.changes
                    if change not in common
                ),
            ]
        )
        for group in groups
    ]


def plain(value: Any) -> str:
    """A field's value for reading."""
    if isinstance(value, Mapping):
        return json.dumps(dict(value))
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else f"{value}"
