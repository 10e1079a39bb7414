"""From the text of a film review to its words, as the data set's own bag of words counts them.

The authors of the data set published their bag of words but not how they cut texts into words.
The rules below were found from the two together: for all 50,000 labelled reviews they give the
published counts exactly.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from .ragged import Ragged, concatenated_ranges, offsets_of

_TAG = re.compile(r"<[^>]+>")
# Signs between two letters part them. A letter parts only once: "a.k.a" is "a" and "k.a".
_INNER_SIGNS = re.compile(r"(\w)[^\w\s'-]+(\w)")
_OUTER_SIGNS = re.compile(r"^\W+|\W+$")
_EYES, _NOSE, _MOUTH = "[:;=8]", "[-o]?", r"[]()[{}:dp]"
_FACE = re.compile(f"{_EYES}{_NOSE}{_MOUTH}|{_MOUTH}{_NOSE}{_EYES}")
_ALWAYS = (("'s", ""), ("_", " "), ("--", " "), ("!", " ! "), ("?", " ? "))


def words_of(text: str) -> list[str]:
    """The words, faces, `!` and `?` of a review, in order.

    >>> words_of("Didn't like it?<br />Lucas's <i>worst</i>--a low-budget film :-)")
    ["didn't", 'like', 'it', '?', 'lucas', 'worst', 'a', 'low-budget', 'film', ':-)']
    """
    return [word for chunk in _chunks(text) for word in _words_of_chunk(chunk)]


def _chunks(text: str) -> list[str]:
    return _TAG.sub(" ", text).split()


def _words_of_chunk(chunk: str) -> list[str]:
    """Words of a piece of text that has no white space: no rule looks further."""
    if (plain := chunk.rstrip(".,")).isalpha():  # most pieces; the rules below agree, slowly
        return [plain.lower()]
    chunk = html.unescape(chunk).lower()
    for old, new in _ALWAYS:
        chunk = chunk.replace(old, new)
    pieces = _INNER_SIGNS.sub(r"\1 \2", chunk).split()
    words = [piece if _stands_alone(piece) else _OUTER_SIGNS.sub("", piece) for piece in pieces]
    return [word for word in words if word]


def _stands_alone(piece: str) -> bool:
    return piece in ("!", "?") or _FACE.fullmatch(piece) is not None


class WordNumbers:
    """Texts to word numbers: the line of the word in the vocabulary. Other words are left out.

    Reviews repeat themselves: 12 million pieces of text, 0.4 million different ones. Each is cut
    into words once.
    """

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self._number = {word: i for i, word in enumerate(vocabulary)}
        self._table = _ChunkTable(self._number)

    def __call__(self, texts: Iterable[str]) -> Ragged:
        """The word numbers of every text."""
        chunks = [self._chunk_numbers(text) for text in texts]
        flat = np.concatenate(chunks)
        known = self._table.words()
        counts = known.lengths[flat]
        values = known.values[concatenated_ranges(known.offsets[flat], counts)]
        ends = offsets_of([len(numbers) for numbers in chunks])
        return Ragged(values, offsets_of(counts)[ends])

    def _chunk_numbers(self, text: str) -> NDArray[np.int32]:
        pieces = _chunks(text)
        return np.fromiter(map(self._table.__getitem__, pieces), np.int32, len(pieces))


class _ChunkTable(dict[str, int]):
    """Numbers pieces of text as they come, and keeps the word numbers of each."""

    def __init__(self, number: dict[str, int]) -> None:
        self._number = number
        self._values: list[int] = []
        self._ends = [0]

    def __missing__(self, chunk: str) -> int:
        words = _words_of_chunk(chunk)
        self._values += [self._number[word] for word in words if word in self._number]
        self._ends.append(len(self._values))
        self[chunk] = index = len(self)
        return index

    def words(self) -> Ragged:
        return Ragged(np.array(self._values, np.int32), np.array(self._ends, np.int64))
