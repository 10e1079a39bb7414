"""The forward and the backward step of a unit as step code.

Backward, by reverse-mode differentiation: given the gradients of the new states it yields the
gradients of the old ones, of the input where equations use it outside the maps, of the vectors,
and, for every affine map, the gradient at its output, from which the engine adds up the weights'
gradients over many steps at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from onegate.expressions import Graph, Value
from onegate.graph.code import Builder, Term, fuse, in_order

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
    backward = _Backward(builder, graph, forward, results)
    kept, outputs = backward.finish()
    count = len(results)
    fused = fuse(builder, [*results, *kept])
    return StepCode(tuple(fused[:count]), tuple(fused[count:]), *outputs)


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
        to_b = self.b.pointwise("mul", g, gate)
        if gate in self.active:
            self._give(gate, self.b.pointwise("mul", g, self.b.pointwise("sub", b, a)))
        if a in self.active:
            self._give(a, self.b.pointwise("sub", g, to_b))
        self._give(b, to_b)

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

    def finish(
        self,
    ) -> tuple[
        list[Term],
        tuple[
            tuple[Term | None, ...],
            Term | None,
            tuple[tuple[str, Term], ...],
            tuple[MapGradient, ...],
        ],
    ]:
        """Replaces forward terms in the gradients by what is stored, and gathers the results."""
        g = self.gradient
        states = [t for s in self.graph.states for t in self._leaves("state", s.name)]
        by_name = {t.name: g.get(t) for t in states}
        grads = [by_name.get(s.name) for s in self.graph.states]
        inputs = [g.get(t) for t in self._leaves("input", self.graph.input.name)]
        biases = {m.bias for m in self.graph.maps.values()}
        vectors = [(t, g[t]) for t in self.forward if t.op == "vector" and t in g]
        vectors = [(t, d) for t, d in vectors if t.name not in biases]
        products = [t for t in self.forward if t.op == "product" and t in g]
        store = _Store(self.b, self.results, self.graph)
        roots: list[Term] = [t for t in [*grads, *inputs] if t is not None]
        roots += [d for _, d in vectors]
        for p in products:
            roots += [g[p], *p.args]
        replaced = store.replace(roots)
        new = dict(zip(roots, fuse(self.b, replaced), strict=True))
        maps = tuple(
            MapGradient(
                new[g[p]],
                tuple(new[a] for a in p.args),
                p.weights,
                None if p.init is None else p.init.name,
            )
            for p in products
        )
        out = (
            tuple(None if t is None else new[t] for t in grads),
            next((new[t] for t in inputs if t is not None), None),
            tuple((t.name, new[d]) for t, d in vectors),
            maps,
        )
        return store.kept, out

    def _leaves(self, op: str, name: str) -> list[Term]:
        return [t for t in self.forward if t.op == op and t.name == name]


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
        return self.b._make(
            term.op,
            tuple(self._get(a) for a in term.args),
            term.size,
            term.name,
            term.number,
            term.weights,
            None if term.init is None else self._get(term.init),
        )

    def _is_forward(self, term: Term) -> bool:
        """Forward terms do not depend on a gradient."""
        return not any(t.op == "grad" for t in in_order([term]))
