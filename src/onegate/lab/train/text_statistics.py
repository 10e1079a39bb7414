"""What a language model can know of a text before it has learned: counted, not trained."""

from __future__ import annotations

import functools

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# Words this far apart still count as neighbours, by the inverse of their distance.
_WINDOW = 4
# Neighbours are as frequent as their counts to this power, which keeps rare ones from seeming to
# tell much (Levy, Goldberg and Dagan 2015).
_SMOOTHING = 0.75
# More directions than wanted and passes over the matrix make the random search for its largest
# directions accurate (Halko, Martinsson and Tropp 2011).
_MORE_DIRECTIONS, _PASSES = 40, 3


def log_frequencies(text: NDArray[np.int32], words: int) -> Tensor:
    """(words,): the logarithm of each word's share of the text, unseen ones counted as seen once.

    >>> log_frequencies(np.array([0, 1, 1, 1], np.int32), 2).exp()
    tensor([0.2500, 0.7500])
    """
    counts = torch.from_numpy(np.bincount(text, minlength=words)).clamp(min=1).double()
    return (counts / counts.sum()).log().float()


def word_vectors(text: NDArray[np.int32], words: int, width: int) -> Tensor:
    """(words, width): words that stand beside the same words have similar vectors.

    The vectors are those of the largest singular values of the positive pointwise mutual
    information of words and their neighbours, in a random rotation, so that no place is worth more
    than another. The mean of their squares is 1. Asked for again, they are not counted again.
    """
    return _word_vectors(text.astype(np.int32, copy=False).tobytes(), words, width).clone()


@functools.lru_cache(maxsize=2)
def _word_vectors(text: bytes, words: int, width: int) -> Tensor:
    random = torch.Generator().manual_seed(0)
    table = _information(np.frombuffer(text, np.int32), words)
    wanted = min(width + _MORE_DIRECTIONS, words)
    basis = torch.randn(words, wanted, generator=random)
    for _ in range(_PASSES):
        basis = _orthonormal(table.t() @ _orthonormal(table @ basis))
    left, values, _ = torch.linalg.svd(table @ basis, full_matrices=False)
    vectors = torch.zeros(words, width)
    kept = min(width, wanted)
    vectors[:, :kept] = left[:, :kept] * values[:kept].sqrt()
    vectors = vectors @ _orthonormal(torch.randn(width, width, generator=random))
    return vectors / vectors.square().mean().sqrt().clamp(min=torch.finfo().tiny)


def _orthonormal(columns: Tensor) -> Tensor:
    basis, _ = torch.linalg.qr(columns)
    assert isinstance(basis, Tensor)
    return basis


def _information(text: NDArray[np.int32], words: int) -> Tensor:
    """(words, words), sparse: how much likelier a neighbour is beside a word than anywhere."""
    places = torch.from_numpy(text.astype(np.int64))
    pairs = [
        torch.stack((places[:-distance], places[distance:])) for distance in range(1, _WINDOW + 1)
    ]
    weights = torch.cat([torch.full((p.shape[1],), 1 / d) for d, p in enumerate(pairs, start=1)])
    indices = torch.cat(pairs, 1)
    both_ways = torch.cat((indices, indices.flip(0)), 1)
    counts = _sparse(both_ways, weights.repeat(2), words)
    row, column = counts.indices()
    totals = counts.sum(1).to_dense()
    shares = totals**_SMOOTHING / (totals**_SMOOTHING).sum()
    information = (counts.values() / (totals[row] * shares[column])).log().clamp(min=0)
    return _sparse(counts.indices(), information, words)


def _sparse(indices: Tensor, values: Tensor, size: int) -> Tensor:
    """(size, size); values at the same place add up."""
    table = torch.sparse_coo_tensor(indices, values, (size, size), check_invariants=True)
    return table.coalesce()
