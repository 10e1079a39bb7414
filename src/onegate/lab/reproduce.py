"""The paper's experiments, one after the other: a small plan by default, all of it on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from onegate.lab import compare, report, sweep
from onegate.lab.compare import Contender, Request
from onegate.lab.data import DamagedDataError, DataError
from onegate.lab.recipes import Recipe
from onegate.lab.runs import BUSY, RunError, RunFolder, run_name
from onegate.lab.sweep.plan import cores
from onegate.lab.tasks import TASKS
from onegate.lab.train.progress import alive, duration


def requests(*, full: bool) -> tuple[Request, ...]:
    """What all tasks plan, those of one's own as well.

    The quick ones of ours take well under ten minutes on two cores with the fused engine. MNIST is
    read for the paper's full flow time; the others are stopped earlier.
    """
    return tuple(
        Request(name, planned.recipe, seeds=(0,), settings=planned.settings)
        for name, task in TASKS.items()
        for planned in (task.full if full else task.quick)
    )


def stand_ins() -> dict[str, Request]:
    """By task, what is run where its data cannot be had: until each has visibly learned."""
    return {
        name: Request(
            name, planned.recipe, seeds=(0,), settings=(*task.stand_in, *planned.settings)
        )
        for name, task in TASKS.items()
        for planned in task.quick_stand_in
    }


@dataclass
class Reproduction:
    """What will be run.

    requests: all of it. experiments: what is left of it, with the units as they were matched and
        measured. finished: what was done before. not_run: reasons by task. stood_in: tasks whose
        data could not be had, or were not asked for. threads: of each run.
    """

    requests: list[Request]
    threads: int
    finished: list[Request] = field(default_factory=list)
    experiments: list[tuple[Request, list[Contender]]] = field(default_factory=list)
    not_run: dict[str, str] = field(default_factory=dict)
    stood_in: set[str] = field(default_factory=set)

    def summary(self) -> str:
        """What ran, in a line: `5 of 5 tasks, 4 on stand-ins`."""
        asked = {request.task for request in self.requests}
        ran = asked - self.not_run.keys()
        stood_in = f", {len(ran & self.stood_in)} on stand-ins" if ran & self.stood_in else ""
        return f"{len(ran)} of {len(asked)} tasks{stood_in}"

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


def on_stand_ins(requests: Sequence[Request], seeds: tuple[int, ...] = (0,)) -> list[Request]:
    """The requests with those for tasks that have a stand-in replaced by its own."""
    kept = {name: replace(request, seeds=seeds) for name, request in stand_ins().items()}
    return list(dict.fromkeys(kept.get(request.task, request) for request in requests))


def prepare(
    requests: Sequence[Request],
    runs: Path,
    notify: Callable[[str], None],
    substitutes: Mapping[str, Request] | None = None,
    verbose: bool = True,
    threads: int | None = None,
) -> Reproduction:
    """Looks for the data and measures the time of updates, with the threads of the runs.

    Tasks without data take their stand-in, if there is one; else they are left out. What could not
    be had is told in one line, or at length if `verbose`.
    """
    threads = threads or sweep.usual_threads(sum(len(r.units) * len(r.seeds) for r in requests))
    plan = Reproduction(list(requests), threads)
    without_data: set[type] = set()
    done: set[str] = set()
    for place, asked in enumerate(requests):
        request, shared = asked, TASKS[asked.task].options
        stand_in = (substitutes or {}).get(request.task)
        for _ in range(2):
            if shared in without_data and not _stands_in(request):
                if stand_in is None or request.task in done:
                    break
                request = plan.requests[place] = replace(stand_in, seeds=request.seeds)
                done.add(request.task)
            if _stands_in(request):
                plan.stood_in.add(request.task)
            try:
                _plan(plan, request, runs)
                break
            except (DataError, RunError) as error:
                if isinstance(error, DataError):
                    without_data.add(shared)
                if isinstance(error, DataError):
                    notify(_missing(request.task, error, stand_in is not None, verbose))
                    if stand_in is not None:
                        continue
                    plan.not_run[request.task] = f"{_lack(error)}.{_remedy(request.task)}"
                else:
                    plan.not_run[request.task] = str(error)
                    notify(f"{request.task} is not run: {error}")
    return plan


def _plan(plan: Reproduction, request: Request, runs: Path) -> None:
    if compare.is_finished(request, runs):
        plan.finished.append(request)
        return
    with alive(f"{request.task}: reading the data, timing some updates"):
        plan.experiments.append((request, compare.prepare(request, runs, plan.threads)))


def _stands_in(request: Request) -> bool:
    return "data.source=stand-in" in request.settings


def _lack(error: DataError) -> str:
    if isinstance(error, DamagedDataError):
        return "A file of the data is damaged and is not used"
    return "The data are not here and could not be had"


def _remedy(task: str) -> str:
    source = TASKS[task].source
    return f" To get them: `onegate data fetch {source}`" if source else ""


def _missing(task: str, error: DataError, stands_in: bool, verbose: bool) -> str:
    """One line, or at length; the page has the short form alone."""
    so = "a stand-in is taken" if stands_in else "it is not run"
    name = TASKS[task].source or task
    lack = _lack(error)
    said = f"{name}: {lack[0].lower()}{lack[1:]}; {so}.{_remedy(task)}".replace("`", "")
    return f"{said}\n{error}" if verbose else f"{said} (why: --verbose)"


def describe(plan: Reproduction, runs: Path) -> str:
    """What is finished, and how long each of the other runs will take."""
    lines = [
        f"{request.task}/{request.recipe} {' '.join((*request.units, *request.settings))}: finished"
        for request in plan.finished
    ]
    left: list[float] = []
    for recipe, seconds in plan.runs():
        done = RunFolder(runs / run_name(recipe)).is_done()
        left += [] if done else [seconds]
        size = recipe.model.hidden_size
        name = f"{recipe.task}/{recipe.name} {recipe.unit}, {size} neurons, seed {recipe.seed}"
        lines.append(f"{name}: {'finished' if done else 'about ' + duration(seconds)}")
    if not left:
        return "\n".join([*lines, "nothing is left to run"])
    at_a_time = max(1, min(len(left), cores() // plan.threads))
    whole = duration(sum(left) / at_a_time)
    others = [c.busy or 0.0 for _, contenders in plan.experiments for c in contenders]
    busy = max(others, default=0.0)
    so = f"; the machine is busy, others take {busy:.0%} of its cores" if busy > BUSY else ""
    lines.append(f"{len(left)} runs left, {at_a_time} at a time, about {whole} in all{so}")
    return "\n".join(lines)


def execute(
    plan: Reproduction, runs: Path, notify: Callable[[str], None], threads: int | None = None
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
            notify(f"{request.task} failed: {'; '.join(errors)}")
        else:
            compare.tabulate(request, contenders, runs)


def reproduce(
    requests: Sequence[Request],
    runs: Path,
    out: Path,
    notify: Callable[[str], None],
    threads: int | None = None,
    substitutes: Mapping[str, Request] | None = None,
    verbose: bool = True,
    results: Path | None = None,
) -> Path:
    """Runs what is not finished yet and writes the report; returns the page's path.

    notify: is given lines for the user to read. threads: of each run, see `sweep.make`. results: to
    show beside, see `report.write`.
    """
    plan = prepare(requests, runs, notify, substitutes, verbose, threads)
    notify(describe(plan, runs))
    execute(plan, runs, notify, threads)
    report.note_not_run(runs, plan.not_run)
    with alive("report") as notify_more:
        page = report.write(runs, out, results, need_runs=False, notify=notify_more)
    notify(plan.summary())
    return page
