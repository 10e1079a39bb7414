from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from onegate.lab.data import DamagedDataError, Digits, Mnist, mnist_digits, permuted, pixels, rows
from onegate.lab.data.source_files import FoundFile, checksum

TRAIN_CLASSES = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
TEST_CLASSES = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def test_real_counts(real_mnist: Mnist) -> None:
    assert real_mnist.train.images.shape == (60_000, 28, 28)
    assert real_mnist.test.images.shape == (10_000, 28, 28)
    assert real_mnist.train.images.dtype == real_mnist.train.labels.dtype == np.uint8
    assert len(real_mnist.valid) == 0
    assert np.bincount(real_mnist.train.labels).tolist() == TRAIN_CLASSES
    assert np.bincount(real_mnist.test.labels).tolist() == TEST_CLASSES


def test_real_pixels(real_mnist: Mnist) -> None:
    for part, mean, deviation in (
        (real_mnist.train, 0.1307, 0.3081),
        (real_mnist.test, 0.1325, 0.3105),
    ):
        assert part.images.mean() / 255 == pytest.approx(mean, abs=5e-5)
        assert part.images.std() / 255 == pytest.approx(deviation, abs=5e-5)


def test_real_arrays_are_mapped_and_read_only(real_mnist: Mnist) -> None:
    assert isinstance(real_mnist.train.images.base, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        real_mnist.train.images[0] = 0


@pytest.fixture
def small() -> Mnist:
    images = np.arange(5 * 28 * 28, dtype=np.uint16).astype(np.uint8).reshape(5, 28, 28)
    digits = Digits(images, np.arange(5, dtype=np.uint8))
    return Mnist(digits, digits[:0], digits)


def test_split_takes_the_tail(small: Mnist) -> None:
    split = small.split(valid=2)
    assert split.train.labels.tolist() == [0, 1, 2]
    assert split.valid.labels.tolist() == [3, 4]
    assert split.test.labels.tolist() == [0, 1, 2, 3, 4]
    assert len(small.split(valid=0).train) == 5


@pytest.mark.parametrize("valid", [-1, 5])
def test_split_that_leaves_nothing(small: Mnist, valid: int) -> None:
    with pytest.raises(ValueError, match=f"valid is {valid}, expected 0 to 4"):
        small.split(valid)


def test_real_split_is_the_usual_one(real_mnist: Mnist) -> None:
    split = real_mnist.split()
    assert [len(split.train), len(split.valid), len(split.test)] == [50_000, 10_000, 10_000]


def test_views(small: Mnist) -> None:
    images = small.train.images
    assert rows(images).shape == (5, 28, 28)
    assert pixels(images).shape == (5, 784, 1)
    assert pixels(images)[3, 2 * 28 + 5, 0] == images[3, 2, 5]
    assert np.shares_memory(pixels(images), images)


def test_permuted_moves_pixels_alike_in_all_images(small: Mnist) -> None:
    images = np.stack([np.arange(784), np.arange(784)[::-1]]).astype(np.uint16).reshape(2, 28, 28)
    first, second = permuted(images, seed=3)[..., 0].astype(int)  # type: ignore[arg-type]
    assert sorted(first) == list(range(784))
    assert (first != np.arange(784)).sum() > 770
    assert (first + second == 783).all()
    other = permuted(images, seed=4)[0, :, 0]  # type: ignore[arg-type]
    assert other.tolist() != first.tolist()


def test_permutation_is_the_same_everywhere() -> None:
    images = np.arange(784).reshape(1, 28, 28)
    assert permuted(images)[0, :8, 0].tolist() == [269, 11, 403, 600, 196, 608, 657, 150]  # type: ignore[arg-type]


def images(*shape: int, values: int) -> bytes:
    return struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape) + bytes(values)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "does not begin as an IDX file"),
        (b"\0\0\x08", "does not begin as an IDX file"),
        (b"\0\0\x0d\x01\0\0\0\x01?", "does not begin as an IDX file"),
        (b"\0\0\x08\xff" + bytes(2000), "does not begin as an IDX file"),
        (images(4, 28, 28, values=0)[:-1], "does not begin as an IDX file"),
        (images(3, values=2), "its header says 3 bytes, 2 follow"),
        (images(3, values=4), "its header says 3 bytes, 4 follow"),
        (
            images(2**32 - 1, 2**32 - 1, 2**32 - 1, values=100),
            "its header says 4294967295 x 4294967295 x 4294967295 bytes, 100 follow",
        ),
        (images(2**16, 2**16, 2**16, values=0), "65536 x 65536 x 65536 bytes, 0 follow"),
        (images(60_001, 28, 28, values=60_001 * 784), "unpack to more than 47,040,016"),
    ],
)
def test_a_file_with_other_contents_is_refused(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(content))
    file = FoundFile(path, checksum(path, "sha256"))
    with pytest.raises(DamagedDataError, match=rf"ubyte\.gz is damaged.*{message}.*fetch"):
        mnist_digits._parse((file,) * 4)


def test_read_idx() -> None:
    content = struct.pack(">BBBBIII", 0, 0, 8, 3, 2, 1, 3) + bytes([1, 2, 3, 4, 5, 6])
    assert mnist_digits.read_idx(content).tolist() == [[[1, 2, 3]], [[4, 5, 6]]]
