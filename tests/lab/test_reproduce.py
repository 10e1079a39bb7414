"""The plans of `onegate reproduce`, and what becomes of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from onegate.lab import data, reproduce
from onegate.lab.compare import Request
from onegate.lab.recipes import values
from onegate.lab.runs import comparisons, finished_runs, run_name
from onegate.lab.tasks import TASKS
from onegate.lab.train.session import train
from tests.lab import small_data
from tests.lab.sweep.made import run_quickly

SMALL = ("data.train=60", "data.valid=20", "data.test=20", "model.hidden_size=8", "batch_size=20")
ADDING = Request("adding", "tuned", seeds=(0,), settings=(*SMALL, "length=2"))
TEXT = Request(
    "ptb", "paper", seeds=(0,),
    settings=("data.train=1000", "data.steps=10", "model.hidden_size=8", "model.embedding=4",
              "batch_size=5", "length=1"),
)  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    small_data.use(monkeypatch)
    run_quickly(monkeypatch)


def test_the_quick_plan_has_all_five_tasks_and_both_units() -> None:
    assert [request.task for request in reproduce.QUICK] == [t for t in TASKS if "perm" not in t]
    assert all(set(request.units) == {"mgu", "gru"} for request in reproduce.QUICK)
    for request in (*reproduce.QUICK, *reproduce.FULL):
        request.recipes()


def test_the_full_plan_is_the_paper_s() -> None:
    """Nothing in it is smaller than in the recipe, but for the sizes of the paper's Table 2."""
    sizes = []
    for request in reproduce.FULL:
        (made, *_) = request.recipes()
        changed = {path for path, _ in values(made) if made.reasons.get(path) == "set by hand"}
        assert changed <= {"model.hidden_size"}
        if request.task == "ptb":
            sizes.append(made.model.hidden_size)
    assert sizes == [50, 100, 200, 300, 400, 500, 600]
    assert {r.task for r in reproduce.FULL} == {r.task for r in reproduce.QUICK}


def test_runs_and_report(tmp_path: Path) -> None:
    told: list[str] = []
    page = reproduce.reproduce([ADDING, TEXT], tmp_path / "runs", tmp_path / "out", told.append)
    assert page.is_file()
    assert len(finished_runs(tmp_path / "runs")) == 4
    assert "4 runs, about 0:0" in told[-1]
    again: list[str] = []
    reproduce.reproduce([ADDING, TEXT], tmp_path / "runs", tmp_path / "out", again.append)
    assert again[-1].count("finished") == 2
    assert "0 runs, about 0:00 in all" in again[-1]


def test_a_plan_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    plan = reproduce.prepare([ADDING], tmp_path, print)
    first, _ = plan.runs()[0]
    train(first, tmp_path / run_name(first))
    assert "mgu, 8 units, seed 0: finished" in reproduce.describe(plan, tmp_path)
    assert "gru, 8 units, seed 0: about 0:0" in reproduce.describe(plan, tmp_path)
    reproduce.execute(plan, tmp_path, print)
    (kept,) = tmp_path.glob("sweep-*.json")
    reproduce.execute(reproduce.prepare([ADDING], tmp_path, print), tmp_path, print)
    assert list(tmp_path.glob("sweep-*.json")) == [kept]
    assert reproduce.prepare([ADDING], tmp_path, print).finished == [ADDING]
    more = replace(ADDING, seeds=(0, 1))
    assert reproduce.prepare([more], tmp_path, print).finished == []


def test_tasks_without_data_are_named_and_the_others_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> data.PennTreebank:
        raise data.MissingDataError("ptb: missing simple-examples.tgz")

    monkeypatch.setattr(data, "ptb", missing)
    told: list[str] = []
    page = reproduce.reproduce([TEXT, ADDING], tmp_path / "runs", tmp_path / "out", told.append)
    assert told[0] == "ptb is not run: ptb: missing simple-examples.tgz"
    assert {run.recipe.task for run in finished_runs(tmp_path / "runs")} == {"adding"}
    assert "missing simple-examples.tgz" in page.read_text()


def test_a_run_that_cannot_begin_does_not_stop_the_others(tmp_path: Path) -> None:
    """It diverges while its time is measured."""
    diverging = Request(
        "adding", "tuned", seeds=(0,),
        settings=(*SMALL, "optimizer.kind=sgd", "optimizer.momentum=0", "optimizer.lr=1e25",
                  "optimizer.clip_norm=0", "schedule.kind=constant"),
    )  # fmt: skip
    told: list[str] = []
    reproduce.reproduce([diverging, TEXT], tmp_path / "runs", tmp_path / "out", told.append)
    assert told[0].startswith("adding is not run: the ")
    assert {run.recipe.task for run in finished_runs(tmp_path / "runs")} == {"ptb"}


def test_a_run_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    in_the_way = tmp_path / "runs" / run_name(ADDING.recipes()[0])
    in_the_way.parent.mkdir()
    in_the_way.write_text("")
    told: list[str] = []
    reproduce.reproduce([ADDING, TEXT], tmp_path / "runs", tmp_path / "out", told.append)
    assert "adding failed: the run folder" in told[-1]
    assert {(r.recipe.task, r.recipe.unit) for r in finished_runs(tmp_path / "runs")} == {
        ("adding", "gru"), ("ptb", "gru"), ("ptb", "mgu")
    }  # fmt: skip
    assert [made.task for made in comparisons(tmp_path / "runs")] == ["ptb"]
