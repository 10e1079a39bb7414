"""What was measured as a picture: bars for shapes, lines for sweeps."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from onegate.lab.bench.contestants import FUSED
from onegate.lab.bench.outcomes import KINDS, Kind, Sweep, Timings
from onegate.lab.bench.record import Record


def draw(record: Record) -> Figure:
    """One row of panels for each shape and sweep: training on the left, inference right."""
    rows: list[Timings | Sweep] = [*record.outcomes, *record.sweeps]
    heights = [_height(row) for row in rows]
    figure = Figure(figsize=(11, sum(heights)), layout="constrained")
    grid: Any = figure.subplots(
        len(rows), len(KINDS), squeeze=False, gridspec_kw={"height_ratios": heights}
    )
    for row, panels in zip(rows, grid, strict=True):
        for kind, panel in zip(KINDS, panels, strict=True):
            if isinstance(row, Sweep):
                _draw_sweep(panel, row, kind)
            else:
                _draw_outcome(panel, row, kind)
    return figure


def _height(row: Timings | Sweep) -> float:
    """Inches: a bar needs about a quarter."""
    return 4.0 if isinstance(row, Sweep) else 1.0 + 0.26 * len(row.results["train"])


def _draw_outcome(panel: Any, outcome: Timings, kind: Kind) -> None:
    """Horizontal bars of medians, whiskers at the quartiles, the share of the peak beside them."""
    results = outcome.results[kind]
    medians = [1e3 * result.timing.median for result in results.values()]
    whiskers = [
        [1e3 * (r.timing.median - r.timing.lower) for r in results.values()],
        [1e3 * (r.timing.upper - r.timing.median) for r in results.values()],
    ]
    colours = ["C0" if name.endswith(f" {FUSED}") else "0.7" for name in results]
    bars = panel.barh(list(results), medians, xerr=whiskers, color=colours, ecolor="0.3")
    labels = [f"{100 * result.share:.0f} %" for result in results.values()]
    panel.bar_label(bars, labels, padding=4, fontsize=8)
    panel.invert_yaxis()
    panel.margins(x=0.15)
    panel.set_title(f"{outcome.shape.name}: {KINDS[kind]}", fontsize=10)
    panel.set_xlabel("ms; % of the sgemm peak")


def _draw_sweep(panel: Any, sweep: Sweep, kind: Kind) -> None:
    """Medians against the swept size, quartiles shaded, both axes logarithmic."""
    sizes = sweep.sizes()
    for name in sweep.outcomes[0].results[kind]:
        timings = [outcome.results[kind][name].timing for outcome in sweep.outcomes]
        panel.plot(sizes, [1e3 * t.median for t in timings], marker="o", ms=3, label=name)
        panel.fill_between(
            sizes, [1e3 * t.lower for t in timings], [1e3 * t.upper for t in timings], alpha=0.2
        )
    panel.set(xscale="log", yscale="log", xlabel=sweep.field, ylabel="ms")
    panel.set_title(f"sweep over {sweep.field}: {KINDS[kind]}", fontsize=10)
    panel.legend(fontsize=8)
