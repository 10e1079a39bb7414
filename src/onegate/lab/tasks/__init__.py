"""Tasks: one file each, and a registry that tasks of one's own join."""

from __future__ import annotations

from onegate.lab.recipes.recipe import Options, Recipe
from onegate.lab.tasks import adding, imdb, mnist, ptb  # noqa: F401 - in the order of reports
from onegate.lab.tasks.base import (
    TASKS,
    Axis,
    Generated,
    Published,
    StatedCount,
    Task,
    View,
    get,
    known,
    look_up,
    register,
)
from onegate.lab.tasks.loaded import (
    Batch,
    Examples,
    Loaded,
    LoadedExamples,
    LoadedText,
    Shape,
    Split,
)
from onegate.lab.tasks.metrics import ACCURACY, MSE, PERPLEXITY, Metric

__all__ = [
    "ACCURACY",
    "MSE",
    "PERPLEXITY",
    "TASKS",
    "Axis",
    "Batch",
    "Examples",
    "Generated",
    "Loaded",
    "LoadedExamples",
    "LoadedText",
    "Metric",
    "Options",
    "Published",
    "Shape",
    "Split",
    "StatedCount",
    "Task",
    "View",
    "get",
    "known",
    "load",
    "look_up",
    "register",
]


def load(recipe: Recipe) -> Loaded:
    """The data of a recipe's task; `onegate.lab.data.DataError` if it cannot be had."""
    return get(recipe.task).load(recipe)
