"""The plans of `onegate reproduce`, and what becomes of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onegate.lab import compare, data, reproduce, tasks
from onegate.lab.archive import comparisons, finished_runs
from onegate.lab.compare import Request
from onegate.lab.recipes import override, values
from onegate.lab.runs import run_name
from onegate.lab.sweep.plan import cores
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

QUICK, FULL = reproduce.requests(full=False), reproduce.requests(full=True)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    small_data.use(monkeypatch)
    run_quickly(monkeypatch)


def test_the_quick_plan_has_all_five_tasks_and_both_units() -> None:
    assert [request.task for request in QUICK] == [t for t in TASKS if "perm" not in t]
    assert all(set(request.units) == {"mgu", "gru"} for request in QUICK)
    for request in (*QUICK, *FULL):
        request.recipes()


def test_the_full_plan_is_the_paper_s() -> None:
    """Nothing in it is smaller than in the recipe, but for the sizes of the paper's Table 2."""
    sizes = []
    for request in FULL:
        (made, *_) = request.recipes()
        changed = {path for path, _ in values(made) if made.reasons.get(path) == "set by hand"}
        assert changed <= {"model.hidden_size"}
        if request.task == "ptb":
            sizes.append(made.model.hidden_size)
    assert sizes == [50, 100, 200, 300, 400, 500, 600]
    assert {r.task for r in FULL} == {r.task for r in QUICK}


def test_runs_and_report(tmp_path: Path) -> None:
    told: list[str] = []
    page = reproduce.reproduce([ADDING, TEXT], tmp_path / "runs", tmp_path / "out", told.append)
    assert page.is_file()
    assert len(finished_runs(tmp_path / "runs")) == 4
    at_a_time = min(4, cores())
    assert re.search(rf"4 runs left, {at_a_time} at a time, about \d+:\d\d in all", told[-2])
    assert told[-1] == "2 of 2 tasks"
    again: list[str] = []
    reproduce.reproduce([ADDING, TEXT], tmp_path / "runs", tmp_path / "out", again.append)
    assert again[-2].count("finished") == 2
    assert again[-2].endswith("\nnothing is left to run")


def test_a_plan_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    plan = reproduce.prepare([ADDING], tmp_path, print)
    first, _ = plan.runs()[0]
    train(first, tmp_path / run_name(first))
    assert "mgu, 8 neurons, seed 0: finished" in reproduce.describe(plan, tmp_path)
    assert re.search(r"gru, 8 neurons, seed 0: about \d+:\d\d", reproduce.describe(plan, tmp_path))
    for busy, said in ((0.5, True), (0.1, False), (None, False)):
        plan.experiments = [(r, [replace(c, busy=busy) for c in cs]) for r, cs in plan.experiments]
        told = reproduce.describe(plan, tmp_path).splitlines()[-1]
        assert ("the machine is busy, others take 50% of its cores" in told) == said
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
    assert told[0].startswith("ptb: the data are not here and could not be had; it is not run. To ")
    assert "missing simple-examples.tgz" in told[0]
    assert {run.recipe.task for run in finished_runs(tmp_path / "runs")} == {"adding"}
    assert "missing simple-examples.tgz" not in page.read_text()
    assert "onegate data fetch ptb" in page.read_text()


def test_nothing_is_to_be_fetched_for_a_task_that_reads_no_published_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> data.Adding:
        raise data.MissingDataError("the numbers are gone")

    monkeypatch.setattr(data, "adding", missing)
    told: list[str] = []
    plan = reproduce.prepare([ADDING], tmp_path, told.append)
    assert told[0].endswith("it is not run.\nthe numbers are gone")
    assert plan.not_run == {"adding": "The data are not here and could not be had."}


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
    assert "adding failed: the run folder" in told[-2]
    assert told[-1] == "1 of 2 tasks"
    assert {(r.recipe.task, r.recipe.unit) for r in finished_runs(tmp_path / "runs")} == {
        ("adding", "gru"), ("ptb", "gru"), ("ptb", "mgu")
    }  # fmt: skip
    assert [made.task for made in comparisons(tmp_path / "runs")] == ["ptb"]


def _missing(what: str) -> Callable[[], Any]:
    def raises() -> Any:
        raise data.MissingDataError(f"{what}: missing\nmany\nlines")

    return raises


def test_without_data_every_task_has_a_plan_and_each_data_set_is_told_of_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mnist", "imdb", "ptb"):
        monkeypatch.setattr(data, name, _missing(name))
    monkeypatch.setattr(compare, "prepare", lambda request, *_: [tasks.load(request.recipes()[0])])
    told: list[str] = []
    plan = reproduce.prepare(
        reproduce.requests(full=False), tmp_path, told.append, reproduce.stand_ins(), verbose=False
    )
    assert plan.summary() == "5 of 5 tasks, 4 on stand-ins"
    assert not plan.not_run
    assert [line.partition(":")[0] for line in told] == ["imdb", "mnist", "ptb"]
    assert not any("\n" in line for line in told)
    for request, _ in plan.experiments:
        sources = {getattr(made.data, "source", "made") for made in request.recipes()}
        assert sources == {"made" if request.task == "adding" else "stand-in"}
    damaged = data.DamagedDataError("ptb.train.txt is damaged and is not used")
    line = reproduce._missing("ptb", damaged, True, False)
    assert line.startswith("ptb: a file of the data is damaged and is not used; a stand-in is ")
    assert "onegate data fetch ptb" in line
    long: list[str] = []
    reproduce.prepare(reproduce.requests(full=False), tmp_path, long.append, reproduce.stand_ins())
    assert "many\nlines" in long[0]


def test_stand_ins_can_be_asked_for_and_data_that_are_here_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "ptb", _missing("ptb"))
    monkeypatch.setattr(compare, "prepare", lambda request, *_: [tasks.load(request.recipes()[0])])
    plan = reproduce.prepare([ADDING, TEXT], tmp_path, print, reproduce.stand_ins())
    assert plan.summary() == "2 of 2 tasks, 1 on stand-ins"
    assert plan.requests[0] == ADDING
    asked = reproduce.on_stand_ins(reproduce.requests(full=False), (0, 1))
    assert [r.task for r in asked] == [r.task for r in reproduce.requests(full=False)]
    assert all(r.seeds == (0, 1) for r in asked if r.task != "adding")
    assert reproduce.prepare(asked, tmp_path, print).summary() == "5 of 5 tasks, 4 on stand-ins"


# What is changed of the plan to save time, and what the run's metric has to reach or stay below.
LEARNED = {
    "adding": (("length=7",), 0.05),  # 0.16 is the variance of the targets
    "imdb": ((), 0.75),  # half of the texts are of a class
    "mnist_rows": ((), 0.9),  # a tenth of the images are of a class
    "mnist_pixels": (("length=0.2", "evaluate_every=0.2", "data.test=1000"), 0.2),
    "ptb": (("model.hidden_size=50", "model.embedding=50", "length=3"), 0.8),  # of word frequencies
}


def test_every_task_of_the_plan_is_held_to_a_threshold() -> None:
    assert set(LEARNED) == {request.task for request in QUICK}


@pytest.mark.parametrize("name", LEARNED)
def test_every_task_is_learned_without_data(name: str, tmp_path: Path) -> None:
    """As planned, or even shorter: well above what the commonest answer gives."""
    settings, threshold = LEARNED[name]
    planned = reproduce.on_stand_ins([one for one in QUICK if one.task == name])
    result = train(override(planned[0].recipes()[0], settings), tmp_path / "run")
    if name == "adding":
        assert result["test_mse"] < threshold
    elif name == "ptb":
        text = data.stand_ins.manual()
        chance = data.unigram_perplexity(text.train, text.test)  # 303
        assert result["test_perplexity"] < threshold * chance
    else:
        assert result["test_accuracy"] > threshold
