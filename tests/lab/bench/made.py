"""Outcomes with times that were made up, for what is computed from them."""

from __future__ import annotations

from collections.abc import Mapping

from onegate.lab.bench.measure import Timing
from onegate.lab.bench.outcomes import Kind, Result, Timings
from onegate.lab.bench.shapes import LayerShape

PEAK = 1e11


def timing(seconds: float) -> Timing:
    return Timing(seconds, 0.9 * seconds, 1.2 * seconds, 0.8 * seconds, rounds=7, calls=1)


def outcome(
    shape: LayerShape,
    train: Mapping[str, float],
    infer: Mapping[str, float] | None = None,
    held: Mapping[str, int] | None = None,
    skipped: Mapping[str, str] | None = None,
) -> Timings:
    """Every contestant's share of the peak is 0.6."""
    times: dict[Kind, Mapping[str, float]] = {
        "train": train,
        "infer": train if infer is None else infer,
    }
    results = {
        kind: {name: Result(timing(t), int(0.6 * PEAK * t), 0.6) for name, t in each.items()}
        for kind, each in times.items()
    }
    return Timings(shape, results, {"train": PEAK, "infer": PEAK}, held or {}, skipped or {})
