"""Parsed arrays: written once, memory-mapped ever after."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegate import files

from .checksums import checksum
from .errors import DataError
from .folders import cache_folder

Arrays = Mapping[str, NDArray[Any]]

_MANIFEST = "manifest.json"


def parsed_folder() -> Path:
    """Where parsed arrays are kept: the user's cache, so that data folders may be read-only."""
    return cache_folder() / "parsed"


def parsed(
    name: str, version: int, checksums: Sequence[str], parse: Callable[[], Arrays]
) -> Arrays:
    """The arrays that `parse` gives, read-only; it is called only if they are not kept yet.

    They are kept under `name`, the `version` of the parser and the `checksums` of its sources. A
    folder of arrays appears under its final name only when it is complete.
    """
    key = hashlib.sha256("\n".join([name, str(version), *checksums]).encode()).hexdigest()[:16]
    folder = parsed_folder() / f"{name}-{key}"
    if not _is_whole(folder):
        _keep(folder, parse)
    return {
        # asarray drops the subclass of mapped arrays, which slows down every small slice.
        file.stem: np.asarray(np.load(file, mmap_mode="r", allow_pickle=False))
        for file in folder.glob("*.npy")
    }


def kept_arrays(name: str) -> list[Path]:
    """The folders in which arrays of a data set are kept."""
    return sorted(parsed_folder().glob(f"{name}-*"))


def damaged_arrays(folder: Path) -> list[Path]:
    """Files of kept arrays that are not as they were written."""
    try:
        return [file for file, noted in _entries(folder) if not _is_as_noted(file, noted)]
    except (OSError, ValueError):
        return [folder / _MANIFEST]


def _is_as_noted(file: Path, noted: dict[str, Any]) -> bool:
    return file.is_file() and checksum(file, "sha256") == noted["checksum"]


def _is_whole(folder: Path) -> bool:
    """Whether all arrays are there at their full size: a crash of the system may cut files."""
    try:
        return all(file.stat().st_size == noted["size"] for file, noted in _entries(folder))
    except (OSError, ValueError):
        return False


def _entries(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    manifest = json.loads((folder / _MANIFEST).read_text("utf-8"))
    return [(folder / name, noted) for name, noted in manifest.items()]


def _keep(folder: Path, parse: Callable[[], Arrays]) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with files.locked(folder.with_name(f".{folder.name}.lock")):
            # Another process may have done the work while we waited.
            if not _is_whole(folder):
                _write(folder, parse())
    except DataError:
        raise
    except OSError as error:
        raise DataError(
            f"the arrays of {folder.name} cannot be written to {folder.parent}: {error}. Make "
            "room or allow writing there, or set XDG_CACHE_HOME to another folder"
        ) from error


def _write(folder: Path, arrays: Arrays) -> None:
    with tempfile.TemporaryDirectory(
        dir=folder.parent, prefix=f".{folder.name}-", ignore_cleanup_errors=True
    ) as temporary:
        draft = Path(temporary, "draft")
        draft.mkdir()
        for name, array in arrays.items():
            np.save(draft / f"{name}.npy", array, allow_pickle=False)
        manifest = {
            file.name: {"size": file.stat().st_size, "checksum": checksum(file, "sha256")}
            for file in draft.iterdir()
        }
        (draft / _MANIFEST).write_text(json.dumps(manifest, indent=1), "utf-8")
        if folder.exists():  # not whole, or we would not be here
            shutil.rmtree(folder)
        draft.rename(folder)
