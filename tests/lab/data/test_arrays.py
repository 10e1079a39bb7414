from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import onegate
from onegate.lab.data import DataError
from onegate.lab.data.arrays import (
    Arrays,
    End,
    Ragged,
    concatenated_ranges,
    damaged_arrays,
    kept_arrays,
    parsed,
)


class Parser:
    """Gives two arrays and counts how often it was asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> Arrays:
        self.calls += 1
        return {"numbers": np.arange(1000, dtype=np.int32), "words": np.zeros((2, 0), np.uint8)}


def test_parsed_once_and_mapped_read_only(cache: Path) -> None:
    parser = Parser()
    for _ in range(2):
        arrays = parsed("set", 1, ["md5:0"], parser)
        assert sorted(arrays) == ["numbers", "words"]
        assert np.array_equal(arrays["numbers"], np.arange(1000))
        assert arrays["words"].shape == (2, 0)
        assert isinstance(arrays["numbers"].base, np.memmap)
        assert not arrays["numbers"].flags.writeable
    assert parser.calls == 1
    (folder,) = kept_arrays("set")
    assert folder.parent == cache / "parsed"
    assert damaged_arrays(folder) == []


@pytest.mark.parametrize(
    "other",
    [("set", 2, ["a", "b"]), ("set", 1, ["a", "c"]), ("set", 1, ["a"]), ("sat", 1, ["a", "b"])],
)
def test_other_version_source_or_name_is_parsed_anew(
    cache: Path, other: tuple[str, int, list[str]]
) -> None:
    parser = Parser()
    parsed("set", 1, ["a", "b"], parser)
    parsed(*other, parser)
    assert parser.calls == 2


MANIFESTS = {
    "no object": b"[]",
    "no entries": b'{"numbers.npy": 3}',
    "no sizes": b'{"numbers.npy": {}}',
    "nested": b"[" * 100_000,
    "no UTF-8": b"\xff",
}


@pytest.mark.parametrize("fault", MANIFESTS)
def test_spoilt_manifests_are_noticed(cache: Path, fault: str) -> None:
    parser = Parser()
    parsed("set", 1, [], parser)
    (folder,) = kept_arrays("set")
    (folder / "manifest.json").write_bytes(MANIFESTS[fault])
    assert damaged_arrays(folder) == [folder / "manifest.json"]
    assert parsed("set", 1, [], parser)["numbers"][-1] == 999
    assert parser.calls == 2


@pytest.mark.parametrize("fault", ["cut", "array gone", "no manifest", "manifest cut"])
def test_incomplete_arrays_are_made_again(cache: Path, fault: str) -> None:
    parser = Parser()
    parsed("set", 1, [], parser)
    (folder,) = kept_arrays("set")
    file, manifest = folder / "numbers.npy", folder / "manifest.json"
    if fault == "cut":
        file.write_bytes(file.read_bytes()[:-1])
    elif fault == "array gone":
        file.unlink()
    elif fault == "no manifest":
        manifest.unlink()
    else:
        manifest.write_bytes(manifest.read_bytes()[:-5])
    assert parsed("set", 1, [], parser)["numbers"][-1] == 999
    assert parser.calls == 2


def test_flipped_bit_is_found(cache: Path) -> None:
    parsed("set", 1, [], Parser())
    (folder,) = kept_arrays("set")
    file = folder / "numbers.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert damaged_arrays(folder) == [file]
    (folder / "manifest.json").write_text("?")
    assert damaged_arrays(folder) == [folder / "manifest.json"]


def test_failing_parser_leaves_nothing(cache: Path) -> None:
    def fail() -> Arrays:
        raise DataError("no such thing")

    with pytest.raises(DataError, match="no such thing"):
        parsed("set", 1, [], fail)
    assert kept_arrays("set") == []


def test_folder_that_cannot_be_written(cache: Path) -> None:
    cache.parent.mkdir()
    cache.touch()
    with pytest.raises(DataError, match=r"set-\w+ cannot be written to .*XDG_CACHE_HOME"):
        parsed("set", 1, [], Parser())


def test_full_disk_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(DataError, match=r"No space left on device.*Make room"):
        parsed("set", 1, [], Parser())
    assert kept_arrays("set") == []
    assert not [path for path in (cache / "parsed").iterdir() if path.is_dir()]


SLOW_PARSER = """
import sys, time
from pathlib import Path
import numpy as np
from onegate.lab.data.arrays import parsed

class Slow(dict):
    def items(self):
        yield "first", np.arange(1000)
        Path(sys.argv[1]).open("a").write("parsing\\n")
        time.sleep(float(sys.argv[2]))
        yield "second", np.arange(1000) * 2

print("ready", flush=True)
sys.stdin.readline()
arrays = parsed("set", 1, ["sum"], Slow)
print(sorted(arrays), int(arrays["second"][-1]))
"""


def start(log: Path, seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SLOW_PARSER, str(log), str(seconds)],
        env={**os.environ, "PYTHONPATH": str(Path(onegate.__file__).parents[1])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_processes_at_once_parse_once(cache: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    children = [start(log, 0.3) for _ in range(2)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    outputs = [child.communicate(timeout=120)[0] for child in children]
    assert outputs == ["['first', 'second'] 1998\n"] * 2
    assert log.read_text() == "parsing\n"


def test_killed_process_leaves_no_half_arrays(cache: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = start(log, 600)
    assert child.stdin is not None
    child.stdin.write("go\n")
    child.stdin.flush()
    deadline = time.monotonic() + 120
    while not log.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert log.exists()
    assert kept_arrays("set") == []
    parser = Parser()
    assert parsed("set", 1, ["sum"], parser)["numbers"][-1] == 999
    assert parser.calls == 1


sequences = st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=7), max_size=6)
ends = st.sampled_from(["start", "end"])


@given(sequences)
def test_holds_the_sequences(lists: list[list[int]]) -> None:
    ragged = Ragged.of(lists)
    assert len(ragged) == len(lists)
    assert [ragged[i].tolist() for i in range(len(lists))] == lists
    assert ragged.lengths.tolist() == list(map(len, lists))
    assert ragged.values.dtype == np.int32
    assert ragged.offsets.dtype == np.int64


def test_index_like_a_list() -> None:
    ragged = Ragged.of([[1, 2], [], [3]])
    assert ragged[-1].tolist() == [3]
    assert ragged[-3].tolist() == [1, 2]
    for outside in (3, -4):
        with pytest.raises(IndexError):
            ragged[outside]


@given(sequences, st.data())
def test_take(lists: list[list[int]], data: st.DataObject) -> None:
    count = len(lists)
    chosen = data.draw(st.lists(st.integers(0, count - 1), max_size=9) if count else st.just([]))
    taken = Ragged.of(lists).take(np.array(chosen, np.int64))
    assert [taken[i].tolist() for i in range(len(taken))] == [lists[i] for i in chosen]


@given(sequences, st.none() | st.integers(0, 9), ends, ends, st.integers(-1, 1))
def test_padded(lists: list[list[int]], length: int | None, keep: End, pad: End, fill: int) -> None:
    array, kept = Ragged.of(lists).padded(length, keep=keep, pad=pad, fill=fill)
    wide = max(map(len, lists), default=0) if length is None else length
    expected = []
    for sequence in lists:
        cut = sequence[:wide] if keep == "start" else sequence[max(0, len(sequence) - wide) :]
        gap = [fill] * (wide - len(cut))
        expected.append(cut + gap if pad == "end" else gap + cut)
    assert array.tolist() == expected
    assert array.shape == (len(lists), wide)
    assert array.dtype == np.int32
    assert kept.tolist() == [min(len(sequence), wide) for sequence in lists]


def test_concatenated_ranges() -> None:
    ranges = concatenated_ranges(np.array([5, 0, 9, 2]), np.array([2, 0, 1, 3]))
    assert ranges.tolist() == [5, 6, 9, 2, 3, 4]
