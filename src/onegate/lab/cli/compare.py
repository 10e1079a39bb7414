"""`onegate compare`: units side by side on one task."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table

from onegate.lab import compare, report, tasks
from onegate.lab.cli.options import (
    add_plugins,
    add_seed_count,
    add_settings,
    add_threads_of_runs,
    counted_seeds,
    plain_warnings,
    task,
    unit,
)
from onegate.lab.runs import Comparison, Run
from onegate.lab.train import session as training


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    add_plugins(parser)
    parser.add_argument(
        "task", type=task, help=f"one of {', '.join(tasks.TASKS)}, or FILE.py:Class"
    )
    parser.add_argument(
        "--units", nargs="+", type=unit, default=["mgu", "gru"],
        help="names, or FILE.py:Class (default: mgu gru)",
    )  # fmt: skip
    parser.add_argument("--recipe", help="default: tuned")
    add_seed_count(parser, default=3)
    parser.add_argument(
        "--match",
        choices=("units", "parameters", "time"), default="units",
        help="what is equal: hidden units (default), or the first unit's parameters or time",
    )  # fmt: skip
    add_settings(parser)
    parser.add_argument(
        "--runs", type=Path, default=training.RUNS, metavar="FOLDER", help="default: runs"
    )
    add_threads_of_runs(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Trains what is not trained yet; prints the table."""
    seeds = counted_seeds(args)
    training.use_threads(args.threads)
    request = compare.Request(
        args.task,
        args.recipe or tasks.get(args.task).usual,
        tuple(args.units),
        seeds,
        args.match,
        tuple(args.settings),
    )
    with plain_warnings():
        made = compare.compare(request, args.runs, args.threads)
    show(made)
    finished = [Run.read(args.runs / name) for row in made.units for name in row.runs]
    for path in report.draw(finished, args.runs / "figures"):
        print(f"figure: {path}")
    return 0


def show(made: Comparison) -> None:
    """Prints the table of a comparison."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    headings = ("unit", "hidden", made.metric, "spread", "s/epoch", "parameters", "as the paper")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "unit" else "right")
    for row in made.units:
        paper = "" if row.parameters_paper is None else f"{row.parameters_paper:,}"
        table.add_row(
            row.unit, str(row.hidden_size), f"{row.mean:.5g}", f"{row.spread:.2g}",
            f"{row.seconds_per_epoch:.3g}", f"{row.parameters:,}", paper,
        )  # fmt: skip
    Console(highlight=False).print(table)
