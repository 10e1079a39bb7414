"""What the page's script works on: values as bytes, inputs, memory spans."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegate.lab.inside.heatmaps import Shown, shown_values
from onegate.lab.inside.measure_plots import pass_label
from onegate.lab.inside.measures import PassMeasures
from onegate.lab.tasks import View
from onegate.probe.traces import Pass

# Shares of the range of a value: 255 steps are finer than a screen shows.
LEVELS = 255


def bytes_of(values: NDArray[np.floating[Any]], low: float, high: float) -> str:
    """Numbers from `low` to `high` as one byte each, in base64."""
    levels = np.rint((np.asarray(values, np.float64) - low) * (LEVELS / (high - low)))
    clipped = np.clip(np.nan_to_num(levels), 0, LEVELS).astype(np.uint8)
    return base64.b64encode(clipped.tobytes()).decode()


def of_run(
    label: str,
    before: Mapping[str, Pass],
    after: Mapping[str, Pass],
    measured: Mapping[str, PassMeasures],
    views: Sequence[View],
) -> dict[str, Any]:
    """One run: its passes with the values of every example before and after training.

    measured: of the trained model, by which neurons are sorted.
    """
    passes = [_of_pass(before[name], one, measured[name], views) for name, one in after.items()]
    return {"label": label, "passes": passes}


def size_of_example(passes: Mapping[str, Pass]) -> int:
    """How many characters one example of the longest sequence takes, before and after training."""
    numbers = 0
    for one in passes.values():
        for shown in shown_values(one):
            steps, _, neurons = one[shown.name].shape
            numbers += steps * neurons
    return 2 * math.ceil(numbers * 4 / 3)


def _of_pass(
    before: Pass, after: Pass, measured: PassMeasures, views: Sequence[View]
) -> dict[str, Any]:
    memory = measured.memory
    kept = measured.keeping.get(memory)
    return {
        "name": after.name,
        "label": pass_label(after.name),
        "backward": after.backward,
        "memory": memory,
        "span": None if kept is None else _plain(kept.span.numpy()),
        "measured": _plain(measured.spans[memory]),
        "values": [_of_value(shown, before, after, views) for shown in shown_values(after, before)],
    }


def _of_value(shown: Shown, before: Pass, after: Pass, views: Sequence[View]) -> dict[str, Any]:
    """Its range, and its bytes (neurons, steps) after and before training, example by example."""
    data = [
        [
            bytes_of(one[shown.name][: view.steps, place].numpy().T, shown.low, shown.high)
            for place, view in enumerate(views)
        ]
        for one in (after, before)
    ]
    return {**vars(shown), "neurons": after[shown.name].shape[-1], "data": data}


def _plain(spans: NDArray[np.float64]) -> list[float | None]:
    """Spans to three digits; JSON has no infinity and no NaN: -1 is forever, null is unknown."""
    return [
        None if math.isnan(s) else -1 if math.isinf(s) else float(f"{s:.3g}")
        for s in spans.tolist()
    ]


def telling_step(
    view: View,
    place: int,
    runs: Sequence[tuple[Mapping[str, Pass], Mapping[str, PassMeasures]]],
) -> int:
    """The step at which the memory of the runs changes most on an example: where a page opens.

    runs: of each its passes and what was measured of them; those of the first layer count.
    """
    change = np.zeros(view.steps)
    for passes, measured in runs:
        name, one = next(iter(passes.items()))
        values = one[measured[name].memory][: view.steps, place].double().numpy()
        # The first step of a pass has no step before it in the record.
        change[1:] += np.abs(np.diff(values, axis=0)).mean(1)
    return int(np.nan_to_num(change).argmax())


def of_view(view: View, answers: Sequence[Sequence[str]], start: int) -> dict[str, Any]:
    """One example; answers: what each run makes of it after, and before training.

    start: the step that is shown first.
    """
    shown: dict[str, Any] = {
        "number": view.number, "steps": view.steps, "kind": view.kind, "answer": view.answer,
        "answers": answers, "start": start,
    }  # fmt: skip
    if view.image is not None and view.pixels is not None:
        shown["image"] = bytes_of(view.image, 0, 1)
        shown["pixels"] = view.pixels.tolist()
    if view.numbers is not None:
        shown["numbers"] = [float(f"{value:.4g}") for value in view.numbers.tolist()]
        shown["marked"] = [] if view.marked is None else np.flatnonzero(view.marked).tolist()
    if view.words:
        shown["words"] = list(view.words)
    return shown
