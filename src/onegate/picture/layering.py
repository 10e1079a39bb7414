"""The layers of a diagram from left to right, and its highway.

Layers follow the longest path from what enters the unit. The highway is the way of the state that
the unit keeps to its new value; it runs straight along the top.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from onegate.picture.diagram import Diagram


@dataclass(frozen=True)
class Frame:
    """What every placement of a diagram shares.

    layers: of each box. highway: the boxes on row 0, from the state to its new value.
    rows: how many there are; the input stands on a row below them.
    """

    diagram: Diagram
    layers: tuple[int, ...]
    highway: tuple[int, ...]
    rows: int

    @cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Source and target of each wire."""
        return tuple((s, t) for t, box in enumerate(self.diagram.boxes) for s in box.sources)

    @cached_property
    def free(self) -> tuple[tuple[int, ...], ...]:
        """For each layer, the boxes whose row is open."""
        return tuple(map(tuple, _open_boxes(self.diagram, self.layers, self.highway)))


def frame(diagram: Diagram, spare: int = 0) -> Frame:
    """Layers, highway and number of rows of a diagram: as few as it needs, and `spare` more."""
    highway = _highway(diagram)
    layers = _layers(diagram, highway)
    most = max(map(len, _open_boxes(diagram, layers, highway)))
    return Frame(diagram, layers, highway, 1 + max(most, 1) + spare)


def _open_boxes(
    diagram: Diagram, layers: tuple[int, ...], highway: tuple[int, ...]
) -> list[list[int]]:
    """By layer, the boxes that are neither on the highway nor the input."""
    found: list[list[int]] = [[] for _ in range(max(layers) + 1)]
    for place, box in enumerate(diagram.boxes):
        if place not in highway and box.kind != "input":
            found[layers[place]].append(place)
    return found


def _layers(diagram: Diagram, highway: tuple[int, ...]) -> tuple[int, ...]:
    """States on layer 0, the input on 1, operations from 2 on, new states on the last."""
    first = {"state": 0, "input": 1}
    layers: list[int] = []
    for box in diagram.boxes:
        after = max((layers[s] + 1 for s in box.sources), default=0)
        layers.append(first.get(box.kind, max(after, 2)))
    for place, box in enumerate(diagram.boxes):
        if box.kind == "result":
            layers[place] = max(layers)
    _pull_right(diagram, layers, highway)
    return tuple(layers)


def _pull_right(diagram: Diagram, layers: list[int], highway: tuple[int, ...]) -> None:
    """Operations without parameters move to where they are used.

    Those on the highway always do, so that old and new meet at the right end of every unit; others
    do if no wire grows longer by it.
    """
    for place in reversed(range(len(layers))):
        box = diagram.boxes[place]
        if box.kind not in ("operation", "activation") or box.parameters:
            continue
        best, home = _spans(diagram, layers), layers[place]
        for layer in range(home + 1, min(layers[t] for t, _ in diagram.targets(place))):
            layers[place] = layer
            if place in highway or _spans(diagram, layers) <= best:
                best, home = _spans(diagram, layers), layer
        layers[place] = home


def _spans(diagram: Diagram, layers: list[int]) -> int:
    """How many layers the wires of all boxes reach."""
    ends: dict[int, int] = {}
    for place, box in enumerate(diagram.boxes):
        for source in box.sources:
            ends[source] = max(ends.get(source, 0), layers[place])
    return sum(end - layers[source] for source, end in ends.items())


def _highway(diagram: Diagram) -> tuple[int, ...]:
    """The shortest way of a state to its own new value, past pointwise operations if there is one.

    The first state that has such a way is the one that the unit keeps.
    """
    boxes = diagram.boxes
    states = [p for p, b in enumerate(boxes) if b.kind == "state"]
    results = [p for p, b in enumerate(boxes) if b.kind == "result"]
    for kinds in (("operation",), ("operation", "activation", "map")):
        for state, result in zip(states, results, strict=True):
            path = _path(diagram, state, result, kinds)
            if path:
                return path
    return (states[0],)


def _path(diagram: Diagram, start: int, end: int, kinds: tuple[str, ...]) -> tuple[int, ...]:
    """Fewest boxes from `start` to `end` through boxes of these kinds; () if there is no way."""
    paths: list[tuple[int, ...]] = [(start,)]
    seen = {start}
    for path in paths:
        for target, _ in diagram.targets(path[-1]):
            if target == end:
                return (*path, end)
            if target not in seen and diagram.boxes[target].kind in kinds:
                seen.add(target)
                paths.append((*path, target))
    return ()
