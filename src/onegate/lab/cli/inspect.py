"""`onegate inspect`: a look inside trained runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from onegate.lab.cli.options import add_plugins, add_threads, plain_warnings
from onegate.lab.runs import EXAMPLE
from onegate.lab.train import progress, session


def register(parser: argparse.ArgumentParser) -> None:
    add_plugins(parser)
    parser.add_argument("run_folder", type=Path, nargs="?", metavar="RUN", help="folder of a run")
    parser.add_argument(
        "other",
        type=Path,
        nargs="?",
        metavar="RUN2",
        help="another one of the same task, beside it",
    )
    parser.add_argument(
        "--example",
        action="store_true",
        help="the trained run that comes with onegate: MGU on the adding problem; needs nothing",
    )
    parser.add_argument(
        "-o",
        dest="out",
        type=Path,
        help="folder to write (default: RUN/inspect; inspect with --example)",
    )
    parser.add_argument(
        "--examples", type=int, nargs="+", default=[], metavar="N",
        help="numbers of examples of the test set, from 0 (default: a few of every class)",
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

    session.use_threads(args.threads)
    folders = [folder for folder in (args.run_folder, args.other) if folder]
    out = args.out
    if args.example:
        folders = [EXAMPLE, *folders]
        out = out or Path("inspect")  # the package's own folder may not be ours to write
    if not folders:
        raise ValueError(
            "which run? Give its folder, or --example for the one that comes with onegate"
        )
    if len(folders) > 2:
        raise ValueError("two runs at most can be looked at together: leave out --example or RUN2")
    with plain_warnings(), progress.alive("inspect") as notify:
        page = writing.write(
            folders, out or args.run_folder / "inspect", args.examples, args.digits, notify
        )
    print(page)
    return 0
