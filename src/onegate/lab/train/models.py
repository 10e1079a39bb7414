"""Models of the tasks: embedding if there are words, recurrent layers, readout, dense head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onegate import units
from onegate.lab import tasks
from onegate.lab.recipes.recipe import INSIDE, Model, Recipe
from onegate.lab.tasks import Batch, Shape
from onegate.lab.train import text_statistics
from onegate.lab.train.cross_entropy import summed_cross_entropy
from onegate.nn.cells import States
from onegate.nn.layers import Recurrent
from onegate.tracing import trace

# Deviation of the word vectors that a text gives.
_SPREAD = 0.16


@dataclass(frozen=True)
class Score:
    """What a model makes of a batch, summed over its predictions so that batches add up.

    loss: squared errors, or natural logarithms of probabilities, differentiable. correct: how
        many predictions hit, for classes only.
    """

    loss: Tensor
    predictions: int
    correct: int = 0


class TaskModel(nn.Module):
    """A model that scores batches of its task."""

    recurrent: Recurrent

    def score(self, batch: Batch, state: States | None) -> tuple[Score, States | None]:
        """Its score, and the state to go on with where the task carries one."""
        raise NotImplementedError


class SequenceModel(TaskModel):
    """One prediction for a whole sequence.

    readout: the head sees the last states of both directions (B, D n), all states side by side
        (B, T D n), zero beyond a sequence's length, or the mean state (B, D n).
    """

    def __init__(self, unit: str, model: Model, shape: Shape) -> None:
        super().__init__()
        self.readout, self.objective = model.readout, shape.objective
        self.embedding = _embedding(shape.inputs, model) if model.embedding else None
        self.recurrent = _recurrent(unit, model, model.embedding or shape.inputs)
        self.dropout = nn.Dropout(model.dropout)
        width = _output_size(self.recurrent)
        self.head = _head(
            width * (shape.steps if model.readout == "all" else 1), shape.outputs, model
        )

    def forward(self, inputs: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(T, B, d) numbers or (T, B) words -> (B, outputs)."""
        if self.embedding is None:
            inputs = inputs.to(self.head.weight.dtype)
        else:
            inputs = self.dropout(self.embedding(inputs))
        states, last = self.recurrent(inputs, lengths=lengths)
        return _tensor(self.head(self.dropout(self._read(states, last, lengths))))

    def _read(self, states: Tensor, last: States, lengths: Tensor | None) -> Tensor:
        if self.readout == "all":
            return states.transpose(0, 1).flatten(1)
        if self.readout == "mean":
            steps = len(states) if lengths is None else lengths.to(states.dtype).unsqueeze(1)
            return states.sum(0) / steps
        output = last if isinstance(last, Tensor) else last[0]
        directions = 2 if self.recurrent.bidirectional else 1
        return torch.cat(tuple(output[-directions:]), dim=1)

    def score(self, batch: Batch, _: States | None) -> tuple[Score, None]:
        """Squared error for values, cross entropy for classes."""
        outputs = self(batch.inputs, batch.lengths)
        if self.objective == "value":
            targets = batch.targets.to(outputs.dtype)
            loss = F.mse_loss(outputs.squeeze(1), targets, reduction="sum")
            return Score(loss, len(targets)), None
        loss = F.cross_entropy(outputs, batch.targets, reduction="sum")
        correct = int((outputs.argmax(1) == batch.targets).sum())
        return Score(loss, len(batch.targets), correct), None


class LanguageModel(TaskModel):
    """The next word at every step.

    A tied head scores words by their vectors; if these are not as wide as the states, a matrix
    stands between. Tied vectors are multiplied by the fourth root of their width where they are
    read, and divided by it where they score, so that steps of one size suit both.
    """

    def __init__(self, unit: str, model: Model, shape: Shape) -> None:
        super().__init__()
        self.embedding = _embedding(shape.inputs, model)
        self.recurrent = _recurrent(unit, model, model.embedding)
        self.dropout = nn.Dropout(model.dropout)
        states = _output_size(self.recurrent)
        width = model.embedding if model.tie_embedding else states
        self.between = nn.Identity() if width == states else nn.Linear(states, width, bias=False)
        if isinstance(self.between, nn.Linear):
            _fill(self.between.weight, model, nn.init.xavier_uniform_)
        self.head = _head(width, shape.outputs, model)
        self.gain = width**0.25 if model.tie_embedding else 1.0
        if model.tie_embedding:
            self.head.weight = self.embedding.weight
        if model.start_from_text:
            self._start_from(shape)

    @torch.no_grad()
    def _start_from(self, shape: Shape) -> None:
        assert shape.text is not None
        vectors = text_statistics.word_vectors(
            shape.text, shape.inputs, self.embedding.embedding_dim
        )
        self.embedding.weight.copy_(_SPREAD * vectors)
        self.head.bias.copy_(text_statistics.log_frequencies(shape.text, shape.outputs))

    def forward(self, words: Tensor, state: States | None = None) -> tuple[Tensor, States]:
        """(T, B) words -> what the head sees (T, B, n), and the states after the last step."""
        states, last = self.recurrent(self.dropout(self.gain * self.embedding(words)), state)
        return self.between(self.dropout(states)) / self.gain, last

    def score(self, batch: Batch, state: States | None) -> tuple[Score, States]:
        """Cross entropy of all T B next words; the state is cut off from its past."""
        outputs, last = self(batch.inputs, state)
        loss = summed_cross_entropy(
            outputs.flatten(0, 1), self.head.weight, self.head.bias, batch.targets.flatten()
        )
        return Score(loss, batch.targets.numel()), _detached(last)


def build(recipe: Recipe, shape: Shape) -> TaskModel:
    """The model of a recipe, with initial weights drawn from torch's generator."""
    kind = LanguageModel if shape.objective == "word" else SequenceModel
    model = kind(recipe.unit, recipe.model, shape)
    return model.to(getattr(torch, recipe.precision))


def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copies weights, as `onegate.lab.runs.Run.weights` gives them, into a model.

    A matrix that two parts of the model share is there once.
    """
    parameters = dict(model.named_parameters())
    if parameters.keys() != weights.keys():
        different = sorted(parameters.keys() ^ weights.keys())
        raise ValueError(f"these weights belong to another model; they differ in {different}")
    for name, parameter in parameters.items():
        if weights[name].shape != parameter.shape:
            raise ValueError(
                f"these weights belong to another model: {name} is {tuple(weights[name].shape)}, "
                f"expected {tuple(parameter.shape)}"
            )
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])


def _recurrent(unit: str, model: Model, width: int) -> Recurrent:
    return Recurrent(
        unit,
        width,
        model.hidden_size,
        model.num_layers,
        dropout=model.dropout if model.num_layers > 1 else 0.0,
        bidirectional=model.bidirectional,
        engine=model.engine,
        learn_initial_state=model.learn_initial_state,
        init=None if model.init == "layer" else (model.init, model.init_value),
        **{name: getattr(model, name) for name in INSIDE},
        **model.unit_options,
    )


def _output_size(layer: Recurrent) -> int:
    """Width of a layer's outputs: the first state's size, for each direction."""
    size = layer.unit.state_sizes(layer.hidden_size)[layer.unit.states[0]]
    return size * (2 if layer.bidirectional else 1)


def _embedding(words: int, model: Model) -> nn.Embedding:
    embedding = nn.Embedding(words, model.embedding)
    _fill(embedding.weight, model, lambda w: nn.init.normal_(w, std=0.1))
    return embedding


def _head(inputs: int, outputs: int, model: Model) -> nn.Linear:
    head = nn.Linear(inputs, outputs)
    _fill(head.weight, model, nn.init.xavier_uniform_)
    nn.init.zeros_(head.bias)
    return head


def _fill(weight: Tensor, model: Model, otherwise: Any) -> None:
    """`uniform` is meant for all matrices of a model, as Zaremba et al. 2014 draw them."""
    if model.init == "uniform":
        nn.init.uniform_(weight, -model.init_value, model.init_value)
    else:
        otherwise(weight)


def _detached(state: States) -> States:
    return state.detach() if isinstance(state, Tensor) else tuple(s.detach() for s in state)


def _tensor(value: Any) -> Tensor:
    assert isinstance(value, Tensor)
    return value


@dataclass(frozen=True)
class Parameters:
    """How many numbers are learned.

    hidden: by the recurrent layers, exactly. paper: the same in the paper's way of counting.
    total: by the whole model.
    """

    hidden: int
    paper: int
    total: int


def count_parameters(recipe: Recipe, model: TaskModel) -> Parameters:
    """The counts of a model; how the paper counts is said by the task."""
    layer = model.recurrent
    graph = trace(
        units.get(recipe.unit, **recipe.model.unit_options), layer.input_size, layer.hidden_size
    )
    return Parameters(
        hidden=sum(p.numel() for p in layer.parameters()),
        paper=tasks.get(recipe.task).paper_count(graph, 2 if layer.bidirectional else 1),
        total=sum(p.numel() for p in model.parameters()),
    )
