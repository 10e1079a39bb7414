"""A metric over the course of training, over the seeds of a group, on the paper's x axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onegate.lab import recipes
from onegate.lab.report.groups import Group
from onegate.lab.tasks import TASKS, Axis

Numbers = NDArray[np.float64]
# Of the recipes `flow`; it is no time in seconds.
LENGTH_OF_FLOW = "length of the gradient flow (updates x step)"


@dataclass(frozen=True)
class Curve:
    """Mean, lowest and highest value over seeds, all (K,), at the points that all seeds share."""

    group: Group
    quantity: str
    x: Numbers
    mean: Numbers
    low: Numbers
    high: Numbers


def axis(group: Group) -> Axis:
    """The axis that the paper's figure of this task has.

    The flow is shown at the paper's epochs: the recipe's whole flow stands for the whole of
    the paper's training, of which the recipe `paper` has the number of epochs.
    """
    task = TASKS[group.task]
    if group.recipe.clock == "flow_time" and not {"flow", "paper"} <= task.recipes.keys():
        return Axis("flow_time", LENGTH_OF_FLOW)
    if group.recipe.clock == "flow_time":
        flow, paper = (recipes.recipe(group.task, name, "mgu") for name in ("flow", "paper"))
        time_of_100_epochs = flow.length / paper.length * 100
        return Axis(
            "flow_time",
            "epoch / 100 of the paper",
            time_of_100_epochs,
            (LENGTH_OF_FLOW, time_of_100_epochs),
        )
    if group.recipe.name == "paper" and task.paper_axis:
        return task.paper_axis
    return task.axis


def quantity(groups: Sequence[Group]) -> str | None:
    """What curves of these groups can be compared in: the test metric if all have it."""
    for split in ("test", "valid"):
        name = f"{split}_{groups[0].metric.name}"
        if all(any(name in line for line in run.metrics) for g in groups for run in g.runs):
            return name
    return None


def curve(group: Group, axis: Axis, quantity: str) -> Curve:
    """The group's curve."""
    by_run = [dict(zip(*run.curve(axis.column, quantity), strict=True)) for run in group.runs]
    shared = sorted(set.intersection(*(set(points) for points in by_run)))
    values = np.array([[points[x] for x in shared] for points in by_run], dtype=np.float64)
    return Curve(
        group,
        quantity,
        np.array(shared, dtype=np.float64) / axis.unit,
        values.mean(axis=0),
        values.min(axis=0),
        values.max(axis=0),
    )
