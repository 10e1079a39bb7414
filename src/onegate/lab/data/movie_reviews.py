"""IMDB film reviews: texts in word order, bags of words, ratings.

The authors of the data set published their bags of words but not how they cut texts into words.
The rules here were found from the two together: for all 50,000 labelled reviews they give the
published counts exactly.
"""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .arrays import Arrays, Ragged, as_array, as_words, concatenated_ranges, offsets_of, parsed
from .randomness import stratified_split
from .source_files import FoundFile, members, obtain
from .sources import IMDB, ContentError

_PARSER = 1
_PARTS = ("train", "test")
_VOCABULARY = "aclImdb/imdb.vocab"
_BAGS = {part: f"aclImdb/{part}/labeledBow.feat" for part in _PARTS}
_REVIEW = re.compile(r"aclImdb/(train|test)/(pos|neg)/(\d+)_(\d+)\.txt")
_CHECKSUMS = {
    _VOCABULARY: "01a13a306bd9e5a7826b8a0fc25a7a6017f143d86c1582f17857bb731fd252dc",
    _BAGS["train"]: "d7061edc0ed10ad094c5c6da49648db0d9567b0415de2a86ce0e4ea2b1a3cff9",
    _BAGS["test"]: "7fa9b4023774d0e748053c2be24f91f5d5812c3ae74cde663183908caf63f9ac",
}

PAD, UNKNOWN, FIRST_WORD = 0, 1, 2


@dataclass(frozen=True)
class Reviews:
    """N reviews. Words are numbered by their line in the vocabulary, from 0.

    `texts` has the words of each review in order, those outside the vocabulary left out; `words`
    has the different words of each review, ascending, and `counts` how often each occurs: the bag
    of words that comes with the data set. `ratings` is (N,) uint8, 1 to 4 or 7 to 10 stars.
    """

    texts: Ragged
    words: Ragged
    counts: Ragged
    ratings: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.ratings)

    @property
    def labels(self) -> NDArray[np.uint8]:
        """(N,) uint8: 1 = positive, 0 = negative."""
        return (self.ratings > 5).astype(np.uint8)

    def take(self, indices: NDArray[np.int64]) -> Reviews:
        """The chosen reviews, in the given order."""
        return Reviews(
            self.texts.take(indices),
            self.words.take(indices),
            self.counts.take(indices),
            self.ratings[indices],
        )


@dataclass(frozen=True)
class Imdb:
    """25,000 reviews to learn from and 25,000 to test on; none for validation until `split`.

    Within a set all positive reviews come first: shuffle. `vocabulary` is ordered by falling
    frequency in the training reviews, but for a few neighbours whose counts hardly differ.
    """

    train: Reviews
    valid: Reviews
    test: Reviews
    vocabulary: tuple[str, ...]

    def split(self, valid: int = 5_000, seed: int = 0) -> Imdb:
        """Sets training reviews aside for validation, drawn evenly from both classes."""
        kept, held = stratified_split(self.train.labels, valid, seed)
        return Imdb(self.train.take(kept), self.train.take(held), self.test, self.vocabulary)


def imdb(*, download: bool = True) -> Imdb:
    """The labelled reviews; downloaded if they are not found and `download` is true.

    >>> imdb().train.texts[0][:4]  # doctest: +SKIP
    array([22409,   321,     5,     2], dtype=int32)
    """
    (file,) = obtain(IMDB, download=download)
    arrays = parsed("imdb", _PARSER, [file.checksum], lambda: parse_reviews(file))
    train, test = (reviews_of(arrays, part) for part in _PARTS)
    nothing = train.take(np.empty(0, np.int64))
    return Imdb(train, nothing, test, as_words(arrays["vocabulary"]))


def keep_frequent(words: Ragged, count: int) -> Ragged:
    """Word numbers for a vocabulary of the `count` most frequent words and two signs.

    `PAD` is 0 and left for padding, `UNKNOWN` is 1, and the words follow from `FIRST_WORD` on, so
    that all numbers are below `count + FIRST_WORD`.
    """
    values = np.where(words.values < count, words.values + FIRST_WORD, UNKNOWN)
    return Ragged(values.astype(np.int32), words.offsets)


def reviews_of(arrays: Arrays, part: str) -> Reviews:
    """The reviews of a part, as they are kept."""
    bags = arrays[f"{part}_bag_offsets"]
    return Reviews(
        Ragged(arrays[f"{part}_texts"], arrays[f"{part}_text_offsets"]),
        Ragged(arrays[f"{part}_words"], bags),
        Ragged(arrays[f"{part}_counts"], bags),
        arrays[f"{part}_ratings"],
    )


def parse_reviews(file: FoundFile) -> Arrays:
    """Reads an archive that has the official inner paths.

    Nothing rests on the name of the archive: the word list and the bags of words must be the
    published ones, and the texts must hold exactly the words in the bags. Raises DamagedDataError.
    """
    try:
        contents = members(file.content(), _is_wanted)
        _require_published(contents)
        vocabulary = contents[_VOCABULARY].decode().split("\n")
        numbers = WordNumbers(vocabulary)
        arrays = {"vocabulary": as_array(vocabulary)}
        for part in _PARTS:
            for name, array in _parse_part(contents, part, numbers).items():
                arrays[f"{part}_{name}"] = array
    except ContentError as error:
        (official,) = IMDB.layouts[0]
        expected = " or ".join((official.checksum, *IMDB.known_archives))
        same = f", expected {expected}, or an archive with the same reviews"
        raise file.refused(error, same) from error
    return arrays


def _is_wanted(name: str) -> bool:
    return name in _CHECKSUMS or _REVIEW.fullmatch(name) is not None


def _require_published(members: dict[str, bytes]) -> None:
    for name, expected in _CHECKSUMS.items():
        if name not in members:
            raise ContentError(f"it does not hold {name}")
        found = hashlib.sha256(members[name]).hexdigest()
        if found != expected:
            raise ContentError(f"the sha256 of {name} in it is {found}, expected {expected}")


def _parse_part(members: dict[str, bytes], part: str, numbers: WordNumbers) -> Arrays:
    ratings, words, counts = _read_bags(members[_BAGS[part]])
    names = sorted(filter(None, map(_REVIEW.fullmatch, members)), key=_line_in_bags)
    names = [name for name in names if name[1] == part]
    if [int(name[4]) for name in names] != ratings.tolist():
        raise ContentError(f"its {len(names)} {part} reviews are not those of {_BAGS[part]}")
    texts = numbers(_text(members, name[0]) for name in names)
    _require_same_words(texts, words, counts, part)
    return {
        "texts": texts.values,
        "text_offsets": texts.offsets,
        "words": words.values,
        "counts": counts.values,
        "bag_offsets": words.offsets,
        "ratings": ratings,
    }


def _line_in_bags(name: re.Match[str]) -> tuple[bool, int]:
    return name[2] != "pos", int(name[3])


def _text(members: dict[str, bytes], name: str) -> str:
    try:
        return members[name].decode()
    except UnicodeDecodeError as error:
        raise ContentError(f"{name} in it is not UTF-8") from error


def _read_bags(content: bytes) -> tuple[NDArray[np.uint8], Ragged, Ragged]:
    """Ratings, words and counts of lines `rating word:count word:count ...`."""
    numbers = np.fromstring(content.replace(b":", b" ").decode("ascii"), np.int32, sep=" ")
    pairs = np.array([line.count(b":") for line in content.splitlines()])
    offsets = offsets_of(pairs)
    ratings_at = 2 * offsets[:-1] + np.arange(len(pairs))
    bags = np.delete(numbers, ratings_at).reshape(-1, 2)
    words, counts = (Ragged(np.ascontiguousarray(column), offsets) for column in bags.T)
    return numbers[ratings_at].astype(np.uint8), words, counts


def _require_same_words(texts: Ragged, words: Ragged, counts: Ragged, part: str) -> None:
    """The texts must hold the words of the bags, each as often as they say."""
    end = np.iinfo(np.int64).max  # so that one that is longer differs from the other, too
    expected = np.append(np.repeat(_keys(words), counts.values), end)
    found = np.append(np.sort(_keys(texts)), end)
    shared = min(len(found), len(expected))
    different = np.flatnonzero(found[:shared] != expected[:shared])
    if len(different):
        review = min(found[different[0]], expected[different[0]]) >> 32
        raise ContentError(f"{part} review {review} does not hold the words of its bag")


def _keys(words: Ragged) -> NDArray[np.int64]:
    """A number for every word that is ascending by review, then by word."""
    review: NDArray[np.int64] = np.repeat(np.arange(len(words)), words.lengths)
    return (review << 32) | words.values


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
