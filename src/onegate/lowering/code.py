"""Step code: the expressions that engines evaluate, forward and backward.

They are the same values as those of a graph, with products for maps, and with the fused operations
of `onegate.ops`, which make both directions short.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from onegate.language import Builder, Value, in_order
from onegate.ops import OPERATIONS, is_norm


@dataclass(frozen=True, eq=False)
class NormStep:
    """A norm over the elements of a vector, or of several together.

    centre: their mean (None for RMS) and scale: the reciprocal deviation, numbers of the row.
    results: what becomes of each vector.
    """

    vectors: tuple[Value, ...]
    centre: Value | None
    scale: Value
    results: tuple[Value, ...]


class StepBuilder(Builder):
    """Makes values, simplifying on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.norms: dict[Value, NormStep] = {}  # by result
        self._made_norms: dict[object, NormStep] = {}

    def leaf(self, op: str, name: str, size: int) -> Value:
        """An input, a state, a parameter vector, a new state or an incoming gradient."""
        return self.make(op, (), size, name)

    def product(
        self, args: tuple[Value, ...], weights: tuple[str, ...], size: int, init: Value | None
    ) -> Value:
        """Init plus each left-hand side times its matrix."""
        return self.make("product", args, size, weights=weights, init=init)

    def pointwise(self, op: str, *operands: Any) -> Value:
        """An element-by-element operation; (1 - g) a + g b becomes lerp(g, a, b)."""
        args = tuple(self.value(v) for v in operands)
        if op == "add" and (mix := self._lerp(*args)) is not None:
            return mix
        if is_norm(op):
            return self._norm(op, *args)
        return super().pointwise(op, *args)

    def over_row(self, op: str, *args: Value, size: int | None = None) -> Value:
        """An operation with numbers of a row; size: of the result, if not of the first operand."""
        return self.make(op, args, 1 if -1 in OPERATIONS[op].narrow else size or args[0].size)

    def _norm(self, op: str, vector: Value, eps: Value, *others: Value) -> Value:
        """A norm over the elements of one or several vectors, which share all but the last step."""
        order = {made: place for place, made in enumerate(self.made.values())}
        together = tuple(sorted((vector, *others), key=order.__getitem__))
        norm = self._made_norms.get((op, together, eps))
        if norm is None:
            norm = self._made_norms[op, together, eps] = self._new_norm(op, together, eps)
            self.norms.update(dict.fromkeys(norm.results, norm))
        return norm.results[together.index(vector)]

    def _new_norm(self, op: str, vectors: tuple[Value, ...], eps: Value) -> NormStep:
        centre = None
        if op == "layer_norm":
            centre = self.mean_of((self.over_row("mean", v) for v in vectors), len(vectors))
            squares = [self.over_row("variance", v, centre) for v in vectors]
        else:
            squares = [self.over_row("mean_product", v, v) for v in vectors]
        scale = 1 / self.pointwise("sqrt", self.mean_of(squares, len(vectors)) + eps)
        results = tuple(self.scaled(v, centre, scale) for v in vectors)
        return NormStep(vectors, centre, scale, results)

    def scaled(self, v: Value, centre: Value | None, scale: Value) -> Value:
        """(v - centre) scale."""
        if centre is None:
            return self.over_row("scaled", v, scale)
        return self.over_row("normed", v, centre, scale)

    def mean_of(self, means: Iterable[Value], count: int) -> Value:
        """The mean of `count` vectors of one size together, by those means that are not zero."""
        total = self.add(means)
        assert total is not None
        return total if count == 1 else total * (1 / count)

    def add(self, terms: Iterable[Value]) -> Value | None:
        """The sum, None for no terms."""
        total: Value | None = None
        for term in terms:
            total = term if total is None else self.pointwise("add", total, term)
        return total

    def over(self, term: Value, given: Callable[[Value], Value]) -> Value:
        """`term`, of what is given for each of its operands."""
        return self.make(
            term.op,
            tuple(given(a) for a in term.args),
            term.size,
            term.name,
            term.number,
            term.weights,
            None if term.init is None else given(term.init),
        )

    def _lerp(self, left: Value, right: Value) -> Value | None:
        if left.op != "mul" or right.op != "mul":
            return None
        for kept, new in ((left, right), (right, left)):
            for rest, a in (kept.args, kept.args[::-1]):
                for gate, b in (new.args, new.args[::-1]):
                    if _is_one_minus(rest, gate) and a.size and b.size and gate.size:
                        return self.make("lerp", (gate, a, b), gate.size)
        return None


def _is_one_minus(rest: Value, gate: Value) -> bool:
    return (
        rest.op == "sub"
        and rest.args[0].op == "constant"
        and rest.args[0].number == 1.0
        and rest.args[1] is gate
    )


def fuse(builder: StepBuilder, results: list[Value]) -> list[Value]:
    """Rewrites sums with a product in them, where nothing else needs that product."""
    order = in_order(results)
    uses = Counter(operand for term in order for operand in term.operands)
    uses.update(results)
    single = {term for term in order if uses[term] == 1 and term.size is not None}
    fused: dict[Value, Value] = {}
    for term in order:
        fused[term] = builder.over(_fused(builder, term, single), fused.__getitem__)
    return [fused[r] for r in results]


def _fused(builder: Builder, term: Value, single: set[Value]) -> Value:
    """`term` with a product, or the 1 - g of a product, drawn into it if it is in `single`."""

    def drawn_in(operand: Value, op: str) -> bool:
        return operand.op == op and operand in single

    if term.op == "add":
        left, right = term.args
        for product, other in ((right, left), (left, right)):
            if drawn_in(product, "mul"):
                return builder.make("muladd", (*product.args, other), term.size)
    elif term.op == "sub":
        left, right = term.args
        if drawn_in(right, "mul"):
            return builder.make("negmuladd", (*right.args, left), term.size)
        if drawn_in(left, "mul"):
            return builder.make("mulsub", (*left.args, right), term.size)
    elif term.op == "mul":
        for rest, other in (term.args, term.args[::-1]):
            if drawn_in(rest, "sub") and _is_one_minus(rest, rest.args[1]):
                return builder.make("rest", (rest.args[1], other), term.size)
    return term
