"""Stand-ins for the data sets, made from what Python and matplotlib carry: nothing is downloaded.

They have the form of MNIST, Penn Treebank and IMDB, so that every recipe runs anywhere. They are
not those data sets: no number measured on them can be compared with one measured on the real data,
and none with a paper's. They are the same for the same versions of Python and matplotlib.
"""

from __future__ import annotations

import ast
import platform
import re
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .arrays import Arrays, Ragged, as_array, as_words, parsed
from .mnist_digits import Digits, Mnist
from .movie_reviews import Imdb, reviews_of, words_of
from .penn_treebank import END_OF_SENTENCE, PennTreebank
from .randomness import generator, order
from .sources import MissingDataError

_VERSION = 1

# What `onegate data` says of each.
TITLES = {
    "mnist": "digits drawn from matplotlib's fonts",
    "imdb": "Python's language reference (positive) against docstrings of the standard library "
    "(negative)",
    "ptb": "Python's language reference as running text",
}
# What is got right without having learned anything but how often each answer occurs.
_CHANCE = {
    "mnist": " Guessing is right in 10% of the cases.",
    "imdb": " Guessing is right in 50% of the cases.",
    "ptb": " The frequencies of words alone give a perplexity of about 300.",
}


def notice(source: str, options: object) -> str:
    """What a page says of data where they are a stand-in; empty where they are not.

    `notice("ptb", recipe.data)` names the text that it is.
    """
    if getattr(options, "source", "real") != "stand-in":
        return ""
    title = TITLES.get(source, "made on this machine")
    return f"Not the data set but a stand-in: {title}.{_CHANCE.get(source, '')}"


def digits() -> Mnist:
    """60,000 and 10,000 printed digits in the form of MNIST: 28 x 28, white on black.

    Each is drawn in one of some twenty fonts of matplotlib with a random place, height, width,
    slant and weight, and noise. No hand wrote them: there are no writers, and an image tells less
    about how hard handwriting is than about whether a net learns. Classes are exactly balanced.
    """
    import matplotlib

    arrays = parsed("mnist-stand-in", _VERSION, [matplotlib.__version__], _drawn_digits)
    train = Digits(arrays["train_images"], arrays["train_labels"])
    return Mnist(train, train[:0], Digits(arrays["test_images"], arrays["test_labels"]))


def manual() -> PennTreebank:
    """Python's language reference (`pydoc_data.topics`) in the form of the Penn Treebank.

    40,000 words to learn from, a twentieth of the newspaper text, and some 5,000 each for
    validation and test. Every paragraph occurs once, and ends with `<eos>`; of ten in a row the
    ninth and the tenth are held out. Words are written small, those that occur once in the
    training text are `<unk>`.
    """
    arrays = parsed("ptb-stand-in", _VERSION, [platform.python_version()], _numbered_manual)
    train, valid, test = (arrays[part] for part in ("train", "valid", "test"))
    return PennTreebank(train, valid, test, as_words(arrays["vocabulary"]))


def documentation() -> Imdb:
    """Two kinds of text about Python in the form of IMDB: 1,500 to learn from, 500 to test on.

    Class 1, rated 10: paragraphs of the language reference. Class 0, rated 1: docstrings of the
    standard library. All have twelve words or more, and no two are the same. There is no sentiment
    in them, and few words are enough to tell most of them apart. Both classes are equally frequent;
    words are in order and in bags, numbered by falling frequency in the training texts.
    """
    arrays = parsed("imdb-stand-in", _VERSION, [platform.python_version()], _documentation_arrays)
    train, test = (reviews_of(arrays, part) for part in ("train", "test"))
    nothing = train.take(np.empty(0, np.int64))
    return Imdb(train, nothing, test, as_words(arrays["vocabulary"]))


# Digits.

_FONTS = ("DejaVuSans*", "DejaVuSerif*", "STIXGeneral*", "cmb10*", "cmr10*", "cmss10*", "cmtt10*")
_SIDE = 28
_MASK = 48  # pixels, of a digit as it comes out of a font; the digit has at most 40 of them
_AT_ONCE = 2_000


def _drawn_digits() -> Arrays:
    masks = _masks()
    train_images, train_labels = _draw(masks, 60_000, stream=0)
    test_images, test_labels = _draw(masks, 10_000, stream=1)
    return {
        "train_images": train_images,
        "train_labels": train_labels,
        "test_images": test_images,
        "test_labels": test_labels,
    }


def _masks() -> NDArray[np.float32]:
    """(fonts, 10, 48, 48): every digit in every font, 0 to 1, in the middle, 40 high."""
    import matplotlib

    folder = Path(matplotlib.get_data_path(), "fonts", "ttf")
    fonts = sorted({file for pattern in _FONTS for file in folder.glob(f"{pattern}.ttf")})
    fonts = [file for file in fonts if "Display" not in file.name]
    if not fonts:
        raise MissingDataError(f"{folder} has no fonts: install matplotlib again")
    return np.stack([np.stack([_glyph(file, digit) for digit in "0123456789"]) for file in fonts])


def _glyph(file: Path, digit: str) -> NDArray[np.float32]:
    from matplotlib.ft2font import FT2Font

    font = FT2Font(str(file))
    font.set_size(40 / 0.72, 72)  # a digit is about 0.72 of the size high
    font.set_text(digit)
    font.draw_glyphs_to_bitmap(antialiased=True)
    drawn = np.asarray(font.get_image(), np.float32) / 255
    drawn = drawn[np.ix_(drawn.any(axis=1), drawn.any(axis=0))][:_MASK, :_MASK]
    top, left = (_MASK - drawn.shape[0]) // 2, (_MASK - drawn.shape[1]) // 2
    mask = np.zeros((_MASK, _MASK), np.float32)
    mask[top : top + drawn.shape[0], left : left + drawn.shape[1]] = drawn
    return _blurred(mask)


def _blurred(mask: NDArray[np.float32]) -> NDArray[np.float32]:
    """Means of 3 x 3, so that taking every second pixel of it misses no line."""
    around = np.pad(mask, 1)
    rows, columns = mask.shape
    shifts = [around[i : i + rows, j : j + columns] for i in range(3) for j in range(3)]
    return np.asarray(np.add.reduce(shifts) / 9, np.float32)


def _draw(
    masks: NDArray[np.float32], count: int, stream: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """`count` images and labels, each digit as often as any other, in random order."""
    labels = (order(count, stream, 0) % 10).astype(np.uint8)
    rng = generator(stream, 1)
    images = [
        _images(masks, labels[start : start + _AT_ONCE], rng) for start in range(0, count, _AT_ONCE)
    ]
    return np.concatenate(images), labels


def _images(
    masks: NDArray[np.float32], labels: NDArray[np.uint8], rng: np.random.Generator
) -> NDArray[np.uint8]:
    """(N, 28, 28): each pixel looks up the point of the mask that comes to lie on it."""

    def between(low: float, high: float) -> NDArray[np.float32]:
        drawn = low + (high - low) * rng.random((len(labels), 1, 1))
        return drawn.astype(np.float32)

    font = (rng.random(len(labels)) * len(masks)).astype(np.int64)
    y, x = np.meshgrid(*[np.arange(_SIDE, dtype=np.float32) - (_SIDE - 1) / 2] * 2, indexing="ij")
    # Pixels of the mask for one of the image: a digit is 16 to 24 high.
    high, wide = between(40 / 24, 40 / 16), between(40 / 26, 40 / 14)
    slant, weight = between(-0.35, 0.35), between(0.25, 0.5)
    down, right = y - between(-2.5, 2.5), x - between(-2.5, 2.5)
    found = _looked_up(masks[font, labels], down * high, (right + slant * down) * wide)
    ink = np.clip((found - weight) * 3 + 0.5, 0, 1) * between(0.7, 1.0)
    noise = np.maximum(rng.random(ink.shape, np.float32) - 0.9, 0) * 2
    return np.asarray(255 * np.clip(ink + noise, 0, 1), np.uint8)


def _looked_up(
    masks: NDArray[np.float32], y: NDArray[np.float32], x: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The masks at points counted from their middle, between four pixels each; 0 outside."""
    middle = (_MASK - 1) / 2
    y, x = (
        np.clip(part + np.float32(middle), 0, np.float32(_MASK - 1.001))
        for part in np.broadcast_arrays(y, x)
    )
    row, column = y.astype(np.int64), x.astype(np.int64)
    dy, dx = y - row, x - column
    flat = masks.reshape(len(masks), -1)
    at = (row * _MASK + column).reshape(len(masks), -1)

    def near(shift: int) -> NDArray[np.float32]:
        return np.take_along_axis(flat, at + shift, axis=1).reshape(y.shape)

    above = near(0) * (1 - dx) + near(1) * dx
    below = near(_MASK) * (1 - dx) + near(_MASK + 1) * dx
    return np.asarray(above * (1 - dy) + below * dy)


# Texts.

_LEARNED_WORDS = 40_000
_SHORTEST = 12  # words of a text that is to be told from another
_TEXTS_OF_A_CLASS = 1_000
_FOR_TEST = 250
_NOT_SEARCHED = ("site-packages", "dist-packages", "test", "idlelib", "lib2to3", "pydoc_data")


def reference_paragraphs() -> list[list[str]]:
    """The words of every paragraph of the language reference, no paragraph twice."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise MissingDataError(
            "this Python has no pydoc_data.topics, of which the stand-in texts are made: install "
            "the whole standard library"
        ) from None
    paragraphs = [part for name in sorted(topics) for part in re.split(r"\n\s*\n", topics[name])]
    return _different(map(words_of, paragraphs))


def _different(texts: Iterable[Sequence[str]]) -> list[list[str]]:
    return [list(text) for text in dict.fromkeys(map(tuple, texts)) if text]


def _docstrings() -> Iterator[str]:
    """Those of the standard library, read and not imported."""
    library = Path(sysconfig.get_path("stdlib"))
    searched = [
        file
        for file in (*library.glob("*.py"), *library.glob("*/*.py"))
        if file.parent.name not in _NOT_SEARCHED
    ]
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for file in sorted(searched):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, kinds) and (text := ast.get_docstring(node)):
                yield text


def _numbered_manual() -> Arrays:
    paragraphs = [[*words, END_OF_SENTENCE] for words in reference_paragraphs()]
    held = {"valid": 8, "test": 9}
    parts = {
        name: [word for text in paragraphs[place::10] for word in text]
        for name, place in held.items()
    }
    train = [w for i, text in enumerate(paragraphs) if i % 10 not in held.values() for w in text]
    if len(train) < _LEARNED_WORDS:
        raise MissingDataError(
            f"pydoc_data.topics of Python {platform.python_version()} gives {len(train):,} words "
            f"to learn from, expected {_LEARNED_WORDS:,}"
        )
    parts["train"] = train[:_LEARNED_WORDS]
    vocabulary = _vocabulary([parts["train"]], fewest=2, and_also="<unk>")
    number = {word: i for i, word in enumerate(vocabulary)}
    unknown = number["<unk>"]
    arrays = {
        name: np.array([number.get(word, unknown) for word in words], np.int32)
        for name, words in parts.items()
    }
    return {**arrays, "vocabulary": as_array(vocabulary)}


def _vocabulary(texts: Iterable[Sequence[str]], fewest: int, and_also: str = "") -> list[str]:
    """Words by falling frequency; those that occur fewer times count as `and_also`, if given."""
    counts = Counter(word for text in texts for word in text)
    rare = [word for word, count in counts.items() if count < fewest]
    replaced = sum(counts.pop(word) for word in rare)
    if and_also:
        counts[and_also] += replaced
    return sorted(counts, key=lambda word: (-counts[word], word))


def _documentation_arrays() -> Arrays:
    reference = [text for text in reference_paragraphs() if len(text) >= _SHORTEST]
    known = set(map(tuple, reference))
    docstrings = [
        text
        for text in _different(map(words_of, _docstrings()))
        if len(text) >= _SHORTEST and tuple(text) not in known
    ]
    train: list[list[str]] = []
    test: list[list[str]] = []
    for position, texts in enumerate((reference, docstrings)):  # as IMDB: positive ones first
        chosen = _chosen(texts, position)
        test += chosen[:_FOR_TEST]
        train += chosen[_FOR_TEST:]
    vocabulary = _vocabulary(train, fewest=1)
    arrays = {"vocabulary": as_array(vocabulary)}
    number = {word: i for i, word in enumerate(vocabulary)}
    for part, texts in (("train", train), ("test", test)):
        for name, array in _as_arrays(texts, number).items():
            arrays[f"{part}_{name}"] = array
    return arrays


def _chosen(texts: list[list[str]], stream: int) -> list[list[str]]:
    if len(texts) < _TEXTS_OF_A_CLASS:
        raise MissingDataError(
            f"Python {platform.python_version()} as it is installed here gives {len(texts)} texts "
            f"of a class, expected {_TEXTS_OF_A_CLASS}: install the whole standard library"
        )
    picked = islice(order(len(texts), stream, 2), _TEXTS_OF_A_CLASS)
    return [texts[i] for i in picked]


def _as_arrays(texts: list[list[str]], number: dict[str, int]) -> Arrays:
    numbered = [[number[word] for word in text if word in number] for text in texts]
    bags = [sorted(Counter(text).items()) for text in numbered]
    in_order = Ragged.of(numbered)
    words = Ragged.of([[word for word, _ in bag] for bag in bags])
    counts = Ragged.of([[count for _, count in bag] for bag in bags])
    half = len(texts) // 2
    return {
        "texts": in_order.values,
        "text_offsets": in_order.offsets,
        "words": words.values,
        "counts": counts.values,
        "bag_offsets": words.offsets,
        "ratings": np.repeat(np.array([10, 1], np.uint8), half),
    }
