"""`onegate report`: finished runs as a page beside the paper's numbers."""

from __future__ import annotations

import argparse
from pathlib import Path

from onegate.lab import report
from onegate.lab.cli.options import add_plugins
from onegate.lab.train import session
from onegate.lab.train.progress import alive


def register(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "What was measured here, the committed results on the real data, and the paper's numbers."
    )
    add_plugins(parser)
    parser.add_argument(
        "runs",
        nargs="?",
        type=Path,
        help="folder of runs, or .jsonl file that keeps some (default: runs)",
    )
    parser.add_argument(
        "-o",
        dest="out",
        type=Path,
        default=Path("report"),
        help="folder to write (default: report)",
    )
    parser.add_argument(
        "--latex", action="store_true", help="write the tables of results as LaTeX too, in tables/"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Writes the page and prints where it is."""
    runs = args.runs or session.RUNS
    # A folder that was named has to hold runs; without one the committed results are worth a page.
    with alive("report") as notify:
        page = report.write(
            runs,
            args.out,
            report.beside(runs),
            need_runs=args.runs is not None,
            latex_tables=args.latex,
            notify=notify,
        )
    print(page)
    return 0
