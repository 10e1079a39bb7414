"""Arrays: parsed once and memory-mapped ever after; ragged ones; lists of words."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from onegate import files

from .source_files import cache_folder, checksum
from .sources import DataError

Arrays = Mapping[str, NDArray[Any]]

_MANIFEST = "manifest.json"
# What reading a damaged one can end in.
_DAMAGE = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)


_KEY_DIGITS = 16


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
    key = hashlib.sha256("\n".join([name, str(version), *checksums]).encode()).hexdigest()
    folder = parsed_folder() / f"{name}-{key[:_KEY_DIGITS]}"
    if not _is_whole(folder):
        _keep(folder, parse)
    return {
        # asarray drops the subclass of mapped arrays, which slows down every small slice.
        file.stem: np.asarray(np.load(file, mmap_mode="r", allow_pickle=False))
        for file in folder.glob("*.npy")
    }


def kept_arrays(name: str) -> list[Path]:
    """The folders in which arrays of a data set are kept."""
    digits = "[0-9a-f]" * _KEY_DIGITS  # not what only begins with the same name
    return sorted(parsed_folder().glob(f"{name}-{digits}"))


def damaged_arrays(folder: Path) -> list[Path]:
    """Files of kept arrays that are not as they were written."""
    try:
        return [file for file, noted in _entries(folder) if not _is_as_noted(file, noted)]
    except _DAMAGE:
        return [folder / _MANIFEST]


def _is_as_noted(file: Path, noted: dict[str, Any]) -> bool:
    return file.is_file() and checksum(file, "sha256") == noted["checksum"]


def _is_whole(folder: Path) -> bool:
    """Whether all arrays are there at their full size: a crash of the system may cut files."""
    try:
        return all(file.stat().st_size == noted["size"] for file, noted in _entries(folder))
    except _DAMAGE:
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


End = Literal["start", "end"]


@dataclass(frozen=True)
class Ragged:
    """N sequences one after the other.

    `values` is (total length,) int32; `offsets` is (N + 1,) int64: sequence i is
    `values[offsets[i]:offsets[i + 1]]`.

    >>> words = Ragged.of([[5, 6, 7], [8]])
    >>> words.lengths
    array([3, 1])
    >>> words.padded(2, keep="end")[0]
    array([[6, 7],
           [8, 0]], dtype=int32)
    """

    values: NDArray[np.int32]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> Ragged:
        """From a list of lists."""
        flat = [value for sequence in sequences for value in sequence]
        return cls(np.array(flat, np.int32), offsets_of([len(s) for s in sequences]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> NDArray[np.int32]:
        start, end = self.offsets[range(len(self))[index] :][:2]
        return self.values[start:end]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(N,) int64."""
        return np.diff(self.offsets)

    def take(self, indices: NDArray[np.int64]) -> Ragged:
        """The chosen sequences, in the given order."""
        starts = self.offsets[indices]
        lengths = self.offsets[indices + 1] - starts
        return Ragged(self.values[concatenated_ranges(starts, lengths)], offsets_of(lengths))

    def padded(
        self, length: int | None = None, *, keep: End = "start", pad: End = "end", fill: int = 0
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """An (N, length) array and the (N,) lengths of what it holds.

        Longer sequences keep their start or their end; shorter ones get `fill` at their start or
        their end. Without `length` the longest sequence gives it.
        """
        lengths = self.lengths
        if length is None:
            length = int(lengths.max(initial=0))
        kept = np.minimum(lengths, length)
        starts = self.offsets[:-1] + (lengths - kept if keep == "end" else 0)
        column = np.arange(length)
        filled = column < kept[:, None] if pad == "end" else column >= length - kept[:, None]
        array = np.full((len(self), length), fill, np.int32)
        array[filled] = self.values[concatenated_ranges(starts, kept)]
        return array, kept


def offsets_of(lengths: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """(N + 1,) offsets of sequences with these lengths."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def concatenated_ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """start, start + 1, ... for each start, `length` numbers each, in one array."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    shifts: NDArray[np.int64] = np.repeat(starts - (ends - lengths), lengths)
    return np.arange(total) + shifts


def as_array(words: Sequence[str]) -> NDArray[np.uint8]:
    """UTF-8, one word a line; words hold no line ends."""
    return np.frombuffer("\n".join(words).encode(), np.uint8)


def as_words(array: NDArray[np.uint8]) -> tuple[str, ...]:
    """The words of `as_array`."""
    return tuple(array.tobytes().decode().split("\n"))
