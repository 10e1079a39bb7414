"""What lies in a folder of runs: those that are finished, and why the others do not count."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from onegate.lab import files
from onegate.lab.runs import Comparison, Run, RunError
from onegate.lab.tasks import TASKS

# A folder with any of these was meant to hold a run.
_SIGNS = ("recipe.json", "status.json", "metrics.jsonl")
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
    for folder in _run_folders(root):
        name = relative(folder, root)
        try:
            run = Run.read(folder)
            _check(run)
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, OSError) as error:
            damaged.append(LeftOut(name, _reason(error, root)))
            continue
        if run.state == "done":
            finished.append(run)
        else:
            subject = (run.recipe.task, run.recipe.name)
            unfinished.append(LeftOut(name, f"{run.state}{_progress(run)}", subject))
    comparisons, unreadable = _comparisons(root)
    originals, copies = _without_copies(finished, root)
    return Inventory(
        root,
        originals,
        (*unfinished, *_not_begun(root)),
        (*damaged, *unreadable),
        copies,
        comparisons,
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


def _without_copies(runs: list[Run], root: Path) -> tuple[tuple[Run, ...], tuple[LeftOut, ...]]:
    """A run that lies in two folders counts once: its times to the last digit give it away."""
    originals: list[Run] = []
    copies: list[LeftOut] = []
    for run in runs:
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
    """`path` below `root`, with forward slashes; the folder's own name for `root` itself."""
    return path.resolve().name if path == root else path.relative_to(root).as_posix()


def _run_folders(root: Path) -> Iterator[Path]:
    found = {path.parent for sign in _SIGNS for path in root.rglob(sign)}
    return iter(sorted(found))


def _check(run: Run) -> None:
    """Raises `RunError` if a run that says it is done cannot be."""
    if run.state not in ("running", "stopped", "failed", "done"):
        raise RunError(f"status.json has state {run.state!r}, which no run has")
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


def _reason(error: Exception, root: Path) -> str:
    """The message without the path of the folder that was read, which the page must not hold."""
    text = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
    return text.replace(f"{root}/", "").replace(f"{root} ", f"{root.resolve().name} ")


def _comparisons(root: Path) -> tuple[tuple[Comparison, ...], tuple[LeftOut, ...]]:
    read: list[Comparison] = []
    damaged: list[LeftOut] = []
    for path in sorted(root.rglob("comparison*.json")):
        try:
            read.append(Comparison.read(path))
        except (ValueError, KeyError, TypeError, OSError) as error:
            damaged.append(LeftOut(relative(path, root), _reason(error, root)))
    return tuple(read), tuple(damaged)
