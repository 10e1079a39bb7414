"""What several commands share: options, and warnings as their users should read them."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from rich.console import Console

from onegate.lab import plugins

_T = TypeVar("_T")


def add_plugins(parser: argparse.ArgumentParser) -> None:
    """Adds --plugin, for commands that take units or tasks; those of packages are known then."""
    plugins.installed()
    parser.add_argument(
        "--plugin",
        dest="plugins", action="append", default=[], metavar="FILE", type=_told(plugins.load),
        help="a Python file with units or tasks of your own; may be repeated",
    )  # fmt: skip


def _told(read: Callable[[str], _T]) -> Callable[[str], _T]:
    """Has argparse print an error as it is."""

    def type_(text: str) -> _T:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return type_


# Types of arguments: a name, or FILE.py:Class.
unit, task = _told(plugins.unit), _told(plugins.task)


def add_task(parser: argparse.ArgumentParser, **more: Any) -> None:
    """Adds the task, a name or FILE.py:Class."""
    from onegate.lab import tasks

    named = f"one of {', '.join(tasks.TASKS)}, or FILE.py:Class"
    parser.add_argument("task", type=task, help=named, **more)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Adds --set."""
    parser.add_argument(
        "--set",
        dest="settings", action="append", default=[], metavar="FIELD=VALUE",
        help="replace a field of the recipe, such as optimizer.lr=0.002; may be repeated",
    )  # fmt: skip


def add_data(parser: argparse.ArgumentParser) -> None:
    """Adds --data, for `data_settings`."""
    parser.add_argument(
        "--data", choices=("real", "stand-in"), default="real",
        help="the published data set (default), or what is made here in its form without download",
    )  # fmt: skip


def data_settings(task: str, source: str) -> tuple[str, ...]:
    """What --data means for the recipes of a task."""
    from onegate.lab import tasks

    found = tasks.get(task).stand_in
    if source == "real":
        return ()
    if not found:
        raise ValueError(f"{task} has no stand-in: its data are made here; leave out --data")
    return found


def add_threads(parser: argparse.ArgumentParser) -> None:
    """Adds --threads of a command that computes by itself."""
    parser.add_argument("--threads", type=thread_count, help="computing threads (default: torch's)")


def add_threads_of_runs(parser: argparse.ArgumentParser) -> None:
    """Adds --threads of a command that has runs side by side."""
    parser.add_argument(
        "--threads", type=thread_count, help="of each run (default: so that cores are full)"
    )


def thread_count(text: str) -> int:
    """The number that --threads gives."""
    if not (text.isascii() and text.isdecimal() and len(text) < 5 and int(text) > 0):
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to 9999, got {text!r}")
    return int(text)


def add_seed_count(parser: argparse.ArgumentParser, default: int) -> None:
    """Adds --seeds, for `counted_seeds`."""
    parser.add_argument(
        "--seeds", type=int, default=default, help="how many (default: %(default)s)"
    )


def counted_seeds(args: argparse.Namespace) -> tuple[int, ...]:
    """As many seeds as --seeds says, from 0 up."""
    if args.seeds < 1:
        raise ValueError(f"--seeds is {args.seeds}, expected 1 or more")
    return tuple(range(args.seeds))


def console() -> Console:
    """For tables: folded to the width of a terminal, and not where nobody looks at one."""
    made = Console(highlight=False, markup=False)
    return made if made.is_terminal else Console(highlight=False, markup=False, width=200)


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Prints warnings as `onegate: warning: ...` inside the `with` block."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        print(f"onegate: warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield
