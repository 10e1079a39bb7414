"""`onegate reproduce`: the paper's experiments, and the report on them."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from onegate.lab import reproduce
from onegate.lab.cli.options import (
    add_seed_count,
    add_threads_of_runs,
    counted_seeds,
    plain_warnings,
)
from onegate.lab.train import session as training


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.description = (
        "Small sizes by default, about ten minutes on two cores. Run it again to go on where it "
        "was stopped; what is finished is not run again."
    )
    parser.add_argument("--full", action="store_true", help="every experiment at its full size")
    add_seed_count(parser, default=1)
    parser.add_argument("--runs", type=Path, default=training.RUNS, help="default: runs")
    parser.add_argument("--out", type=Path, default=Path("report"), help="default: report")
    parser.add_argument("--estimate", action="store_true", help="only say what would be run")
    add_threads_of_runs(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the experiments; prints where the report is."""
    seeds = counted_seeds(args)
    training.use_threads(args.threads)
    requests = [
        replace(request, seeds=seeds)
        for request in (reproduce.FULL if args.full else reproduce.QUICK)
    ]
    with plain_warnings():
        if args.estimate:
            print(reproduce.describe(reproduce.prepare(requests, args.runs, _tell), args.runs))
            return 0
        page = reproduce.reproduce(requests, args.runs, args.out, _tell, args.threads)
    print(f"report: {page}")
    return 0


def _tell(text: str) -> None:
    print(text, flush=True)
