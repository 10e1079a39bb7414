"""The `onegate` command: parse, call, print."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import textwrap
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
    "export": "a trained run as C code, for ONNX Runtime, or as a page with the net in it",
    "gradients": "gradients through time of several units on a task's data, as a figure",
    "bench": "speed beside torch.nn and other libraries",
    "results": "keep finished runs in a few files; write the docs' tables from them",
    "doctor": "say what is installed, which engine runs, and what to do",
    "cite": "BibTeX of the library and of units' papers",
    "completion": "a script with which a shell completes commands and options",
}
# At the end of each command's --help; tests parse them all.
EXAMPLES = {
    "units": ("onegate units", "onegate units mgu", "onegate units gru --latex"),
    "draw": ("onegate draw mgu -o mgu.svg", "onegate draw gru mgu -o units.pdf --no-title"),
    "data": (
        "onegate data",
        "onegate data list --json",
        "onegate data fetch mnist",
        "onegate data verify --json",
    ),
    "recipes": ("onegate recipes", "onegate recipes show mnist_rows/tuned"),
    "train": (
        "onegate train adding",
        "onegate train mnist_rows --unit gru --data stand-in --run runs/gru",
        "onegate train ptb --set model.hidden_size=400 --json",
        "onegate train --run runs/gru --resume",
    ),
    "sweep": (
        "onegate sweep adding --units mgu gru --hidden 50 100 --seeds 0 1 2",
        "onegate sweep grid.toml --on ray",
    ),
    "compare": (
        "onegate compare adding",
        "onegate compare mnist_rows --data stand-in --units mgu gru lstm --seeds 5",
        "onegate compare adding --match parameters --latex",
    ),
    "reproduce": ("onegate reproduce", "onegate reproduce --stand-ins", "onegate reproduce --full"),
    "report": ("onegate report", "onegate report runs -o report --latex"),
    "inspect": (
        "onegate inspect --example",
        "onegate inspect runs/mgu",
        "onegate inspect runs/mgu runs/gru --digits 3 8",
    ),
    "export": (
        "onegate export runs/mgu --c -o mgu",
        "onegate export runs/mgu --onnx -o mgu.onnx",
        "onegate export runs/mgu --web -o digits",
    ),
    "gradients": (
        "onegate gradients mnist_pixels --units simple lstm gru mgu",
        "onegate gradients adding --runs runs/mgu runs/gru -o figures",
    ),
    "bench": (
        "onegate bench",
        "onegate bench --units mgu lstm --seconds 5",
        "onegate bench deploy --json deploy.json",
    ),
    "results": (
        "onegate results keep runs",
        "onegate results tables",
        "onegate results figures",
    ),
    "doctor": ("onegate doctor",),
    "cite": ("onegate cite", "onegate cite mgu gru lstm"),
    "completion": ("source <(onegate completion bash)",),
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
        prog="onegate",
        description="Gated recurrent units written once as equations.",
        epilog=_epilog(("onegate units", "onegate train adding", "onegate train --help")),
        formatter_class=_Formatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(metavar="command", required=True)
    asked = next((word for word in given if not word.startswith("-")), None)
    for name, about in COMMANDS.items():
        command = commands.add_parser(
            name, help=about, epilog=_epilog(EXAMPLES[name]), formatter_class=_Formatter
        )
        if name == asked:
            importlib.import_module(f"onegate.lab.cli.{name}").register(command)
            _give_examples(command, name)
    return parser


def _give_examples(command: argparse.ArgumentParser, name: str) -> None:
    """Each action of a command ends its help with the command's examples of it."""
    for actions in command._actions:  # argparse has no other way to look
        if isinstance(actions, argparse._SubParsersAction):
            for word, action in actions.choices.items():
                own = [text for text in EXAMPLES[name] if f"onegate {name} {word}" in text]
                action.epilog, action.formatter_class = _epilog(own), _Formatter


def _epilog(examples: Sequence[str]) -> str:
    return "\n  ".join(["examples:", *examples])


class _Formatter(argparse.HelpFormatter):
    """Keeps the lines of examples; lines of other texts are folded, items of lists indented."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("examples:"):
            return text
        return "\n".join(
            textwrap.fill(line, width, subsequent_indent=indent + " " * 4 * line.startswith(" "))
            for line in text.splitlines()
        )
