from __future__ import annotations

import hashlib
import io
import logging.handlers
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pooch
import pytest

import onegate
from onegate.lab import signs_of_life
from onegate.lab.data.download import DownloadError, download, transfer_bar
from onegate.lab.data.sources import DataError, SourceFile
from onegate.lab.train.progress import alive

if TYPE_CHECKING:
    from tests.lab.data.conftest import Mirror


def wanted(mirror: Mirror, *behaviours: str) -> SourceFile:
    checksum = f"md5:{hashlib.md5(mirror.content).hexdigest()}"
    return SourceFile("numbers.bin", checksum, tuple(map(mirror.url, behaviours)))


def visible(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def test_brings_the_file_and_nothing_else(mirror: Mirror, tmp_path: Path) -> None:
    path = download(wanted(mirror, "good"), tmp_path / "new" / "folder")
    assert path.read_bytes() == mirror.content
    assert visible(path.parent) == {"numbers.bin"}


@pytest.mark.parametrize("fault", ["absent", "wrong", "cut", "silent", "dripping"])
def test_goes_on_to_the_next_mirror(mirror: Mirror, tmp_path: Path, fault: str) -> None:
    path = download(wanted(mirror, fault, "good"), tmp_path, patience=1.0)
    assert path.read_bytes() == mirror.content
    assert visible(tmp_path) == {"numbers.bin"}


def test_all_mirrors_fail_with_every_reason(mirror: Mirror, tmp_path: Path) -> None:
    file = wanted(mirror, "absent", "wrong", "silent", "dripping", "cut")
    with pytest.raises(DownloadError) as raised:
        download(file, tmp_path, patience=1.0)
    absent, wrong, silent, dripping, cut = raised.value.problems
    assert absent == f"{mirror.url('absent')}: the server answered 404 Not Found"
    assert hashlib.md5(mirror.content[::-1]).hexdigest() in wrong
    assert hashlib.md5(mirror.content).hexdigest() in wrong
    assert "timed out" in silent
    assert "bytes in" in dripping
    assert mirror.url("cut") in cut
    assert not (tmp_path / "numbers.bin").exists()


def test_unreachable_host_suggests_being_offline(tmp_path: Path) -> None:
    file = SourceFile("numbers.bin", "md5:0", ("http://127.0.0.1:9/numbers.bin",))
    with pytest.raises(DownloadError, match=r"127\.0\.0\.1:9/numbers\.bin: no connection.*offline"):
        download(file, tmp_path)


def test_an_interrupted_download_is_resumed(mirror: Mirror, tmp_path: Path) -> None:
    with pytest.raises(DownloadError):
        download(wanted(mirror, "cut"), tmp_path)
    assert (tmp_path / "numbers.bin.part").stat().st_size == 10_240
    assert not (tmp_path / "numbers.bin").exists()

    path = download(wanted(mirror, "good"), tmp_path)
    assert path.read_bytes() == mirror.content
    assert mirror.requests[-1] == ("/good", "bytes=10240-")


def test_mirror_that_cannot_resume_starts_again(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "numbers.bin.part").write_bytes(mirror.content[:1000])
    path = download(wanted(mirror, "without_ranges"), tmp_path)
    assert path.read_bytes() == mirror.content


@pytest.mark.parametrize("left", [10, 51_200, 60_000])
def test_bad_rest_of_an_earlier_try_does_not_spoil_a_good_mirror(
    mirror: Mirror, tmp_path: Path, left: int
) -> None:
    (tmp_path / "numbers.bin.part").write_bytes(b"?" * left)
    path = download(wanted(mirror, "good"), tmp_path)
    assert path.read_bytes() == mirror.content
    assert [request for _, request in mirror.requests] == [f"bytes={left}-", None]


def test_whole_rest_of_an_earlier_try_is_used(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "numbers.bin.part").write_bytes(mirror.content)
    assert download(wanted(mirror, "good"), tmp_path).read_bytes() == mirror.content
    assert len(mirror.requests) == 1


def test_damaged_file_is_replaced(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "numbers.bin").write_bytes(b"damaged")
    assert download(wanted(mirror, "good"), tmp_path).read_bytes() == mirror.content


def test_good_file_is_not_downloaded_again(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "numbers.bin").write_bytes(mirror.content)
    download(wanted(mirror, "good"), tmp_path)
    assert mirror.requests == []


def test_folder_that_cannot_be_written(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    with pytest.raises(DataError, match=r"numbers\.bin cannot be written to .*taken.*ONEGATE_DATA"):
        download(wanted(mirror, "good"), tmp_path / "taken")


def test_plain_line_without_a_terminal(
    mirror: Mirror, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    download(wanted(mirror, "good"), tmp_path)
    assert capfd.readouterr() == ("", "downloading numbers.bin\n")


def test_a_file_that_does_not_come_leaves_what_to_say_to_who_asked(
    mirror: Mirror, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DownloadError):
        download(wanted(mirror, "absent"), tmp_path)
    assert capfd.readouterr() == ("", "")


def test_on_a_terminal_a_bar_has_a_line_below_what_it_is_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    signs_of_life.cache_clear()  # a console knows from its start whether it is one of a terminal
    with alive("reading the data"), transfer_bar("numbers.bin") as report:
        report(1_000, 2_000)
        deadline = time.monotonic() + 10
        while shown.getvalue().count("numbers.bin") < 2 and time.monotonic() < deadline:
            time.sleep(0.02)  # it is drawn ten times a second
    signs_of_life.cache_clear()
    assert re.search(r"reading the data[^\n]*\n[^\n]*numbers\.bin", shown.getvalue())


def test_pooch_is_silent_for_us_and_not_for_others(mirror: Mirror, tmp_path: Path) -> None:
    handler = logging.handlers.BufferingHandler(100)
    logger = pooch.get_logger()
    logger.addHandler(handler)
    try:
        download(wanted(mirror, "good"), tmp_path)
        assert handler.buffer == []
        pooch.retrieve(mirror.url("good"), None, "other.bin", tmp_path)
        assert handler.buffer
    finally:
        logger.removeHandler(handler)


def test_killed_download_leaves_no_half_file(mirror: Mirror, tmp_path: Path) -> None:
    file = wanted(mirror, "dripping")
    script = (
        "from pathlib import Path\n"
        "from onegate.lab.data.download import download\n"
        "from onegate.lab.data.sources import SourceFile\n"
        f"download({file!r}, Path({str(tmp_path)!r}))"
    )
    source = str(Path(onegate.__file__).parents[1])
    child = subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": source},
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "numbers.bin.part").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert (tmp_path / "numbers.bin.part").exists()
    assert not (tmp_path / "numbers.bin").exists()
    assert download(wanted(mirror, "good"), tmp_path).read_bytes() == mirror.content
