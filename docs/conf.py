"""Sphinx configuration. The pages need no network when they are read: formulas are MathML."""

import importlib.metadata
import re
import sys
from pathlib import Path
from typing import Any

import latex2mathml.converter

sys.path.insert(0, str(Path(__file__).parent))
from api_page import api_page

project = "onegate"
author = "The onegate authors"
copyright = "2026, The onegate authors"
release = importlib.metadata.version("onegate")
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "onegate"
html_static_path = ["_static"]
html_css_files = ["onegate.css"]
html_math_renderer = "mathml"
exclude_patterns = ["_build"]
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
smartquotes = False  # options begin with two dashes

# Notebooks are committed without outputs, and run when the pages are made.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_execution_timeout = 600
nb_ipywidgets_js: dict[str, Any] = {}  # none are used, and the scripts would come from the network
nb_mime_priority_overrides = [("html", "image/svg+xml", 0)]  # of units and layers, the picture


# Where a line goes on with another argument: `dt: the length of a step. gamma: the frequency.`
_ANOTHER = re.compile(r"(?<=\.) (?=[a-z_]\w*(?:, [a-z_]\w*)*: \S)")


def _marked_up(*event: Any) -> None:
    """Docstrings are plain text: `bias: whether ...` becomes a list's item, LaTeX a formula."""
    lines: list[str] = event[-1]
    found: list[str] = []
    inside = ""  # what the line before belongs to
    for line in [part for whole in lines for part in _ANOTHER.split(whole)]:
        if line.startswith("\\begin{align}"):
            inside = "formula"
            found += [".. math::", "   :nowrap:", ""]
        field = re.match(r"([a-z_]\w*(?:, [a-z_]\w*)*): (\S.*)", line)
        if inside == "formula":
            found.append(f"   {line}")
            inside = "" if line.startswith("\\end{align}") else inside
        elif field is not None:
            names = ", ".join(f"``{name}``" for name in field[1].split(", "))
            found += [*([] if inside else [""]), f"- {names}: {field[2]}"]
            inside = "list"
        elif inside and line.strip():
            found.append(f"  {line.strip()}")
        else:
            found += [*([""] if inside else []), line]
            inside = ""
    lines[:] = found


def _mathml(translator: Any, node: Any, display: str) -> None:
    import docutils.nodes

    text = node.astext().strip().strip("$").replace("{align}", "{align*}")
    translator.body.append(latex2mathml.converter.convert(text, display=display))
    raise docutils.nodes.SkipNode


def _generated(_app: Any, name: str, content: list[str]) -> None:
    if name == "api":
        content[0] = api_page()


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", _marked_up)
    app.connect("source-read", _generated)
    app.add_html_math_renderer(
        "mathml",
        inline_renderers=(lambda self, node: _mathml(self, node, "inline"), None),
        block_renderers=(lambda self, node: _mathml(self, node, "block"), None),
    )
