"""Run folders: what a training run leaves behind, and how it is read again.

    recipe.json     what was asked for
    machine.json    where it ran: versions, threads, engine, commit, processor
    metrics.jsonl   one object a line: update, epoch, train_loss, valid_accuracy, ...
    status.json     running, stopped, failed or done; of a run that is done the result, and the
                    number and digest of the lines of metrics.jsonl
    checkpoints/    see onegate.lab.train.checkpoints
    lock            held by the process that writes here

A run is complete only when its status says `done`. `onegate.lab.archive` finds runs, and keeps
finished ones in files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from onegate import files
from onegate.lab import recipes
from onegate.lab.recipes import Recipe
from onegate.lab.significance import welch
from onegate.lab.train.checkpoints import Checkpoint, Checkpoints

# A small trained run that comes with the package; docs/inspect.md has the command that made it.
EXAMPLE = Path(__file__).parent / "example"

State = Literal["running", "stopped", "failed", "done"]
Metrics = Mapping[str, float]

# What the files of a run hold, as `files.require` reads it.
LINES = {"lines": int, "sha256": str}
_RECIPE: dict[str, Any] = {
    "data": {},
    "model": {"unit_options?": {}},
    "optimizer": {},
    "schedule": {},
}
_MACHINE: dict[str, Any] = {"resumed_with?": [{}]}
_LINE: dict[Any, Any] = {"update": int, ...: float}
_RESULT: dict[Any, Any] = {
    "update": int,
    "parameters_paper?": (None, int),
    "time_shares?": dict.fromkeys(("forward", "backward", "optimizer", "evaluation", ...), float),
    ...: float,
}
_STATUS: dict[str, Any] = {
    "state": set(get_args(State)),
    "update?": int,
    "error?": str,
    "result?": _RESULT,
    "metrics?": LINES,
}
# All of a run folder but for its checkpoints.
CONTENTS = {"recipe": _RECIPE, "machine": _MACHINE, "status": _STATUS, "metrics": [_LINE]}
# The share of the cores that others take from which on a machine is called busy.
BUSY = 0.2
COMPARISON: dict[str, Any] = {
    **dict.fromkeys(("task", "recipe", "match", "metric"), str),
    # Versions before these fields had none.
    "settings?": [str],
    "threads?": (None, int),
    "busy?": (None, float),
    "units": [
        {
            "unit": str,
            "hidden_size": int,
            "metric_values": [float],
            "seconds_per_epoch": float,
            "parameters": int,
            "parameters_paper": (None, int),
            "runs": [str],
        }
    ],
}


class RunError(ValueError):
    """A run cannot be used as asked."""


class NoRunError(RunError):
    """A folder lacks a file that every run has."""


def read(path: Path, kind: Any) -> dict[str, Any]:
    """The JSON object in a file of a run, of a kind as `files.require` has them."""
    try:
        return files.read_json(path, kind)
    except FileNotFoundError:
        raise NoRunError(f"{path.parent} holds no run: {path.name} is missing") from None
    except ValueError as error:
        raise RunError(str(error)) from None


class MetricLines:
    """The lines of a metrics.jsonl that are known to be written: how many, and their digest."""

    def __init__(self) -> None:
        self._count, self._digest = 0, hashlib.sha256()

    def add(self, content: bytes) -> None:
        """Counts whole lines that follow those counted before."""
        self._count += content.count(b"\n")
        self._digest.update(content)

    def note(self) -> dict[str, Any]:
        """What a checkpoint, or the status of a finished run, says of the lines."""
        return {"lines": self._count, "sha256": self._digest.hexdigest()}


class RunFolder:
    """The folder of one run, for the process that writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = Checkpoints(path / "checkpoints")
        self._metrics = path / "metrics.jsonl"
        self._lines = MetricLines()

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
        path = self.path / "recipe.json"
        return _recipe(path, read(path, _RECIPE))

    def start(self, recipe: Recipe) -> None:
        """Notes the recipe of a new run."""
        files.write_json(self.path / "recipe.json", recipes.to_json(recipe))

    def note_machine(self, machine: Mapping[str, Any]) -> list[str]:
        """Records where the run runs; returns what differs from where it was started."""
        path = self.path / "machine.json"
        if not path.exists():
            files.write_json(path, machine)
            return []
        started = read(path, _MACHINE)
        resumed = started.get("resumed_with", [])
        before = {**started, **(resumed[-1] if resumed else {})}
        changed = {key: value for key, value in machine.items() if before.get(key) != value}
        if changed:
            files.write_json(path, {**started, "resumed_with": [*resumed, changed]})
        return [f"{key}: {started.get(key)!r}, now {value!r}" for key, value in changed.items()]

    def append_metrics(self, metrics: Metrics) -> None:
        """Adds a line to metrics.jsonl, on the disk before any checkpoint that counts it."""
        line = (json.dumps(metrics, allow_nan=False) + "\n").encode()
        files.append(self._metrics, line)
        self._lines.add(line)

    def metrics(self) -> list[dict[str, float]]:
        """The lines of metrics.jsonl, which have to be those that were written."""
        _noted_lines(self._metrics, self.metric_lines())
        return _read_metrics(self._metrics)

    def metric_lines(self) -> dict[str, Any]:
        """The number and the digest of the lines of metrics.jsonl, as they were written."""
        return self._lines.note()

    def keep_metrics(self, noted: Mapping[str, Any] | None, update: int) -> None:
        """Drops the lines that a resumed run will write again, and half a line at the end.

        noted: the lines that the run had, as `metric_lines` gives them, or None for a checkpoint of
            versions that did not count them: then the lines up to `update`, the last evaluation.

        Raises `RunError` if lines are missing or changed.
        """
        kept = self._lines_until(update) if noted is None else _noted_lines(self._metrics, noted)
        files.write(self._metrics, kept)
        self._lines = MetricLines()
        self._lines.add(kept)

    def _lines_until(self, update: int) -> bytes:
        lines = _read_metrics(self._metrics) if update else []
        kept = [m for m in lines if m["update"] <= update]
        if (kept[-1]["update"] if kept else 0) != update:
            raise RunError(
                f"{self._metrics} has no line of update {update}, which the run had evaluated; "
                f"{_RESTORE}"
            )
        return "".join(json.dumps(m) + "\n" for m in kept).encode()

    def status(self) -> dict[str, Any]:
        """The content of status.json, empty if there is none."""
        path = self.path / "status.json"
        return _read_status(path) if path.exists() else {}

    def is_done(self) -> bool:
        return bool(self.status().get("state") == "done")

    def result(self) -> dict[str, Any]:
        """The result of a finished run, whose metrics are all there."""
        status = self.status()
        if status.get("state") != "done":
            raise RunError(f"{self.path} holds no finished run: it has to be trained to its end")
        _require_all_lines(self._metrics, status)
        return dict(status["result"])

    def note_status(self, state: State, **more: Any) -> None:
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
        return []

    def append_metrics(self, metrics: Metrics) -> None:
        """Nothing is written."""

    def keep_metrics(self, noted: Mapping[str, Any] | None, update: int) -> None:
        """Nothing is written."""

    def note_status(self, state: State, **more: Any) -> None:
        """Nothing is written."""


class _WatchedCheckpoints(Checkpoints):
    def save(self, checkpoint: Checkpoint) -> None: ...

    def remove_after(self, update: int) -> None: ...


_RESTORE = "put the whole file back, or start the run anew in another folder with --run"


def _metric_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from None


def _read_metrics(path: Path) -> list[dict[str, float]]:
    """The lines of metrics.jsonl; a killed process may have left half a line at the end."""
    *whole, rest = _metric_bytes(path).split(b"\n")
    lines = [_metric_line(path, number, text) for number, text in enumerate(whole, start=1)]
    with contextlib.suppress(RunError):
        lines += [_metric_line(path, len(whole) + 1, rest)] if rest else []
    return lines


def _metric_line(path: Path, number: int, text: bytes) -> dict[str, float]:
    try:
        line: dict[str, float] = files.parse_json(text)
        files.require(line, _LINE, "")
    except ValueError as error:
        raise RunError(
            f"{path}, line {number}: {error}; it was damaged or edited: {_RESTORE}"
        ) from None
    return line


def _noted_lines(path: Path, noted: Mapping[str, Any]) -> bytes:
    """The bytes of the lines that were noted; a `RunError` if they are not there as written."""
    lines = _metric_bytes(path).split(b"\n")[:-1]
    kept = b"".join(line + b"\n" for line in lines[: noted["lines"]])
    if len(lines) < noted["lines"]:
        raise RunError(
            f"{path} has {len(lines)} whole lines, expected {noted['lines']}, which the run had "
            f"written; {_RESTORE}"
        )
    if hashlib.sha256(kept).hexdigest() != noted["sha256"]:
        raise RunError(
            f"{path} was changed: its first {noted['lines']} lines, of {len(lines)}, are not those "
            f"that the run had written; {_RESTORE}"
        )
    return kept


def _require_all_lines(path: Path, status: Mapping[str, Any]) -> None:
    """Raises `RunError` unless the metrics are those of a finished run; older ones did not note."""
    if "metrics" in status and _noted_lines(path, status["metrics"]) != _metric_bytes(path):
        raise RunError(
            f"{path} has more than the {status['metrics']['lines']} lines that the finished run "
            f"had written; {_RESTORE}"
        )


def _read_status(path: Path) -> dict[str, Any]:
    status = read(path, _STATUS)
    _require_result(path, status)
    return status


def _require_result(path: Path, status: Mapping[str, Any]) -> None:
    if status["state"] == "done" and "result" not in status:
        raise RunError(f"{path} says done, but result is missing; it was damaged or edited")


def _recipe(path: Path, content: Mapping[str, Any]) -> Recipe:
    try:
        return recipes.from_json(content)
    except recipes.NotGivenError:
        raise
    except recipes.RecipeError as error:
        raise RunError(f"{path}: {error}; it was damaged or edited") from None


def contents(folder: Path) -> dict[str, Any]:
    """All that a run folder holds but for its checkpoints, of the kind `CONTENTS`."""
    recipe, status = read(folder / "recipe.json", _RECIPE), _read_status(folder / "status.json")
    machine, metrics = folder / "machine.json", folder / "metrics.jsonl"
    if status["state"] == "done":
        _require_all_lines(metrics, status)
    return {
        "recipe": recipe,
        "machine": read(machine, _MACHINE) if machine.exists() else {},
        "status": status,
        "metrics": _read_metrics(metrics),
    }


@dataclass(frozen=True)
class Run:
    """A run as it lies on the disk, for who reads it.

    folder: where it was read; FILE/NAME for the run NAME that a file keeps.
    result: of a finished run: the metrics that count (`valid_*`, `test_*`), `update` (whose model
        it is), `seconds`, `seconds_per_epoch`, `time_shares` by phase, and `parameters` (of the
        recurrent layers), `parameters_paper` (the same as the paper counts), `parameters_total`.
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
        return cls.of(folder, contents(folder))

    @classmethod
    def of(cls, folder: Path, content: Mapping[str, Any]) -> Run:
        """The run whose files hold this, of the kind `CONTENTS`."""
        status = content["status"]
        _require_result(folder / "status.json", status)
        return cls(
            folder=folder,
            recipe=_recipe(folder / "recipe.json", content["recipe"]),
            machine=content["machine"],
            metrics=tuple(content["metrics"]),
            state=status["state"],
            result=status.get("result", {}),
        )

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
        those of the other units. parameters, parameters_paper: of the recurrent layers,
        counted exactly and in the paper's way (None where the paper has none). runs: folder names.
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
    threads: with which times were measured, those of the runs. busy: the share of the machine's
        cores that other processes took meanwhile; None where it is not known.
    """

    task: str
    recipe: str
    match: str
    metric: str
    units: tuple[ComparedUnit, ...]
    settings: tuple[str, ...] = ()
    threads: int | None = None
    busy: float | None = None

    @property
    def chances(self) -> tuple[float | None, ...]:
        """For each unit the p value of its difference from the first one, see `significance`."""
        first, *others = self.units
        return None, *(welch(first.metric_values, other.metric_values) for other in others)

    def content(self) -> dict[str, Any]:
        """What `write` stores, for JSON."""
        rows = [
            {**vars(unit), "mean": unit.mean, "spread": unit.spread, "p_against_first": chance}
            for unit, chance in zip(self.units, self.chances, strict=True)
        ]
        return {**vars(self), "units": rows}

    def write(self, path: Path) -> None:
        files.write_json(path, self.content())

    @classmethod
    def read(cls, path: Path) -> Comparison:
        """The comparison that `write` stored."""
        return cls.of(path, read(path, COMPARISON))

    @classmethod
    def of(cls, path: Path, content: Mapping[str, Any]) -> Comparison:
        """The comparison whose file holds this, of the kind `COMPARISON`."""
        rows = [
            ComparedUnit(
                **{name: row[name] for name in COMPARISON["units"][0]}
                | {"metric_values": tuple(row["metric_values"]), "runs": tuple(row["runs"])}
            )
            for row in content["units"]
        ]
        if not rows or not all(row.metric_values for row in rows):
            raise RunError(f"{path} compares nothing; it was damaged or edited")
        named = {name: content[name] for name in ("task", "recipe", "match", "metric")}
        return cls(
            **named,
            units=tuple(rows),
            settings=tuple(content.get("settings", ())),
            threads=content.get("threads"),
            busy=content.get("busy"),
        )
