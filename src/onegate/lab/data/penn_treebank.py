"""Penn Treebank as prepared by Mikolov: a running text of a ten thousand word vocabulary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .arrays import Arrays, as_array, as_words, parsed
from .source_files import FoundFile, checksum_of, members, obtain
from .sources import PTB, ContentError

_PARSER = 1
_PARTS = ("train", "valid", "test")
_TEXTS = tuple(f"ptb.{part}.txt" for part in _PARTS)
END_OF_SENTENCE = "<eos>"


@dataclass(frozen=True)
class PennTreebank:
    """Three texts as (tokens,) int32 word numbers, every sentence closed by `<eos>`.

    `vocabulary[number]` is the word; the most frequent training word is number 0.
    """

    train: NDArray[np.int32]
    valid: NDArray[np.int32]
    test: NDArray[np.int32]
    vocabulary: tuple[str, ...]


def ptb(*, download: bool = True) -> PennTreebank:
    """Penn Treebank; downloaded if it is not found and `download` is true.

    >>> len(ptb().vocabulary)  # doctest: +SKIP
    10000
    """
    files = obtain(PTB, download=download)
    arrays = parsed("ptb", _PARSER, [file.checksum for file in files], lambda: _parse(files))
    train, valid, test = (arrays[part] for part in _PARTS)
    return PennTreebank(train, valid, test, as_words(arrays["vocabulary"]))


def columns(tokens: NDArray[np.int32], batch: int = 20) -> NDArray[np.int32]:
    """(steps, batch): the text cut into `batch` columns of equal height, to be read downwards.

    The last tokens that do not fill a row are left out.
    """
    steps = len(tokens) // batch
    return tokens[: steps * batch].reshape(batch, steps).T


def segments(
    columns: NDArray[np.int32], steps: int = 35
) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int32]]]:
    """Inputs and targets, (steps, batch) each, for truncated backpropagation with carried state.

    Targets are the inputs one step later. The last segment may be shorter.

    >>> [(x.ravel().tolist(), y.ravel().tolist()) for x, y in segments(np.arange(4)[:, None], 2)]
    [([0, 1], [1, 2]), ([2], [3])]
    """
    for start in range(0, len(columns) - 1, steps):
        targets = columns[start + 1 : start + 1 + steps]
        yield columns[start : start + len(targets)], targets


def unigram_perplexity(train: NDArray[np.int32], text: NDArray[np.int32]) -> float:
    """Perplexity of a text under the word frequencies of the training text: what to beat."""
    counts = np.bincount(train, minlength=int(text.max()) + 1)
    if not counts[text].all():
        missing = int(np.flatnonzero(counts[text] == 0)[0])
        raise ValueError(f"word {text[missing]} of the text does not occur in the training text")
    return float(np.exp(-np.mean(np.log(counts[text] / len(train)))))


def _parse(files: tuple[FoundFile, ...]) -> Arrays:
    texts = [_words(content) for content in _contents(files)]
    counts = Counter(texts[0])
    vocabulary = sorted(counts, key=lambda word: (-counts[word], word))
    number = {word: i for i, word in enumerate(vocabulary)}
    arrays = {
        part: np.fromiter((number[word] for word in text), np.int32, len(text))
        for part, text in zip(_PARTS, texts, strict=True)
    }
    return {**arrays, "vocabulary": as_array(vocabulary)}


def _words(content: bytes) -> list[str]:
    return content.decode("ascii").replace("\n", f" {END_OF_SENTENCE} ").split()


def _contents(files: tuple[FoundFile, ...]) -> list[bytes]:
    """The three texts: three files, or one archive that holds them."""
    if len(files) == len(_PARTS):
        return [file.content() for file in files]
    (archive,) = files
    published = {file.name: file.checksum for layout in PTB.layouts for file in layout}
    try:
        found = members(archive.content(), lambda name: Path(name).name in _TEXTS)
        texts = {Path(name).name: content for name, content in found.items()}
        for name in _TEXTS:
            _require_published(texts, name, published[name])
    except ContentError as error:
        raise archive.refused(error) from None
    return [texts[name] for name in _TEXTS]


def _require_published(texts: dict[str, bytes], name: str, expected: str) -> None:
    if name not in texts:
        raise ContentError(f"it does not hold {name}")
    found = checksum_of(texts[name], expected.partition(":")[0])
    if found != expected:
        raise ContentError(f"the checksum of {name} in it is {found}, expected {expected}")
