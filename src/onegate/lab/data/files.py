"""The files of a data set: found, checked, or brought here."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .checksums import checksum_of, remembered_checksum
from .download import DownloadError, download
from .errors import ContentError, DamagedDataError, MissingDataError
from .folders import download_folder, locate, lookalikes, places
from .sources import Source, SourceFile


@dataclass(frozen=True)
class FoundFile:
    """A file on this machine, and the checksum its bytes have to have."""

    path: Path
    checksum: str

    def content(self) -> bytes:
        """The bytes of the file, which are checked: they may have changed since it was found."""
        content = self.path.read_bytes()
        algorithm = self.checksum.partition(":")[0]
        require_checksum(self.path, self.checksum, checksum_of(content, algorithm))
        return content

    def refused(self, why: ContentError, expected: str = "") -> DamagedDataError:
        """The error for a file that holds something else; `expected` says what was, if known."""
        return DamagedDataError(
            f"{self.path} is damaged and is not used: {why}. Its checksum is {self.checksum}"
            f"{expected}. Delete it and run `onegate data fetch`, or put a good copy in its place"
        )


def require_checksum(path: Path, expected: str, found: str) -> None:
    """Raises DamagedDataError unless the checksums are the same."""
    if expected != found:
        raise DamagedDataError(
            f"{path} is damaged and is not used: its checksum is {found}, expected {expected}. "
            "Delete it and run `onegate data fetch`, or put a good copy in its place"
        )


def complete(source: Source) -> Sequence[tuple[Path, SourceFile | None]]:
    """The paths of the first complete layout, not checked yet; empty if there is none.

    An archive that may hold the data set under a name of its own comes without a SourceFile.
    """
    for layout in source.layouts:
        located = [(path, file) for file in layout if (path := locate(source, file)) is not None]
        if len(located) == len(layout):
            return located
    return [(path, None) for path in lookalikes(source)][:1]


def find(source: Source) -> tuple[FoundFile, ...] | None:
    """The files of the first complete layout, checked; None if there is none."""
    return tuple(_checked(path, file) for path, file in complete(source)) or None


def _checked(path: Path, file: SourceFile | None) -> FoundFile:
    if file is None:
        return FoundFile(path, remembered_checksum(path, "sha256"))
    algorithm = file.checksum.partition(":")[0]
    require_checksum(path, file.checksum, remembered_checksum(path, algorithm))
    return FoundFile(path, file.checksum)


def obtain(source: Source, *, download: bool = True) -> tuple[FoundFile, ...]:
    """The files of a data set, from this machine or else from the network.

    Raises MissingDataError or DamagedDataError.
    """
    found = find(source)
    if found is not None:
        return found
    if not download:
        raise MissingDataError(_missing(source, ["nothing: downloading was not asked for"]))
    return fetch(source)


def fetch(source: Source) -> tuple[FoundFile, ...]:
    """Downloads what is missing or damaged, one layout after the other until one is complete."""
    with suppress(DamagedDataError):
        found = find(source)
        if found is not None:
            return found
    problems: list[str] = []
    for layout in source.layouts:
        try:
            return tuple(_fetched(source, file) for file in layout)
        except DownloadError as error:
            problems += error.problems
    raise MissingDataError(_missing(source, problems))


def _fetched(source: Source, file: SourceFile) -> FoundFile:
    path = locate(source, file)
    if path is not None:
        try:
            return _checked(path, file)
        except DamagedDataError:
            return FoundFile(download(file, path.parent), file.checksum)
    return FoundFile(download(file, download_folder(source)), file.checksum)


def _missing(source: Source, problems: list[str]) -> str:
    """What is missing, where it was looked for, where to get it, where to put it."""
    lacking = [
        [file for file in layout if locate(source, file) is None] for layout in source.layouts
    ]
    files = [file for layout in lacking for file in layout]
    names = ", or instead ".join(", ".join(file.name for file in layout) for layout in lacking)
    # A dictionary keeps the order and drops what comes again.
    looked = dict.fromkeys(str(path.parent) for file in files for path in places(source, file))
    archives = [f" (also for {', '.join(source.archives)})"] if source.archives else []
    return "\n  ".join(
        [
            f"{source.title}: missing {names}.",
            f"looked in: {', '.join(looked)}{''.join(archives)}",
            "tried to download:",
            *[f"  {problem}" for problem in problems],
            "get by hand:",
            *[f"  {file.name} ({file.checksum}) from {' or '.join(file.urls)}" for file in files],
            f"put into: {download_folder(source)}",
            "or set ONEGATE_DATA to a folder that holds the files.",
        ]
    )
