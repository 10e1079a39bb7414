"""Word frequencies and word vectors of a text, against counting by hand and a dense computation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from onegate.lab.train import text_statistics
from onegate.lab.train.text_statistics import log_frequencies, word_vectors


def text(words: int, length: int, seed: int = 0) -> NDArray[np.int32]:
    """Words that like to stand beside those of the same remainder by 3."""
    rng = np.random.default_rng(seed)
    kinds = np.repeat(rng.integers(3, size=length // 5 + 1), 5)[:length]
    return (kinds + 3 * rng.integers(words // 3, size=length)).astype(np.int32)


def information(tokens: NDArray[np.int32], words: int) -> NDArray[np.float64]:
    """Positive pointwise mutual information, pair by pair."""
    counts = np.zeros((words, words))
    for i, one in enumerate(tokens):
        for distance in (1, 2, 3, 4):
            if i + distance < len(tokens):
                other = tokens[i + distance]
                counts[one, other] += 1 / distance
                counts[other, one] += 1 / distance
    found = np.zeros((words, words))
    smoothed = counts.sum(0) ** 0.75
    for i in range(words):
        for j in range(words):
            if counts[i, j]:
                here = counts[i, j] / counts[i].sum()
                found[i, j] = max(0.0, math.log(here / (smoothed[j] / smoothed.sum())))
    return found


def test_frequencies_are_shares_of_the_text() -> None:
    found = log_frequencies(np.array([2, 0, 2, 2], np.int32), 4).exp()
    # Words 1 and 3, which do not occur, count as seen once: 1 + 1 + 3 + 1 in all.
    torch.testing.assert_close(found, torch.tensor([1, 1, 3, 1]) / 6)


@pytest.mark.parametrize("width", [1, 7, 30])
def test_vectors_are_those_of_the_largest_singular_values(width: int) -> None:
    """Of as many words as the search has directions it is exact; products are free of rotation."""
    words = 30
    tokens = text(words, 400)
    left, values, _ = np.linalg.svd(information(tokens, words))
    exact = left[:, :width] * np.sqrt(values[:width])
    exact /= np.sqrt((exact**2).mean())
    found = word_vectors(tokens, words, width).double()
    assert found.shape == (words, width)
    torch.testing.assert_close(
        found @ found.T, torch.from_numpy(exact @ exact.T), rtol=0, atol=1e-4
    )


def test_more_words_than_directions_searched() -> None:
    words, width = 150, 4
    tokens = text(words, 3000)
    left, values, _ = np.linalg.svd(information(tokens, words))
    exact = left[:, :width] * np.sqrt(values[:width])
    exact /= np.sqrt((exact**2).mean())
    found = word_vectors(tokens, words, width).double()
    difference = found @ found.T - torch.from_numpy(exact @ exact.T)
    assert float(difference.norm()) < 0.01 * np.linalg.norm(exact @ exact.T)


def test_words_in_the_same_company_are_alike() -> None:
    vectors = torch.nn.functional.normalize(word_vectors(text(30, 5000), 30, 5))
    likeness = vectors @ vectors.T
    same = (torch.arange(30)[:, None] - torch.arange(30)) % 3 == 0
    assert likeness[same].mean() > 0.5
    assert likeness[~same].mean() < 0.2


def test_no_place_of_a_vector_is_worth_more_than_another() -> None:
    spread = word_vectors(text(150, 3000), 150, 20).std(0)
    assert spread.max() < 3 * spread.min()


def test_wider_than_there_are_words_and_a_text_of_one_word() -> None:
    assert word_vectors(text(6, 50), 6, 11).isfinite().all()
    alone = word_vectors(np.zeros(1, np.int32), 3, 2)
    torch.testing.assert_close(alone, torch.zeros(3, 2))


def test_other_random_numbers_are_left_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first = word_vectors(text(12, 60), 12, 3)
    assert torch.equal(torch.rand(1), expected)
    text_statistics._word_vectors.cache_clear()
    assert torch.equal(word_vectors(text(12, 60), 12, 3), first)


def test_vectors_asked_for_again_are_equal_and_the_asker_s_own() -> None:
    tokens = text(30, 400)
    first = word_vectors(tokens, 30, 5)
    kept = first.clone()
    first.zero_()
    torch.testing.assert_close(word_vectors(tokens.copy(), 30, 5), kept, rtol=0, atol=0)
    assert not torch.equal(word_vectors(tokens[:-1], 30, 5), kept)
