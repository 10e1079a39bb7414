"""What a unit's graph tells about it: its gates, what keeps its states, how much it learns."""

from __future__ import annotations

from dataclasses import dataclass

from onegate.language import Graph, Unit, Value, in_order
from onegate.ops import is_gate
from onegate.tracing import trace

# A sum of products: the factors that are not themselves sums or products -> their coefficient.
Polynomial = dict[tuple[Value, ...], float]
# More terms, or factors, are no gate's share of a state: they are left as they are.
_MOST_TERMS = 200


@dataclass(frozen=True)
class Bias:
    """The bias that drives a gate: raising it opens the gate (sign +1) or shuts it (-1).

    key: the parameter, None where the gate has no bias.
    """

    key: str | None
    sign: int


@dataclass(frozen=True)
class Retention:
    """How a unit keeps a state: the gate by which the old value reaches the new one.

    gate: its local name in `step`.
    keeps: raising this bias keeps more (sign +1: f of LSTM) or less (-1: f of MGU).
    writes: the same for what is written, where a gate of its own decides on that (i of LSTM);
        None where writing is coupled to keeping, or has no gate.
    """

    state: str
    gate: str
    keeps: Bias
    writes: Bias | None


def gates(graph: Graph) -> tuple[Value, ...]:
    """The sigmoids g that multiply something, as g, as 1 - g, or divided by something (minLSTM).

    Sigmoids whose arguments differ by a number only (JANET) are one gate.

    >>> len(gates(trace(UNITS["mgu"], 28, 100)))
    1
    """
    found: dict[frozenset[tuple[tuple[Value, ...], float]], Value] = {}
    for node in graph.nodes:
        if node.op not in ("mul", "div") or any(a.size is None for a in node.args):
            continue
        for factor in node.args:
            gate = _gate(_expand(factor))
            if gate:
                found.setdefault(_drive(gate[0]), gate[0])
    order = {node: position for position, node in enumerate(graph.nodes)}
    return tuple(sorted(found.values(), key=order.__getitem__))


def retention(graph: Graph) -> tuple[Retention, ...]:
    """Which gate keeps each state, and with which sign; states that no gate keeps are left out."""
    found = []
    for state, result in zip(graph.states, graph.results, strict=True):
        new = _expand(result)
        kept = _gate(_coefficient(new, state))
        if kept is None:
            continue
        gate, sign = kept
        writes = None
        for other, write_sign in _writers(new, state):
            if _drive(other) != _drive(gate):
                writes = _bias(graph, other, write_sign)
        name = graph.names.get(gate, "")
        found.append(Retention(state.name, name, _bias(graph, gate, sign), writes))
    return tuple(found)


def kept(graph: Graph) -> dict[str, Polynomial]:
    """By state, the share of its old value that a step keeps: what multiplies it in the new one.

    1 - f for MGU, f for the cell of LSTM, 0.95 for the context of SCRN. States whose old value
    reaches the new one through a matrix alone are left out.
    """
    found = {}
    for state, result in zip(graph.states, graph.results, strict=True):
        share = _coefficient(_expand(result), state)
        share = {factors: number for factors, number in share.items() if number}
        if share:
            found[state.name] = share
    return found


def _expand(root: Value) -> Polynomial:
    """`root` as a sum of products of values that are neither."""
    made: dict[Value, Polynomial] = {}
    for node in in_order((root,)):
        operands = [made[a] for a in node.args]
        found = _of_arithmetic(node, operands)
        made[node] = {(node,): 1.0} if found is None or len(found) > _MOST_TERMS else found
    return made[root]


def _of_arithmetic(node: Value, operands: list[Polynomial]) -> Polynomial | None:
    """A node of operands that are expanded; None for functions, and for products too long."""
    if node.op == "constant":
        return {(): node.number}
    if node.op == "neg":
        return {factors: -number for factors, number in operands[0].items()}
    if node.op in ("add", "sub"):
        left, right = operands
        sign = 1 if node.op == "add" else -1
        return {
            factors: left.get(factors, 0.0) + sign * right.get(factors, 0.0)
            for factors in left | right
        }
    if node.op == "mul":
        left, right = operands
        degree = max(map(len, left), default=0) + max(map(len, right), default=0)
        if max(len(left) * len(right), degree) > _MOST_TERMS:
            return None
        product: Polynomial = {}
        for some, number in left.items():
            for more, other in right.items():
                factors = tuple(sorted((*some, *more), key=id))
                product[factors] = product.get(factors, 0.0) + number * other
        return product
    return None


def _coefficient(polynomial: Polynomial, factor: Value) -> Polynomial:
    """What `factor` is multiplied by, where it enters linearly."""
    return {
        tuple(f for f in factors if f is not factor): number
        for factors, number in polynomial.items()
        if factors.count(factor) == 1
    }


def _gate(polynomial: Polynomial) -> tuple[Value, int] | None:
    """(g, +1) for a sigmoid g, (g, -1) for 1 - g, None for anything else."""
    terms = {factors: number for factors, number in polynomial.items() if number}
    factors = max(terms, key=len, default=())
    if len(factors) != 1 or not is_gate(factors[0].op):
        return None
    (gate,) = factors
    if terms == {factors: 1}:
        return gate, 1
    return (gate, -1) if terms == {(): 1, factors: -1} else None


def _writers(new: Polynomial, state: Value) -> list[tuple[Value, int]]:
    """The gates of the terms that do not hold the old state."""
    return [
        (factor, 1 if number > 0 else -1)
        for factors, number in new.items()
        if state not in factors and len(factors) > 1
        for factor in factors
        if is_gate(factor.op)
    ]


def _drive(gate: Value) -> frozenset[tuple[tuple[Value, ...], float]]:
    """What a sigmoid sees, but for numbers added to it."""
    return frozenset(term for term in _expand(gate.args[0]).items() if term[0])


def _bias(graph: Graph, gate: Value, sign: int) -> Bias:
    """The first bias, of a map or bare, that is added up in the gate's argument."""
    for factors, number in _expand(gate.args[0]).items():
        if len(factors) != 1:
            continue
        (term,) = factors
        key = graph.maps[term].bias if term.op == "affine" else None
        key = term.name if term.op == "vector" else key
        if key:
            return Bias(key, sign if number > 0 else -sign)
    return Bias(None, sign)


def parameter_count(
    unit: Unit, input_size: int, hidden_size: int, layers: int = 1, directions: int = 1
) -> int:
    """How many numbers a stack of layers of `unit` learns.

    >>> parameter_count(UNITS["mgu"], 28, 100)
    25800
    """
    first = trace(unit, input_size, hidden_size).parameter_count()
    above = trace(unit, directions * hidden_size, hidden_size).parameter_count()
    return directions * (first + (layers - 1) * above)
