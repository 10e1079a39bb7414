"""A unit's graph as boxes and wires: what its picture shows, before anything has a place.

An activation stands in one box with the affine maps that feed it alone, as in Figure 1 of
Zhou et al. (2016); learned vectors and numbers stand inside the box of the operation that uses
them. Texts are mathtext, as matplotlib sets it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from onegate.language import Graph, Value
from onegate.notation import Name, Notation, bias_name, matrix_name, symbol, vector_name
from onegate.ops import OPERATIONS, is_function, is_norm

_LEAVES = ("vector", "constant")


@dataclass(frozen=True)
class Box:
    """A rectangle of the picture.

    kind: "state" and "input" enter, "result" leaves; "activation", "map" and "operation" compute.
    text: the operation, or the name of what enters or leaves.
    parameters: what is learned in it.
    values: the operations of the graph that it shows; its output is the last one.
    sources: for each of its inputs, the place in `Diagram.boxes` of the box it comes from.
    label: the name of its output in the equations, "" where there is none.
    """

    kind: str
    text: str
    parameters: tuple[str, ...]
    values: tuple[Value, ...]
    sources: tuple[int, ...]
    label: str = ""

    @property
    def role(self) -> str:
        """What makes the output: the role of an operation, or input, state or affine."""
        row = OPERATIONS.get(self.op)
        return self.op if row is None else row.role

    @property
    def op(self) -> str:
        """The operation that makes the output; "" for a result, which computes nothing."""
        return self.values[-1].op if self.values else ""


@dataclass(frozen=True)
class Diagram:
    """Boxes, sources before the boxes that use them; each input of a box is one wire."""

    boxes: tuple[Box, ...]

    def targets(self, source: int) -> tuple[tuple[int, int], ...]:
        """Where the output of a box goes: (box, which of its inputs)."""
        return tuple(
            (place, slot)
            for place, box in enumerate(self.boxes)
            for slot, origin in enumerate(box.sources)
            if origin == source
        )


def diagram(graph: Graph) -> Diagram:
    """The boxes of a graph: states and input first, then operations, then the new states."""
    inside = _absorbed(graph)
    names = {node: _label(name) for node, name in Notation.of(graph).names.items()}
    boxes: list[Box] = []
    place: dict[Value, int] = {}
    for state in graph.states:
        place[state] = len(boxes)
        boxes.append(Box("state", symbol(state.name, "t{-}1"), (), (state,), ()))
    for given in graph.inputs:
        if any(given in node.args for node in graph.nodes) or given in graph.results:
            place[given] = len(boxes)
            boxes.append(Box("input", symbol(given.name, "t"), (), (given,), ()))
    for node in graph.nodes:
        if node.args and node not in inside:
            place[node] = len(boxes)
            boxes.append(_box(graph, node, inside, place, names))
    for state, result in zip(graph.states, graph.results, strict=True):
        boxes.append(Box("result", symbol(state.name, "t"), (), (), (place[result],)))
    return Diagram(tuple(boxes))


def _absorbed(graph: Graph) -> Mapping[Value, Value]:
    """Operations that stand in the box of the activation they feed: operation -> activation."""
    uses = Counter(a for node in graph.nodes for a in node.args)
    uses.update(graph.results)
    inside: dict[Value, Value] = {}
    for node in graph.nodes:
        if is_function(node.op):
            inner = _learned_sum(node.args[0], uses)
            inside.update(dict.fromkeys(inner or (), node))
    return inside


def _learned_sum(value: Value, uses: Counter[Value]) -> list[Value] | None:
    """The operations of a sum of affine maps and peepholes that has one user; None if it is not.

    Each input of such a sum meets parameters of its own, so that nothing is lost when the
    parameters are listed in one box: `sigmoid(W[h, x] + p * c)`.
    """
    if value.op == "vector":
        return []
    if uses[value] > 1:
        return None
    if value.op == "affine":
        return [value]
    if value.op == "mul" and [a.op for a in value.args].count("vector") == 1:
        return [value]
    if value.op == "add":
        parts = [_learned_sum(a, uses) for a in value.args]
        if all(part is not None for part in parts):
            return [v for part in parts for v in part or ()] + [value]
    return None


def _box(
    graph: Graph,
    node: Value,
    inside: Mapping[Value, Value],
    place: Mapping[Value, int],
    names: Mapping[Value, str],
) -> Box:
    values = (*(v for v in graph.nodes if inside.get(v) is node), node)
    operands = [a for v in values for a in v.args if a not in values]
    sources = tuple(place[a] for a in operands if a.op not in _LEAVES)
    if is_function(node.op) or node.op == "affine":  # h * h needs both wires; a map takes h once
        sources = tuple(dict.fromkeys(sources))
    # The name of a new state stands where it leaves the unit; a gate that is a state has both.
    is_gate = is_function(node.op) and any(node in v.args for v in graph.nodes)
    label = names.get(node, "") if is_gate or node not in graph.results else ""
    if is_function(node.op):
        parameters = _parameters(graph, values)
        return Box("activation", OPERATIONS[node.op].sign, parameters, values, sources, label)
    if node.op == "affine":
        return Box("map", "", _parameters(graph, values), values, sources, label)
    return Box("operation", _operation(node), (), values, sources, label)


def _parameters(graph: Graph, values: tuple[Value, ...]) -> tuple[str, ...]:
    """Matrices, then peepholes, then biases: W_f, p_f, b_f."""
    maps = [graph.maps[v] for v in values if v in graph.maps]
    leaves = [a for v in values if not is_norm(v.op) for a in v.args if a.op in _LEAVES]
    return (
        *(symbol(matrix_name(m)) for m in maps),
        *(_leaf(a) for a in leaves),
        *(symbol(bias) for m in maps if (bias := bias_name(m))),
    )


def _operation(node: Value) -> str:
    """The text of a pointwise operation; a learned vector or a number stands where it is used."""
    sign = OPERATIONS[node.op].sign
    leaves = [_leaf(a) if a.op in _LEAVES else "" for a in node.args]
    if not any(leaves):
        return sign
    if node.op == "mul" and all(a.op != "vector" for a in node.args):
        sign = r"\times"
    if node.op in ("add", "mul") and not leaves[0]:
        leaves.reverse()
    before, after = leaves if len(leaves) == 2 else ("", leaves[0])
    # Braces keep the sign from taking the space of a sign between two operands.
    return f"{before}{{{sign}}}{after}"


def _leaf(value: Value) -> str:
    return symbol(vector_name(value)) if value.op == "vector" else f"{value.number:.4g}"


def _label(name: Name) -> str:
    """A name as mathtext; a candidate for the state h is the paper's h with a tilde."""
    return symbol(name.word, tilde=name.candidate)
