"""`onegate sweep` as a user types it."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from onegate.lab import cli, tasks
from onegate.lab.archive import finished_runs
from onegate.lab.cli import main, sweep
from onegate.lab.sweep import local
from tests.lab.sweep.made import OPTIONS, SETTINGS, run_quickly


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run_quickly(monkeypatch)
    monkeypatch.chdir(tmp_path)


def test_the_list_comes_first_and_finished_runs_are_not_run_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["sweep", "adding", "--units", "mgu", "gru", "--hidden", "4", "5", "--seeds", "0",
               *OPTIONS, "--threads", "1"]  # fmt: skip
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    for line, name in zip(lines, ("mgu-4", "mgu-5", "gru-4", "gru-5"), strict=False):
        assert line.startswith(f"adding-tuned-{name}-s0-")
        assert re.search(r": about \d+:\d\d$", line)
    assert lines[4].startswith("4 runs, 0 finished; ")
    assert len(finished_runs(Path("runs"))) == 4
    assert main([*command, "--seeds", "0", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.endswith(": finished") for line in lines) == 4
    assert any(line.startswith("8 runs, 4 finished; ") for line in lines)
    assert len(finished_runs(Path("runs"))) == 8


def test_a_file_and_an_address(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    settings = "\n".join(f'"{path}" = {value}' for path, value in (s.split("=") for s in SETTINGS))
    Path("grid.toml").write_text(
        f'task = "adding"\nunits = ["mgu"]\n[set]\n{settings}\n[grid]\noptimizer.lr = [0.1, 0.2]\n'
    )
    assert main(["sweep", "grid.toml", "--runs", f"file://{tmp_path}/there"]) == 0
    assert {run.recipe.optimizer.lr for run in finished_runs(Path("there"))} == {0.1, 0.2}
    assert main(["sweep", "grid.toml", "--units", "mgu"]) == 2
    assert "holds the whole grid" in capsys.readouterr().err


def test_stand_ins_are_asked_for_as_elsewhere() -> None:
    words = ["sweep", "mnist_rows", "mnist_pixels", "--data", "stand-in", "--set", "length=1"]
    asked = sweep._grid(cli._parser(words).parse_args(words))
    assert asked.settings == ("data.source=stand-in", "length=1")
    assert all(tasks.get(one.task).stands_in(one.data) for one in asked.recipes())


def test_failures_are_told_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["sweep", "adding", "--units", "mgu", *OPTIONS, "--grid", "optimizer.lr=1e29,0.1",
               "--set", "optimizer.clip_norm=0", "--set", "optimizer.kind=sgd",
               "--set", "optimizer.momentum=0"]  # fmt: skip
    assert main(command) == 1
    told = capsys.readouterr()
    assert "1 of the runs failed:\nadding-tuned-mgu-100-s0-" in told.err
    assert "Try a smaller optimizer.lr" in told.err
    assert len(finished_runs(Path("runs"))) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["addin"], "did you mean adding?"),
        (["adding", "--units", "guru"], "did you mean 'gru'?"),
        (["adding", "--grid", "optimizer.lr"], "expected field=value,value"),
        (["adding", "--grid", "optimizer.lr=0.1,-3"], "expected a number above 0"),
        (["adding", "--set", "data.trian=3"], "did you mean"),
        (["adding", "--gpus", "1"], "--gpus is for clusters"),
        (["nothing.toml"], "there is no file nothing.toml"),
        (["adding", "--data", "stand-in"], "adding has no stand-in"),
        (["imdb", "ptb", "--data", "stand-in"], "differ in size: one task at a time"),
        (["grid.toml", "--data", "stand-in"], "holds the whole grid"),
    ],
)
def test_mistakes_are_answered(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", *options]) == 2
    assert message in capsys.readouterr().err
    assert not Path("runs").exists()


def test_a_stopped_sweep_goes_on_with_the_same_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["sweep", "adding", "--units", "mgu", "gru", *OPTIONS]
    with monkeypatch.context() as stopped:
        stopped.setattr(local, "run", lambda *_: signal.SIGTERM)
        assert main(command) == 128 + signal.SIGTERM
    told = "0 of 2 runs are finished, the others are saved; the same command goes on"
    assert told in capsys.readouterr().err
    assert main(command) == 0
    assert len(finished_runs(Path("runs"))) == 2
