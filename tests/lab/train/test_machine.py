"""Facts about the machine."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import onegate
from onegate.lab.train import machine


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
