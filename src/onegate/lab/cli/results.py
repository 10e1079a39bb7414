"""`onegate results`: the repository's results, and the tables and figures written from them."""

from __future__ import annotations

import argparse
from pathlib import Path

from onegate.lab import archive, documents
from onegate.lab.cli.options import add_plugins, plain_warnings
from onegate.lab.runs import RunError
from onegate.lab.train.progress import alive


def register(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="action", required=True)
    keep = actions.add_parser(
        "keep", help="put finished runs and comparisons into one file a task, without checkpoints"
    )
    add_plugins(keep)
    keep.add_argument("runs", type=Path, nargs="+", help="folders of runs")
    keep.add_argument("--to", type=Path, default=Path("results"), help="default: results")
    keep.set_defaults(run=_keep)
    for name, write, what in (
        ("tables", documents.write_tables, "the tables of README.md and docs"),
        ("figures", documents.write_figures, "the figures of docs/reproduction.md"),
    ):
        action = actions.add_parser(name, help=f"write {what} from results")
        action.add_argument(
            "folder", type=Path, nargs="?", default=Path(), help="of the repository (default: here)"
        )
        action.set_defaults(run=_write, write=write)


def _keep(args: argparse.Namespace) -> int:
    for folder in args.runs:
        if not folder.exists():
            raise RunError(f"there is no folder {folder} with runs to keep")
        with plain_warnings():
            for name in archive.keep(folder, args.to):
                print(name)
    return 0


def _write(args: argparse.Namespace) -> int:
    with plain_warnings(), alive("results"):
        written = list(args.write(args.folder))
    for path in written:
        print(path)
    return 0
