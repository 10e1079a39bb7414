"""Facts about the machine."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import onegate
from onegate.lab.train import machine, profiling


def test_facts_are_complete_and_plain() -> None:
    facts = machine.describe("fused: it fits")
    assert json.loads(json.dumps(facts)) == facts
    assert facts["torch"] == torch.__version__
    assert facts["threads"] == torch.get_num_threads()
    assert facts["matmul_precision"] == "highest"
    assert facts["engine"] == "fused: it fits"
    assert facts["processor"]


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_commit_says_whether_files_were_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "nn" / "layers.py"  # anywhere in the package
    source.parent.mkdir()
    source.write_text("")
    monkeypatch.setattr(onegate, "__file__", str(tmp_path / "__init__.py"))
    assert machine.commit() is None

    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=x", "-c", "user.email=x@x"]
        done = subprocess.run(
            ["git", *identity, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "x")
    head = git("rev-parse", "HEAD")
    assert machine.commit() == head
    source.write_text("changed")
    assert machine.commit() == f"{head}+"


def test_without_git_there_is_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert machine.commit() is None


def test_shares_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    clock = profiling.Clock()
    for phase, seconds in (("forward", 3.0), ("backward", 4.0), ("optimizer", 1.0), ("data", 1.0)):
        with clock.phase(phase):
            now[0] += seconds
    with clock.phase("evaluation"):
        now[0] += 10.0
    now[0] += 1.0
    shares = clock.shares()
    assert shares["forward"] == pytest.approx(3 / 20)
    assert shares["other"] == pytest.approx(1 / 20)
    assert clock.training == 9
    assert profiling.computing_share(shares) == pytest.approx(8 / 10)
    text = profiling.report(shares)
    assert "forward, backward and optimiser: 40.0% of the time, 80.0% of it outside" in text


def test_making_items_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    clock = profiling.Clock()

    def slow() -> Iterator[int]:
        for i in range(3):
            now[0] += 2.0
            yield i

    for _ in clock.timed("data", slow()):
        now[0] += 5.0
    assert clock.seconds["data"] == 6.0
