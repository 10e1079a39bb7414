"""Files that are whole or not there, even after a crash."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
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


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; what is not one is an error that names the file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}; it was damaged or edited") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds {type(content).__name__}, expected a JSON object")
    return content


def remove_drafts(folder: Path) -> None:
    """Clears away what killed processes were writing. Only for who holds the folder's lock."""
    for draft in folder.glob(f".*{_DRAFT}"):
        draft.unlink(missing_ok=True)


def try_lock(file: IO[str]) -> bool:
    """Locks an open file until it is closed, or says that another process has done so.

    Whatever ends the process that holds the lock also frees it.
    """
    try:
        _lock(file)
    except OSError:
        return False
    return True
