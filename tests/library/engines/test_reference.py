"""The reference engine against the units' own steps, one after the other, and its derivatives."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import onegate
from onegate.engines import reference
from onegate.engines.base import Direction
from onegate.language import Affine, Graph, Unit, Vector, relu, sigmoid, tanh
from onegate.tracing import trace
from onegate.units import UNITS
from tests.library.comparing import X_ALONE, assert_same, with_gradients

LENGTHS = [3, 5, 1]


def make(graph: Graph, steps: int, batch: int, directions: int = 1) -> list[Tensor]:
    """Input, states of each direction, parameters of each direction: in one list of leaves."""
    x = [(steps, batch, graph.input_size)]
    states = [(batch, state.size or 0) for state in graph.states]
    shapes = [*x, *directions * states, *directions * [*graph.parameters.values()]]
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


def unpack(graph: Graph, leaves: list[Tensor]) -> tuple[Tensor, list[Direction]]:
    x, *rest = leaves
    states, keys = len(graph.states), list(graph.parameters)
    count = len(rest) // (states + len(keys))
    directions = []
    for i in range(count):
        start = rest[i * states : (i + 1) * states]
        first = count * states + i * len(keys)
        values = dict(zip(keys, rest[first : first + len(keys)], strict=True))
        directions.append(Direction(tuple(start), values))
    return x, directions


def by_reference(graph: Graph, leaves: list[Tensor], lengths: list[int] | None = None) -> Any:
    x, directions = unpack(graph, leaves)
    given = None if lengths is None else torch.tensor(lengths)
    return reference.run(graph, x, directions, given)


def step_by_step(graph: Graph, leaves: list[Tensor], lengths: list[int] | None = None) -> Any:
    """The unit's equations on tensors, for one row and direction after the other."""
    x, directions = unpack(graph, leaves)
    steps, batch = x.shape[:2]
    width = graph.states[0].size or 0
    outs, lasts = [], []
    for place, direction in enumerate(directions):
        unit = graph.unit.bind(graph, direction.parameters)
        rows, ends = [], []
        for row in range(batch):
            length = steps if lengths is None else lengths[row]
            state: Any = tuple(s[row] for s in direction.start)
            out = [torch.zeros(width, dtype=x.dtype)] * steps
            for t in reversed(range(length)) if place else range(length):
                state = unit.step(x[t, row], *state)
                state = state if isinstance(state, tuple) else (state,)
                out[t] = state[0]
            rows.append(torch.stack(out))
            ends.append(state)
        outs.append(torch.stack(rows, dim=1))
        lasts.append(tuple(torch.stack(each) for each in zip(*ends, strict=True)))
    return torch.cat(outs, -1), tuple(lasts)


def compare(graph: Graph, directions: int, lengths: list[int] | None) -> None:
    leaves = make(graph, 5, 3, directions)
    ours = with_gradients(lambda *v: by_reference(graph, list(v), lengths), leaves, {})
    theirs = with_gradients(lambda *v: step_by_step(graph, list(v), lengths), leaves, {})
    assert_same(ours, theirs)


@pytest.mark.parametrize("sizes", [(1, 1), (3, 5), (4, 4)], ids="{0[0]}to{0[1]}".format)
@pytest.mark.parametrize("name", X_ALONE)
def test_same_as_the_equations_step_by_step(name: str, sizes: tuple[int, int]) -> None:
    compare(trace(UNITS[name], *sizes), 1, None)


@pytest.mark.parametrize("name", X_ALONE)
def test_both_directions_with_lengths(name: str) -> None:
    compare(trace(UNITS[name], 3, 4), 2, LENGTHS)


@pytest.mark.parametrize("name", X_ALONE)
def test_without_biases(name: str) -> None:
    compare(trace(UNITS[name], 3, 4, bias=False), 1, LENGTHS)


class Odd(Unit):
    """Everything at once that the schedule has to sort out."""

    states = ("h", "s")

    W_a = Affine()  # of the input alone, and used by another map of the input
    W_b = Affine()
    W_c = Affine()  # the same operands as W_d, in another order
    W_d = Affine()
    W_e = Affine(bias=False)  # the operands of W_c, without its bias
    W_p = Affine()  # of a learned vector alone
    W_t = Affine()  # one operand twice
    p = Vector()

    def state_sizes(self, hidden_size: int) -> dict[str, int]:
        return {"h": hidden_size, "s": hidden_size}

    def step(self, x: Any, h: Any, s: Any) -> Any:
        a = tanh(self.W_a[x])
        b = relu(self.W_b[a, x]) - self.p
        c = sigmoid(self.W_c[h, x, s])
        d = sigmoid(self.W_d[s, h, x])
        e = tanh(self.W_e[x, h, s])
        new = c * h + d * b + (0.5 - e) * self.W_p[self.p] * self.W_t[h, h]
        return -new, a * b


@pytest.mark.parametrize("bias", [True, False])
def test_a_unit_of_odd_parts(bias: bool) -> None:
    compare(trace(Odd(), 3, 4, bias), 2, LENGTHS)


def test_padding_may_hold_anything() -> None:
    """NaN beyond a length reaches neither outputs nor gradients."""
    graph = trace(UNITS["lstm"], 3, 4)
    leaves = make(graph, 5, 3, 2)
    ours = with_gradients(lambda *v: by_reference(graph, list(v), LENGTHS), leaves, {})
    for row, length in enumerate(LENGTHS):
        leaves[0][length:, row] = torch.nan
    poisoned = with_gradients(lambda *v: by_reference(graph, list(v), LENGTHS), leaves, {})
    assert_same(poisoned, ours)
    for row, length in enumerate(LENGTHS):
        assert not ours["output 0"][length:, row].any()
        assert not ours["gradient of input 0"][length:, row].any()


@pytest.mark.parametrize("name", X_ALONE)
def test_first_and_second_derivatives(name: str) -> None:
    graph = trace(UNITS[name], 2, 3)
    leaves = [leaf.requires_grad_() for leaf in make(graph, 2, 2)]

    def call(*given: Tensor) -> tuple[Tensor, ...]:
        out, (last,) = by_reference(graph, list(given))
        return out, *last

    assert torch.autograd.gradcheck(call, leaves, fast_mode=True)
    assert torch.autograd.gradgradcheck(call, leaves, fast_mode=True)


class Products(TorchDispatchMode):
    """Counts matrix products."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in ("mm", "addmm", "bmm", "matmul", "linear"):
            self.count["products"] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("name", "per_step"),
    [("mgu", 2), ("gru", 2), ("lstm", 1), ("gru_reset_after", 2), ("mingru", 0), ("mut1", 2)],
)
def test_inputs_are_projected_at_once_and_recurrent_products_grouped(
    name: str, per_step: int
) -> None:
    """gru: z and r together, then the candidate."""
    steps = 5
    layer = onegate.Recurrent(name, 4, 4, engine="reference")
    with Products() as products, torch.no_grad():
        layer(torch.randn(steps, 2, 4))
    assert products.count["products"] == 1 + steps * per_step
