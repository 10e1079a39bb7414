"""The layout of a unit's picture: rectangles of its boxes and lines of its wires, in points.

One rule for all units: x grows in the direction of time, y grows downwards, the highway of the
kept state is the line y = 0. Channels between boxes are as wide as the wires in them need.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from onegate.picture.diagram import Box, Diagram
from onegate.picture.lanes import ACROSS, ALONG, EAST, NORTH, SOUTH, Port
from onegate.picture.layering import frame
from onegate.picture.placement import placements
from onegate.picture.routing import Net, NoRouteError, Routes, Target

Point = tuple[float, float]
Size = tuple[float, float]

_CANDIDATES, _IMPROVED = 12, 3  # placements that are wired, and those whose wires are improved
_SEARCHES = 1000  # shortest paths after which wiring, and improving, comes to an end
_ROW, _MOVED = 4.0, 0.5  # the cost of a row, and of a row between an old state and the new one
_LANE = 9.0  # between parallel wires
_LEAVE, _ENTER = 9.0, 13.0  # from a box to the first lane, and from the last lane to an arrow's end
_BETWEEN_ROWS = 9.0
_PORTS = 13.0  # between two ports of a box, where there is room


@dataclass(frozen=True)
class Rectangle:
    """A box's place."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def middle(self) -> Point:
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2


@dataclass(frozen=True)
class Wire:
    """One input of one box.

    side: of the target at which it enters. points: corners from the source's edge to the target's.
    """

    source: int
    target: int
    slot: int
    side: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Layout:
    """rectangles: by box. wires: grouped by source. forks: where the wires of one box part."""

    diagram: Diagram
    rectangles: tuple[Rectangle, ...]
    wires: tuple[Wire, ...]
    forks: tuple[tuple[int, Point], ...]
    highway: tuple[int, ...]


def layout(diagram: Diagram, size: Callable[[Box], Size], label: Callable[[Box], float]) -> Layout:
    """Places and wires the boxes.

    size: width and height of a box. label: room that the name of its output takes beside it.
    """
    routes = _best_routes(diagram)
    return _Geometry(routes, size, label).layout()


@functools.lru_cache(maxsize=256)
def _best_routes(diagram: Diagram) -> Routes:
    """The wires that are easiest to follow, among those of some placements."""
    laid: list[Routes] = []
    for framed in (frame(diagram, spare) for spare in (0, 1)):
        for rows in placements(framed, _CANDIDATES):
            if sum(routes.searches for routes in laid) < _SEARCHES:
                with contextlib.suppress(NoRouteError):
                    laid.append(Routes(framed, rows))
    if not laid:
        raise NoRouteError(f"a unit of {len(diagram.boxes)} boxes has too many wires to be drawn")
    improved: list[Routes] = []
    for routes in sorted(laid, key=_cost)[:_IMPROVED]:
        if sum(done.searches for done in improved) < _SEARCHES:
            improved.append(routes.improve(_SEARCHES))
    return min(improved, key=_cost)


def _cost(routes: Routes) -> float:
    """Wires, rows, and how far a state leaves from the height where it entered."""
    boxes, rows = routes.diagram.boxes, routes.grid.rows
    states = [row for row, box in zip(rows, boxes, strict=True) if box.kind == "state"]
    results = [row for row, box in zip(rows, boxes, strict=True) if box.kind == "result"]
    moved = sum(abs(old - new) for old, new in zip(states, results, strict=True))
    return routes.cost + _ROW * routes.grid.frame.rows + _MOVED * moved


class _Geometry:
    """From numbers of lanes to points."""

    def __init__(
        self, routes: Routes, size: Callable[[Box], Size], label: Callable[[Box], float]
    ) -> None:
        self.grid = routes.grid
        self.nets = [routes.nets[source] for source in sorted(routes.nets)]
        self.frame = self.grid.frame
        self.boxes = self.frame.diagram.boxes
        self.sizes = [size(box) for box in self.boxes]
        self.labels = [label(box) for box in self.boxes]
        self.x = self._columns()
        self.y = self._rows()

    def layout(self) -> Layout:
        return Layout(
            self.frame.diagram,
            tuple(self._rectangle(place) for place in range(len(self.boxes))),
            tuple(self._wire(net, target) for net in self.nets for target in sorted(net.ports)),
            tuple((net.source, fork) for net in self.nets for fork in self._forks(net)),
            self.frame.highway,
        )

    def _columns(self) -> dict[int, float]:
        """The x of the middle of each layer, and of each lane that carries a vertical wire."""
        height = self.grid.height
        used = {node // height for net in self.nets for node, b in net.bits.items() if b & ACROSS}
        x: dict[int, float] = {}
        edge = 0.0
        for layer in range(max(self.frame.layers) + 1):
            column = self.grid.column(layer)
            if layer:
                lanes = [k for k in range(column - self.grid.lanes, column) if k in used]
                edge += self._leaving(layer - 1)
                for k in lanes:
                    x[k] = edge
                    edge += _LANE
                edge += _ENTER - _LANE * bool(lanes)
            width = self._width(layer)
            x[column] = edge + width / 2
            edge += width
        return x

    def _leaving(self, layer: int) -> float:
        """Room after a layer for the names of its outputs, where a box fills its layer."""
        column = self._width(layer)
        over = [
            label - (column - self.sizes[place][0]) / 2
            for place, label in enumerate(self.labels)
            if self.frame.layers[place] == layer and label
        ]
        return max([_LEAVE, *over])

    def _rows(self) -> dict[int, float]:
        """The y of the middle of each row, and of each lane that carries a horizontal wire."""
        height = self.grid.height
        used = {node % height for net in self.nets for node, b in net.bits.items() if b & ALONG}
        heights = [self._height(row) for row in range(self.frame.rows + 1)]
        y: dict[int, float] = {}
        edge = -heights[0] / 2
        for row, tall in enumerate(heights):
            y[self.grid.row(row)] = edge + tall / 2
            edge += tall + _BETWEEN_ROWS
            lanes = [k for k in self.grid.below(row) if k in used]
            for k in lanes:
                y[k] = edge
                edge += _LANE
            edge += (_BETWEEN_ROWS - _LANE) * bool(lanes)
        return y

    def _width(self, layer: int) -> float:
        pairs = zip(self.sizes, self.frame.layers, strict=True)
        return max((width for (width, _), at in pairs if at == layer), default=0.0)

    def _height(self, row: int) -> float:
        pairs = zip(self.sizes, self.grid.rows, strict=True)
        return max((height for (_, height), at in pairs if at == row), default=0.0)

    def _middle(self, place: int) -> Point:
        layer, row = self.frame.layers[place], self.grid.rows[place]
        return self.x[self.grid.column(layer)], self.y[self.grid.row(row)]

    def _rectangle(self, place: int) -> Rectangle:
        (x, y), (width, height) = self._middle(place), self.sizes[place]
        return Rectangle(x - width / 2, y - height / 2, x + width / 2, y + height / 2)

    def _wire(self, net: Net, target: Target) -> Wire:
        port, path = net.ports[target], net.path(target)
        corners: list[Point] = []
        heading = self.grid.start(net.source)[1]
        for node, after in zip(path, [*path[1:], None], strict=True):
            turned = self._heading(node, after) if after else port.heading
            if turned != heading:
                corners.append(self._point(node))
            heading = turned
        points = (self._leave(net.source), *corners, self._enter(target[0], port))
        return Wire(net.source, *target, port.side, points)

    def _heading(self, node: int, after: int) -> int:
        return {1: SOUTH, -1: NORTH}.get(after - node, EAST)

    def _forks(self, net: Net) -> Iterator[Point]:
        for node, bits in net.bits.items():
            if bits.bit_count() > 2:
                yield self._point(node)

    def _point(self, node: int) -> Point:
        """Where a wire turns or forks."""
        x, y = divmod(node, self.grid.height)
        if y in self.y:
            return self.x[x], self.y[y]
        row = y // self.grid.period
        place = next(
            place
            for place, layer in enumerate(self.frame.layers)
            if (layer, self.grid.rows[place]) == (self.grid.channel(x), row)
        )
        return self.x[x], self._port_height(place, y - self.grid.row(row))

    def _port_height(self, place: int, line: int) -> float:
        count = len(self.boxes[place].sources)
        return self._middle(place)[1] + line / 2 * min(_PORTS, self.sizes[place][1] / (count + 1))

    def _leave(self, place: int) -> Point:
        box, (x, y) = self._rectangle(place), self._middle(place)
        return (x, box.top) if self.boxes[place].kind == "input" else (box.right, y)

    def _enter(self, place: int, port: Port) -> Point:
        box, (x, _) = self._rectangle(place), self._middle(place)
        if port.side == "left":
            return box.left, self._port_height(place, port.place)
        return x, box.top if port.side == "above" else box.bottom
