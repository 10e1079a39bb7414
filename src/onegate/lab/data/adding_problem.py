"""The adding problem: remember two marked numbers of a sequence, and give their sum."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .randomness import generator, integers

Variant = Literal["paper", "released"]


@dataclass(frozen=True)
class Sequences:
    """N sequences of (number, mask) pairs and what to answer.

    `values` is (N, T, 2) float32 with zeros after each sequence's end, `lengths` (N,) int64,
    `targets` (N,) float32.
    """

    values: NDArray[np.float32]
    lengths: NDArray[np.int64]
    targets: NDArray[np.float32]


@dataclass(frozen=True)
class Adding:
    """Three independent sets; nothing has to be tuned on the test set."""

    train: Sequences
    valid: Sequences
    test: Sequences


def adding(
    seed: int,
    train: int = 10_000,
    test: int = 1_000,
    valid: int = 1_000,
    lengths: tuple[int, int] = (50, 55),
    variant: Variant = "paper",
) -> Adding:
    """The adding problem, generated from a seed; each set has a random stream of its own.

    Numbers are uniform in [0, 1); the target is the sum of the two marked ones, so that always
    answering the mean has a mean squared error of 1/6.

    `paper`: lengths are uniform in `lengths`, both included. The mask follows Hochreiter and
    Schmidhuber (1997, experiment 4): -1 at the first and the last position; +1 at one of the first
    ten positions and at one of the first half of the shortest length; 0 elsewhere. They let the
    first position be marked too and then set its number to zero; here it never is, so that there
    are always two marked numbers, as the paper says. Their numbers are in [-1, 1] and their target
    is scaled; ours follow the paper, which took these from Le et al. (2015).

    `released`: as the authors' released code. Lengths exclude the upper one, to which sequences
    are padded; the mask is 0 or 1, the first marker lies in the first tenth of the sequence, the
    second in its second half. Numbers, mask and target are centred: here by the means over the
    training set's steps, the same for all three sets, and padding stays zero.

    >>> adding(seed=0).train.values.shape
    (10000, 55, 2)
    """
    shortest, longest = lengths
    least = {"paper": 6, "released": 10}
    if variant not in least:
        raise ValueError(f"variant is {variant!r}, expected one of {', '.join(least)}")
    if not least[variant] <= shortest <= longest - (variant == "released"):
        raise ValueError(
            f"lengths are {lengths}, expected (shortest, longest) with shortest at least "
            f"{least[variant]} and longest above it: the {variant} variant needs room for markers"
        )
    make = _paper if variant == "paper" else _released
    sets = [
        _generate(generator(seed, stream), count, lengths, make)
        for stream, count in enumerate((train, valid, test))
    ]
    return Adding(*(sets if variant == "paper" else _centred(sets)))


Maker = Callable[
    [np.random.Generator, int, tuple[int, int]], tuple[NDArray[np.int64], NDArray[np.int64]]
]


def _generate(
    rng: np.random.Generator, count: int, bounds: tuple[int, int], make: Maker
) -> Sequences:
    numbers = rng.random((count, bounds[1])).astype(np.float32)
    lengths, mask = make(rng, count, bounds)
    numbers[np.arange(bounds[1]) >= lengths[:, None]] = 0
    targets = (numbers * (mask == 1)).sum(axis=1, dtype=np.float64)
    values = np.stack([numbers, mask.astype(np.float32)], axis=2)
    return Sequences(values, lengths, targets.astype(np.float32))


def _paper(
    rng: np.random.Generator, count: int, bounds: tuple[int, int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    shortest, longest = bounds
    lengths = integers(rng, shortest, np.full(count, longest + 1))
    first = integers(rng, 1, np.full(count, min(10, shortest // 2)))
    # Uniform over 1 .. shortest // 2 - 1 without `first`: what is not below it moves up by one.
    second = integers(rng, 1, np.full(count, shortest // 2 - 1))
    second += second >= first
    mask = np.zeros((count, longest), np.int64)
    rows = np.arange(count)
    mask[rows, 0] = mask[rows, lengths - 1] = -1
    mask[rows, first] = mask[rows, second] = 1
    return lengths, mask


def _released(
    rng: np.random.Generator, count: int, bounds: tuple[int, int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    shortest, longest = bounds
    lengths = integers(rng, shortest, np.full(count, longest))
    mask = np.zeros((count, longest), np.int64)
    rows = np.arange(count)
    mask[rows, integers(rng, 0, lengths // 10)] = 1
    mask[rows, integers(rng, lengths // 2, lengths)] = 1
    return lengths, mask


def _centred(sets: list[Sequences]) -> list[Sequences]:
    train = sets[0]
    steps = train.values[_is_step(train)]
    # fsum is exact, so that the result is the same whatever the order a machine sums in.
    means = [math.fsum(column) / len(steps) for column in steps.T]
    target = math.fsum(train.targets) / len(train.targets)
    return [
        Sequences(
            np.where(_is_step(s)[..., None], s.values - np.array(means), 0).astype(np.float32),
            s.lengths,
            (s.targets - target).astype(np.float32),
        )
        for s in sets
    ]


def _is_step(sequences: Sequences) -> NDArray[np.bool_]:
    return np.arange(sequences.values.shape[1]) < sequences.lengths[:, None]
