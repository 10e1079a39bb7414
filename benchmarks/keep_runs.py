"""Copies the small files of finished runs, and comparisons, into results; no checkpoints.

python benchmarks/keep_runs.py runs
python benchmarks/write_tables.py
"""

from __future__ import annotations

import argparse
from pathlib import Path

from onegate.lab import files
from onegate.lab import runs as results

RESULTS = Path(__file__).parent.parent / "results"
SMALL = ("recipe.json", "machine.json", "metrics.jsonl", "status.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs")
    for folder in parser.parse_args().runs:
        for run in results.finished_runs(folder):
            to = RESULTS / "runs" / results.run_name(run.recipe)
            to.mkdir(parents=True, exist_ok=True)
            for name in SMALL:
                files.write(to / name, (run.folder / name).read_bytes())
            print(to.name)
        for path in sorted(folder.glob("comparison-*.json")):
            (RESULTS / "comparisons").mkdir(exist_ok=True)
            files.write(RESULTS / "comparisons" / path.name, path.read_bytes())
            print(path.name)


if __name__ == "__main__":
    main()
