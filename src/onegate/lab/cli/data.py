"""`onegate data`: what is there, bring what is missing, check every byte."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from onegate.lab.data.arrays import kept_arrays
from onegate.lab.data.files import complete, data_folders, fetch, locate
from onegate.lab.data.sources import SOURCES, DataError, Source
from onegate.lab.data.verification import CheckedPath, verify


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.description = (
        "Data sets are looked for in $ONEGATE_DATA, then in the user's cache folder."
    )
    parser.set_defaults(run=_list)
    actions = parser.add_subparsers(metavar="action")
    listing = actions.add_parser("list", help="show what is there (also without an action)")
    listing.set_defaults(run=_list)
    for name, run, text in (
        ("fetch", _fetch, "download what is missing or damaged; run again to resume"),
        ("verify", _verify, "check every byte of what is there"),
    ):
        action = actions.add_parser(name, help=text, description=text)
        action.add_argument(
            "names", nargs="*", metavar="name", help=f"{', '.join(SOURCES)}; all without a name"
        )
        action.set_defaults(run=run)


def _list(_: argparse.Namespace) -> int:
    from onegate.lab.tasks import TASKS  # with torch, which the other actions do without

    rows = [_row(source) for source in SOURCES.values()]
    rows += [
        (task.name, "here", "", "", f"{task.title}, generated from a seed")
        for task in TASKS.values()
        if task.generated
    ]
    _print_rows(("name", "files", "MB", "parsed", "data set"), rows)
    print("looked in " + ", then ".join(map(str, data_folders())))
    for source in SOURCES.values():
        for folder in sorted({str(path.parent) for path, _ in complete(source)}):
            print(f"{source.name}: {folder}")
    return 0


def _row(source: Source) -> tuple[str, str, str, str, str]:
    paths = [path for path, _ in complete(source)]
    size = sum(path.stat().st_size for path in paths) / 1e6
    return (
        source.name,
        _state(source),
        f"{size:.1f}" if paths else "",
        "yes" if kept_arrays(source.name) else "no",
        source.title,
    )


def _state(source: Source) -> str:
    if complete(source):
        return "here"
    files = [file for layout in source.layouts for file in layout]
    partly = [file.name for file in files if locate(source, file) is not None]
    return f"only {', '.join(partly)}" if partly else "missing"


def _fetch(args: argparse.Namespace) -> int:
    failed = 0
    for source in _chosen(args.names):
        try:
            for file in fetch(source):
                print(f"{source.name}: {file.path} is complete, {file.checksum}")
        except DataError as error:
            failed += 1
            print(f"onegate: {error}", file=sys.stderr)
    return 1 if failed else 0


def _verify(args: argparse.Namespace) -> int:
    bad = 0
    for source in _chosen(args.names):
        findings = verify(source)
        # Missing is a fault only of data that was asked for.
        if not complete(source):
            bad += bool(args.names)
            print(f"{source.name}: missing; run `onegate data fetch {source.name}`")
        for finding in findings:
            bad += bool(finding.problem)
            print(f"{source.name}: {_verdict(finding)}")
    return 1 if bad else 0


def _verdict(finding: CheckedPath) -> str:
    return f"DAMAGED {finding.problem}" if finding.problem else f"ok {finding.path}"


def _chosen(names: list[str]) -> list[Source]:
    unknown = [name for name in names if name not in SOURCES]
    if unknown:
        raise ValueError(
            f"no data set is called {', '.join(unknown)}: expected {', '.join(SOURCES)}"
        )
    return [SOURCES[name] for name in names or SOURCES]


def _print_rows(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """A table on a terminal; elsewhere plain lines, one tab between fields."""
    console = Console()
    if not console.is_terminal:
        print("\n".join("\t".join(row) for row in [head, *rows]))
        return
    table = Table(*head, box=None)
    for row in rows:
        table.add_row(*row)
    console.print(table)
