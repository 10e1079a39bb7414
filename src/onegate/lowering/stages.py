"""The order in which one step is computed, and what can be computed before the first step.

Whatever depends on no state is computed for all steps at once. Maps of the same vectors are one
product with their results side by side: in a GRU, all maps of x before the loop, and those of h
in z and r at every step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from onegate.language import Graph, Value, of_graph
from onegate.ops import OPERATIONS

Operands: TypeAlias = tuple[Value, ...]
Group: TypeAlias = tuple[Operands, bool]  # operands known before the loop; whether with biases


@dataclass(frozen=True, eq=False)
class MapProduct:
    """The recurrent part of some maps, results side by side.

    weights[i][j] is the key of the matrix from operands[i] to nodes[j]. Where there are no
    operands the maps are complete before the loop.
    """

    nodes: tuple[Value, ...]
    operands: Operands
    weights: tuple[tuple[str, ...], ...]

    @property
    def sizes(self) -> list[int]:
        """Width of each map's result."""
        return [node.size or 0 for node in self.nodes]


@dataclass(frozen=True, eq=False)
class Projection:
    """The part of some maps that is known before the loop, their biases included.

    weights[i][j] is the key of the matrix from operands[i] to the j-th map of all `products`;
    biases likewise, or empty. Where there are no operands the biases are all there is.
    """

    products: tuple[MapProduct, ...]
    operands: Operands
    weights: tuple[tuple[str, ...], ...]
    biases: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Stages:
    """What to compute before the loop, and what at each step, in order.

    A `Value` in it is a pointwise operation or a norm. given: the values of `before`, and the
    inputs, that the steps and the results use.
    """

    before: tuple[Projection | Value, ...]
    step: tuple[MapProduct | Value, ...]
    given: tuple[Value, ...]


@of_graph
def stages(graph: Graph) -> Stages:
    """The schedule of `graph`."""
    order = {node: place for place, node in enumerate(graph.nodes)}
    recurrent = recurrent_nodes(graph)

    def positions(node: Value, late: bool) -> list[int]:
        chosen = [i for i, a in enumerate(node.args) if (a in recurrent) is late]
        return sorted(chosen, key=lambda i: order[node.args[i]])

    def operands(node: Value, late: bool) -> Operands:
        return tuple(node.args[i] for i in positions(node, late))

    def weights(nodes: list[Value], late: bool) -> tuple[tuple[str, ...], ...]:
        keys = [[graph.maps[n].weights[i] for i in positions(n, late)] for n in nodes]
        return tuple(zip(*keys, strict=True))

    # Maps that are projected together, and among them those that share recurrent operands. A group
    # is placed where its first map stands: by then all of its operands are known.
    groups: dict[Group, dict[Operands, list[Value]]] = {}
    before: list[Group | Value] = []
    step: list[tuple[Group, Operands] | Value] = []
    for node in graph.nodes:
        if node.op in OPERATIONS:
            (step if node in recurrent else before).append(node)
        elif node.op == "affine":
            group = operands(node, late=False), graph.maps[node].bias is not None
            late = operands(node, late=True)
            if group not in groups:
                before.append(group)
            if late and late not in groups.get(group, {}):
                step.append((group, late))
            groups.setdefault(group, {}).setdefault(late, []).append(node)

    products = {
        (group, late): MapProduct(tuple(nodes), late, weights(nodes, late=True))
        for group, together in groups.items()
        for late, nodes in together.items()
    }

    def projection(group: Group) -> Projection:
        nodes = [node for together in groups[group].values() for node in together]
        biases = tuple(b for n in nodes if (b := graph.maps[n].bias) is not None)
        members = tuple(products[group, late] for late in groups[group])
        return Projection(members, group[0], weights(nodes, late=False), biases)

    used = {a for node in graph.nodes if node in recurrent for a in node.args} | {*graph.results}
    return Stages(
        before=tuple(s if isinstance(s, Value) else projection(s) for s in before),
        step=tuple(s if isinstance(s, Value) else products[s] for s in step),
        given=tuple(n for n in graph.nodes if n in used and n not in recurrent),
    )


def recurrent_nodes(graph: Graph) -> set[Value]:
    """The states, and all that is computed from them."""
    found = set(graph.states)
    for node in graph.nodes:
        if any(a in found for a in node.args):
            found.add(node)
    return found
