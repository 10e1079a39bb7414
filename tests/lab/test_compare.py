"""Comparisons: what is equal, what is measured, what is stored."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

import pytest
import torch

from onegate.lab import compare, tasks
from onegate.lab.archive import comparisons
from onegate.lab.compare import Request
from onegate.lab.recipes import Recipe, RecipeError, override, recipe
from onegate.lab.runs import ComparedUnit, Comparison, Run, RunError, RunFolder, run_name
from onegate.lab.significance import welch
from onegate.lab.sweep import estimates
from onegate.lab.train.loop import Trainer
from onegate.lab.train.models import build, count_parameters
from tests.lab import small_data
from tests.lab.sweep.made import run_quickly

SMALL = ("data.train=60", "data.valid=20", "data.test=20", "model.hidden_size=8", "batch_size=20",
         "length=1")  # fmt: skip
ASKED = Request("adding", "tuned", ("mgu", "gru"), (0, 1), settings=SMALL)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    small_data.use(monkeypatch)
    run_quickly(monkeypatch, rounds=2)


def test_every_unit_runs_with_every_seed_and_the_table_is_stored(tmp_path: Path) -> None:
    made = compare.compare(ASKED, tmp_path)
    assert [row.unit for row in made.units] == ["mgu", "gru"]
    assert made.metric == "test_mse"
    for row in made.units:
        assert row.hidden_size == 8
        assert row.seconds_per_epoch > 0
        assert len(row.metric_values) == len(row.runs) == 2
        for seed, (name, value) in enumerate(zip(row.runs, row.metric_values, strict=True)):
            run = RunFolder(tmp_path / name)
            assert run.recipe().seed == seed
            assert run.recipe().unit == row.unit
            assert run.status()["result"]["test_mse"] == value
    # Two directions of G n (n + d + 1), and the paper's n initial states a direction.
    assert [row.parameters for row in made.units] == [2 * 2 * 8 * 11, 2 * 3 * 8 * 11]
    assert [row.parameters_paper for row in made.units] == [368, 544]
    assert made.settings == SMALL
    assert comparisons(tmp_path) == [made]
    (table,) = tmp_path.glob("comparison-*.csv")
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [float(r["test_mse"]) for r in rows] == [row.mean for row in made.units]
    assert float(rows[1]["p_against_first"]) == made.chances[1]


def test_times_are_measured_with_the_threads_of_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[int] = []
    measure = estimates.seconds_per_update

    def watched(trainers: list[Trainer]) -> list[float]:
        used.append(torch.get_num_threads())
        return measure(trainers)

    monkeypatch.setattr(estimates, "seconds_per_update", watched)
    before = torch.get_num_threads()
    made = compare.compare(ASKED, tmp_path / "one", threads=1)
    monkeypatch.setattr("onegate.lab.sweep.plan.cores", lambda: 12)
    compare.prepare(ASKED, tmp_path / "usual")  # four runs, three cores for each
    compare.prepare(ASKED, tmp_path / "one")  # begun with one thread: it goes on so
    assert used == [1, 3, 1]
    assert made.threads == 1
    threads = {Run.read(tmp_path / "one" / n).machine["threads"] for n in made.units[0].runs}
    assert threads == {1}
    assert torch.get_num_threads() == before


def test_a_busy_machine_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20 core-seconds between two looks 15 were busy, next to none of them ours."""
    looks = iter([(100.0, 200.0), (115.0, 220.0)])
    monkeypatch.setattr(estimates, "busy_cores", lambda: next(looks))
    monkeypatch.setattr("time.process_time", lambda: 1.0)
    assert compare.prepare(ASKED, tmp_path)[0].busy == 0.75
    monkeypatch.setattr(estimates, "busy_cores", lambda: None)
    assert compare.prepare(ASKED, tmp_path)[0].busy is None


def test_seeds_are_tested_against_the_first_unit() -> None:
    def row(*values: float) -> ComparedUnit:
        return ComparedUnit("mgu", 8, values, 1.0, 10, 10, ())

    made = Comparison("adding", "tuned", "units", "test_mse", (row(1, 2, 3), row(4, 6, 8), row(1)))
    assert made.chances == (None, welch([1, 2, 3], [4, 6, 8]), None)
    assert [r["p_against_first"] for r in made.content()["units"]] == list(made.chances)


def test_finished_runs_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compare.compare(ASKED, tmp_path)
    monkeypatch.setattr("onegate.lab.train.session.Trainer", None)
    again = compare.compare(ASKED, tmp_path)
    assert [r.metric_values for r in again.units] == [r.metric_values for r in first.units]


def test_comparisons_of_other_settings_stay(tmp_path: Path) -> None:
    compare.compare(ASKED, tmp_path)
    other = Request("adding", "tuned", ("mgu", "gru"), (0,), settings=(*SMALL, "batch_size=30"))
    compare.compare(other, tmp_path)
    assert len(comparisons(tmp_path)) == 2


@pytest.mark.parametrize(
    ("task", "name", "settings"),
    [
        ("adding", "tuned", ("data.train=60", "data.valid=20", "data.test=20")),
        ("mnist_rows", "tuned", ("data.train=400", "data.valid=100")),
        ("ptb", "paper", ("data.train=1000", "model.hidden_size=60", "model.embedding=20")),
        ("ptb", "tuned", ("data.train=1000", "model.hidden_size=60", "model.embedding=60")),
    ],
)
def test_equal_parameters_are_as_equal_as_they_can_be(
    task: str, name: str, settings: tuple[str, ...]
) -> None:
    asked = [override(recipe(task, name, u), settings) for u in ("mgu", "gru", "lstm", "simple")]
    loaded = tasks.load(asked[0])

    def parameters(made: Recipe) -> int:
        return count_parameters(made, build(made, loaded.shape)).hidden

    matched = compare.match_parameters(asked, loaded)
    assert matched[0] == asked[0]
    target = parameters(asked[0])
    for made in matched[1:]:
        size = made.model.hidden_size
        distances = []
        for tried in (size - 1, size, size + 1):
            other = override(made, [f"model.hidden_size={tried}"])
            distances.append(abs(parameters(other) - target))
        assert distances[1] == min(distances)


def test_equal_time_gives_the_slower_unit_less_of_it() -> None:
    asked = ASKED.recipes()
    matched = compare.match_time(asked, [0.1, 0.4])
    assert [made.length for made in matched] == [1.0, 0.25]


def test_an_interrupted_comparison_of_equal_times_keeps_its_lengths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request("adding", "tuned", ("mgu", "gru"), (0,), "time", SMALL)
    speeds = iter([[0.1, 0.2], [0.3, 0.1]])
    monkeypatch.setattr(estimates, "seconds_per_update", lambda _: next(speeds))
    first, second = (
        [c.recipe.length for c in compare.prepare(request, tmp_path)] for _ in range(2)
    )
    assert first == second == [1.0, 0.5]


def test_units_take_turns_when_they_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that gets slower with every look, the median of turns stays fair."""
    order: list[str] = []
    clock = itertools.count()
    monkeypatch.setattr("time.perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr(estimates, "_ROUNDS", 3)
    trainers = [Trainer(made, tasks.load(made)) for made in ASKED.recipes()]
    original = Trainer.step

    def step(self: Trainer, batch: tasks.Batch) -> float:
        order.append(self.recipe.unit)
        return original(self, batch)

    monkeypatch.setattr(Trainer, "step", step)
    estimates.seconds_per_update(trainers)
    assert order == ["mgu", "gru"] * 5


def test_the_same_unit_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="each can be compared once"):
        compare.compare(Request("adding", "tuned", ("mgu", "mgu")), tmp_path)


def test_stored_tables_are_read_back(tmp_path: Path) -> None:
    made = compare.compare(ASKED, tmp_path)
    (path,) = tmp_path.glob("comparison-*.json")
    assert Comparison.read(path) == made


def test_a_run_that_fails_is_named(tmp_path: Path) -> None:
    in_the_way = tmp_path / run_name(ASKED.recipes()[1])
    in_the_way.write_text("")
    with pytest.raises(RunError, match=r"1 of the runs failed:\nadding-tuned-gru-8-s0-"):
        compare.compare(ASKED, tmp_path)
    assert not comparisons(tmp_path)
