"""`onegate bench`: speed beside torch.nn and other libraries."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from rich.console import Console

from onegate.lab import files
from onegate.lab.bench import plot
from onegate.lab.bench.compare import Outcome, Sweep, compare, run_sweep
from onegate.lab.bench.contestants import ENGINES, TORCH_GRU, Contestant, ours, peers
from onegate.lab.bench.figures import UNITS_NEEDED, verdicts
from onegate.lab.bench.report import Report, load
from onegate.lab.bench.shapes import PAPER, SWEEPS, Shape, parse
from onegate.units import UNITS, get

SWEEP_BASE = "mnist_rows"


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.description = (
        "Times training steps and inference of contestants that take turns in one process; how it "
        "is kept fair is said in onegate.lab.bench."
    )
    units = parser.add_mutually_exclusive_group()
    units.add_argument("--units", nargs="+", metavar="UNIT", help="default: mgu; see onegate units")
    units.add_argument("--all-units", action="store_true", help="every registered unit")
    parser.add_argument(
        "--shape",
        dest="shapes", nargs="+", metavar="SHAPE",
        help=f"of {', '.join(PAPER)}, or sizes as T,B,d,n[,layers][,bi] (default: those five; "
        "with --sweep none)",
    )  # fmt: skip
    parser.add_argument(
        "--sweep",
        nargs="+", default=[], choices=SWEEPS,
        help=f"vary a size of {SWEEP_BASE} or of a single step, fused engine against {TORCH_GRU}: "
        + "; ".join(f"{name} {sizes[0]} to {sizes[-1]}" for name, sizes in SWEEPS.items()),
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=_seconds, default=3.0,
        help="for each contestant and shape, at least five rounds (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--threads", type=_threads, help="default: torch's")
    parser.add_argument("--memory", action="store_true", help="what a step holds for backward")
    parser.add_argument(
        "--check",
        action="store_true",
        help="say which of the project's figures are met; adds the units they need, and --memory",
    )
    parser.add_argument("--strict", action="store_true", help="with --check: exit 1 if one is not")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured")
    parser.add_argument("--plot", type=Path, metavar="FILE", help=".png, .svg or .pdf")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measures, prints and writes what was asked for."""
    if args.plot:
        plot.check_name(args.plot)
    if args.threads:
        torch.set_num_threads(args.threads)
    asked, shapes, busy = _units(args), _shapes(args), load()
    units = dict.fromkeys([*asked, *(UNITS_NEEDED if args.check else ())])
    contestants = [ours(unit, engine) for unit in units for engine in ENGINES] + peers()
    outcomes: list[Outcome] = []
    sweeps: list[Sweep] = []

    def so_far() -> Report:
        judged = verdicts(outcomes, sweeps) if args.check else []
        report = Report(args.seconds, outcomes, sweeps, judged, busy)
        if args.json:  # after every shape, so that a long run that is broken off leaves the others
            files.write_json(args.json, report.to_json())
        return report

    for shape in shapes:
        _say(f"{shape.name}: {shape.describe()}; {len(contestants)} contestants")
        outcomes.append(compare(shape, contestants, args.seconds, memory=args.memory or args.check))
        so_far()
    swept = _swept_contestants(asked)
    for field in args.sweep:
        sweeps.append(run_sweep(field, PAPER[SWEEP_BASE], swept, args.seconds, say=_say))
        so_far()
    report = so_far()
    _print(report)
    if args.plot:
        plot.write_plot(report, args.plot)
    return 1 if args.strict and any(verdict.met is False for verdict in report.verdicts) else 0


def _units(args: argparse.Namespace) -> list[str]:
    if args.all_units:
        return list(UNITS)
    return list(dict.fromkeys(get(name).name for name in args.units or ["mgu"]))


def _shapes(args: argparse.Namespace) -> list[Shape]:
    default = [] if args.sweep else list(PAPER)
    asked = default if args.shapes is None else args.shapes
    return [PAPER[text] if text in PAPER else parse(text) for text in asked]


def _swept_contestants(units: list[str]) -> list[Contestant]:
    opponents = [peer for peer in peers() if peer.name == TORCH_GRU]
    return [*(ours(unit, "fused") for unit in units), *opponents]


def _print(report: Report) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=200)
    for table in report.tables():
        console.print(table)
    for note in report.notes():
        console.print(note, markup=False)


def _say(line: str) -> None:
    print(f"onegate: {line}", file=sys.stderr, flush=True)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < 3600:
        raise argparse.ArgumentTypeError(f"expected seconds from 0 to 3600, got {text}")
    return value


def _threads(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 up, got {text!r}")
    return int(text)
