"""A unit's picture as an element of a page, in the page's light and dark."""

from __future__ import annotations

from onegate.lab.pages import canvas
from onegate.lab.pages.markup import Markup
from onegate.language import Graph
from onegate.picture import draw
from onegate.picture.draw import DARK, LIGHT, Theme


def _colors(theme: Theme) -> list[str]:
    return [theme.ink, theme.faint, *theme.fills.values(), *theme.lines.values()]


_PAIRS = dict(zip(_colors(LIGHT), _colors(DARK), strict=True))


def inline(graph: Graph, name: str) -> Markup:
    """The picture; name: sets its identifiers apart from those of the page's other figures."""
    text = draw.svg(draw.draw(graph)).replace(LIGHT.paper, "var(--paper)")
    for light in _PAIRS:
        text = text.replace(light, f"var({_variable(light)})")
    unit = graph.unit
    return canvas.inline(text, name, f"Data flow of {unit.title or unit.name}")


def style() -> str:
    """The colours of pictures as CSS variables."""
    light, dark = (
        "".join(f" {_variable(key)}: {color};" for key, color in pairs)
        for pairs in (((key, key) for key in _PAIRS), _PAIRS.items())
    )
    return f":root {{{light} }}\n@media (prefers-color-scheme: dark) {{ :root {{{dark} }} }}\n"


def _variable(light: str) -> str:
    return f"--draw-{light.removeprefix('#')}"
