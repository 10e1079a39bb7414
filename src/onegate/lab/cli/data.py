"""`onegate data`: what is there, bring what is missing, check every byte."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from onegate.lab.data.arrays import kept_arrays
from onegate.lab.data.source_files import complete, data_folders, fetch, locate
from onegate.lab.data.sources import SOURCES, DataError, Source
from onegate.lab.data.stand_ins import TITLES
from onegate.lab.data.verification import CheckedPath, verify
from onegate.lab.train.progress import alive


def register(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Data sets are looked for in $ONEGATE_DATA, then in the user's cache folder."
    )
    parser.set_defaults(run=_list)
    actions = parser.add_subparsers(metavar="action")
    listing = actions.add_parser("list", help="show what is there (also without an action)")
    listing.set_defaults(run=_list)
    for each in (parser, listing):
        _add_json(each)
    for name, run, text in (
        ("fetch", _fetch, "download what is missing or damaged; run again to resume"),
        ("verify", _verify, "check every byte of what is there"),
    ):
        action = actions.add_parser(name, help=text, description=text)
        action.add_argument(
            "names", nargs="*", metavar="name", help=f"{', '.join(SOURCES)}; all without a name"
        )
        _add_json(action)
        action.set_defaults(run=run)


def _add_json(parser: argparse.ArgumentParser) -> None:
    # Given before the action it must not be lost in it: no default there.
    default = False if parser.prog.endswith(" data") else argparse.SUPPRESS
    parser.add_argument("--json", action="store_true", default=default, help="print it as JSON")


def _list(args: argparse.Namespace) -> int:
    from onegate.lab.tasks import TASKS  # with torch, which the other actions do without

    rows = [_row(source) for source in SOURCES.values()]
    rows += [
        (task.name, "here", "", "", f"{task.title}, generated from a seed")
        for task in TASKS.values()
        if task.generated
    ]
    rows += [
        (f"{name} stand-in", "here", "", "yes" if kept_arrays(f"{name}-stand-in") else "no", title)
        for name, title in TITLES.items()
    ]
    head = ("name", "files", "MB", "parsed", "data set")
    if args.json:
        _print_json([_typed(dict(zip(head, row, strict=True))) for row in rows])
        return 0
    _print_rows(head, rows)
    print("looked in " + ", then ".join(map(str, data_folders())))
    for source in SOURCES.values():
        for folder in sorted({str(path.parent) for path, _ in complete(source)}):
            print(f"{source.name}: {folder}")
    return 0


def _typed(row: dict[str, str]) -> dict[str, object]:
    """A row for programs: numbers and truth values, and null where a cell is empty."""
    return {
        **row,
        "MB": float(row["MB"]) if row["MB"] else None,
        "parsed": row["parsed"] == "yes" if row["parsed"] else None,
    }


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
    found: list[dict[str, object]] = []
    for source in _chosen(args.names):
        try:
            for file in fetch(source):
                found.append({"name": source.name, "path": str(file.path),
                              "checksum": str(file.checksum)})  # fmt: skip
                if not args.json:
                    print(f"{source.name}: {file.path} is complete, {file.checksum}")
        except DataError as error:
            failed += 1
            print(f"onegate: {error}", file=sys.stderr)
    if args.json:
        _print_json(found)
    return 1 if failed else 0


def _verify(args: argparse.Namespace) -> int:
    bad = 0
    found: list[dict[str, object]] = []
    notify = (lambda _: None) if args.json else print
    for source in _chosen(args.names):
        with alive(f"{source.name}: checking every byte"):
            findings = list(verify(source))
        # Missing is a fault only of data that was asked for.
        if not complete(source):
            bad += bool(args.names)
            found.append({"name": source.name, "path": None, "problem": "missing"})
            notify(f"{source.name}: missing; run `onegate data fetch {source.name}`")
        for finding in findings:
            bad += bool(finding.problem)
            found.append({"name": source.name, "path": str(finding.path),
                          "problem": finding.problem or None})  # fmt: skip
            notify(f"{source.name}: {_verdict(finding)}")
    if args.json:
        _print_json(found)
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


def _print_json(content: object) -> None:
    print(json.dumps(content, indent=2))


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
