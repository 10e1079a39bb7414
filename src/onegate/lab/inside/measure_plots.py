"""The figures of what was measured: gates, memory, gradients, Jacobians."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import figure as drawing
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from onegate.lab.inside.measures import BINS, Numbers, PassMeasures
from onegate.lab.pages import canvas
from onegate.lab.pages.canvas import Color
from onegate.lab.pages.figure import Figure, Row, finished

BEFORE, AFTER = "before training", "after training"
_WIDTH = 5.0
_DASHED = (0, (3, 1.6))
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Measured:
    """A run's measurements, before and after training, by pass.

    label: its name for reading. unit: whose colour it has.
    """

    label: str
    unit: str
    before: Mapping[str, PassMeasures]
    after: Mapping[str, PassMeasures]

    def whose(self, one: str) -> str:
        """A pass's name for reading; a layer alone has none."""
        return self.label if len(self.after) == 1 else f"{self.label}, {pass_label(one)}"


def pass_label(name: str) -> str:
    """A pass in words.

    >>> pass_label("l1_reverse")
    'layer 2 backward'
    """
    layer, _, reverse = name.removeprefix("l").partition("_")
    return f"layer {int(layer) + 1}" + (" backward" if reverse else "")


def draw(runs: Sequence[Measured]) -> list[Figure]:
    """Every figure that the measurements give, in the order of the page."""
    with canvas.style():
        figures = [_gates(runs), _spans(runs), _gradients(runs), _spectra(runs)]
    return [figure for figure in figures if figure is not None]


def _gates(runs: Sequence[Measured]) -> Figure | None:
    rows = [(run, name, one) for run in runs for name, one in run.after.items() if one.gates]
    if not rows:
        return None
    columns = max(len(one.gates) for _, _, one in rows)
    figure = drawing.Figure(figsize=(_WIDTH, 0.6 + 1.45 * len(rows)))
    grid = figure.subplots(len(rows), columns, squeeze=False, sharex=True)
    colors = canvas.colors([run.unit for run in runs])
    edges = np.linspace(0, 1, BINS + 1)
    for panels, (run, name, one) in zip(grid, rows, strict=True):
        for panel in panels[len(one.gates) :]:
            panel.set_visible(False)
        for panel, (gate, shares) in zip(panels, one.gates.items(), strict=False):
            start = run.before[name].gates[gate]
            color = colors[run.unit].light
            panel.stairs(100 * start, edges, color=color, ls=_DASHED, lw=1.2)
            panel.stairs(100 * shares, edges, color=color, lw=1.8)
            panel.set_title(f"{run.whose(name)}: {gate}", fontsize=9)
            panel.set_ylim(bottom=0)
            panel.xaxis.set_tick_params(labelbottom=True)
            if run is rows[-1][0] and name == rows[-1][1]:
                panel.set_xlabel("value of the gate")
        panels[0].set_ylabel("% of values")
    _explain(grid[0, 0], BEFORE, ls=_DASHED, lw=1.2)
    _explain(grid[0, 0], AFTER, lw=1.8)
    canvas.legend_below(figure, grid[0, 0])
    means = "; ".join(
        f"{run.whose(name)}: mean of {gate} {run.before[name].gate_means[gate]:.2f} before, "
        f"{mean:.2f} after"
        for run, name, one in rows
        for gate, mean in one.gate_means.items()
    )
    return finished(
        figure, "gates", ["gates"],
        "Distribution of gate values over steps, neurons and sequences of the test set.",
        f"Gate values before and after training. {means}.",
        _gate_rows(rows),
    )  # fmt: skip


def _gate_rows(rows: Sequence[tuple[Measured, str, PassMeasures]]) -> Iterator[Row]:
    yield "run", "pass", "gate", "from", "to", "share_before", "share_after"
    for run, name, one in rows:
        for gate, shares in one.gates.items():
            pairs = zip(run.before[name].gates[gate], shares, strict=True)
            for place, (before, after) in enumerate(pairs):
                edges = place / BINS, (place + 1) / BINS
                yield run.label, name, gate, *edges, float(before), float(after)


def _spans(runs: Sequence[Measured]) -> Figure:
    figure, axes = canvas.new(3.4)
    colors = canvas.colors([run.unit for run in runs])
    rows: list[Row] = [
        ("run", "pass", "state", "neuron", "span_before", "span_after", "measured_before",
         "measured_after")
    ]  # fmt: skip
    for run in runs:
        for place, (name, one) in enumerate(run.after.items()):
            state, start, measured = one.memory, run.before[name], one.spans[one.memory]
            look: dict[str, Any] = {
                "color": colors[run.unit].light,
                "alpha": 1.0 if place == 0 else 0.55,
            }
            axes.plot([], [], label=run.whose(name), **look)
            before = after = np.full_like(measured, np.nan)
            if state in one.keeping:
                after, before = one.keeping[state].span.numpy(), start.keeping[state].span.numpy()
                _ranked(axes, before, ls=_DASHED, lw=1.2, **look)
                _ranked(axes, after, **look)
            _ranked(axes, measured, ls="none", marker=".", ms=4, **look)
            columns = zip(before, after, start.spans[state], measured, strict=True)
            for neuron, values in enumerate(columns):
                rows.append((run.label, name, state, neuron, *map(float, values)))
    if any(one.keeping for run in runs for one in run.after.values()):
        _explain(axes, f"by the gate, {BEFORE}", ls=_DASHED, lw=1.2)
        _explain(axes, f"by the gate, {AFTER}")
    _explain(axes, f"measured, {AFTER}", ls="none", marker=".")
    _logarithmic(axes)
    axes.set_xlabel("neurons, the longest memory first")
    axes.set_ylabel("memory span (steps)")
    canvas.legend_below(figure, axes)
    said = "; ".join(
        f"{run.whose(name)}: {_median(one.spans[one.memory])} measured"
        for run in runs
        for name, one in run.after.items()
    )
    return finished(
        figure, "memory", ["memory"],
        "Memory span of each neuron, each curve in its own order. By the gate: 1 / mean share that "
        "is overwritten in a step. Measured: mean delay of the response to a disturbed input, "
        "which the length of the sequence limits. Logarithmic.",
        f"Memory spans of neurons. {said}.", rows,
    )  # fmt: skip


def _median(spans: Numbers) -> str:
    known = spans[np.isfinite(spans)]
    return f"median {np.median(known):.3g} steps" if len(known) else "no response"


def _ranked(axes: Axes, spans: Numbers, **style: Any) -> None:
    """Finite spans, falling; what never forgets has no place on the axis."""
    finite = np.sort(spans[np.isfinite(spans)])[::-1]
    if len(finite):
        ranks = np.arange(1, len(finite) + 1) + (len(spans) - len(finite))
        axes.plot(ranks, finite, **style)


def _explain(axes: Axes, label: str, **style: Any) -> None:
    """What a kind of line means, for the legend alone."""
    axes.plot([], [], color=canvas.INK.light, label=label, **style)


def _gradients(runs: Sequence[Measured]) -> Figure:
    lines = [
        Line(f"{run.whose(name)}{_state(one, state)}", run.unit, place == 0, before, after)
        for run in runs
        for place, (name, one) in enumerate(run.after.items())
        for state, after in one.gradients.items()
        for before in (run.before[name].gradients[state],)
    ]
    return gradients_figure(
        lines, ["gradients"],
        "Norm of dL/dh[t] at each step, mean over sequences; L is the loss of a sequence (of a "
        "text: of its last word). Logarithmic.",
    )  # fmt: skip


def _state(one: PassMeasures, state: str) -> str:
    return "" if len(one.gradients) == 1 else f", {state}"


@dataclass(frozen=True)
class Line:
    """Gradients through time of one state, (T,); `strong` lines stand out."""

    label: str
    unit: str
    strong: bool
    before: Numbers | None
    after: Numbers | None


def gradients_figure(lines: Sequence[Line], words: Sequence[str], caption: str) -> Figure:
    """Norms of gradients over time, before training dashed; call it within the style."""
    figure, axes = canvas.new(3.5)
    colors = canvas.colors([line.unit for line in lines])
    lowest = min(_lowest(line) for line in lines)
    rows: list[Row] = [("line", "step", "before", "after")]
    for line in lines:
        look: dict[str, Any] = {
            "color": colors[line.unit].light,
            "alpha": 1.0 if line.strong else 0.55,
        }
        axes.plot([], [], label=line.label, **look)
        if line.before is not None:
            _over_time(axes, line.before, ls=_DASHED, lw=1.3, **look)
        if line.after is not None:
            _over_time(axes, line.after, **look)
        parts = [part for part in (line.before, line.after) if part is not None]
        for t in range(len(parts[0])):
            values = ["" if part is None else float(part[t]) for part in (line.before, line.after)]
            rows.append((line.label, t + 1, *values))
    if any(line.before is not None for line in lines):
        _explain(axes, BEFORE, ls=_DASHED, lw=1.3)
    if any(line.after is not None for line in lines):
        _explain(axes, AFTER)
    axes.set_yscale("log")
    axes.set_ylim(bottom=max(lowest, 1e-20) / 3)
    _logarithmic(axes)
    axes.set_xlabel("step t")
    axes.set_ylabel("norm of dL/dh[t]")
    canvas.legend_below(figure, axes)
    said = "; ".join(f"{line.label}: {_ends(line)}" for line in lines)
    return finished(figure, "gradients", words, caption, f"Gradients through time. {said}.", rows)


def _over_time(axes: Axes, norms: Numbers, **style: Any) -> None:
    axes.plot(np.arange(1, len(norms) + 1), np.where(norms > 0, norms, np.nan), **style)


def _lowest(line: Line) -> float:
    parts = [part[part > 0] for part in (line.before, line.after) if part is not None]
    return min((float(part.min()) for part in parts if len(part)), default=1.0)


def _ends(line: Line) -> str:
    last = line.after if line.after is not None else line.before
    assert last is not None
    return f"{last[0]:.1e} at the first step, {last[-1]:.1e} at the last"


def _spectra(runs: Sequence[Measured]) -> Figure:
    rows = [(run, name, one) for run in runs for name, one in run.after.items()]
    figure = drawing.Figure(figsize=(_WIDTH, 0.6 + 2.35 * len(rows)))
    grid = figure.subplots(len(rows), 2, squeeze=False)
    colors = canvas.colors([run.unit for run in runs])
    for (left, right), (run, name, one) in zip(grid, rows, strict=True):
        start = run.before[name]
        _singular(left, start, one, colors[run.unit])
        left.set_title(f"{run.whose(name)}: singular values", fontsize=9)
        _eigenvalues(right, start, one, colors[run.unit])
        right.set_title(f"{run.whose(name)}: eigenvalues", fontsize=9)
    _explain(grid[0, 0], BEFORE, ls=_DASHED, lw=1.2)
    _explain(grid[0, 0], AFTER)
    _explain(grid[0, 0], f"eigenvalues {BEFORE}", ls="none", marker="o", mfc="none", ms=4)
    _explain(grid[0, 0], f"eigenvalues {AFTER}", ls="none", marker=".")
    canvas.legend_below(figure, grid[0, 0])
    said = "; ".join(
        f"{run.whose(name)}: largest Lyapunov exponent {run.before[name].exponent:.3f} before, "
        f"{one.exponent:.3f} after training"
        for run, name, one in rows
    )
    return finished(
        figure, "jacobians", ["jacobians"],
        "The Jacobian of a step along test sequences. Left: singular values, falling, mean over "
        "steps and sequences, with the band between the steps. Right: eigenvalues at a step in "
        "the middle, with the unit circle.",
        f"Spectrum of the step's Jacobian. {said}.", _spectrum_rows(rows),
    )  # fmt: skip


def _singular(axes: Axes, before: PassMeasures, after: PassMeasures, color: Color) -> None:
    looks: tuple[tuple[PassMeasures, Any, float], ...] = (
        (before, _DASHED, 1.2), (after, "-", 1.8),
    )  # fmt: skip
    for one, style, width in looks:
        ranks = np.arange(1, one.singular.shape[1] + 1)
        low, high = one.singular.min(0), one.singular.max(0)
        axes.fill_between(ranks, low, high, color=color.light, alpha=0.15, lw=0)
        axes.plot(ranks, one.singular.mean(0), color=color.light, ls=style, lw=width)
    axes.axhline(1, color=canvas.MUTED.light, lw=0.8)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("rank")
    axes.set_ylabel("singular value")


def _eigenvalues(axes: Axes, before: PassMeasures, after: PassMeasures, color: Color) -> None:
    angles = np.linspace(0, 2 * np.pi, 200)
    axes.plot(np.cos(angles), np.sin(angles), color=canvas.MUTED.light, lw=0.8)
    # Hollow and dark, above the others: those before training lie close together and hide nothing.
    hollow: dict[str, Any] = {"marker": "o", "mfc": "none", "ms": 4, "alpha": 0.6, "mew": 0.6}
    full: dict[str, Any] = {"marker": ".", "ms": 4.5, "alpha": 0.9, "mew": 0}
    for one, ink, look in ((after, color, full), (before, canvas.INK, hollow)):
        values = one.eigenvalues
        axes.plot(values.real, values.imag, ls="none", color=ink.light, **look)
    axes.set_xlabel("real part")
    axes.set_ylabel("imaginary part")
    axes.set_aspect("equal", adjustable="datalim")


def _spectrum_rows(rows: Sequence[tuple[Measured, str, PassMeasures]]) -> Iterator[Row]:
    yield "run", "pass", "training", "kind", "rank", "real", "imaginary"
    for run, name, after in rows:
        for label, one in (("before", run.before[name]), ("after", after)):
            for rank, value in enumerate(one.singular.mean(0), start=1):
                yield run.label, name, label, "singular value", rank, float(value), 0.0
            for rank, value in enumerate(one.eigenvalues, start=1):
                yield (
                    run.label,
                    name,
                    label,
                    "eigenvalue",
                    rank,
                    float(value.real),
                    float(value.imag),
                )
            for rank, value in enumerate(one.exponents):
                yield run.label, name, label, "Lyapunov exponent", rank, float(value), 0.0


def _logarithmic(axes: Axes) -> None:
    """A logarithmic y axis; plain numbers where they are short."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    decades = np.log10(high / low)
    if decades < 1.5:
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0, 7.0)))
    elif decades < 5:
        axes.yaxis.set_major_locator(LogLocator())
    if low >= 1e-3 and high < 1e5:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    else:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _power(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _power(value: float) -> str:
    """A number with a power of ten, without mathtext.

    >>> _power(1e-12), _power(2e7)
    ('10⁻¹²', '2×10⁷')
    """
    first, _, exponent = f"{value:.0e}".partition("e")
    raised = str(int(exponent)).translate(_RAISED)
    return f"10{raised}" if first == "1" else f"{first}\N{MULTIPLICATION SIGN}10{raised}"
