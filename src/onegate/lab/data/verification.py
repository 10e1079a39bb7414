"""Reads every byte of what is there, whatever was remembered of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .arrays import damaged_arrays, kept_arrays
from .movie_reviews import parse_reviews
from .source_files import FoundFile, checksum, locate, lookalikes, require_checksum
from .sources import IMDB, DamagedDataError, Source, SourceFile

# Reads an archive by what is in it, for data sets that have `archives`; raises DamagedDataError.
READERS: Final[Mapping[str, Callable[[FoundFile], object]]] = {IMDB.name: parse_reviews}


@dataclass(frozen=True)
class CheckedPath:
    """A file or folder that was checked; `problem` is empty if it is good."""

    path: Path
    problem: str = ""


def verify(source: Source) -> list[CheckedPath]:
    """Checks all files of a data set on this machine, and the arrays parsed from them."""
    files = [file for layout in source.layouts for file in layout]
    findings = [
        _check_file(path, file) for file in files if (path := locate(source, file)) is not None
    ]
    findings += [_check_archive(source, path) for path in lookalikes(source)]
    return findings + [_check_arrays(folder) for folder in kept_arrays(source.name)]


def _check_file(path: Path, file: SourceFile) -> CheckedPath:
    try:
        require_checksum(path, file.checksum, checksum(path, file.checksum.partition(":")[0]))
    except DamagedDataError as error:
        return CheckedPath(path, str(error))
    return CheckedPath(path)


def _check_archive(source: Source, path: Path) -> CheckedPath:
    found = checksum(path, "sha256")
    if found not in source.known_archives:
        if source.name not in READERS:
            expected = " or ".join(source.known_archives) or "none that is known"
            return CheckedPath(path, f"{path} has {found}, expected {expected}")
        try:
            READERS[source.name](FoundFile(path, found))
        except DamagedDataError as error:
            return CheckedPath(path, str(error))
    return CheckedPath(path)


def _check_arrays(folder: Path) -> CheckedPath:
    damaged = ", ".join(file.name for file in damaged_arrays(folder))
    if damaged:
        return CheckedPath(
            folder,
            f"{folder} has damaged arrays ({damaged}): delete it, and it is "
            "made again from the files",
        )
    return CheckedPath(folder)
