"""Infinities, NaN, overflow and the smallest numbers: each operation gives what torch's gives.

Not to the bit, but of the same kind: not a number, infinite with the same sign, or finite and
close.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, ClassVar, Final

import pytest
import torch
from torch import Tensor

from onegate.engines import reference
from onegate.engines.base import Direction
from onegate.engines.cpu import operator as fused
from onegate.engines.cpu.native import library
from onegate.language import Affine, Unit, Vector, relu, sigmoid, tanh
from onegate.lowering.program import program
from onegate.ops import (
    OPERATIONS,
    POINTWISE,
    SUMS,
    exp,
    hard_sigmoid,
    hard_tanh,
    log,
    maximum,
    minimum,
    silu,
    sqrt,
    square,
)
from onegate.tracing import trace

INF, NAN = float("inf"), float("nan")
SETS: Final = ("baseline", "avx2", "avx512")
DTYPES: Final = (torch.float32, torch.float64)


def extremes(dtype: torch.dtype) -> list[float]:
    info = torch.finfo(dtype)
    tiny = info.tiny / 16  # a denormal
    positive = [
        0.0,
        tiny,
        info.tiny,
        0.3,
        1.0,
        40.0,
        88.5,
        89.3,
        709.5,
        info.max / 3,
        info.max,
        INF,
    ]
    return [*positive, *(-v for v in positive), NAN]


class Formula(Unit, abstract=True):
    """A new state out of three: f of the states, which stand still otherwise."""

    states = ("h", "a", "b", "c")
    f: ClassVar[Callable[..., Any]]

    def step(self, x: Any, h: Any, a: Any, b: Any, c: Any) -> Any:
        return type(self).f(a, b, c), a, b, c


# By the operations that a formula becomes, forward, or in its gradient.
FORMULAS: Final[dict[str, Callable[..., Any]]] = {
    "add": lambda a, b, c: a + b,
    "sub": lambda a, b, c: a - b,
    "mul": lambda a, b, c: a * b,
    "neg": lambda a, b, c: -a,
    "sigmoid": lambda a, b, c: sigmoid(a),
    "tanh": lambda a, b, c: tanh(a),
    "relu": lambda a, b, c: relu(a),
    "lerp": lambda a, b, c: (1 - a) * b + a * c,
    "muladd": lambda a, b, c: a * b + c,
    "mulsub": lambda a, b, c: a * b - c,
    "negmuladd": lambda a, b, c: c - a * b,
    "rest": lambda a, b, c: (1 - a) * b,
    "dsigmoid": lambda a, b, c: sigmoid(a) * b,
    "dtanh": lambda a, b, c: tanh(a) * b,
    "drelu": lambda a, b, c: relu(a) * b,
    "div": lambda a, b, c: a / b,
    "one over": lambda a, b, c: 1 / a,
    "maximum": lambda a, b, c: maximum(a, b) * c,
    "minimum": lambda a, b, c: minimum(a, b) * c,
    "at most": lambda a, b, c: minimum(a, 1.0) * c,
    "at least": lambda a, b, c: maximum(0.3, a) * c,
    "exp": lambda a, b, c: exp(a) * b,
    "log": lambda a, b, c: log(a) * b,
    "abs": lambda a, b, c: abs(a) * b,
    "sqrt": lambda a, b, c: sqrt(a) * b,
    "square": lambda a, b, c: square(a) * b,
    "silu": lambda a, b, c: silu(a) * b,
    "hard_sigmoid": lambda a, b, c: hard_sigmoid(a) * b,
    "hard_tanh": lambda a, b, c: hard_tanh(a) * b,
    "gated": lambda a, b, c: (1 - sigmoid(a)) * b + sigmoid(a) * c,
}


def unit(name: str) -> Unit:
    made: type[Unit] = type(name, (Formula,), {"f": staticmethod(FORMULAS[name])})
    return made()


def results(run: Any, name: str, dtype: torch.dtype, gradient: float) -> dict[str, Tensor]:
    """One step of every combination of three extremes, and its gradients."""
    graph = trace(unit(name), 1, 1)
    rows = torch.tensor(list(itertools.product(extremes(dtype), repeat=3)), dtype=dtype)
    # Whole vectors of torch's: at NaN the slope of its hardtanh is another one outside of them.
    rows = torch.nn.functional.pad(rows, (0, 0, 0, -len(rows) % 64))
    states = [torch.zeros(len(rows), 1, dtype=dtype), *rows.split(1, 1)]
    states = [s.clone().requires_grad_() for s in states]
    x = torch.zeros(1, len(rows), 1, dtype=dtype)
    out, _ = run(graph, x, [Direction(tuple(states), {})], None)
    grads = torch.autograd.grad(out, states, torch.full_like(out, gradient), materialize_grads=True)
    return {"h": out[0].detach()} | dict(zip(("dh", "da", "db", "dc"), grads, strict=True))


def assert_same_kind(ours: Tensor, truth: Tensor, what: str) -> None:
    info = torch.finfo(truth.dtype)
    torch.testing.assert_close(
        ours, truth, rtol=32 * info.eps, atol=32 * info.smallest_normal * info.eps,
        equal_nan=True, msg=lambda text: f"{what}: {text}",
    )  # fmt: skip


def compare_all() -> None:
    for name, dtype in itertools.product(FORMULAS, DTYPES):
        for gradient in (1.0, INF, -torch.finfo(dtype).max, NAN):
            truth = results(reference.run, name, dtype, gradient)
            for key, tensor in results(fused.run, name, dtype, gradient).items():
                assert_same_kind(tensor, truth[key], f"{key} of {name}, {dtype}, {gradient}")
    print(library().instruction_set)


@pytest.mark.parametrize("instructions", SETS)
def test_operations(instructions: str) -> None:
    """A process for each instruction set: it is chosen once."""
    script = f"import {__name__} as tests; tests.compare_all()"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"ONEGATE_ISA": instructions},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    if done.stdout.strip() != instructions:
        pytest.skip(f"this machine has no {instructions}")


def test_every_fused_operation_is_among_them() -> None:
    made = set()
    for name in FORMULAS:
        own = program(trace(unit(name), 1, 1))
        for stage in (*own.forward.stages, *own.backward.stages):
            made |= {i.op for i in stage} if isinstance(stage, tuple) else set()
    pointwise = {n for n, row in OPERATIONS.items() if row.opcode is not None and not row.narrow}
    assert made >= pointwise - {*POINTWISE, *SUMS}


class Growing(Unit):
    """A state that grows without bound beside a gate that tells how much of it is kept."""

    states = ("h", "s")
    W = Affine(like="h")
    p = Vector(like="h")

    def step(self, x: Any, h: Any, s: Any) -> Any:
        gate = sigmoid(self.W[x] + self.p)
        return (1 - gate) * s + gate * tanh(h), s * s + 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_state_that_becomes_infinite(dtype: torch.dtype) -> None:
    """An infinite state that a gate keeps is infinite, not a number that is none."""
    graph = trace(Growing(), 2, 3)
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype)

    parameters = {key: draw(*shape) for key, shape in graph.parameters.items()}
    x, start = draw(14, 4, 2), (draw(4, 3), 2 + draw(4, 3).abs())
    found = []
    for run in (reference.run, fused.run):
        leaves = [t.clone().requires_grad_() for t in (x, *start, *parameters.values())]
        given = Direction(tuple(leaves[1:3]), dict(zip(parameters, leaves[3:], strict=True)))
        out, ((_, s),) = run(graph, leaves[0], [given], None)
        grads = torch.autograd.grad([out, s], leaves, [torch.ones_like(out), torch.ones_like(s)])
        found.append([out.detach(), *grads])
    assert found[0][0][-1].isinf().all()
    assert_same_kind(found[1][0], found[0][0], "out")
    for ours, truth in zip(found[1][1:], found[0][1:], strict=True):
        assert torch.equal(ours.isnan(), truth.isnan())
        assert torch.equal(ours.isinf(), truth.isinf())
