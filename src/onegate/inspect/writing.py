"""From run folders to a page with its figures."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import torch

from onegate import files
from onegate.cells import States
from onegate.inspect import examples, heatmaps, page, payload, plots
from onegate.inspect.measures import measure
from onegate.inspect.plots import Measured
from onegate.inspect.runs import InspectError, OpenRun, open_run
from onegate.inspect.traces import Pass, traced
from onegate.pages import figures
from onegate.report.groups import display
from onegate.tasks import Batch

# Characters for the values of all examples; the page has to stay below 10 MB.
_ROOM = 7_500_000
_USUAL = 8


def write(
    folders: Sequence[Path],
    out: Path,
    numbers: Sequence[int] = (),
    digits: Sequence[int] = (),
) -> Path:
    """Looks inside one run, or two of the same task; returns the page's path.

    numbers: of examples of the test set. digits: the first example of each, for tasks that read
    images. Without either the first few are taken. `out` gets inspect.html and figures/.
    """
    runs = [open_run(folder) for folder in folders]
    _require_comparable(runs)
    labels = _labels(runs)
    numbers = [
        *numbers,
        *(examples.of_digits(runs[0].recipe, runs[0].task, digits) if digits else ()),
    ]
    numbers = list(dict.fromkeys(numbers))
    chosen, passes = _passes(runs, numbers or [0])
    most = max(1, _ROOM // sum(map(payload.size_of_example, passes)))
    if len(numbers) > most:
        raise InspectError(
            f"a page with {len(numbers)} examples would be too large to open at once; these runs "
            f"have room for {most}"
        )
    if not numbers:
        numbers = list(range(min(_USUAL, most, examples.count(runs[0].task))))
        chosen, passes = _passes(runs, numbers)
    views = examples.views(runs[0].recipe, runs[0].task, numbers, chosen[0][0])
    measured = [
        Measured(label, key, measure(run.task, run.initial), measure(run.task, run.trained))
        for run, (label, key) in zip(runs, labels, strict=True)
    ]
    drawn = plots.draw(measured)
    drawn += [
        heatmaps.draw(one.label, views[0], 0, each, one.after)
        for one, each in zip(measured, passes, strict=True)
    ]
    shown = [
        page.Shown(
            run.run, next(iter(each.values())).graph, one,
            payload.of_run(one.label, each, one.after, views),
        )
        for run, one, each in zip(runs, measured, passes, strict=True)
    ]  # fmt: skip
    answers = [
        examples.answers(run.trained, *batch) for run, batch in zip(runs, chosen, strict=True)
    ]
    told = [
        payload.of_view(view, [each[place] for each in answers]) for place, view in enumerate(views)
    ]
    content = page.build(shown, views, told, drawn)
    figures.write(drawn, out / "figures")
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


def _labels(runs: Sequence[OpenRun]) -> list[tuple[str, str]]:
    """A name for reading, with the folder's for equal units, and a key for its colour."""
    units = [run.recipe.unit for run in runs]
    if len(set(units)) == len(units):
        return [(display(unit), unit) for unit in units]
    return [
        (f"{display(run.recipe.unit)} {run.name}", run.name if place else run.recipe.unit)
        for place, run in enumerate(runs)
    ]


@torch.no_grad()
def _passes(
    runs: Sequence[OpenRun], numbers: Sequence[int]
) -> tuple[list[tuple[Batch, States | None]], list[dict[str, Pass]]]:
    """The chosen examples as each run reads them, and what happens inside its trained model."""
    chosen = [examples.batch(run.task, run.trained, numbers) for run in runs]
    first = chosen[0][0]
    for run, (other, _) in zip(runs, chosen, strict=True):
        if other.inputs.shape != first.inputs.shape or not torch.equal(
            other.targets, first.targets
        ):
            raise InspectError(
                f"{run.run.folder} reads other examples than {runs[0].run.folder}: their recipes "
                "differ in data; look at them one by one"
            )
    passes = []
    for run, (batch, state) in zip(runs, chosen, strict=True):
        score = functools.partial(run.trained.score, batch, state)
        passes.append(traced(run.trained.recurrent, score))
    return chosen, passes
