"""Recipes: complete descriptions of training runs, by task, name and unit.

>>> from onegate.lab.recipes import override, recipe
>>> override(recipe("mnist_rows", "flow", "mgu"), ["optimizer.lr=0.01"])
"""

from __future__ import annotations

from dataclasses import replace

from onegate import units
from onegate.lab.recipes.overriding import (
    difference,
    from_json,
    override,
    replaced,
    to_json,
    values,
)
from onegate.lab.recipes.recipe import NotGivenError, Recipe, RecipeError

__all__ = [
    "NotGivenError",
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


def recipe(task: str, name: str | None, unit: str) -> Recipe:
    """The recipe `name` of a task for a unit of the registry; None: the usual one.

    >>> recipe("adding", "tuned", "gru").optimizer.kind
    'adam'
    """
    from onegate.lab import plugins, tasks  # see Recipe

    known = tasks.get(task)
    build = tasks.look_up(known.recipes, name or known.usual, f"recipe of {task}")
    made = build(units.get(unit).name)
    return replace(made, plugins=plugins.used(made))


def summary(task: str, name: str) -> str:
    """What a recipe is, in a sentence or two."""
    from onegate.lab import tasks  # see Recipe

    build = tasks.get(task).recipes[name]
    text = getattr(build, "func", build).__doc__ or ""
    return text.strip().partition("\n")[0]
