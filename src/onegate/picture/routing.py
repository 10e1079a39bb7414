"""Wires between placed boxes: right angles, few bends, few crossings.

A wire leaves its box to the right, never turns back to the left, and enters the next box at a
port. Wires of different boxes may cross at right angles, and touch nowhere else. The wires of one
box are one tree, a net. Nets are laid one after another by a shortest-path search; then single
nets, and pairs that cross, are taken up and laid again as long as that helps.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations
from math import inf

from onegate.picture.lanes import ACROSS, ALONG, EAST, NORTH, SOUTH, WEST, Port, WireGrid
from onegate.picture.layering import Frame
from onegate.picture.placement import Rows

_BACK = {EAST: WEST, NORTH: SOUTH, SOUTH: NORTH}
_BEND, _CROSSING = 6.0, 6.0
_LEAST = 1e-6  # an improvement, not a rounding error
_LANES = (3, 5, 8, 12)

Target = tuple[int, int]


class NoRouteError(ValueError):
    """The channels are too narrow for all wires."""


@dataclass
class Net:
    """The wires from one box: a tree on the grid.

    bits: the directions in which the tree leaves each of its points, as a sum of EAST ... SOUTH.
    parent: the point before each point, None at the box itself.
    ports: (box, input) -> where the wire enters.
    cost: of its length and its bends.
    """

    source: int
    bits: dict[int, int] = field(default_factory=dict)
    parent: dict[int, int | None] = field(default_factory=dict)
    ports: dict[Target, Port] = field(default_factory=dict)
    cost: float = 0.0

    def path(self, target: Target) -> list[int]:
        """The points of the grid from the source to a target."""
        points: list[int] = []
        node: int | None = self.ports[target].node
        while node is not None:
            points.append(node)
            node = self.parent[node]
        return points[::-1]


class Routes:
    """The nets of a placement, laid in channels as wide as they need to be.

    searches: how many shortest paths that took, a measure of the work.
    """

    def __init__(self, frame: Frame, rows: Rows) -> None:
        self.diagram = frame.diagram
        self.searches = 0
        for lanes in _LANES:
            self.grid = WireGrid(frame, rows, lanes)
            if self._lay_all():
                return
        raise NoRouteError(f"{len(frame.edges)} wires do not fit into {lanes} lanes")

    @property
    def cost(self) -> float:
        """What the wires cost to the eye: length, bends and crossings."""
        return sum(net.cost for net in self.nets.values()) + _CROSSING * self.crossings

    def improve(self, searches: int) -> Routes:
        """Lays single nets and pairs again as long as the whole gets better.

        searches: the number of shortest paths after which no further attempt is made.
        """
        last = self.searches + searches
        done: set[tuple[int, ...]] = set()
        while groups := [group for group in self._groups() if group not in done]:
            for group in groups:
                if self.searches > last:
                    return self
                before = self.cost
                self._try_again(group)
                if self.cost < before - _LEAST:
                    done.clear()
                done.add(group)
        return self

    def _groups(self) -> list[tuple[int, ...]]:
        """Each net, and pairs of nets that cross or enter one box."""
        pairs = {tuple(sorted(nets)) for nets in self.used.values() if len(nets) == 2}
        for box in self.diagram.boxes:
            pairs.update(combinations(sorted(set(box.sources)), 2))
        return [*((source,) for source in sorted(self.nets)), *sorted(pairs)]

    def _lay_all(self) -> bool:
        """Lays every net; one that finds no way is laid first in a new attempt."""
        order = self._order()
        for _ in range(len(order)):
            self.nets: dict[int, Net] = {}
            self.used: dict[int, dict[int, int]] = {}
            self.crossings = 0
            try:
                for source in order:
                    self._lay(source)
            except NoRouteError:
                order.remove(source)
                order.insert(0, source)
            else:
                return True
        return False

    def _order(self) -> list[int]:
        """The highway first, then short nets before long ones."""
        frame = self.grid.frame

        def key(source: int) -> tuple[bool, int, int]:
            ends = [frame.layers[t] for t, _ in self.diagram.targets(source)]
            return source not in frame.highway, max(ends) - frame.layers[source], source

        sources = [p for p in range(len(self.diagram.boxes)) if self.diagram.targets(p)]
        return sorted(sources, key=key)

    def _try_again(self, group: Sequence[int]) -> None:
        cost, best = self.cost, [self.nets[source] for source in group]
        for order in permutations(group):
            self._take_up(group)
            try:
                for source in order:
                    self._lay(source)
            except NoRouteError:
                continue
            if self.cost < cost - _LEAST:
                cost, best = self.cost, [self.nets[source] for source in group]
        self._take_up(group)
        for net in best:
            self._put_down(net)

    def _take_up(self, group: Iterable[int]) -> None:
        for source in group:
            net = self.nets.pop(source, None)
            for node in net.bits if net else ():
                there = self.used[node]
                del there[source]
                self.crossings -= len(there)

    def _put_down(self, net: Net) -> None:
        self.nets[net.source] = net
        for node, bits in net.bits.items():
            there = self.used.setdefault(node, {})
            self.crossings += len(there)
            there[net.source] = bits

    def _lay(self, source: int) -> None:
        """Lays the net of a box, target by target, the nearest first."""
        net = Net(source)
        layers = self.grid.frame.layers
        for target in sorted(self.diagram.targets(source), key=lambda t: (layers[t[0]], t)):
            ports = list(self._open_ports(net, target))
            port = _Search(self.grid, net, self.used, ports).run()
            self.searches += 1
            net.ports[target] = port
            net.cost += port.cost
        net.cost += self._length(net)
        self._put_down(net)

    def _length(self, net: Net) -> float:
        steps = self.grid.steps
        cost = 0.0
        for node, bits in net.bits.items():
            cost += _BEND * _turns(bits)
            for heading in (EAST, SOUTH):
                if bits & heading and steps[heading][node] < inf:
                    cost += steps[heading][node]
        return cost

    def _open_ports(self, net: Net, target: Target) -> Iterator[Port]:
        """Ports of a box that no other wire is at or next to; the highway enters at the left."""
        highway, (place, slot) = self.grid.frame.highway, target
        taken = [
            port
            for other in (*self.nets.values(), net)
            for (box, _), port in other.ports.items()
            if box == place
        ]
        straight = place in highway and net.source in highway
        straight &= self.diagram.boxes[place].sources.index(net.source) == slot  # h * h has two
        for port in self.grid.ports[place]:
            free = all(p.side != port.side or abs(p.place - port.place) > 1 for p in taken)
            if free and (port.side == "left" or not straight):
                yield port


def _turns(bits: int) -> bool:
    return bool(bits & ALONG and bits & ACROSS)


class _Search:
    """The cheapest way from the tree of a net to one of some ports, by A*.

    A state is a point and the direction of arrival: 0 in the tree, negative inside a port.
    """

    def __init__(
        self, grid: WireGrid, net: Net, used: dict[int, dict[int, int]], ports: Sequence[Port]
    ) -> None:
        self.grid, self.net, self.used = grid, net, used
        self.ports = {(port.node, port.heading): port for port in ports}
        self.moves = [
            (heading, _BACK[heading], move, grid.steps[heading])
            for heading, move in ((EAST, grid.height), (NORTH, -1), (SOUTH, 1))
        ]
        ends = [divmod(port.node, grid.height) for port in ports]
        self.left = min((grid.across[x] for x, _ in ends), default=0.0)
        self.top = min((grid.down[y] for _, y in ends), default=0.0)
        self.bottom = max((grid.down[y] for _, y in ends), default=0.0)

    def run(self) -> Port:
        """Adds the way to the tree and returns the port where it ends."""
        starts = [(node, 0) for node in self.net.bits] or [self.grid.start(self.net.source)]
        best = dict.fromkeys(starts, 0.0)
        came: dict[tuple[int, int], tuple[int, int] | None] = dict.fromkeys(starts)
        heap = [(self._ahead(s[0]), count, 0.0, s) for count, s in enumerate(starts)]
        heapq.heapify(heap)
        count = len(heap)
        while heap:
            _, _, cost, state = heapq.heappop(heap)
            if state[1] < 0:
                return self._join(state, came)
            if cost > best[state]:
                continue
            for after, more in self._next(*state):
                total = cost + more
                if total < best.get(after, inf) - 1e-9:
                    best[after], came[after] = total, state
                    count += 1
                    ahead = self._ahead(after[0]) if after[1] > 0 else 0.0
                    heapq.heappush(heap, (total + ahead, count, total, after))
        raise NoRouteError

    def _ahead(self, node: int) -> float:
        """At least this long is the way from here to a port."""
        x, y = divmod(node, self.grid.height)
        across, down = self.left - self.grid.across[x], self.grid.down[y]
        outside = self.top - down if down < self.top else down - self.bottom
        return (across if across > 0 else 0.0) + (outside if outside > 0 else 0.0)

    def _next(self, node: int, heading: int) -> Iterator[tuple[tuple[int, int], float]]:
        tree, ports = self.net.bits, self.ports
        others = self.used.get(node)
        watched = others or node in self.grid.kept
        arriving = tree.get(node, 0) | (_BACK[heading] if heading else 0)
        for turned, back, move, steps in self.moves:
            if arriving & turned:
                continue
            cost = 0.0 if arriving & back else _BEND
            if watched:
                crossing = self._crossing(node, arriving | turned, others or {})
                if crossing is None:
                    continue
                cost += crossing
            if (node, turned) in ports:
                yield (node, -turned), cost + ports[node, turned].cost
            if steps[node] < inf and node + move not in tree:
                yield (node + move, turned), cost + steps[node]

    def _crossing(self, node: int, bits: int, others: dict[int, int]) -> float | None:
        """The cost of meeting other nets at a point; None where they would touch."""
        directions, sources = self.grid.kept.get(node, (0, ()))
        if bits & directions and self.net.source not in sources:
            return None
        for other in others.values():
            if bits & other or _turns(bits) or _turns(other):
                return None
        return _CROSSING * len(others)

    def _join(
        self, state: tuple[int, int], came: dict[tuple[int, int], tuple[int, int] | None]
    ) -> Port:
        """Enters the way that ends in a state into the tree."""
        bits, parent = self.net.bits, self.net.parent
        node, leaving = state[0], -state[1]
        port = self.ports[node, leaving]
        before = came[state]
        while before is not None:
            node, heading = before
            bits[node] = bits.get(node, 0) | leaving | (_BACK[heading] if heading else 0)
            before = came[before]
            if node not in parent:
                parent[node] = before[0] if before else None
            leaving = heading
        return port
