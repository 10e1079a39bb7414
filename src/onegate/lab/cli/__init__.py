"""The `onegate` command: parse, call, print."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from onegate.lab.train.session import StoppedError

# One module a command; each has register(subparsers), which sets run=function(args) -> exit code.
COMMANDS = (
    *("units", "draw", "data", "recipes", "train", "sweep", "compare", "reproduce", "report"),
    *("inspect", "gradients", "bench", "results", "doctor"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="onegate", description="Gated recurrent units written once as equations."
    )
    commands = parser.add_subparsers(metavar="command", required=True)
    for command in COMMANDS:
        importlib.import_module(f"onegate.lab.cli.{command}").register(commands)
    args = parser.parse_args(argv)
    try:
        return int(args.run(args))
    except (ValueError, OSError) as error:
        print(f"onegate: {error}", file=sys.stderr)
        return 2
    except StoppedError as stopped:
        print(f"onegate: {stopped}", file=sys.stderr)
        return 128 + stopped.signal_number
    except KeyboardInterrupt:
        return 130
