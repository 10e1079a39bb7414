"""Programs of units, run by a plain interpreter, against autograd over the units' equations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import hypothesis
import pytest
import torch
from torch import Tensor

from onegate.export.latex import equations
from onegate.language import Graph, Value
from onegate.lowering.program import program
from onegate.lowering.spec import Pointwise, Product, Program
from onegate.ops import OPERATIONS
from onegate.tracing import _traced, trace
from onegate.units import UNITS
from tests.library.comparing import X_ALONE
from tests.library.lowering.interpreter import Machine, whole
from tests.library.random_units import Sketch, sketches

ROWS = 3


def random(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def step(
    graph: Graph, x: Tensor, states: list[Tensor], parameters: Mapping[str, Tensor]
) -> list[Tensor]:
    """The new states, node by node."""
    values: dict[Value, Any] = {graph.input: x, **dict(zip(graph.states, states, strict=True))}
    for node in graph.nodes:
        args = [values[a] for a in node.args]
        if node.op == "constant":
            values[node] = node.number
        elif node.op == "vector":
            values[node] = parameters[node.name].expand(ROWS, -1)
        elif node.op == "affine":
            used = graph.maps[node]
            values[node] = 0.0 if used.bias is None else parameters[used.bias]
            for key, arg in zip(used.weights, args, strict=True):
                values[node] = values[node] + arg @ whole(parameters[key]).T
        elif node.op in OPERATIONS:
            values[node] = OPERATIONS[node.op].compute(*args)
    return [values[result] for result in graph.results]


def check(graph: Graph) -> None:
    """New states and all gradients of one step."""
    made = program(graph)
    machine = Machine(made.encode(), made.constants)
    x, states = random(ROWS, graph.input_size), [random(ROWS, s.size or 0) for s in graph.states]
    parameters = [0.5 * random(*shape) for shape in graph.parameters.values()]
    grads = [torch.randn_like(state) for state in states]
    results = machine.forward(x, states, parameters)
    found = machine.backward(x, states, parameters, results, grads)

    leaves = [leaf.requires_grad_() for leaf in (x, *states, *parameters)]
    new = step(graph, x, states, dict(zip(graph.parameters, parameters, strict=True)))
    for ours, theirs in zip(results[0], new, strict=True):
        torch.testing.assert_close(ours, theirs.detach(), rtol=1e-9, atol=1e-9)
    total = sum((n * g).sum() for n, g in zip(new, grads, strict=True))
    assert isinstance(total, Tensor)
    truth = torch.autograd.grad(total, leaves, materialize_grads=True)
    ours_all = [found.x, *found.states, *found.parameters]
    for ours, theirs in zip(ours_all, truth, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("sizes", [(3, 5), (4, 4)], ids="{0[0]}to{0[1]}".format)
@pytest.mark.parametrize("name", X_ALONE)
def test_every_unit(name: str, sizes: tuple[int, int], bias: bool) -> None:
    check(trace(UNITS[name], *sizes, bias))


@hypothesis.settings(
    max_examples=150,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
@hypothesis.given(sketches(largest=5))
def test_random_units(sketch: Sketch) -> None:
    graph = sketch.graph()
    hypothesis.note("\n".join(equations(graph)))
    torch.manual_seed(0)
    check(graph)


@pytest.mark.parametrize("name", X_ALONE)
def test_a_program_is_the_same_every_time(name: str) -> None:
    """Terms are compared by identity: no order of a set may show in the program."""
    codes = set()
    for _ in range(4):
        graph = _traced(UNITS[name], 3, 4, True)
        codes.add(tuple(program.__wrapped__(graph).encode()))
    assert len(codes) == 1


def instructions(made: Program, op: str) -> list[Pointwise]:
    stages = [*made.forward.stages, *made.backward.stages]
    runs = [stage for stage in stages if isinstance(stage, tuple)]
    return [i for run in runs for i in run if i.op == op]


def products(made: Program) -> tuple[int, int]:
    """Forward, backward."""
    forward, backward = (
        sum(isinstance(stage, Product) for stage in code.stages)
        for code in (made.forward, made.backward)
    )
    return forward, backward


@pytest.mark.parametrize(
    ("name", "expected"),
    [("mgu", (2, 2)), ("gru", (3, 2)), ("lstm", (4, 1)), ("mingru", (2, 0)), ("simple", (1, 1))],
)
def test_as_few_products_as_can_be(name: str, expected: tuple[int, int]) -> None:
    """Backward, the gradients through several maps to one vector are one product."""
    assert products(program(trace(UNITS[name], 3, 4))) == expected


def test_scratch_is_used_again() -> None:
    made = program(trace(UNITS["mgu"], 3, 4))
    assert len(made.forward.temps) <= 2
    assert len(made.backward.temps) <= 4  # what lives within a run has scratch of its own


def test_scratch_of_one_width_is_not_used_for_another() -> None:
    made = program(trace(UNITS["scrn"], 3, 4))
    for code in (made.forward, made.backward):
        for slot in code.slots:
            if slot.space == "temp":
                assert code.temps[slot.index] == slot.size


def test_states_are_not_kept() -> None:
    """The engine has them: the output, and the others beside the kept values."""
    for name, kept in (("mgu", 2), ("gru", 3), ("lstm", 5), ("simple", 0), ("lstm_fgr", 2)):
        made = program(trace(UNITS[name], 3, 4))
        assert len(made.kept) == kept, name


def test_interpolation_is_one_instruction() -> None:
    assert len(instructions(program(trace(UNITS["mgu"], 3, 4)), "lerp")) == 1


def test_the_description_names_stages_and_parameters() -> None:
    graph = trace(UNITS["mgu"], 3, 4)
    lines = program(graph).describe().splitlines()
    titles = [line for line in lines if not line.startswith(" ")]
    assert titles == [
        "forward, at every step:",
        "backward, at every step:",
        "weight gradients, over many steps at once:",
    ]
    sums = [line.split(" += ")[0].strip() for line in lines if "+=" in line]
    assert sorted(sums) == sorted(f"d {key}" for key in graph.parameters)
    assert sum("product" in line for line in lines) == 4
    assert any("= lerp(keep" in line for line in lines)
