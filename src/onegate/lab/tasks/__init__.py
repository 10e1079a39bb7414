"""Tasks: from a recipe's data to batches of tensors.

A batch is time-major. Which examples are in which batch depends on the recipe's seed and on the
epoch alone, so that every unit sees the same data in the same order, and a run can go on from the
middle of an epoch.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from onegate.lab import data
from onegate.lab.recipes.recipe import AddingData, ImdbData, MnistData, PtbData, Recipe

Split = Literal["train", "valid", "test"]
Objective = Literal["value", "class", "word"]

# Wide enough to fill both cores; the metric does not depend on it.
_EVALUATED_AT_ONCE = 250
# Mean and deviation of the pixels of MNIST's training images, on the scale 0 to 1.
_MNIST_MEAN, _MNIST_DEVIATION = 0.1307, 0.3081


@dataclass(frozen=True)
class Batch:
    """Sequences side by side.

    inputs: (T, B, d) numbers or (T, B) words. targets: (B,) numbers or classes, (T, B) words.
    lengths: (B,), or None where all sequences are T long.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    lengths: torch.Tensor | None = None

    @property
    def columns(self) -> int:
        """B."""
        return self.inputs.shape[1]


@dataclass(frozen=True)
class Shape:
    """What a model must fit: numbers a step (or words known), length, and what it predicts.

    steps: T where it is the same for all batches, else 0. text: all of the training text, where the
        task is one.
    """

    inputs: int
    outputs: int
    steps: int
    objective: Objective
    text: NDArray[np.int32] | None = field(default=None, compare=False, repr=False)


class Task(ABC):
    """A data set read as a recipe says."""

    shape: Shape
    metric: str
    higher_is_better: bool
    item: str = "sequences"
    carries_state: bool = False
    splits: frozenset[Split]

    @property
    def updates_per_epoch(self) -> int:
        """Training batches in one pass, the last one perhaps smaller."""
        return self.batches_in("train")

    @abstractmethod
    def batches_in(self, split: Split) -> int:
        """How many batches of the recipe's size a set fills."""

    @abstractmethod
    def training(self, epoch: int, start: int) -> Iterator[Batch]:
        """The batches of an epoch, from number `start` on."""

    @abstractmethod
    def evaluation(self, split: Split) -> Iterator[Batch]:
        """Every example of a set once, in a fixed order."""

    def items(self, batch: Batch) -> int:
        """How much work a batch is, in `item`s."""
        return batch.columns


class Examples(ABC):
    """Separate sequences with a target each."""

    targets: NDArray[Any]
    lengths: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.targets)

    @abstractmethod
    def batch(self, chosen: NDArray[np.int64]) -> Batch:
        """The chosen examples."""


class FixedExamples(Examples):
    """Sequences of one length, (N, T, d); the inputs are `scale * values + shift`."""

    def __init__(
        self, values: NDArray[Any], targets: NDArray[Any], scale: float = 1.0, shift: float = 0.0
    ) -> None:
        self.values, self.targets = values, targets
        self.lengths = np.full(len(values), values.shape[1])
        self.scale, self.shift = scale, shift

    def batch(self, chosen: NDArray[np.int64]) -> Batch:
        """The chosen examples."""
        inputs = torch.from_numpy(np.ascontiguousarray(self.values[chosen].transpose(1, 0, 2)))
        return Batch(inputs.float().mul_(self.scale).add_(self.shift), _targets(self, chosen))


class PaddedExamples(Examples):
    """Sequences of numbers (N, T, d) with lengths."""

    def __init__(self, sequences: data.Sequences) -> None:
        self.values, self.lengths = sequences.values, sequences.lengths
        self.targets = sequences.targets

    def batch(self, chosen: NDArray[np.int64]) -> Batch:
        """The chosen examples, cut to the longest of them."""
        lengths = self.lengths[chosen]
        values = self.values[chosen, : lengths.max()].transpose(1, 0, 2)
        return Batch(
            torch.from_numpy(np.ascontiguousarray(values)),
            _targets(self, chosen),
            torch.from_numpy(lengths),
        )


class ReviewExamples(Examples):
    """Reviews as words or as one number a step."""

    def __init__(
        self, sequences: data.Ragged, labels: NDArray[Any], asked: ImdbData, steps: int
    ) -> None:
        self.sequences, self.targets, self.asked, self.steps = sequences, labels, asked, steps
        self.lengths = np.minimum(sequences.lengths, asked.length)

    def batch(self, chosen: NDArray[np.int64]) -> Batch:
        """The chosen reviews, cut to the longest of them where no length is fixed."""
        longest = self.steps or int(self.lengths[chosen].max())
        values, lengths = self.sequences.take(chosen).padded(
            longest, keep="end" if self.asked.long == "last" else "start"
        )
        inputs = torch.from_numpy(np.ascontiguousarray(values.T))
        if self.asked.input == "words":
            inputs = inputs.long()
        else:
            inputs = inputs.float().mul_(self.asked.scale).unsqueeze(2)
        masked = self.asked.padding == "masked"
        return Batch(inputs, _targets(self, chosen), torch.from_numpy(lengths) if masked else None)


def _targets(examples: Examples, chosen: NDArray[np.int64]) -> torch.Tensor:
    targets = torch.from_numpy(examples.targets[chosen])
    return targets if targets.is_floating_point() else targets.long()


class ExampleTask(Task):
    """Sets of separate examples: the adding problem, MNIST, IMDB."""

    def __init__(self, recipe: Recipe, sets: Mapping[Split, Examples], shape: Shape) -> None:
        self.recipe, self.sets, self.shape = recipe, sets, shape
        self.splits = frozenset(split for split, examples in sets.items() if len(examples))
        self.metric = "mse" if shape.objective == "value" else "accuracy"
        self.higher_is_better = self.metric == "accuracy"

    def batches_in(self, split: Split) -> int:
        """How many batches of the recipe's size a set fills."""
        return -(-len(self.sets[split]) // self.recipe.batch_size)

    def training(self, epoch: int, start: int) -> Iterator[Batch]:
        """Batches of examples of similar length, shuffled."""
        examples = self.sets["train"]
        # Sorting by length has no use where all are of one length.
        bucket = 1 if self.shape.steps else 50
        order = data.batches(
            examples.lengths, self.recipe.batch_size, self.recipe.seed, epoch, bucket
        )
        for chosen in order[start:]:
            yield examples.batch(chosen)

    def evaluation(self, split: Split) -> Iterator[Batch]:
        """All examples by length."""
        examples = self.sets[split]
        order = np.argsort(examples.lengths, kind="stable")
        for start in range(0, len(order), _EVALUATED_AT_ONCE):
            yield examples.batch(order[start : start + _EVALUATED_AT_ONCE])


class TextTask(Task):
    """One long text, read in `batch_size` columns, the state carried from batch to batch."""

    metric = "perplexity"
    higher_is_better = False
    item = "words"
    carries_state = True
    splits = frozenset({"train", "valid", "test"})

    def __init__(self, recipe: Recipe, texts: Mapping[Split, NDArray[np.int32]], words: int):
        assert isinstance(recipe.data, PtbData)
        self.steps = recipe.data.steps
        self.columns = {s: data.columns(text, recipe.batch_size) for s, text in texts.items()}
        self.shape = Shape(words, words, 0, "word", texts["train"])

    def batches_in(self, split: Split) -> int:
        """Segments of a text."""
        return -(-(len(self.columns[split]) - 1) // self.steps)

    def training(self, epoch: int, start: int) -> Iterator[Batch]:  # noqa: ARG002 - one order
        """The segments in the order of the text."""
        return itertools.islice(self.evaluation("train"), start, None)

    def evaluation(self, split: Split) -> Iterator[Batch]:
        """The segments in the order of the text."""
        for pair in data.segments(self.columns[split], self.steps):
            inputs, targets = (torch.from_numpy(part.astype(np.int64)) for part in pair)
            yield Batch(inputs, targets)

    def items(self, batch: Batch) -> int:
        """Words to predict."""
        return batch.targets.numel()


def load(recipe: Recipe) -> Task:
    """The task of a recipe; `onegate.lab.data.DataError` if its data cannot be had."""
    asked = recipe.data
    if isinstance(asked, AddingData):
        return _adding(recipe, asked)
    if isinstance(asked, MnistData):
        return _mnist(recipe, asked)
    if isinstance(asked, ImdbData):
        return _imdb(recipe, asked)
    return _ptb(recipe, asked)


def _adding(recipe: Recipe, asked: AddingData) -> Task:
    made = data.adding(
        asked.seed,
        asked.train,
        asked.test,
        asked.valid,
        (asked.shortest, asked.longest),
        asked.variant,
    )
    sets: dict[Split, Examples] = {
        "train": PaddedExamples(made.train),
        "valid": PaddedExamples(made.valid),
        "test": PaddedExamples(made.test),
    }
    return ExampleTask(recipe, sets, Shape(2, 1, 0, "value"))


def _mnist(recipe: Recipe, asked: MnistData) -> Task:
    digits = data.mnist().split(asked.valid)
    scale, shift = 1 / 255, 0.0
    if asked.scaling == "standard":
        scale, shift = scale / _MNIST_DEVIATION, -_MNIST_MEAN / _MNIST_DEVIATION

    def examples(part: data.Digits) -> FixedExamples:
        if recipe.task == "mnist_rows":
            values = data.rows(part.images)
        elif recipe.task == "mnist_pixels":
            values = data.pixels(part.images)
        else:
            values = data.permuted(part.images, asked.permutation_seed)
        return FixedExamples(values, part.labels, scale, shift)

    sets: dict[Split, Examples] = {
        "train": examples(digits.train[: asked.train]),
        "valid": examples(digits.valid),
        "test": examples(digits.test[: asked.test]),
    }
    width, steps = (28, 28) if recipe.task == "mnist_rows" else (1, 784)
    return ExampleTask(recipe, sets, Shape(width, 10, steps, "class"))


def _imdb(recipe: Recipe, asked: ImdbData) -> Task:
    reviews = data.imdb().split(asked.valid)
    fixed = recipe.model.readout == "all" or asked.padding == "zeros"
    steps = asked.length if fixed or asked.input == "frequent_count" else 0

    def examples(part: data.Reviews, count: int) -> Examples:
        part = part.take(_evenly(part, count, asked))
        if asked.input == "frequent_count":
            counts = _frequent_counts(part, asked.length)
            return FixedExamples(counts[:, :, None], part.labels, asked.scale)
        return ReviewExamples(_sequences(part, asked), part.labels, asked, steps)

    sets: dict[Split, Examples] = {
        "train": examples(reviews.train, asked.train),
        "valid": examples(reviews.valid, asked.valid),
        "test": examples(reviews.test, asked.test),
    }
    words = asked.vocabulary + data.FIRST_WORD if asked.input == "words" else 1
    return ExampleTask(recipe, sets, Shape(words, 2, steps, "class"))


def _sequences(part: data.Reviews, asked: ImdbData) -> data.Ragged:
    if asked.input == "words":
        return data.keep_frequent(part.texts, asked.vocabulary)
    return {"word_rank": part.texts, "bag_index": part.words, "bag_count": part.counts}[asked.input]


def _evenly(part: data.Reviews, count: int, asked: ImdbData) -> NDArray[np.int64]:
    """`count` reviews with both classes alike, after the long ones were left out if so asked."""
    lengths = part.texts.lengths if asked.input in ("words", "word_rank") else part.words.lengths
    long = asked.long == "drop"
    kept = np.flatnonzero(lengths < asked.length) if long else np.arange(len(part))
    if count >= len(kept):
        return kept
    _, chosen = data.stratified_split(part.labels[kept], count, seed=1)
    return kept[chosen]


def _frequent_counts(part: data.Reviews, words: int) -> NDArray[np.float32]:
    """(N, words): how often each of the most frequent words occurs in each review."""
    counts = np.zeros((len(part), words), np.float32)
    review = np.repeat(np.arange(len(part)), part.words.lengths)
    frequent = part.words.values < words
    counts[review[frequent], part.words.values[frequent]] = part.counts.values[frequent]
    return counts


def _ptb(recipe: Recipe, asked: PtbData) -> Task:
    text = data.ptb()
    texts: dict[Split, NDArray[np.int32]] = {
        "train": text.train[: asked.train],
        "valid": text.valid,
        "test": text.test,
    }
    return TextTask(recipe, texts, len(text.vocabulary))
