"""Sequences of different lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

End = Literal["start", "end"]


@dataclass(frozen=True)
class Ragged:
    """N sequences one after the other.

    `values` is (total length,) int32; `offsets` is (N + 1,) int64: sequence i is
    `values[offsets[i]:offsets[i + 1]]`.

    >>> words = Ragged.of([[5, 6, 7], [8]])
    >>> words.lengths
    array([3, 1])
    >>> words.padded(2, keep="end")[0]
    array([[6, 7],
           [8, 0]], dtype=int32)
    """

    values: NDArray[np.int32]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> Ragged:
        """From a list of lists."""
        flat = [value for sequence in sequences for value in sequence]
        return cls(np.array(flat, np.int32), offsets_of([len(s) for s in sequences]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> NDArray[np.int32]:
        start, end = self.offsets[range(len(self))[index] :][:2]
        return self.values[start:end]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(N,) int64."""
        return np.diff(self.offsets)

    def take(self, indices: NDArray[np.int64]) -> Ragged:
        """The chosen sequences, in the given order."""
        starts = self.offsets[indices]
        lengths = self.offsets[indices + 1] - starts
        return Ragged(self.values[concatenated_ranges(starts, lengths)], offsets_of(lengths))

    def padded(
        self, length: int | None = None, *, keep: End = "start", pad: End = "end", fill: int = 0
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """An (N, length) array and the (N,) lengths of what it holds.

        Longer sequences keep their start or their end; shorter ones get `fill` at their start or
        their end. Without `length` the longest sequence gives it.
        """
        lengths = self.lengths
        if length is None:
            length = int(lengths.max(initial=0))
        kept = np.minimum(lengths, length)
        starts = self.offsets[:-1] + (lengths - kept if keep == "end" else 0)
        column = np.arange(length)
        filled = column < kept[:, None] if pad == "end" else column >= length - kept[:, None]
        array = np.full((len(self), length), fill, np.int32)
        array[filled] = self.values[concatenated_ranges(starts, kept)]
        return array, kept


def offsets_of(lengths: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """(N + 1,) offsets of sequences with these lengths."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def concatenated_ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """start, start + 1, ... for each start, `length` numbers each, in one array."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    shifts: NDArray[np.int64] = np.repeat(starts - (ends - lengths), lengths)
    return np.arange(total) + shifts
