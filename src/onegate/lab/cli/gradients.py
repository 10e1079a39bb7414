"""`onegate gradients`: gradients through time of many units on one plot."""

from __future__ import annotations

import argparse
from pathlib import Path

from onegate.lab.cli.options import (
    add_plugins,
    add_settings,
    add_threads,
    plain_warnings,
    task,
    unit,
)
from onegate.lab.tasks import TASKS
from onegate.lab.train import session as training


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    add_plugins(parser)
    parser.add_argument("task", type=task, help=f"one of {', '.join(TASKS)}, or FILE.py:Class")
    parser.add_argument(
        "--units",
        nargs="+", type=unit, default=[], metavar="UNIT", help="units as they start training",
    )  # fmt: skip
    parser.add_argument(
        "--runs", nargs="+", type=Path, default=[], metavar="RUN",
        help="runs of the task, before and after training",
    )  # fmt: skip
    parser.add_argument("--recipe", help="how units start (default: tuned)")
    add_settings(parser)
    parser.add_argument(
        "-o", dest="out", type=Path, default=Path("gradients"),
        help="folder to write (default: gradients)",
    )  # fmt: skip
    add_threads(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Writes the figure and prints where it is."""
    from onegate.lab.inside import writing

    training.use_threads(args.threads)
    with plain_warnings():
        path = writing.write_gradients(
            args.task, args.units, args.runs, args.out, args.recipe, args.settings
        )
        print(path)
    return 0
