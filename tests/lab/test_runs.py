"""Run folders: written whole, locked, read again; kept as lines of a file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from onegate.lab.recipes import override, recipe
from onegate.lab.runs import (
    ComparedUnit,
    Comparison,
    Run,
    RunError,
    RunFolder,
    comparisons,
    finished_runs,
    keep,
    run_name,
    scan,
)
from onegate.lab.train.checkpoints import Checkpoint

RECIPE = recipe("adding", "tuned", "mgu")


def finished(path: Path) -> RunFolder:
    folder = RunFolder(path)
    with folder.locked():
        folder.start(RECIPE)
        folder.note_machine({"threads": 2})
        folder.append_metrics({"update": 1, "epoch": 0.5, "train_loss": 2.0})
        folder.append_metrics({"update": 2, "epoch": 1.0, "valid_mse": 0.25})
        folder.checkpoints.save(
            Checkpoint(2, {"model.w": torch.ones(2), "optimizer.w": torch.zeros(2)}, {})
        )
        folder.note_status("done", result={"update": 2, "valid_mse": 0.25})
    return folder


def test_a_finished_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    finished(tmp_path / "a" / "run")
    (run,) = finished_runs(tmp_path)
    assert run.recipe == RECIPE
    assert run.machine == {"threads": 2}
    assert run.state == "done"
    assert run.result["valid_mse"] == 0.25
    assert run.curve("epoch", "valid_mse") == ([1.0], [0.25])
    assert list(run.weights()) == ["w"]
    assert run == Run.read(tmp_path / "a" / "run")


def test_only_finished_runs_are_listed(tmp_path: Path) -> None:
    finished(tmp_path / "one").note_status("stopped")
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "status.json").write_text("{}")
    assert finished_runs(tmp_path) == []


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"recipe\.json is missing"):
        Run.read(tmp_path)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    finished(tmp_path)
    (tmp_path / "status.json").write_text('{"state": ')
    with pytest.raises(ValueError, match=r"status\.json is not JSON"):
        Run.read(tmp_path)


def test_half_a_line_is_dropped_and_later_lines_too(tmp_path: Path) -> None:
    folder = finished(tmp_path)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"update": 3, "epo')
    assert [m["update"] for m in Run.read(tmp_path).metrics] == [1, 2]
    folder.keep_metrics_until(1)
    folder.append_metrics({"update": 2})
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["update"] for line in lines] == [1, 2]


def test_changes_of_the_machine_are_recorded(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.note_machine({"threads": 2, "torch": "1"}) == []
    assert folder.note_machine({"threads": 2, "torch": "1"}) == []
    assert folder.note_machine({"threads": 1, "torch": "1"}) == ["threads: 2, now 1"]
    folder.note_machine({"threads": 1, "torch": "1"})
    noted = json.loads((tmp_path / "machine.json").read_text())
    assert noted == {"threads": 2, "torch": "1", "resumed_with": [{"threads": 1}]}


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    with (
        RunFolder(tmp_path).locked(),
        pytest.raises(RunError, match=f"in use by process {os.getpid()} on"),
        RunFolder(tmp_path).locked(),
    ):
        pass
    with RunFolder(tmp_path).locked():
        pass


def test_the_lock_of_a_killed_process_is_stale(tmp_path: Path) -> None:
    hold = (
        "import sys, time; from pathlib import Path; from onegate.lab.runs import RunFolder\n"
        "with RunFolder(Path(sys.argv[1])).locked():\n"
        "    print('held', flush=True); time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(RunError, match=f"process {process.pid} "), RunFolder(tmp_path).locked():
            pass
        process.send_signal(signal.SIGKILL)
    with RunFolder(tmp_path).locked():
        assert (tmp_path / "lock").read_text().startswith(f"process {os.getpid()} ")


def test_drafts_of_killed_processes_are_cleared_away(tmp_path: Path) -> None:
    finished(tmp_path)
    for folder in (tmp_path, tmp_path / "checkpoints"):
        (folder / ".x.json.123.draft").write_bytes(b"half")
    with RunFolder(tmp_path).locked():
        assert not list(tmp_path.rglob("*.draft"))


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(RunError, match=r"cannot be written: Not a directory; choose another"),
        RunFolder(tmp_path / "file" / "run").locked(),
    ):
        pass


def test_names_of_runs_tell_recipes_apart() -> None:
    other = override(RECIPE, ["optimizer.lr=0.003"])
    assert run_name(RECIPE).startswith("adding-tuned-mgu-100-s0-")
    assert run_name(RECIPE) != run_name(other)
    assert run_name(RECIPE) == run_name(override(other, [f"optimizer.lr={RECIPE.optimizer.lr}"]))


def test_comparisons_round_trip(tmp_path: Path) -> None:
    row = ComparedUnit("mgu", 100, (1.0, 2.0, 6.0), 0.5, 41_200, 41_400, ("a", "b", "c"))
    made = Comparison("adding", "tuned", "units", "test_mse", (row, row), ("length=3",))
    made.write(tmp_path / "comparison-adding.json")
    assert comparisons(tmp_path) == [made]
    assert row.mean == 3.0
    assert row.spread == pytest.approx(7**0.5)
    stored = json.loads((tmp_path / "comparison-adding.json").read_text())
    assert stored["units"][0]["mean"] == 3.0


def test_comparisons_of_versions_without_settings_are_read(tmp_path: Path) -> None:
    row = ComparedUnit("mgu", 100, (1.0,), 0.5, 41_200, None, ("a",))
    made = Comparison("adding", "tuned", "units", "test_mse", (row,))
    path = tmp_path / "comparison-adding.json"
    made.write(path)
    content = json.loads(path.read_text())
    assert content.pop("settings") == []
    path.write_text(json.dumps(content))
    assert comparisons(tmp_path) == [made]


@pytest.mark.parametrize("damage", ['{"state": ', "[]", '{"stat": "done"}'])
def test_damaged_folders_are_named_and_the_others_read(tmp_path: Path, damage: str) -> None:
    for name in ("a", "b", "c"):
        finished(tmp_path / name)
    (tmp_path / "b" / "status.json").write_text(damage)
    with pytest.warns(UserWarning, match=r"/b is damaged and left out: .*stat"):
        runs = finished_runs(tmp_path)
    assert [run.folder.name for run in runs] == ["a", "c"]


def test_damaged_comparisons_are_named_and_the_others_read(tmp_path: Path) -> None:
    row = ComparedUnit("mgu", 100, (1.0,), 0.5, 41_200, None, ("a",))
    made = Comparison("adding", "tuned", "units", "test_mse", (row,))
    made.write(tmp_path / "comparison-b.json")
    (tmp_path / "comparison-a.json").write_text('{"task": "adding"}')
    with pytest.warns(UserWarning, match=r"comparison-a\.json is damaged .*units is missing"):
        assert comparisons(tmp_path) == [made]


def test_a_lock_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as asked, and taken when it is free."""
    with (
        RunFolder(tmp_path).locked(),
        pytest.raises(RunError, match="in use"),
        RunFolder(tmp_path).locked(0.3),
    ):
        pass
    tried = iter([False, False, True])
    monkeypatch.setattr("onegate.files.try_lock", lambda _: next(tried))
    monkeypatch.setattr("time.sleep", lambda _: None)
    with RunFolder(tmp_path).locked(60):
        assert next(tried, None) is None


RESULTS = Path(__file__).parents[2] / "results"


def kept(folder: Path) -> Path:
    """A file that keeps a finished run, `a`."""
    finished(folder / "runs" / "a")
    assert keep(folder / "runs", folder / "kept") == ["a"]
    return folder / "kept" / "adding.jsonl"


def test_a_kept_run_is_the_run_without_its_weights(tmp_path: Path) -> None:
    path = kept(tmp_path)
    (run,) = finished_runs(path)
    original = Run.read(tmp_path / "runs" / "a")
    assert replace(run, folder=original.folder) == original
    assert (run.folder.name, run.is_kept, original.is_kept) == ("a", True, False)
    assert finished_runs(tmp_path / "kept") == [run]
    with pytest.raises(RunError, match=r"adding\.jsonl keeps a without its weights"):
        run.weights()
    line = json.loads(path.read_text())
    for name in ("recipe", "machine", "status"):
        assert line[name] == json.loads((original.folder / f"{name}.json").read_text())
    lines = (original.folder / "metrics.jsonl").read_text().splitlines()
    assert line["metrics"] == [json.loads(each) for each in lines]


def test_folders_and_files_are_read_together_and_metrics_are_no_runs(tmp_path: Path) -> None:
    kept(tmp_path)
    finished(tmp_path / "z" / "b")
    found = [found.path.relative_to(tmp_path).as_posix() for found in scan(tmp_path)]
    assert found == ["runs/a", "z/b", "kept/adding.jsonl/a"]


def test_keeping_again_changes_nothing_and_a_newer_run_takes_the_place(tmp_path: Path) -> None:
    path = kept(tmp_path)
    before = path.read_bytes()
    keep(tmp_path / "runs", path.parent)
    keep(path, path.parent)
    assert path.read_bytes() == before
    finished(tmp_path / "again" / "b").note_status("done", result={"valid_mse": 0.5})
    keep(tmp_path / "again", path.parent)
    (run,) = finished_runs(path)
    assert (run.folder.name, run.result) == ("b", {"valid_mse": 0.5})


def test_lines_are_sorted_by_name_and_unfinished_runs_are_not_kept(tmp_path: Path) -> None:
    for seed, name in enumerate(("c", "a", "b")):
        folder = finished(tmp_path / "runs" / name)
        folder.start(override(RECIPE, [f"seed={seed}"]))
    finished(tmp_path / "runs" / "d").note_status("stopped")
    keep(tmp_path / "runs", tmp_path / "kept")
    lines = (tmp_path / "kept" / "adding.jsonl").read_text().splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["a", "b", "c"]


def test_comparisons_are_kept(tmp_path: Path) -> None:
    row = ComparedUnit("mgu", 100, (1.0,), 0.5, 41_200, None, ("a",))
    made = Comparison("adding", "tuned", "units", "test_mse", (row,))
    (tmp_path / "runs").mkdir()
    made.write(tmp_path / "runs" / "comparison-x.json")
    assert keep(tmp_path / "runs", tmp_path / "kept") == ["comparison-x"]
    assert comparisons(tmp_path / "kept") == [made]
    assert finished_runs(tmp_path / "kept") == []


def _cut(line: str) -> str:
    return line[: len(line) // 2]


def _with(**changes: object) -> Callable[[str], str]:
    return lambda line: json.dumps({**json.loads(line), **changes})


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (_cut, "is not JSON"),
        (lambda _: "[]", "holds list, expected a JSON object"),
        (lambda _: "{}", "name is missing"),
        (lambda _: "\xff", "is not JSON"),
        (_with(name="../a"), "'../a' is not the name of a run"),
        (_with(name=".."), r"'\.\.' is not the name of a run"),
        (_with(name=3), "3 is not the name of a run"),
        (_with(recipe=[]), "recipe holds list, not dict"),
        (_with(recipe={"colour": "blue"}), "expected one of adding"),
        (_with(machine=None), "machine holds NoneType"),
        (_with(metrics={}), "metrics holds dict"),
        (_with(metrics=[3]), "metrics holds a line that is no JSON object"),
        (_with(status={}), "state is missing"),
        (_with(status={"state": "finished"}), "has state 'finished', which no run has"),
        (_with(status={"state": "done", "result": 3}), "the result is int"),
    ],
)
def test_damaged_lines_are_named_and_the_others_read(
    tmp_path: Path, damage: Callable[[str], str], told: str
) -> None:
    path = kept(tmp_path)
    line = path.read_text().strip()
    other = json.dumps({**json.loads(line), "name": "b"})
    path.write_text(f"{line}\n{damage(line)}\n{other}\n", encoding="latin-1")
    with pytest.warns(UserWarning, match=rf"adding\.jsonl:2 is damaged and left out: .*{told}"):
        runs = finished_runs(path)
    assert [run.folder.name for run in runs] == ["a", "b"]
    with pytest.raises(RunError, match=r"adding\.jsonl:2 is damaged: .*mend or remove it first"):
        keep(tmp_path / "runs", path.parent)


def test_what_is_neither_a_folder_nor_such_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("no runs")
    with pytest.raises(RunError, match=r"README\.md is neither a folder of runs nor a \.jsonl"):
        finished_runs(tmp_path / "README.md")


@pytest.mark.skipif(not RESULTS.is_dir(), reason="the results are in the repository alone")
def test_the_results_of_the_repository_are_whole_and_sorted() -> None:
    assert [found.damage for found in scan(RESULTS) if found.damage] == []
    assert len(finished_runs(RESULTS)) >= 267
    assert len(comparisons(RESULTS)) >= 4
    for path in RESULTS.glob("*.jsonl"):
        names = [json.loads(line)["name"] for line in path.read_text().splitlines()]
        assert names == sorted(set(names))
