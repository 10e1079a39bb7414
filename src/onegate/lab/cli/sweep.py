"""`onegate sweep`: every combination of units, sizes, seeds and other fields, as one command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from onegate.lab import sweep, tasks
from onegate.lab.cli import options
from onegate.lab.recipes import RecipeError
from onegate.lab.sweep import Grid, Plan, estimates, local
from onegate.lab.sweep.cluster import Cluster, connected
from onegate.lab.sweep.grid import of_options, read_toml
from onegate.lab.sweep.plan import cores
from onegate.lab.sweep.running import Backend
from onegate.lab.train import session
from onegate.lab.train.progress import alive, duration


def register(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run it again to go on where it was stopped; finished runs are not run again."
    )
    options.add_plugins(parser)
    parser.add_argument(
        "tasks",
        nargs="+", metavar="TASK", type=options.task,
        help=f"of {', '.join(tasks.TASKS)}, FILE.py:Class; or one .toml file with the whole grid",
    )  # fmt: skip
    parser.add_argument("--units", nargs="+", type=options.unit, help="default: mgu gru")
    parser.add_argument("--hidden", nargs="+", type=int, help="default: the recipe's")
    parser.add_argument("--seeds", nargs="+", type=int, help="default: 0")
    parser.add_argument("--recipe", help="default: tuned")
    options.add_settings(parser)
    options.add_data(parser)
    parser.add_argument(
        "--grid",
        action="append", default=[], metavar="FIELD=VALUE,VALUE",
        help="values of another field to combine with; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--runs",
        default=str(session.RUNS), metavar="FOLDER",
        help="where results land: a folder, or an address that fsspec knows (default: runs)",
    )  # fmt: skip
    options.add_threads_of_runs(parser)
    parser.add_argument(
        "--on",
        metavar="CLUSTER",
        help="`ray` for Ray on this machine, or the address of a cluster: host:port, ray://host:port",
    )
    parser.add_argument(
        "--gpus", type=int, default=0, help="of each run, on a cluster (default: 0)"
    )
    parser.add_argument(
        "--checkpoint-every", type=float, default=60.0, metavar="SECONDS", help="default: 60"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Says what will be run, runs it, and prints what failed."""
    asked = _grid(args).recipes()
    with options.plain_warnings(), _backend(args) as backend:
        plan = sweep.make(
            asked,
            sweep.place(_shared(args.runs) if args.on else args.runs),
            args.threads,
            # Nodes differ: a run that asks for one CPU fits everywhere.
            machine_cores=1 if args.on else None,
            checkpoint_seconds=args.checkpoint_every,
            gpus=args.gpus,
        )
        if isinstance(backend, Cluster):
            backend.check(plan)
            slots = backend.slots(plan)
        else:
            slots = cores() // plan.threads
        seconds = _announce(plan, slots)
        outcome = sweep.run(plan, backend, seconds)
    if told := outcome.describe():
        print(told, file=sys.stderr)
    return 1 if outcome.failed else 0


def _backend(args: argparse.Namespace) -> AbstractContextManager[Backend]:
    if args.gpus and not args.on:
        raise ValueError("--gpus is for clusters, which share them out: add --on ray")
    return connected(args.on) if args.on else nullcontext(local.run)


def _shared(runs: str) -> str:
    """The place as other machines name it: they do not know the folder that this one is in."""
    return runs if "://" in runs else str(Path(runs).resolve())


def _grid(args: argparse.Namespace) -> Grid:
    given = {
        name: tuple(value) if isinstance(value, list) else value
        for name in ("units", "hidden", "seeds", "recipe")
        if (value := getattr(args, name)) is not None
    }
    if not any(task.endswith(".toml") for task in args.tasks):
        settings = (*_data_settings(args.tasks, args.data), *args.settings)
        return of_options(args.tasks, args.grid, settings=settings, **given)
    if len(args.tasks) > 1 or given or args.settings or args.grid or args.data != "real":
        raise RecipeError("a .toml file holds the whole grid: put the other options into it")
    return read_toml(Path(args.tasks[0]))


def _data_settings(asked: Sequence[str], source: str) -> tuple[str, ...]:
    """What --data means for all of these tasks."""
    found = {options.data_settings(task, source) for task in asked}
    if len(found) > 1:
        raise RecipeError(f"the stand-ins of {', '.join(asked)} differ in size: one task at a time")
    return found.pop()


def _announce(plan: Plan, side_by_side: int) -> Sequence[float]:
    """Prints the list of runs with an estimate; returns the seconds of each."""
    left = plan.unfinished()
    unfinished = [plan.runs[name] for name in left]
    with alive("sweep: timing some updates of the runs"):
        seconds = dict(zip(left, estimates.of_runs(unfinished, plan.threads), strict=True))
    for name in plan.runs:
        print(f"{name}: {'about ' + duration(seconds[name]) if name in seconds else 'finished'}")
    workers = max(1, min(len(left), side_by_side))
    print(
        f"{len(plan.runs)} runs, {len(plan.runs) - len(left)} finished; {workers} side by side "
        f"with {plan.threads} thread{'s' if plan.threads > 1 else ''} each, "
        f"about {duration(sum(seconds.values()) / workers)} in all",
        flush=True,
    )
    return [seconds.get(name, 0.0) for name in plan.runs]
