"""Step code: the expressions that the fused engine evaluates, forward and backward.

A `Term` is a vector expression over the step's leaves (input, states, parameters, gradients).
Besides the language's own operations it has a few fused ones, which make both directions short:

    lerp(g, a, b)     (1 - g) a + g b       muladd(a, b, c)     a b + c
    rest(g, a)        (1 - g) a             mulsub(a, b, c)     a b - c
    dsigmoid(g, s)    g s (1 - s)           negmuladd(a, b, c)  c - a b
    dtanh(g, y)       g (1 - y y)           drelu(g, y)         0 where y <= 0, else g

Each is computed as it is written here: a shorter form (a + g (b - a), say) would be infinite or
not a number where the equations are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

OPCODES = {
    name: code
    for code, name in enumerate(
        ("copy", "add", "sub", "mul", "neg", "sigmoid", "tanh", "relu", "lerp", "muladd",
         "mulsub", "negmuladd", "rest", "dsigmoid", "dtanh", "drelu", "reduce")
    )
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Term:
    """An expression; equal expressions of one `Builder` are the same object.

    A product has args = (its left-hand sides...) + (init,) if init is given, and the keys of its
    matrices in `weights`. A leaf has its name (or a constant its number) in `name` (`number`).
    """

    op: str
    args: tuple[Term, ...]
    size: int | None
    name: str = ""
    number: float = 0.0
    weights: tuple[str, ...] = ()
    init: Term | None = None

    @property
    def operands(self) -> tuple[Term, ...]:
        """Everything that must be computed before this."""
        return (*self.args, self.init) if self.init is not None else self.args


class Builder:
    """Makes terms, each once, simplifying on the way."""

    def __init__(self) -> None:
        self._made: dict[tuple[object, ...], Term] = {}

    def _make(
        self,
        op: str,
        args: tuple[Term, ...] = (),
        size: int | None = None,
        name: str = "",
        number: float = 0.0,
        weights: tuple[str, ...] = (),
        init: Term | None = None,
    ) -> Term:
        key = (op, args, name, number, weights, init)
        if key not in self._made:
            self._made[key] = Term(op, args, size, name, number, weights, init)
        return self._made[key]

    def leaf(self, op: str, name: str, size: int) -> Term:
        """An input, a state, a parameter vector, a new state or an incoming gradient."""
        return self._make(op, (), size, name)

    def constant(self, number: float) -> Term:
        """A number."""
        return self._make("constant", number=number)

    def product(
        self, args: tuple[Term, ...], weights: tuple[str, ...], size: int, init: Term | None
    ) -> Term:
        """Init plus each left-hand side times its matrix."""
        return self._make("product", args, size, weights=weights, init=init)

    def pointwise(self, op: str, *args: Term) -> Term:
        """An element-by-element operation; (1 - g) a + g b becomes lerp(g, a, b)."""
        size = next((a.size for a in args if a.size is not None), None)
        if op == "add" and (mix := self._lerp(*args)) is not None:
            return mix
        return self._make(op, args, size)

    def add(self, terms: Iterable[Term]) -> Term | None:
        """The sum, None for no terms."""
        total: Term | None = None
        for term in terms:
            total = term if total is None else self.pointwise("add", total, term)
        return total

    def over(self, term: Term, given: Callable[[Term], Term]) -> Term:
        """`term`, of what is given for each of its operands."""
        return self._make(
            term.op,
            tuple(given(a) for a in term.args),
            term.size,
            term.name,
            term.number,
            term.weights,
            None if term.init is None else given(term.init),
        )

    def _lerp(self, left: Term, right: Term) -> Term | None:
        if left.op != "mul" or right.op != "mul":
            return None
        for kept, new in ((left, right), (right, left)):
            for rest, a in (kept.args, kept.args[::-1]):
                for gate, b in (new.args, new.args[::-1]):
                    if _is_one_minus(rest, gate) and a.size and b.size and gate.size:
                        return self._make("lerp", (gate, a, b), gate.size)
        return None


def _is_one_minus(rest: Term, gate: Term) -> bool:
    return (
        rest.op == "sub"
        and rest.args[0].op == "constant"
        and rest.args[0].number == 1.0
        and rest.args[1] is gate
    )


def in_order(results: Iterable[Term]) -> list[Term]:
    """Everything that `results` need, operands first, each once."""
    done: dict[Term, None] = {}
    stack = [(r, False) for r in reversed(list(results))]
    while stack:
        term, ready = stack.pop()
        if term in done:
            continue
        if ready:
            done[term] = None
        else:
            stack.append((term, True))
            stack.extend((o, False) for o in reversed(term.operands))
    return list(done)


def fuse(builder: Builder, results: list[Term]) -> list[Term]:
    """Rewrites sums with a product in them, where nothing else needs that product."""
    order = in_order(results)
    uses = Counter(operand for term in order for operand in term.operands)
    uses.update(results)
    single = {term for term in order if uses[term] == 1 and term.size is not None}
    fused: dict[Term, Term] = {}
    for term in order:
        fused[term] = builder.over(_fused(term, single), fused.__getitem__)
    return [fused[r] for r in results]


def _fused(term: Term, single: set[Term]) -> Term:
    """`term` with a product, or the 1 - g of a product, drawn into it if it is in `single`."""

    def drawn_in(operand: Term, op: str) -> bool:
        return operand.op == op and operand in single

    if term.op == "add":
        left, right = term.args
        for product, other in ((right, left), (left, right)):
            if drawn_in(product, "mul"):
                return replace(term, op="muladd", args=(*product.args, other))
    elif term.op == "sub":
        left, right = term.args
        if drawn_in(right, "mul"):
            return replace(term, op="negmuladd", args=(*right.args, left))
        if drawn_in(left, "mul"):
            return replace(term, op="mulsub", args=(*left.args, right))
    elif term.op == "mul":
        for rest, other in (term.args, term.args[::-1]):
            if drawn_in(rest, "sub") and _is_one_minus(rest, rest.args[1]):
                return replace(term, op="rest", args=(rest.args[1], other))
    return term
