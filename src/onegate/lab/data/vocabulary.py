"""Word lists, kept as arrays of bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def as_array(words: Sequence[str]) -> NDArray[np.uint8]:
    """UTF-8, one word a line; words hold no line ends."""
    return np.frombuffer("\n".join(words).encode(), np.uint8)


def as_words(array: NDArray[np.uint8]) -> tuple[str, ...]:
    """The words of `as_array`."""
    return tuple(array.tobytes().decode().split("\n"))
