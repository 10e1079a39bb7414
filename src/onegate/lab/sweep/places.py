"""Where the results of a sweep land: a folder, or any address that fsspec knows.

A run at an address is trained in a temporary folder of its machine. Whenever it has a new
checkpoint, its files go up; a run that is taken up again begins with what is there.
"""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from onegate import files
from onegate.lab.runs import RunFolder
from onegate.lab.train.progress import Observer, Position


class PlaceError(ValueError):
    """Results cannot be stored at a place."""


class Place(ABC):
    """A place for run folders and what belongs to all of them."""

    address: str

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """The content of a file, None if there is none."""

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Stores a file."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Removes a file if it is there."""

    @abstractmethod
    def names(self) -> list[str]:
        """The files that belong to no run."""

    @abstractmethod
    def working(self, name: str) -> AbstractContextManager[tuple[Path, Sequence[Observer]]]:
        """For a `with` block: the folder to train a run in, and observers that the place needs."""

    def status(self, name: str) -> dict[str, Any]:
        """The status of a run, empty if it has none or a damaged one."""
        try:
            content = files.parse_json(self.read(f"{name}/status.json") or b"{}")
        except ValueError:
            return {}
        return content if isinstance(content, dict) else {}

    def is_done(self, name: str) -> bool:
        return self.status(name).get("state") == "done"

    def __str__(self) -> str:
        return self.address


class Folder(Place):
    """A folder of this machine, or of all machines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.address = str(path)

    def read(self, name: str) -> bytes | None:
        try:
            return (self.path / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, name: str, content: bytes) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            files.write(self.path / name, content)
        except OSError as error:
            raise PlaceError(
                f"{self.path} cannot be written: {error.strerror}; choose another folder with "
                "--runs"
            ) from None

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        return [path.name for path in self.path.iterdir() if path.is_file()]

    @contextmanager
    def working(self, name: str) -> Iterator[tuple[Path, Sequence[Observer]]]:
        """The run's folder itself."""
        yield self.path / name, ()


class Address(Place):
    """A store that fsspec opens, such as s3://bucket/runs."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        try:
            import fsspec

            self.store, self.root = fsspec.core.url_to_fs(self.address)
        except (ImportError, ValueError, OSError) as error:
            raise PlaceError(
                f"{address} cannot be opened: {error}. Install what it needs "
                "(pip install 'onegate[ray]' and fsspec's package for this kind of address), or "
                "choose a folder with --runs"
            ) from None

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def read(self, name: str) -> bytes | None:
        try:
            return bytes(self.store.cat_file(self._path(name)))
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        try:
            path = self._path(name)
            self.store.makedirs(path.rpartition("/")[0], exist_ok=True)
            self.store.pipe_file(path, content)
        except OSError as error:
            raise PlaceError(f"{self.address} cannot be written: {error}") from None

    def remove(self, name: str) -> None:
        if self.store.exists(self._path(name)):
            self.store.rm_file(self._path(name))

    @contextmanager
    def working(self, name: str) -> Iterator[tuple[Path, Sequence[Observer]]]:
        """A temporary folder that begins with what is stored; in the end everything is."""
        with tempfile.TemporaryDirectory(prefix="onegate-") as temporary:
            folder = Path(temporary) / name
            self._fetch(name, folder)
            copy = _Copy(self, folder)
            try:
                yield folder, (copy,)
            finally:
                copy.bring_up_to_date()

    def names(self) -> list[str]:
        self.store.invalidate_cache(self.root)
        found = self.store.ls(self.root, detail=True)
        return [e["name"].rpartition("/")[2] for e in found if e["type"] == "file"]

    def names_of(self, name: str) -> list[str]:
        """The files of a run, below its folder."""
        root = self._path(name)
        if not self.store.exists(root):
            return []
        self.store.invalidate_cache(root)
        return [path.removeprefix(f"{root}/") for path in self.store.find(root)]

    def _fetch(self, name: str, folder: Path) -> None:
        for inner in self.names_of(name):
            content = self.read(f"{name}/{inner}")
            if content is not None:
                path = folder / inner
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)


class _Copy:
    """An observer that brings a run's files to an address after every checkpoint."""

    def __init__(self, address: Address, folder: Path) -> None:
        self.address, self.folder = address, folder
        self.checkpoints = RunFolder(folder).checkpoints
        self.last = self.checkpoints.updates()
        self.sent: dict[str, tuple[int, int]] = {}

    def started(self, title: str) -> None:  # noqa: ARG002 - an observer's
        self.bring_up_to_date()

    def updated(self, position: Position) -> None:  # noqa: ARG002 - an observer's
        """Brings up what is new if there is a new checkpoint."""
        now = self.checkpoints.updates()
        if now != self.last:
            self.last = now
            self.bring_up_to_date()

    def evaluated(self, *_: object) -> None:
        """The metric is there for those who look on."""
        self._send("metrics.jsonl")

    def ended(self) -> None:
        """The end of the `with` block does the rest."""

    def bring_up_to_date(self) -> None:
        """Everything that is new goes up, a checkpoint's JSON after its tensors, the status last.

        What the run removed is removed there too, when what replaces it is there.
        """
        here = [p for p in self.folder.rglob("*") if p.is_file() and not p.name.startswith(".")]
        names = [p.relative_to(self.folder).as_posix() for p in here if p.name != "lock"]
        order = {".safetensors": 0, ".json": 1}
        for name in sorted(names, key=lambda n: (n == "status.json", order.get(Path(n).suffix, 0))):
            self._send(name)
        for old in set(self.address.names_of(self.folder.name)) - set(names):
            self.address.remove(f"{self.folder.name}/{old}")

    def _send(self, name: str) -> None:
        path = self.folder / name
        try:
            now = path.stat()
            version = now.st_mtime_ns, now.st_size
            if self.sent.get(name) != version:
                self.address.write(f"{self.folder.name}/{name}", path.read_bytes())
                self.sent[name] = version
        except FileNotFoundError:
            return


def place(text: str | Path) -> Place:
    """The place that a text names: a folder, or an address with `://` in it."""
    if "://" in str(text):
        return Address(str(text))
    return Folder(Path(text))
