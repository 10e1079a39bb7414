"""What a sweep will run, where, and with how many threads a run.

A run's last digits depend on its number of threads. The sweep's file in the place of its results
(sweep-<digest>.json) therefore keeps that number: a sweep that was stopped, or is taken up on a
machine with more cores, ends with the same bits as one that nothing disturbed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from onegate import files
from onegate.lab.recipes import Recipe
from onegate.lab.runs import run_name
from onegate.lab.sweep.places import Place


class PlanError(ValueError):
    """A sweep cannot be run as asked."""


@dataclass(frozen=True)
class Plan:
    """The runs of a sweep.

    threads: of each run. checkpoint_seconds: between a run's checkpoints. gpus: that each run has
        to itself on a cluster; without any it computes on the CPU.
    """

    recipes: tuple[Recipe, ...]
    place: Place
    threads: int
    checkpoint_seconds: float = 60.0
    gpus: int = 0

    @property
    def device(self) -> str:
        """Where its runs compute."""
        return "cuda" if self.gpus else "cpu"

    @cached_property
    def runs(self) -> Mapping[str, Recipe]:
        """The recipes by the names of their folders."""
        return {run_name(recipe): recipe for recipe in self.recipes}

    def unfinished(self) -> list[str]:
        """The names of the runs that are left to do, in order."""
        return [name for name in self.runs if not self.place.is_done(name)]


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def make(
    asked: Sequence[Recipe],
    place: Place,
    threads: int | None = None,
    *,
    machine_cores: int | None = None,
    belongs_to: Iterable[Recipe] | None = None,
    checkpoint_seconds: float = 60.0,
    gpus: int = 0,
) -> Plan:
    """The plan for runs whose results land in `place`.

    threads: of each run; by default so many that all runs side by side fill the cores, and one if
        there are as many runs as cores. machine_cores: of the machine that runs them, if it is not
        this one. belongs_to: all runs of the sweep, where `asked` are only those that are left.
    """
    if threads is not None and threads < 1:
        raise PlanError(f"--threads is {threads}, expected 1 or more")
    whole = sorted({run_name(recipe) for recipe in belongs_to or asked})
    name = _file_name(whole)
    kept = _kept_threads(place, name)
    if kept is None:
        kept = threads or usual_threads(len(whole), machine_cores)
        content = {"threads": kept, "runs": whole}
        place.write(name, (json.dumps(content, indent=2) + "\n").encode())
    elif threads not in (None, kept):
        raise PlanError(
            f"this sweep was begun with --threads {kept}, now {threads} is asked for, which would "
            f"change its numbers: leave it out, or choose another folder than {place} with --runs"
        )
    return Plan(tuple(asked), place, kept, checkpoint_seconds, gpus)


def usual_threads(runs: int, machine_cores: int | None = None) -> int:
    """Of each of so many runs: all side by side fill the cores."""
    return max(1, (machine_cores or cores()) // max(1, runs))


def threads_of(asked: Iterable[Recipe], place: Place, threads: int | None = None) -> int:
    """With how many threads the runs will compute that `make` is going to plan."""
    whole = sorted({run_name(recipe) for recipe in asked})
    return _kept_threads(place, _file_name(whole)) or threads or usual_threads(len(whole))


def _file_name(whole: Iterable[str]) -> str:
    """Of the sweep of these runs."""
    digest = hashlib.sha256("\n".join(whole).encode()).hexdigest()[:8]
    return f"sweep-{digest}.json"


def _kept_threads(place: Place, name: str) -> int | None:
    content = place.read(name)
    if content is None:
        return None
    try:
        kept = files.parse_json(content)
        files.require(kept, {"threads": int}, "")
        return int(kept["threads"])
    except ValueError:
        raise PlanError(f"{name} in {place} is damaged: remove it to plan the sweep anew") from None
