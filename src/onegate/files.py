"""Files that are whole or not there, even after a crash, and locks that die with their process."""

from __future__ import annotations

import errno
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[str]) -> None:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(file: IO[str]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


# Whole numbers of more digits are no count, update or seed.
_LONGEST_NUMBER = 20
_SHOWN = 40  # characters of a wrong value
_KINDS: dict[type, str] = {dict: "an object", list: "a list"}
_PLAIN_KINDS: dict[Any, str] = {int: "a whole number from 0 on", float: "a number", str: "a text"}
# What file systems say that cannot bring a folder to the disk.
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES)

# Left behind by a killed process only; `remove_drafts` clears them away.
_DRAFT = ".draft"
# Seconds between two looks at a lock that somebody holds.
_BETWEEN_TRIES = 0.2


def write(path: Path, content: bytes) -> None:
    """Writes a draft beside `path`, brings it to the disk, then moves it into place."""
    write_all({path: content})


def write_all(contents: Mapping[Path, bytes]) -> None:
    """Several files: none is replaced before all are on the disk as drafts."""
    drafts = {path: path.with_name(f".{path.name}.{os.getpid()}{_DRAFT}") for path in contents}
    try:
        for path, draft in drafts.items():
            with draft.open("wb") as file:
                file.write(contents[path])
                file.flush()
                os.fsync(file.fileno())
        for path, draft in drafts.items():
            draft.replace(path)
        for folder in {path.parent for path in drafts}:
            _bring_to_disk(folder)
    except BaseException:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)
        raise


def append(path: Path, content: bytes) -> None:
    """Adds to a file; the bytes are on the disk when this returns."""
    with path.open("ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _bring_to_disk(folder: Path) -> None:
    """A new name survives a loss of power only when its folder is on the disk, too."""
    if sys.platform == "win32":
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(opened)


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


def read_json(path: Path, kind: Any = None) -> dict[str, Any]:
    """The JSON object in a file, of a `kind` as `require` has them.

    What is not one is a `ValueError` that names the file; a missing file is an `OSError`.
    """
    try:
        content = parse_json(path.read_bytes())
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}; it was damaged or edited") from None
    try:
        require(content, {} if kind is None else kind, "")
    except ValueError as error:
        raise ValueError(f"{path}: {error}; it was damaged or edited") from None
    return cast("dict[str, Any]", content)


def parse_json(content: bytes, unique: bool = False) -> Any:
    """The value in JSON text; whatever is wrong with the text is a `ValueError`.

    unique: a name that an object has twice is wrong, too; else the last one counts.
    """
    try:
        return json.loads(
            content.decode("utf-8"),
            parse_int=_whole_number,
            parse_float=_finite_number,
            parse_constant=_finite_number,
            object_pairs_hook=_unique if unique else None,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name in found if [n for n, _ in pairs].count(name) > 1)
        raise ValueError(f"the name {twice!r} stands twice")
    return found


def _whole_number(text: str) -> int:
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _finite_number(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:_LONGEST_NUMBER]} is no finite number")
    return number


def require(found: Any, kind: Any, what: str) -> None:
    """Raises `ValueError` unless a value from JSON is of a kind; `what` is its name, if it has one.

    kind: `int` for a whole number from 0 on, `float` for any number, `str` for a text; `[kind]`
        for a list; `{"name": kind, "other?": kind, ...: kind}` for an object with a name, one
        that may be missing, and all further ones; a set for one of its values; a tuple for one of
        several kinds, None among them.
    """
    if isinstance(kind, dict) and isinstance(found, dict):
        _require_names(found, kind, what)
    elif isinstance(kind, list) and isinstance(found, list):
        for number, item in enumerate(found):
            require(item, kind[0], f"{what}[{number}]")
    elif isinstance(kind, tuple):
        fitting = next((k for k in kind if isinstance(found, _type(k))), kind[-1])
        require(found, fitting, what)
    elif not _is_plain(found, kind):
        shown = _KINDS.get(type(found)) or json.dumps(found)[:_SHOWN]
        raise ValueError(f"{what or 'its content'} is {shown}, expected {_described(kind)}")


def _require_names(found: dict[str, Any], kind: dict[Any, Any], what: str) -> None:
    before = f"{what}." if what else ""
    known = {name.removesuffix("?") for name in kind if name is not ...}
    for name, inner in kind.items():
        if name is ...:
            for other in found.keys() - known:
                require(found[other], inner, before + other)
        elif (plain := name.removesuffix("?")) in found:
            require(found[plain], inner, before + plain)
        elif plain == name:
            raise ValueError(f"{before}{name} is missing")


def _type(kind: Any) -> Any:
    """The type of the values that may be of a kind."""
    return type(kind) if not isinstance(kind, type) else (int, float) if kind is float else kind


def _is_plain(found: Any, kind: Any) -> bool:
    if isinstance(kind, frozenset | set):
        return isinstance(found, str) and found in kind
    if kind in (int, float):
        number = isinstance(found, _type(kind)) and not isinstance(found, bool)
        return number and (kind is float or found >= 0)
    return found is None if kind is None else kind is str and isinstance(found, str)


def _described(kind: Any) -> str:
    if isinstance(kind, frozenset | set):
        return f"one of {', '.join(sorted(kind))}"
    return _KINDS.get(type(kind)) or _PLAIN_KINDS.get(kind, "null")


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
