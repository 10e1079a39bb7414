"""From run folders to a page with its figures, and to one figure of many units' gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from onegate import files
from onegate.lab import recipes, tasks
from onegate.lab.inside import examples, heatmaps, inspection_page, measure_plots, payload
from onegate.lab.inside.measure_plots import Line, Measured, gradients_figure
from onegate.lab.inside.measures import SEQUENCES, Numbers, gradient_norms, measure
from onegate.lab.inside.opened import InspectError, OpenRun, initial_model, open_run
from onegate.lab.pages import canvas
from onegate.lab.pages.figure import write_figures
from onegate.lab.report.groups import display
from onegate.lab.tasks import Batch, Loaded
from onegate.lab.train.models import TaskModel
from onegate.probe.traces import Pass, traced

# Characters for the values of all examples; the page has to stay below 10 MB.
_ROOM = 7_500_000
_USUAL = 8


@dataclass(frozen=True, eq=False)
class _Reading:
    """What happens inside a model that reads examples, and what it makes of them."""

    batch: Batch
    passes: Mapping[str, Pass]
    answers: Sequence[str]


def write(
    folders: Sequence[Path],
    out: Path,
    numbers: Sequence[int] = (),
    digits: Sequence[int] = (),
    notify: Callable[[str], None] = lambda _: None,
) -> Path:
    """Looks inside one run, or two of the same task; returns the page's path.

    numbers: of examples of the test set. digits: the first example of each, for tasks that read
    images. Without either some of every class are taken. `out` gets inspect.html and figures/.
    notify: is called with what is being done.
    """
    notify("reading runs and data")
    runs = [open_run(folder) for folder in folders]
    _require_comparable(runs)
    notify("recording gates and states on examples")
    chosen = _chosen(runs, numbers, digits)
    after = [_read(run.task, run.trained, chosen) for run in runs]
    _require_same_examples(runs, after)
    before = [_read(run.task, run.initial, chosen) for run in runs]
    views = examples.views(runs[0].task, chosen, after[0].batch)
    measured = []
    for run, (label, key) in zip(runs, _labels(runs), strict=True):
        notify(f"measuring memory, gradients and Jacobians of {label}")
        both = measure(run.task, run.initial), measure(run.task, run.trained)
        measured.append(Measured(label, key, *both))
    notify("drawing")
    drawn = measure_plots.draw(measured)
    shown = []
    for run, one, start, end in zip(runs, measured, before, after, strict=True):
        drawn.append(heatmaps.draw(one.label, "before", views[0], start.passes, one.after))
        drawn.append(heatmaps.draw(one.label, "after", views[0], end.passes, one.after))
        values = payload.of_run(one.label, start.passes, end.passes, one.after, views)
        shown.append(
            inspection_page.ShownRun(run.run, next(iter(end.passes.values())).graph, one, values)
        )
    told = []
    for place, view in enumerate(views):
        answers = [[each.answers[place] for each in when] for when in (after, before)]
        recorded = [(end.passes, one.after) for end, one in zip(after, measured, strict=True)]
        start_at = payload.telling_step(view, place, recorded)
        told.append(payload.of_view(view, answers, start_at))
    content = inspection_page.build(shown, views, told, drawn)
    write_figures(drawn, out / "figures")
    path = out / "inspect.html"
    files.write(path, content.encode())
    return path


def _require_comparable(runs: Sequence[OpenRun]) -> None:
    first, *others = runs
    for other in others:
        if other.run.folder.resolve() == first.run.folder.resolve():
            raise InspectError(f"{other.run.folder} is given twice; give two different runs")
        if other.recipe.task != first.recipe.task:
            raise InspectError(
                f"{first.run.folder} is a run of {first.recipe.task} and {other.run.folder} one of "
                f"{other.recipe.task}; runs side by side must have the same task"
            )


def _require_same_examples(runs: Sequence[OpenRun], readings: Sequence[_Reading]) -> None:
    first = readings[0].batch
    for run, reading in zip(runs, readings, strict=True):
        other = reading.batch
        same_shape = other.inputs.shape == first.inputs.shape
        if not same_shape or not torch.equal(other.targets, first.targets):
            raise InspectError(
                f"{run.run.folder} reads other examples than {runs[0].run.folder}: their recipes "
                "differ in data; look at them one by one"
            )


def _chosen(runs: Sequence[OpenRun], numbers: Sequence[int], digits: Sequence[int]) -> list[int]:
    """The numbers of the examples, as many as the page has room for."""
    task = runs[0].task
    chosen = [*numbers, *(examples.of_digits(task, digits) if digits else ())]
    chosen = list(dict.fromkeys(chosen))
    examples.check(task, chosen)
    # The longest of some stands for all.
    some = chosen or examples.varied(task, _USUAL)
    sizes = [payload.size_of_example(_read(run.task, run.trained, some).passes) for run in runs]
    most = max(1, _ROOM // sum(sizes))
    if len(chosen) > most:
        raise InspectError(
            f"a page with {len(chosen)} examples would be too large to open at once; these runs "
            f"have room for {most}"
        )
    return chosen or list(some[:most])


def _labels(runs: Sequence[OpenRun]) -> list[tuple[str, str]]:
    """A name for reading and a key for its colour.

    The unit; where that tells no two runs apart, not even without upper case, also the folder's
    name; where that does not either, a number.
    """
    units = [display(run.recipe.unit) for run in runs]
    with_folders = [f"{unit} {run.name}" for unit, run in zip(units, runs, strict=True)]
    numbered = [f"{label} ({place})" for place, label in enumerate(with_folders, start=1)]
    for labels in (units, with_folders, numbered):
        if len({label.lower() for label in labels}) == len(labels):
            break
    first = runs[0].recipe.unit
    return [
        (label, label if place and run.recipe.unit == first else run.recipe.unit)
        for place, (label, run) in enumerate(zip(labels, runs, strict=True))
    ]


@torch.no_grad()
def _read(task: Loaded, model: TaskModel, numbers: Sequence[int]) -> _Reading:
    batch, state = examples.batch(task, model, numbers)
    passes = traced(model.recurrent, lambda: model.score(batch, state))
    return _Reading(batch, passes, examples.answers(task, model, batch, state))


def write_gradients(
    task: str,
    units: Sequence[str],
    runs: Sequence[Path],
    out: Path,
    recipe: str | None = None,
    settings: Sequence[str] = (),
    notify: Callable[[str], None] = lambda _: None,
) -> Path:
    """Writes gradients-<task> as SVG, PDF, PNG and CSV into a folder; returns the path of the SVG.

    units: as the recipe initialises them, with these settings. runs: of the task, before and after
    training. notify: is called with what is being done.
    """
    lines: list[Line] = []
    for unit in units:
        notify(display(unit))
        made = recipes.override(recipes.recipe(task, recipe, unit), settings)
        data = tasks.load(made)
        lines += _lines(display(unit), unit, _norms(data, initial_model(made, data)), None)
    for folder in runs:
        notify(folder.name)
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
        drawn = gradients_figure(lines, ["gradients", task], caption)
    write_figures([drawn], out)
    return out / f"{drawn.name}.svg"


def _norms(task: Loaded, model: TaskModel) -> Mapping[str, Numbers]:
    """By state, of the last layer's forward pass."""
    numbers = examples.varied(task, SEQUENCES)
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
