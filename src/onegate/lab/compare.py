"""Units compared fairly: the same data in the same order, at equal size, parameters or time."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from onegate import files, units
from onegate.lab import recipes, sweep, tasks
from onegate.lab.recipes import Recipe, RecipeError
from onegate.lab.runs import ComparedUnit, Comparison, RunError, RunFolder, read, run_name
from onegate.lab.sweep import estimates
from onegate.lab.tasks import Loaded
from onegate.lab.train.loop import Trainer
from onegate.lab.train.models import count_parameters
from onegate.properties import parameter_count

Match = Literal["units", "parameters", "time"]
_PACE = {"seconds_per_update": [float]}


@dataclass(frozen=True)
class Request:
    """What is to be compared.

    settings: for the recipes of all units, as for `onegate train --set`. match: the same number
        of hidden neurons, the parameters of the first unit, or the training time of the first unit.
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

    seconds: estimated for a whole run. threads: with which times were measured. busy: the share of
        the cores that other processes took meanwhile, None where it is not known.
    """

    recipe: Recipe
    seconds_per_epoch: float
    seconds: float
    parameters: int
    parameters_paper: int
    threads: int | None = None
    busy: float | None = None


def prepare(
    request: Request,
    folder: Path,
    threads: int | None = None,
    notify: Callable[[str], None] = lambda _: None,
) -> list[Contender]:
    """Matches the units as asked, and measures the time of their updates in turns.

    Where the lengths of runs depend on it, the measurement is kept in `folder`: a comparison that
    was interrupted goes on with the same lengths. threads: of each run, which are those of the
    measurement too; without it as many as the runs of this comparison will have. notify: is
    called with what is being done.
    """
    asked = request.recipes()
    notify(f"{request.task}: reading the data")
    task = tasks.load(asked[0])
    if request.match == "parameters":
        asked = match_parameters(asked, task)
    each = [replace(recipe, seed=seed) for seed in request.seeds for recipe in asked]
    threads = sweep.threads_of(each, sweep.place(folder), threads)
    notify(f"{request.task}: measuring the time of updates")
    trainers = [Trainer(recipe, task) for recipe in asked]
    with estimates.computing_threads(threads), estimates.Others() as others:
        seconds = estimates.seconds_per_update(trainers)
    if request.match == "time":
        asked = match_time(asked, _kept_pace(request, folder, seconds))
    contenders = []
    for recipe, trainer, measured in zip(asked, trainers, seconds, strict=True):
        counts = count_parameters(recipe, trainer.model)
        contenders.append(
            Contender(
                recipe,
                measured * task.updates_per_epoch,
                estimates.whole_run(recipe, task, measured),
                counts.hidden,
                counts.paper,
                threads,
                others.share,
            )
        )
    return contenders


def match_parameters(asked: Sequence[Recipe], task: Loaded) -> list[Recipe]:
    """The recipes with the hidden sizes at which parameters come closest to the first one's."""
    target = _parameters(asked[0], task, asked[0].model.hidden_size)
    matched = [asked[0]]
    for recipe in asked[1:]:
        size = 1
        while _parameters(recipe, task, size) < target:
            size += 1
        around = (s for s in (size - 1, size) if s)
        best = min(around, key=lambda s: abs(_parameters(recipe, task, s) - target))
        matched.append(recipes.replaced(recipe, {"model.hidden_size": best}))
    return matched


def _parameters(recipe: Recipe, task: Loaded, hidden_size: int) -> int:
    """Parameters of the recurrent layers at a hidden size."""
    model = recipe.model
    return parameter_count(
        units.get(recipe.unit, **model.unit_options),
        model.embedding or task.shape.inputs,
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
        kept = [s for s in read(path, _PACE)["seconds_per_update"] if s > 0]
        if len(kept) != len(measured):
            raise RunError(
                f"{path} has no time for each of {', '.join(request.units)}: remove it, and the "
                "times are measured anew"
            )
        return kept
    folder.mkdir(parents=True, exist_ok=True)
    files.write_json(path, {"units": request.units, "seconds_per_update": measured})
    return measured


def compare(
    request: Request,
    folder: Path,
    threads: int | None = None,
    prepared: Sequence[Contender] | None = None,
) -> Comparison:
    """Runs every unit with every seed in `folder` as a sweep, and stores the table there.

    threads: of each run, see `sweep.make`. Runs that are finished are not run again. prepared: what
    `prepare` gave, if it was called before.
    """
    contenders = prepared or prepare(request, folder, threads)
    asked, seconds = zip(*runs(request, contenders), strict=True)
    outcome = sweep.run(sweep.make(asked, sweep.place(folder), threads), estimates=seconds)
    if outcome.failed:
        raise RunError(outcome.describe())
    return tabulate(request, contenders, folder)


def runs(request: Request, contenders: Sequence[Contender]) -> list[tuple[Recipe, float]]:
    """Every run of a comparison, with its estimated seconds."""
    return [
        (replace(contender.recipe, seed=seed), contender.seconds)
        for seed in request.seeds
        for contender in contenders
    ]


def is_finished(request: Request, folder: Path) -> bool:
    """Whether the comparison is stored, and all of its runs are done."""
    path = folder / f"{_stem(request)}.json"
    if not path.exists():
        return False
    made = Comparison.read(path)
    seeds = {len(row.runs) for row in made.units} == {len(request.seeds)}
    names = [name for row in made.units for name in row.runs]
    return seeds and all(RunFolder(folder / name).is_done() for name in names)


def tabulate(request: Request, contenders: Sequence[Contender], folder: Path) -> Comparison:
    """The table of finished runs, stored in their folder."""
    rows = []
    metric = ""
    for contender in contenders:
        names = [run_name(replace(contender.recipe, seed=seed)) for seed in request.seeds]
        results = [RunFolder(folder / name).result() for name in names]
        metric = _metric(results, folder / names[0])
        rows.append(
            ComparedUnit(
                contender.recipe.unit,
                contender.recipe.model.hidden_size,
                tuple(result[metric] for result in results),
                contender.seconds_per_epoch,
                contender.parameters,
                contender.parameters_paper,
                tuple(names),
            )
        )
    made = Comparison(
        request.task,
        request.recipe,
        request.match,
        metric,
        tuple(rows),
        request.settings,
        contenders[0].threads,
        contenders[0].busy,
    )
    store(made, folder, _stem(request))
    return made


def _metric(results: Sequence[Mapping[str, Any]], folder: Path) -> str:
    """The name of the test metric in results, the first one of which is a folder's."""
    for name in results[0]:
        if name.startswith("test_") and name != "test_loss" and all(name in r for r in results):
            return name
    raise RunError(f"{folder} and its other seeds have no test metric in common: train them again")


def _stem(request: Request) -> str:
    """A name for the comparison's files; those of other settings have other names."""
    return f"comparison-{request.task}-{request.recipe}-{request.match}-{request.digest}"


def store(made: Comparison, folder: Path, stem: str) -> None:
    """Writes a comparison as JSON and as CSV."""
    made.write(folder / f"{stem}.json")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["unit", "hidden_size", "seeds", made.metric, "spread", "p_against_first",
         "seconds_per_epoch", "parameters", "parameters_paper"]
    )  # fmt: skip
    for row, chance in zip(made.units, made.chances, strict=True):
        writer.writerow(
            [row.unit, row.hidden_size, len(row.metric_values), row.mean, row.spread,
             "" if chance is None else chance, row.seconds_per_epoch, row.parameters,
             row.parameters_paper]
        )  # fmt: skip
    files.write(folder / f"{stem}.csv", text.getvalue().encode())
