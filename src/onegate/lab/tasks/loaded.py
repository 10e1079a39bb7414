"""A task's data as a recipe asks for it: sets of batches of tensors.

A batch is time-major. Which examples are in which batch depends on the recipe's seed and on the
epoch alone, so that every unit sees the same data in the same order, and a run can go on from the
middle of an epoch.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from onegate.lab import data
from onegate.lab.recipes.recipe import Recipe, RecipeError
from onegate.lab.tasks.metrics import Metric, Objective

Split = Literal["train", "valid", "test"]

# Wide enough to fill both cores; the metric does not depend on it.
_EVALUATED_AT_ONCE = 250


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


class Loaded(ABC):
    """The data of a task, read as a recipe says."""

    recipe: Recipe
    metric: Metric
    shape: Shape
    item: str = "sequences"
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


class Examples:
    """Separate sequences with a target each.

    values: (N, T, d) numbers, fed in as `scale * values + shift`, or (N, T) words. lengths: (N,),
        None where all are T long. steps: the length of every batch; 0 cuts each to its longest.
    """

    targets: NDArray[Any]
    lengths: NDArray[np.int64]

    def __init__(
        self,
        values: NDArray[Any],
        targets: NDArray[Any],
        lengths: NDArray[np.int64] | None = None,
        scale: float = 1.0,
        shift: float = 0.0,
        steps: int = 0,
    ) -> None:
        self.values, self.targets, self.steps = values, targets, steps
        self.padded = lengths is not None
        self.lengths = np.full(len(values), values.shape[1]) if lengths is None else lengths
        self.scale, self.shift = scale, shift

    def __len__(self) -> int:
        return len(self.targets)

    def batch(self, chosen: NDArray[np.int64]) -> Batch:
        lengths = self.lengths[chosen]
        longest = self.steps or int(lengths.max())
        inputs = torch.from_numpy(
            np.ascontiguousarray(self.values[chosen, :longest].swapaxes(0, 1))
        )
        if inputs.dim() == 2:
            inputs = inputs.long()
        else:
            inputs = inputs.float()
            if (self.scale, self.shift) != (1.0, 0.0):
                inputs = inputs.mul_(self.scale).add_(self.shift)
        return Batch(
            inputs, self.targets_of(chosen), torch.from_numpy(lengths) if self.padded else None
        )

    def targets_of(self, chosen: NDArray[np.int64]) -> torch.Tensor:
        """(B,) numbers or classes."""
        targets = torch.from_numpy(self.targets[chosen])
        return targets if targets.is_floating_point() else targets.long()


class LoadedExamples(Loaded):
    """Sets of separate examples."""

    def __init__(
        self, recipe: Recipe, metric: Metric, sets: Mapping[Split, Examples], shape: Shape
    ) -> None:
        self.recipe, self.metric, self.sets, self.shape = recipe, metric, sets, shape
        self.splits = frozenset(split for split, examples in sets.items() if len(examples))

    def batches_in(self, split: Split) -> int:
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


class LoadedText(Loaded):
    """One long text, read in `batch_size` columns, the state carried from batch to batch."""

    item = "words"

    def __init__(
        self,
        recipe: Recipe,
        metric: Metric,
        texts: Mapping[Split, NDArray[np.int32]],
        words: int,
        steps: int,
    ) -> None:
        self.recipe, self.metric, self.steps = recipe, metric, steps
        self.splits = frozenset(texts)
        self.columns = {s: data.columns(text, recipe.batch_size) for s, text in texts.items()}
        self.shape = Shape(words, words, 0, metric.objective, texts["train"])

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


def given_texts(sets: Mapping[Split, Any], words: int) -> dict[Split, NDArray[np.int32]]:
    """The texts that a task gives, each (length,) words, checked."""
    texts: dict[Split, NDArray[np.int32]] = {}
    for split, given in sets.items():
        text = np.asarray(given)
        if text.ndim != 1 or text.dtype.kind not in "iu":
            raise RecipeError(
                f"the text of {split} is {text.dtype} of shape {text.shape}: expected word numbers "
                "one after the other, (length,) integers"
            )
        _require_words(text, words, split)
        texts[split] = text.astype(np.int32)
    return texts


def given_examples(
    sets: Mapping[Split, Sequence[Any]], words: int, objective: Objective, same_length: bool
) -> tuple[dict[Split, Examples], int]:
    """The examples that a task gives, checked, as arrays; and T if it is the same for all batches.

    Each set is (inputs, targets) or (inputs, targets, lengths). words: how many are known, 0 where
    inputs are numbers. same_length: whether all batches are to be as long as the longest sequence.
    """
    read: dict[Split, tuple[NDArray[Any], NDArray[Any], NDArray[np.int64] | None]] = {}
    for split, (inputs, targets, *lengths) in sets.items():
        values, counted = _values(inputs, lengths[0] if lengths else None, split)
        if words:
            _require_words(values, words, split)
        elif values.ndim == 2:
            values = values[:, :, None]
        if not words and not np.isfinite(values).all():
            raise RecipeError(f"inputs of {split} hold numbers that are not finite")
        read[split] = values, _targets(targets, len(values), objective, split), counted
    longest = {values.shape[1] for values, _, _ in read.values()}
    alike = len(longest) == 1 and all(lengths is None for _, _, lengths in read.values())
    steps = max(longest) if alike or same_length else 0
    return {
        split: Examples(*_as_long_as(steps, *one), steps=steps) for split, one in read.items()
    }, steps


def _values(
    inputs: Any, lengths: Any, split: Split
) -> tuple[NDArray[Any], NDArray[np.int64] | None]:
    """(N, T) or (N, T, d), zero beyond the ends, and (N,) lengths if they are not all T."""
    if not isinstance(inputs, np.ndarray):
        sequences = [np.asarray(one) for one in inputs]
        own = np.array([len(one) for one in sequences], np.int64)
        if lengths is None and len(set(own.tolist())) > 1:
            lengths = own
        inputs = np.zeros((len(own), own.max(initial=0), *sequences[0].shape[1:]), np.result_type(
            *sequences)) if sequences else np.zeros((0, 1))  # fmt: skip
        for row, one in zip(inputs, sequences, strict=True):
            row[: len(one)] = one
    if inputs.ndim not in (2, 3) or inputs.dtype.kind not in "biuf" or not inputs.shape[1]:
        raise RecipeError(
            f"inputs of {split} are {inputs.dtype} of shape {inputs.shape}: expected (N, T, d) "
            "numbers, (N, T) numbers or words, or a list of such sequences, each of a step or more"
        )
    if inputs.dtype.kind in "bf":
        inputs = inputs.astype(np.float32)
    if lengths is None:
        return inputs, None
    lengths = np.asarray(lengths, np.int64)
    if (
        lengths.shape != inputs.shape[:1]
        or not ((lengths >= 1) & (lengths <= inputs.shape[1])).all()
    ):
        raise RecipeError(
            f"lengths of {split}: expected a number from 1 to {inputs.shape[1]} for each of "
            f"{len(inputs)} sequences"
        )
    return inputs, lengths


def _targets(targets: Any, count: int, objective: Objective, split: Split) -> NDArray[Any]:
    found = np.asarray(targets)
    classes = objective == "class"
    wanted = "classes, whole numbers from 0 on" if classes else "finite numbers"
    right = found.shape == (count,) and found.dtype.kind in ("biu" if classes else "biuf")
    if not right or not (found >= 0 if classes else np.isfinite(found)).all():
        raise RecipeError(
            f"targets of {split} are {found.dtype} of shape {found.shape}: expected {wanted}, one "
            f"for each of {count} sequences"
        )
    return found.astype(np.int64 if classes else np.float32)


def _require_words(values: NDArray[Any], words: int, split: Split) -> None:
    if values.ndim > 2 or values.dtype.kind not in "iu" or (values.size and not (
        values.min() >= 0 and values.max() < words
    )):  # fmt: skip
        raise RecipeError(
            f"inputs of {split} are {values.dtype} of shape {values.shape}: expected word numbers "
            f"from 0 to {words - 1}, (N, T) integers"
        )


def _as_long_as(
    steps: int, values: NDArray[Any], targets: NDArray[Any], lengths: NDArray[np.int64] | None
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64] | None]:
    missing = steps - values.shape[1]
    if missing <= 0:
        return values, targets, lengths
    if lengths is None:
        lengths = np.full(len(values), values.shape[1], np.int64)
    room = ((0, 0), (0, missing), *[(0, 0)] * (values.ndim - 2))
    return np.pad(values, room), targets, lengths
