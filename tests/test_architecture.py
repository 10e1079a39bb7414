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

# What a unit is and becomes.
LANGUAGE = {"ops", "language", "tracing", "notation", "properties", "export.latex", "units"}
LAYERS = {*LANGUAGE, "lowering", "engines", "display", "nn"}

# Part of the library -> the only other parts it may import.
MAY_IMPORT: dict[str, set[str]] = {
    "_moved": set(),
    "extras": set(),
    "files": set(),
    "ops": set(),
    "language": {"ops"},
    "tracing": {"ops", "language"},
    "notation": {"ops", "language", "tracing"},
    "properties": {"ops", "language", "tracing", "notation"},
    "export": {"ops", "language", "tracing", "notation", "properties", "lowering"},
    "units": {"ops", "language", "tracing", "export"},
    "lowering": {"ops", "language", "tracing", "properties"},
    "engines": {*LANGUAGE, "lowering"},
    "nn": {*LANGUAGE, "lowering", "engines", "display"},
    "picture": {*LANGUAGE, "export", "extras", "files"},
    "display": {*LANGUAGE, "picture", "extras"},
    "probe": LAYERS,
}
# Part of the laboratory -> what it may import of the laboratory.
MAY_IMPORT_OF_LAB: dict[str, set[str]] = {
    "data": set(),
    "pages": set(),
    "recipes": {"tasks", "plugins"},
    "tasks": {"data", "recipes"},
    "plugins": {"recipes", "tasks"},
    "runs": {"recipes", "train"},
    "archive": {"recipes", "runs"},
    "train": {"data", "plugins", "recipes", "runs", "tasks"},
    "report": {"archive", "pages", "plugins", "recipes", "runs", "tasks", "train"},
}
# Packages that the library does without; in the folder of pictures, matplotlib.
OF_THE_LAB = {"matplotlib", "rich", "pooch", "safetensors", "ray", "tensorboard"}


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


@functools.cache
def packages(name: str) -> set[str]:
    """The packages that a module imports, wherever in its text."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(MODULE_FILES[name].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(node.module or "")
    return {one.partition(".")[0] for one in found}


def part(name: str) -> str:
    return name.removeprefix("lab.").partition(".")[0]


def of_lab(name: str) -> bool:
    return name == "lab" or name.startswith("lab.")


LIBRARY = [n for n in MODULE_FILES if not of_lab(n) and n not in ("", "_public", "__main__")]


@pytest.mark.parametrize("name", LIBRARY)
def test_imports_point_one_way(name: str) -> None:
    allowed = MAY_IMPORT[part(name)]
    wrong = {
        m
        for m in imported(name)
        if m and part(m) != part(name) and m not in allowed and part(m) not in allowed
    }
    assert not wrong, f"{name} may import {sorted(allowed)}, not {sorted(wrong)}"


@pytest.mark.parametrize("name", ["_public", *LIBRARY])
def test_the_library_knows_nothing_of_the_laboratory(name: str) -> None:
    assert not {m for m in imported(name) if of_lab(m)}


@pytest.mark.parametrize("name", ["_public", *LIBRARY])
def test_the_library_imports_no_package_of_the_laboratory(name: str) -> None:
    allowed = {"matplotlib"} if part(name) == "picture" else set()
    assert not (packages(name) & OF_THE_LAB) - allowed


@pytest.mark.parametrize(
    "name", [n for n in MODULE_FILES if of_lab(n) and part(n) in MAY_IMPORT_OF_LAB]
)
def test_imports_of_the_laboratory_point_one_way(name: str) -> None:
    allowed = {*MAY_IMPORT_OF_LAB[part(name)], part(name), "lab", ""}
    wrong = {m for m in imported(name) if of_lab(m) and part(m) not in allowed}
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
    assert not {m for m in imported(name) if m.startswith("lab.cli")}


def test_layers_never_name_a_unit_and_units_never_a_layer() -> None:
    for name in ("nn.arguments", "nn.init", "nn.cells", "nn.layers"):
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
