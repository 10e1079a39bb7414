"""Gradients through time of many units on one task's data, in one figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from onegate.lab import recipes, tasks
from onegate.lab.inside import examples
from onegate.lab.inside.measures import SEQUENCES, Numbers, gradient_norms
from onegate.lab.inside.plots import Line, gradients_figure
from onegate.lab.inside.runs import InspectError, initial_model, open_run
from onegate.lab.pages import canvas, figures
from onegate.lab.report.groups import display
from onegate.lab.tasks import Loaded
from onegate.lab.train.models import TaskModel


def write(
    task: str,
    units: Sequence[str],
    runs: Sequence[Path],
    out: Path,
    recipe: str | None = None,
    settings: Sequence[str] = (),
) -> Path:
    """Writes gradients-<task> as SVG, PNG and CSV into a folder; returns the path of the SVG.

    units: as the recipe initialises them, with these settings. runs: of the task, before and after
    training.
    """
    lines: list[Line] = []
    for unit in units:
        made = recipes.override(recipes.recipe(task, recipe, unit), settings)
        data = tasks.load(made)
        lines += _lines(display(unit), unit, _norms(data, initial_model(made, data)), None)
    for folder in runs:
        run = open_run(folder)
        if run.recipe.task != task:
            raise InspectError(f"{folder} is a run of {run.recipe.task}, expected one of {task}")
        before, after = _norms(run.task, run.initial), _norms(run.task, run.trained)
        unit = run.recipe.unit
        label = f"{display(unit)} {run.name}" if unit in units else display(unit)
        lines += _lines(label, unit, before, after)
    if not lines:
        raise InspectError("give units with --units, runs with --runs, or both")
    caption = (
        f"{tasks.get(task).title}: norm of dL/dh[t] at each step, mean over {SEQUENCES} sequences "
        "of the test set; the forward direction of the last layer. Logarithmic."
    )
    with canvas.style():
        drawn = gradients_figure(lines, f"gradients-{task}", caption)
    figures.write([drawn], out)
    return out / f"{drawn.name}.svg"


def _norms(task: Loaded, model: TaskModel) -> Mapping[str, Numbers]:
    """By state, of the last layer's forward pass."""
    numbers = range(min(SEQUENCES, examples.count(task)))
    return gradient_norms(task, model, numbers)[f"l{model.recurrent.num_layers - 1}"]


def _lines(
    label: str, unit: str, before: Mapping[str, Numbers], after: Mapping[str, Numbers] | None
) -> list[Line]:
    """One for each state, the output's stands out."""
    return [
        Line(
            label if len(before) == 1 else f"{label}, {state}",
            unit,
            place == 0,
            norms,
            None if after is None else after[state],
        )
        for place, (state, norms) in enumerate(before.items())
    ]
