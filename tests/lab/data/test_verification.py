from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from onegate.lab.data import verification
from onegate.lab.data.arrays import kept_arrays, parsed
from onegate.lab.data.source_files import remembered_checksum
from onegate.lab.data.sources import IMDB, SOURCES, Source, SourceFile
from onegate.lab.data.verification import verify

CONTENT = b"what was published"
SET = Source(
    "set",
    "A set",
    "",
    ((SourceFile("a.txt", f"md5:{hashlib.md5(CONTENT).hexdigest()}", ()),),),
)


def test_good_file_and_arrays(data_folder: Path) -> None:
    (data_folder / "a.txt").write_bytes(CONTENT)
    parsed("set", 1, [], lambda: {"array": np.arange(3)})
    findings = verify(SET)
    assert [finding.path for finding in findings] == [data_folder / "a.txt", *kept_arrays("set")]
    assert not any(finding.problem for finding in findings)


def test_nothing_there(data_folder: Path) -> None:
    assert verify(SET) == []


def test_damage_is_found_whatever_was_remembered(data_folder: Path) -> None:
    path = data_folder / "a.txt"
    path.write_bytes(CONTENT)
    remembered_checksum(path, "md5")
    time = path.stat().st_mtime_ns
    path.write_bytes(CONTENT.upper())
    os.utime(path, ns=(time, time))
    assert remembered_checksum(path, "md5") == SET.layouts[0][0].checksum

    (finding,) = verify(SET)
    assert hashlib.md5(CONTENT).hexdigest() in finding.problem
    assert hashlib.md5(CONTENT.upper()).hexdigest() in finding.problem
    assert str(path) in finding.problem


def test_damaged_arrays(data_folder: Path) -> None:
    parsed("set", 1, [], lambda: {"array": np.arange(3)})
    (folder,) = kept_arrays("set")
    content = (folder / "array.npy").read_bytes()
    (folder / "array.npy").write_bytes(content[:-1] + b"?")
    (finding,) = verify(SET)
    assert finding.path == folder
    assert "array.npy" in finding.problem


def test_unknown_archive_is_judged_by_its_contents(data_folder: Path) -> None:
    (data_folder / "imdb").mkdir()
    (data_folder / "imdb" / "any.tar.gz").write_bytes(b"not an archive")
    (finding,) = verify(IMDB)
    assert "any.tar.gz is damaged" in finding.problem


def test_an_archive_of_another_set_is_not_read_as_film_reviews(data_folder: Path) -> None:
    content = b"an archive"
    known = f"sha256:{hashlib.sha256(content).hexdigest()}"
    other = replace(SET, archives=("set/*.tgz",), known_archives=(known,))
    (data_folder / "set").mkdir()
    (data_folder / "set" / "any.tgz").write_bytes(content)
    (finding,) = verify(other)
    assert finding.problem == ""
    (data_folder / "set" / "any.tgz").write_bytes(b"another")
    (finding,) = verify(other)
    assert finding.problem.endswith(f"expected {known}")
    assert "IMDB" not in finding.problem
    assert "aclImdb" not in finding.problem


def test_every_set_with_archives_has_a_reader_of_them() -> None:
    assert {one.name for one in SOURCES.values() if one.archives} == {*verification.READERS}


def test_known_archive_is_judged_by_its_checksum(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data_folder / "imdb").mkdir()
    (data_folder / "imdb" / "any.tar.gz").write_bytes(b"an archive we know")
    monkeypatch.setattr(verification, "checksum", lambda *_: IMDB.known_archives[0])
    (finding,) = verify(IMDB)
    assert finding.problem == ""


@pytest.mark.parametrize("name", SOURCES)
def test_real_files_are_the_published_ones(
    name: str, request: pytest.FixtureRequest, session_cache: Path
) -> None:
    request.getfixturevalue(f"real_{name}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(session_cache))
        findings = verify(SOURCES[name])
    assert findings
    assert [finding.problem for finding in findings if finding.problem] == []
