"""`onegate reproduce`: the paper's experiments, and the report on them."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from onegate.lab import report, reproduce
from onegate.lab.cli import options
from onegate.lab.train import session


def register(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Small sizes by default: minutes on two cores. Tasks whose data are not here and cannot be "
        "downloaded are run on stand-ins. Run it again to go on where it was stopped; what is "
        "finished is not run again."
    )
    options.add_plugins(parser)
    parser.add_argument("--full", action="store_true", help="every experiment at its full size")
    parser.add_argument(
        "--stand-ins", action="store_true", help="take stand-ins even where the data are here"
    )
    parser.add_argument("--verbose", action="store_true", help="say why data could not be had")
    options.add_seed_count(parser, default=1)
    parser.add_argument("--runs", type=Path, default=session.RUNS, help="default: runs")
    parser.add_argument("--out", type=Path, default=Path("report"), help="default: report")
    parser.add_argument("--estimate", action="store_true", help="only say what would be run")
    options.add_threads_of_runs(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the experiments; prints where the report is."""
    seeds = options.counted_seeds(args)
    session.use_threads(args.threads)
    requests = [replace(one, seeds=seeds) for one in reproduce.requests(full=args.full)]
    if args.stand_ins:
        requests = reproduce.on_stand_ins(requests, seeds)
    stand_ins = {} if args.full else reproduce.stand_ins()
    with options.plain_warnings():
        if args.estimate:
            plan = reproduce.prepare(
                requests, args.runs, _notify, stand_ins, args.verbose, args.threads
            )
            print(reproduce.describe(plan, args.runs))
            return 0
        page = reproduce.reproduce(
            requests,
            args.runs,
            args.out,
            _notify,
            args.threads,
            stand_ins,
            args.verbose,
            report.beside(args.runs),
        )
    print(f"report: {page}")
    return 0


def _notify(text: str) -> None:
    print(text, flush=True)
