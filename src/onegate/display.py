"""What a notebook shows of units and layers: equations, and the picture where matplotlib is."""

from __future__ import annotations

import html
from typing import Any

from onegate import extras
from onegate.export.latex import latex
from onegate.language import Graph, Unit
from onegate.tracing import trace


def _picture(graph: Graph) -> str | None:
    """The picture as SVG; None, which a notebook takes for nothing, where there cannot be one."""
    if extras.missing("picture"):
        return None
    from onegate.picture.draw import draw, svg
    from onegate.picture.routing import NoRouteError

    try:
        text = svg(draw(graph))
    except NoRouteError:
        return None
    return text[text.index("<svg") :]


def _graph(shown: Any) -> Graph:
    """Of a unit at sizes as good as any, or of a layer's unit at its own."""
    if isinstance(shown, Unit):
        return trace(shown, 28, 100)
    return trace(shown.unit, shown.input_size, shown.hidden_size, shown.bias)


def _equations(shown: Any) -> str:
    """For a place that is not in display mode yet."""
    return f"$${latex(_graph(shown)).replace('{align}', '{aligned}')}$$"


def _heading(shown: Any) -> str:
    if not isinstance(shown, Unit):
        return repr(shown)
    return f"{shown.name}: {shown.title}" if shown.title else shown.name


class Displayed:
    """What layers and cells have, and units, which know nothing of it, are given."""

    def _repr_latex_(self) -> str:
        return _equations(self)

    def _repr_svg_(self) -> str | None:
        return _picture(_graph(self))

    def _repr_html_(self) -> str:
        picture = _picture(_graph(self)) or ""
        heading = html.escape(_heading(self))
        return f"<pre>{heading}</pre>\n{picture}\n<div>{_equations(self)}</div>"


class DisplayedLayer(Displayed):
    """The same with what the text form of a layer or cell begins with."""

    def _asked_for(self: Any) -> list[str]:
        """The unit unless the class names it, the sizes, the unit's options."""
        shown = [] if hasattr(self, "unit_name") else [repr(self.unit.name)]
        shown += [str(self.input_size), str(self.hidden_size)]
        return shown + [f"{name}={value!r}" for name, value in self.unit.options().items()]


for _name in ("_repr_latex_", "_repr_svg_", "_repr_html_"):
    setattr(Unit, _name, vars(Displayed)[_name])
