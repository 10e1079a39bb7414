"""`onegate bench`: speed beside torch.nn and other libraries."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import torch

from onegate import engines, files
from onegate.lab.bench.accelerate import accelerate
from onegate.lab.bench.contestants import FUSED, TORCH_GRU, Contestant, ours, peers
from onegate.lab.bench.costs import COSTS
from onegate.lab.bench.outcomes import Sweep, Timings, run_shape, run_sweep
from onegate.lab.bench.record import Record, load
from onegate.lab.bench.shapes import PAPER, SWEEPS, LayerShape, parse
from onegate.lab.bench.verdicts import UNITS_NEEDED, verdicts
from onegate.lab.cli.options import add_plugins, add_threads, console, unit
from onegate.lab.train import machine
from onegate.units import UNITS, get

SWEEP_BASE = "mnist_rows"
_OF_LAYERS = (
    "units",
    "all_units",
    "shapes",
    "sweep",
    "seconds",
    "memory",
    "check",
    "strict",
    "plot",
)


def register(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Times training steps and inference of contestants that take turns in one process; how it "
        "is kept fair is said in onegate.lab.bench. Beside layers it measures:\n"
        + "\n".join(f"  {name}: {_about(cost)}" for name, cost in COSTS.items())
    )
    parser.add_argument(
        "what", nargs="?", choices=("layers", *COSTS), default="layers", metavar="what",
        help=f"layers (default), {', '.join(COSTS)}; the others take --threads and --json alone",
    )  # fmt: skip
    parser.add_argument(
        "--streaming", action="store_true", help="the same as: onegate bench streaming"
    )
    units = parser.add_mutually_exclusive_group()
    units.add_argument(
        "--units",
        nargs="+", metavar="UNIT", type=unit,
        help="default: mgu; see onegate units, or FILE.py:Class",
    )  # fmt: skip
    add_plugins(parser)
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
    add_threads(parser)
    parser.add_argument("--memory", action="store_true", help="what a step holds for backward")
    parser.add_argument(
        "--check",
        action="store_true",
        help="say which of the project's figures are met; adds the units they need, and --memory",
    )
    parser.add_argument("--strict", action="store_true", help="with --check: exit 1 if one is not")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured")
    parser.add_argument(
        "--rule", type=Path, metavar="FILE",
        help="with accelerate: write the rule that its times and those of the accelerate*.json "
        "beside --json ask for",
    )  # fmt: skip
    parser.add_argument("--plot", type=Path, metavar="FILE", help=".png, .svg or .pdf")
    parser.set_defaults(run=run, parser=parser)


def run(args: argparse.Namespace) -> int:
    """Measures, prints and writes what was asked for."""
    if args.json:
        files.require_writable(args.json)
    if args.plot:
        from onegate.picture.draw import picture_path  # with matplotlib, which takes long

        picture_path(args.plot)
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.streaming:
        args.what = "streaming"
    return _layers(args) if args.what == "layers" else _cost(args)


def _cost(args: argparse.Namespace) -> int:
    for name in _OF_LAYERS:
        if getattr(args, name) != args.parser.get_default(name):
            raise ValueError(f"onegate bench {args.what} takes --threads and --json alone")
    if args.what == "accelerate":
        figures = accelerate(kept=args.json, rule=args.rule)
    else:
        figures = COSTS[args.what]()
    made = {"date": f"{datetime.now(UTC):%F}", "machine": machine.describe(FUSED), **figures}
    if args.json:
        files.write_json(args.json, made)
    print(
        f"{made['date']}, {', '.join(f'{name} {value}' for name, value in made['machine'].items())}"
    )
    return 0


def _about(cost: Callable[[], object]) -> str:
    """The first line of a function's docstring, to be part of a sentence."""
    line = (cost.__doc__ or "").splitlines()[0].rstrip(".")
    return line[0].lower() + line[1:]


def _layers(args: argparse.Namespace) -> int:
    asked, shapes, busy = _units(args), _shapes(args), load()
    units = dict.fromkeys([*asked, *(UNITS_NEEDED if args.check else ())])
    contestants = [ours(unit, engine) for unit in units for engine in engines.names()[1:]] + peers()
    outcomes: list[Timings] = []
    sweeps: list[Sweep] = []

    def so_far() -> Record:
        judged = verdicts(outcomes, sweeps) if args.check else []
        record = Record(args.seconds, outcomes, sweeps, judged, busy)
        if args.json:  # after every shape, so that a long run that is broken off leaves the others
            files.write_json(args.json, record.to_json())
        return record

    for shape in shapes:
        _say(f"{shape.name}: {shape.describe()}; {len(contestants)} contestants")
        memory = args.memory or args.check
        outcomes.append(run_shape(shape, contestants, args.seconds, memory=memory))
        so_far()
    swept = _swept_contestants(asked)
    for field in args.sweep:
        sweeps.append(run_sweep(field, PAPER[SWEEP_BASE], swept, args.seconds, say=_say))
        so_far()
    record = so_far()
    _print(record)
    if args.plot:
        from onegate.lab.bench import plot
        from onegate.picture.draw import save

        save(plot.draw(record), args.plot)
    return 1 if args.strict and any(verdict.met is False for verdict in record.verdicts) else 0


def _units(args: argparse.Namespace) -> list[str]:
    if args.all_units:
        return list(UNITS)
    return list(dict.fromkeys(get(name).name for name in args.units or ["mgu"]))


def _shapes(args: argparse.Namespace) -> list[LayerShape]:
    default = [] if args.sweep else list(PAPER)
    asked = default if args.shapes is None else args.shapes
    return [PAPER[text] if text in PAPER else parse(text) for text in asked]


def _swept_contestants(units: list[str]) -> list[Contestant]:
    opponents = [peer for peer in peers() if peer.name == TORCH_GRU]
    return [*(ours(unit, FUSED) for unit in units), *opponents]


def _print(record: Record) -> None:
    for one in (*record.tables(), *record.notes()):
        console().print(one)


def _say(line: str) -> None:
    print(f"onegate: {line}", file=sys.stderr, flush=True)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < 3600:
        raise argparse.ArgumentTypeError(f"expected seconds from 0 to 3600, got {text}")
    return value
