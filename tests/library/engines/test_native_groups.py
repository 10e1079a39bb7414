"""Runs of instructions that nobody lowered: the native engine groups them, with the same result."""

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from torch import Tensor

from onegate.engines.cpu import operator, programs
from onegate.lowering.spec import Code, Pointwise, Program, Slot
from onegate.ops import OPERATIONS, SUMS
from onegate.tracing import trace
from onegate.units import UNITS

EPS = 0.1
# What groups are made of, and two more that stand between.
VECTORS = ("normed", "scaled", "minus_scaled", "mul", "muladd", "sub", "sigmoid")
NUMBERS = ("mean", "variance", "mean_product", "mul", "add", "muladd", "sqrt", "div")


@st.composite
def runs(draw: st.DrawFn, width: int, sums: bool) -> tuple[Code, list[Pointwise]]:
    """A run over few scratch slots, so that values are overwritten while others are still wanted.

    It starts from a state (slot 0) and an input (1), and writes slot 2; 3: a learned vector (the
    first parameter), to which and to the second one sums are added; 4, 5: constants.
    """
    first, last = ("grad_next", "grad_prev") if sums else ("prev", "next")
    slots = [
        Slot(first, 0, width), Slot("input", 0, width), Slot(last, 0, width),
        Slot("vector", 0, width), Slot("constant", 0, 1), Slot("constant", 0, width),
    ]  # fmt: skip
    wide = draw(st.integers(2, 4))
    narrow = draw(st.integers(1, 4))
    temps = [width] * wide + [1] * narrow
    slots += [Slot("temp", i, size) for i, size in enumerate(temps)]
    vectors, numbers = {0, 1, 3, 5}, {4}
    scratch = list(range(6, 6 + wide)), list(range(6 + wide, len(slots)))
    run = [Pointwise("mul", scratch[0][0], (0, 1)), Pointwise("mean", scratch[1][0], (0,))]
    vectors.add(scratch[0][0])
    numbers.add(scratch[1][0])
    for _ in range(draw(st.integers(3, 24))):
        if sums and draw(st.integers(0, 4)) == 0:
            op = draw(st.sampled_from(SUMS))
            args = [
                draw(st.sampled_from(sorted(vectors - {5}))) for _ in range(OPERATIONS[op].arity)
            ]
            run.append(Pointwise(op, draw(st.integers(0, 1)), tuple(args)))
            continue
        of_row = draw(st.booleans())
        op = draw(st.sampled_from(NUMBERS if of_row else VECTORS))
        row = OPERATIONS[op]
        reduces = -1 in row.narrow
        args = []
        for k in range(row.arity):
            small = k in row.narrow or (of_row and not reduces)
            args.append(draw(st.sampled_from(sorted(numbers if small else vectors))))
        dst = draw(st.sampled_from(scratch[1] if of_row else scratch[0]))
        (numbers if of_row else vectors).add(dst)
        if op in ("sqrt", "div"):  # of what is positive and not small
            positive = draw(st.sampled_from(scratch[1]))
            run.append(Pointwise("mul", positive, (args[-1], args[-1])))
            run.append(Pointwise("add", positive, (positive, 4)))
            numbers.add(positive)
            args[-1] = positive
        run.append(Pointwise(op, dst, tuple(args)))
    run.append(Pointwise("copy", 2, (draw(st.sampled_from(scratch[0][:1])),)))
    return Code(tuple(slots), (tuple(run),), tuple(temps), ()), run


def by_rows_of_ops(code: Code, given: dict[int, Tensor], sums: list[Tensor]) -> Tensor:
    """The run, one instruction after another."""
    values = dict(given)
    (run,) = code.stages
    assert isinstance(run, tuple)
    for i in run:
        found = OPERATIONS[i.op].compute(*[values[a] for a in i.args])
        if i.op in SUMS:
            sums[i.dst] += found
        else:
            values[i.dst] = found
    return values[2]


def made(width: int, forward: Code | None, backward: Code | None) -> Program:
    """A program of one state, one input and two learned vectors, else without any sense."""
    copied = Slot("prev", 0, width), Slot("next", 0, width)
    plain = Code(copied, ((Pointwise("copy", 1, (0,)),),), (), ())
    back = Slot("grad_next", 0, width), Slot("grad_prev", 0, width)
    returned = Code(back, ((Pointwise("copy", 1, (0,)),),), (), ())
    shapes = (width,), (width,)
    return Program(
        (width,), (width,), shapes, (), (EPS,), forward or plain, backward or returned, ()
    )


def entry_of(made: Program) -> programs.Entry:
    return programs.Entry.of("", "a run", trace(UNITS["mgu"], 1, 1), made)


SIZES = [(1, 1), (3, 2), (5, 7), (37, 16), (3, 17), (23, 100), (2, 130)]


@pytest.mark.parametrize(("rows", "width"), SIZES)
@hypothesis.given(data=st.data())
@hypothesis.settings(max_examples=60, deadline=None)
def test_forward(rows: int, width: int, data: st.DataObject) -> None:
    code, _ = data.draw(runs(width, False))
    x, start, p, q = _numbers(rows, width)
    out, _, _ = operator._forward(
        entry_of(made(width, code, None)), x[None], start[None], [p, q], None, False
    )
    eps = torch.tensor(EPS, dtype=torch.float64)
    given = {0: start, 1: x, 3: p.expand(rows, -1), 4: eps.expand(rows, 1),
             5: eps.expand(rows, width)}  # fmt: skip
    torch.testing.assert_close(out[0], by_rows_of_ops(code, given, []), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("rows", "width"), SIZES)
@hypothesis.given(data=st.data())
@hypothesis.settings(max_examples=60, deadline=None)
def test_backward_with_sums(rows: int, width: int, data: st.DataObject) -> None:
    code, run = data.draw(runs(width, True))
    x, grad, p, q = _numbers(rows, width)
    start = torch.zeros_like(x)
    entry = entry_of(made(width, None, code))
    out, _, kept = operator._forward(entry, x[None], start[None], [p, q], None, True)
    assert kept is not None
    found = operator._backward(
        entry, x[None], start[None], [p, q], None, out, kept, None, grad[None], False
    )
    eps = torch.tensor(EPS, dtype=torch.float64)
    given = {0: grad, 1: x, 3: p.expand(rows, -1), 4: eps.expand(rows, 1),
             5: eps.expand(rows, width)}  # fmt: skip
    sums = [torch.zeros_like(p), torch.zeros_like(q)]
    expected = by_rows_of_ops(code, given, sums)
    torch.testing.assert_close(found[1][0], expected, rtol=1e-9, atol=1e-9)
    for number in {i.dst for i in run if i.op in SUMS}:
        torch.testing.assert_close(found[2 + number], sums[number], rtol=1e-9, atol=1e-9)


def _numbers(rows: int, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Input, state or gradient, and two learned vectors; not large, as runs multiply them."""
    torch.manual_seed(rows * 1000 + width)
    x, start = torch.rand(2, rows, width, dtype=torch.float64) - 0.5
    p, q = torch.rand(2, width, dtype=torch.float64)
    return x, start, p, q
