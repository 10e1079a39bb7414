"""Recipes: complete descriptions of training runs, by task, name and unit.

>>> from onegate.lab.recipes import override, recipe
>>> override(recipe("mnist_rows", "flow", "mgu"), ["optimizer.lr=0.01"])
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeVar

from onegate import units
from onegate.lab.recipes import adding, imdb, mnist, ptb
from onegate.lab.recipes.fields import RecipeError
from onegate.lab.recipes.overriding import (
    difference,
    from_json,
    override,
    replaced,
    to_json,
    values,
)
from onegate.lab.recipes.recipe import TASKS, Recipe

__all__ = [
    "RECIPES",
    "TASKS",
    "Recipe",
    "RecipeError",
    "difference",
    "from_json",
    "override",
    "recipe",
    "replaced",
    "summary",
    "to_json",
    "values",
]

_T = TypeVar("_T")

# By task, then by name: the function of a unit's name that gives the recipe.
RECIPES: Mapping[str, Mapping[str, Callable[[str], Recipe]]] = MappingProxyType(
    {
        "adding": adding.RECIPES,
        "imdb": imdb.RECIPES,
        "mnist_rows": mnist.ROWS,
        "mnist_pixels": mnist.PIXELS,
        "mnist_permuted": mnist.PERMUTED,
        "ptb": ptb.RECIPES,
    }
)


def recipe(task: str, name: str, unit: str) -> Recipe:
    """The recipe `name` of a task for a unit of the registry.

    >>> recipe("adding", "tuned", "gru").optimizer.kind
    'adam'
    """
    by_name = _look_up(RECIPES, task, "task")
    build = _look_up(by_name, name, f"recipe of {task}")
    return build(units.get(unit).name)


def summary(task: str, name: str) -> str:
    """What a recipe is, in a sentence or two."""
    build = RECIPES[task][name]
    text = getattr(build, "func", build).__doc__ or ""
    return text.strip().partition("\n")[0]


def _look_up(table: Mapping[str, _T], name: str, what: str) -> _T:
    if name not in table:
        near = difflib.get_close_matches(name, table, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(table)}"
        raise RecipeError(f"no {what} is called {name!r}; {hint}")
    return table[name]
