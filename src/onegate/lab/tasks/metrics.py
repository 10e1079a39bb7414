"""What a task is judged by: how it is computed, which way is better, how it is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

MINUS = "\N{MINUS SIGN}"
PLUS_MINUS = "\N{PLUS-MINUS SIGN}"

# What a model gives: a number or a class for a whole sequence, or the next word at every step.
Objective = Literal["value", "class", "word"]


def _loss(loss: float, hits: float) -> float:  # noqa: ARG001 - one shape for all
    return loss


def _hits(loss: float, hits: float) -> float:  # noqa: ARG001
    return hits


def _perplexity(loss: float, hits: float) -> float:  # noqa: ARG001
    return math.exp(min(loss, 700.0))


@dataclass(frozen=True)
class Metric:
    """What a task is judged by.

    name: as in a run's result, without `test_` or `valid_`. scale, sign: a value v is written as
        `scale * v` followed by the sign. decimals: as the paper prints them.
    objective: what a model that is measured so gives. of: the metric, from the mean loss (squared
        error, or cross entropy in nats) and the share of classes that were hit.
    """

    name: str
    label: str
    decimals: int
    higher_is_better: bool = False
    scale: float = 1.0
    sign: str = ""
    objective: Objective = "value"
    of: Callable[[float, float], float] = _loss

    @property
    def direction(self) -> str:
        """Which way is better, in words."""
        return "Higher is better." if self.higher_is_better else "Lower is better."

    def text(self, value: float, spread: float | None = None) -> str:
        """A value, with its spread over seeds if there is one.

        >>> ACCURACY.text(0.88414, 0.0012)
        '88.41 ± 0.12%'
        """
        decimals = self._decimals_for(value)
        number = f"{value * self.scale:.{decimals}f}"
        if spread is not None:
            number += f" {PLUS_MINUS} {spread * self.scale:.{decimals}f}"
        return number + self.sign

    def difference(self, value: float) -> str:
        """A difference of two values, with its sign; of percentages in points.

        >>> ACCURACY.difference(-0.0034)
        '−0.34'
        """
        number = f"{abs(value * self.scale):.{self.decimals}f}"
        if not float(number):
            return number
        return f"{MINUS if value < 0 else '+'}{number}"

    def is_better(self, difference: float) -> bool:
        """Whether a value that is larger by `difference` is better."""
        return difference > 0 if self.higher_is_better else difference < 0

    def _decimals_for(self, value: float) -> int:
        """Two digits that say something, however small the value."""
        size = abs(value * self.scale)
        needed = 1 - math.floor(math.log10(size)) if size else 0
        return max(self.decimals, needed)


MSE = Metric("mse", "mean squared error", 4)
ACCURACY = Metric(
    "accuracy", "accuracy", 2, higher_is_better=True, scale=100.0, sign="%",
    objective="class", of=_hits,
)  # fmt: skip
PERPLEXITY = Metric("perplexity", "perplexity", 2, objective="word", of=_perplexity)
