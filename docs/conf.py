"""Sphinx configuration."""

import importlib.metadata
import re
from typing import Any

project = "onegate"
author = "The onegate authors"
copyright = "2026, The onegate authors"
release = importlib.metadata.version("onegate")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "onegate"
exclude_patterns = ["_build"]
autodoc_typehints = "signature"


def _marked_up(*event: Any) -> None:
    """Docstrings are plain text: `bias: whether ...` becomes a list's item, LaTeX a formula."""
    lines: list[str] = event[-1]
    found: list[str] = []
    inside = ""  # what the line before belongs to
    for line in lines:
        if line.startswith("\\begin{align}"):
            inside = "formula"
            found += [".. math::", "   :nowrap:", ""]
        field = re.match(r"([a-z_]\w*): (\S.*)", line)
        if inside == "formula":
            found.append(f"   {line}")
            inside = "" if line.startswith("\\end{align}") else inside
        elif field is not None:
            found += [*([] if inside else [""]), f"- ``{field[1]}``: {field[2]}"]
            inside = "list"
        elif inside and line.startswith(" "):
            found.append(f"  {line.strip()}")
        else:
            found += [*([""] if inside else []), line]
            inside = ""
    lines[:] = found


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", _marked_up)
