"""The table of operations: every row against torch, finite differences and the native engine."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import onegate
from onegate.engines.cpu import native
from onegate.engines.cpu.native import NativeProgram, library
from onegate.export.latex import equations, latex
from onegate.language import Builder, Unit
from onegate.lowering.spec import Code, MapSums, Pointwise, Program, Slot
from onegate.ops import OPERATIONS, POINTWISE, SUMS, Operation
from onegate.tracing import trace

DIFFERENTIABLE = [
    name for name, row in OPERATIONS.items() if row.derivative is not None and not row.narrow
]
COMPUTED = [
    name
    for name, row in OPERATIONS.items()
    if row.opcode is not None and name not in SUMS and not row.narrow
]
OF_ROWS = [name for name, row in OPERATIONS.items() if row.narrow]
INF, NAN = math.inf, math.nan
EXTREMES = (0.0, -0.0, 1.0, -1.0, 0.5, -30.0, 30.0, -100.0, 100.0, 1e-38, -1e-42, 1e38, -1e38, INF,
            -INF, NAN)  # fmt: skip
TOLERANCE = {torch.float32: 3e-6, torch.float64: 1e-14}


def operands(row: Operation, *shape: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(row.opcode or 0)
    values = [
        torch.randn(shape, dtype=torch.float64, generator=generator) for _ in range(row.arity)
    ]
    return [v.abs() + 0.1 for v in values] if row.name in POSITIVE else values


LN2 = sum(np.longdouble(1) / (k * 2**k) for k in range(1, 70))
FUNCTIONS = [n for n in POINTWISE if OPERATIONS[n].role != "arithmetic"]
POSITIVE = {"log", "sqrt"}  # of these alone is there a value
VALUES = {  # at arguments -3, -1/2, 0, 2 and 11, by formulas in long double
    "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
    "tanh": lambda v: (np.exp(2 * v) - 1) / (np.exp(2 * v) + 1),
    "relu": lambda v: np.maximum(v, 0),
    "softplus": lambda v: np.log1p(np.exp(v)),
    "log": lambda v: np.log2(v) * LN2,
    "abs": lambda v: np.where(v < 0, -v, v),
    "sqrt": lambda v: np.exp2(np.log2(v) / 2),
    "square": lambda v: v * v,
    "silu": lambda v: v / (1 + np.exp(-v)),
    "hard_sigmoid": lambda v: np.clip(v / 6 + 0.5, 0, 1),
    "hard_tanh": lambda v: np.clip(v, -1, 1),
    "exp": lambda v: np.sum([v**k / math.factorial(k) for k in range(80)], axis=0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_have_the_values_of_their_formulas(name: str) -> None:
    at = np.array([-3, -0.5, 0, 2, 11], np.longdouble)
    if name in POSITIVE:
        at = np.array([1e-300, 0.2, 0.999, 1, 1.001, 3, 7e100], np.longdouble)
    expected = torch.from_numpy(VALUES[name](at).astype(np.float64))
    given = torch.from_numpy(at.astype(np.float64))
    torch.testing.assert_close(OPERATIONS[name].compute(given), expected, rtol=1e-14, atol=1e-15)
    if library().problem is None:
        found = native_result(OPERATIONS[name], [given])
        torch.testing.assert_close(found, expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("name", ["div", "maximum", "minimum"])
def test_numbers_may_stand_on_either_side(name: str) -> None:
    row = OPERATIONS[name]
    vector = torch.tensor([-3.0, 0.5, 2.0], dtype=torch.float64)
    formula: Any = {"div": lambda a, b: a / b, "maximum": np.maximum, "minimum": np.minimum}[name]
    given = vector.numpy()
    assert row(vector, 2).tolist() == formula(given, 2.0).tolist()
    assert row(2, vector).tolist() == formula(2.0, given).tolist()


# Where the slope jumps: the operation, its operands, and what torch gives them of a gradient 1.
JUMPS = {
    "maximum": ((2.0, 2.0), (0.5, 0.5)),
    "minimum": ((2.0, 2.0), (0.5, 0.5)),
    "abs": ((0.0,), (0.0,)),
    "sqrt": ((0.0,), (INF,)),
    "log": ((0.0,), (INF,)),
    "hard_sigmoid": ((3.0,), (0.0,)),
    "hard_tanh": ((-1.0,), (0.0,)),
    "relu": ((0.0,), (0.0,)),
}


@pytest.mark.parametrize("name", JUMPS)
def test_slopes_at_jumps_are_those_of_torch(name: str) -> None:
    row, (at, expected) = OPERATIONS[name], JUMPS[name]
    assert row.derivative is not None
    given = [torch.full((19,), v, requires_grad=True) for v in at]
    y = row.compute(*given)
    one = torch.ones(19)
    for slopes in (row.derivative(one, y, *given), torch.autograd.grad(y, given, one)):
        assert [v.unique().tolist() for v in slopes] == [[e] for e in expected]


def test_opcodes_are_numbered_from_zero() -> None:
    numbers = sorted(row.opcode for row in OPERATIONS.values() if row.opcode is not None)
    assert numbers == list(range(len(numbers)))


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives_are_those_of_the_function(name: str) -> None:
    row = OPERATIONS[name]
    assert row.derivative is not None
    given = [v.requires_grad_() for v in operands(row, 101)]
    result = row.compute(*given)
    g = torch.randn_like(result)
    expected = torch.autograd.grad(result, given, g)
    found = row.derivative(g, result, *given)
    assert len(found) == row.arity
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives_agree_with_finite_differences(name: str) -> None:
    row = OPERATIONS[name]
    assert row.derivative is not None
    given = operands(row, 101)
    one = torch.ones(101, dtype=torch.float64)
    found = row.derivative(one, row.compute(*given), *given)
    step = 1e-6
    for place in range(row.arity):
        moved = [[v + sign * step * (i == place) for i, v in enumerate(given)] for sign in (1, -1)]
        slope = (row.compute(*moved[0]) - row.compute(*moved[1])) / (2 * step)
        torch.testing.assert_close(found[place], slope, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", POINTWISE)
def test_a_row_makes_symbolic_values_and_computes_on_tensors(name: str) -> None:
    row = OPERATIONS[name]
    builder = Builder()
    leaves = [builder.make("state", (), 3, n) for n in "ab"[: row.arity]]
    assert row(*leaves) is builder.pointwise(name, *leaves)
    values = operands(row, 5)
    assert torch.equal(row(*values), row.compute(*values))


def instruction(row: Operation, size: int) -> Program:
    """A program whose new states are the operation's result, then its operands as they were."""
    slots = [Slot("prev", i, size) for i in range(row.arity)]
    slots += [Slot("next", i, size) for i in range(row.arity)]
    n = row.arity
    copies = [Pointwise("copy", n + i, (i,)) for i in range(1, n)]
    forward = Code(tuple(slots), ((Pointwise(row.name, n, tuple(range(n))), *copies),), (), ())
    back = [Slot("grad_next", i, size) for i in range(n)]
    back += [Slot("grad_prev", i, size) for i in range(n)]
    copied = tuple(Pointwise("copy", n + i, (i,)) for i in range(n))
    backward = Code(tuple(back), (copied,), (), ())
    maps: tuple[MapSums, ...] = ()
    return Program((1,), (size,) * n, (), (), (), forward, backward, maps)


def native_result(row: Operation, values: list[Tensor]) -> Tensor:
    """The operation by the native engine, on vectors given as states."""
    size, bits = len(values[0]), values[0].element_size() * 8
    made = NativeProgram.of(instruction(row, size))
    start = torch.stack(values).reshape(1, 1, -1)
    x, out, last = values[0].new_zeros(1, 1, 1), start.new_empty(1, 1, size), start.clone()
    none = (ctypes.c_void_p * 1)()
    call = native.ForwardCall(
        program=made.handle, bits=bits, directions=1, threads=1, split=0, steps=1, rows=1,
        x=x.data_ptr(), x_step=1, x_row=1, start=start.data_ptr(), out=out.data_ptr(),
        out_step=size, out_row=size, last=last.data_ptr(),
        parameters=ctypes.addressof(none),
    )  # fmt: skip
    made.forward(call)
    return out.flatten()


@pytest.mark.skipif(library().problem is not None, reason=str(library().problem))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", COMPUTED)
def test_the_native_engine_computes_what_torch_computes(name: str, dtype: torch.dtype) -> None:
    """At sizes around those of vectors, and at all pairs and triples of extreme numbers."""
    row = OPERATIONS[name]
    corners = torch.cartesian_prod(*[torch.tensor(EXTREMES, dtype=dtype)] * row.arity)
    grid = list(corners.reshape(-1, row.arity).T.contiguous())
    cases = [grid, *([v.to(dtype) for v in operands(row, size)] for size in (1, 7, 16, 17, 129))]
    for values in cases:
        found, expected = native_result(row, values), row.compute(*values)
        torch.testing.assert_close(
            found, expected, rtol=TOLERANCE[dtype], atol=torch.finfo(dtype).tiny, equal_nan=True
        )


@pytest.mark.skipif(library().problem is not None, reason=str(library().problem))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", OF_ROWS)
def test_operations_with_numbers_of_a_row(name: str, dtype: torch.dtype) -> None:
    """At sizes around those of vectors, at extreme numbers, and for more rows than a block has."""
    row = OPERATIONS[name]
    for size, rows in ((1, 3), (7, 1), (16, 5), (17, 70), (100, 23), (1100, 2)):
        widths = [1 if i in row.narrow else size for i in range(row.arity)]
        drawn = zip(operands(row, rows, size), widths, strict=True)
        cases = [torch.cat([v[:, :n] for v, n in drawn], 1).to(dtype)]
        for extreme in EXTREMES:
            cases.append(cases[0].clone())
            cases[-1][0, :: max(1, size // 2)] = extreme
        for start in cases:
            expected = row.compute(*start.split(widths, 1))
            found = native_rows(row, start, widths)
            torch.testing.assert_close(
                found, expected, rtol=32 * TOLERANCE[dtype], atol=TOLERANCE[dtype], equal_nan=True
            )


def native_rows(row: Operation, start: Tensor, widths: list[int]) -> Tensor:
    """The operation on rows of operands side by side: its result is a further state, the first."""
    wide, bits = 1 if -1 in row.narrow else max(widths), start.element_size() * 8
    sizes = (wide, *widths)
    slots = [Slot(space, i, n) for space in ("prev", "next") for i, n in enumerate(sizes)]
    n = len(sizes)
    copies = [Pointwise("copy", n + i, (i,)) for i in range(1, n)]
    step = (Pointwise(row.name, n, tuple(range(1, n))), *copies)
    back = [Slot(f"grad_{s}", i, n) for s in ("next", "prev") for i, n in enumerate(sizes)]
    copied = tuple(Pointwise("copy", n + i, (i,)) for i in range(n))
    made = NativeProgram.of(
        Program((1,), sizes, (), (), (), Code(tuple(slots), (step,), (), ()),
                Code(tuple(back), (copied,), (), ()), ())
    )  # fmt: skip
    rows = len(start)
    before = torch.cat([start.new_zeros(rows, wide), start], 1)
    x, out, last = start.new_zeros(rows, 1), start.new_empty(rows, wide), before.clone()
    none = (ctypes.c_void_p * 1)()
    call = native.ForwardCall(
        program=made.handle, bits=bits, directions=1, threads=1, split=0, steps=1, rows=rows,
        x=x.data_ptr(), x_step=rows, x_row=1, start=before.data_ptr(), out=out.data_ptr(),
        out_step=rows * wide, out_row=wide, last=last.data_ptr(),
        parameters=ctypes.addressof(none),
    )  # fmt: skip
    made.forward(call)
    return out


def test_a_library_with_other_operations_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = library().functions
    if functions is None:
        pytest.skip(str(library().problem))
    assert native._differing_operation(functions) is None
    monkeypatch.delitem(OPERATIONS, "tanh")
    said = native._differing_operation(functions)
    assert said == "has tanh of 1 as operation 6, onegate.ops has nothing"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_the_language_can_be_used_at_once(name: str) -> None:
    function = getattr(onegate, name)

    class Own(Unit):
        W = onegate.Affine()

        def step(self, x: object, h: object) -> object:
            return function(self.W[h, x])

    graph = trace(Own(), 3, 5)
    assert name in [node.op for node in graph.nodes]
    begins = OPERATIONS[name].latex.split("{0")[0]
    assert begins.replace("{{", "{").replace("}}", "}") in latex(graph)
    assert len(equations(graph)) == 1
    assert onegate.Recurrent(Own, 3, 5)(torch.randn(4, 2, 3))[0].shape == (4, 2, 5)
