"""The `onegate` command: parse, call, print."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from onegate.lab import StoppedError

# Each has a module here, with register(parser), which adds its options and sets
# run=function(args) -> exit code. Only that of the command that was given is imported.
COMMANDS = {
    "units": "list the recurrent units and their equations",
    "draw": "draw the data flow of one or several units",
    "data": "list, fetch and verify data sets",
    "recipes": "list the recipes, or show one",
    "train": "train a unit on a task, or go on with a run",
    "sweep": "train every combination of units, sizes, seeds and other fields",
    "compare": "compare units on a task",
    "reproduce": "run the paper's experiments and report on them",
    "report": "finished runs beside the paper's numbers, as one HTML page",
    "inspect": "gates, memory and gradients of a trained run, as one HTML page",
    "gradients": "gradients through time of several units on a task's data, as a figure",
    "bench": "speed beside torch.nn and other libraries",
    "results": "keep finished runs in a few files; write the docs' tables from them",
    "doctor": "say what is installed, which engine runs, and what to do",
}
# What a shell says of a tool whose reader has gone: 128 and the number of SIGPIPE.
_NO_READER = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    given = sys.argv[1:] if argv is None else list(argv)
    try:
        try:
            return _run(given)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _NO_READER


def _run(given: list[str]) -> int:
    args = _parser(given).parse_args(given)
    try:
        return int(args.run(args))
    except BrokenPipeError:
        raise
    except (ValueError, OSError) as error:
        print(f"onegate: {error}", file=sys.stderr)
        return 2
    except StoppedError as stopped:
        print(f"onegate: {stopped}", file=sys.stderr)
        return 128 + stopped.signal_number
    except KeyboardInterrupt:
        return 130


def _parser(given: list[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="onegate", description="Gated recurrent units written once as equations."
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(metavar="command", required=True)
    asked = next((word for word in given if not word.startswith("-")), None)
    for name, about in COMMANDS.items():
        command = commands.add_parser(name, help=about)
        if name == asked:
            importlib.import_module(f"onegate.lab.cli.{name}").register(command)
    return parser


class _Version(argparse.Action):
    """Looks the version up only if it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from onegate import __version__

        print(f"onegate {__version__}")
        parser.exit()
