"""Finished runs kept as lines of files, and read with those in folders."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from onegate.lab.archive import comparisons, finished_runs, keep, scan
from onegate.lab.recipes import override
from onegate.lab.runs import ComparedUnit, Comparison, Run, RunError
from tests.lab.test_runs import RECIPE, finished

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
    finished(tmp_path / "again" / "b").note_status("done", result={"update": 2, "valid_mse": 0.5})
    keep(tmp_path / "again", path.parent)
    (run,) = finished_runs(path)
    assert (run.folder.name, run.result) == ("b", {"update": 2, "valid_mse": 0.5})


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
        (lambda _: "[]", "its content is a list, expected an object"),
        (lambda _: "{}", "name is missing"),
        (lambda _: "\xff", "is not JSON"),
        (_with(name="../a"), "'../a' is not the name of a run"),
        (_with(name=".."), r"'\.\.' is not the name of a run"),
        (_with(name=3), "name is 3, expected a text"),
        (_with(recipe=[]), "recipe is a list, expected an object"),
        (_with(recipe={"colour": "blue"}), "recipe.data is missing"),
        (_with(machine=None), "machine is null, expected an object"),
        (_with(metrics={}), "metrics is an object, expected a list"),
        (_with(metrics=[3]), r"metrics\[0\] is 3, expected an object"),
        (_with(status={}), "state is missing"),
        (_with(status={"state": "finished"}), 'status.state is "finished", expected one of done'),
        (_with(status={"state": "done", "result": 3}), "status.result is 3, expected an object"),
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


def test_lines_of_metrics_that_were_edited_are_noticed(tmp_path: Path) -> None:
    folder = finished(tmp_path / "runs" / "a")
    folder.note_status("done", result={"update": 2}, metrics=folder.metric_lines())
    keep(tmp_path / "runs", tmp_path / "kept")
    path = tmp_path / "kept" / "adding.jsonl"
    assert len(finished_runs(path)) == 1
    path.write_text(path.read_text().replace('"valid_mse": 0.25', '"valid_mse": 0.24'))
    with pytest.warns(UserWarning, match="its metrics are not those that the run had written"):
        assert finished_runs(path) == []


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
