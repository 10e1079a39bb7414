"""The results that come with onegate: the paper's two units on the real data.

A clone has them in results/, an installed package in onegate/lab/results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onegate
from onegate import files
from onegate.lab.archive import finished_runs
from onegate.lab.pages.figure import Figure
from onegate.lab.report import figures
from onegate.lab.report.groups import PAPER_UNITS, Group, grouped
from onegate.lab.runs import Run

# One sentence wherever both recipes of Penn TreeBank are shown.
REGULARISED = (
    "`regularised` is `paper` with weight decay and word vectors that start from counts of the "
    "text, of which the paper says nothing; without them larger nets learn the text by heart."
)
_ROW = {"task": str, "hidden_size": int, "gru": float, "mgu": float}
_PACE = {"date": str, "machine": {"threads": int}, "rows": [_ROW]}


@dataclass(frozen=True, eq=False)
class Committed:
    """What of the results a page shows beside other runs.

    groups: every recipe as it is named, of the paper's units. seconds_per_epoch: by task and
        hidden neurons those of GRU and MGU, measured in turns; how: with what, and when. Times of
        the runs are not shown: they shared their machines with others.
    """

    groups: tuple[Group, ...]
    figures: tuple[Figure, ...]
    seconds_per_epoch: dict[tuple[str, int], tuple[float, float]]
    how: str

    def of(self, task: str) -> list[Group]:
        """Those of a task."""
        return [group for group in self.groups if group.task == task]


def find() -> Path | None:
    """The folder of the results: that of the clone, or else that of the installed package."""
    package = Path(onegate.__file__).parent
    clone = package.parents[1]
    places = [clone / "results"] if (clone / "pyproject.toml").is_file() else []
    places.append(package / "lab" / "results")
    return next((place for place in places if any(place.glob("*.jsonl"))), None)


def beside(runs: Path) -> Path | None:
    """The folder of the results, unless `runs` are those."""
    found = find()
    if found is None or found.resolve() in (runs.resolve(), *runs.resolve().parents):
        return None
    return found


def take(results: Path) -> Committed:
    """Reads them, and draws their figures."""
    groups = tuple(
        group
        for group in grouped(finished_runs(results))
        if group.is_as_named and group.unit in PAPER_UNITS
    )
    path = results / "time_per_epoch.json"
    made: dict[str, Any] = {"rows": []}
    how = ""
    if path.is_file():
        made = files.read_json(path, _PACE)
        how = f"{made['machine']['threads']} threads, {made['date']}"
    seconds = {(row["task"], row["hidden_size"]): (row["gru"], row["mgu"]) for row in made["rows"]}
    return Committed(groups, tuple(figures.draw(groups, ("committed",), timed=False)), seconds, how)


def where(groups: Sequence[Group]) -> str:
    """The runs in a line: how many, on which processors, with which torch."""
    runs = [run for group in groups for run in group.runs]
    parts = [f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}"]
    parts += [_told(runs, "processor", ""), _told(runs, "torch", "torch ")]
    return ", ".join(part for part in parts if part)


def _told(runs: Sequence[Run], name: str, before: str) -> str:
    values = sorted({str(run.machine[name]) for run in runs if run.machine.get(name)})
    return f"{before}{' and '.join(values)}" if values else ""
