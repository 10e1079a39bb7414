"""What can be wrong with a data set."""

from __future__ import annotations


class DataError(OSError):
    """A data set cannot be used; the message says why and what to do."""


class MissingDataError(DataError):
    """A file is nowhere to be found and could not be downloaded."""


class DamagedDataError(DataError):
    """A file is not what was published; it is never used."""


class ContentError(ValueError):
    """What is in a file is not what should be there; the message does not name the file."""
