"""`onegate inspect` and `onegate gradients`: what they write, and what they say is wrong."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from onegate.lab import tasks
from onegate.lab.cli import main
from onegate.lab.inside import examples, measure_plots
from onegate.lab.inside.measures import gradient_norms
from onegate.lab.inside.opened import initial_model, open_run
from onegate.lab.recipes import override, recipe
from onegate.lab.runs import EXAMPLE
from onegate.lab.train import session
from onegate.probe.traces import traced
from tests.lab import small_data

SIZES = ["data.train=60", "data.valid=20", "data.test=12", "batch_size=30", "length=1",
         "model.hidden_size=5"]  # fmt: skip


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    small_data.use(monkeypatch)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Runs of MGU on two tasks."""
    root = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        small_data.use(patch)
        for task in ("mnist_rows", "adding"):
            session.train(override(recipe(task, "tuned", "mgu"), SIZES), root / task)
    yield root
    shutil.rmtree(root)


def test_inspect_writes_a_page(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure_plots, "draw", lambda _: [])  # looked at elsewhere
    run = folder / "mnist_rows"
    assert main(["inspect", str(run), "--examples", "3"]) == 0
    page = run / "inspect" / "inspect.html"
    assert capsys.readouterr().out == f"{page}\n"
    assert "<title>Inside MGU</title>" in page.read_text()


def test_the_run_that_comes_with_onegate_shows_gates_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["inspect", "--example", "--examples", "0", "1"]) == 0
    assert capsys.readouterr().out == "inspect/inspect.html\n"
    assert sum(file.stat().st_size for file in EXAMPLE.rglob("*") if file.is_file()) < 100_000
    opened = open_run(EXAMPLE)
    assert opened.run.result["test_mse"] < 0.0016  # a hundredth of the targets' variance
    batch, state = examples.batch(opened.task, opened.trained, range(20))
    with torch.no_grad():
        passes = traced(opened.trained.recurrent, lambda: opened.trained.score(batch, state))
    gate, marked = passes["l0"]["f"], passes["l0"].input[:, :, 1] > 0
    plain = passes["l0"].inside & ~marked & (passes["l0"].input[:, :, 1] == 0)
    # Some neurons' gates open at the two marks and are shut elsewhere: they keep the sum.
    assert (gate[marked].mean(0) - gate[plain].mean(0)).max() > 0.4
    assert sorted(passes) == ["l0"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "which run? Give its folder, or --example"),
        (["--example", "one", "two"], "two runs at most"),
        (["nowhere"], "there is no folder nowhere: give the folder of a run"),
        (["."], ". holds no run: recipe.json is missing"),
        (["{runs}/bare"], "has no checkpoint: the run has to get further first"),
        (["{runs}/mnist_rows", "--examples", "0", "12"], "no example 12: the test set has 12"),
        (["{runs}/adding", "--digits", "7"], "images of digits, and adding has none"),
        (["{runs}/mnist_rows", "--digits", "10"], "the test set has no digit 10; it has "),
        (["{runs}/mnist_rows", "{runs}/adding"], "must have the same task"),
        (["{runs}/adding", "{runs}/adding"], "adding is given twice"),
    ],
)
def test_inspect_says_what_is_wrong(
    folder: Path,
    arguments: list[str],
    message: str,
    refuses: Callable[[list[str], str], None],
) -> None:
    bare = folder / "bare"
    if not bare.exists():
        shutil.copytree(folder / "adding", bare, ignore=shutil.ignore_patterns("checkpoints"))
        (bare / "status.json").write_text('{"state": "running", "update": 0}')
    given = [argument.format(runs=folder) for argument in arguments]
    refuses(["inspect", *given, "-o", "page"], message)


def test_gradients_of_units_and_runs_on_one_plot(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "figures"
    command = ["gradients", "mnist_rows", "--units", "simple", "lstm", "--runs",
               str(folder / "mnist_rows"), "-o", str(out)]  # fmt: skip
    assert main([*command, *(part for s in SIZES for part in ("--set", s))]) == 0
    svg = out / "gradients-mnist_rows.svg"
    assert capsys.readouterr().out == f"{svg}\n"
    assert {path.suffix for path in out.iterdir()} == {".svg", ".pdf", ".png", ".csv"}
    with svg.with_suffix(".csv").open() as file:
        rows = list(csv.DictReader(file))
    lines = list(dict.fromkeys(row["line"] for row in rows))
    assert lines == ["simple", "LSTM, h", "LSTM, c", "MGU"]
    made = override(recipe("mnist_rows", "tuned", "simple"), SIZES)
    task = tasks.load(made)
    state = torch.get_rng_state()
    expected = gradient_norms(task, initial_model(made, task), range(12))["l0"]["h"]
    assert torch.equal(torch.get_rng_state(), state)
    found = [float(row["before"]) for row in rows if row["line"] == "simple"]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert all(row["after"] == "" for row in rows if row["line"] != "MGU")
    assert all(float(row["after"]) > 0 for row in rows if row["line"] == "MGU")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["adding"], "give units with --units, runs with --runs, or both"),
        (["adding", "--units", "mug"], "no unit is called 'mug'; did you mean 'mgu'?"),
        (
            ["adding", "--runs", "{runs}/mnist_rows"],
            "is a run of mnist_rows, expected one of adding",
        ),
        (["adding", "--runs", "nowhere"], "there is no folder nowhere"),
    ],
)
def test_gradients_says_what_is_wrong(
    folder: Path,
    arguments: list[str],
    message: str,
    refuses: Callable[[list[str], str], None],
) -> None:
    refuses(["gradients", *(argument.format(runs=folder) for argument in arguments)], message)
