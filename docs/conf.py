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
autodoc_typehints = "description"


def _fields(*event: Any) -> None:
    """Lines of a docstring such as `bias: whether ...` become a list of fields."""
    lines: list[str] = event[-1]
    found, inside = [], False
    for line in lines:
        is_field = re.match(r"[a-z_]\w*: \S", line) is not None
        belongs = inside and line.startswith(" ")
        if is_field != inside and not belongs:
            found.append("")
        inside = is_field or belongs
        found.append(f":{line}" if is_field else line)
    lines[:] = found


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", _fields)
