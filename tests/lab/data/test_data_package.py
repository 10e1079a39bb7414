"""Rules that hold for the whole package."""

from __future__ import annotations

import ast
import doctest
import importlib
import sys
from pathlib import Path

import pytest

from onegate.lab import data

MODULES = sorted(path.stem for path in Path(data.__file__).parent.glob("*.py"))
ALLOWED = {"matplotlib", "numpy", "pooch", "requests", "rich"}


@pytest.mark.parametrize("name", MODULES)
def test_imports_neither_torch_nor_other_parts(name: str) -> None:
    tree = ast.parse((Path(data.__file__).parent / f"{name}.py").read_text("utf-8"))
    roots = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            imported = (node.module, *(alias.name for alias in node.names))
            # The one writes whole files, the other is the console of progress: both import nothing.
            if imported in {("onegate", "files"), ("onegate.lab", "signs_of_life")}:
                continue
            roots.add(str(node.module).split(".")[0])
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 1
    assert roots <= ALLOWED | sys.stdlib_module_names


@pytest.mark.parametrize("name", [name for name in MODULES if name != "__init__"])
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"onegate.lab.data.{name}")).failed == 0
