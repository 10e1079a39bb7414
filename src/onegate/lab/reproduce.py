"""The paper's experiments, one after the other: a small plan by default, all of it on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from onegate.lab import compare, report, sweep
from onegate.lab.compare import Contender, Request
from onegate.lab.data import DataError
from onegate.lab.recipes import Recipe
from onegate.lab.runs import RunError, RunFolder, run_name
from onegate.lab.tasks import TASKS
from onegate.lab.tasks.base import Planned
from onegate.lab.train.progress import duration


def _requests(plans: Mapping[str, Sequence[Planned]]) -> tuple[Request, ...]:
    return tuple(
        Request(task, planned.recipe, seeds=(0,), settings=planned.settings)
        for task, plan in plans.items()
        for planned in plan
    )


# Well under ten minutes on two cores with the fused engine. MNIST is read for the paper's full flow
# time; the others are stopped earlier.
QUICK = _requests({name: task.quick for name, task in TASKS.items()})
FULL = _requests({name: task.full for name, task in TASKS.items()})


@dataclass
class Reproduction:
    """What will be run.

    requests: all of it. experiments: what is left of it, with the units as they were matched and
        measured. finished: what was done before. not_run: reasons by task.
    """

    requests: Sequence[Request]
    finished: list[Request] = field(default_factory=list)
    experiments: list[tuple[Request, list[Contender]]] = field(default_factory=list)
    not_run: dict[str, str] = field(default_factory=dict)

    def runs(self) -> list[tuple[Recipe, float]]:
        """Every run in order, with its estimated seconds."""
        return [run for experiment in self.experiments for run in compare.runs(*experiment)]

    def whole(self) -> list[Recipe]:
        """The recipes of all requests, finished or not."""
        return [
            replace(recipe, seed=seed)
            for request in self.requests
            for seed in request.seeds
            for recipe in request.recipes()
        ]


def prepare(requests: Sequence[Request], runs: Path, tell: Callable[[str], None]) -> Reproduction:
    """Looks for the data and measures the time of updates; tasks without data are left out."""
    plan = Reproduction(requests)
    without_data: set[str] = set()
    for request in requests:
        if request.task in without_data:
            continue
        if compare.is_finished(request, runs):
            plan.finished.append(request)
            continue
        try:
            plan.experiments.append((request, compare.prepare(request, runs)))
        except (DataError, RunError) as error:
            plan.not_run[request.task] = str(error)
            tell(f"{request.task} is not run: {error}")
            if isinstance(error, DataError):
                without_data.add(request.task)
    return plan


def describe(plan: Reproduction, runs: Path) -> str:
    """What is finished, and how long each of the other runs will take."""
    lines = [
        f"{request.task}/{request.recipe} {' '.join((*request.units, *request.settings))}: finished"
        for request in plan.finished
    ]
    left = 0.0
    for recipe, seconds in plan.runs():
        done = RunFolder(runs / run_name(recipe)).is_done()
        left += 0 if done else seconds
        size = recipe.model.hidden_size
        name = f"{recipe.task}/{recipe.name} {recipe.unit}, {size} units, seed {recipe.seed}"
        lines.append(f"{name}: {'finished' if done else 'about ' + duration(seconds)}")
    lines.append(f"{len(plan.runs())} runs, about {duration(left)} in all")
    return "\n".join(lines)


def execute(
    plan: Reproduction, runs: Path, tell: Callable[[str], None], threads: int | None = None
) -> None:
    """Runs a plan as one sweep; runs that fail are told and noted, and the others go on."""
    if not plan.experiments:
        return
    asked, seconds = zip(*plan.runs(), strict=True)
    made = sweep.make(asked, sweep.place(runs), threads, belongs_to=plan.whole())
    outcome = sweep.run(made, estimates=seconds)
    for request, contenders in plan.experiments:
        names = [run_name(recipe) for recipe, _ in compare.runs(request, contenders)]
        errors = [outcome.failed[name] for name in names if name in outcome.failed]
        if errors:
            plan.not_run[request.task] = "; ".join(errors)
            tell(f"{request.task} failed: {'; '.join(errors)}")
        else:
            compare.tabulate(request, contenders, runs)


def reproduce(
    requests: Sequence[Request],
    runs: Path,
    out: Path,
    tell: Callable[[str], None],
    threads: int | None = None,
) -> Path:
    """Runs what is not finished yet and writes the report; returns the page's path.

    tell: is given lines for the user to read. threads: of each run, see `sweep.make`.
    """
    plan = prepare(requests, runs, tell)
    tell(describe(plan, runs))
    execute(plan, runs, tell, threads)
    report.note_not_run(runs, plan.not_run)
    return report.write(runs, out)
