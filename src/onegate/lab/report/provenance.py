"""What was run, where, and how to run it again; what was not run, and why."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from onegate.lab import recipes
from onegate.lab.pages.markup import Column, Markup, Table, code, count, joined, number, tag
from onegate.lab.report.groups import PAPER_UNITS, Group, display
from onegate.lab.report.inventory import Inventory
from onegate.lab.runs import Run
from onegate.lab.tasks import TASKS

# Of machine.json, in the order of the table; a run's seed is told elsewhere.
_FACTS = ("processor", "cores", "processes", "threads", "matmul_precision", "device", "system",
          "python", "torch", "numpy", "onegate", "commit", "engine")  # fmt: skip


class Machines:
    """Letters for the machines and versions that runs were made with."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self._letters: dict[str, str] = {}
        self._facts: list[Mapping[str, Any]] = []
        for run in runs:
            key = self._key(run)
            if key not in self._letters:
                self._letters[key] = _letters(len(self._facts))
                self._facts.append(run.machine)

    def letter(self, run: Run) -> str:
        """The letter of the machine of a run."""
        return self._letters[self._key(run)]

    def table(self) -> Table:
        """One column a machine."""
        letters = [_letters(position) for position in range(len(self._facts))]
        return Table(
            "Machines of the runs here",
            [Column(name, numeric=False) for name in ("", *letters)],
            [[name, *(_fact(name, facts.get(name)) for facts in self._facts)] for name in _FACTS],
        )

    @staticmethod
    def _key(run: Run) -> str:
        facts = {name: value for name, value in run.machine.items() if name != "seed"}
        return json.dumps(facts, sort_keys=True)


def _letters(position: int) -> str:
    """A to Z, then AA, AB and so on."""
    rest, last = divmod(position, 26)
    return (_letters(rest - 1) if rest else "") + chr(ord("A") + last)


def _fact(name: str, value: Any) -> str:
    text = "not recorded" if value is None else str(value)
    # As git shows it; a plus at the end tells of changes that were not committed.
    return re.sub("^([0-9a-f]{12})[0-9a-f]+", r"\1", text) if name == "commit" else text


def runs(groups: Sequence[Group], inventory: Inventory, machines: Machines) -> Table:
    """Every finished run of a task."""
    rows: list[list[str]] = []
    for group in groups:
        for run in group.runs:
            rows.append(
                [
                    code(inventory.name(run)),
                    group.recipe.name,
                    display(group.unit),
                    count(run.recipe.seed),
                    _number(run, "update"),
                    _number(run, "seconds"),
                    joined(machines.letter(run), _resumed(run)),
                ]
            )
    return Table(
        "Finished runs",
        [
            Column("folder", numeric=False),
            Column("recipe", numeric=False),
            Column("unit", numeric=False),
            Column("seed"),
            Column("update of the model"),
            Column("time"),
            Column("machine", numeric=False),
        ],
        rows,
    )


def _number(run: Run, name: str) -> str:
    value = run.result.get(name)
    if value is None:
        return "not recorded"
    return number(value, seconds(value)) if name == "seconds" else count(value)


def _resumed(run: Run) -> Markup:
    """What changed when the run was resumed elsewhere."""
    changes = [
        f"{name} {value}"
        for change in run.machine.get("resumed_with", ())
        for name, value in change.items()
    ]
    text = f"resumed with {', '.join(changes)}"
    return tag("span", text, class_="changes") if changes else Markup()


def in_short(groups: Sequence[Group], machines: Machines) -> str:
    """The runs of a task in a line.

    >>> in_short(groups, machines)
    '6 runs, seeds 0, 1, 2, 4 min 10 s in all, on machine A'
    """
    found = [run for group in groups for run in group.runs]
    seeds = sorted({run.recipe.seed for run in found})
    total = sum(float(run.result.get("seconds", 0.0)) for run in found)
    letters = sorted({machines.letter(run) for run in found})
    return (
        f"{len(found)} {'run' if len(found) == 1 else 'runs'}, "
        f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}, "
        f"{seconds(total)} in all, on {'machine' if len(letters) == 1 else 'machines'} "
        f"{', '.join(letters)}"
    )


def look_inside(groups: Sequence[Group], inventory: Inventory) -> str | None:
    """The command that opens runs of the paper's two units, or of others, step by step.

    None where no run has its weights, as in files that keep runs.
    """
    opened: list[Run] = []
    for group in sorted(groups, key=lambda g: g.unit not in PAPER_UNITS):
        alike = not opened or group.recipe.data == opened[0].recipe.data
        if len(opened) < 2 and alike and all(group.unit != run.recipe.unit for run in opened):
            opened += [run for run in group.runs if (run.folder / "checkpoints").is_dir()][:1]
    root = inventory.root.resolve().name
    names = [f"{root}/{inventory.name(run)}" for run in opened]
    return shlex.join(["onegate", "inspect", *names]) if opened else None


def command(group: Group) -> str:
    """The command that gives a group's first run again; the others have another `seed`."""
    words = ["onegate", "train", group.task, "--unit", group.unit, "--recipe", group.recipe.name]
    settings = {path: here for path, _, here in group.differences}
    if group.away_from_size:
        settings["model.hidden_size"] = group.hidden_size
    settings["seed"] = group.seeds[0]
    for path, value in settings.items():
        words += ["--set", f"{path}={value}"]
    return shlex.join(words)


def not_run(task: str, groups: Sequence[Group], inventory: Inventory) -> list[str]:
    """What of a task has no finished run, one line each, with the reason and the remedy."""
    said = [inventory.not_run[task]] if task in inventory.not_run else []
    if said and not groups:
        return said
    known = TASKS[task].recipes
    for name in known if "paper" in known else ():  # only the paper's units must be there
        if name == "paper" and TASKS[task].place is None:
            continue
        done = {g.unit for g in groups if g.recipe.name == name}
        missing = [unit for unit in PAPER_UNITS if unit not in done]
        if missing:
            said.append(f"{_names(missing)}, recipe {name}: {_why(task, name, missing, inventory)}")
    return said + _missing_sizes(task, groups)


def _names(units: Sequence[str]) -> str:
    return " and ".join(map(display, units))


def _why(task: str, name: str, missing: Sequence[str], inventory: Inventory) -> str:
    if name == "paper" and "flow" in TASKS[task].recipes:
        return recipes.summary(task, name)
    started = [run.name for run in inventory.unfinished if run.subject == (task, name)]
    hint = f" (unfinished: {', '.join(f'`{folder}`' for folder in started)})" if started else ""
    how = f"onegate compare {task} --recipe {name} --units {' '.join(missing)}"
    return f"no finished run{hint}. To run it: `{how}`"


def _missing_sizes(task: str, groups: Sequence[Group]) -> list[str]:
    sizes = TASKS[task].sizes
    place = TASKS[task].published[0].place if sizes else ""
    said = []
    for unit in PAPER_UNITS:
        done = {g.hidden_size for g in groups if g.unit == unit and g.recipe.name == "paper"}
        missing = [str(size) for size in sizes if size not in done]
        if done and missing:
            said.append(
                f"{display(unit)} of {place} with {', '.join(missing)} neurons: no finished run. "
                "All sizes are run by `onegate reproduce --full`"
            )
    return said


def seconds(value: float) -> str:
    """A duration for reading.

    >>> seconds(75.0)
    '1 min 15 s'
    """
    if value < 100:
        return f"{value:.3g} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
