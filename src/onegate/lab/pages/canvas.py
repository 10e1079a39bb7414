"""One look for all figures: size, fonts, colours; and their forms as SVG, PDF and PNG.

The same lines come out for the same content: no dates, no random identifiers.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from onegate.lab.pages.markup import Markup, escaped


@dataclass(frozen=True)
class Color:
    """A colour: its value on white, and the name of the page's variable for light and dark."""

    light: str
    variable: str


INK = Color("#1c2126", "--ink")
MUTED = Color("#5b6570", "--muted")
RULE = Color("#dde1e5", "--rule")
_WHITE = "#ffffff"

# Apart for every common kind of colour vision when taken in this order.
_SERIES = tuple(
    Color(light, f"--series-{number}")
    for number, light in enumerate(
        ("#0b5cad", "#c2490a", "#1a7f4b", "#8438c9", "#a87900", "#c81e6e", "#0a7e86", "#6e6259")
    )
)
_UNITS: Mapping[str, Color] = MappingProxyType({"mgu": _SERIES[0], "gru": _SERIES[1]})
# Of units that share a colour.
_MARKERS = ("o", "s", "^", "v", "D", "P", "X", "*")

# Narrow enough that the text is still readable when a phone shows the whole width.
_WIDTH = 5.0
# Of a legend: letters that fit in the width, what a column takes beside its text, and the height
# of a line in inches.
_LETTERS, _LETTERS_OF_A_LINE, _LINE_HEIGHT = 80, 9, 0.19
_LINES_IN_EVERY_HEIGHT = 2
_MOST_COLUMNS, _FEW_LINES = 4, 8
_STYLE: Mapping[str, Any] = MappingProxyType(
    {
        "font.size": 9.5,
        "font.family": "DejaVu Sans",
        "svg.fonttype": "none",
        # Type 3, matplotlib's own choice, is refused by many journals.
        "pdf.fonttype": 42,
        # Names and words may have dollars in them.
        "text.parse_math": False,
        "text.color": INK.light,
        "axes.labelcolor": INK.light,
        "axes.edgecolor": MUTED.light,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.8,
        "axes.facecolor": "none",
        "figure.facecolor": "none",
        "grid.color": RULE.light,
        "grid.linewidth": 0.8,
        "xtick.color": MUTED.light,
        "ytick.color": MUTED.light,
        "legend.frameon": False,
        "legend.fontsize": 9,
        "lines.linewidth": 1.8,
        "lines.markersize": 5,
        "figure.constrained_layout.use": True,
        "axes.unicode_minus": True,
    }
)


@contextmanager
def style() -> Iterator[None]:
    """The look; figures are made and saved inside this `with` block."""
    settings: dict[Any, Any] = dict(_STYLE)
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # Words may be of any script. The PNG shows boxes for letters that the font has not; the
        # SVG and the page leave the choice of a font to who shows them.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        yield


def new(height: float) -> tuple[Figure, Axes]:
    """A figure of the common width with one pair of axes."""
    figure = Figure(figsize=(_WIDTH, height))
    return figure, figure.subplots()


def colors(units: list[str]) -> dict[str, Color]:
    """A colour for each unit; MGU and GRU have theirs everywhere."""
    free = [color for color in _SERIES if color not in _UNITS.values()]
    others = [unit for unit in dict.fromkeys(units) if unit not in _UNITS]
    given = {unit: free[position % len(free)] for position, unit in enumerate(others)}
    return {unit: _UNITS.get(unit) or given[unit] for unit in units}


def markers(units: list[str]) -> dict[str, str]:
    """A marker for each unit: with its colour of `colors` no other one has it, for 50 units."""
    seen: dict[Color, int] = {}
    found = {}
    for unit, color in colors(units).items():
        found[unit] = _MARKERS[seen.get(color, 0) % len(_MARKERS)]
        seen[color] = seen.get(color, 0) + 1
    return found


def legend_below(figure: Figure, axes: Axes) -> None:
    """The legend under the axes, where it covers nothing; a long one makes the figure taller."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        longest = max(map(len, labels))
        columns = max(1, min(_MOST_COLUMNS, _LETTERS // (longest + _LETTERS_OF_A_LINE)))
        columns = min(columns, 2) if len(handles) <= _FEW_LINES else columns
        lines = -(-len(handles) // columns)
        more = max(0, lines - _LINES_IN_EVERY_HEIGHT)
        figure.set_figheight(figure.get_figheight() + more * _LINE_HEIGHT)
        figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def svg(figure: Figure, name: str) -> str:
    """The figure as a file of its own, on white; the name makes its identifiers."""
    file = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        metadata = {"Date": None, "Creator": None}
        figure.savefig(file, format="svg", facecolor=_WHITE, metadata=metadata)
    # What is laid out stays so: other forms of the figure look the same, and are made faster.
    figure.set_layout_engine("none")
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


def inline(svg: str, name: str, alt: str) -> Markup:
    """An SVG file of matplotlib as an element of a page, in the page's colours, as wide as its box.

    name: a `markup.identifier`, sets its identifiers apart from those of other figures.
    """
    if not re.fullmatch("[a-z0-9_-]+", name):
        raise ValueError(f"{name!r} cannot begin an identifier; take markup.identifier of it")
    text = svg[svg.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    # In tags alone: what is written in the figure stays as it is.
    text = re.sub("<[^>]*>", lambda found: _in_a_page(found[0], name), text)
    box = re.search(r'viewBox="[^"]*"', text)
    assert box is not None
    head = f'<svg {box[0]} role="img" aria-label="{escaped(alt)}">'
    return Markup(head + text[text.index(">") + 1 :].strip())


def _in_a_page(tag: str, name: str) -> str:
    tag = re.sub(r'\bid="', f'id="{name}-', tag)
    tag = re.sub(r'(url\(|href=")#', rf"\1#{name}-", tag)
    tag = tag.replace(_WHITE, "none")
    for color in (INK, MUTED, RULE, *_SERIES):
        tag = tag.replace(color.light, f"var({color.variable})")
    return tag


def png(figure: Figure) -> bytes:
    """The figure as pixels, on white."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=200, facecolor=_WHITE, metadata={"Software": None})
    return file.getvalue()


def pdf(figure: Figure) -> bytes:
    """The figure for papers, on nothing."""
    file = io.BytesIO()
    metadata = {"CreationDate": None, "Producer": None, "Creator": None}
    figure.savefig(file, format="pdf", metadata=metadata)
    return file.getvalue()
