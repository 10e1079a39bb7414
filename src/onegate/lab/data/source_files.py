"""The files of a data set: found, checked, unpacked, or brought here."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pooch

from onegate import files

from .download import DownloadError, download
from .sources import ContentError, DamagedDataError, MissingDataError, Source, SourceFile


def cache_folder() -> Path:
    """The user's cache folder of this package; `XDG_CACHE_HOME` moves it."""
    return Path(pooch.os_cache("onegate")).expanduser()


def data_folders() -> tuple[Path, ...]:
    """The folders that are searched, in order: `$ONEGATE_DATA` if set, then the cache folder."""
    chosen = os.environ.get("ONEGATE_DATA")
    return (*([Path(chosen).expanduser()] if chosen else []), cache_folder())


def places(source: Source, file: SourceFile) -> list[Path]:
    """Every path at which a file may lie: in the data set's own folder, or directly."""
    return [
        folder / path
        for folder in data_folders()
        for path in (Path(source.name, file.name), Path(file.name))
    ]


def locate(source: Source, file: SourceFile) -> Path | None:
    """The first place at which the file is found."""
    return next((path for path in places(source, file) if path.is_file()), None)


def lookalikes(source: Source) -> Iterator[Path]:
    """Archives that may hold the data set under another name, in order."""
    official = {file.name for layout in source.layouts for file in layout}
    for folder in data_folders():
        for pattern in source.archives:
            for path in sorted(folder.glob(pattern)):
                if path.name not in official:
                    yield path


def download_folder(source: Source) -> Path:
    """Where downloads of a data set go: the first searched folder that can be written to."""
    folders = [folder / source.name for folder in data_folders()]
    return next((folder for folder in folders if _writable(folder)), folders[-1])


def _writable(folder: Path) -> bool:
    # Only trying tells: permission bits say nothing about read-only mounts or the superuser.
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            return True
    except OSError:
        return False


def checksum(path: Path, algorithm: str) -> str:
    """The checksum of a file's bytes, as `algorithm:digits`."""
    with path.open("rb") as file:
        return f"{algorithm}:{hashlib.file_digest(file, algorithm).hexdigest()}"


def checksum_of(content: bytes, algorithm: str) -> str:
    """The same of bytes."""
    return f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}"


def remembered_checksum(path: Path, algorithm: str) -> str:
    """The checksum of a file, computed again only if its size or time of change differ."""
    path = path.resolve()
    note = cache_folder() / "checksums" / f"{_name_of(path)}-{algorithm}.json"
    status = path.stat()
    state = {"path": str(path), "size": status.st_size, "mtime_ns": status.st_mtime_ns}
    with suppress(OSError, ValueError, LookupError, TypeError):
        noted = json.loads(note.read_text("utf-8"))
        if {**state, "checksum": noted["checksum"]} == noted:
            return str(noted["checksum"])
    found = checksum(path, algorithm)
    # A note that cannot be written costs time at the next start, nothing else.
    with suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True)
        files.write(note, json.dumps({**state, "checksum": found}).encode())
    return found


def _name_of(path: Path) -> str:
    return hashlib.sha256(str(path).encode()).hexdigest()[:16]


# The largest archive that is read, aclImdb_v1.tar.gz, has 100,000 reviews and unpacks to less than
# 350 MB. What goes beyond these bounds is none of ours, whatever it claims to be.
LARGEST_ARCHIVE = 500_000_000
MOST_MEMBERS = 200_000


def inflate(content: bytes, limit: int) -> bytes:
    """What gzip packed, if it is at most `limit` bytes; more than that are never unpacked."""
    try:
        with gzip.open(io.BytesIO(content)) as file:
            unpacked = file.read(limit + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ContentError(f"it is no whole gzip file: {error}") from None
    if len(unpacked) > limit:
        raise ContentError(
            f"its {len(content):,} bytes unpack to more than {limit:,}, expected at most that"
        )
    return unpacked


def members(content: bytes, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """The plain files of a tar.gz archive whose names are wanted, without a leading `./`."""
    content = inflate(content, LARGEST_ARCHIVE)
    found = {}
    try:
        # `r:` takes plain tar alone: what is packed twice would unpack beyond the bound.
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for number, member in enumerate(archive):
                if number >= MOST_MEMBERS:
                    raise ContentError(f"it has more than the {MOST_MEMBERS:,} members expected")
                name = member.name.removeprefix("./")
                if member.isfile() and not member.issparse() and wanted(name):
                    # Slices are much faster than a file object for each of many small members.
                    found[name] = content[member.offset_data : member.offset_data + member.size]
    except (tarfile.TarError, EOFError, OverflowError) as error:
        raise ContentError(f"it is no whole tar archive: {error}") from None
    return found


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
    wanted = [file for layout in lacking for file in layout]
    names = ", or instead ".join(", ".join(file.name for file in layout) for layout in lacking)
    # A dictionary keeps the order and drops what comes again.
    looked = dict.fromkeys(str(path.parent) for file in wanted for path in places(source, file))
    archives = [f" (also for {', '.join(source.archives)})"] if source.archives else []
    return "\n  ".join(
        [
            f"{source.title}: missing {names}.",
            f"looked in: {', '.join(looked)}{''.join(archives)}",
            "tried to download:",
            *[f"  {problem}" for problem in problems],
            "get by hand:",
            *[f"  {file.name} ({file.checksum}) from {' or '.join(file.urls)}" for file in wanted],
            f"put into: {download_folder(source)}",
            "or set ONEGATE_DATA to a folder that holds the files,",
            "or do without them: `--data stand-in` takes what is made here in their form.",
        ]
    )
