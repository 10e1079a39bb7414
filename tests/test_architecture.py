"""Imports point one way: what a part of the package may know of."""

from __future__ import annotations

import ast
import functools
import graphlib
from pathlib import Path

import pytest

import onegate

SOURCE = Path(onegate.__file__).parent
PACKAGE = "onegate"

LANGUAGE = {"expressions", "tracing", "graph", "units"}
MODULES = {*LANGUAGE, "engines", "arguments", "init", "cells", "layers", "named", "convert"}
EXPERIMENTS = {"models", "tasks", "training", "trainer", "optimizers"}

# Part -> the only other parts it may import.
MAY_IMPORT: dict[str, set[str]] = {
    "expressions": set(),
    "tracing": {"expressions"},
    "graph": {"expressions", "tracing"},
    "units": {"expressions", "tracing", "graph"},
    "engines": LANGUAGE,
    "arguments": {*LANGUAGE, "engines"},
    "init": LANGUAGE,
    "cells": {*LANGUAGE, "engines", "arguments", "init"},
    "layers": {*LANGUAGE, "engines", "arguments", "init", "cells"},
    "named": {"units", "cells", "layers"},
    "convert": {*LANGUAGE, "cells", "layers", "named"},
    "files": set(),
    "text_statistics": set(),
    "data": {"files"},
    "recipes": {*LANGUAGE, "files"},
    "results": {"files", "recipes", "checkpoints", "machine"},
    "pages": {"files"},
    "report": {"files", "pages", "recipes", "results", *LANGUAGE},
}
# The parts of inspect that a user calls on a layer of their own; the others read runs.
INSIDE_A_LAYER = {"inspect.traces", "inspect.memory", "inspect.gradients", "inspect.jacobians"}
# A picture is asked for by a unit's name.
ALLOWED = {("graph.draw", "units")}


def modules() -> dict[str, Path]:
    """Name without the package's -> file."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path
    return found


MODULE_FILES = modules()


@functools.cache
def imported(name: str) -> set[str]:
    """The modules of the package that a module imports, wherever in its text."""
    path = MODULE_FILES[name]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                folder = path.parents[node.level - 1].relative_to(SOURCE.parent)
                base = ".".join((*folder.parts, *filter(None, [node.module])))
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                found.add(inner if inner.removeprefix(f"{PACKAGE}.") in MODULE_FILES else base)
    ours = {m.removeprefix(f"{PACKAGE}.") for m in found if m.startswith(f"{PACKAGE}.")}
    return ours - {name}


def part(name: str) -> str:
    return name.partition(".")[0]


@pytest.mark.parametrize("name", [n for n in MODULE_FILES if part(n) in MAY_IMPORT])
def test_imports_point_one_way(name: str) -> None:
    allowed = MAY_IMPORT[part(name)] | {part(name)}
    wrong = {m for m in imported(name) if part(m) not in allowed and (name, part(m)) not in ALLOWED}
    assert not wrong, f"{name} may import {sorted(allowed)}, not {sorted(wrong)}"


def test_no_module_imports_itself_by_a_detour() -> None:
    # A package's __init__ gathers its modules, so it is no module of its own here.
    graph = {name: imported(name) for name in MODULE_FILES if not _gathers(name)}
    graph = {name: {m for m in found if m in graph} for name, found in graph.items()}
    assert list(graphlib.TopologicalSorter(graph).static_order())


def _gathers(name: str) -> bool:
    return MODULE_FILES[name].name == "__init__.py"


@pytest.mark.parametrize("name", [n for n in MODULE_FILES if part(n) not in ("cli", "__main__")])
def test_only_the_command_line_knows_the_command_line(name: str) -> None:
    assert "cli" not in {part(m) for m in imported(name)}


@pytest.mark.parametrize(
    "name", [n for n in MODULE_FILES if part(n) in MODULES or n in INSIDE_A_LAYER]
)
def test_the_library_knows_nothing_of_experiments(name: str) -> None:
    assert not {part(m) for m in imported(name)} & {*EXPERIMENTS, "data", "recipes", "results"}


def test_layers_never_name_a_unit_and_units_never_a_layer() -> None:
    for name in ("arguments", "init", "cells", "layers"):
        text = MODULE_FILES[name].read_text()
        code = "\n".join(ast.unparse(node) for node in _without_docstrings(ast.parse(text)).body)
        named = {unit for unit in onegate.UNITS if f"'{unit}'" in code}
        assert not named, f"{name} names {named}"


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if (
            isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
            and ast.get_docstring(node) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return tree


def test_the_native_code_knows_neither_torch_nor_python() -> None:
    sources = SOURCE.parent.parent / "csrc"
    if not sources.is_dir():
        pytest.skip("csrc is not beside an installed package")
    for path in sources.rglob("*"):
        if path.suffix in (".h", ".cpp", ".hpp", ".inl"):
            assert "Python.h" not in path.read_text()
            assert "torch/" not in path.read_text()
