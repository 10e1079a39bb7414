from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onegate.lab.data import batches, stratified_split


@given(
    st.lists(st.integers(1, 500), max_size=80),
    st.integers(1, 20),
    st.integers(0, 2**40),
    st.integers(0, 100),
    st.integers(1, 5),
)
def test_every_example_once(
    lengths: list[int], batch_size: int, seed: int, epoch: int, bucket: int
) -> None:
    result = batches(lengths, batch_size, seed, epoch, bucket)
    seen = [index for batch in result for index in batch.tolist()]
    assert sorted(seen) == list(range(len(lengths)))
    sizes = sorted(len(batch) for batch in result)
    assert sizes[1:] == [batch_size] * (len(sizes) - 1)
    assert len(result) == -(-len(lengths) // batch_size)


def as_lists(result: list[np.ndarray]) -> list[list[int]]:
    return [batch.tolist() for batch in result]


def test_order_depends_on_seed_and_epoch_alone() -> None:
    lengths = np.arange(1000) % 37 + 1
    first = as_lists(batches(lengths, 16, seed=3, epoch=5))
    assert as_lists(batches(lengths, 16, seed=3, epoch=5)) == first
    assert as_lists(batches(lengths, 16, seed=3, epoch=6)) != first
    assert as_lists(batches(lengths, 16, seed=4, epoch=5)) != first
    # Swapping the two numbers is another stream, too.
    assert as_lists(batches(lengths, 16, seed=5, epoch=3)) != first


def test_order_is_the_same_everywhere() -> None:
    result = as_lists(batches([4, 1, 3, 2, 5, 9, 8, 7], batch_size=3, seed=11, epoch=2, bucket=2))
    assert result == [[0, 4], [7, 6, 5], [1, 3, 2]]


def padding(result: list[np.ndarray], lengths: np.ndarray) -> float:
    steps = sum(lengths[batch].max() * len(batch) for batch in result)
    return float(1 - lengths.sum() / steps)


def test_buckets_save_padding_and_keep_some_disorder() -> None:
    lengths = np.random.default_rng(0).geometric(1 / 230, 5000)
    plain = batches(lengths, 32, seed=0, epoch=0, bucket=1)
    sorted_by_length = batches(lengths, 32, seed=0, epoch=0)
    assert padding(plain, lengths) > 0.6
    assert padding(sorted_by_length, lengths) < 0.15
    # Batches of short and long sequences alternate.
    means = np.array([lengths[batch].mean() for batch in sorted_by_length])
    assert abs(np.corrcoef(means[1:], means[:-1])[0, 1]) < 0.25


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"batch_size": 1, "bucket": 0}])
def test_sizes_below_one(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        batches([1, 2], seed=0, epoch=0, **wrong)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(0, 99), st.floats(0, 1))
def test_stratified_split(labels: list[int], seed: int, share: float) -> None:
    held_out = int(share * len(labels))
    kept, held = stratified_split(np.array(labels), held_out, seed)
    assert len(held) == held_out
    assert sorted([*kept, *held]) == list(range(len(labels)))
    assert kept.tolist() == sorted(kept)
    assert held.tolist() == sorted(held)
    for label in set(labels):
        exact = labels.count(label) * held_out / len(labels)
        assert abs([labels[i] for i in held].count(label) - exact) <= 1


def test_stratified_split_is_random_and_repeatable() -> None:
    labels = np.repeat([1, 0], 500)
    first = stratified_split(labels, 200, seed=0)[1]
    assert first.tolist() == stratified_split(labels, 200, seed=0)[1].tolist()
    assert first.tolist() != stratified_split(labels, 200, seed=1)[1].tolist()
    assert np.bincount(labels[first]).tolist() == [100, 100]
    # Not a regular comb: distances between picks vary.
    assert len(set(np.diff(first).tolist())) > 5


def test_stratified_split_of_too_many() -> None:
    with pytest.raises(ValueError, match="held_out is 5, expected 0 to 4"):
        stratified_split(np.zeros(4, np.int64), 5, seed=0)
