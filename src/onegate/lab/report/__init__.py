"""The report: finished runs beside the paper's numbers, as one HTML page with its figures.

>>> from onegate import report
>>> report.write(Path("runs"), Path("report"))
PosixPath('report/index.html')
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from onegate import files
from onegate.lab.pages import tabular
from onegate.lab.pages.figure import write_figures
from onegate.lab.report import committed, figures, inventory, page, tables
from onegate.lab.report.committed import beside
from onegate.lab.report.groups import grouped
from onegate.lab.report.inventory import Inventory, note_not_run
from onegate.lab.runs import Run

__all__ = ["ReportError", "beside", "draw", "note_not_run", "write"]


class ReportError(ValueError):
    """There is nothing to report on."""


def _say_nothing(_: str) -> None:
    pass


def write(
    runs: Path,
    out: Path,
    results: Path | None = None,
    need_runs: bool = True,
    *,
    latex_tables: bool = False,
    notify: Callable[[str], None] = _say_nothing,
) -> Path:
    """Reports on every finished run in `runs`, a folder or a .jsonl file; returns the page's path.

    results: a folder of kept runs on the real data to show beside them, see `beside`.
    need_runs: whether it is an error if there are no others.
    notify: is called with what is being done.

    `out` gets index.html and figures/, each figure as SVG, PDF, PNG and CSV; with `latex_tables`
    also tables/, each table of results as LaTeX. Each file is whole or not there, and the page
    comes last. Nothing is trained; other files in `out` stay as they are.
    """
    notify("reading the runs")
    found = inventory.take(runs)
    if not found.finished and (results is None or need_runs):
        raise ReportError(_nothing(found))
    notify("reading the committed results")
    kept = committed.take(results) if results else None
    groups = grouped(found.finished)
    drawn = figures.draw(groups, notify=notify)
    content = page.build(groups, drawn, found, kept)
    write_figures([*drawn, *(kept.figures if kept else ())], out / "figures")
    if latex_tables:
        (out / "tables").mkdir(parents=True, exist_ok=True)
        for name, table in tables.of_results(groups, found.comparisons).items():
            files.write(out / "tables" / f"{name}.tex", tabular.latex(table).encode())
    path = out / "index.html"
    files.write(path, content.encode())
    return path


def draw(runs: Iterable[Run], folder: Path) -> list[Path]:
    """Draws the figures of finished runs into a folder; returns the paths of the SVG files."""
    drawn = figures.draw(grouped(runs))
    write_figures(drawn, folder)
    return [folder / f"{figure.name}.svg" for figure in drawn]


def _nothing(found: Inventory) -> str:
    """What to do where no run is finished."""
    start = (
        "`onegate reproduce` runs the paper's comparison in minutes and reports on it; "
        "`onegate train adding` is a single run that needs no data"
    )
    if not found.root.exists():
        return f"there is no folder {found.root} with runs to report on: {start}"
    text = f"no finished run in {found.root}: {start}"
    for kind, left_out in found.left_out.items():
        for one in left_out:
            text += f"\n  {kind}: {one.name}: {one.why}"
    if found.unfinished:
        text += (
            f"\nGo on with one by: onegate train --run {found.root}/{found.unfinished[0].name} "
            "--resume"
        )
    return text
