"""Examples of a task's test set: chosen, given to a model, and as a reader sees them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from onegate.lab import tasks
from onegate.lab.inside.opened import InspectError
from onegate.lab.pages.markup import readable
from onegate.lab.tasks import Batch, Loaded, LoadedExamples, LoadedText, View
from onegate.lab.train.models import TaskModel
from onegate.nn.cells import States


def count(task: Loaded) -> int:
    """How many examples the test set has; of a text these are segments of its columns."""
    if isinstance(task, LoadedText):
        return _whole_segments(task) * _columns(task)
    assert isinstance(task, LoadedExamples)
    return len(task.sets["test"])


def check(task: Loaded, numbers: Sequence[int]) -> None:
    """Refuses numbers of examples that the test set has not."""
    total = count(task)
    for number in numbers:
        if not 0 <= number < total:
            raise InspectError(
                f"there is no example {number}: the test set has {total:,}, numbered from 0 to "
                f"{total - 1}"
            )


def varied(task: Loaded, most: int) -> list[int]:
    """The first few examples of the test set; of a classification, of every class in turn."""
    total = min(most, count(task))
    kind = tasks.get(task.recipe.task).metric.objective
    if not isinstance(task, LoadedExamples) or kind != "class":
        return list(range(total))
    targets = np.asarray(task.sets["test"].targets)
    places = [np.flatnonzero(targets == each)[:total].tolist() for each in np.unique(targets)]
    turns = [number for turn in itertools.zip_longest(*places) for number in turn]
    return [number for number in turns if number is not None][:total]


def of_digits(task: Loaded, digits: Sequence[int]) -> list[int]:
    """For each digit the number of its first example; for tasks whose inputs are images."""
    if not tasks.get(task.recipe.task).digits:
        raise InspectError(
            f"--digits is for tasks that read images of digits, and {task.recipe.task} has none; "
            "choose by number with --examples"
        )
    assert isinstance(task, LoadedExamples)
    labels = task.sets["test"].targets
    found = []
    for digit in digits:
        places = np.flatnonzero(labels == digit)
        if not len(places):
            known = ", ".join(map(str, np.unique(labels)))
            raise InspectError(f"the test set has no digit {digit}; it has {known}")
        found.append(int(places[0]))
    return found


def batch(task: Loaded, model: TaskModel, numbers: Sequence[int]) -> tuple[Batch, States | None]:
    """The chosen examples side by side, and the states to start from (of a text: those carried)."""
    check(task, numbers)
    if isinstance(task, LoadedText):
        return _text_batch(task, model, numbers)
    assert isinstance(task, LoadedExamples)
    return task.sets["test"].batch(np.array(numbers, dtype=np.int64)), None


def loss_at_the_end(model: TaskModel, chosen: Batch, state: States | None) -> Tensor:
    """The loss summed over sequences; of a text that of the last word alone."""
    if chosen.targets.dim() == 1:
        return model.score(chosen, state)[0].loss
    outputs, _ = model(chosen.inputs, state)
    head = model.get_submodule("head")
    return torch.nn.functional.cross_entropy(head(outputs[-1]), chosen.targets[-1], reduction="sum")


@torch.no_grad()
def answers(task: Loaded, model: TaskModel, chosen: Batch, state: States | None) -> list[str]:
    """What a model makes of each of the examples, in words."""
    if chosen.targets.dim() == 2:
        outputs, _ = model(chosen.inputs, state)
        logits = model.get_submodule("head")(outputs)
        losses = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), chosen.targets.flatten(), reduction="none"
        ).view_as(chosen.targets)
        return [f"perplexity {value:,.0f} here" for value in losses.mean(0).exp().tolist()]
    outputs = model(chosen.inputs, chosen.lengths)
    kind = tasks.get(task.recipe.task)
    found = outputs[:, 0] if kind.metric.objective == "value" else outputs.argmax(1)
    return [f"{kind.says} {kind.told(value)}" for value in found.tolist()]


def _whole_segments(task: LoadedText) -> int:
    return (len(task.columns["test"]) - 1) // task.steps


def _columns(task: LoadedText) -> int:
    return int(task.columns["test"].shape[1])


@torch.no_grad()
def _text_batch(
    task: LoadedText, model: TaskModel, numbers: Sequence[int]
) -> tuple[Batch, States | None]:
    """Example n is column n % B of segment n // B; all segments before it are read first."""
    width = _columns(task)
    inputs, targets, starts = {}, {}, {}
    state: States | None = None
    for segment, whole in enumerate(task.evaluation("test")):
        if segment > max(numbers) // width:
            break
        for number in numbers:
            if number // width == segment:
                column = number % width
                inputs[number] = whole.inputs[:, column]
                targets[number] = whole.targets[:, column]
                starts[number] = _column(model, state, column)
        _, state = model.score(whole, state)
    together = Batch(
        torch.stack([inputs[n] for n in numbers], 1), torch.stack([targets[n] for n in numbers], 1)
    )
    joined = [torch.stack(each, 1) for each in zip(*(starts[n] for n in numbers), strict=True)]
    return together, joined[0] if len(joined) == 1 else tuple(joined)


def _column(model: TaskModel, state: States | None, column: int) -> list[Tensor]:
    """One column of each state, (layers, size); zeros before the first segment."""
    if state is None:
        layer = model.recurrent
        like = next(layer.parameters())
        sizes = layer.unit.state_sizes(layer.hidden_size).values()
        return [like.new_zeros(layer.num_layers, size) for size in sizes]
    return [each[:, column] for each in ((state,) if isinstance(state, Tensor) else state)]


def views(task: Loaded, numbers: Sequence[int], chosen: Batch) -> list[View]:
    """The chosen examples as a reader sees them."""
    kind, options = tasks.get(task.recipe.task), task.recipe.data
    found = []
    for place, number in enumerate(numbers):
        steps = len(chosen.inputs) if chosen.lengths is None else int(chosen.lengths[place])
        target = chosen.targets[..., place]
        view = kind.view(options, number, chosen.inputs[:steps, place], target)
        words = tuple(readable(word) for word in view.words)
        found.append(replace(view, words=words, answer=readable(view.answer)))
    return found
