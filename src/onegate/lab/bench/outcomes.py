"""Contestants on a shape, and along a sweep: what was measured, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
import torch

from onegate.lab.bench.contestants import FLAX, TORCH_GRU, Contestant, Entrant
from onegate.lab.bench.jax_contestant import thread_note
from onegate.lab.bench.measure import Call, Timing, race
from onegate.lab.bench.shapes import (
    PEAK_OPERATIONS,
    LayerShape,
    Unavailable,
    peak_product,
    sweep,
    swept_field,
    work,
)

Kind = Literal["train", "infer"]
KINDS: Final[Mapping[Kind, str]] = {"train": "training step", "infer": "inference"}

Race = Callable[[Mapping[str, Call], float], dict[str, Timing]]

_PEAK: Final = "sgemm"


@dataclass(frozen=True)
class Result:
    """One contestant's time.

    operations: of its matrix products. share: of the machine's peak, which the product of two
    matrices of 1024 x 1024 reached in the same rounds.
    """

    timing: Timing
    operations: int
    share: float


@dataclass(frozen=True)
class Timings:
    """Everything measured on one shape; results and held bytes by contestant."""

    shape: LayerShape
    results: Mapping[Kind, Mapping[str, Result]]
    peaks: Mapping[Kind, float]  # operations per second
    held: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)  # contestant: reason
    notes: Sequence[str] = ()

    def seconds(self, kind: Kind, contestant: str) -> float | None:
        """The median, or None where it was not measured."""
        result = self.results.get(kind, {}).get(contestant)
        return None if result is None else result.timing.median

    def ratio(self, kind: Kind, contestant: str, other: str) -> float | None:
        """How many times as long as the other one's a contestant's median is."""
        return _quotient(self.seconds(kind, contestant), self.seconds(kind, other))

    def held_ratio(self, contestant: str, other: str) -> float | None:
        """How many times as much memory it holds."""
        return _quotient(self.held.get(contestant), self.held.get(other))


def run_shape(
    shape: LayerShape,
    contestants: Iterable[Contestant],
    seconds: float,
    *,
    memory: bool = False,
    timing: Race = race,
) -> Timings:
    """Times all contestants on `shape`: `seconds` for each, half in training, half in inference."""
    entries, skipped = _enter(shape, contestants)
    results: dict[Kind, dict[str, Result]] = {}
    peaks: dict[Kind, float] = {}
    for kind in KINDS:
        calls: dict[str, Call] = {
            each.name: entry.train if kind == "train" else entry.infer
            for each, entry in entries.items()
        }
        times = timing({**calls, _PEAK: peak_product()}, seconds / len(KINDS))
        peaks[kind] = PEAK_OPERATIONS / times[_PEAK].median
        results[kind] = {
            each.name: _result(each, shape, kind, times[each.name], peaks[kind]) for each in entries
        }
    held = {each.name: entry.held_bytes() for each, entry in entries.items()} if memory else {}
    took_part = {each.name for each in entries}
    notes = [thread_note(torch.get_num_threads())] if FLAX in took_part else []
    return Timings(shape, results, peaks, held, skipped, notes)


def _enter(
    shape: LayerShape, contestants: Iterable[Contestant]
) -> tuple[dict[Contestant, Entrant], dict[str, str]]:
    """Those that can run, on the same input, and for the others the reason."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape.steps, shape.batch, shape.inputs, generator=generator)
    grad_out = torch.randn(shape.steps, shape.batch, shape.outputs, generator=generator)
    entries: dict[Contestant, Entrant] = {}
    skipped: dict[str, str] = {}
    for contestant in contestants:
        try:
            entries[contestant] = contestant.enter(shape, x, grad_out)
        except Unavailable as reason:
            skipped[contestant.name] = str(reason)
        except ImportError as error:
            skipped[contestant.name] = f"its library does not load: {error}"
    return entries, skipped


def _result(
    contestant: Contestant, shape: LayerShape, kind: Kind, timing: Timing, peak: float
) -> Result:
    counted = work(contestant.unit, shape)
    operations = counted.training if kind == "train" else counted.forward
    return Result(timing, operations, operations / timing.median / peak)


@dataclass(frozen=True)
class FittedLine:
    """Seconds = fixed + each * size, by least squares; r2 is the share of variance explained."""

    fixed: float
    each: float
    r2: float


def fit_line(sizes: Sequence[float], seconds: Sequence[float]) -> FittedLine:
    """The straight line through the measured times.

    >>> fit_line([1, 2, 3], [3.0, 5.0, 7.0])  # about fixed 1, each 2, r2 1
    """
    each, fixed = np.polyfit(sizes, seconds, 1)
    left = np.asarray(seconds) - (fixed + each * np.asarray(sizes))
    return FittedLine(float(fixed), float(each), float(1 - left.var() / np.var(seconds)))


@dataclass(frozen=True)
class Worst:
    """The largest ratio to torch.nn.GRU, and where it was seen."""

    ratio: float
    kind: Kind
    shape: str


LINEAR_IN: Final = ("steps", "batch")


@dataclass(frozen=True)
class Sweep:
    """Outcomes in the order of the swept size."""

    field: str
    outcomes: Sequence[Timings]

    def sizes(self) -> list[int]:
        return [int(getattr(outcome.shape, swept_field(self.field))) for outcome in self.outcomes]

    def lines(self) -> dict[Kind, dict[str, FittedLine]]:
        """By kind and contestant, where time is meant to be linear."""
        if self.field not in LINEAR_IN:
            return {}
        return {
            kind: {name: self._line(kind, name) for name in self.outcomes[0].results[kind]}
            for kind in KINDS
        }

    def _line(self, kind: Kind, contestant: str) -> FittedLine:
        results = [outcome.results[kind][contestant] for outcome in self.outcomes]
        return fit_line(self.sizes(), [result.timing.median for result in results])

    def worst(self, contestant: str) -> Worst | None:
        """Where its time was the largest multiple of torch.nn.GRU's."""
        ratios = [
            Worst(ratio, kind, outcome.shape.name)
            for outcome in self.outcomes
            for kind in KINDS
            if (ratio := outcome.ratio(kind, contestant, TORCH_GRU)) is not None
        ]
        return max(ratios, key=lambda worst: worst.ratio, default=None)


def run_sweep(
    swept: str,
    base: LayerShape,
    contestants: Sequence[Contestant],
    seconds: float,
    *,
    say: Callable[[str], None] = lambda _: None,
    timing: Race = race,
) -> Sweep:
    """All contestants at every value of the field `swept`."""
    outcomes = []
    for shape in sweep(swept, base):
        say(f"{shape.name}: {shape.describe()}")
        outcomes.append(run_shape(shape, contestants, seconds, timing=timing))
    return Sweep(swept, outcomes)


def _quotient(a: float | None, b: float | None) -> float | None:
    return None if a is None or not b else a / b
