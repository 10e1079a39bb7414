"""`onegate report`: finished runs as a page beside the paper's numbers."""

from __future__ import annotations

import argparse
from pathlib import Path

from onegate.lab import report
from onegate.lab.cli.options import add_plugins


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    add_plugins(parser)
    parser.add_argument(
        "runs",
        nargs="?",
        type=Path,
        default=Path("runs"),
        help="folder of runs, or .jsonl file that keeps some (default: runs)",
    )
    parser.add_argument(
        "-o",
        dest="out",
        type=Path,
        default=Path("report"),
        help="folder to write (default: report)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Writes the page and prints where it is."""
    print(report.write(args.runs, args.out))
    return 0
