"""The table of runs."""

from __future__ import annotations

import sys

import pytest
from rich.console import Console

from onegate.lab.sweep.running import Board
from onegate.lab.sweep.worker import News


def test_lines_for_beginnings_and_ends(capsys: pytest.CaptureFixture[str]) -> None:
    with Board(["a", "b", "c"], ["b", "c"]) as board:
        board.update(News("b", "running"))
        board.update(News("b", "running", "epoch 1"))
        board.update(News("b", "failed", "it went wrong"))
        board.update(News("c", "running"))
        board.update(News("c", "done", "test_mse 1"))
    assert capsys.readouterr().out.splitlines() == [
        "1 waiting, 1 running, 1 done | b running",
        "1 waiting, 1 done, 1 failed | b failed  it went wrong",
        "1 running, 1 done, 1 failed | c running",
        "2 done, 1 failed | c done  test_mse 1",
    ]


def test_a_terminal_gets_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    names = [f"run-{number}" for number in range(40)]
    board = Board(names, names[1:])
    board.update(News("run-39", "running", "epoch 2.50  valid_mse 0.25"))
    board.update(News("run-38", "failed", "why"))
    board.update(News("run-39", "running"))
    console = Console(width=120, force_terminal=False)
    with console.capture() as captured:
        console.print(board.table())
    lines = [line.rstrip() for line in captured.get().splitlines()]
    assert lines[0].startswith("37 waiting, 1 running, 1 done, 1 failed")
    assert lines[2].split() == ["run-39", "running", "epoch", "2.50", "valid_mse", "0.25"]
    assert lines[3].split()[:2] == ["run-38", "failed"]
    assert lines[4].split()[:2] == ["run-0", "done"]
    assert lines[-1] == "and 10 more"
