"""Examples of a task's test set: chosen, given to a model, and as a reader sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onegate.lab import data
from onegate.lab.data import randomness
from onegate.lab.inside.runs import InspectError
from onegate.lab.pages.markup import readable
from onegate.lab.recipes import Recipe
from onegate.lab.recipes.recipe import ImdbData, MnistData
from onegate.lab.tasks import Batch, ExampleTask, Task, TextTask
from onegate.lab.train.models import TaskModel
from onegate.nn.cells import States

IMAGE_SIDE = 28


@dataclass(frozen=True, eq=False)
class View:
    """An example as a reader sees it.

    kind: `image` has the pixels (28, 28), 0 to 1, and for each step the numbers of those that it
        reads; `numbers` has a number a step, and which of them are marked; `words` a word a step.
    """

    number: int
    steps: int
    kind: Literal["image", "numbers", "words"]
    answer: str
    image: NDArray[np.float32] | None = None
    pixels: NDArray[np.int64] | None = None
    numbers: NDArray[np.float32] | None = None
    marked: NDArray[np.bool_] | None = None
    words: tuple[str, ...] = ()


def count(task: Task) -> int:
    """How many examples the test set has; of a text these are segments of its columns."""
    if isinstance(task, TextTask):
        return _whole_segments(task) * _columns(task)
    assert isinstance(task, ExampleTask)
    return len(task.sets["test"])


def check(task: Task, numbers: Sequence[int]) -> None:
    """Refuses numbers of examples that the test set has not."""
    total = count(task)
    for number in numbers:
        if not 0 <= number < total:
            raise InspectError(
                f"there is no example {number}: the test set has {total:,}, numbered from 0 to "
                f"{total - 1}"
            )


def of_digits(recipe: Recipe, task: Task, digits: Sequence[int]) -> list[int]:
    """For each digit the number of its first example; for tasks whose inputs are images."""
    if not isinstance(recipe.data, MnistData):
        raise InspectError(
            f"--digits is for tasks that read images of digits, and {recipe.task} has none; "
            "choose by number with --examples"
        )
    assert isinstance(task, ExampleTask)
    labels = task.sets["test"].targets
    found = []
    for digit in digits:
        places = np.flatnonzero(labels == digit)
        if not len(places):
            known = ", ".join(map(str, np.unique(labels)))
            raise InspectError(f"the test set has no digit {digit}; it has {known}")
        found.append(int(places[0]))
    return found


def batch(task: Task, model: TaskModel, numbers: Sequence[int]) -> tuple[Batch, States | None]:
    """The chosen examples side by side, and the states to start from (of a text: those carried)."""
    check(task, numbers)
    if isinstance(task, TextTask):
        return _text_batch(task, model, numbers)
    assert isinstance(task, ExampleTask)
    return task.sets["test"].batch(np.array(numbers, dtype=np.int64)), None


def loss_at_the_end(model: TaskModel, chosen: Batch, state: States | None) -> Tensor:
    """The loss summed over sequences; of a text that of the last word alone."""
    if chosen.targets.dim() == 1:
        return model.score(chosen, state)[0].loss
    outputs, _ = model(chosen.inputs, state)
    head = model.get_submodule("head")
    return torch.nn.functional.cross_entropy(head(outputs[-1]), chosen.targets[-1], reduction="sum")


@torch.no_grad()
def answers(model: TaskModel, chosen: Batch, state: States | None) -> list[str]:
    """What a model makes of each of the examples, in words."""
    if chosen.targets.dim() == 2:
        outputs, _ = model(chosen.inputs, state)
        logits = model.get_submodule("head")(outputs)
        losses = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), chosen.targets.flatten(), reduction="none"
        ).view_as(chosen.targets)
        return [f"perplexity {value:,.0f} here" for value in losses.mean(0).exp().tolist()]
    outputs = model(chosen.inputs, chosen.lengths)
    if outputs.shape[1] == 1:
        return [f"answers {value:.3f}" for value in outputs[:, 0].tolist()]
    classes = outputs.argmax(1).tolist()
    if outputs.shape[1] == 2:
        return [f"judges it {('negative', 'positive')[each]}" for each in classes]
    return [f"reads it as {each}" for each in classes]


def _whole_segments(task: TextTask) -> int:
    return (len(task.columns["test"]) - 1) // task.steps


def _columns(task: TextTask) -> int:
    return int(task.columns["test"].shape[1])


@torch.no_grad()
def _text_batch(
    task: TextTask, model: TaskModel, numbers: Sequence[int]
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


def views(recipe: Recipe, task: Task, numbers: Sequence[int], chosen: Batch) -> list[View]:
    """The chosen examples as a reader sees them."""
    show = _Show(recipe, task, chosen)
    return [show(place, number) for place, number in enumerate(numbers)]


class _Show:
    def __init__(self, recipe: Recipe, task: Task, chosen: Batch) -> None:
        self.recipe, self.task, self.batch = recipe, task, chosen
        self.words: tuple[str, ...] = ()
        if recipe.task == "ptb":
            self.words = data.ptb().vocabulary
        elif isinstance(recipe.data, ImdbData) and recipe.data.input == "words":
            known = data.imdb().vocabulary[: recipe.data.vocabulary]
            self.words = ("\N{MIDDLE DOT}", "<unknown>", *known)

    def __call__(self, place: int, number: int) -> View:
        lengths = self.batch.lengths
        steps = len(self.batch.inputs) if lengths is None else int(lengths[place])
        read = self.batch.inputs[:steps, place]
        if isinstance(self.recipe.data, MnistData):
            return self._image(number, read)
        if self.words:
            words = tuple(readable(self.words[word]) for word in read.tolist())
            answer = ""
            if self.recipe.task != "ptb":
                answer = "positive" if self.batch.targets[place] else "negative"
            return View(number, steps, "words", answer, words=words)
        values = read[:, 0].numpy()
        if self.recipe.task == "adding":
            target = float(self.batch.targets[place])
            marked = (read[:, 1] > 0).numpy()
            return View(
                number, steps, "numbers", f"sum {target:.3f}", numbers=values, marked=marked
            )
        answer = "positive" if self.batch.targets[place] else "negative"
        return View(number, steps, "numbers", answer, numbers=values)

    def _image(self, number: int, read: Tensor) -> View:
        asked = self.recipe.data
        assert isinstance(asked, MnistData)
        size = IMAGE_SIDE * IMAGE_SIDE
        permuted = self.recipe.task == "mnist_permuted"
        order = randomness.order(size, asked.permutation_seed) if permuted else np.arange(size)
        pixels = np.empty(size, np.float32)
        pixels[order] = read.reshape(-1).numpy()
        low, high = pixels.min(), pixels.max()
        image = (pixels - low) / max(high - low, 1e-6)
        assert isinstance(self.task, ExampleTask)
        digit = int(self.task.sets["test"].targets[number])
        return View(
            number,
            len(read),
            "image",
            f"digit {digit}",
            image=image.reshape(IMAGE_SIDE, IMAGE_SIDE),
            pixels=order.reshape(len(read), -1),
        )
