"""What lies in a folder of runs; what does not count is named with the reason."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from onegate.lab.recipes import recipe
from onegate.lab.report import inventory, note_not_run, page
from onegate.lab.report.groups import grouped
from onegate.lab.runs import keep
from tests.lab.report import synthetic


def edit(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, **changes}))


def why_damaged(root: Path) -> str:
    found = inventory.take(root)
    assert found.finished == ()
    (one,) = found.damaged
    assert str(root) not in one.why
    return one.why


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (folder,) = synthetic.seeds(tmp_path, "adding", "paper", "mgu", [0.004])
    return folder


def test_a_finished_run_needs_no_checkpoints_and_no_lock(tmp_path: Path, run: Path) -> None:
    (run / "lock").unlink()
    shutil.rmtree(run / "checkpoints", ignore_errors=True)
    (only,) = inventory.take(tmp_path).finished
    assert only.result["test_mse"] == 0.004


def test_a_finished_run_needs_no_curve(tmp_path: Path, run: Path) -> None:
    (run / "metrics.jsonl").unlink()
    assert len(inventory.take(tmp_path).finished) == 1


def test_the_folder_may_be_a_run_itself(run: Path) -> None:
    found = inventory.take(run)
    assert [found.name(one) for one in found.finished] == [run.name]


@pytest.mark.parametrize("state", ["running", "stopped", "failed"])
def test_unfinished_runs_are_named(tmp_path: Path, state: str) -> None:
    folder = synthetic.unfinished(tmp_path, recipe("mnist_rows", "tuned", "mgu"), state)
    found = inventory.take(tmp_path)
    assert (found.finished, found.damaged) == ((), ())
    (one,) = found.unfinished
    assert one.name == folder.name
    assert one.why == f"{state} after update 550"
    assert one.subject == ("mnist_rows", "tuned")


@pytest.mark.parametrize("name", ["recipe.json", "status.json", "machine.json"])
def test_a_file_cut_in_two_is_named(tmp_path: Path, run: Path, name: str) -> None:
    text = (run / name).read_text()
    (run / name).write_text(text[: len(text) // 2])
    assert f"{name} is not JSON" in why_damaged(tmp_path)


@pytest.mark.parametrize("name", ["recipe.json", "status.json"])
def test_a_missing_file_is_named(tmp_path: Path, run: Path, name: str) -> None:
    (run / name).unlink()
    assert f"{name} is missing" in why_damaged(tmp_path)


def test_a_recipe_that_no_version_knows_is_named(tmp_path: Path, run: Path) -> None:
    edit(run / "recipe.json", colour="blue")
    assert "no field 'colour'" in why_damaged(tmp_path)


def test_a_status_without_state_is_named(tmp_path: Path, run: Path) -> None:
    (run / "status.json").write_text("{}")
    assert why_damaged(tmp_path) == "state is missing"


def test_an_unknown_state_is_named(tmp_path: Path, run: Path) -> None:
    edit(run / "status.json", state="finished")
    assert "'finished'" in why_damaged(tmp_path)


@pytest.mark.parametrize("result", [{}, {"test_mse": None}, {"test_mse": float("nan")}])
def test_done_without_a_result_is_named(tmp_path: Path, run: Path, result: Any) -> None:
    edit(run / "status.json", result=result)
    assert "says done, but its test_mse is" in why_damaged(tmp_path)


def test_a_curve_that_breaks_off_is_named(tmp_path: Path, run: Path) -> None:
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines[:3]) + '{"upd')
    assert why_damaged(tmp_path) == "metrics.jsonl breaks off at update 15,000 of 100,000"


def test_comparisons_are_read_and_broken_ones_named(tmp_path: Path) -> None:
    made = synthetic.compared(tmp_path)
    (tmp_path / "comparison-x.json").write_text('{"task": "adding"}')
    found = inventory.take(tmp_path)
    assert found.comparisons == (made,)
    (one,) = found.damaged
    assert one.name == "comparison-x.json"


def test_word_left_about_what_was_not_run_is_read(tmp_path: Path) -> None:
    note_not_run(tmp_path / "runs", {"imdb": "no data"})
    assert inventory.take(tmp_path / "runs").not_run == {"imdb": "no data"}
    assert inventory.take(tmp_path).not_run == {}


def test_a_copy_of_a_run_counts_once(tmp_path: Path, run: Path) -> None:
    shutil.copytree(run, tmp_path / "results" / "again")
    found = inventory.take(tmp_path)
    assert [found.name(one) for one in found.finished] == [run.name]
    assert [(one.name, one.why) for one in found.copies] == [
        ("results/again", f"a copy of {run.name}")
    ]
    edit(tmp_path / "results" / "again" / "status.json", result={"test_mse": 0.004})
    assert len(inventory.take(tmp_path).finished) == 2


@pytest.mark.parametrize("name", ["recipe.json", "status.json", "machine.json", "metrics.jsonl"])
def test_no_damage_stops_a_report(tmp_path: Path, run: Path, name: str) -> None:
    """Bytes at random places replaced by others; what still counts must make a page."""
    whole = (run / name).read_bytes()
    noise = random.Random(name)
    counted = 0
    for _ in range(40):
        content = bytearray(whole)
        for _ in range(noise.randint(1, 4)):
            content[noise.randrange(len(content))] = noise.randrange(256)
        (run / name).write_bytes(content[: noise.choice([len(content), noise.randrange(1, 400)])])
        found = inventory.take(tmp_path)
        assert len(found.finished) + len(found.unfinished) + len(found.damaged) == 1
        page.build(grouped(found.finished), [], found)
        counted += len(found.finished)
    assert counted < 40


def test_kept_runs_are_named_by_file_and_run_and_damaged_ones_by_line(
    tmp_path: Path, run: Path
) -> None:
    path = tmp_path / "kept" / "adding.jsonl"
    keep(run, path.parent)
    path.write_text(path.read_text() + "{}\n")
    for root in (path, path.parent):
        found = inventory.take(root)
        assert [found.name(one) for one in found.finished] == [f"adding.jsonl/{run.name}"]
        assert [(one.name, one.why) for one in found.damaged] == [
            ("adding.jsonl:2", "name is missing")
        ]
    found = inventory.take(tmp_path)
    assert [(one.name, one.why) for one in found.copies] == [
        (f"kept/adding.jsonl/{run.name}", f"a copy of {run.name}")
    ]
