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
from onegate.lab.inside import plots
from onegate.lab.inside.measures import gradient_norms
from onegate.lab.inside.runs import initial_model
from onegate.lab.recipes import override, recipe
from onegate.lab.train import session as training
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
            training.train(override(recipe(task, "tuned", "mgu"), SIZES), root / task)
    yield root
    shutil.rmtree(root)


def test_inspect_writes_a_page(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "draw", lambda _: [])  # looked at elsewhere
    run = folder / "mnist_rows"
    assert main(["inspect", str(run), "--examples", "3"]) == 0
    page = run / "inspect" / "inspect.html"
    assert capsys.readouterr().out == f"{page}\n"
    assert "<title>Inside MGU</title>" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
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
    assert {path.suffix for path in out.iterdir()} == {".svg", ".png", ".csv"}
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
