"""`onegate doctor`: versions, processor, engines, data, and what to do."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from rich.table import Table
from rich.text import Text

from onegate.lab import doctor
from onegate.lab.cli.options import console
from onegate.lab.train.progress import alive

_STYLES = {"ok": "", "hint": "yellow", "problem": "bold red"}


def register(parser: argparse.ArgumentParser) -> None:
    parser.description = "Exit code 0 if the package can be used, with whichever engine; else 1."
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    with alive("doctor: trying the engines"):
        findings = doctor.examine()
    usable = doctor.usable(findings)
    if args.json:
        shown = {"usable": usable, "findings": [asdict(finding) for finding in findings]}
        print(json.dumps(shown, indent=2, ensure_ascii=False))
    else:
        _print(findings)
    return 0 if usable else 1


def _print(findings: list[doctor.Finding]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    topic = ""
    for finding in findings:
        if topic and finding.topic != topic:
            table.add_row()
        first = finding.topic if finding.topic != topic else ""
        topic = finding.topic
        value = Text(finding.value, style=_STYLES[finding.state])
        if finding.advice:
            value.append(f"\n{finding.advice}", style="dim")
        table.add_row(first, finding.name, value)
    console().print(table)
    verdict = "usable" if doctor.usable(findings) else "not usable: see the problems above"
    console().print(f"\n{verdict}")
