"""`onegate gradients`: gradients through time of many units on one plot."""

from __future__ import annotations

import argparse
from pathlib import Path

from onegate.lab.cli import options
from onegate.lab.train import session
from onegate.lab.train.progress import alive


def register(parser: argparse.ArgumentParser) -> None:
    options.add_plugins(parser)
    options.add_task(parser)
    parser.add_argument(
        "--units", nargs="+", type=options.unit, default=[], metavar="UNIT",
        help="units as they start training",
    )  # fmt: skip
    parser.add_argument(
        "--runs", nargs="+", type=Path, default=[], metavar="RUN",
        help="runs of the task, before and after training",
    )  # fmt: skip
    parser.add_argument("--recipe", help="how units start (default: tuned)")
    options.add_settings(parser)
    options.add_data(parser)
    parser.add_argument(
        "-o", dest="out", type=Path, default=Path("gradients"),
        help="folder to write (default: gradients)",
    )  # fmt: skip
    options.add_threads(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Writes the figure and prints where it is."""
    from onegate.lab.inside import writing

    session.use_threads(args.threads)
    settings = (*options.data_settings(args.task, args.data), *args.settings)
    with options.plain_warnings(), alive("gradients") as notify:
        path = writing.write_gradients(
            args.task, args.units, args.runs, args.out, args.recipe, settings, notify
        )
    print(path)
    return 0
