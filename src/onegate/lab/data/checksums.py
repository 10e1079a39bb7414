"""Checksums of files, remembered so that large files are read once."""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path

from onegate import files

from .folders import cache_folder


def checksum(path: Path, algorithm: str) -> str:
    """The checksum of a file's bytes, as `algorithm:digits`."""
    with path.open("rb") as file:
        return f"{algorithm}:{hashlib.file_digest(file, algorithm).hexdigest()}"


def remembered_checksum(path: Path, algorithm: str) -> str:
    """The checksum of a file, computed again only if its size or time of change differ."""
    path = path.resolve()
    note = cache_folder() / "checksums" / f"{_name_of(path)}-{algorithm}.json"
    status = path.stat()
    state = {"path": str(path), "size": status.st_size, "mtime_ns": status.st_mtime_ns}
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        noted = json.loads(note.read_text("utf-8"))
        if {**state, "checksum": noted["checksum"]} == noted:
            return str(noted["checksum"])
    found = checksum(path, algorithm)
    # A note that cannot be written costs time at the next start, nothing else.
    with contextlib.suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True)
        files.write(note, json.dumps({**state, "checksum": found}).encode())
    return found


def _name_of(path: Path) -> str:
    return hashlib.sha256(str(path).encode()).hexdigest()[:16]
