"""Where data is looked for, and where it is kept."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pooch

from .sources import Source, SourceFile


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
