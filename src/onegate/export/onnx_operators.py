"""Which units are what ONNX calls GRU, LSTM and RNN: found from the equations, not by name.

A gate may stand in a unit as f or as 1 - f: 1 - sigmoid(a) is sigmoid(-a), so the operator is given
the negated maps. The minimal gated unit is thus a GRU whose two gates share one map:

    f = sigmoid(W_f[h, x])                        r = f,  z = 1 - f
    h' = (1 - f) h + f tanh(W_h[f h, x])          h' = z h + (1 - z) tanh(W_h[r h, x])
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from onegate.language import Graph, Value, of_graph

# Functions that the operators have, by the names of onegate.ops; "" is none at all.
ACTIVATIONS: Final = {
    "": "Affine",
    "relu": "Relu",
    "sigmoid": "Sigmoid",
    "softplus": "Softplus",
    "tanh": "Tanh",
}

_Terms: TypeAlias = list[tuple[float, Value]]  # a sum, each term with its sign


@dataclass(frozen=True)
class Linear:
    """A sum of matrices times vectors, learned vectors times vectors, biases and numbers.

    A matrix without a key is the identity. Factors are 1 or -1.
    """

    matrices: tuple[tuple[float, str, Value], ...] = ()
    scaled: tuple[tuple[float, str, Value], ...] = ()
    biases: tuple[tuple[float, str], ...] = ()
    number: float = 0.0

    def negated(self) -> Linear:
        return Linear(
            tuple((-s, key, v) for s, key, v in self.matrices),
            tuple((-s, key, v) for s, key, v in self.scaled),
            tuple((-s, key) for s, key in self.biases),
            -self.number,
        )

    def sees(self, *operands: Value, scaled: tuple[Value, ...] = ()) -> bool:
        """Whether it sees these values alone, through matrices or scaled by vectors."""
        through = {v for _, _, v in self.matrices}
        return through <= {*operands} and {v for _, _, v in self.scaled} <= {*scaled}


@dataclass(frozen=True)
class Row:
    """One map of an operator: what it makes of the input, and what of the state before."""

    given: Linear
    recurrent: Linear


@dataclass(frozen=True)
class Operator:
    """A unit as a standard operator; rows in the operator's own order."""

    name: str
    rows: tuple[Row, ...]
    activations: tuple[str, ...]
    attributes: dict[str, int] = field(default_factory=dict)

    @property
    def has_peepholes(self) -> bool:
        return any(row.recurrent.scaled for row in self.rows)


@of_graph
def operator(graph: Graph) -> tuple[Operator | None]:
    """The standard operator that computes what `graph` does, in a tuple; None where none does."""
    finders = {1: (_rnn, _gru), 2: (_lstm,)}.get(len(graph.states), ())
    for find in finders:
        for found in find(graph):
            return (found,)
    return (None,)


def _rnn(graph: Graph) -> Iterator[Operator]:
    """h' = function(W[h, x])."""
    for function, inner in _activated(graph.results[0]):
        sum_ = _linear(graph, _terms(inner))
        if sum_ is not None and sum_.sees(graph.input, *graph.states):
            yield Operator("RNN", (Row(sum_, sum_),), (function,))


def _gru(graph: Graph) -> Iterator[Operator]:
    """h' = z h + (1 - z) function(...), with a reset gate before or after the matrix."""
    (h,), x = graph.states, graph.input
    for keeping, kept, new in mixes(graph.results[0]):
        z = _gate(graph, keeping)
        if kept is not h or z is None or not z.sees(x, h):
            continue
        for function, inner in _activated(new):
            for r, candidate, after in (*_reset_before(graph, inner), *_reset_after(graph, inner)):
                if r.sees(x, h):
                    rows = Row(z, z), Row(r, r), candidate
                    yield Operator(
                        "GRU", rows, ("sigmoid", function), {"linear_before_reset": int(after)}
                    )


def _reset_before(graph: Graph, inner: Value) -> Iterator[tuple[Linear, Row, bool]]:
    """W[r h, x]; a candidate that sees no state goes with any gate."""
    h, x = graph.states[0], graph.input
    candidate = _linear(graph, _terms(inner))
    if candidate is None or candidate.scaled:
        return
    recurrent = {v for _, _, v in candidate.matrices} - {x}
    if not recurrent:
        yield Linear(), Row(candidate, candidate), False
    elif len(recurrent) == 1:
        for gate, other in _factors(recurrent.pop()):
            if other is h and (r := _gate(graph, gate)) is not None:
                yield r, Row(candidate, candidate), False


def _reset_after(graph: Graph, inner: Value) -> Iterator[tuple[Linear, Row, bool]]:
    """W[x] + r U[h]."""
    terms = _terms(inner)
    for place, (sign, term) in enumerate(terms):
        given = _linear(graph, terms[:place] + terms[place + 1 :])
        for gate, other in _factors(term):
            r, recurrent = _gate(graph, gate), _linear(graph, _terms(other, sign))
            if given is None or r is None or recurrent is None:
                continue
            if given.sees(graph.input) and recurrent.sees(graph.states[0]):
                yield r, Row(given, recurrent), True


def _lstm(graph: Graph) -> Iterator[Operator]:
    """c' = f c + i function(W[h, x]), h' = o function(c'), with or without peepholes."""
    (h, c), x, (output, cell) = graph.states, graph.input, graph.results
    if cell.op != "add":
        return
    for left, right in (cell.args, cell.args[::-1]):
        for forget, kept in _factors(left):
            f = _gate(graph, forget)
            if kept is not c or f is None or not f.sees(x, h, scaled=(c,)):
                continue
            for write, new in _factors(right):
                i = _gate(graph, write)
                if i is None or not i.sees(x, h, scaled=(c,)):
                    continue
                for inside, inner in _activated(new):
                    candidate = _linear(graph, _terms(inner))
                    if candidate is None or not candidate.sees(x, h):
                        continue
                    for show, shown in _factors(output):
                        o = _gate(graph, show)
                        outside = [name for name, inner in _activated(shown) if inner is cell]
                        if o is None or not outside or not o.sees(x, h, scaled=(cell,)):
                            continue
                        rows = tuple(Row(one, one) for one in (i, o, f, candidate))
                        yield Operator("LSTM", rows, ("sigmoid", inside, outside[0]))


def _activated(value: Value) -> Iterator[tuple[str, Value]]:
    """A function of the operators and its operand; every value is the identity of itself."""
    if value.op in ACTIVATIONS:
        yield value.op, value.args[0]
    yield "", value


def mixes(value: Value) -> Iterator[tuple[Value, Value, Value]]:
    """The ways to read a value as g a + (1 - g) b: g, a, b. Either factor may be written 1 - f."""
    if value.op != "add":
        return
    for left, right in (value.args, value.args[::-1]):
        for gate, a in _factors(left):
            for rest, b in _factors(right):
                if is_rest(rest, gate) or is_rest(gate, rest):
                    yield gate, a, b


def _factors(value: Value) -> Iterator[tuple[Value, Value]]:
    if value.op == "mul":
        yield value.args[0], value.args[1]
        yield value.args[1], value.args[0]


def is_rest(value: Value, gate: Value) -> bool:
    """Whether `value` is 1 - gate."""
    if value.op != "sub":
        return False
    one, other = value.args
    return one.op == "constant" and one.number == 1.0 and other is gate


def _gate(graph: Graph, value: Value) -> Linear | None:
    """What a sigmoid is of; 1 - sigmoid(a) is sigmoid(-a)."""
    if value.op == "sigmoid":
        return _linear(graph, _terms(value.args[0]))
    if value.op == "sub" and is_rest(value, value.args[1]):
        inner = _gate(graph, value.args[1])
        return None if inner is None else inner.negated()
    return None


def _terms(value: Value, sign: float = 1.0) -> _Terms:
    """What a value is the sum of."""
    if value.op == "add":
        return _terms(value.args[0], sign) + _terms(value.args[1], sign)
    if value.op == "sub":
        return _terms(value.args[0], sign) + _terms(value.args[1], -sign)
    if value.op == "neg":
        return _terms(value.args[0], -sign)
    return [(sign, value)]


def _linear(graph: Graph, terms: _Terms) -> Linear | None:
    """The sum of `terms`, None where one of them is not linear in what an operator sees."""
    total = Linear()
    for sign, term in terms:
        added = _with(total, graph, sign, term)
        if added is None:
            return None
        total = added
    return total


def _with(total: Linear, graph: Graph, sign: float, term: Value) -> Linear | None:
    if term.op == "affine":
        used = graph.maps[term]
        operands = zip(used.weights, used.operands, strict=True)
        bias = () if used.bias is None else ((sign, used.bias),)
        return replace(
            total,
            matrices=(*total.matrices, *((sign, key, v) for key, v in operands)),
            biases=total.biases + bias,
        )
    if term.op in ("input", "state"):
        return replace(total, matrices=(*total.matrices, (sign, "", term)))
    if term.op == "vector":
        return replace(total, biases=(*total.biases, (sign, term.name)))
    if term.op == "constant":
        return replace(total, number=total.number + sign * term.number)
    for vector, other in _factors(term):
        if vector.op == "vector" and other.op not in ("vector", "constant"):
            return replace(total, scaled=(*total.scaled, (sign, vector.name, other)))
    return None
