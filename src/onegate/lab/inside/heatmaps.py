"""Gates and states of one example over time, as a picture, with the input beside it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import figure as drawing
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from numpy.typing import NDArray

from onegate.lab.inside.measure_plots import pass_label
from onegate.lab.inside.measures import PassMeasures
from onegate.lab.pages import canvas
from onegate.lab.pages.figure import Figure, Row, finished
from onegate.lab.pages.markup import short
from onegate.lab.tasks import View
from onegate.ops import is_gate
from onegate.probe.traces import Pass, named_values
from onegate.properties import gates

# As in the page: a gate, what is below and above zero, and the input have a colour each.
_BLUE, _MAGENTA, _TEAL, _GREEN = "#0b5cad", "#c81e6e", "#0a7e86", "#1a7f4b"
_GATE = LinearSegmentedColormap.from_list("gate", ["#ffffff", _BLUE])
_SIGNED = LinearSegmentedColormap.from_list("signed", [_MAGENTA, "#ffffff", _TEAL])
_WIDTH, _ROW = 5.0, 1.25
_MOST_WORDS, _MOST_LETTERS = 45, 20


@dataclass(frozen=True)
class Shown:
    """A value worth looking at, and the range of its colours.

    high: the next number of two digits above all values. low: 0 for gates, else -high.
    """

    name: str
    gate: bool
    low: float
    high: float


def shown_values(one: Pass, *others: Pass) -> list[Shown]:
    """Gates, states and what has a name in the equations; `others`: that share the colours.

    What depends on parameters alone is the same at every step, and left out.
    """
    graph = one.graph
    moving = (*graph.inputs, *graph.states)
    wanted = {node for node in gates(graph) if graph.depends_on(node, moving)}
    found = []
    for name, node in named_values(graph).items():
        if node in wanted or name.isidentifier():
            gate = is_gate(node.op)
            most = _rounded_up(max(_largest(each, name) for each in (one, *others)))
            found.append(Shown(name, gate, 0.0 if gate else -most, most))
    return found


def _largest(one: Pass, name: str) -> float:
    return float(one[name][one.inside].abs().nan_to_num(posinf=0).max())


def _rounded_up(value: float) -> float:
    """The next number of two digits; 1 for zero."""
    if not value:
        return 1.0
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(value / unit * (1 - 1e-9)) * unit


def order(one: PassMeasures) -> NDArray[np.int64]:
    """Neurons by falling memory span: that of the gate, or where there is none the measured one."""
    kept = one.keeping.get(one.memory)
    spans = one.spans[one.memory] if kept is None else kept.span.numpy()
    return np.argsort(-np.nan_to_num(spans, nan=-1.0, posinf=1e300), kind="stable")


def draw(
    label: str,
    training: str,
    view: View,
    passes: Mapping[str, Pass],
    measured: Mapping[str, PassMeasures],
) -> Figure:
    """All passes of a run on the first of their examples.

    training: whether they are before or after it. measured: of the trained model, whose memory
    gives the order of the neurons.
    """
    panels = [(one, shown) for one in passes.values() for shown in shown_values(one)]
    with canvas.style():
        drawn, rows = _with_input(view, len(panels))
        for (one, shown), axes in zip(panels, rows, strict=True):
            _heat(drawn, axes, _values(one, shown, view, measured[one.name]), shown)
            several = f"{pass_label(one.name)}\n" if len(passes) > 1 else ""
            axes.set_ylabel(f"{several}{shown.name}", rotation=0, ha="right", va="center")
            axes.tick_params(labelbottom=axes is rows[-1])
        _time(rows[-1], view)
        words = ["heatmap", label.lower(), str(view.number), training]
        answer = f" ({view.answer})" if view.answer else ""
        return finished(
            drawn, "explore", words,
            f"{label} {training} training, example {view.number}{answer}: values over time, one "
            "line a neuron, ranked by memory, the longest on top; the bar beside it has the scale.",
            f"Heat maps of {label} on example {view.number}.",
            _rows(panels, view),
        )  # fmt: skip


def _with_input(view: View, count: int) -> tuple[drawing.Figure, list[Axes]]:
    """A figure with the input, beside or above `count` empty panels, which are returned too."""
    beside = 1.2 if view.kind == "image" else 0.0
    above = 0.8 if view.kind == "numbers" else 0.0
    widths = [beside, _WIDTH] if beside else [_WIDTH]
    heights = [above, *[_ROW] * count] if above else [_ROW] * count
    drawn = drawing.Figure(figsize=(sum(widths), sum(heights) + 0.6))
    grid = drawn.add_gridspec(len(heights), len(widths), height_ratios=heights, width_ratios=widths)
    if view.image is not None:
        axes = drawn.add_subplot(grid[0, 0])
        axes.imshow(view.image, cmap="Greys")
        axes.set(xticks=[], yticks=[])
        axes.grid(visible=False)
    if view.numbers is not None:
        _numbers(drawn.add_subplot(grid[0, -1]), view)
    return drawn, [drawn.add_subplot(grid[row - count, -1]) for row in range(count)]


def _values(one: Pass, shown: Shown, view: View, measured: PassMeasures) -> NDArray[np.float64]:
    """(neurons, steps), sorted where the value has a line for each neuron of the memory."""
    values = one[shown.name][: view.steps, 0].double().numpy().T
    ranks = order(measured)
    return values[ranks] if len(ranks) == len(values) else values


def _heat(drawn: drawing.Figure, axes: Axes, values: NDArray[np.float64], shown: Shown) -> None:
    colors = _GATE if shown.gate else _SIGNED
    steps = values.shape[1]
    image = axes.imshow(
        values, cmap=colors, vmin=shown.low, vmax=shown.high, aspect="auto",
        interpolation="nearest", extent=(0.5, steps + 0.5, len(values), 0),
    )  # fmt: skip
    axes.grid(visible=False)
    axes.set_yticks([0.5, len(values) - 0.5], ["1", str(len(values))])
    axes.tick_params(axis="y", labelsize=7.5, length=2)
    ticks = sorted({shown.low, 0.0, shown.high})
    bar = drawn.colorbar(image, ax=axes, pad=0.01, fraction=0.03, ticks=ticks, format="%.3g")
    bar.ax.tick_params(labelsize=7.5)


def _numbers(axes: Axes, view: View) -> None:
    assert view.numbers is not None
    steps = np.arange(1, view.steps + 1)
    marked = np.zeros(view.steps, bool) if view.marked is None else view.marked
    axes.bar(steps[~marked], view.numbers[~marked], color=canvas.MUTED.light, width=0.7)
    axes.bar(steps[marked], view.numbers[marked], color=_GREEN, width=0.7)
    axes.set(xlim=(0.5, view.steps + 0.5), xticks=[])
    axes.set_ylabel("input", rotation=0, ha="right", va="center")


def _time(axes: Axes, view: View) -> None:
    if not view.words:
        axes.set_xlabel("step t")
        return
    every = -(-view.steps // _MOST_WORDS)
    places = range(0, view.steps, every)
    axes.set_xticks([place + 1 for place in places])
    words = [short(view.words[place], _MOST_LETTERS) for place in places]
    axes.set_xticklabels(words, rotation=90, fontsize=6.5)


def _rows(panels: Sequence[tuple[Pass, Shown]], view: View) -> Iterator[Row]:
    yield "pass", "value", "neuron", *(f"t={t + 1}" for t in range(view.steps))
    for one, shown in panels:
        values = one[shown.name][: view.steps, 0].T
        for neuron, row in enumerate(values.tolist()):
            yield one.name, shown.name, neuron, *(f"{value:.5g}" for value in row)
