"""`onegate compare`: units side by side on one task."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path

from rich.table import Table

from onegate.lab import compare, report, tasks
from onegate.lab.cli import options
from onegate.lab.pages import tabular
from onegate.lab.report import tables
from onegate.lab.report.groups import grouped
from onegate.lab.runs import BUSY, Comparison, Run
from onegate.lab.train import session
from onegate.lab.train.progress import alive


def register(parser: argparse.ArgumentParser) -> None:
    options.add_plugins(parser)
    options.add_task(parser)
    parser.add_argument(
        "--units", nargs="+", type=options.unit, default=["mgu", "gru"],
        help="names, or FILE.py:Class (default: mgu gru)",
    )  # fmt: skip
    parser.add_argument("--recipe", help="default: tuned")
    options.add_seed_count(parser, default=3)
    parser.add_argument(
        "--match",
        choices=("units", "parameters", "time"), default="units",
        help="what is equal: hidden neurons (default), or the first unit's parameters or time",
    )  # fmt: skip
    options.add_settings(parser)
    options.add_data(parser)
    parser.add_argument(
        "--runs", type=Path, default=session.RUNS, metavar="FOLDER", help="default: runs"
    )
    options.add_threads_of_runs(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the comparison as JSON")
    form.add_argument("--latex", action="store_true", help="print the table as LaTeX, for papers")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Trains what is not trained yet; prints the table."""
    seeds = options.counted_seeds(args)
    request = compare.Request(
        args.task,
        args.recipe or tasks.get(args.task).usual,
        tuple(args.units),
        seeds,
        args.match,
        (*options.data_settings(args.task, args.data), *args.settings),
    )
    quiet = args.json or args.latex
    with options.plain_warnings():
        with alive("compare") as notify:
            contenders = compare.prepare(request, args.runs, args.threads, notify)
        with redirect_stdout(sys.stderr) if quiet else nullcontext():
            made = compare.compare(request, args.runs, args.threads, contenders)
    finished = [Run.read(args.runs / name) for row in made.units for name in row.runs]
    if args.json:
        print(json.dumps(made.content(), indent=2))
    elif args.latex:
        print(tabular.latex(tables.comparison(made, grouped(finished))), end="")
    else:
        show(made)
    with alive("drawing"):
        drawn = report.draw(finished, args.runs / "figures")
    for path in () if quiet else drawn:
        print(f"figure: {path}")
    return 0


def show(made: Comparison) -> None:
    """Prints the table of a comparison."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    headings = ("unit", "hidden", "seeds", made.metric, "deviation", "p", "s/epoch", "parameters",
                "as the paper")  # fmt: skip
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "unit" else "right")
    for row, chance in zip(made.units, made.chances, strict=True):
        paper = "" if row.parameters_paper is None else f"{row.parameters_paper:,}"
        seeds = len(row.metric_values)
        table.add_row(
            row.unit, str(row.hidden_size), str(seeds), f"{row.mean:.5g}",
            f"{row.spread:.2g}" if seeds > 1 else "", "" if chance is None else f"{chance:.2g}",
            f"{row.seconds_per_epoch:.3g}", f"{row.parameters:,}", paper,
        )  # fmt: skip
    options.console().print(table)
    print(_notes(made))


def _notes(made: Comparison) -> str:
    """What the columns mean that need it."""
    seeds = min(len(row.metric_values) for row in made.units)
    said = [
        f"p: against {made.units[0].unit}, Welch's t test over seeds, two-sided" if seeds > 1
        else "one seed: neither deviation nor test; see --seeds"
    ]  # fmt: skip
    if made.threads:
        count = f"{made.threads} {'thread' if made.threads == 1 else 'threads'}"
        said.append(f"s/epoch: measured in turns with {count}, as the runs have")
    if made.busy is not None and made.busy > BUSY:
        said.append(f"the machine was busy: other processes took {made.busy:.0%} of its cores")
    return "\n".join(said)
