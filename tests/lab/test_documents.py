"""The tables and figures of the documents are those of the results."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from onegate.lab import documents
from onegate.lab.archive import finished_runs
from onegate.lab.bench import markdown
from onegate.lab.cli import main
from onegate.lab.report.groups import grouped
from onegate.lab.tasks import TASKS
from onegate.lab.tasks.base import Study
from tests.lab.report import synthetic

REPOSITORY = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    not (REPOSITORY / "results").is_dir(), reason="the documents are in the repository alone"
)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """README.md and docs/*.md beside the results."""
    (tmp_path / "docs").mkdir()
    for page in (REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")):
        shutil.copy(page, tmp_path / page.relative_to(REPOSITORY))
    (tmp_path / "results").symlink_to(REPOSITORY / "results")
    return tmp_path


def test_every_table_in_the_documents_is_what_the_results_say(
    copy: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copy)
    assert main(["results", "tables"]) == 0
    assert capsys.readouterr().out == ""
    made = documents.tables(REPOSITORY / "results")
    pages = [path.read_text() for path in (copy / "README.md", *(copy / "docs").glob("*.md"))]
    marked = {name for page in pages for name in re.findall(r"<!-- end (.*) -->", page)}
    assert marked <= set(made)
    # One that was edited by hand is written again, and named.
    page = copy / "docs" / "benchmarks.md"
    whole = page.read_text()
    page.write_text(re.sub(r"(?m)(?<=\| )\d+\.\d+ ms(?= \|)", "0.01 ms", whole))
    assert page.read_text() != whole
    monkeypatch.setattr(documents, "tables", lambda _: made)
    assert main(["results", "tables", str(copy)]) == 0
    assert capsys.readouterr().out == f"{page}\n"
    assert page.read_text() == whole


def test_a_table_without_an_end_is_an_error(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(documents, "tables", lambda _: {"speed": "| |"})
    page = copy / "README.md"
    page.write_text(page.read_text().replace("<!-- end speed -->", ""))
    assert main(["results", "tables", str(copy)]) == 2
    assert "README.md has no line <!-- end speed --> after" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["tables", "figures"])
def test_another_folder_is_refused(
    action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["results", action, str(tmp_path)]) == 2
    assert "has no results and README.md" in capsys.readouterr().err


def test_runs_are_kept_and_their_figures_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    synthetic.seeds(tmp_path / "runs", "adding", "paper", "mgu", [0.004, 0.005])
    assert main(["results", "keep", "runs"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert len(finished_runs(tmp_path / "results" / "adding.jsonl")) == 2
    assert main(["report", "results", "-o", "report"]) == 0
    Path("README.md").touch()
    Path("docs", "figures").mkdir(parents=True)
    names = [path.stem for path in Path("report", "figures").glob("adding-*.svg")]
    page = Path("docs", "reproduction.md")
    page.write_text("".join(f"![x](figures/{name}.svg)\n" for name in names))
    assert main(["results", "figures"]) == 0
    for name in names:
        drawn = Path("docs", "figures", f"{name}.svg").read_bytes()
        assert drawn == Path("report", "figures", f"{name}.svg").read_bytes()
    page.write_text("![x](figures/nothing.svg)")
    assert main(["results", "figures"]) == 2
    assert main(["results", "keep", "nowhere"]) == 2
    told = capsys.readouterr().err
    assert "shows figures/nothing.svg, which no run in results gives" in told
    assert "there is no folder nowhere with runs to keep" in told


def test_a_markdown_table_and_what_stands_below_it() -> None:
    assert markdown.table(["a", "b"], [["1", ""]], "Below.") == (
        "| a | b |\n| --- | --- |\n| 1 |  |\n\nBelow."
    )


def test_a_task_brings_its_own_tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    synthetic.seeds(tmp_path, "adding", "paper", "mgu", [0.25])
    study = Study("of my own", "paper", ("optimizer.lr",), units=("mgu",))
    monkeypatch.setattr(TASKS["adding"], "studies", (study,))
    made = documents.tables(tmp_path)
    assert "as it is | 0.25" in made["of my own"]
    assert "readings adding" not in made
    names = [one.name for task in TASKS.values() for one in task.studies]
    assert len(names) == len({*names})


def test_the_name_of_every_kept_recipe_tells_what_ran() -> None:
    """Nothing that the paper does not say hides under `paper`."""
    kept = [run.recipe for run in finished_runs(REPOSITORY / "results" / "ptb.jsonl")]
    assert {made.name for made in kept} == {"paper", "regularised", "tuned"}
    for made in kept:
        assert made.model.start_from_text == (made.name != "paper")
    named = [g for g in grouped(finished_runs(REPOSITORY / "results")) if g.is_as_named]
    ptb = {(g.recipe.name, g.unit, g.hidden_size) for g in named if g.task == "ptb"}
    assert {("paper", unit, 400) for unit in ("mgu", "gru")} <= ptb
    assert {("regularised", unit, 400) for unit in ("mgu", "gru")} <= ptb
