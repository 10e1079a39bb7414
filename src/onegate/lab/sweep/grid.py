"""A grid: every combination of tasks, units, sizes, seeds and other fields of a recipe."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from onegate.lab import plugins, recipes
from onegate.lab.recipes import Recipe
from onegate.lab.runs import run_name

_EXAMPLE = 'task = "adding", units = ["mgu", "gru"], hidden = [50, 100], seeds = [0, 1, 2]'
# In a file one may write either.
_SINGULAR = {"task": "tasks", "unit": "units", "seed": "seeds"}


class GridError(ValueError):
    """A grid cannot be read; the message says what was expected."""


@dataclass(frozen=True)
class Grid:
    """What is to be combined.

    recipe: None for the usual one of each task.
    hidden: numbers of hidden neurons, none for the recipe's own. settings: `field=value`, for all
        runs. fields: values by the dotted path of a recipe's field.
    """

    tasks: tuple[str, ...]
    recipe: str | None = None
    units: tuple[str, ...] = ("mgu", "gru")
    hidden: tuple[int, ...] = ()
    seeds: tuple[int, ...] = (0,)
    settings: tuple[str, ...] = ()
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def recipes(self) -> list[Recipe]:
        """Every combination once, checked; seed by seed, so that early runs show all units."""
        others = itertools.product(
            *([f"{path}={value}" for value in values] for path, values in self.fields.items())
        )
        sizes = [[f"model.hidden_size={size}"] for size in self.hidden] or [[]]
        found = {}
        for seed, task, unit, size, chosen in itertools.product(
            self.seeds, self.tasks, self.units, sizes, list(others)
        ):
            named = recipes.recipe(task, self.recipe, unit)
            settings = [*self.settings, *size, *chosen, f"seed={seed}"]
            made = recipes.override(named, settings)
            found[run_name(made)] = made
        return list(found.values())


def values_of(assignment: str) -> tuple[str, tuple[str, ...]]:
    """A field with its values, as the command line gives them.

    >>> values_of("optimizer.lr=0.001,0.002")
    ('optimizer.lr', ('0.001', '0.002'))
    """
    path, equals, text = assignment.partition("=")
    values = tuple(value.strip() for value in text.split(","))
    if not equals or not all(values):
        raise GridError(f"{assignment!r}: expected field=value,value, such as optimizer.lr=0.1,0.2")
    return path.strip(), values


def read_toml(path: Path) -> Grid:
    """The grid in a file.

    tasks, recipe, units, hidden and seeds as in `Grid`, where a task or a unit may be FILE.py:Class
    with the path as seen from this file; the tables [set] and [grid] have recipe
    fields, with one value each and with lists of values:

        task = "adding"
        units = ["mgu", "gru"]
        hidden = [50, 100]
        seeds = [0, 1, 2]
        [set]
        length = 10
        [grid]
        "optimizer.lr" = [0.001, 0.002]
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise GridError(f"there is no file {path} with a grid: {_EXAMPLE}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise GridError(f"{path} is not TOML: {error}") from None
    try:
        return _from_content(content, path.parent)
    except GridError as error:
        raise GridError(f"{path}: {error}") from None


def _from_content(content: Mapping[str, Any], folder: Path) -> Grid:
    given = {_SINGULAR.get(key, key): value for key, value in content.items()}
    settings = _table(given.pop("set", {}), "set")
    combined = _table(given.pop("grid", {}), "grid")
    known = [f.name for f in fields(Grid) if f.name not in ("settings", "fields")]
    for key in given:
        if key not in known:
            raise GridError(f"{key} is not known; expected {', '.join(known)}, [set] and [grid]")
    if "tasks" not in given:
        raise GridError(f"the task is missing, as in: {_EXAMPLE}")
    kinds: dict[str, type] = {"tasks": str, "units": str, "hidden": int, "seeds": int}
    lists = {key: _list(given[key], key, kind) for key, kind in kinds.items() if key in given}
    for key, named in (("tasks", plugins.task), ("units", plugins.unit)):
        if key in lists:
            lists[key] = tuple(named(_beside(folder, text)) for text in lists[key])
    recipe = given.get("recipe")
    if recipe is not None and not isinstance(recipe, str):
        raise GridError(f"recipe is {recipe!r}, expected one name")
    return Grid(
        **lists,
        recipe=recipe,
        settings=tuple(f"{path}={_text(value)}" for path, value in settings),
        fields={path: _texts(path, values) for path, values in combined},
    )


def _beside(folder: Path, text: str) -> str:
    """A name as it is; of FILE.py:Class the file as seen from the folder of the grid's file."""
    return str(folder / text) if text.rpartition(":")[0].endswith(".py") else text


def _table(content: Any, name: str, prefix: str = "") -> list[tuple[str, Any]]:
    """Paths and values; TOML reads `optimizer.lr` as a table within a table."""
    if not isinstance(content, Mapping):
        raise GridError(f"{name} is {content!r}, expected a table [{name}] of recipe fields")
    found: list[tuple[str, Any]] = []
    for key, value in content.items():
        if isinstance(value, Mapping):
            found += _table(value, name, f"{prefix}{key}.")
        else:
            found.append((f"{prefix}{key}", value))
    return found


def _list(value: Any, name: str, kind: type) -> tuple[Any, ...]:
    values = value if isinstance(value, list) else [value]
    if not values or any(type(v) is not kind for v in values):
        wanted = "whole numbers" if kind is int else "names"
        raise GridError(f"{name} is {value!r}, expected {wanted} in a list")
    return tuple(values)


def _texts(path: str, values: Any) -> tuple[str, ...]:
    if not isinstance(values, list) or not values:
        raise GridError(f"grid: {path} is {values!r}, expected a list of values")
    return tuple(_text(value) for value in values)


def _text(value: Any) -> str:
    """A value as the command line has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def of_options(tasks: Sequence[str], assignments: Sequence[str], **more: Any) -> Grid:
    """The grid of a command line; `assignments` are `field=value,value`."""
    fields = dict(values_of(assignment) for assignment in assignments)
    return Grid(tuple(tasks), fields=fields, **more)
