"""Plans: threads that fill the cores and stay as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from onegate.lab.runs import RunFolder, run_name
from onegate.lab.sweep import PlanError, make, place, plan
from tests.lab.sweep.made import recipes


@pytest.mark.parametrize(
    ("cores", "runs", "threads"),
    [(2, 1, 2), (2, 2, 1), (2, 50, 1), (8, 3, 2), (8, 1, 8), (1, 1, 1)],
)
def test_cores_are_full_and_not_oversubscribed(
    cores: int, runs: int, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "cores", lambda: cores)
    asked = recipes(("mgu",), tuple(range(runs)))
    assert make(asked, place(tmp_path)).threads == threads


def test_threads_stay_what_they_were(tmp_path: Path) -> None:
    asked = recipes()
    assert make(asked, place(tmp_path), machine_cores=8).threads == 2
    assert make(asked[::-1], place(tmp_path), machine_cores=64).threads == 2
    assert make(asked, place(tmp_path), 2).threads == 2
    with pytest.raises(PlanError, match="begun with --threads 2, now 3 is asked for"):
        make(asked, place(tmp_path), 3)
    assert make(asked[:1], place(tmp_path), machine_cores=8).threads == 8
    assert make(asked[:1], place(tmp_path), machine_cores=8, belongs_to=asked).threads == 2


def test_impossible_threads_and_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="--threads is 0"):
        make(recipes(), place(tmp_path), 0)
    make(recipes(), place(tmp_path))
    (path,) = tmp_path.glob("sweep-*.json")
    path.write_text("{")
    with pytest.raises(PlanError, match=r"sweep-.*\.json in .* is damaged: remove it"):
        make(recipes(), place(tmp_path))


def test_finished_runs_are_not_left_to_do(tmp_path: Path) -> None:
    asked = recipes()
    made = make(asked, place(tmp_path))
    names = [run_name(recipe) for recipe in asked]
    assert made.unfinished() == names
    for number, state in ((1, "done"), (2, "stopped"), (3, "failed")):
        (tmp_path / names[number]).mkdir()
        RunFolder(tmp_path / names[number]).note_status(state)  # type: ignore[arg-type]
    assert made.unfinished() == [names[0], names[2], names[3]]
