"""MNIST: digits as images, as sequences of rows, of pixels, and of pixels in a fixed disorder."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from .arrays import Arrays, parsed
from .randomness import order
from .source_files import FoundFile, inflate, obtain
from .sources import MNIST, ContentError

_PARSER = 1
_LARGEST = 16 + 60_000 * 28 * 28  # bytes: the header and all training images


@dataclass(frozen=True)
class Digits:
    """N digits: `images` is (N, 28, 28) uint8, 0 = background; `labels` is (N,) uint8, 0 to 9."""

    images: NDArray[np.uint8]
    labels: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, chosen: slice) -> Digits:
        return Digits(self.images[chosen], self.labels[chosen])


@dataclass(frozen=True)
class Mnist:
    """60,000 digits to learn from and 10,000 to test on; none for validation until `split`."""

    train: Digits
    valid: Digits
    test: Digits

    def split(self, valid: int = 10_000) -> Mnist:
        """Sets the last training digits aside for validation: 50,000 / 10,000 / 10,000.

        The writers of the training digits come in random order, so a tail is a fair sample.
        """
        if not 0 <= valid < len(self.train):
            raise ValueError(f"valid is {valid}, expected 0 to {len(self.train) - 1}")
        kept = len(self.train) - valid
        return Mnist(self.train[:kept], self.train[kept:], self.test)


def mnist(*, download: bool = True) -> Mnist:
    """MNIST; downloaded if it is not found and `download` is true.

    >>> mnist().split().train.images.shape  # doctest: +SKIP
    (50000, 28, 28)
    """
    files = obtain(MNIST, download=download)
    arrays = parsed("mnist", _PARSER, [file.checksum for file in files], lambda: _parse(files))
    train = Digits(arrays["train_images"], arrays["train_labels"])
    return Mnist(train, train[:0], Digits(arrays["test_images"], arrays["test_labels"]))


def rows(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(N, 28, 28): an image is 28 steps of one row, from top to bottom."""
    return images


def pixels(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(N, 784, 1): an image is 784 steps of one pixel, row by row."""
    return images.reshape(len(images), -1, 1)


def permuted(images: NDArray[np.uint8], seed: int = 0) -> NDArray[np.uint8]:
    """(N, 784, 1): pixels in an order drawn once from the seed, the same for all images."""
    return pixels(images)[:, order(images[0].size, seed)]


def _parse(files: tuple[FoundFile, ...]) -> Arrays:
    names = ("train_images", "train_labels", "test_images", "test_labels")
    return {name: _read(file) for name, file in zip(names, files, strict=True)}


def _read(file: FoundFile) -> NDArray[np.uint8]:
    try:
        return read_idx(inflate(file.content(), _LARGEST))
    except ContentError as error:
        raise file.refused(error) from None


def read_idx(content: bytes) -> NDArray[np.uint8]:
    """An array of bytes in the IDX format: 0, 0, type 8, rank; sizes; values, row by row."""
    rank = content[3] if len(content) > 3 else 0
    start = 4 + 4 * rank
    if content[:3] != b"\0\0\x08" or rank not in (1, 3) or len(content) < start:
        raise ContentError("it does not begin as an IDX file of bytes with 1 or 3 sizes")
    shape = [int(size) for size in np.frombuffer(content, ">u4", count=rank, offset=4)]
    if math.prod(shape) != len(content) - start:
        sizes = " x ".join(map(str, shape))
        raise ContentError(f"its header says {sizes} bytes, {len(content) - start:,} follow")
    return cast("NDArray[np.uint8]", np.frombuffer(content, np.uint8, offset=start).reshape(shape))
