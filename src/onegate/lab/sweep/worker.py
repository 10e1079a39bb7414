"""One run of a sweep, wherever it runs, and what is told of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from onegate.lab import StoppedError
from onegate.lab.recipes import Recipe
from onegate.lab.sweep.places import Place
from onegate.lab.train import session
from onegate.lab.train.distributed import ProcessGroup, own_device
from onegate.lab.train.progress import Position, shown

State = Literal["waiting", "running", "done", "failed", "stopped"]

# The machine that held a run's folder may be gone; a shared file system notices that only after
# its lease, which is a minute and a half on NFS.
_PATIENCE = 150.0


@dataclass(frozen=True)
class News:
    """What became of a run: its position and metric, its result, or its error.

    notes: warnings that came up on the way.
    """

    name: str
    state: State
    text: str = ""
    notes: tuple[str, ...] = ()


class Reporter:
    """An observer that passes on a run's position as news."""

    def __init__(self, name: str, report: Callable[[News], None]) -> None:
        self.name, self.report, self.metrics = name, report, ""

    def started(self, title: str) -> None:  # noqa: ARG002 - an observer's
        self.report(News(self.name, "running"))

    def updated(self, position: Position) -> None:
        self.report(News(self.name, "running", f"{position}  {self.metrics}".rstrip()))

    def evaluated(self, position: Position, metrics: Mapping[str, float]) -> None:
        """Tells the position with the new metrics."""
        self.metrics = shown(metrics)
        self.updated(position)

    def ended(self) -> None:
        """The result is told by `run`."""


def run(
    recipe: Recipe,
    name: str,
    place: Place,
    threads: int,
    checkpoint_seconds: float,
    report: Callable[[News], None],
    device: str = "cpu",
) -> News:
    """Trains a run, or goes on with it; returns how it ended. An error ends this run alone."""
    session.use_threads(threads)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        state, text = _train(recipe, name, place, checkpoint_seconds, report, device)
    notes = (str(w.message) for w in caught if issubclass(w.category, UserWarning))
    return News(name, state, text, tuple(notes))


def _train(
    recipe: Recipe,
    name: str,
    place: Place,
    checkpoint_seconds: float,
    report: Callable[[News], None],
    device: str,
) -> tuple[State, str]:
    try:
        with place.working(name) as (folder, observers):
            result = session.train(
                recipe,
                folder,
                resume=True,
                observers=[*observers, Reporter(name, report)],
                checkpoint_seconds=checkpoint_seconds,
                patience=_PATIENCE,
                group=ProcessGroup(own_device(device)),
            )
    except StoppedError as stopped:
        return "stopped", str(stopped)
    except Exception as error:  # whatever it is, the other runs go on
        known = isinstance(error, (ValueError, OSError))
        return "failed", str(error) if known else f"{type(error).__name__}: {error}"
    return "done", _result(result)


def _result(result: Mapping[str, Any]) -> str:
    return shown({name: result[name] for name in sorted(result)})
