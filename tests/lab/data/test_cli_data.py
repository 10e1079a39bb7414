from __future__ import annotations

import argparse
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from onegate.lab.cli import data as command
from onegate.lab.data.sources import Source, SourceFile

if TYPE_CHECKING:
    from tests.lab.data.conftest import Mirror


@pytest.fixture
def sources(
    mirror: Mirror, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Source]:
    """Two data sets: `good` can be downloaded, `gone` cannot."""
    checksum = f"md5:{hashlib.md5(mirror.content).hexdigest()}"
    made = {
        name: Source(
            name,
            f"The {name} set",
            "",
            ((SourceFile(f"{name}.bin", checksum, (mirror.url(path),)),),),
        )
        for name, path in (("good", "good"), ("gone", "absent"))
    }
    monkeypatch.setattr(command, "SOURCES", made)
    return made


def run(*argv: str) -> int:
    parser = argparse.ArgumentParser()
    command.register(parser.add_subparsers().add_parser("data"))
    args = parser.parse_args(["data", *argv])
    return int(args.run(args))


@pytest.mark.parametrize("argv", [(), ("list",)])
def test_list(
    sources: dict[str, Source],
    data_folder: Path,
    capsys: pytest.CaptureFixture[str],
    argv: list[str],
) -> None:
    (data_folder / "good.bin").write_bytes(b"x" * 1_500_000)
    assert run(*argv) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "name\tfiles\tMB\tparsed\tdata set"
    assert lines[1] == "good\there\t1.5\tno\tThe good set"
    assert lines[2] == "gone\tmissing\t\tno\tThe gone set"
    assert lines[3].startswith("adding\there")
    assert [line.split("\t")[0] for line in lines[4:7]] == [
        "mnist stand-in", "imdb stand-in", "ptb stand-in"
    ]  # fmt: skip
    assert str(data_folder) in lines[7]
    assert lines[8] == f"good: {data_folder}"


def test_list_on_a_terminal(
    sources: dict[str, Source], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    run()
    assert "\x1b[" in capsys.readouterr().out


def test_list_of_an_incomplete_set(
    sources: dict[str, Source],
    data_folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = Source("both", "Both", "", (tuple(s.layouts[0][0] for s in sources.values()),))
    monkeypatch.setattr(command, "SOURCES", {"both": both})
    (data_folder / "good.bin").touch()
    run()
    assert "both\tonly good.bin\t" in capsys.readouterr().out


def test_fetch_one(
    sources: dict[str, Source],
    mirror: Mirror,
    data_folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("fetch", "good") == 0
    path = data_folder / "good" / "good.bin"
    assert path.read_bytes() == mirror.content
    assert f"good: {path} is complete" in capsys.readouterr().out


def test_fetch_all_goes_on_after_a_failure(
    sources: dict[str, Source], data_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("fetch", "gone", "good") == 1
    assert (data_folder / "good" / "good.bin").exists()
    assert "onegate: The gone set: missing gone.bin." in capsys.readouterr().err


def test_verify(
    sources: dict[str, Source], data_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("fetch", "good")
    capsys.readouterr()
    assert run("verify") == 0
    path = data_folder / "good" / "good.bin"
    assert capsys.readouterr().out.splitlines() == [
        f"good: ok {path}",
        "gone: missing; run `onegate data fetch gone`",
    ]
    assert run("verify", "gone") == 1
    path.write_bytes(b"damaged")
    assert run("verify") == 1
    assert f"good: DAMAGED {path} is damaged" in capsys.readouterr().out


@pytest.mark.parametrize("action", ["fetch", "verify"])
def test_unknown_name(sources: dict[str, Source], action: str) -> None:
    with pytest.raises(ValueError, match="no data set is called god: expected good, gone"):
        run(action, "god")
