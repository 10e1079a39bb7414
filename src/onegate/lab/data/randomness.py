"""What is drawn from a seed, the same on every platform and with every version of numpy."""

from __future__ import annotations

from collections.abc import Sequence

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


def batches(
    lengths: Sequence[int] | NDArray[np.integer],
    batch_size: int,
    seed: int,
    epoch: int,
    bucket: int = 50,
) -> list[NDArray[np.int64]]:
    """Every example once, as index arrays of `batch_size` examples (the rest in one more).

    The examples are shuffled, and within every `bucket` batches sorted by length, so that those
    in a batch need little padding; then the batches are shuffled. `bucket=1` only shuffles. The
    order depends on the seed and the epoch and on nothing else.

    >>> [batch.tolist() for batch in batches([3, 1, 3, 1], batch_size=2, seed=0, epoch=0)]
    [[2, 0], [3, 1]]
    """
    if batch_size < 1 or bucket < 1:
        raise ValueError(f"batch_size is {batch_size}, bucket is {bucket}: both must be at least 1")
    lengths = np.asarray(lengths)
    shuffled = order(len(lengths), seed, epoch, 0)
    pool = bucket * batch_size
    result = []
    for start in range(0, len(shuffled), pool):
        chosen = shuffled[start : start + pool]
        chosen = chosen[np.argsort(lengths[chosen], kind="stable")]
        result += [chosen[at : at + batch_size] for at in range(0, len(chosen), batch_size)]
    return [result[i] for i in order(len(result), seed, epoch, 1)]


def stratified_split(
    labels: NDArray[np.integer], held_out: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices to keep and `held_out` indices to set aside, each class in its proportion.

    Both are sorted. The classes' shares differ from exact proportion by at most one example.
    """
    if not 0 <= held_out <= len(labels):
        raise ValueError(f"held_out is {held_out}, expected 0 to {len(labels)}, the examples there")
    # Grouped by class and shuffled within: evenly spaced picks are a fair share of each class.
    grouped = np.lexsort((generator(seed).random(len(labels)), labels))
    picks = (2 * np.arange(held_out) + 1) * len(labels) // (2 * max(held_out, 1))
    held = np.zeros(len(labels), bool)
    held[grouped[picks]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)
