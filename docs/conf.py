"""Sphinx configuration."""

import importlib.metadata

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
