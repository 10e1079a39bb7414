"""What lies in a folder of runs: those that are finished, and why the others do not count."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from onegate import files
from onegate.lab import archive
from onegate.lab.archive import Found
from onegate.lab.recipes import NotGivenError
from onegate.lab.runs import Comparison, Run, RunError
from onegate.lab.tasks import TASKS

_T = TypeVar("_T")
_NOT_RUN = "not_run.json"
# What looking at a value that is something else can end in.
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, ArithmeticError)
# Squares of numbers below this one are numbers too.
_LARGEST = 1e30
# Of a result, shown as numbers; beside them those that begin with test_ and valid_.
_NUMBERS = ("update", "epoch", "seconds", "seconds_per_epoch", "parameters", "parameters_paper",
            "parameters_total")  # fmt: skip


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
    unknown: tuple[LeftOut, ...]
    damaged: tuple[LeftOut, ...]
    copies: tuple[LeftOut, ...]
    comparisons: tuple[Comparison, ...]
    not_run: Mapping[str, str]

    @property
    def left_out(self) -> dict[str, tuple[LeftOut, ...]]:
        """What is not used, by kind."""
        kinds = {
            "unfinished": self.unfinished,
            "of unknown tasks": self.unknown,
            "damaged": self.damaged,
            "copies": self.copies,
        }
        return {kind: found for kind, found in kinds.items() if found}

    def name(self, run: Run) -> str:
        """The run's folder as seen from the folder that was read."""
        return relative(run.folder, self.root)


def take(root: Path) -> Inventory:
    """Reads every run in `root` or below it."""
    finished: list[Run] = []
    unfinished: list[LeftOut] = []
    unknown: list[LeftOut] = []
    damaged: list[LeftOut] = []
    comparisons: list[Comparison] = []
    for found in archive.scan(root):
        run, name, damage = found.read, relative(found.path, root), _damage(found, _check)
        if isinstance(run, NotGivenError):
            unknown.append(LeftOut(name, _without_root(damage, root)))
        elif isinstance(run, Exception) or damage:
            damaged.append(LeftOut(name, _without_root(damage, root)))
        elif run.state == "done":
            finished.append(run)
        else:
            subject = (run.recipe.task, run.recipe.name)
            unfinished.append(LeftOut(name, f"{run.state}{_progress(run)}", subject))
    for compared in archive.scan_comparisons(root):
        damage = _damage(compared, _check_comparison)
        if isinstance(compared.read, Exception) or damage:
            name = relative(compared.path, root)
            damaged.append(LeftOut(name, _without_root(damage, root)))
        else:
            comparisons.append(compared.read)
    originals, copies = _without_copies(finished, root)
    return Inventory(
        root,
        originals,
        (*unfinished, *_not_begun(root)),
        tuple(unknown),
        tuple(damaged),
        copies,
        tuple(dict.fromkeys(comparisons)),  # a copy says nothing new
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


def _damage(found: Found[_T], check: Callable[[_T], None]) -> str:
    """Why what was found cannot be read or cannot be true; empty if it can."""
    if isinstance(found.read, Exception):
        return found.damage
    try:
        check(found.read)
    except _DAMAGE as error:
        return f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
    return ""


def _require(value: object, what: str, kind: type[int] | type[float] = float) -> None:
    """Raises `RunError` unless a value from a file is a number that can be shown."""
    known = isinstance(value, (int, kind)) and not isinstance(value, bool)
    if not known or not abs(value) < _LARGEST:  # type: ignore[arg-type]
        raise RunError(f"{what} is {value!r}, expected a {'whole ' * (kind is int)}number")


def check_numbers(run: Run) -> None:
    """Raises `RunError` if something else stands where a run has numbers."""
    resumed = run.machine.get("resumed_with", [])
    parts: list[Any] = [run.result, *run.metrics, *(resumed if isinstance(resumed, list) else [0])]
    for part in parts:
        if not isinstance(part, Mapping):
            raise RunError(f"{part!r} stands where a JSON object is expected")
    for name, value in run.result.items():
        if name in _NUMBERS or name.startswith(("test_", "valid_")):
            whole = name == "update" or name.startswith("parameters")
            if value is not None or name != "parameters_paper":
                _require(value, f"{name} in status.json", int if whole else float)
    for line in parts[1 : 1 + len(run.metrics)]:
        for name, value in line.items():
            if not isinstance(value, float):  # of a run that went wrong, these may be any
                _require(value, f"{name} in metrics.jsonl")
        _require(line.get("update"), "update in metrics.jsonl", int)


def _check_comparison(compared: Comparison) -> None:
    """Raises `RunError` if something else stands where a comparison has names and numbers."""
    for name in (compared.task, compared.recipe, compared.match, compared.metric):
        if not isinstance(name, str):
            raise RunError(f"{name!r} stands where a name is expected")
    for unit in compared.units:
        if not isinstance(unit.unit, str) or not unit.metric_values:
            raise RunError(f"unit {unit.unit!r} has no name or no results")
        for value in (*unit.metric_values, unit.seconds_per_epoch):
            _require(value, f"a number of {unit.unit}")
        counts = [unit.hidden_size, unit.parameters, unit.parameters_paper]
        for count in counts if unit.parameters_paper is not None else counts[:2]:
            _require(count, f"a count of {unit.unit}", int)
        if unit.seconds_per_epoch <= 0:
            raise RunError(f"an epoch of {unit.unit} took {unit.seconds_per_epoch} s")


def _check(run: Run) -> None:
    """Raises `RunError` if a run that says it is done cannot be."""
    if run.state == "done":
        _check_result(run)
    check_numbers(run)
    if run.state == "done" and run.metrics:
        _check_end(run)


def _check_result(run: Run) -> None:
    quantity = f"test_{TASKS[run.recipe.task].metric.name}"
    value = run.result.get(quantity)
    if not isinstance(value, (int, float)) or not abs(value) < _LARGEST:
        raise RunError(f"status.json says done, but its {quantity} is {value!r}")


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
