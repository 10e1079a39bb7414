"""What lies in a folder of runs: those that are finished, and why the others do not count."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from onegate import files
from onegate.lab import runs
from onegate.lab.runs import Comparison, Run, RunError
from onegate.lab.tasks import TASKS

_NOT_RUN = "not_run.json"


@dataclass(frozen=True)
class LeftOut:
    """A run folder or a file that is not used: its path below the folder read, and why.

    subject: task and recipe of the run, where they could still be read.
    """

    name: str
    why: str
    subject: tuple[str, str] | None = None


@dataclass(frozen=True)
class Inventory:
    """Everything in a folder of runs, sorted by path; `not_run` has reasons by task."""

    root: Path
    finished: tuple[Run, ...]
    unfinished: tuple[LeftOut, ...]
    damaged: tuple[LeftOut, ...]
    copies: tuple[LeftOut, ...]
    comparisons: tuple[Comparison, ...]
    not_run: Mapping[str, str]

    @property
    def left_out(self) -> dict[str, tuple[LeftOut, ...]]:
        """What is not used, by kind."""
        kinds = {"unfinished": self.unfinished, "damaged": self.damaged, "copies": self.copies}
        return {kind: found for kind, found in kinds.items() if found}

    def name(self, run: Run) -> str:
        """The run's folder as seen from the folder that was read."""
        return relative(run.folder, self.root)


def take(root: Path) -> Inventory:
    """Reads every run in `root` or below it."""
    finished: list[Run] = []
    unfinished: list[LeftOut] = []
    damaged: list[LeftOut] = []
    for found in runs.scan(root):
        run, name = found.read, relative(found.path, root)
        damage = found.damage if isinstance(run, Exception) else _damage(run)
        if isinstance(run, Exception) or damage:
            damaged.append(LeftOut(name, _without_root(damage, root)))
        elif run.state == "done":
            finished.append(run)
        else:
            subject = (run.recipe.task, run.recipe.name)
            unfinished.append(LeftOut(name, f"{run.state}{_progress(run)}", subject))
    compared = list(runs.scan_comparisons(root))
    damaged += [
        LeftOut(relative(found.path, root), _without_root(found.damage, root))
        for found in compared
        if found.damage
    ]
    originals, copies = _without_copies(finished, root)
    return Inventory(
        root,
        originals,
        (*unfinished, *_not_begun(root)),
        tuple(damaged),
        copies,
        tuple(found.read for found in compared if isinstance(found.read, Comparison)),
        _noted_not_run(root),
    )


def _not_begun(root: Path) -> Iterator[LeftOut]:
    """Runs that a sweep has planned, and that have no folder yet."""
    for path in sorted(root.rglob("sweep-*.json")):
        try:
            names = [str(name) for name in files.read_json(path)["runs"]]
        except (ValueError, KeyError, TypeError, OSError):
            continue  # the runs themselves are read all the same
        for name in names:
            if not (path.parent / name).exists():
                yield LeftOut(
                    relative(path.parent / name, root), f"planned by {path.name}, not begun yet"
                )


def _without_copies(found: list[Run], root: Path) -> tuple[tuple[Run, ...], tuple[LeftOut, ...]]:
    """A run that lies in two folders counts once: its times to the last digit give it away."""
    originals: list[Run] = []
    copies: list[LeftOut] = []
    for run in found:
        same = [one for one in originals if (one.recipe, one.result) == (run.recipe, run.result)]
        if same:
            why = f"a copy of {relative(same[0].folder, root)}"
            copies.append(LeftOut(relative(run.folder, root), why))
        else:
            originals.append(run)
    return tuple(originals), tuple(copies)


def note_not_run(root: Path, reasons: Mapping[str, str]) -> None:
    """Leaves word in a folder of runs why tasks were not run, by the name of the task."""
    root.mkdir(parents=True, exist_ok=True)
    files.write_json(root / _NOT_RUN, reasons)


def _noted_not_run(root: Path) -> dict[str, str]:
    path = root / _NOT_RUN
    return {t: str(why) for t, why in files.read_json(path).items()} if path.is_file() else {}


def relative(path: Path, root: Path) -> str:
    """`path` below `root`, with forward slashes; the folder's own name for `root` itself.

    Of the lines of a file it is the file's name with the run's or the line's.
    """
    if path == root:
        return path.resolve().name
    return path.relative_to(root.parent if root.is_file() else root).as_posix()


def _damage(run: Run) -> str:
    """Why a run that says it is done cannot be; empty if it can."""
    try:
        _check(run)
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        return f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
    return ""


def _check(run: Run) -> None:
    if run.state != "done":
        return
    quantity = f"test_{TASKS[run.recipe.task].metric.name}"
    value = run.result.get(quantity)
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise RunError(f"status.json says done, but its {quantity} is {value!r}")
    if run.metrics:
        _check_end(run)


def _check_end(run: Run) -> None:
    """A curve that breaks off is no curve of a finished run."""
    last = run.metrics[-1]
    total = run.recipe.updates(run.recipe.length, round(last["update"] / last["epoch"]))
    if last["update"] != total:
        raise RunError(f"metrics.jsonl breaks off at update {last['update']:,} of {total:,}")


def _progress(run: Run) -> str:
    return f" after update {run.metrics[-1]['update']:,}" if run.metrics else ""


def _without_root(text: str, root: Path) -> str:
    """The message without the path of the folder that was read, which the page must not hold."""
    return text.replace(f"{root}/", "").replace(f"{root} ", f"{root.resolve().name} ")
