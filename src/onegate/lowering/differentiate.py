"""The forward and the backward step of a unit as step code.

Backward, by reverse-mode differentiation: given the gradients of the new states it yields the
gradients of the old ones, of the input where equations use it outside the maps, of the vectors,
and, for every affine map, the gradient at its output, from which the engine adds up the weights'
gradients over many steps at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from onegate.language import Graph, Value
from onegate.lowering.code import Builder, Term, fuse, in_order

# What the backward step takes from the forward step's store; all else it computes again.
KEPT = ("sigmoid", "tanh", "relu", "product")


@dataclass(frozen=True)
class MapGradient:
    """An affine map in the backward step: the gradient at its output, and its operands."""

    output: Term
    operands: tuple[Term, ...]
    weights: tuple[str, ...]
    bias: str | None


@dataclass(frozen=True)
class StepCode:
    """Both directions of a step.

    results: the new states. kept: terms of the forward step that are stored for the backward one;
    in the backward terms each stands as a leaf ("keep", its number), a new state as a leaf "next".
    grads: of the old states (None: zero). grad_input: of the input outside the maps.
    """

    results: tuple[Term, ...]
    kept: tuple[Term, ...]
    grads: tuple[Term | None, ...]
    grad_input: Term | None
    grad_vectors: tuple[tuple[str, Term], ...]
    maps: tuple[MapGradient, ...]


def step_code(graph: Graph) -> StepCode:
    """Forward and backward step of `graph`."""
    builder = Builder()
    terms: dict[Value, Term] = {}
    for node in graph.nodes:
        terms[node] = _term(builder, graph, node, terms)
    results = [terms[r] for r in graph.results]
    forward = in_order(results)
    return _Backward(builder, graph, forward, results).finish()


def _term(builder: Builder, graph: Graph, node: Value, terms: dict[Value, Term]) -> Term:
    if node.op == "constant":
        return builder.constant(node.number)
    if node.op in ("input", "state", "vector"):
        assert node.size is not None
        return builder.leaf(node.op, node.name, node.size)
    args = tuple(terms[a] for a in node.args)
    if node.op != "affine":
        return builder.pointwise(node.op, *args)
    used = graph.maps[node]
    assert node.size is not None
    init = None if used.bias is None else builder.leaf("vector", used.bias, node.size)
    return builder.product(args, used.weights, node.size, init)


class _Backward:
    def __init__(
        self, builder: Builder, graph: Graph, forward: list[Term], results: list[Term]
    ) -> None:
        self.b, self.graph, self.forward, self.results = builder, graph, forward, results
        # Contributions to the gradient of each forward term: plain terms, and products
        # (gradient at a map's output, weight key) that are done as one.
        self.plain: dict[Term, list[Term]] = {}
        self.through: dict[Term, list[tuple[Term, str]]] = {}
        self.gradient: dict[Term, Term] = {}
        self.active = self._depending()
        for result, state in zip(results, graph.states, strict=True):
            assert state.size is not None
            self._give(result, builder.leaf("grad", state.name, state.size))
        for term in reversed(forward):
            self._visit(term)

    def _depending(self) -> set[Term]:
        """Terms whose gradient is asked for: all but the constants."""
        active: set[Term] = set()
        for term in self.forward:
            if term.op in ("input", "state", "vector") or any(o in active for o in term.operands):
                active.add(term)
        return active

    def _give(self, term: Term, gradient: Term) -> None:
        if term in self.active:
            self.plain.setdefault(term, []).append(gradient)

    def _visit(self, term: Term) -> None:
        total = self.b.add(self.plain.get(term, ()))
        if through := self.through.get(term):
            assert term.size is not None
            gradients, weights = zip(*through, strict=True)
            total = self.b.product(gradients, weights, term.size, total)
        if total is None:
            return
        self.gradient[term] = total
        getattr(self, f"_{term.op}", self._leaf)(term, total)

    def _leaf(self, term: Term, g: Term) -> None:
        """Inputs, states and vectors: nothing lies behind them."""

    def _add(self, term: Term, g: Term) -> None:
        for a in term.args:
            self._give(a, g)

    def _sub(self, term: Term, g: Term) -> None:
        a, b = term.args
        self._give(a, g)
        if b in self.active:
            self._give(b, self.b.pointwise("neg", g))

    def _neg(self, term: Term, g: Term) -> None:
        self._give(term.args[0], self.b.pointwise("neg", g))

    def _mul(self, term: Term, g: Term) -> None:
        a, b = term.args
        if a in self.active:
            self._give(a, self.b.pointwise("mul", g, b))
        if b in self.active:
            self._give(b, self.b.pointwise("mul", g, a))

    def _lerp(self, term: Term, g: Term) -> None:
        gate, a, b = term.args
        if gate in self.active:
            to_rest = self.b.pointwise("mul", g, a)
            self._give(gate, self.b.pointwise("sub", self.b.pointwise("mul", g, b), to_rest))
        if a in self.active:
            self._give(a, self.b.pointwise("rest", gate, g))
        self._give(b, self.b.pointwise("mul", g, gate))

    def _sigmoid(self, term: Term, g: Term) -> None:
        self._give(term.args[0], self.b.pointwise("dsigmoid", g, term))

    def _tanh(self, term: Term, g: Term) -> None:
        self._give(term.args[0], self.b.pointwise("dtanh", g, term))

    def _relu(self, term: Term, g: Term) -> None:
        self._give(term.args[0], self.b.pointwise("drelu", g, term))

    def _product(self, term: Term, g: Term) -> None:
        for operand, key in zip(term.args, term.weights, strict=True):
            if operand.op != "input" and operand in self.active:
                self.through.setdefault(operand, []).append((g, key))

    def finish(self) -> StepCode:
        """Replaces forward terms in the gradients by what is stored, and gathers the results."""
        g = self.gradient
        grads = [self._of_leaf("state", s.name) for s in self.graph.states]
        grad_input = self._of_leaf("input", self.graph.input.name)
        biases = {m.bias for m in self.graph.maps.values()}
        learned = [t for t in self.forward if t.op in ("vector", "product") and t in g]
        vectors = [t for t in learned if t.op == "vector" and t.name not in biases]
        products = [t for t in learned if t.op == "product"]
        roots = [t for t in (*grads, grad_input) if t is not None]
        roots += [g[v] for v in vectors]
        for p in products:
            roots += [g[p], *p.args]
        store = _Store(self.b, self.results, self.graph)
        new = dict(zip(roots, fuse(self.b, store.replace(roots)), strict=True))
        forward = fuse(self.b, [*self.results, *store.kept])
        count = len(self.results)
        return StepCode(
            results=tuple(forward[:count]),
            kept=tuple(forward[count:]),
            grads=tuple(None if t is None else new[t] for t in grads),
            grad_input=None if grad_input is None else new[grad_input],
            grad_vectors=tuple((v.name, new[g[v]]) for v in vectors),
            maps=tuple(
                MapGradient(
                    new[g[p]],
                    tuple(new[a] for a in p.args),
                    p.weights,
                    None if p.init is None else p.init.name,
                )
                for p in products
            ),
        )

    def _of_leaf(self, op: str, name: str) -> Term | None:
        """The gradient of a leaf, None where no result depends on it."""
        leaves = (t for t in self.forward if t.op == op and t.name == name)
        return next((self.gradient[t] for t in leaves if t in self.gradient), None)


class _Store:
    """Turns forward terms inside backward ones into leaves: what was kept, the new states."""

    def __init__(self, builder: Builder, results: list[Term], graph: Graph) -> None:
        self.b = builder
        self.kept: list[Term] = []
        # A new state that is itself a leaf (a plain copy) is at hand anyway.
        self.next = {
            result: builder.leaf("next", state.name, state.size or 0)
            for result, state in reversed(list(zip(results, graph.states, strict=True)))
            if result.operands
        }
        self.made: dict[Term, Term] = {}

    def replace(self, roots: list[Term]) -> list[Term]:
        """The same terms over leaves that the backward step has."""
        return [self._get(r) for r in roots]

    def _get(self, term: Term) -> Term:
        if term not in self.made:
            self.made[term] = self._new(term)
        return self.made[term]

    def _new(self, term: Term) -> Term:
        if not term.operands:
            return term
        if term in self.next:
            return self.next[term]
        if term.op in KEPT and self._is_forward(term):
            if term not in self.kept:
                self.kept.append(term)
            return self.b.leaf("keep", str(self.kept.index(term)), term.size or 0)
        return self.b.over(term, self._get)

    def _is_forward(self, term: Term) -> bool:
        """Forward terms do not depend on a gradient."""
        return not any(t.op == "grad" for t in in_order([term]))
