"""A training run opened for looking inside: its data, its model before and after training."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import torch

from onegate.lab import plugins, tasks
from onegate.lab.pages.markup import short
from onegate.lab.recipes import Recipe
from onegate.lab.report.inventory import check_numbers
from onegate.lab.runs import Run, RunError
from onegate.lab.tasks import Loaded
from onegate.lab.train import models
from onegate.lab.train.checkpoints import CheckpointError
from onegate.lab.train.models import TaskModel


class InspectError(ValueError):
    """What was asked for cannot be looked at; the message says why."""


@dataclass(frozen=True, eq=False)
class OpenRun:
    """A run, its task, and its model: as the seed made it, and as training left it."""

    run: Run
    task: Loaded
    initial: TaskModel
    trained: TaskModel

    @property
    def recipe(self) -> Recipe:
        return self.run.recipe

    @property
    def name(self) -> str:
        return short(self.run.folder.resolve().name)


def open_run(folder: Path) -> OpenRun:
    """The run in a folder with the weights that count; errors say what is missing."""
    if not folder.is_dir():
        raise RunError(f"there is no folder {folder}: give the folder of a run, such as runs/mine")
    run = Run.read(folder)
    check_numbers(run)
    if changed := plugins.changed(run.recipe):
        warnings.warn(
            f"{folder}: {changed}: what is shown may not be what was trained", stacklevel=2
        )
    try:
        weights = run.weights()
    except CheckpointError as error:
        raise RunError(
            f"{folder} cannot be looked into without its weights: {error}. Train it again into "
            "another folder"
        ) from None
    task = tasks.load(run.recipe)
    trained = initial_model(run.recipe, task)
    models.load_weights(trained, weights)
    return OpenRun(run, task, initial_model(run.recipe, task), trained)


def initial_model(recipe: Recipe, task: Loaded) -> TaskModel:
    """The model with which training of a recipe starts, ready to be evaluated."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        return models.build(recipe, task.shape).eval()
