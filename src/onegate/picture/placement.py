"""The rows of a diagram's boxes: which box stands above which.

Row 0 is the highway, the input stands below all rows. The boxes of the other rows are ordered by
barycentres, from several starts, and moved and swapped until nothing helps.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations, cycle

import numpy as np
from numpy.typing import NDArray

from onegate.picture.layering import Frame

Rows = tuple[int, ...]

_STARTS = 40
_BEND, _BLOCKED, _CROSSING = 1.0, 1.5, 2.0
_LEAST = 1e-6  # less than this is rounding


def placements(frame: Frame, most: int) -> list[Rows]:
    """The rows of all boxes in the `most` best ways found, the best by estimate first."""
    estimate = _Estimate(frame)
    found: dict[Rows, float] = {}
    for start in sorted(set(map(tuple, _starts(frame)))):
        rows, cost = _improved(frame, estimate, list(start))
        found[rows] = round(cost, 6)
    return sorted(found, key=lambda rows: (found[rows], rows))[:most]


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


def _improved(frame: Frame, estimate: _Estimate, rows: list[int]) -> tuple[Rows, float]:
    """Layer after layer, the best move to an empty row or swap, until no layer gains from one."""
    cost, idle = estimate.of([rows])[0], 0
    for layer in cycle(frame.free):
        trials = list(_trials(frame, layer, rows))
        costs = estimate.of(trials) if trials else np.array([cost])
        best = int(np.argmin(costs))
        if costs[best] < cost - _LEAST:
            rows, cost, idle = trials[best], costs[best], 0
        else:
            idle += 1
        if idle == len(frame.free):
            break
    return tuple(rows), float(cost)


def _trials(frame: Frame, layer: tuple[int, ...], rows: list[int]) -> Iterator[list[int]]:
    taken = {rows[p] for p in layer}
    moves = [[(p, row)] for p in layer for row in range(1, frame.rows) if row not in taken]
    swaps = [[(p, rows[q]), (q, rows[p])] for p, q in combinations(layer, 2)]
    for change in (*moves, *swaps):
        trial = list(rows)
        for place, row in change:
            trial[place] = row
        yield trial


class _Estimate:
    """What the wires of a placement will cost, without laying them.

    Counts the height of each box's wires, bends, boxes in the way, and crossings of wires taken
    as straight lines between layers.
    """

    def __init__(self, frame: Frame) -> None:
        layers, edges = np.array(frame.layers), np.array(frame.edges)
        self.sources, self.targets = edges[:, 0], edges[:, 1]
        begin, end = layers[self.sources], layers[self.targets]
        self.between = (layers > begin[:, None]) & (layers < end[:, None])
        nets = np.zeros((len(layers), len(layers)), bool)
        nets[self.sources, self.targets] = nets[self.sources, self.sources] = True
        self.nets = nets[nets.any(1)]
        one, other = np.triu_indices(len(edges), 1)
        left = np.maximum(begin[one], begin[other])
        right = np.minimum(end[one], end[other])
        both = (left < right) & (self.sources[one] != self.sources[other])
        self.one, self.other, left, right = one[both], other[both], left[both], right[both]
        # How far each wire of a pair has come where both have begun, and where one of them ends.
        self.shares = [
            ((at - begin[self.one]) / (end - begin)[self.one],
             (at - begin[self.other]) / (end - begin)[self.other])
            for at in (left, right)
        ]  # fmt: skip

    def of(self, trials: list[list[int]]) -> NDArray[np.float64]:
        """The costs of several placements."""
        rows = np.array(trials)
        start, end = rows[:, self.sources], rows[:, self.targets]
        boxes = rows[:, None, :]
        at_start = ((boxes == start[:, :, None]) & self.between).sum(2)
        at_end = ((boxes == end[:, :, None]) & self.between).sum(2)
        lowest = np.where(self.nets, boxes, -1).max(2)
        highest = np.where(self.nets, boxes, rows.max() + 1).min(2)
        return np.asarray(
            (lowest - highest).sum(1)
            + _BEND * (start != end).sum(1)
            + _BLOCKED * np.minimum(at_start, at_end).sum(1)
            + _CROSSING * self._crossings(start, end)
        )

    def _crossings(self, start: NDArray[np.int_], end: NDArray[np.int_]) -> NDArray[np.int_]:
        """Pairs of straight wires of which one is above at the left, the other at the right."""
        climb = end - start
        left, right = (
            (start[:, self.one] + share * climb[:, self.one])
            - (start[:, self.other] + other_share * climb[:, self.other])
            for share, other_share in self.shares
        )
        return np.asarray((left * right < -_LEAST).sum(1))
