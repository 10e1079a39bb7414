"""Pictures of units, drawn from their graphs alone, as in Figure 1 of Zhou et al. (2016).

    draw("gru", "mgu")                  a matplotlib figure
    save(draw("mgu"), "mgu.svg")        a file

States enter on the left and leave on the right, the input comes from below. The state that the
unit keeps runs along the top.
"""

from __future__ import annotations

import functools
import io
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Circle, FancyBboxPatch, PathPatch, Polygon
from matplotlib.path import Path as Line
from matplotlib.textpath import TextPath
from matplotlib.transforms import Bbox

from onegate import files
from onegate.language import Graph, Unit
from onegate.notation import Notation
from onegate.picture.diagram import Box, Diagram, diagram
from onegate.picture.layout import Layout, Point, Rectangle, Wire, layout
from onegate.picture.routing import NoRouteError
from onegate.tracing import trace
from onegate.units import get

_ENDINGS = (".svg", ".pdf", ".png")
_SETTINGS: dict[Any, Any] = {
    "mathtext.fontset": "stix",
    "font.family": "DejaVu Sans",
    "svg.fonttype": "path",
    "svg.hashsalt": "onegate",
    "pdf.fonttype": 42,
}
# What a file says of itself, by its kind; no dates: the same figure gives the same bytes.
_METADATA: dict[str, dict[str, str | None]] = {
    "svg": {"Date": None, "Creator": "onegate"},
    "pdf": {"CreationDate": None, "Creator": "onegate", "Producer": None},
    "png": {"Software": "onegate"},
}

_TEXT, _SMALL, _SIGN = 15.0, 11.5, 10.0
_MARKS = {"sub": ("+", "-"), "div": ("", r"\div")}  # beside the wires of the two operands
_TITLE, _SUBTITLE = 12.0, 9.5
_LEARNED = (58.0, 42.0)
_PLAIN = 26.0
_PORT = 10.0  # the least height of a learned box for each of its inputs
_RADIUS = 5.0
_MARGIN, _PAD = 16.0, 12.0
_HEAD = 38.0  # room for the two lines of the title


@dataclass(frozen=True)
class Theme:
    """Colours. fills and lines are by role; a wire has the colour of what it carries."""

    paper: str
    ink: str
    faint: str
    fills: Mapping[str, str]
    lines: Mapping[str, str]


LIGHT = Theme(
    paper="#ffffff",
    ink="#1f2933",
    faint="#66717d",
    fills={"gate": "#dbe8fa", "activation": "#fde4cf", "affine": "#e6e3f4"},
    lines={
        "gate": "#1f62b5", "activation": "#b8540c", "affine": "#5b4aa2",
        "input": "#2a7d4f",
    },
)  # fmt: skip
DARK = Theme(
    paper="#14181d",
    ink="#e6eaee",
    faint="#9aa5b1",
    fills={"gate": "#1f3a5f", "activation": "#573214", "affine": "#352d5c"},
    lines={
        "gate": "#74b0f4", "activation": "#f3a465", "affine": "#b0a2ee",
        "input": "#6cc795",
    },
)  # fmt: skip


def draw(
    *units: Graph | Unit | str,
    input_size: int = 28,
    hidden_size: int = 100,
    dark: bool = False,
    title: bool = True,
) -> Figure:
    """The pictures of one or several units in a grid, on one scale.

    units: registered names, units or graphs. Sizes are those of units that are not graphs yet, and
    only the numbers of parameters depend on them. Without `title` the names of units are left out.
    """
    if not units:
        raise ValueError("draw needs at least one unit, for example draw('mgu')")
    if min(input_size, hidden_size) < 1:
        raise ValueError(
            f"sizes are whole numbers from 1 up, got input_size={input_size} and "
            f"hidden_size={hidden_size}"
        )
    graphs = [u if isinstance(u, Graph) else trace(get(u), input_size, hidden_size) for u in units]
    with mpl.rc_context(_SETTINGS):
        cells = [
            _Cell(*pair, title, alone=len(graphs) == 1)
            for pair in zip(graphs, layouts(graphs), strict=True)
        ]
        return _figure(cells, DARK if dark else LIGHT)


def svg(figure: Figure) -> str:
    """A figure as the text of an SVG file."""
    text = io.StringIO()
    with mpl.rc_context(_SETTINGS):
        figure.savefig(text, format="svg", metadata=_METADATA["svg"])
    return text.getvalue()


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Writes a figure as SVG, PDF or PNG, by the ending; the same figure gives the same bytes."""
    path = picture_path(path)
    kind = path.suffix.lower().removeprefix(".")
    content = io.BytesIO()
    with mpl.rc_context(_SETTINGS):
        figure.savefig(content, format=kind, dpi=200, metadata=_METADATA[kind])
    files.write(path, content.getvalue())


def picture_path(path: str | os.PathLike[str]) -> Path:
    """The path of a picture; an error says why none can be written there."""
    path = Path(path)
    if path.suffix.lower() not in _ENDINGS:
        raise ValueError(
            f"{path} should end in {' or '.join(_ENDINGS)}, which says how to write it"
        )
    files.require_writable(path)
    return path


def layouts(graphs: Sequence[Graph]) -> list[Layout]:
    """The layouts of several units, with boxes of the same sizes."""
    diagrams = [diagram(graph) for graph in graphs]
    with mpl.rc_context(_SETTINGS):
        boxes = [box for d in diagrams for box in d.boxes if box.parameters]
        texts = [_width(_parameters(box), _parameter_size(box)) for box in boxes]
        widest = max([_LEARNED[0], *(text + 12 for text in texts)])
        return [
            _laid_out(graph, d, lambda box: _size(box, widest))
            for graph, d in zip(graphs, diagrams, strict=True)
        ]


def _laid_out(graph: Graph, boxes: Diagram, size: Callable[[Box], tuple[float, float]]) -> Layout:
    try:
        return layout(boxes, size, _label_width)
    except NoRouteError as error:
        name = graph.unit.name
        raise NoRouteError(
            f"{name}: {error}; `onegate units {name}` prints its equations"
        ) from None


def _size(box: Box, widest: float) -> tuple[float, float]:
    if box.parameters:
        return widest, max(_LEARNED[1], _PORT * (len(box.sources) + 1))
    text = _width(box.text, _TEXT)
    if box.kind in ("operation", "activation"):
        return max(_PLAIN, text + 10), _PLAIN
    return text + 6, 20.0


def _label_width(box: Box) -> float:
    return _width(box.label, _TEXT) + 8 if box.label else 0.0


def _parameters(box: Box) -> str:
    return r",\,".join(box.parameters)


def _parameter_size(box: Box) -> float:
    """Parameters are small beneath an activation; those of a map are all that its box shows."""
    return _SMALL if box.text else _TEXT


def _width(text: str, size: float) -> float:
    return float(_ink(text, size).width) if text else 0.0


@functools.lru_cache(maxsize=4096)
def _ink(text: str, size: float) -> Bbox:
    """The extent of mathtext in points, y upwards from the baseline."""
    return TextPath((0, 0), f"${text}$", size=size, prop=FontProperties()).get_extents()


def _words_width(text: str, size: float, weight: str = "normal") -> float:
    if not text:
        return 0.0
    path = TextPath((0, 0), text, size=size, prop=FontProperties(weight=weight))
    return float(path.get_extents().width)


class _Cell:
    """One unit of the grid, and the room it takes."""

    def __init__(self, graph: Graph, drawn: Layout, titled: bool, alone: bool) -> None:
        self.graph, self.drawn, self.alone = graph, drawn, alone
        unit = graph.unit
        self.head = _HEAD if titled else 0.0
        self.title = (unit.title or unit.name) if titled else ""
        self.subtitle = (
            f"{unit.name}: {graph.parameter_count():,} parameters "
            f"(input {graph.input_size}, hidden {graph.hidden_size})"
            if titled
            else ""
        )
        corners = [(r.right, r.bottom) for r in drawn.rectangles]
        corners += [p for wire in drawn.wires for p in wire.points]
        texts = _words_width(self.title, _TITLE, "bold"), _words_width(self.subtitle, _SUBTITLE)
        self.width = max(*(x for x, _ in corners), *(width - 2 * _PAD for width in texts))
        self.above = -min(r.top for r in drawn.rectangles)
        self.below = max(y for _, y in corners)


def _figure(cells: Sequence[_Cell], theme: Theme) -> Figure:
    columns = math.ceil(math.sqrt(len(cells)))
    lines = [cells[i : i + columns] for i in range(0, len(cells), columns)]
    width = max(cell.width for cell in cells) + 2 * _PAD
    heights = [
        line[0].head + max(c.above for c in line) + max(c.below for c in line) + 2 * _PAD
        for line in lines
    ]
    total = (columns * width + _MARGIN * (columns + 1), sum(heights) + _MARGIN * (len(lines) + 1))
    figure = Figure(figsize=(total[0] / 72, total[1] / 72), facecolor=theme.paper)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, total[0]), ylim=(total[1], 0))
    axes.axis("off")
    y = _MARGIN
    for line, height in zip(lines, heights, strict=True):
        highway = y + line[0].head + max(cell.above for cell in line) + _PAD
        for column, cell in enumerate(line):
            x = _MARGIN + column * (width + _MARGIN)
            _Painter(axes, theme, cell, (x + _PAD, highway)).paint((x, y))
        y += height + _MARGIN
    return figure


class _Painter:
    """Draws one unit; `origin` is where its highway enters."""

    def __init__(self, axes: Axes, theme: Theme, cell: _Cell, origin: Point) -> None:
        self.axes, self.theme, self.cell, self.origin = axes, theme, cell, origin
        self.drawn = cell.drawn
        self.boxes = cell.drawn.diagram.boxes

    def paint(self, corner: Point) -> None:
        self._heading(corner)
        for source in range(len(self.boxes)):
            self._net(source)
        for box, rectangle in zip(self.boxes, self.drawn.rectangles, strict=True):
            self._box(box, rectangle)

    def _at(self, point: Point) -> Point:
        return point[0] + self.origin[0], point[1] + self.origin[1]

    def _text(self, point: Point, text: str, size: float, colour: str, **options: Any) -> None:
        at = {"ha": "center", "va": "baseline", "zorder": 6, **options}
        self.axes.text(*point, text, fontsize=size, color=colour, **at)

    def _centred(self, point: Point, text: str, size: float) -> None:
        """Mathtext whose ink has its middle at the point."""
        ink = _ink(text, size)
        self._text((point[0], point[1] + (ink.y0 + ink.y1) / 2), f"${text}$", size, self.theme.ink)

    def _heading(self, corner: Point) -> None:
        x, y = corner
        if not self.cell.title:
            return
        self._text((x, y + 14), self.cell.title, _TITLE, self.theme.ink, ha="left", weight="bold")
        self._text((x, y + 29), self.cell.subtitle, _SUBTITLE, self.theme.faint, ha="left")

    def _colour(self, source: int) -> str:
        """The colour of a wire: that of the operation, and of an old gate that of the new one."""
        box = self.boxes[source]
        if box.kind == "state":
            result = [b for b in self.boxes if b.kind == "result"][source]
            made = self.boxes[result.sources[0]]
            box = made if made.label else box
        return self.theme.lines.get(box.role, self.theme.ink)

    def _net(self, source: int) -> None:
        """The wires of one box, from fork to fork, so that common parts are painted once."""
        colour = self._colour(source)
        forks = [self._at(fork) for owner, fork in self.drawn.forks if owner == source]
        lines: dict[tuple[Point, ...], float] = {}
        for wire in self.drawn.wires:
            if wire.source == source:
                points = [self._at(p) for p in wire.points]
                for piece in _between(points, forks):
                    lines[piece] = max(self._thickness(wire), lines.get(piece, 0.0))
                self.axes.add_patch(_arrow(*points[-2:], color=colour, lw=0, zorder=4))
                self._sign(wire)
        order = 2 + source / len(self.boxes)
        for piece, width in lines.items():  # the wires that it crosses are interrupted
            self._stroke(piece, width + 3.4, self.theme.paper, order)
        for piece, width in lines.items():
            self._stroke(piece, width, colour, order)
        for fork in forks:
            self.axes.add_patch(Circle(fork, 2.7, color=colour, zorder=4, lw=0))

    def _sign(self, wire: Wire) -> None:
        """Marks what a difference takes from what, and what a ratio divides by."""
        target = self.boxes[wire.target]
        mark = _MARKS.get(target.op, ("", ""))[wire.slot] if len(target.sources) == 2 else ""
        if mark:
            x, y = self._at(wire.points[-1])
            along = 8.0 if wire.side == "below" else -8.0
            corner = (x - 8, y - 6) if wire.side == "left" else (x + 7, y + along)
            self._centred(corner, mark, _SIGN)

    def _thickness(self, wire: Wire) -> float:
        highway = self.drawn.highway
        return 2.2 if wire.source in highway and wire.target in highway else 1.3

    def _stroke(self, points: Sequence[Point], width: float, colour: str, order: float) -> None:
        style = {"fc": "none", "ec": colour, "lw": width, "zorder": order, "capstyle": "butt"}
        self.axes.add_patch(PathPatch(_rounded(points), **style))

    def _box(self, box: Box, place: Rectangle) -> None:
        theme = self.theme
        x, y = self._at(place.middle)
        colour = theme.lines.get(box.role, theme.ink)
        name = self._value_name(box)
        if box.kind in ("state", "input", "result"):
            self._text((x, y + 4.5), f"${box.text}$", _TEXT, colour, gid=name)
            return
        left, top = self._at((place.left, place.top))
        self.axes.add_patch(
            FancyBboxPatch(
                (left, top), place.right - place.left, place.bottom - place.top,
                boxstyle="round,pad=0,rounding_size=5", lw=1.2, zorder=5,
                fc=theme.fills.get(box.role, theme.paper), ec=colour,
            )
        )  # fmt: skip
        if box.parameters and box.text:
            self._text((x, y - 4), f"${box.text}$", _TEXT, theme.ink)
            self._text((x, y + 12), f"${_parameters(box)}$", _SMALL, theme.ink)
        else:
            self._centred((x, y), box.text or _parameters(box), _TEXT)  # a map, or no parameters
        if box.label:
            height = max(5.0, 4.0 - _ink(box.label, _TEXT).y0)
            corner = self._at((place.right + 4, place.middle[1] - height))
            self._text(corner, f"${box.label}$", _TEXT, colour, ha="left", gid=name)

    def _value_name(self, box: Box) -> str | None:
        """The identifier of the text that names a value: a page can write the value beside it.

        Of a picture with several units no text has one: two might be the same.
        """
        graph = self.cell.graph
        if not self.cell.alone or box.kind in ("state", "input"):
            return None
        if box.kind == "result":
            results = [b for b in self.boxes if b.kind == "result"]
            place = next(place for place, other in enumerate(results) if other is box)
            return f"value-{graph.states[place].name}"
        name = Notation.of(graph).names.get(box.values[-1])
        return f"value-{name.local}" if name and box.label else None


def _between(points: Sequence[Point], forks: Sequence[Point]) -> Iterator[tuple[Point, ...]]:
    """The pieces of a wire between its forks, each as its corners."""
    piece = [points[0]]
    for before, corner in pairwise(points):
        on_the_way = [f for f in forks if _is_between(f, before, corner)]
        for fork in sorted(on_the_way, key=lambda f: math.dist(before, f)):
            yield (*piece, fork)
            piece = [fork]
        if corner != piece[-1]:
            piece.append(corner)
    yield tuple(piece)


def _is_between(point: Point, start: Point, end: Point) -> bool:
    """Whether a point lies on a horizontal or vertical line, its start left out."""
    ranges = [sorted(pair) for pair in zip(start, end, strict=True)]
    inside = all(low <= v <= high for v, (low, high) in zip(point, ranges, strict=True))
    return inside and point != start


def _rounded(points: Sequence[Point]) -> Line:
    """A line with right angles and rounded corners."""
    vertices, codes = [points[0]], [Line.MOVETO]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        radius = min(_RADIUS, math.dist(before, corner) / 2, math.dist(corner, after) / 2)
        vertices += [_towards(corner, before, radius), corner, _towards(corner, after, radius)]
        codes += [Line.LINETO, Line.CURVE3, Line.CURVE3]
    return Line([*vertices, points[-1]], [*codes, Line.LINETO])


def _towards(start: Point, end: Point, length: float) -> Point:
    share = length / (math.dist(start, end) or 1.0)
    return start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1])


def _arrow(before: Point, tip: Point, **style: Any) -> Polygon:
    back = _towards(tip, before, 7.0)
    across = (tip[1] - back[1]) * 0.45, (back[0] - tip[0]) * 0.45
    corners = [tip] + [(back[0] + s * across[0], back[1] + s * across[1]) for s in (1, -1)]
    return Polygon(corners, closed=True, **style)
