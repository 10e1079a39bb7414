"""Step code: terms made once, and the rewrites that make it short."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from onegate.language import Value, in_order
from onegate.lowering.code import StepBuilder, fuse
from onegate.ops import OPERATIONS

SIZE = 3


class Values:
    """Values with an operator syntax, and numbers for the leaves."""

    def __init__(self) -> None:
        self.builder = StepBuilder()
        self.numbers: dict[str, torch.Tensor] = {}

    def leaf(self, name: str) -> Value:
        self.numbers.setdefault(name, torch.randn(SIZE, dtype=torch.float64))
        return self.builder.leaf("state", name, SIZE)

    def __call__(self, op: str, *args: Value | float) -> Value:
        terms = [a if isinstance(a, Value) else self.builder.constant(a) for a in args]
        return self.builder.pointwise(op, *terms)

    def evaluate(self, term: Value) -> Any:
        if term.op == "constant":
            return torch.tensor(term.number, dtype=torch.float64)
        if term.op == "state":
            return self.numbers[term.name]
        return OPERATIONS[term.op].compute(*(self.evaluate(a) for a in term.args))


@pytest.fixture
def v() -> Values:
    return Values()


def test_equal_terms_are_one_object(v: Values) -> None:
    a, b = v.leaf("a"), v.leaf("b")
    assert v("add", a, b) is v("add", a, b)
    assert v("add", a, b) is not v("add", b, a)
    assert v("mul", a, 2.0) is v("mul", a, 2.0)
    assert v("mul", a, 2.0) is not v("mul", a, 3.0)
    assert v.leaf("a") is a


def orders(v: Values, g: Value, a: Value, b: Value) -> list[tuple[Value, Value]]:
    """(1 - g) a and g b, as either factor may come first."""
    rest = v("sub", 1.0, g)
    return [
        (v("mul", *kept), v("mul", *new))
        for kept in ((rest, a), (a, rest))
        for new in ((g, b), (b, g))
    ]


def test_interpolation_is_found_in_every_order(v: Values) -> None:
    g, a, b = (v.leaf(name) for name in "gab")
    expected = v.evaluate(g) * v.evaluate(b) + (1 - v.evaluate(g)) * v.evaluate(a)
    for kept, new in orders(v, g, a, b):
        for left, right in ((kept, new), (new, kept)):
            mix = v("add", left, right)
            assert mix.op == "lerp"
            assert mix.args == (g, a, b)
            torch.testing.assert_close(v.evaluate(mix), expected)


def test_what_is_no_interpolation_is_left_alone(v: Values) -> None:
    g, f, a, b = (v.leaf(name) for name in "gfab")
    gate = v("mul", g, b)
    for rest in (v("sub", 1.0, f), v("sub", 2.0, g), v("sub", g, 1.0), v("add", 1.0, g)):
        assert v("add", v("mul", rest, a), gate).op == "add"
    assert v("sub", v("mul", v("sub", 1.0, g), a), gate).op == "sub"
    assert v("add", v("mul", v("sub", 1.0, g), 0.5), gate).op == "add"


FUSED: dict[str, tuple[Callable[[Values, Value, Value, Value], Value], str]] = {
    "a b + c": (lambda v, a, b, c: v("add", v("mul", a, b), c), "muladd"),
    "c + a b": (lambda v, a, b, c: v("add", c, v("mul", a, b)), "muladd"),
    "a b - c": (lambda v, a, b, c: v("sub", v("mul", a, b), c), "mulsub"),
    "c - a b": (lambda v, a, b, c: v("sub", c, v("mul", a, b)), "negmuladd"),
    "(1 - a) b": (lambda v, a, b, c: v("mul", v("sub", 1.0, a), b), "rest"),
    "b (1 - a)": (lambda v, a, b, c: v("mul", b, v("sub", 1.0, a)), "rest"),
    "2 a + c": (lambda v, a, b, c: v("add", v("mul", 2.0, a), c), "muladd"),
    "a b + b c": (lambda v, a, b, c: v("add", v("mul", a, b), v("mul", b, c)), "muladd"),
    "a b - b c": (lambda v, a, b, c: v("sub", v("mul", a, b), v("mul", b, c)), "negmuladd"),
    "(2 - a) b": (lambda v, a, b, c: v("mul", v("sub", 2.0, a), b), "mul"),
    "a b": (lambda v, a, b, c: v("mul", a, b), "mul"),
}


@pytest.mark.parametrize("case", FUSED)
def test_products_in_sums_are_fused(case: str, v: Values) -> None:
    make, op = FUSED[case]
    plain = make(v, *(v.leaf(name) for name in "abc"))
    (fused,) = fuse(v.builder, [plain])
    assert fused.op == op
    torch.testing.assert_close(v.evaluate(fused), v.evaluate(plain))


def test_a_product_with_another_use_is_computed_once(v: Values) -> None:
    a, b, c = (v.leaf(name) for name in "abc")
    product = v("mul", a, b)
    total, same = fuse(v.builder, [v("add", product, c), product])
    assert total.op == "add"
    assert total.args[0] is same
    (twice,) = fuse(v.builder, [v("add", v("tanh", product), v("sub", product, c))])
    assert sum(term.op == "mul" for term in in_order([twice])) == 1


def test_order_has_operands_first_and_each_once(v: Values) -> None:
    a, b = v.leaf("a"), v.leaf("b")
    shared = v("tanh", v("add", a, b))
    order = in_order([v("mul", shared, a), v("neg", shared)])
    assert len(set(order)) == len(order)
    for place, term in enumerate(order):
        assert all(order.index(operand) < place for operand in term.operands)
    assert {a, b, shared} <= set(order)


def test_the_start_of_a_product_is_an_operand() -> None:
    builder = StepBuilder()
    a, bias = builder.leaf("state", "a", 3), builder.leaf("vector", "b", 2)
    product = builder.product((a,), ("W",), 2, bias)
    assert product.operands == (a, bias)
    assert builder.product((a,), ("W",), 2, None).operands == (a,)


def test_sums(v: Values) -> None:
    a, b, c = (v.leaf(name) for name in "abc")
    assert v.builder.add([]) is None
    assert v.builder.add([a]) is a
    total = v.builder.add([a, b, c])
    assert total is not None
    torch.testing.assert_close(v.evaluate(total), sum(v.numbers[name] for name in "abc"))
