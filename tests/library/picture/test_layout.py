"""Layouts: boxes apart, wires from the right box to the right box and through no other."""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings

from onegate.language import Affine, Unit, Vector, sigmoid, tanh
from onegate.picture.draw import layouts
from onegate.picture.layout import Layout, Point, Rectangle, Wire
from onegate.tracing import trace
from onegate.units import UNITS
from tests.library.comparing import X_ALONE
from tests.library.random_units import Sketch, sketches

CLEARANCE = 6.0  # points between two boxes
APART = 4.0  # points between two parallel wires
PORTS = 8.0  # points between the ends of two wires at one box

Segment = tuple[Point, Point]


@functools.cache
def laid_out(name: str) -> Layout:
    return layouts([trace(UNITS[name], 28, 100)])[0]


def segments(wire: Wire) -> list[Segment]:
    return list(itertools.pairwise(wire.points))


def assert_good(layout: Layout) -> None:
    assert_boxes_are_apart(layout)
    assert_wires_are_those_of_the_diagram(layout)
    for wire in layout.wires:
        assert_ends_are_at_the_boxes(layout, wire)
        assert_right_angles_and_never_back(wire)
        assert_no_box_in_the_way(layout, wire)
    assert_wires_meet_only_to_cross(layout)


def assert_boxes_are_apart(layout: Layout) -> None:
    for one, other in itertools.combinations(layout.rectangles, 2):
        across = max(one.left, other.left) - min(one.right, other.right)
        down = max(one.top, other.top) - min(one.bottom, other.bottom)
        assert max(across, down) >= CLEARANCE, (one, other)


def assert_wires_are_those_of_the_diagram(layout: Layout) -> None:
    expected = [
        (source, target, slot)
        for target, box in enumerate(layout.diagram.boxes)
        for slot, source in enumerate(box.sources)
    ]
    assert sorted((w.source, w.target, w.slot) for w in layout.wires) == sorted(expected)
    for one, other in itertools.combinations(layout.wires, 2):
        if one.target == other.target:
            assert math.dist(one.points[-1], other.points[-1]) >= PORTS, (one, other)


def assert_ends_are_at_the_boxes(layout: Layout, wire: Wire) -> None:
    source, target = layout.rectangles[wire.source], layout.rectangles[wire.target]
    (x, y), end = wire.points[0], wire.points[-1]
    if layout.diagram.boxes[wire.source].kind == "input":
        assert (x, y) == pytest.approx((source.middle[0], source.top))
    else:
        assert (x, y) == pytest.approx((source.right, source.middle[1]))
    edges = {
        "left": (target.left, end[1]),
        "above": (end[0], target.top),
        "below": (end[0], target.bottom),
    }
    assert end == pytest.approx(edges[wire.side])
    assert target.left <= end[0] <= target.right
    assert target.top <= end[1] <= target.bottom


def assert_right_angles_and_never_back(wire: Wire) -> None:
    for (x, y), (x_next, y_next) in segments(wire):
        assert (x == x_next) != (y == y_next), wire
        assert x_next >= x, wire


def assert_no_box_in_the_way(layout: Layout, wire: Wire) -> None:
    """Nor the wire's own boxes, which it may touch at its two ends only."""
    for segment in segments(wire):
        for rectangle in layout.rectangles:
            assert not passes_through(segment, rectangle), (wire, rectangle)


def passes_through(segment: Segment, box: Rectangle) -> bool:
    (x, y), (x_next, y_next) = segment
    across = min(x, x_next) < box.right - 0.01 and max(x, x_next) > box.left + 0.01
    down = min(y, y_next) < box.bottom - 0.01 and max(y, y_next) > box.top + 0.01
    return across and down


def assert_wires_meet_only_to_cross(layout: Layout) -> None:
    """Wires of different boxes cross at right angles, well away from corners and ends."""
    for one, other in itertools.combinations(layout.wires, 2):
        if one.source != other.source:
            for a, b in itertools.product(segments(one), segments(other)):
                assert gap(a, b) >= APART or crosses(a, b), (one, other)


def gap(a: Segment, b: Segment) -> float:
    """The distance between two segments, the larger of that in x and in y."""
    return max(
        max(min(p[k] for p in a), min(p[k] for p in b))
        - min(max(p[k] for p in a), max(p[k] for p in b))
        for k in (0, 1)
    )


def crosses(a: Segment, b: Segment) -> bool:
    (along, across) = (a, b) if a[0][1] == a[1][1] else (b, a)
    if along[0][1] != along[1][1] or across[0][0] != across[1][0]:
        return False
    x, y = across[0][0], along[0][1]
    return (
        min(abs(x - along[0][0]), abs(along[1][0] - x)) >= APART
        and along[0][0] < x < along[1][0]
        and min(abs(y - across[0][1]), abs(across[1][1] - y)) >= APART
        and min(across[0][1], across[1][1]) < y < max(across[0][1], across[1][1])
    )


@pytest.mark.parametrize("name", X_ALONE)
def test_units(name: str) -> None:
    assert_good(laid_out(name))


@pytest.mark.parametrize("name", X_ALONE)
def test_states_enter_left_results_leave_right_and_the_input_comes_from_below(name: str) -> None:
    layout = laid_out(name)
    kinds = [box.kind for box in layout.diagram.boxes]
    inner = [
        r for r, k in zip(layout.rectangles, kinds, strict=True) if k not in ("state", "result")
    ]
    for kind, place in zip(kinds, layout.rectangles, strict=True):
        if kind == "state":
            assert all(place.right < other.left for other in inner)
        if kind == "result":
            assert all(place.left > other.right for other in inner)
        if kind == "input":
            assert all(place.top >= other.bottom for other in layout.rectangles if other != place)


@pytest.mark.parametrize("name", X_ALONE)
def test_the_highway_is_the_line_on_top(name: str) -> None:
    layout = laid_out(name)
    kinds = [layout.diagram.boxes[place].kind for place in layout.highway]
    assert (kinds[0], kinds[-1]) == ("state", "result")
    for place, box in enumerate(layout.rectangles):
        if place in layout.highway:
            assert box.middle[1] == pytest.approx(0)
        else:
            assert box.top > 0
    for one, other in itertools.pairwise(layout.highway):
        wire = next(w for w in layout.wires if (w.source, w.target) == (one, other))
        assert len(wire.points) == 2


def test_the_highway_is_the_state_that_is_kept() -> None:
    for name, state in {
        "mgu": "h",
        "lstm": "c",
        "scrn": "s",
        "simple": "h",
        "lstm_fgr": "c",
    }.items():
        layout = laid_out(name)
        assert layout.diagram.boxes[layout.highway[0]].text == f"{state}_{{t{{-}}1}}"


@pytest.mark.parametrize("name", X_ALONE)
def test_forks_are_where_wires_of_one_box_part(name: str) -> None:
    layout = laid_out(name)
    sources = Counter(wire.source for wire in layout.wires)
    forks = Counter(source for source, _ in layout.forks)
    for source, targets in sources.items():
        assert (forks[source] > 0) == (targets > 1)
    for source, (x, y) in layout.forks:
        through = [
            wire
            for wire in layout.wires
            if wire.source == source
            and any(gap(segment, ((x, y), (x, y))) <= 0.01 for segment in segments(wire))
        ]
        assert len(through) >= 2


def test_few_crossings() -> None:
    """What a reader has to untangle, in the units of the paper's figure."""
    most = {"simple": 0, "mgu": 1, "gru": 2, "lstm": 3, "lstm_coupled": 2}
    for name, limit in most.items():
        layout = laid_out(name)
        points = {
            (across[0][0], along[0][1])
            for one, other in itertools.permutations(layout.wires, 2)
            if one.source != other.source
            for along, across in itertools.product(segments(one), segments(other))
            if along[0][1] == along[1][1]
            and across[0][0] == across[1][0]
            and crosses(along, across)
        }
        assert len(points) <= limit, (name, points)


def test_boxes_have_the_same_sizes_in_all_units() -> None:
    names = ("mgu", "lstm_peephole", "scrn")
    sizes: dict[tuple[str, bool], set[tuple[float, float]]] = {}
    for layout in layouts([trace(UNITS[name], 28, 100) for name in names]):
        for box, place in zip(layout.diagram.boxes, layout.rectangles, strict=True):
            if box.parameters or box.text in ("+", r"\odot", "1{-}"):
                size = place.right - place.left, place.bottom - place.top
                rounded = round(size[0], 6), round(size[1], 6)
                sizes.setdefault((box.kind, bool(box.parameters)), set()).add(rounded)
    assert all(len(found) == 1 for found in sizes.values()), sizes
    assert sizes["activation", True] == sizes["map", True]


class Crowd(Unit):
    """Eight gates that see everything."""

    states = ("h", "c", "s")
    W_0 = Affine()
    W_1 = Affine()
    W_2 = Affine()
    W_3 = Affine()
    W_4 = Affine()
    W_5 = Affine()
    W_6 = Affine()
    W_7 = Affine()

    def step(self, x: Any, h: Any, c: Any, s: Any) -> Any:
        gates = [sigmoid(getattr(self, f"W_{k}")[h, x, c, s]) for k in range(8)]
        h = gates[0] * h + gates[1] * c + gates[2] * s
        c = gates[3] * c - gates[4] * tanh(h)
        return h, c, gates[5] * s + (1 - gates[6]) * gates[7]


class Exchange(Unit):
    """States that change places; nothing is computed of the input."""

    states = ("h", "c")

    def step(self, x: Any, h: Any, c: Any) -> Any:
        return c, h


class Constant(Unit):
    """Boxes without an input."""

    p = Vector()
    W = Affine()

    def step(self, x: Any, h: Any) -> Any:
        f = sigmoid(self.p)
        return f * h + tanh(self.p * 2) * self.W[x]


@pytest.mark.parametrize("unit", [Crowd(), Exchange(), Constant()], ids=lambda unit: unit.name)
def test_units_of_ones_own(unit: Unit) -> None:
    assert_good(layouts([trace(unit, 3, 5)])[0])


@settings(max_examples=25, derandomize=True)
@given(sketches(most=12))
def test_random_units(sketch: Sketch) -> None:
    assert_good(layouts([sketch.graph()])[0])
