from __future__ import annotations

import hashlib

import numpy as np
import pytest

from onegate.lab.data import Sequences, adding


def marked_sums(sequences: Sequences) -> list[float]:
    """The targets by a plain loop, from the values alone."""
    return [
        float(sum(number for number, mask in sequence if mask == 1))
        for sequence in sequences.values.astype(np.float64).tolist()
    ]


def test_sizes_and_types() -> None:
    problem = adding(seed=1)
    for part, count in ((problem.train, 10_000), (problem.valid, 1_000), (problem.test, 1_000)):
        assert part.values.shape == (count, 55, 2)
        assert part.values.dtype == np.float32
        assert part.lengths.shape == (count,)
        assert part.lengths.dtype == np.int64
        assert part.targets.shape == (count,)
        assert part.targets.dtype == np.float32


def test_paper_variant_follows_hochreiter_and_schmidhuber() -> None:
    train = adding(seed=1).train
    assert np.bincount(train.lengths).nonzero()[0].tolist() == [50, 51, 52, 53, 54, 55]
    firsts, seconds = set(), set()
    for values, length in zip(train.values, train.lengths, strict=True):
        numbers, mask = values[:length].T
        assert mask[0] == mask[-1] == -1
        assert sorted(mask[1:-1].tolist()) == [0] * (length - 4) + [1, 1]
        assert not values[length:].any()
        assert numbers.min() >= 0
        assert numbers.max() < 1
        first, second = np.flatnonzero(mask == 1)
        assert first < 10
        assert second < 25
        firsts.add(int(first))
        seconds.add(int(second))
    assert firsts == set(range(1, 10))
    assert seconds == set(range(2, 25))
    assert train.targets == pytest.approx(marked_sums(train), abs=1e-6)


def test_markers_are_drawn_evenly() -> None:
    train = adding(seed=5, train=40_000).train
    mask = train.values[..., 1] == 1
    # Position p is marked if the first marker is there (1 in 9, for p < 10), or the second.
    expected = np.zeros(55)
    expected[1:25] += 1 / 23
    expected[1:10] += 1 / 9 - 1 / 23 / 9
    assert np.abs(mask.mean(axis=0) - expected).max() < 0.007


def test_a_constant_answer_has_an_error_of_one_sixth() -> None:
    targets = adding(seed=2).train.targets
    assert np.mean((targets - 1) ** 2) == pytest.approx(1 / 6, abs=0.005)


def test_released_variant() -> None:
    problem = adding(seed=1, variant="released")
    train = problem.train
    assert train.values.shape == (10_000, 55, 2)
    assert np.bincount(train.lengths).nonzero()[0].tolist() == [50, 51, 52, 53, 54]
    steps = np.arange(55) < train.lengths[:, None]
    assert train.values[steps].mean(axis=0, dtype=np.float64) == pytest.approx([0, 0], abs=1e-7)
    assert train.targets.mean(dtype=np.float64) == pytest.approx(0, abs=1e-6)
    assert not train.values[~steps].any()
    # The same shift for every set: the mask has two values, a distance of one apart.
    for part in (problem.train, problem.valid, problem.test):
        mask = part.values[..., 1][np.arange(55) < part.lengths[:, None]]
        low, high = np.unique(mask)
        assert high - low == pytest.approx(1)
        assert low == np.unique(train.values[..., 1][steps])[0]
        for values, length in zip(part.values, part.lengths, strict=True):
            first, second = np.flatnonzero(values[:length, 1] > 0.5)
            assert first < length // 10
            assert length // 2 <= second < length


def test_released_targets_are_sums_up_to_one_shift() -> None:
    problem = adding(seed=3, variant="released")
    for part in (problem.train, problem.test):
        shifted = [
            number.sum() - target
            for values, target in zip(part.values.astype(float), part.targets, strict=True)
            for number in [values[values[:, 1] > 0.5, 0]]
        ]
        assert np.ptp(shifted) < 1e-6


@pytest.mark.parametrize("lengths", [(6, 6), (20, 20), (100, 110), (1000, 1100)])
def test_lengths_are_an_option(lengths: tuple[int, int]) -> None:
    part = adding(seed=0, train=50, test=1, valid=1, lengths=lengths).train
    assert part.values.shape == (50, lengths[1], 2)
    assert part.lengths.min() >= lengths[0]
    assert part.lengths.max() <= lengths[1]
    assert ((part.values[..., 1] == 1).sum(axis=1) == 2).all()
    assert part.targets == pytest.approx(marked_sums(part), abs=1e-6)


def test_long_sequences_need_a_long_memory() -> None:
    part = adding(seed=0, train=200, lengths=(1000, 1100)).train
    positions = np.argmax(part.values[..., 1] == 1, axis=1)
    assert positions.max() < 500
    released = adding(seed=0, train=200, lengths=(1000, 1100), variant="released").train
    first, second = np.nonzero(released.values[..., 1] > 0.5)[1].reshape(-1, 2).T
    assert (second - first).min() > 390


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lengths": (5, 10)}, r"lengths are \(5, 10\).*at least 6"),
        ({"lengths": (50, 49)}, r"lengths are \(50, 49\)"),
        ({"lengths": (50, 50), "variant": "released"}, "longest above it"),
        ({"lengths": (9, 20), "variant": "released"}, "at least 10"),
        ({"variant": "other"}, "variant is 'other', expected one of paper, released"),
    ],
)
def test_impossible_arguments(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        adding(seed=0, **arguments)  # type: ignore[arg-type]


def test_sets_are_independent_of_each_others_size() -> None:
    small, large = adding(seed=4, train=10, valid=5), adding(seed=4)
    assert np.array_equal(small.test.values, large.test.values)
    assert np.array_equal(small.train.lengths.shape, (10,))
    assert not np.array_equal(large.valid.values, large.test.values)
    assert not np.array_equal(large.test.values, adding(seed=5).test.values)


@pytest.mark.parametrize(
    ("variant", "digest"),
    [("paper", "b75e6c031e2aeb4c"), ("released", "b23232e6a351cd8d")],
)
def test_the_seed_gives_the_same_bits_everywhere(variant: str, digest: str) -> None:
    part = adding(seed=7, train=100, variant=variant).train  # type: ignore[arg-type]
    content = b"".join(
        array.astype(array.dtype.newbyteorder("<")).tobytes()
        for array in (part.values, part.lengths, part.targets)
    )
    assert hashlib.sha256(content).hexdigest()[:16] == digest
