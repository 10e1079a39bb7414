"""What a notebook shows of units and layers: equations, and the picture where matplotlib is."""

from __future__ import annotations

import html
from typing import Any

from onegate import extras
from onegate.export.latex import latex
from onegate.language import Graph, Unit
from onegate.tracing import trace


def _picture(graph: Graph) -> str | None:
    """The picture as SVG; None, which a notebook takes for nothing, without matplotlib."""
    if extras.missing("picture"):
        return None
    from onegate.picture.draw import draw, svg

    text = svg(draw(graph))
    return text[text.index("<svg") :]


def _page(graph: Graph, title: str) -> str:
    picture = _picture(graph) or ""
    return f"<pre>{html.escape(title)}</pre>\n{picture}\n<div>$${_aligned(graph)}$$</div>"


def _aligned(graph: Graph) -> str:
    """The equations for a place that is in display mode already."""
    return latex(graph).replace("{align}", "{aligned}")


class Layer:
    """Layers and cells: of the first layer's unit, at its sizes."""

    def _graph(self: Any) -> Graph:
        return trace(self.unit, self.input_size, self.hidden_size, self.bias)

    def _repr_latex_(self) -> str:
        return f"$${_aligned(self._graph())}$$"

    def _repr_svg_(self) -> str | None:
        return _picture(self._graph())

    def _repr_html_(self) -> str:
        return _page(self._graph(), repr(self))


# Units know nothing of how they are written; these are theirs all the same.
def _unit_latex(unit: Unit) -> str:
    return f"$${_aligned(trace(unit, 28, 100))}$$"


def _unit_svg(unit: Unit) -> str | None:
    return _picture(trace(unit, 28, 100))


def _unit_html(unit: Unit) -> str:
    return _page(trace(unit, 28, 100), f"{unit.name}: {unit.title}" if unit.title else unit.name)


for _name, _shown in (("latex", _unit_latex), ("svg", _unit_svg), ("html", _unit_html)):
    setattr(Unit, f"_repr_{_name}_", _shown)
