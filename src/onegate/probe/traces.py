"""What happens inside a layer: every value of its equations, at every step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from onegate.engines import reference
from onegate.engines.base import NOTHING, Direction, Further
from onegate.export.latex import expression
from onegate.language import Graph, Value
from onegate.nn.cells import States
from onegate.nn.layers import Recurrent
from onegate.notation import Notation
from onegate.ops import is_function
from onegate.properties import Polynomial, kept


@dataclass(frozen=True, eq=False)
class Pass(Mapping[str, Tensor]):
    """One direction of one layer over whole sequences: a mapping from names to (T, B, size).

    The names are those of the equations: the states (`h`, `c`), the local names of `step` (`f`,
    `candidate`); an activation without a name goes by its expression, such as `tanh(cₜ)`. Beyond
    a sequence's length all values are zero.

    name: of the layer's submodule, l0 or l0_reverse. input: (T, B, d), what the pass read.
    start: the states before its first step, each (B, size). backward: whether it runs from the
    end to the start; its values stand in the order of time all the same.
    kept: by state, the share of the old value that a step keeps (T, B, size), for the states that
    are kept without a matrix in between.
    """

    name: str
    graph: Graph
    parameters: Mapping[str, Tensor]
    input: Tensor
    start: tuple[Tensor, ...]
    lengths: Tensor | None
    backward: bool
    named: Mapping[str, Tensor]
    kept: Mapping[str, Tensor]

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.named:
            raise KeyError(
                f"{self.graph.unit.name} has no value {name!r}; it has {', '.join(self.named)}"
            )
        return self.named[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.named)

    def __len__(self) -> int:
        return len(self.named)

    @property
    def inside(self) -> Tensor:
        """(T, B), whether a step is one of its sequence."""
        steps, batch = self.input.shape[:2]
        if self.lengths is None:
            return torch.ones(steps, batch, dtype=torch.bool, device=self.input.device)
        return torch.arange(steps, device=self.input.device)[:, None] < self.lengths

    def before(self, state: str) -> Tensor:
        """A state before each step, (T, B, size)."""
        own = self.own_order(self.named[state])
        start = self.start[self.graph.unit.states.index(state)]
        return self.own_order(torch.cat((start.unsqueeze(0), own[:-1])))

    def first(self, sequences: int) -> Pass:
        """The same of the first few sequences alone."""
        return replace(
            self,
            input=self.input[:, :sequences],
            start=tuple(state[:sequences] for state in self.start),
            lengths=None if self.lengths is None else self.lengths[:sequences],
            named={name: values[:, :sequences] for name, values in self.named.items()},
            kept={name: values[:, :sequences] for name, values in self.kept.items()},
        )

    def own_order(self, values: Tensor) -> Tensor:
        """(T, B, ...) in the order in which the pass reads; done twice it is the order of time."""
        if not self.backward:
            return values
        if self.lengths is None:
            return values.flip(0)
        t = torch.arange(len(values), device=values.device)[:, None].expand(values.shape[:2])
        mirrored = torch.where(self.inside, self.lengths - 1 - t, t)
        return torch.take_along_dim(
            values, mirrored.reshape(*t.shape, *[1] * (values.dim() - 2)), 0
        )


def record(
    layer: Recurrent, x: Tensor, h_0: States | None = None, lengths: Any = None
) -> dict[str, Pass]:
    """Runs a layer by the reference engine and keeps every value of its equations.

    The arguments are those of the layer's own call; dropout between layers is off. Returns the
    passes by the names of the layer's submodules, in the order in which they ran.

    >>> layer = onegate.MGU(28, 100)
    >>> record(layer, torch.randn(28, 16, 28))["l0"]["f"].shape
    torch.Size([28, 16, 100])
    """
    if not isinstance(x, Tensor):
        raise TypeError(
            f"x is a {type(x).__name__}, expected a torch.Tensor; pass a padded batch with lengths="
        )
    was_training = layer.training
    layer.eval()
    try:
        return traced(layer, lambda: layer(x, h_0, lengths=lengths))
    finally:
        layer.train(was_training)


def traced(layer: Recurrent, call: Callable[[], object]) -> dict[str, Pass]:
    """The same for a call of a whole model, in the mode it is in, that calls the layer once."""
    with watching(layer) as watched:
        call()
    return {each.name: each.finished() for each in watched}


@dataclass
class Watched:
    """One direction of one layer while it runs: a tensor (B, size) a step, as the engine made it.

    Gradients with respect to these tensors are those with respect to the step's values.
    """

    name: str
    graph: Graph
    x: Tensor
    direction: Direction
    lengths: Tensor | None
    backward: bool
    steps: dict[str, list[Tensor]] = field(default_factory=dict)
    shares: dict[str, list[Tensor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._named = named_values(self.graph)
        self._kept = kept(self.graph)
        length = len(self.x)
        self.steps = {name: [self.x] * length for name in self._named}
        self.shares = {name: [self.x] * length for name in self._kept}

    def note(self, t: int, values: reference.Values) -> None:
        """Keeps what a step computed."""
        for name, node in self._named.items():
            self.steps[name][t] = self._rows(_at(t, values[node]), node)
        for name, share in self._kept.items():
            (state,) = (s for s in self.graph.states if s.name == name)
            self.shares[name][t] = self._rows(_evaluated(share, t, values), state)

    def _rows(self, value: Any, node: Value) -> Tensor:
        """(B, size), also of what is the same for every row or neuron.

        What has the shape already must stay the tensor that it is: gradients are asked for it.
        """
        shape = (self.x.shape[1], node.size or 0)
        row: Tensor = torch.as_tensor(value, dtype=self.x.dtype, device=self.x.device)
        return row if row.shape == shape else row.expand(shape)

    def finished(self) -> Pass:
        """All steps together."""
        return Pass(
            self.name, self.graph, self.direction.parameters, self.x, self.direction.start,
            self.lengths, self.backward, self._stacked(self.steps), self._stacked(self.shares),
        )  # fmt: skip

    def _stacked(self, steps: Mapping[str, Sequence[Tensor]]) -> dict[str, Tensor]:
        stacked = {name: torch.stack(list(values)) for name, values in steps.items()}
        if self.lengths is None:
            return stacked
        t = torch.arange(len(self.x), device=self.x.device)[:, None]
        inside = (t < self.lengths).unsqueeze(-1)
        return {name: torch.where(inside, values, 0.0) for name, values in stacked.items()}


@contextmanager
def watching(layer: Recurrent) -> Iterator[list[Watched]]:
    """Inside the `with` block a call of the layer fills the list, pass by pass."""
    watched: list[Watched] = []
    names = list(dict(layer.named_children()))

    def run(
        graph: Graph,
        x: Tensor,
        directions: Sequence[Direction],
        lengths: Tensor | None,
        further: Further = NOTHING,
    ) -> tuple[Tensor, tuple[tuple[Tensor, ...], ...]]:
        first = len(watched)
        for place, direction in enumerate(directions):
            name = names[(first + place) % len(names)]
            watched.append(Watched(name, graph, x, direction, lengths, place == 1))
        here = watched[first:]
        return reference.run(
            graph, x, directions, lengths, further, watch=lambda p, t, v: here[p].note(t, v)
        )

    with layer.run_by(run):
        yield watched


def named_values(graph: Graph) -> dict[str, Value]:
    """The values of a step by their names, in the order in which `step` computes them.

    A local name that means several values, or the name of a state for another value, is no name.
    """
    names = Notation.of(graph).names
    found: dict[str, Value] = {}
    for node in graph.nodes:
        new = [s.name for s, r in zip(graph.states, graph.results, strict=True) if r is node]
        if new:
            found |= dict.fromkeys(new, node)
        elif node in names:
            found[names[node].local] = node
        elif is_function(node.op):
            found[expression(graph, node)] = node
    return found


def _at(t: int, value: Any) -> Any:
    """What depends on no state the engine may hold for all steps at once, (T, B, size)."""
    return value[t] if isinstance(value, Tensor) and value.dim() == 3 else value


def _evaluated(share: Polynomial, t: int, values: reference.Values) -> Any:
    total: Any = 0.0
    for factors, number in share.items():
        product: Any = number
        for factor in factors:
            product = product * _at(t, values[factor])
        total = total + product
    return total
