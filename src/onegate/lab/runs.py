"""Runs on the disk: the folder that training writes, and files that keep finished runs.

    recipe.json     what was asked for
    machine.json    where it ran: versions, threads, engine, commit, processor
    metrics.jsonl   one object a line: update, epoch, train_loss, valid_accuracy, ...
    status.json     running, stopped, failed or done; the result of a run that is done
    checkpoints/    see onegate.lab.train.checkpoints
    lock            held by the process that writes here

A run is complete only when its status says `done`. `keep` puts what finished runs hold, but for
their checkpoints, into one file a task, a line a run:

    TASK.jsonl      {"name": the folder's name, "recipe": ..., "machine": ..., "status": ...,
                     "metrics": [...]}
    comparisons.jsonl

Whatever reads runs reads both.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, get_args

import torch

from onegate import files
from onegate.lab import recipes
from onegate.lab.recipes import Recipe
from onegate.lab.train.checkpoints import Checkpoint, Checkpoints

State = Literal["running", "stopped", "failed", "done"]
Metrics = Mapping[str, float]


class RunError(ValueError):
    """A run cannot be used as asked."""


class NoRunError(RunError):
    """A folder lacks a file that every run has."""


class RunFolder:
    """The folder of one run, for the process that writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = Checkpoints(path / "checkpoints")
        self._metrics = path / "metrics.jsonl"

    @contextmanager
    def locked(self, patience: float = 0.0) -> Iterator[None]:
        """Makes the folder and keeps other processes out of it.

        The operating system drops the lock when its process dies, however it dies: the file may
        stay, but a stale lock never holds anybody up. On a file system of several machines it may
        take a while until the death of another one is noticed: `patience` is how many seconds to
        wait for the lock.
        """
        with ExitStack() as held:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                file = held.enter_context(files.locked(self.path / "lock", patience))
            except OSError as error:
                raise RunError(
                    f"the run folder {self.path} cannot be written: {error.strerror}; "
                    "choose another one with --run"
                ) from None
            except files.HeldError as holder:
                raise RunError(
                    f"{self.path} is in use by {holder}: "
                    "wait for it to end, or choose another folder with --run"
                ) from None
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            file.flush()
            files.remove_drafts(self.path)
            if self.checkpoints.folder.is_dir():
                files.remove_drafts(self.checkpoints.folder)
            yield

    def has_run(self) -> bool:
        """Whether a run was ever started here."""
        return (self.path / "recipe.json").exists()

    def recipe(self) -> Recipe:
        """The recipe of the run that was started here."""
        return recipes.from_json(files.read_json(self.path / "recipe.json"))

    def start(self, recipe: Recipe) -> None:
        """Notes the recipe of a new run."""
        files.write_json(self.path / "recipe.json", recipes.to_json(recipe))

    def note_machine(self, machine: Mapping[str, Any]) -> list[str]:
        """Records where the run runs; returns what differs from where it was started."""
        path = self.path / "machine.json"
        if not path.exists():
            files.write_json(path, machine)
            return []
        started = files.read_json(path)
        resumed = started.get("resumed_with", [])
        before = {**started, **(resumed[-1] if resumed else {})}
        changed = {key: value for key, value in machine.items() if before.get(key) != value}
        if changed:
            files.write_json(path, {**started, "resumed_with": [*resumed, changed]})
        return [f"{key}: {started.get(key)!r}, now {value!r}" for key, value in changed.items()]

    def append_metrics(self, metrics: Metrics) -> None:
        """Adds a line to metrics.jsonl."""
        with self._metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(metrics) + "\n")

    def metrics(self) -> list[dict[str, float]]:
        """The whole lines of metrics.jsonl."""
        return _read_metrics(self._metrics)

    def keep_metrics_until(self, update: int) -> None:
        """Drops the lines that a run resumed at `update` will write again, and broken ones."""
        kept = [m for m in self.metrics() if m["update"] <= update]
        files.write(self._metrics, "".join(json.dumps(m) + "\n" for m in kept).encode())

    def status(self) -> dict[str, Any]:
        """The content of status.json, empty if there is none."""
        path = self.path / "status.json"
        return files.read_json(path) if path.exists() else {}

    def is_done(self) -> bool:
        """Whether the run is finished."""
        return bool(self.status().get("state") == "done")

    def note_status(self, state: State, **more: Any) -> None:
        """Replaces status.json."""
        files.write_json(self.path / "status.json", {"state": state, **more})


class WatchedFolder(RunFolder):
    """The folder of a run for a process that helps another one, which alone writes and reads it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.checkpoints = _WatchedCheckpoints(path / "checkpoints")

    @contextmanager
    def locked(self, patience: float = 0.0) -> Iterator[None]:  # noqa: ARG002 - it does not wait
        """The other process has the lock."""
        yield

    def has_run(self) -> bool:
        """There is nothing to be started here."""
        return True

    def note_machine(self, machine: Mapping[str, Any]) -> list[str]:  # noqa: ARG002
        """Nothing is noted."""
        return []

    def append_metrics(self, metrics: Metrics) -> None:
        """Nothing is written."""

    def keep_metrics_until(self, update: int) -> None:
        """Nothing is written."""

    def note_status(self, state: State, **more: Any) -> None:
        """Nothing is written."""


class _WatchedCheckpoints(Checkpoints):
    def save(self, checkpoint: Checkpoint) -> None: ...

    def remove_after(self, update: int) -> None: ...


def _read_metrics(path: Path) -> list[dict[str, float]]:
    """The lines up to the first broken one: a killed process may have written half a line."""
    lines: list[dict[str, float]] = []
    if not path.exists():
        return lines
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            break
    return lines


@dataclass(frozen=True)
class Run:
    """A run as it lies on the disk, for who reads it.

    folder: where it was read; FILE/NAME for the run NAME that a file keeps.
    result: of a finished run: the metrics that count (`valid_*`, `test_*`), `update` (whose model
        it is), `seconds`, `seconds_per_epoch`, `time_shares` by phase, and `parameters` (of the
        hidden unit), `parameters_paper` (the same as the paper counts), `parameters_total`.
    """

    folder: Path
    recipe: Recipe
    machine: Mapping[str, Any]
    metrics: tuple[Metrics, ...]
    state: State
    result: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Run:
        """The run in a folder; a `RunError` says what is missing."""
        return cls.of(folder, _content(folder))

    @classmethod
    def of(cls, folder: Path, content: Mapping[str, Any]) -> Run:
        """The run of which this was read; content that no run has is an error."""
        for name, kind in _KINDS.items():
            if not isinstance(content[name], kind):
                raise RunError(f"{name} holds {type(content[name]).__name__}, not {kind.__name__}")
        status, metrics = content["status"], content["metrics"]
        if not all(isinstance(line, dict) for line in metrics):
            raise RunError("metrics holds a line that is no JSON object")
        state, result = status["state"], status.get("result", {})
        if state not in get_args(State):
            raise RunError(f"status.json has state {state!r}, which no run has")
        if not isinstance(result, dict):
            raise RunError(f"the result is {type(result).__name__}, expected a JSON object")
        recipe = recipes.from_json(content["recipe"])
        return cls(folder, recipe, content["machine"], tuple(metrics), state, result)

    @property
    def is_kept(self) -> bool:
        """Whether it is a line of a file, so that there is no folder and no checkpoint."""
        return self.folder.parent.is_file()

    def curve(self, x: str, y: str) -> tuple[list[float], list[float]]:
        """Two columns of the metrics, at the lines that have both.

        >>> run.curve("epoch", "test_accuracy")
        """
        lines = [m for m in self.metrics if x in m and y in m]
        return [m[x] for m in lines], [m[y] for m in lines]

    def weights(self) -> dict[str, torch.Tensor]:
        """The model's parameters: of the result's model, or of the last checkpoint."""
        if self.is_kept:
            raise RunError(
                f"{self.folder.parent} keeps {self.folder.name} without its weights: "
                "only the folder that it was trained in has them"
            )
        kept = Checkpoints(self.folder / "checkpoints")
        checkpoint = kept.load(self.result["update"]) if self.result else kept.last()
        if checkpoint is None:
            raise RunError(f"{self.folder} has no checkpoint: the run has to get further first")
        return {
            name.removeprefix("model."): tensor
            for name, tensor in checkpoint.tensors.items()
            if name.startswith("model.")
        }


_KINDS = {"recipe": dict, "machine": dict, "status": dict, "metrics": list}
# A folder with any of these was meant to hold a run.
_SIGNS = ("recipe.json", "status.json", "metrics.jsonl")
_METRICS, _COMPARISONS = "metrics.jsonl", "comparisons.jsonl"
# What reading a damaged file can end in.
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, OSError)
_T = TypeVar("_T")


def _content(folder: Path) -> dict[str, Any]:
    """All that a run folder holds but for its checkpoints."""
    for name in ("recipe.json", "status.json"):
        if not (folder / name).is_file():
            raise NoRunError(f"{folder} holds no run: {name} is missing")
    machine = folder / "machine.json"
    return {
        "recipe": files.read_json(folder / "recipe.json"),
        "machine": files.read_json(machine) if machine.is_file() else {},
        "status": files.read_json(folder / "status.json"),
        "metrics": _read_metrics(folder / "metrics.jsonl"),
    }


@dataclass(frozen=True)
class Found(Generic[_T]):
    """What lies at a path, FILE/NAME or FILE:LINE for that of a line; an error if it is damaged.

    content: as it was read, without its name.
    """

    path: Path
    content: Mapping[str, Any]
    read: _T | Exception

    @property
    def damage(self) -> str:
        """Why it cannot be used; empty if it can."""
        if isinstance(self.read, KeyError):
            return f"{self.read.args[0]} is missing"
        return str(self.read) if isinstance(self.read, Exception) else ""


def scan(root: Path) -> Iterator[Found[Run]]:
    """Every run in a folder or below it, or in a .jsonl file, sorted by path."""
    if root.is_file() and root.suffix != ".jsonl":
        raise RunError(f"{root} is neither a folder of runs nor a .jsonl file that keeps some")
    for folder in sorted({path.parent for sign in _SIGNS for path in root.rglob(sign)}):
        yield _found(folder, _content, Run.of)
    for path in [root] if root.is_file() else sorted(root.rglob("*.jsonl")):
        if path.name not in (_METRICS, _COMPARISONS):
            yield from _lines(path, Run.of)


def scan_comparisons(root: Path) -> Iterator[Found[Comparison]]:
    """Every comparison in a folder or below it, sorted by path."""
    for path in sorted(root.rglob("comparison*.json")):
        yield _found(path, files.read_json, Comparison.of)
    for path in sorted(root.rglob(_COMPARISONS)):
        yield from _lines(path, Comparison.of)


def _found(
    path: Path,
    load: Callable[[Path], dict[str, Any]],
    of: Callable[[Path, dict[str, Any]], _T],
) -> Found[_T]:
    content: dict[str, Any] = {}
    try:
        content = load(path)
        return Found(path, content, of(path, content))
    except _DAMAGE as error:
        return Found(path, content, error)


def _lines(path: Path, of: Callable[[Path, dict[str, Any]], _T]) -> Iterator[Found[_T]]:
    """What a file keeps, in the order of its lines."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        yield Found(path, {}, error)
        return
    for number, line in enumerate(lines, start=1):
        try:
            content = files.json_object(line, "the line")
            name = content.pop("name")
            if not isinstance(name, str) or name in ("", "..") or Path(name).name != name:
                raise RunError(f"{name!r} is not the name of a run")
            yield Found(path / name, content, of(path / name, content))
        except _DAMAGE as error:
            yield Found(path.with_name(f"{path.name}:{number}"), {}, error)


def finished_runs(path: Path) -> list[Run]:
    """The finished runs of `scan`; a warning for damaged ones, none for what is no run yet."""
    found = (one for one in scan(path) if not isinstance(one.read, NoRunError))
    return [run for run in _undamaged(found) if run.state == "done"]


def _undamaged(all_found: Iterable[Found[_T]]) -> list[_T]:
    """What can be read of these; what cannot is named in a warning and left out."""
    whole = []
    for found in all_found:
        if isinstance(found.read, Exception):
            warnings.warn(f"{found.path} is damaged and left out: {found.damage}", stacklevel=3)
        else:
            whole.append(found.read)
    return whole


def keep(root: Path, to: Path) -> list[str]:
    """Puts the finished runs in `root`, and its comparisons, into files in the folder `to`.

    A run takes the place of the one of the same recipe. Returns the names of what was kept.
    """
    runs = [found for found in scan(root) if not isinstance(found.read, NoRunError)]
    compared = list(scan_comparisons(root))
    _undamaged(runs)
    _undamaged(compared)
    added: dict[str, list[Found[Any]]] = {}
    for found in runs:
        if isinstance(found.read, Run) and found.read.state == "done":
            added.setdefault(f"{found.read.recipe.task}.jsonl", []).append(found)
    added |= {_COMPARISONS: [found for found in compared if not found.damage]} if compared else {}
    to.mkdir(parents=True, exist_ok=True)
    for name, lines in added.items():
        _add_lines(to / name, lines)
    return sorted(_name(found) for lines in added.values() for found in lines)


def _add_lines(path: Path, added: Iterable[Found[Any]]) -> None:
    of: Callable[..., Any] = Comparison.of if path.name == _COMPARISONS else Run.of
    lines: dict[str, Found[Any]] = {}
    for found in (*(_lines(path, of) if path.exists() else ()), *added):
        if found.damage:
            raise RunError(f"{found.path} is damaged: {found.damage}; mend or remove it first")
        same = run_name(found.read.recipe) if isinstance(found.read, Run) else _name(found)
        lines[same] = found
    text = "".join(
        json.dumps({"name": _name(found), **found.content}) + "\n"
        for found in sorted(lines.values(), key=_name)
    )
    files.write(path, text.encode())


def _name(found: Found[Any]) -> str:
    """What a line is called: as the folder or the file that it was."""
    return found.path.resolve().name.removesuffix(".json")


def run_name(recipe: Recipe) -> str:
    """A folder name that says what the run is; equal recipes, and only they, have equal names.

    >>> run_name(recipe("mnist_rows", "flow", "mgu"))  # doctest: +ELLIPSIS
    'mnist_rows-flow-mgu-100-s0-...'
    """
    content = {k: v for k, v in recipes.to_json(recipe).items() if k != "reasons"}
    if recipe.plugins:  # what is in the files, wherever they are
        content["plugins"] = sorted(recipe.plugins.values())
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]
    size = recipe.model.hidden_size
    return f"{recipe.task}-{recipe.name}-{recipe.unit}-{size}-s{recipe.seed}-{digest}"


@dataclass(frozen=True)
class ComparedUnit:
    """One row of a comparison: a unit, its metric over seeds, its time and its parameters.

    metric_values: one per seed. seconds_per_epoch: median over measurements that took turns with
        those of the other units. parameters, parameters_paper: of the hidden unit, counted
        exactly and in the paper's way (None where the paper has none). runs: folder names.
    """

    unit: str
    hidden_size: int
    metric_values: tuple[float, ...]
    seconds_per_epoch: float
    parameters: int
    parameters_paper: int | None
    runs: tuple[str, ...]

    @property
    def mean(self) -> float:
        """Mean of the metric over seeds."""
        return sum(self.metric_values) / len(self.metric_values)

    @property
    def spread(self) -> float:
        """Standard deviation of the metric over seeds; 0 for a single seed."""
        n = len(self.metric_values)
        squares = sum((v - self.mean) ** 2 for v in self.metric_values)
        return float((squares / (n - 1)) ** 0.5) if n > 1 else 0.0


@dataclass(frozen=True)
class Comparison:
    """Units on one task, as `onegate compare` stores them in comparison.json.

    settings: fields of the recipe that were replaced for all units, as `field=value`.
    """

    task: str
    recipe: str
    match: str
    metric: str
    units: tuple[ComparedUnit, ...]
    settings: tuple[str, ...] = ()

    def write(self, path: Path) -> None:
        """Stores the comparison."""
        rows = [{**vars(unit), "mean": unit.mean, "spread": unit.spread} for unit in self.units]
        files.write_json(path, {**vars(self), "units": rows})

    @classmethod
    def read(cls, path: Path) -> Comparison:
        """The comparison that `write` stored."""
        return cls.of(path, files.read_json(path))

    @classmethod
    def of(cls, _: Path, content: Mapping[str, Any]) -> Comparison:
        """The comparison of which this was read."""
        content = dict(content)
        rows = [
            ComparedUnit(
                unit=row["unit"],
                hidden_size=row["hidden_size"],
                metric_values=tuple(row["metric_values"]),
                seconds_per_epoch=row["seconds_per_epoch"],
                parameters=row["parameters"],
                parameters_paper=row["parameters_paper"],
                runs=tuple(row["runs"]),
            )
            for row in content.pop("units")
        ]
        settings = tuple(content.pop("settings", ()))  # versions before this field had none
        return cls(**content, units=tuple(rows), settings=settings)


def comparisons(folder: Path) -> list[Comparison]:
    """Every comparison in a folder or below it, sorted by path; a warning for damaged ones."""
    return _undamaged(scan_comparisons(folder))
