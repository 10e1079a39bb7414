"""Writing a report: whole files, the same bytes, clear words where there is nothing to report."""

from __future__ import annotations

from pathlib import Path

import pytest

from onegate import files
from onegate.lab import report
from onegate.lab.cli import main
from onegate.lab.recipes import recipe
from onegate.lab.report import ReportError
from onegate.lab.report.provenance import seconds
from onegate.lab.runs import RunFolder
from tests.lab.report import synthetic


def content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for unit in ("gru", "mgu"):
        synthetic.seeds(tmp_path / "runs", "mnist_rows", "flow", unit, [0.87, 0.88])
    return tmp_path / "runs"


def test_the_same_runs_give_the_same_bytes(tmp_path: Path, runs: Path) -> None:
    report.write(runs, tmp_path / "one")
    moved = runs.rename(tmp_path / "moved")
    report.write(moved, tmp_path / "two")
    written = content(tmp_path / "one")
    assert written == content(tmp_path / "two")
    assert set(written) == {
        "index.html",
        *(f"figures/mnist_rows-flow-curves.{kind}" for kind in ("svg", "pdf", "png", "csv")),
    }


def test_tables_for_papers(tmp_path: Path, runs: Path) -> None:
    out = tmp_path / "out"
    assert main(["report", str(runs), "-o", str(out), "--latex"]) == 0
    tables = {path.stem: path.read_text() for path in (out / "tables").iterdir()}
    assert set(tables) == {"glance", "times", "mnist_rows-results"}
    assert "MNIST by rows, MGU & 88.07\\% & 87.50 $\\pm$ 0.71\\% & " in tables["glance"]
    assert "dag" not in tables["glance"]
    for text in tables.values():
        assert text.startswith("% ")
        assert text.count("\\begin{") == text.count("\\end{") == 1
        assert text.count("{") == text.count("}")
    synthetic.seeds(runs, "adding", "paper", "mgu", [0.1], ["length=2"])
    report.write(runs, out, latex_tables=True)
    caption, *rest = (out / "tables" / "glance.tex").read_text().splitlines()
    assert "differ from the recipe" in caption
    assert any("\\dag" in line for line in rest)  # what it says is explained


def test_other_files_stay(tmp_path: Path, runs: Path) -> None:
    mine = tmp_path / "out" / "figures" / "mine.svg"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    report.write(runs, tmp_path / "out")
    assert mine.read_text() == "mine"


def test_the_page_comes_last_and_whole(
    tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = report.write(runs, tmp_path / "out")
    before = path.read_bytes()
    synthetic.seeds(runs, "adding", "tuned", "mgu", [0.1])
    write, written = files.write, []

    def full_disk(target: Path, data: bytes) -> None:
        if target.name == "index.html":
            raise OSError(28, "No space left on device", str(target))
        written.append(target.name)
        write(target, data)

    monkeypatch.setattr(files, "write", full_disk)
    with pytest.raises(OSError, match="No space left"):
        report.write(runs, tmp_path / "out")
    assert len(written) == 8
    assert path.read_bytes() == before
    assert not list((tmp_path / "out").rglob("*.draft"))


def test_runs_are_only_read(tmp_path: Path, runs: Path) -> None:
    before = content(runs)
    report.write(runs, tmp_path / "out")
    assert content(runs) == before


def test_an_empty_folder_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert f"no finished run in {tmp_path}" in said
    assert "`onegate reproduce`" in said
    assert not (tmp_path / "out").exists()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"there is no folder .*nowhere"):
        report.write(tmp_path / "nowhere", tmp_path / "out")


def test_unfinished_and_damaged_runs_alone_are_named(tmp_path: Path) -> None:
    folder = synthetic.unfinished(tmp_path, recipe("adding", "tuned", "mgu"), "stopped")
    synthetic.damaged(tmp_path / "broken")
    with pytest.raises(ReportError) as caught:
        report.write(tmp_path, tmp_path / "out")
    said = str(caught.value)
    assert f"unfinished: {folder.name}: stopped after update 550" in said
    assert "damaged: broken: " in said
    assert f"onegate train --run {folder} --resume" in said


def test_a_run_in_use_is_read_all_the_same(tmp_path: Path, runs: Path) -> None:
    with RunFolder(next(runs.iterdir())).locked():
        report.write(runs, tmp_path / "out")


def test_the_command_prints_the_pages_path(
    tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report"]) == 0
    assert capsys.readouterr().out == "report/index.html\n"
    assert (tmp_path / "report" / "index.html").is_file()


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0.5 s"), (99.4, "99.4 s"), (119.7, "2 min"), (250, "4 min 10 s"), (3600, "1 h"),
     (7505, "2 h 5 min")],
)  # fmt: skip
def test_durations(value: float, text: str) -> None:
    assert seconds(value) == text
