"""`onegate inspect`: a look inside trained runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from onegate.lab.cli.options import add_plugins, add_threads, plain_warnings
from onegate.lab.train import session as training


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    add_plugins(parser)
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="folder of a run")
    parser.add_argument(
        "other",
        type=Path,
        nargs="?",
        metavar="RUN2",
        help="another one of the same task, beside it",
    )
    parser.add_argument("-o", dest="out", type=Path, help="folder to write (default: RUN/inspect)")
    parser.add_argument(
        "--examples", type=int, nargs="+", default=[], metavar="N",
        help="numbers of examples of the test set, from 0 (default: the first few)",
    )  # fmt: skip
    parser.add_argument(
        "--digits", type=int, nargs="+", default=[], metavar="DIGIT",
        help="the first example of each of these digits, for tasks that read images",
    )  # fmt: skip
    add_threads(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Writes the page and prints where it is."""
    from onegate.lab.inside import writing

    training.use_threads(args.threads)
    folders = [args.run_folder, *([args.other] if args.other else [])]
    with plain_warnings():
        print(
            writing.write(
                folders, args.out or args.run_folder / "inspect", args.examples, args.digits
            )
        )
    return 0
