"""The commands around training, as a user types them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from onegate.lab import reproduce
from onegate.lab.cli import main
from onegate.lab.compare import Request
from onegate.lab.runs import Run
from tests.lab import small_data
from tests.lab.sweep.made import run_quickly

SMALL = ["data.train=200", "data.valid=50", "data.test=50", "model.hidden_size=5", "batch_size=20",
         "length=2"]  # fmt: skip
SETTINGS = [word for setting in SMALL for word in ("--set", setting)]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small_data.use(monkeypatch)
    run_quickly(monkeypatch)
    monkeypatch.chdir(tmp_path)


def test_short_products_are_asked_for_and_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", asked.append)
    assert main(["train", "adding", *SETTINGS, "--run", "plain", "--quiet"]) == 0
    assert asked == []
    assert main(["train", "adding", *SETTINGS, "--run", "short", "--quiet", "--bfloat16"]) == 0
    assert asked == ["medium"]
    machine = json.loads(Path("short/machine.json").read_text())
    assert machine["matmul_precision"] == torch.get_float32_matmul_precision()


def test_recipes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes"]) == 0
    out = capsys.readouterr().out
    for name in ("adding/paper", "mnist_rows/flow", "ptb/tuned", "mnist_permuted/tuned"):
        assert name in out


def test_a_recipe_is_shown_with_its_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "show", "mnist_rows/flow", "--unit", "gru"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (readout,) = [line for line in lines if line.startswith("model.readout")]
    assert "all" in readout
    assert "states of all steps" in readout
    assert any(line.split() == ["unit", "gru"] for line in lines)


def test_a_recipe_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "show", "ptb/tuned", "--json", "--set", "optimizer.lr=0.5"]) == 0
    assert json.loads(capsys.readouterr().out)["optimizer"]["lr"] == 0.5


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["recipes", "show", "mnist_rows"], "expected task/recipe"),
        (["recipes", "show", "mnist_row/flow"], "did you mean mnist_rows?"),
        (["train"], "which task?"),
        (["train", "--run", "nowhere", "--resume"], "nowhere holds no run to resume"),
        (["train", "addding"], "did you mean adding?"),
        (["train", "adding", "--recipe", "flow"], "no recipe of adding is called 'flow'"),
        (["train", "adding", "--unit", "guru"], "did you mean 'gru'?"),
        (["train", "adding", "--set", "optimizer.rate=1"], "did you mean"),
        (["train", "adding", "--set", "optimizer.lr=-1"], "expected a number above 0"),
        (["train", "--resume", "--run", "x", "--set", "seed=1"], "need a task"),
        (["compare", "adding", "--seeds", "0"], "--seeds is 0"),
        (["reproduce", "--seeds", "0"], "--seeds is 0"),
    ],
)
def test_mistakes_are_answered(
    command: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 2
    error = capsys.readouterr().err
    assert error.startswith("onegate: ")
    assert message in error
    assert not Path("runs").exists()


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "\u0663", "99999999999999999999"])
@pytest.mark.parametrize(
    "command",
    [["train", "adding"], ["sweep", "adding"], ["compare", "adding"], ["reproduce"],
     ["gradients", "adding"], ["inspect", "x"], ["bench"]],
    ids=" ".join,
)  # fmt: skip
def test_threads_are_a_whole_number_everywhere(
    command: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*command, f"--threads={text}"])
    told = capsys.readouterr().err
    assert f"argument --threads: expected a whole number from 1 to 9999, got {text!r}" in told


def test_train_prints_the_result_and_the_profile(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", "adding", "--unit", "gru", *SETTINGS, "--run", "here", "--profile"]
    assert main(command) == 0
    out = capsys.readouterr().out
    result = Run.read(Path("here")).result
    assert f"test_mse {result['test_mse']:.6g}" in out
    assert "forward, backward and optimiser: " in out
    assert "epoch 2.00  update 20/20" in out
    assert main([*command, "--resume", "--quiet"]) == 0
    assert "epoch" not in capsys.readouterr().out
    assert main(command) == 2
    assert "add --resume" in capsys.readouterr().err


def test_runs_are_named_after_their_recipe() -> None:
    assert main(["train", "adding", *SETTINGS, "--quiet"]) == 0
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("adding-tuned-mgu-5-s0-")


def test_resume_needs_the_folder_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "adding", *SETTINGS, "--run", "here", "--quiet"]) == 0
    first = capsys.readouterr().out
    assert main(["train", "--run", "here", "--resume", "--quiet"]) == 0
    assert capsys.readouterr().out == first


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_command_says_how_to_go_on(number: int, tmp_path: Path) -> None:
    settings = [*SETTINGS, "--set", "length=100000"]
    command = [sys.executable, "-m", "onegate", "train", "adding", *settings, "--run", "here"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    with process:
        deadline = time.monotonic() + 120
        while not Path("here/metrics.jsonl").exists() or not Path("here/metrics.jsonl").read_text():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(number)
        _, error = process.communicate()
    assert process.returncode == 128 + number
    assert "go on with: onegate train --run here --resume" in error
    assert "Traceback" not in error
    assert Run.read(Path("here")).state == "stopped"


def test_warnings_are_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "adding", *SETTINGS, "--run", "here", "--quiet"]) == 0
    Path("here/status.json").unlink()
    last = max(Path("here/checkpoints").glob("*.json"))
    last.write_text("")
    assert main(["train", "--run", "here", "--resume", "--quiet"]) == 0
    error = capsys.readouterr().err
    assert error.startswith("onegate: warning: ")
    assert "UserWarning" not in error


def test_compare_prints_a_table_and_draws(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "adding", "--units", "mgu", "gru", "--seeds", "1", *SETTINGS]) == 0
    lines = capsys.readouterr().out.splitlines()
    heading = next(i for i, line in enumerate(lines) if line.startswith("unit "))
    assert lines[heading + 1].split()[:2] == ["mgu", "5"]
    assert lines[heading + 2].split()[:2] == ["gru", "5"]
    drawn = [Path(line.removeprefix("figure: ")) for line in lines if line.startswith("figure: ")]
    assert drawn
    assert all(path.is_file() for path in drawn)


def test_reproduce_writes_the_report(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request("adding", "tuned", settings=tuple(SMALL))
    monkeypatch.setattr(reproduce, "requests", lambda full: () if full else (request,))
    assert main(["reproduce", "--estimate"]) == 0
    assert "2 runs left, " in capsys.readouterr().out
    assert main(["reproduce"]) == 0
    assert "report: report/index.html" in capsys.readouterr().out
    assert Path("report/index.html").is_file()


@pytest.mark.parametrize("more", [[], ["--quantise", "integer"]])
def test_a_run_is_exported_as_c(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "mnist_rows", *SETTINGS, "--run", "mine", "--quiet"]) == 0
    assert main(["export", "mine", "--c", *more]) == 0
    told = capsys.readouterr().out
    assert ("integer accuracy" in told) == bool(more)
    assert json.loads(Path("mine/c/card.json").read_text())["task"] == "mnist_rows"
    assert "model_step(model_state *s" in Path("mine/c/model.h").read_text()
