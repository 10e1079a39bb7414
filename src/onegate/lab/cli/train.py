"""`onegate train`: one training run."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onegate.lab import StoppedError, recipes, tasks
from onegate.lab.cli import options
from onegate.lab.recipes import Recipe
from onegate.lab.runs import RunError, RunFolder, run_name
from onegate.lab.train import distributed, progress, session
from onegate.lab.train.progress import Observer


def register(parser: argparse.ArgumentParser) -> None:
    options.add_plugins(parser)
    options.add_task(parser, nargs="?")
    parser.add_argument(
        "--unit", type=options.unit, help="see `onegate units`, or FILE.py:Class (default: mgu)"
    )
    parser.add_argument("--recipe", help="see `onegate recipes` (default: tuned)")
    options.add_settings(parser)
    options.add_data(parser)
    parser.add_argument(
        "--run", "--folder",  # torchrun takes --run for a short form of an option of its own
        dest="folder", type=Path, metavar="FOLDER",
        help="run folder (default: runs/<name of the run>)",
    )  # fmt: skip
    parser.add_argument("--resume", action="store_true", help="go on with the run in the folder")
    options.add_threads(parser)
    parser.add_argument(
        "--bfloat16", action="store_true",
        help="learn a language model's output layer with bfloat16 products: faster on "
        "processors that have them, slow on others",
    )  # fmt: skip
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="default: cpu")
    parser.add_argument(
        "--checkpoint-every", type=float, default=60.0, metavar="SECONDS", help="default: 60"
    )
    parser.add_argument("--profile", action="store_true", help="say where the time went")
    parser.add_argument("--tensorboard", action="store_true", help="log for TensorBoard as well")
    parser.add_argument("--quiet", action="store_true", help="print the result alone")
    parser.add_argument(
        "--json", action="store_true", help="print the result alone, with all its fields, as JSON"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Trains, and prints the result."""
    recipe = _recipe(args)
    folder = args.folder or session.RUNS / run_name(recipe)
    session.use_threads(args.threads)
    if args.bfloat16:
        session.use_bfloat16()
    with options.plain_warnings(), distributed.joined(args.device) as group:
        try:
            result = session.train(
                recipe,
                folder,
                resume=args.resume or distributed.was_restarted(),
                observers=_observers(args, folder) if group.leads else (),
                checkpoint_seconds=args.checkpoint_every,
                group=group,
            )
        except StoppedError as stopped:
            if group.leads:
                print(f"onegate: {stopped}", file=sys.stderr)
            return 128 + stopped.signal_number
        except distributed.LeaderError:
            return 2
    if group.leads and args.json:
        print(json.dumps({"run": str(folder), **result}, indent=2))
    elif group.leads:
        _print(result, args.profile)
    return 0


def _observers(args: argparse.Namespace, folder: Path) -> list[Observer]:
    observers = progress.for_output(args.quiet or args.json)
    if args.tensorboard:
        observers.append(progress.TensorBoard(folder / "tensorboard"))
    return observers


def _print(result: Mapping[str, Any], profile: bool) -> None:
    for name in sorted(result):
        if name.startswith(("valid_", "test_")) and not name.endswith("_loss"):
            print(f"{name} {result[name]:.6g}")
    if profile and "time_shares" in result:
        print(progress.shares_table(result["time_shares"]))


def _recipe(args: argparse.Namespace) -> Recipe:
    """What was asked for; with --resume alone it is the recipe in the folder."""
    if args.task is None:
        if not (args.resume and args.folder):
            raise RunError(
                f"which task? One of {', '.join(tasks.TASKS)}, "
                "or --run FOLDER --resume to go on with a run"
            )
        if args.unit or args.recipe or args.settings or args.data != "real":
            raise RunError(
                "--unit, --recipe, --data and --set need a task; a resumed run has its recipe"
            )
        kept = RunFolder(args.folder)
        if not kept.has_run():
            raise RunError(f"{args.folder} holds no run to resume: recipe.json is missing")
        return kept.recipe()
    named = recipes.recipe(args.task, args.recipe, args.unit or "mgu")
    return recipes.override(named, (*options.data_settings(args.task, args.data), *args.settings))
