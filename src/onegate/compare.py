"""Units compared fairly: the same data in the same order, at equal size, parameters or time."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from onegate import files, recipes, tasks, units
from onegate.graph.properties import parameter_count
from onegate.models import count_parameters
from onegate.recipes import Recipe, RecipeError
from onegate.results import ComparedUnit, Comparison, RunFolder, run_name
from onegate.tasks import Task
from onegate.trainer import Trainer

Match = Literal["units", "parameters", "time"]
# One measurement of every unit, then the next of every unit, so many times.
_ROUNDS = 5
_SECONDS_A_MEASUREMENT = 0.3
# Of the time of an update, for estimates of evaluation.
_FORWARD_SHARE = 0.35

# Trains a recipe in a folder, or goes on with it, and returns its result.
Runner = Callable[[Recipe, Path], Mapping[str, Any]]


@dataclass(frozen=True)
class Request:
    """What is to be compared.

    settings: for the recipes of all units, as for `onegate train --set`. match: the same number
        of hidden units, the parameters of the first unit, or the training time of the first unit.
    """

    task: str
    recipe: str
    units: tuple[str, ...] = ("mgu", "gru")
    seeds: tuple[int, ...] = (0, 1, 2)
    match: Match = "units"
    settings: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Tells apart the files of requests that differ in units or recipes, not in seeds."""
        asked = [recipes.to_json(recipe) | {"reasons": None} for recipe in self.recipes()]
        content = json.dumps(asked, sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:8]

    def recipes(self) -> list[Recipe]:
        """A recipe for each unit, all of one size."""
        if len(set(self.units)) < len(self.units):
            raise RecipeError(f"units {', '.join(self.units)}: each can be compared once")
        return [
            recipes.override(recipes.recipe(self.task, self.recipe, unit), self.settings)
            for unit in self.units
        ]


@dataclass(frozen=True)
class Contender:
    """A unit as it will run: the recipe, its measured and estimated times, its parameters.

    seconds: estimated for a whole run.
    """

    recipe: Recipe
    seconds_per_epoch: float
    seconds: float
    parameters: int
    parameters_paper: int


def prepare(request: Request, folder: Path) -> list[Contender]:
    """Matches the units as asked, and measures the time of their updates in turns.

    Where the lengths of runs depend on it, the measurement is kept in `folder`: a comparison that
    was interrupted goes on with the same lengths.
    """
    asked = request.recipes()
    task = tasks.load(asked[0])
    if request.match == "parameters":
        asked = match_parameters(asked, task)
    trainers = [Trainer(recipe, task) for recipe in asked]
    seconds = seconds_per_update(trainers)
    if request.match == "time":
        asked = match_time(asked, _kept_pace(request, folder, seconds))
    contenders = []
    for recipe, trainer, measured in zip(asked, trainers, seconds, strict=True):
        counts = count_parameters(recipe, trainer.model)
        contenders.append(
            Contender(
                recipe,
                measured * task.updates_per_epoch,
                _estimate(recipe, task, measured),
                counts.hidden,
                counts.paper,
            )
        )
    return contenders


def _estimate(recipe: Recipe, task: Task, seconds: float) -> float:
    """Seconds of a whole run whose updates take `seconds` each."""
    per_epoch = task.updates_per_epoch
    updates = recipe.updates(recipe.length, per_epoch)
    evaluations = updates // recipe.updates(recipe.evaluate_every, per_epoch) + 1
    batches = sum(task.batches_in(split) for split in recipe.curves & task.splits)
    return seconds * (updates + _FORWARD_SHARE * evaluations * batches)


def match_parameters(asked: Sequence[Recipe], task: Task) -> list[Recipe]:
    """The recipes with the hidden sizes at which parameters come closest to the first one's."""
    target = _parameters(asked[0], task, asked[0].model.hidden_size)
    matched = [asked[0]]
    for recipe in asked[1:]:
        size = 1
        while _parameters(recipe, task, size) < target:
            size += 1
        around = (s for s in (size - 1, size) if s)
        best = min(around, key=lambda s: abs(_parameters(recipe, task, s) - target))
        changes: dict[str, Any] = {"model.hidden_size": best}
        if recipe.model.tie_embedding:
            changes["model.embedding"] = best
        matched.append(recipes.replaced(recipe, changes))
    return matched


def _parameters(recipe: Recipe, task: Task, hidden_size: int) -> int:
    """Parameters of the recurrent layers at a hidden size."""
    model = recipe.model
    width = model.embedding or task.shape.inputs
    return parameter_count(
        units.get(recipe.unit, **model.unit_options),
        hidden_size if model.tie_embedding else width,
        hidden_size,
        model.num_layers,
        2 if model.bidirectional else 1,
    )


def match_time(asked: Sequence[Recipe], seconds: Sequence[float]) -> list[Recipe]:
    """The recipes with the lengths at which all train as long as the first one does."""
    return [
        recipes.replaced(recipe, {"length": recipe.length * seconds[0] / own})
        for recipe, own in zip(asked, seconds, strict=True)
    ]


def _kept_pace(request: Request, folder: Path, measured: list[float]) -> list[float]:
    """The first measurement for these units and settings."""
    path = folder / f"pace-{request.task}-{request.recipe}-{request.digest}.json"
    if path.exists():
        return [float(s) for s in files.read_json(path)["seconds_per_update"]]
    folder.mkdir(parents=True, exist_ok=True)
    files.write_json(path, {"units": request.units, "seconds_per_update": measured})
    return measured


def seconds_per_update(trainers: Sequence[Trainer]) -> list[float]:
    """Median time of an update of each trainer, measured in turns so that noise hits all alike."""
    batches = [trainer.batches() for trainer in trainers]

    def measure(which: int, updates: int) -> float:
        start = time.perf_counter()
        for _ in range(updates):
            trainers[which].step(next(batches[which]))
        return (time.perf_counter() - start) / updates

    numbers = range(len(trainers))
    for which in numbers:  # the first update prepares things that later ones find ready
        measure(which, 1)
    slowest = max(measure(which, 1) for which in numbers)
    updates = max(1, math.ceil(_SECONDS_A_MEASUREMENT / slowest))
    rounds = [[measure(which, updates) for which in numbers] for _ in range(_ROUNDS)]
    return [statistics.median(round_[which] for round_ in rounds) for which in numbers]


def compare(request: Request, folder: Path, run: Runner) -> Comparison:
    """Runs every unit with every seed in `folder`, and stores the table there.

    Runs that are finished are not run again.
    """
    return finish(request, prepare(request, folder), folder, run)


def is_finished(request: Request, folder: Path) -> bool:
    """Whether the comparison is stored, and all of its runs are done."""
    path = folder / f"{_stem(request)}.json"
    if not path.exists():
        return False
    made = Comparison.read(path)
    seeds = {len(row.runs) for row in made.units} == {len(request.seeds)}
    names = [name for row in made.units for name in row.runs]
    return seeds and all(RunFolder(folder / name).is_done() for name in names)


def finish(
    request: Request, contenders: Sequence[Contender], folder: Path, run: Runner
) -> Comparison:
    """The runs of prepared contenders, seed by seed, and their table."""
    values: dict[str, list[float]] = {c.recipe.unit: [] for c in contenders}
    folders: dict[str, list[str]] = {c.recipe.unit: [] for c in contenders}
    metric = ""
    for seed in request.seeds:
        for contender in contenders:
            recipe = replace(contender.recipe, seed=seed)
            result = run(recipe, folder / run_name(recipe))
            metric = metric or _metric(result)
            values[recipe.unit].append(result[metric])
            folders[recipe.unit].append(run_name(recipe))
    rows = tuple(
        ComparedUnit(
            contender.recipe.unit,
            contender.recipe.model.hidden_size,
            tuple(values[contender.recipe.unit]),
            contender.seconds_per_epoch,
            contender.parameters,
            contender.parameters_paper,
            tuple(folders[contender.recipe.unit]),
        )
        for contender in contenders
    )
    made = Comparison(request.task, request.recipe, request.match, metric, rows, request.settings)
    store(made, folder, _stem(request))
    return made


def _metric(result: Mapping[str, Any]) -> str:
    """The name of the test metric in a result."""
    return next(n for n in result if n.startswith("test_") and n != "test_loss")


def _stem(request: Request) -> str:
    """A name for the comparison's files; those of other settings have other names."""
    return f"comparison-{request.task}-{request.recipe}-{request.match}-{request.digest}"


def store(made: Comparison, folder: Path, stem: str) -> None:
    """Writes a comparison as JSON and as CSV."""
    made.write(folder / f"{stem}.json")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["unit", "hidden_size", "seeds", made.metric, "spread", "seconds_per_epoch",
         "parameters", "parameters_paper"]
    )  # fmt: skip
    for row in made.units:
        writer.writerow(
            [row.unit, row.hidden_size, len(row.metric_values), row.mean, row.spread,
             row.seconds_per_epoch, row.parameters, row.parameters_paper]
        )  # fmt: skip
    files.write(folder / f"{stem}.csv", text.getvalue().encode())
