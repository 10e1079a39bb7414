from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from onegate import files
from onegate.lab.data import checksums
from onegate.lab.data.checksums import checksum, remembered_checksum


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    return path


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    calls: list[Path] = []

    def spy(path: Path, algorithm: str) -> str:
        calls.append(path)
        return checksum(path, algorithm)

    monkeypatch.setattr(checksums, "checksum", spy)
    return calls


def test_checksum(file: Path) -> None:
    assert checksum(file, "md5") == "md5:" + hashlib.md5(b"content").hexdigest()
    assert checksum(file, "sha256") == "sha256:" + hashlib.sha256(b"content").hexdigest()


def test_computed_once(cache: Path, file: Path, computed: list[Path]) -> None:
    assert remembered_checksum(file, "md5") == checksum(file, "md5")
    assert remembered_checksum(file, "md5") == checksum(file, "md5")
    assert len(computed) == 1
    assert remembered_checksum(file, "sha256") == checksum(file, "sha256")
    assert len(computed) == 2


@pytest.mark.parametrize("change", ["size", "time", "name"])
def test_computed_again_after_a_change(
    cache: Path, file: Path, computed: list[Path], change: str
) -> None:
    remembered_checksum(file, "md5")
    old = file.stat().st_mtime_ns
    if change == "size":
        file.write_bytes(b"more content")
        os.utime(file, ns=(old, old))
    elif change == "time":
        file.write_bytes(b"CONTENT")
        os.utime(file, ns=(old + 1, old + 1))
    else:
        file = file.rename(file.with_name("other"))
    assert remembered_checksum(file, "md5") == checksum(file, "md5")
    assert len(computed) == 2


@pytest.mark.parametrize("note", [b"", b"[]", b"{}", b"null", b'{"checksum": "md5:0"}', b"\xff"])
def test_spoilt_note_is_written_anew(
    cache: Path, file: Path, computed: list[Path], note: bytes
) -> None:
    remembered_checksum(file, "md5")
    (path,) = (cache / "checksums").iterdir()
    path.write_bytes(note)
    for _ in range(2):
        assert remembered_checksum(file, "md5") == checksum(file, "md5")
    assert len(computed) == 2


def test_cache_that_cannot_be_written(cache: Path, file: Path) -> None:
    cache.parent.mkdir()
    cache.touch()
    assert remembered_checksum(file, "md5") == checksum(file, "md5")


def test_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "note"
    files.write(path, b"old")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        files.write(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
