"""Data sets as numpy arrays: generated, or read from files that are checked first.

No array here knows of torch; files are looked for in `$ONEGATE_DATA`, then in the user's cache
folder, and otherwise downloaded.
"""

from . import stand_ins
from .adding_problem import Adding, Sequences, adding
from .arrays import Ragged
from .mnist_digits import Digits, Mnist, mnist, permuted, pixels, rows
from .movie_reviews import FIRST_WORD, PAD, UNKNOWN, Imdb, Reviews, imdb, keep_frequent
from .penn_treebank import PennTreebank, columns, ptb, segments, unigram_perplexity
from .randomness import batches, stratified_split
from .sources import DamagedDataError, DataError, MissingDataError

__all__ = [
    "FIRST_WORD",
    "PAD",
    "UNKNOWN",
    "Adding",
    "DamagedDataError",
    "DataError",
    "Digits",
    "Imdb",
    "MissingDataError",
    "Mnist",
    "PennTreebank",
    "Ragged",
    "Reviews",
    "Sequences",
    "adding",
    "batches",
    "columns",
    "imdb",
    "keep_frequent",
    "mnist",
    "permuted",
    "pixels",
    "ptb",
    "rows",
    "segments",
    "stand_ins",
    "stratified_split",
    "unigram_perplexity",
]
