"""Random numbers that are the same on every platform and with every version of numpy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def generator(*entropy: int) -> np.random.Generator:
    """A generator of its own for every sequence of numbers >= 0.

    Only its `random` is used: other methods may change their stream between numpy versions.
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))


def integers(
    rng: np.random.Generator, low: int | NDArray[np.int64], high: NDArray[np.int64]
) -> NDArray[np.int64]:
    """One integer in low <= i < high for every element of `high`."""
    return (low + np.floor(rng.random(high.shape) * (high - low))).astype(np.int64)


def order(count: int, *entropy: int) -> NDArray[np.int64]:
    """The numbers 0 to count - 1 in random order."""
    return np.argsort(generator(*entropy).random(count), kind="stable")
