"""The grid of lanes on which wires run between placed boxes.

Between two layers, and between two rows, lie channels of parallel lanes. Points of the grid are
numbered downwards, then from left to right, so that neighbours differ by 1 or by `WireGrid.height`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from onegate.picture.layering import Frame
from onegate.picture.placement import Rows

EAST, NORTH, WEST, SOUTH = 1, 2, 4, 8
ALONG, ACROSS = EAST | WEST, NORTH | SOUTH

_COLUMN, _ROW = 4.0, 4.0  # the length of a way past a box, in lanes
_UNEVEN = 2.0  # the cost of a port that is not one of evenly spaced ones
_LANE = 0.01  # lanes of a channel are taken in order, so that wires share them


@dataclass(frozen=True)
class Port:
    """Where a wire enters a box.

    side: "left", "above" or "below". place: from the middle of the left side, in half distances of
    two neighbouring ports, downwards.
    node, heading: the last point of the grid before the box, and the direction from there.
    """

    side: str
    place: int
    node: int
    heading: int
    cost: float = 0.0


class WireGrid:
    """The points where wires may run, given the rows of the boxes.

    Counted in x, `column(layer)` is the middle of a layer's boxes, and the `lanes` numbers before
    it are the channel on its left. Counted in y, `row(r)` is the middle of a row, with lines for
    ports on both sides of it, and `below(r)` is the channel beneath.
    """

    def __init__(self, frame: Frame, rows: Rows, lanes: int) -> None:
        self.frame, self.rows, self.lanes = frame, rows, lanes
        boxes = frame.diagram.boxes
        self.side = max((len(box.sources) for box in boxes), default=1)
        self.period = 2 * self.side + 1 + lanes
        self.width = self.column(max(frame.layers)) + 1
        self.height = self.row(frame.rows) - self.side
        self.ports = [self._ports(place) for place in range(len(boxes))]
        self.across, self.down = self._across(), self._down()
        self.steps = self._steps()
        self.kept = self._kept()

    def column(self, layer: int) -> int:
        """The middle of a layer's boxes, in x."""
        return layer * (self.lanes + 1)

    def channel(self, x: int) -> int | None:
        """The layer before which a lane lies; None on a column.

        Nothing stands in the way on the column of the input: it is a lane before layer 2.
        """
        if self.column(0) < x < self.column(2):
            return 2
        return None if x % (self.lanes + 1) == 0 else x // (self.lanes + 1) + 1

    def row(self, row: int) -> int:
        """The middle of a row, in y."""
        return row * self.period + self.side

    def below(self, row: int) -> range:
        """The lanes beneath a row, in y."""
        first = self.row(row) + self.side + 1
        return range(first, first + self.lanes)

    def node(self, x: int, y: int) -> int:
        """The number of a point."""
        return x * self.height + y

    def start(self, place: int) -> tuple[int, int]:
        """The first point of the wires from a box, and the direction in which they arrive."""
        x, y = self.column(self.frame.layers[place]), self.row(self.rows[place])
        if self.frame.diagram.boxes[place].kind == "input":
            return self.node(x, y - self.side - 1), NORTH
        return self.node(x + 1, y), EAST

    def _ports(self, place: int) -> tuple[Port, ...]:
        """Results and learned boxes have ports on the left only; others may take any side."""
        box = self.frame.diagram.boxes[place]
        x, row = self.column(self.frame.layers[place]), self.rows[place]
        y, count = self.row(row), len(box.sources)
        if not count:
            return ()
        if box.kind == "result" or box.parameters:
            even = range(1 - count, count, 2)
            uneven = (0, -2, 2) if count == 2 else ()  # lets one of two wires go straight
            return tuple(
                Port("left", k, self.node(x - 1, y + k), EAST, _UNEVEN * (k in uneven))
                for k in (*even, *uneven)
            )
        left = Port("left", 0, self.node(x - 1, y), EAST)
        below = Port("below", 0, self.node(x, self.below(row)[0]), NORTH)
        if row == 0:
            return left, below
        return left, below, Port("above", 0, self.node(x, self.below(row - 1)[-1]), SOUTH)

    def _across(self) -> list[float]:
        """Length up to each x."""
        lengths = [0.0]
        for x in range(1, self.width):
            near = x % (self.lanes + 1) in (0, 1) and abs(x - self.column(1)) > 1
            lengths.append(lengths[-1] + (_COLUMN / 2 if near else 1.0))
        return lengths

    def _down(self) -> list[float]:
        """Length up to each y."""
        line = _ROW / (2 * self.side + 2)
        lengths = [0.0]
        for y in range(1, self.height):
            in_row = y % self.period <= 2 * self.side + 1
            lengths.append(lengths[-1] + (line if in_row else 1.0))
        return lengths

    def _steps(self) -> dict[int, list[float]]:
        """By direction, the length of the step from each point; infinite where no wire may go."""
        size = self.width * self.height
        east, south = [inf] * size, [inf] * size
        taken = self._taken()
        lines = {
            (self.frame.layers[place], self.row(self.rows[place]) + port.place)
            for place, ports in enumerate(self.ports)
            for port in ports
            if port.side == "left"
        }
        for node in set(range(size)) - taken:
            x, y = divmod(node, self.height)
            if (
                x + 1 < self.width
                and node + self.height not in taken
                and self._is_line(x, y, lines)
            ):
                lane = y % (self.lanes + 1)
                east[node] = self.across[x + 1] - self.across[x] + _LANE * lane
            if y + 1 < self.height and node + 1 not in taken:
                lane = -x % (self.lanes + 1)
                south[node] = self.down[y + 1] - self.down[y] + _LANE * lane
        return {EAST: east, SOUTH: south, NORTH: [inf, *south[:-1]]}

    def _taken(self) -> set[int]:
        """Points under boxes."""
        return {
            self.node(self.column(layer), self.row(row) + line)
            for layer, row in zip(self.frame.layers, self.rows, strict=True)
            if row < self.frame.rows
            for line in range(-self.side, self.side + 1)
        }

    def _is_line(self, x: int, y: int, lines: set[tuple[int, int]]) -> bool:
        """Whether a wire may go on to the right: lines of ports lead to their box alone."""
        line = y % self.period
        if line == self.side or line > 2 * self.side:
            return True
        layer = self.channel(x)
        return layer is not None and layer == self.channel(x + 1) and (layer, y) in lines

    def _kept(self) -> dict[int, tuple[int, set[int]]]:
        """Points where only the wires of some boxes may run in some directions.

        Next to a box, others may not turn towards it; above the input, others may only cross.
        """
        kept: dict[int, tuple[int, set[int]]] = {}
        for place, box in enumerate(self.frame.diagram.boxes):
            if box.kind == "input":
                above = range(self.node(self.column(1), 0), self.node(self.column(1), self.height))
                kept.update((node, (ACROSS, {place})) for node in above)
            else:
                kept.setdefault(self.start(place)[0], (ALONG, set()))[1].add(place)
            for port in self.ports[place]:
                if port.side == "left":
                    kept.setdefault(port.node, (ALONG, set()))[1].update(box.sources)
        return kept
