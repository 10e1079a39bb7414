from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onegate.lab.data.ragged import End, Ragged, concatenated_ranges

sequences = st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=7), max_size=6)
ends = st.sampled_from(["start", "end"])


@given(sequences)
def test_holds_the_sequences(lists: list[list[int]]) -> None:
    ragged = Ragged.of(lists)
    assert len(ragged) == len(lists)
    assert [ragged[i].tolist() for i in range(len(lists))] == lists
    assert ragged.lengths.tolist() == list(map(len, lists))
    assert ragged.values.dtype == np.int32
    assert ragged.offsets.dtype == np.int64


def test_index_like_a_list() -> None:
    ragged = Ragged.of([[1, 2], [], [3]])
    assert ragged[-1].tolist() == [3]
    assert ragged[-3].tolist() == [1, 2]
    for outside in (3, -4):
        with pytest.raises(IndexError):
            ragged[outside]


@given(sequences, st.data())
def test_take(lists: list[list[int]], data: st.DataObject) -> None:
    count = len(lists)
    chosen = data.draw(st.lists(st.integers(0, count - 1), max_size=9) if count else st.just([]))
    taken = Ragged.of(lists).take(np.array(chosen, np.int64))
    assert [taken[i].tolist() for i in range(len(taken))] == [lists[i] for i in chosen]


@given(sequences, st.none() | st.integers(0, 9), ends, ends, st.integers(-1, 1))
def test_padded(lists: list[list[int]], length: int | None, keep: End, pad: End, fill: int) -> None:
    array, kept = Ragged.of(lists).padded(length, keep=keep, pad=pad, fill=fill)
    wide = max(map(len, lists), default=0) if length is None else length
    expected = []
    for sequence in lists:
        cut = sequence[:wide] if keep == "start" else sequence[max(0, len(sequence) - wide) :]
        gap = [fill] * (wide - len(cut))
        expected.append(cut + gap if pad == "end" else gap + cut)
    assert array.tolist() == expected
    assert array.shape == (len(lists), wide)
    assert array.dtype == np.int32
    assert kept.tolist() == [min(len(sequence), wide) for sequence in lists]


def test_concatenated_ranges() -> None:
    ranges = concatenated_ranges(np.array([5, 0, 9, 2]), np.array([2, 0, 1, 3]))
    assert ranges.tolist() == [5, 6, 9, 2, 3, 4]
