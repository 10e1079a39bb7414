"""Draws the figures of docs/reproduction.md from the runs in results.

    python benchmarks/keep_runs.py runs
    python benchmarks/write_figures.py

They are those of `onegate report results/runs`, which has more of them.
"""

from __future__ import annotations

import re
from pathlib import Path

from onegate.lab import files
from onegate.lab.report import figures
from onegate.lab.report.groups import grouped
from onegate.lab.runs import finished_runs

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reproduction.md"


def main() -> None:
    drawn = {
        figure.name: figure for figure in figures.draw(grouped(finished_runs(ROOT / "results")))
    }
    for path in re.findall(r"\]\((figures/[\w-]+\.svg)\)", PAGE.read_text()):
        files.write(PAGE.parent / path, drawn[Path(path).stem].svg.encode())
        print(path)


if __name__ == "__main__":
    main()
