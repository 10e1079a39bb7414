"""The figures that the engine is meant to reach, and whether a run reached them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from onegate.lab.bench.contestants import (
    FLAX,
    FUSED,
    REFERENCE,
    TORCH_GRU,
    TORCH_LSTM,
    TORCHRECURRENT,
    ours_name,
)
from onegate.lab.bench.outcomes import KINDS, LINEAR_IN, Kind, Sweep, Timings
from onegate.lab.bench.shapes import PAPER, SWEEPS
from onegate.units import UNITS

_MGU: Final = ours_name("mgu", FUSED)
_SHARE: Final = "share of the sgemm peak"

# Training step, MGU: at most so many times another's time; at least such a share of the peak.
BY_SHAPE: Final = {
    "adding": {TORCH_GRU: 0.28, TORCH_LSTM: 0.35, _SHARE: 0.50},
    "imdb": {TORCH_GRU: 0.12, TORCH_LSTM: 0.40, FLAX: 0.40, _SHARE: 0.45},
    "mnist_rows": {TORCH_GRU: 0.30, TORCH_LSTM: 0.40, FLAX: 0.45, _SHARE: 0.55},
    "mnist_pixels": {TORCH_GRU: 0.20, TORCH_LSTM: 0.30, FLAX: 0.33, _SHARE: 0.50},
    "ptb": {TORCH_GRU: 0.42, TORCH_LSTM: 0.42, FLAX: 0.65, _SHARE: 0.65},
}
# Training step at every paper shape: contestant, another one, ratio at most.
AT_EVERY_SHAPE: Final = (
    (_MGU, ours_name("gru", FUSED), 0.75),
    (ours_name("gru_reset_after", FUSED), TORCH_GRU, 0.5),
    (ours_name("lstm", FUSED), TORCH_LSTM, 1.0),
    (ours_name("mgu", REFERENCE), TORCHRECURRENT, 1.0),
)
FUSED_TO_REFERENCE: Final = 0.4  # every unit, training step, the worst of the paper's shapes
NEVER_SLOWER: Final = 1.0  # MGU to torch.nn.GRU at every shape, training and inference
HELD: Final = 0.5  # memory between forward and backward, MGU to torch.nn.GRU
LINEAR: Final = 0.99  # r2 of the straight line through a sweep's times

# The units without which some of these cannot be said.
UNITS_NEEDED: Final = ("mgu", "gru", "gru_reset_after", "lstm")


@dataclass(frozen=True)
class Verdict:
    """One figure: what was to be reached and what was measured; value None: not measured."""

    figure: str
    limit: float
    at_least: bool
    value: float | None
    reason: str = ""

    @property
    def met(self) -> bool | None:
        """None where nothing was measured."""
        if self.value is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    @property
    def state(self) -> str:
        return {None: "not measured", True: "met", False: "not met"}[self.met]


def verdicts(outcomes: Sequence[Timings], sweeps: Sequence[Sweep]) -> list[Verdict]:
    """Every figure, in the order of the tables above."""
    by_name = {outcome.shape.name: outcome for outcome in outcomes if outcome.shape.name in PAPER}
    found: list[Verdict] = []
    for shape in PAPER:
        found += _of_shape(shape, by_name.get(shape))
    found += _engines(list(by_name.values()))
    swept = {sweep.field: sweep for sweep in sweeps}
    for field in SWEEPS:
        found += _of_sweep(field, swept.get(field))
    return found


def _of_shape(shape: str, outcome: Timings | None) -> Iterator[Verdict]:
    for other, limit in BY_SHAPE[shape].items():
        if other == _SHARE:
            result = None if outcome is None else outcome.results["train"].get(_MGU)
            value = None if result is None else result.share
            reason = _reason(outcome, _MGU) if value is None else ""
            yield Verdict(f"{shape}: {_MGU}, {_SHARE}", limit, True, value, reason)
        else:
            yield _ratio(shape, outcome, "train", _MGU, other, limit)
    for contestant, other, limit in AT_EVERY_SHAPE:
        if not (other == TORCHRECURRENT and PAPER[shape].bidirectional):
            yield _ratio(shape, outcome, "train", contestant, other, limit)
    yield _ratio(shape, outcome, "infer", _MGU, TORCH_GRU, NEVER_SLOWER)
    held = None if outcome is None else outcome.held_ratio(_MGU, TORCH_GRU)
    reason = _reason(outcome, _MGU) if held is None else ""
    yield Verdict(f"{shape}: memory held, {_MGU} / {TORCH_GRU}", HELD, False, held, reason)


def _ratio(
    shape: str, outcome: Timings | None, kind: Kind, contestant: str, other: str, limit: float
) -> Verdict:
    value = None if outcome is None else outcome.ratio(kind, contestant, other)
    reason = _reason(outcome, contestant, other) if value is None else ""
    return Verdict(f"{shape}: {KINDS[kind]}, {contestant} / {other}", limit, False, value, reason)


def _reason(outcome: Timings | None, *contestants: str) -> str:
    """Why there is no figure."""
    if outcome is None:
        return "the shape was not run"
    reasons = [
        f"{name}: {outcome.skipped[name]}" for name in contestants if name in outcome.skipped
    ]
    return "; ".join(reasons) or "not asked for"


def _engines(outcomes: Sequence[Timings]) -> Iterator[Verdict]:
    """Fused to reference for every unit that was run on both, at its worst shape."""
    for unit in UNITS:
        fused, reference = ours_name(unit, FUSED), ours_name(unit, REFERENCE)
        ratios = [
            (ratio, outcome.shape.name)
            for outcome in outcomes
            if (ratio := outcome.ratio("train", fused, reference)) is not None
        ]
        if ratios:
            value, shape = max(ratios)
            figure = f"{unit}: training step, fused / reference, at worst ({shape})"
            yield Verdict(figure, FUSED_TO_REFERENCE, False, value)


def _of_sweep(field: str, sweep: Sweep | None) -> Iterator[Verdict]:
    not_run = "" if sweep else f"run with --sweep {field}"
    worst = sweep.worst(_MGU) if sweep else None
    place = f" ({worst.shape}, {KINDS[worst.kind]})" if worst else ""
    yield Verdict(
        f"sweep over {field}: {_MGU} / {TORCH_GRU}, at worst{place}",
        NEVER_SLOWER, False, worst.ratio if worst else None, not_run,
    )  # fmt: skip
    if field in LINEAR_IN:
        for kind in KINDS:
            line = sweep.lines()[kind].get(_MGU) if sweep else None
            yield Verdict(
                f"sweep over {field}: {KINDS[kind]} of {_MGU} is linear, r2",
                LINEAR, True, line.r2 if line else None, not_run,
            )  # fmt: skip
