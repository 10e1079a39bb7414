"""Files that are whole or not there, even after a crash, and locks that die with their process."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[str]) -> None:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(file: IO[str]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


# Left behind by a killed process only; `remove_drafts` clears them away.
_DRAFT = ".draft"
# Seconds between two looks at a lock that somebody holds.
_BETWEEN_TRIES = 0.2


def write(path: Path, content: bytes) -> None:
    """Writes a draft beside `path`, brings it to the disk, then moves it into place."""
    draft = path.with_name(f".{path.name}.{os.getpid()}{_DRAFT}")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """The same for a JSON object."""
    write(path, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())


def require_writable(path: Path) -> None:
    """Says why a file cannot be written before the work for its content is done."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path} cannot be written: there is no folder {path.parent}")
    if path.is_dir():
        raise IsADirectoryError(f"{path} cannot be written: it is a folder")
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"{path} cannot be written: the folder {path.parent} is read-only")


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; what is not one is an error that names the file."""
    return json_object(path.read_bytes(), path)


def json_object(content: bytes | str, where: object) -> dict[str, Any]:
    """The JSON object in a text; what is not one is an error that names `where` it came from."""
    try:
        found = json.loads(content)
    except ValueError as error:
        raise ValueError(f"{where} is not JSON: {error}; it was damaged or edited") from None
    if not isinstance(found, dict):
        raise ValueError(f"{where} holds {type(found).__name__}, expected a JSON object")
    return found


def remove_drafts(folder: Path) -> None:
    """Clears away what killed processes were writing. Only for who holds the folder's lock."""
    for draft in folder.glob(f".*{_DRAFT}"):
        draft.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, patience: float | None = None) -> Iterator[IO[str]]:
    """Holds the lock file `path`, which other processes then wait for; gives the open file.

    patience: seconds to wait for who holds it, None for as long as it takes; then it is a
        `HeldError` with what that process wrote into the file.

    Closing the file frees the lock, so whatever ends the process that holds it frees it too.
    """
    deadline = None if patience is None else time.monotonic() + patience
    with path.open("a+", encoding="utf-8") as file:
        while not try_lock(file):
            if deadline is not None and time.monotonic() >= deadline:
                file.seek(0)
                raise HeldError(file.read().strip() or "another process")
            time.sleep(_BETWEEN_TRIES)
        yield file


class HeldError(Exception):
    """Another process holds a lock; the message is its name."""


def try_lock(file: IO[str]) -> bool:
    """Locks an open file until it is closed, or says that another process has done so."""
    try:
        _lock(file)
    except (BlockingIOError, PermissionError):  # the latter on Windows
        return False
    return True
