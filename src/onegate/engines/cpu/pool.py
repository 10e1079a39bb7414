"""Large tensors from memory that is used again.

A fresh block of memory is mapped and zeroed page by page when it is first written, which for long
sequences took longer than the arithmetic. Blocks taken from here go back when the tensor's storage
dies, and are handed out again.
"""

from __future__ import annotations

import mmap
import sys
import weakref
from collections.abc import Sequence

import torch
from torch import Tensor

SMALLEST = 1 << 20  # bytes; below this torch's own allocator is as good
LARGEST_RESERVE = 512 << 20  # bytes that may lie idle

# Appending to and popping from a list are atomic, so that no lock can be left held by a fork.
_idle: dict[int, list[mmap.mmap]] = {}
_in_use: dict[int, weakref.ref[memoryview]] = {}


def empty(shape: Sequence[int], like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """An uninitialised CPU tensor, by default of `like`'s dtype."""
    dtype = dtype or like.dtype
    size = itemsize = dtype.itemsize
    for n in shape:
        size *= n
    if size < SMALLEST:
        return fresh(shape, like, dtype)
    block = _take(_rounded(size))
    view = memoryview(block)
    number = id(view)

    def give_back(_: object) -> None:
        del _in_use[number]
        _give(block)

    _in_use[number] = weakref.ref(view, give_back)
    flat = torch.frombuffer(view, dtype=dtype, count=size // itemsize)
    return flat.resize_(shape)  # no view: outputs may be changed in place under autograd


def fresh(shape: Sequence[int], like: Tensor, dtype: torch.dtype) -> Tensor:
    """An uninitialised CPU tensor of torch's own memory."""
    # A shape that is unpacked takes torch two thirds of the time, a dtype a tenth more.
    return like.new_empty(*shape) if like.dtype is dtype else like.new_empty(*shape, dtype=dtype)


def idle_bytes() -> int:
    """How much memory waits to be used again."""
    return sum(size * len(blocks) for size, blocks in list(_idle.items()))


def release() -> None:
    """Gives all idle memory back to the system."""
    _idle.clear()


def _rounded(size: int) -> int:
    """At most an eighth more, so that batches of nearly equal size share blocks."""
    step = max(SMALLEST, 1 << (size.bit_length() - 4))
    return -(-size // step) * step


def _new(size: int) -> mmap.mmap:
    if sys.platform == "win32":
        return mmap.mmap(-1, size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _take(size: int) -> mmap.mmap:
    try:
        return _idle[size].pop()
    except (KeyError, IndexError):
        block = _new(size)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            block.madvise(mmap.MADV_HUGEPAGE)
        return block


def _give(block: mmap.mmap) -> None:
    if idle_bytes() + len(block) <= LARGEST_RESERVE:
        _idle.setdefault(len(block), []).append(block)
