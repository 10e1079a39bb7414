"""The tasks as a reader sees them: titles, what is measured, and how numbers are written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

MINUS = "\N{MINUS SIGN}"
PLUS_MINUS = "\N{PLUS-MINUS SIGN}"


@dataclass(frozen=True)
class Metric:
    """What a task is judged by.

    name: as in a run's result, without `test_` or `valid_`. scale, sign: a value v is written as
        `scale * v` followed by the sign. decimals: as the paper prints them.
    """

    name: str
    label: str
    decimals: int
    higher_is_better: bool = False
    scale: float = 1.0
    sign: str = ""

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
ACCURACY = Metric("accuracy", "accuracy", 2, higher_is_better=True, scale=100.0, sign="%")
PERPLEXITY = Metric("perplexity", "perplexity", 2)


@dataclass(frozen=True)
class Subject:
    """A task: its title, what it asks for, its place in the paper (None if it is not there)."""

    task: str
    title: str
    about: str
    metric: Metric
    place: str | None


_SUBJECTS = (
    Subject(
        "adding", "The adding problem",
        "Sequences of 50 to 55 random numbers, two of them marked: give their sum. The sequence "
        "is read in both directions.",
        MSE, "Section 4.1, Figure 2",
    ),
    Subject(
        "imdb", "IMDB movie reviews",
        "Is a review of a film positive or negative? The paper reads one number a step, up to 128 "
        "steps; the recipe tuned reads the words themselves.",
        ACCURACY, "Section 4.2, Figure 3",
    ),
    Subject(
        "mnist_rows", "MNIST by rows",
        "An image of a handwritten digit is read as 28 rows of 28 pixels, top to bottom.",
        ACCURACY, "Section 4.3, Figure 4",
    ),
    Subject(
        "mnist_pixels", "MNIST by pixels",
        "The same images read pixel by pixel: 784 steps.",
        ACCURACY, "Section 4.3",
    ),
    Subject(
        "mnist_permuted", "MNIST by permuted pixels",
        "The same 784 pixels in one fixed random order. The paper does not have this task.",
        ACCURACY, None,
    ),
    Subject(
        "ptb", "Penn TreeBank",
        "Predict each word of newspaper text from the words before it; two layers, 35 steps at a "
        "time.",
        PERPLEXITY, "Section 4.4, Figure 5, Table 2",
    ),
)  # fmt: skip

SUBJECTS: Mapping[str, Subject] = MappingProxyType({s.task: s for s in _SUBJECTS})


def seconds(value: float) -> str:
    """A duration for reading.

    >>> seconds(75.0)
    '1 min 15 s'
    """
    if value < 100:
        return f"{value:.3g} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
