"""Committed results on the page beside what was measured here."""

from __future__ import annotations

from pathlib import Path

import pytest

from onegate.lab import report
from onegate.lab.cli import main
from onegate.lab.report import ReportError, committed
from tests.lab.report import synthetic
from tests.lab.report.reading import ReadPage

STAND_IN = ["data.source=stand-in", "length=2", "data.train=20000"]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("kept")
    for unit, end in (("gru", 0.85), ("mgu", 0.93)):
        synthetic.seeds(root, "mnist_rows", "flow", unit, [end, end])
        synthetic.seeds(root, "mnist_rows", "flow", unit, [0.1], ["length=1"])
        synthetic.seeds(root, "mnist_rows", "tuned", unit, [0.98])
        synthetic.seeds(root, "ptb", "paper", unit, [122.0], ["model.hidden_size=400"])
        synthetic.seeds(root, "ptb", "regularised", unit, [101.0], ["model.hidden_size=400"])
        synthetic.seeds(root, "ptb", "regularised", unit, [99.0])
    synthetic.seeds(root, "mnist_rows", "tuned", "lstm", [0.97])
    return root


def test_two_kinds_of_evidence_are_told_apart(kept: Path, tmp_path: Path) -> None:
    for unit, end in (("gru", 0.61), ("mgu", 0.62)):
        synthetic.seeds(tmp_path / "runs", "mnist_rows", "tuned", unit, [end], STAND_IN)
        synthetic.seeds(tmp_path / "runs", "adding", "paper", unit, [0.03], ["length=10"])
    text = report.write(tmp_path / "runs", tmp_path / "out", kept).read_text()
    page = ReadPage(text)
    rows = {row[0].text: row for row in page.sections["glance"].table("Results").rows}
    by_rows = rows["MNIST by rows, MGU"]
    assert [cell.text for cell in rows["task and unit"]][1:6] == [
        "paper", "measured", "measured", "difference", "tuned"
    ]  # fmt: skip
    assert by_rows[2].values == [0.62]
    assert "tuned, stand-in" in by_rows[2].text
    assert "a stand-in: digits drawn from matplotlib's fonts" in page.sections["mnist_rows"].text
    assert "stand-in" not in page.sections["adding"].text
    assert by_rows[3].values == [0.93]
    assert by_rows[4].values == [pytest.approx(0.93 - 0.8807)]
    # A shortened run is held against nothing; what was not committed is not made up.
    adding = rows["The adding problem, MGU"]
    assert "paper, shortened" in adding[2].text
    assert [cell.text for cell in adding[3:6]] == ["not run", "\N{EN DASH}", "not run"]
    assert text.count('class="evidence here"') == 2
    assert text.count('class="evidence kept"') == 2
    assert text.index('class="evidence here"') < text.index('class="evidence kept"')


def test_both_recipes_of_penn_treebank_are_shown_at_one_size(kept: Path, tmp_path: Path) -> None:
    page = ReadPage(report.write(tmp_path, tmp_path / "out", kept, need_runs=False).read_text())
    table = page.sections["glance"].table("Results")
    cells = {row[0].text: row[2].values for row in table.rows[2:]}
    assert cells["Penn TreeBank, MGU, 400"] == [122.0]
    assert cells["Penn TreeBank, regularised, MGU, 400"] == [101.0]
    ptb = page.sections["ptb"]
    assert [t.label.split()[-1] for t in ptb.tables if "Table 2" in t.label] == [
        "paper", "regularised"
    ]  # fmt: skip
    assert "of which the paper says nothing" in ptb.text
    assert "Nothing was run yet" in page.sections[""].text
    # Runs that shared a machine say nothing of time; another section has what was timed in turns.
    assert not any("s / epoch" in c.text for t in ptb.tables for row in t.rows for c in row)
    assert not any(name.endswith("-time") for name in ptb.figures)


def test_only_recipes_as_named_of_the_papers_units_are_shown(kept: Path) -> None:
    found = committed.take(kept).of("mnist_rows")
    assert {(g.unit, g.recipe.name) for g in found} == {
        ("gru", "flow"), ("mgu", "flow"), ("gru", "tuned"), ("mgu", "tuned")
    }  # fmt: skip
    assert all(g.is_as_named for g in found)


def test_the_results_that_come_with_onegate_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = committed.find()
    assert found is not None
    shown = committed.take(found)
    assert {g.task for g in shown.groups} >= {
        "adding", "imdb", "mnist_rows", "mnist_pixels", "ptb"
    }  # fmt: skip
    assert ("ptb", 500) in shown.seconds_per_epoch
    assert committed.beside(found) is None
    assert committed.beside(found / "ptb.jsonl") is None
    assert committed.beside(tmp_path) == found
    monkeypatch.setattr(committed, "find", lambda: None)
    assert committed.beside(tmp_path) is None


def test_a_page_without_any_run(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(committed, "find", lambda: kept)
    assert main(["report"]) == 0
    assert "Committed results" in Path("report", "index.html").read_text()
    with pytest.raises(ReportError, match="no finished run"):
        report.write(tmp_path, tmp_path / "out", kept)
    assert main(["report", "nowhere"]) == 2  # a folder that was named has to be there
