"""Boxes of units: against Figure 1 of Zhou et al. (2016), and against the graph."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from matplotlib.mathtext import MathTextParser

from onegate.language import Affine, Graph, Unit, Value, Vector, relu, sigmoid, tanh
from onegate.notation import symbol, vector_name
from onegate.picture.diagram import Box, Diagram, diagram
from onegate.tracing import trace
from onegate.units import UNITS
from tests.library.comparing import X_ALONE

# Table 1 of Zhou et al. (2016), counted by hand: operation -> how often it is drawn.
FIGURE_1 = {
    "lstm": {r"\sigma": 3, r"\tanh": 2, r"\odot": 3, "+": 1},
    "lstm_coupled": {r"\sigma": 2, r"\tanh": 2, r"\odot": 3, "+": 1, "1{-}": 1},
    "gru": {r"\sigma": 2, r"\tanh": 1, r"\odot": 3, "+": 1, "1{-}": 1},
    "mgu": {r"\sigma": 1, r"\tanh": 1, r"\odot": 3, "+": 1, "1{-}": 1},
}
LEAVES = ("vector", "constant")


def computing(drawn: Diagram) -> list[Box]:
    return [box for box in drawn.boxes if box.kind not in ("state", "input", "result")]


def of(unit: Unit) -> Diagram:
    return diagram(trace(unit, 3, 5))


def shown(unit: Unit) -> list[tuple[str, tuple[str, ...], str]]:
    """Text, parameters and label of the boxes that compute."""
    return [(box.text, box.parameters, box.label) for box in computing(of(unit))]


@pytest.mark.parametrize("name", FIGURE_1)
def test_operations_are_those_of_figure_1(name: str) -> None:
    assert Counter(box.text for box in computing(of(UNITS[name]))) == FIGURE_1[name]


def test_parameters_and_names_stand_where_the_paper_has_them() -> None:
    assert shown(UNITS["mgu"])[0] == (r"\sigma", ("W_f", "b_f"), "f")
    assert (r"\tanh", ("W_h", "b_h"), r"\tilde{h}") in shown(UNITS["mgu"])
    assert (r"\tanh", ("W_c", "b_c"), r"\tilde{c}") in shown(UNITS["lstm"])
    assert (r"\sigma", ("W_o", "p_o", "b_o"), "o") in shown(UNITS["lstm_peephole"])
    assert (r"\sigma", ("U_f",), "f") in shown(UNITS["mgu2"])
    assert ("", ("U_h", "b_{U_h}"), "") in shown(UNITS["gru_reset_after"])
    assert [
        (b.kind, b.text) for b in of(UNITS["lstm"]).boxes if b not in computing(of(UNITS["lstm"]))
    ]


def test_states_and_input_enter_and_new_states_leave() -> None:
    boxes = of(UNITS["lstm"]).boxes
    assert [(b.kind, b.text) for b in boxes[:3]] == [
        ("state", "h_{t{-}1}"),
        ("state", "c_{t{-}1}"),
        ("input", "x_t"),
    ]
    assert [(b.kind, b.text) for b in boxes[-2:]] == [("result", "h_t"), ("result", "c_t")]


@pytest.mark.parametrize("name", X_ALONE)
def test_every_operation_is_in_one_box(name: str) -> None:
    graph = trace(UNITS[name], 3, 5)
    drawn = Counter(value for box in diagram(graph).boxes for value in box.values)
    assert drawn == Counter(node for node in graph.nodes if node.op not in LEAVES)


@pytest.mark.parametrize("name", X_ALONE)
def test_wires_are_the_operands(name: str) -> None:
    graph = trace(UNITS[name], 3, 5)
    boxes = diagram(graph).boxes
    for box in boxes:
        if box.values:
            assert {boxes[s].values[-1] for s in box.sources} == operands(box)
    results = [boxes[b.sources[0]].values[-1] for b in boxes if b.kind == "result"]
    assert tuple(results) == graph.results


def operands(box: Box) -> set[Value]:
    """What a box takes from others, read off the operations in it."""
    args = {a for value in box.values for a in value.args}
    return {a for a in args if a not in box.values and a.op not in LEAVES}


@pytest.mark.parametrize("name", X_ALONE)
def test_every_parameter_is_written_once(name: str) -> None:
    """In the list of its box; a vector also beside the sign of an operation that stands alone."""
    graph = trace(UNITS[name], 3, 5)
    boxes = diagram(graph).boxes
    written = Counter(text for box in boxes for text in box.parameters)
    for box in boxes:
        vectors_of = [a for v in box.values for a in v.args if a.op == "vector"]
        beside = [symbol(vector_name(a)) for a in vectors_of if box.kind == "operation"]
        assert all(text in box.text for text in beside)
        written.update(beside)
    biases = sum(used.bias is not None for used in graph.maps.values())
    vectors = sum(node.op == "vector" for node in graph.nodes)
    assert set(written.values()) <= {1}
    assert len(written) == len(graph.maps) + biases + vectors


class Shared(Unit):
    """A map that two activations use stands alone."""

    W = Affine()

    def step(self, x: Any, h: Any) -> Any:
        s = self.W[h, x]
        return sigmoid(s) * tanh(s)


class Folded(Unit):
    """Vectors and numbers on either side of every operation."""

    p = Vector()
    W = Affine(bias=False)

    def step(self, x: Any, h: Any) -> Any:
        a = relu(self.W[x])
        return (self.p + a) - (a * self.p) * (0.25 * h - 3) + (2 - a * -self.p) * (self.p - h)


class Misleading(Unit):
    """The name of a state for another value, and one that leaves at once."""

    W = Affine()

    def step(self, x: Any, h: Any) -> Any:
        gated = sigmoid(h)
        h = gated * h
        new = tanh(self.W[h, x])
        return new  # noqa: RET504 - the name is the point


def test_a_map_with_two_users_has_its_own_box() -> None:
    assert shown(Shared()) == [
        ("", ("W", "b_W"), "s"),
        (r"\sigma", (), ""),
        (r"\tanh", (), ""),
        (r"\odot", (), ""),
    ]


def test_vectors_and_numbers_stand_in_the_operation_that_uses_them() -> None:
    texts = {text for text, _, _ in shown(Folded())}
    assert texts >= {r"p{+}", r"p{\odot}", r"0.25{\times}", "{-}3", "2{-}", "p{-}", "{-}p"}


def test_names_that_would_mislead_are_left_out() -> None:
    assert [label for _, _, label in shown(Misleading())] == [
        "gated".join((r"\mathrm{", "}")),
        "",
        "",
    ]


def test_a_product_with_itself_has_two_wires_and_a_map_of_one_vector_one() -> None:
    class Square(Unit):
        W = Affine()

        def step(self, x: Any, h: Any) -> Any:
            return tanh(self.W[h, x, h]) + h * h

    boxes = of(Square()).boxes
    assert [b.sources for b in boxes if b.text == r"\odot"] == [(0, 0)]
    assert [b.sources for b in boxes if b.text == r"\tanh"] == [(0, 1)]


@pytest.mark.parametrize(
    ("name", "time", "text"),
    [
        ("f", "", "f"),
        ("W_f", "", "W_f"),
        ("alpha", "", r"\alpha"),
        ("out_gate", "", r"\mathrm{out}_{\mathrm{gate}}"),
        ("c_fast", "t", r"c_{\mathrm{fast},t}"),
        ("_", "t", r"\__t"),
    ],
)
def test_symbols(name: str, time: str, text: str) -> None:
    assert symbol(name, time) == text
    MathTextParser("path").parse(f"${symbol(name, time)}$")


def test_an_input_that_nothing_uses_is_not_drawn() -> None:
    class Deaf(Unit):
        def step(self, x: Any, h: Any) -> Any:
            return tanh(h)

    graph: Graph = trace(Deaf(), 3, 5)
    assert [box.kind for box in diagram(graph).boxes] == ["state", "activation", "result"]
