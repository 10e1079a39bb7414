"""Where the boxes of a diagram stand: a layer from left to right, and a row from top to bottom.

Layers follow the longest path from what enters the unit. Row 0 is the highway of the state that
the unit keeps; the input is below all rows. The other rows are first ordered by barycentres, then
improved by moving and swapping boxes until nothing helps.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from onegate.graph.diagram import Diagram

Rows = tuple[int, ...]

_STARTS = 40
_BEND, _BLOCKED, _CROSSING = 1.0, 1.5, 2.0


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
    def gaps(self) -> tuple[np.ndarray, np.ndarray]:
        """Matrices (pairs of wires, boxes): times the rows, the height between two straight wires.

        The first matrix measures where both have begun, the second where one ends. A change of
        sign between the two is a crossing.
        """
        ends = np.zeros((2, 0, len(self.layers)))
        for one, other in combinations(self.edges, 2):
            left = max(self.layers[one[0]], self.layers[other[0]])
            right = min(self.layers[one[1]], self.layers[other[1]])
            if one[0] != other[0] and left < right:
                pair = [self._height(one, at) - self._height(other, at) for at in (left, right)]
                ends = np.concatenate([ends, np.array(pair)[:, None]], axis=1)
        return ends[0], ends[1]

    def _height(self, edge: tuple[int, int], layer: int) -> np.ndarray:
        """Coefficients of the rows in the height of a straight wire at a layer."""
        source, target = edge
        share = (layer - self.layers[source]) / (self.layers[target] - self.layers[source])
        height = np.zeros(len(self.layers))
        height[source], height[target] = 1 - share, share
        return height

    @cached_property
    def free(self) -> tuple[tuple[int, ...], ...]:
        """For each layer, the boxes whose row is open."""
        layers: list[list[int]] = [[] for _ in range(max(self.layers) + 1)]
        for place, box in enumerate(self.diagram.boxes):
            if place not in self.highway and box.kind != "input":
                layers[self.layers[place]].append(place)
        return tuple(map(tuple, layers))


def frame(diagram: Diagram, spare: int = 0) -> Frame:
    """Layers, highway and number of rows of a diagram: as few as it needs, and `spare` more."""
    highway = _highway(diagram)
    layers = _layers(diagram, highway)
    open_boxes = [
        layer
        for place, (box, layer) in enumerate(zip(diagram.boxes, layers, strict=True))
        if place not in highway and box.kind != "input"
    ]
    most = max((open_boxes.count(layer) for layer in open_boxes), default=0)
    return Frame(diagram, layers, highway, 1 + max(most, 1) + spare)


def placements(frame: Frame, most: int) -> list[Rows]:
    """The rows of all boxes in the `most` best ways found, the best by estimate first."""
    found: dict[Rows, float] = {}
    for start in _starts(frame):
        rows, cost = _improved(frame, start)
        found[tuple(rows)] = cost
    return sorted(found, key=lambda rows: (found[rows], rows))[:most]


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


def _starts(frame: Frame) -> Iterator[list[int]]:
    """First placements: in the order of the equations, by barycentres, and shuffled."""
    given = [0] * len(frame.layers)
    for place, box in enumerate(frame.diagram.boxes):
        if box.kind == "input":
            given[place] = frame.rows
    for layer in frame.free:
        for row, place in enumerate(layer, 1):
            given[place] = row
    yield given
    yield _by_barycentre(frame, given)
    shuffle = random.Random(0).shuffle
    for _ in range(_STARTS):
        rows = list(given)
        for layer in frame.free:
            order = list(range(1, frame.rows))
            shuffle(order)
            for row, place in zip(order, layer, strict=False):
                rows[place] = row
        yield _by_barycentre(frame, rows)


def _by_barycentre(frame: Frame, start: list[int]) -> list[int]:
    """Each layer in the order of the mean row of its neighbours, left to right and back."""
    rows = list(start)
    near: dict[int, list[int]] = {place: [] for place in range(len(rows))}
    for source, target in frame.edges:
        near[source].append(target)
        near[target].append(source)
    for sweep in range(4):
        for layer in frame.free if sweep % 2 == 0 else reversed(frame.free):
            centre = {p: sum(rows[n] for n in near[p]) / max(len(near[p]), 1) for p in layer}
            taken = sorted(rows[p] for p in layer)
            for row, place in zip(
                taken, sorted(layer, key=lambda p: (centre[p], rows[p])), strict=True
            ):
                rows[place] = row
    return rows


def _improved(frame: Frame, start: list[int]) -> tuple[list[int], float]:
    """Moves to empty rows and swaps within a layer, as long as one of them helps."""
    rows, cost = list(start), _estimate(frame, start)
    improving = True
    while improving:
        improving = False
        for change in _changes(frame, rows):
            trial = list(rows)
            for place, row in change:
                trial[place] = row
            trial_cost = _estimate(frame, trial)
            if trial_cost < cost - 1e-9:
                rows, cost, improving = trial, trial_cost, True
                break
    return rows, cost


def _changes(frame: Frame, rows: list[int]) -> Iterator[list[tuple[int, int]]]:
    for layer in frame.free:
        taken = {rows[p] for p in layer}
        for place in layer:
            for row in range(1, frame.rows):
                if row not in taken:
                    yield [(place, row)]
        for one, other in combinations(layer, 2):
            yield [(one, rows[other]), (other, rows[one])]


def _estimate(frame: Frame, rows: list[int]) -> float:
    """Height of the wires, their bends, the boxes in their way, and their crossings."""
    cost = 0.0
    taken = {(frame.layers[p], row) for p, row in enumerate(rows)}
    reach: dict[int, list[int]] = {}
    for source, target in frame.edges:
        reach.setdefault(source, [rows[source]]).append(rows[target])
        if rows[source] != rows[target]:
            cost += _BEND
        way = range(frame.layers[source] + 1, frame.layers[target])
        cost += _BLOCKED * min(
            sum((layer, rows[source]) in taken for layer in way),
            sum((layer, rows[target]) in taken for layer in way),
        )
    cost += sum(max(r) - min(r) for r in reach.values())
    left, right = frame.gaps
    return cost + _CROSSING * float(np.count_nonzero((left @ rows) * (right @ rows) < 0))
