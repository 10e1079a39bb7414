"""The forward and the backward step of a unit as step code.

Backward, by reverse-mode differentiation: given the gradients of the new states it yields the
gradients of the old ones, of the input where equations use it outside the maps, of the vectors,
and, for every affine map, the gradient at its output, from which the engine adds up the weights'
gradients over many steps at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from onegate.language import Graph, Value, in_order
from onegate.lowering.code import NormStep, StepBuilder, fuse
from onegate.ops import OPERATIONS


@dataclass(frozen=True)
class MapGradient:
    """An affine map in the backward step: the gradient at its output, and its operands."""

    output: Value
    operands: tuple[Value, ...]
    weights: tuple[str, ...]
    bias: str | None


@dataclass(frozen=True)
class StepCode:
    """Both directions of a step.

    results: the new states. kept: terms of the forward step that are stored for the backward one;
    in the backward terms each stands as a leaf ("keep", its number), a new state as a leaf "next".
    grads: of the old states (None: zero). grad_inputs: of the inputs outside the maps (None: none).
    """

    results: tuple[Value, ...]
    kept: tuple[Value, ...]
    grads: tuple[Value | None, ...]
    grad_inputs: tuple[Value | None, ...]
    grad_vectors: tuple[tuple[str, Value], ...]
    maps: tuple[MapGradient, ...]


def step_code(graph: Graph) -> StepCode:
    """Forward and backward step of `graph`."""
    builder = StepBuilder()
    terms: dict[Value, Value] = {}
    for node in graph.nodes:
        terms[node] = _term(builder, graph, node, terms)
    results = [terms[r] for r in graph.results]
    forward = in_order(results)
    return _Backward(builder, graph, forward, results).finish()


def _term(builder: StepBuilder, graph: Graph, node: Value, terms: dict[Value, Value]) -> Value:
    if node.op == "constant":
        return builder.constant(node.number)
    if node.op in ("input", "mask", "state", "vector"):
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
        self, builder: StepBuilder, graph: Graph, forward: list[Value], results: list[Value]
    ) -> None:
        self.b, self.graph, self.forward, self.results = builder, graph, forward, results
        # Contributions to the gradient of each forward term: plain terms, and products
        # (gradient at a map's output, weight key) that are done as one.
        self.plain: dict[Value, list[Value]] = {}
        self.through: dict[Value, list[tuple[Value, str]]] = {}
        self.gradient: dict[Value, Value] = {}
        self.waiting: dict[NormStep, set[Value]] = {}  # results that are yet to be visited
        self.active = self._depending()
        for result, state in zip(results, graph.states, strict=True):
            assert state.size is not None
            self._give(result, builder.leaf("grad", state.name, state.size))
        for term in reversed(forward):
            self._visit(term)

    def _depending(self) -> set[Value]:
        """Values whose gradient is asked for: all but constants and masks."""
        active: set[Value] = set()
        for term in self.forward:
            if term.op in ("input", "state", "vector") or any(o in active for o in term.operands):
                active.add(term)
        return active

    def _give(self, term: Value, gradient: Value) -> None:
        if term in self.active:
            self.plain.setdefault(term, []).append(gradient)

    def _visit(self, term: Value) -> None:
        total = self.b.add(self.plain.get(term, ()))
        if through := self.through.get(term):
            assert term.size is not None
            gradients, weights = zip(*through, strict=True)
            total = self.b.product(gradients, weights, term.size, total)
        if total is not None:
            self.gradient[term] = total
        if term in self.b.norms:
            self._norm(term, self.b.norms[term])
        elif total is None:
            pass
        elif term.op == "product":
            self._product(term, total)
        elif term.op in OPERATIONS:
            derivative = OPERATIONS[term.op].derivative
            assert derivative is not None, f"{term.op} stands in a forward step"
            for operand, given in zip(term.args, derivative(total, term, *term.args), strict=True):
                self._give(operand, given)

    def _product(self, term: Value, g: Value) -> None:
        for operand, key in zip(term.args, term.weights, strict=True):
            if operand.op != "input" and operand in self.active:
                self.through.setdefault(operand, []).append((g, key))

    def _norm(self, term: Value, norm: NormStep) -> None:
        """At the last result to be visited: a share of all gradients for each vector.

        scale (g - mean g - y mean(g y)), over all vectors; the mean of g is left out for RMS.
        """
        self.waiting.setdefault(norm, {t for t in self.forward if self.b.norms.get(t) is norm})
        self.waiting[norm].discard(term)
        given = {y: self.gradient[y] for y in norm.results if y in self.gradient}
        if self.waiting[norm] or not given:
            return
        b, count = self.b, len(norm.results)
        zero = b.constant(0.0)
        slope = b.mean_of((b.over_row("mean_product", g, y) for y, g in given.items()), count)
        slope = slope * norm.scale
        mean = b.mean_of((b.over_row("mean", g) for g in given.values()), count)
        for vector, y in zip(norm.vectors, norm.results, strict=True):
            g = given.pop(y, zero)  # a vector may be there twice
            centred = b.over_row("scaled", g, norm.scale, size=vector.size)
            if norm.centre is not None:
                centred = b.over_row("normed", g, mean, norm.scale, size=vector.size)
            self._give(vector, b.over_row("minus_scaled", centred, y, slope))

    def finish(self) -> StepCode:
        """Replaces forward terms in the gradients by what is stored, and gathers the results."""
        g = self.gradient
        grads = [self._of_leaf("state", s.name) for s in self.graph.states]
        grad_inputs = [self._of_leaf("input", i.name) for i in self.graph.inputs]
        biases = {m.bias for m in self.graph.maps.values()}
        learned = [t for t in self.forward if t.op in ("vector", "product") and t in g]
        vectors = [t for t in learned if t.op == "vector" and t.name not in biases]
        products = [t for t in learned if t.op == "product"]
        roots = [t for t in (*grads, *grad_inputs) if t is not None]
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
            grad_inputs=tuple(None if t is None else new[t] for t in grad_inputs),
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

    def _of_leaf(self, op: str, name: str) -> Value | None:
        """The gradient of a leaf, None where no result depends on it."""
        leaves = (t for t in self.forward if t.op == op and t.name == name)
        return next((self.gradient[t] for t in leaves if t in self.gradient), None)


class _Store:
    """Turns forward terms inside backward ones into leaves: what was kept, the new states."""

    def __init__(self, builder: StepBuilder, results: list[Value], graph: Graph) -> None:
        self.b = builder
        norms = builder.norms.values()
        self.row_numbers: set[Value | None] = {norm.scale for norm in norms}
        self.row_numbers.update(norm.centre for norm in norms)
        self.kept: list[Value] = []
        # A new state that is itself a leaf (a plain copy) is at hand anyway.
        self.next = {
            result: builder.leaf("next", state.name, state.size or 0)
            for result, state in reversed(list(zip(results, graph.states, strict=True)))
            if result.operands
        }
        self.made: dict[Value, Value] = {}
        self.of_norms = self._of_norms(in_order(results))

    def _of_norms(self, forward: list[Value]) -> set[Value]:
        """Norms, and what follows from them and what is at hand by functions and arithmetic.

        To compute it again takes less time than to write and read it.
        """
        found: set[Value] = set()
        for term in forward:
            new = [o for o in term.operands if o.operands and o not in self.next]
            follows = term.op != "product" and new and found.issuperset(new)
            if term in self.b.norms or follows:
                found.add(term)
        return found

    def replace(self, roots: list[Value]) -> list[Value]:
        """The same terms over leaves that the backward step has."""
        return [self._get(r) for r in roots]

    def _get(self, root: Value) -> Value:
        """Operands first, without calls within calls: equations may be deep."""
        stack = [root]
        while stack:
            term = stack[-1]
            if term not in self.made:
                leaf = self._leaf(term)
                missing = [o for o in term.operands if leaf is None and o not in self.made]
                if missing:
                    stack += reversed(missing)
                    continue
                made = self.b.over(term, self.made.__getitem__) if leaf is None else leaf
                self.made[term] = made
            stack.pop()
        return self.made[root]

    def _leaf(self, term: Value) -> Value | None:
        """What the backward step has in place of a forward term; None if it computes it."""
        if not term.operands:
            return term
        if term in self.next:
            return self.next[term]
        if self._is_kept(term) and self._is_forward(term):
            if term not in self.kept:
                self.kept.append(term)
            return self.b.leaf("keep", str(self.kept.index(term)), term.size or 0)
        return None

    def _is_forward(self, term: Value) -> bool:
        """Forward terms do not depend on a gradient."""
        return not any(t.op == "grad" for t in in_order([term]))

    def _is_kept(self, term: Value) -> bool:
        """Whether the backward step finds it in the forward step's store."""
        if term in self.of_norms:
            return False
        return term.op == "product" or term in self.row_numbers or OPERATIONS[term.op].kept
