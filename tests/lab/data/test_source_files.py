from __future__ import annotations

import gzip
import hashlib
import math
import os
import struct
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from onegate import files
from onegate.lab.data import DamagedDataError, DataError, MissingDataError, mnist, mnist_digits
from onegate.lab.data import source_files as data_files
from onegate.lab.data.source_files import (
    FoundFile,
    cache_folder,
    checksum,
    data_folders,
    download_folder,
    fetch,
    find,
    lookalikes,
    obtain,
    remembered_checksum,
)
from onegate.lab.data.sources import IMDB, MNIST, SOURCES, Source, SourceFile

if TYPE_CHECKING:
    from tests.lab.data.conftest import Mirror


def source_of(mirror: Mirror, *layouts: dict[str, str]) -> Source:
    """A data set whose files have the mirror's content; each layout names files and addresses."""
    checksum = f"sha256:{hashlib.sha256(mirror.content).hexdigest()}"
    return Source(
        "numbers",
        "Numbers",
        "http://example.org",
        tuple(
            tuple(SourceFile(name, checksum, (mirror.url(path),)) for name, path in layout.items())
            for layout in layouts
        ),
    )


def test_folders_in_order(data_folder: Path, cache: Path) -> None:
    assert cache_folder() == cache
    assert data_folders() == (data_folder, cache)


@pytest.mark.parametrize("value", [None, ""])
def test_without_a_data_folder(
    cache: Path, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    if value is not None:
        monkeypatch.setenv("ONEGATE_DATA", value)
    assert data_folders() == (cache,)


def test_downloads_go_where_writing_works(
    cache: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert download_folder(MNIST) == data_folder / "mnist"
    # Nothing can be made below a file, not even by the superuser.
    (data_folder / "file").touch()
    monkeypatch.setenv("ONEGATE_DATA", str(data_folder / "file"))
    assert download_folder(MNIST) == cache / "mnist"
    assert not cache.exists()


def test_fetch_then_obtain(mirror: Mirror, data_folder: Path) -> None:
    source = source_of(mirror, {"a.bin": "good", "b.bin": "good"})
    found = obtain(source)
    assert [file.path for file in found] == [
        data_folder / "numbers" / "a.bin",
        data_folder / "numbers" / "b.bin",
    ]
    assert found[0].content() == mirror.content
    assert len(mirror.requests) == 2
    assert obtain(source, download=False) == fetch(source) == found
    assert len(mirror.requests) == 2


def test_fetch_brings_only_what_is_missing(mirror: Mirror, data_folder: Path) -> None:
    (data_folder / "a.bin").write_bytes(mirror.content)
    found = fetch(source_of(mirror, {"a.bin": "absent", "b.bin": "good"}))
    assert [file.path.parent.name for file in found] == ["data", "numbers"]


def test_fetch_falls_back_to_another_layout(mirror: Mirror, cache: Path) -> None:
    source = source_of(mirror, {"all.tgz": "absent"}, {"a.txt": "good", "b.txt": "good"})
    assert [file.path.name for file in fetch(source)] == ["a.txt", "b.txt"]


def test_fetch_replaces_a_damaged_file(mirror: Mirror, data_folder: Path) -> None:
    source = source_of(mirror, {"a.bin": "good"})
    (data_folder / "a.bin").write_bytes(mirror.content[:-1])
    with pytest.raises(DamagedDataError):
        find(source)
    assert fetch(source)[0].path == data_folder / "a.bin"
    assert (data_folder / "a.bin").read_bytes() == mirror.content


def test_missing_and_offline(mirror: Mirror, data_folder: Path, cache: Path) -> None:
    source = source_of(mirror, {"all.tgz": "absent"}, {"a.txt": "good", "b.txt": "absent"})
    with pytest.raises(MissingDataError) as raised:
        obtain(source)
    message = str(raised.value)
    # What, where it was looked for, where to get it, where to put it; a.txt was downloaded.
    assert "Numbers: missing all.tgz, or instead b.txt." in message
    for folder in (data_folder / "numbers", data_folder, cache / "numbers", cache):
        assert str(folder) in message
    assert f"{mirror.url('absent')}: the server answered 404" in message
    assert f"b.txt ({source.layouts[0][0].checksum}) from {mirror.url('absent')}" in message
    assert f"put into: {data_folder / 'numbers'}" in message
    assert "ONEGATE_DATA" in message
    assert message.endswith("`--data stand-in` takes what is made here in their form.")


def test_missing_without_a_try_to_download(cache: Path) -> None:
    with pytest.raises(MissingDataError, match="downloading was not asked for"):
        mnist(download=False)
    assert not cache.exists()


@pytest.mark.parametrize("fault", ["truncated", "flipped", "empty"])
def test_damaged_file_is_named_and_not_used(mirror: Mirror, data_folder: Path, fault: str) -> None:
    source = source_of(mirror, {"a.bin": "good"})
    good = mirror.content
    bad = {"truncated": good[:-1], "flipped": bytes([good[0] ^ 1]) + good[1:], "empty": b""}[fault]
    (data_folder / "a.bin").write_bytes(bad)
    for _ in range(2):
        with pytest.raises(DamagedDataError) as raised:
            obtain(source)
        assert str(data_folder / "a.bin") in str(raised.value)
        assert hashlib.sha256(bad).hexdigest() in str(raised.value)
        assert hashlib.sha256(good).hexdigest() in str(raised.value)
    assert mirror.requests == []


def test_content_that_changed_since_it_was_found(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"new")
    with pytest.raises(DamagedDataError, match="expected md5:0123"):
        FoundFile(path, "md5:0123").content()


def test_official_archives_are_not_lookalikes(data_folder: Path) -> None:
    (data_folder / "imdb").mkdir()
    for name in ("aclImdb_v1.tar.gz", "imdb/b.tgz", "imdb/a.tar.gz", "aclImdb_2.tgz", "else.tgz"):
        (data_folder / name).touch()
    names = [path.name for path in lookalikes(IMDB)]
    assert names == ["a.tar.gz", "b.tgz", "aclImdb_2.tgz"]


def test_sources_are_complete() -> None:
    for source in SOURCES.values():
        for layout in source.layouts:
            for file in layout:
                algorithm, _, digits = file.checksum.partition(":")
                assert len(digits) == {"md5": 32, "sha256": 64}[algorithm]
                assert file.urls
                assert all(url.endswith(file.name) for url in file.urls)


def test_https_comes_first_and_sha256_wherever_there_is_one() -> None:
    for source in SOURCES.values():
        for file in (file for layout in source.layouts for file in layout):
            schemes = [url.partition("://")[0] for url in file.urls]
            assert schemes == sorted(schemes, reverse=True), "https, then http"
            assert schemes[0] == "https"
            assert file.checksum.startswith("sha256:") != bool(file.why_not_sha256), file.name
        first = [file.checksum for file in source.layouts[0]]
        assert all(checksum.startswith("sha256:") for checksum in first), "what is fetched first"


def test_errors_are_of_one_family() -> None:
    assert issubclass(MissingDataError, DataError)
    assert issubclass(DamagedDataError, DataError)


# The images and labels of a tiny MNIST, in the layouts that are known.


def idx(*shape: int) -> bytes:
    header = struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape)
    values = bytes(i % 10 for i in range(math.prod(shape)))
    return gzip.compress(header + values, mtime=0)


@pytest.fixture
def tiny_mnist(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    contents = [idx(4, 28, 28), idx(4), idx(2, 28, 28), idx(2)]
    files = tuple(
        replace(file, checksum=f"sha256:{hashlib.sha256(content).hexdigest()}", urls=())
        for file, content in zip(MNIST.layouts[0], contents, strict=True)
    )
    monkeypatch.setattr(mnist_digits, "MNIST", replace(MNIST, layouts=(files,)))
    return {file.name: content for file, content in zip(files, contents, strict=True)}


@pytest.mark.parametrize("layout", ["folder", "direct", "mixed"])
def test_mnist_layouts(
    tiny_mnist: dict[str, bytes], data_folder: Path, cache: Path, layout: str
) -> None:
    for number, (name, content) in enumerate(tiny_mnist.items()):
        folder = {
            "folder": data_folder / "mnist",
            "direct": data_folder,
            "mixed": [data_folder, data_folder / "mnist", cache, cache / "mnist"][number],
        }[layout]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    digits = mnist(download=False)
    assert digits.train.images.shape == (4, 28, 28)
    assert digits.train.images[1, 0, :3].tolist() == [4, 5, 6]
    assert digits.test.labels.tolist() == [0, 1]


def test_data_folder_is_never_written_to(
    tiny_mnist: dict[str, bytes], data_folder: Path, cache: Path
) -> None:
    for name, content in tiny_mnist.items():
        (data_folder / name).write_bytes(content)
        (data_folder / name).chmod(0o444)
    data_folder.chmod(0o555)
    before = data_folder.stat().st_mtime_ns, sorted(data_folder.iterdir())
    try:
        mnist(download=False)
        assert (data_folder.stat().st_mtime_ns, sorted(data_folder.iterdir())) == before
        assert len(list(cache.glob("parsed/mnist-*/*.npy"))) == 4
    finally:
        data_folder.chmod(0o755)


def test_second_start_reads_no_source(
    tiny_mnist: dict[str, bytes], data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in tiny_mnist.items():
        (data_folder / name).write_bytes(content)
    first = mnist(download=False)

    def fail(*_: object) -> None:
        raise AssertionError("the second start did the work of the first")

    monkeypatch.setattr(mnist_digits, "_parse", fail)
    monkeypatch.setattr("onegate.lab.data.source_files.checksum", fail)
    monkeypatch.setattr(FoundFile, "content", fail)
    second = mnist(download=False)
    assert second.train.images.tolist() == first.train.images.tolist()


def test_changed_source_is_noticed_after_parsing(
    tiny_mnist: dict[str, bytes], data_folder: Path
) -> None:
    for name, content in tiny_mnist.items():
        (data_folder / name).write_bytes(content)
    mnist(download=False)
    name, content = next(iter(tiny_mnist.items()))
    (data_folder / name).write_bytes(content[:-1] + b"?")
    os.utime(data_folder / name, ns=(1, 1))
    with pytest.raises(DamagedDataError, match=name):
        mnist(download=False)


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

    monkeypatch.setattr(data_files, "checksum", spy)
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
