"""Data sets small enough to train on in a test, in the shape of the real ones."""

from __future__ import annotations

import numpy as np
import pytest

from onegate.lab import data


def digits(count: int, seed: int) -> data.Digits:
    """Images whose class is the row that is lit."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(10, size=count).astype(np.uint8)
    images = rng.integers(40, size=(count, 28, 28)).astype(np.uint8)
    images[np.arange(count), 2 * labels + 3] = 255
    return data.Digits(images, labels)


def mnist() -> data.Mnist:
    train = digits(600, 0)
    return data.Mnist(train, train[:0], digits(100, 1))


def reviews(count: int, seed: int) -> data.Reviews:
    """Good reviews hold word 7, bad ones word 8, among others; 3 to 12 words."""
    rng = np.random.default_rng(seed)
    ratings = np.array([9] * (count // 2) + [2] * (count - count // 2), np.uint8)
    texts = []
    for rating in ratings:
        text = rng.integers(200, size=rng.integers(3, 13))
        text[rng.integers(len(text))] = 7 if rating > 5 else 8
        texts.append(text.tolist())
    bags = [np.unique(text, return_counts=True) for text in texts]
    return data.Reviews(
        data.Ragged.of(texts),
        data.Ragged.of([words.tolist() for words, _ in bags]),
        data.Ragged.of([counts.tolist() for _, counts in bags]),
        ratings,
    )


def imdb() -> data.Imdb:
    train = reviews(300, 0)
    nothing = train.take(np.empty(0, np.int64))
    return data.Imdb(train, nothing, reviews(40, 1), tuple(f"w{i}" for i in range(300)))


def ptb() -> data.PennTreebank:
    """A text that counts to nine, with an error now and then."""
    rng = np.random.default_rng(0)

    def text(length: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        words = np.arange(length) % 10
        words[rng.random(length) < 0.05] = 3
        return words.astype(np.int32)

    return data.PennTreebank(text(2_000), text(300), text(300), tuple("0123456789"))


def use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts these in the place of the real data sets."""
    for make in (mnist, imdb, ptb):
        monkeypatch.setattr(data, make.__name__, make)
