"""The report: finished runs beside the paper's numbers, as one HTML page with its figures.

>>> from onegate import report
>>> report.write(Path("runs"), Path("report"))
PosixPath('report/index.html')
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from onegate import files
from onegate.lab.pages import figures as drawings
from onegate.lab.report import figures, inventory, page
from onegate.lab.report.groups import grouped
from onegate.lab.report.inventory import Inventory, note_not_run
from onegate.lab.runs import Run

__all__ = ["ReportError", "draw", "note_not_run", "write"]


class ReportError(ValueError):
    """There is nothing to report on."""


def write(runs: Path, out: Path) -> Path:
    """Reports on every finished run in `runs`, a folder or a .jsonl file; returns the page's path.

    `out` gets index.html and figures/, each figure as SVG, PNG and CSV. Each file is whole or not
    there, and the page comes last. Nothing is trained; other files in `out` stay as they are.
    """
    found = inventory.take(runs)
    if not found.finished:
        raise ReportError(_nothing(found))
    groups = grouped(found.finished)
    drawn = figures.draw(groups)
    content = page.build(groups, drawn, found)
    drawings.write(drawn, out / "figures")
    path = out / "index.html"
    files.write(path, content.encode())
    return path


def draw(runs: Iterable[Run], folder: Path) -> list[Path]:
    """Draws the figures of finished runs into a folder; returns the paths of the SVG files."""
    drawn = figures.draw(grouped(runs))
    drawings.write(drawn, folder)
    return [folder / f"{figure.name}.svg" for figure in drawn]


def _nothing(found: Inventory) -> str:
    """What to do where no run is finished."""
    start = (
        "`onegate reproduce` runs the paper's comparison in about ten minutes and reports on it; "
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
