"""Imports point one way: what a part of the package may know of."""

from __future__ import annotations

import ast
import doctest
import functools
import graphlib
import re
from collections import Counter
from pathlib import Path

import pytest

import onegate

SOURCE = Path(onegate.__file__).parent
PACKAGE = "onegate"

# What a unit is and becomes.
LANGUAGE = {
    "ops",
    "values",
    "language",
    "tracing",
    "notation",
    "properties",
    "export.latex",
    "units",
}
LAYERS = {*LANGUAGE, "lowering", "engines", "display", "nn"}

# Part of the library -> the only other parts it may import.
MAY_IMPORT: dict[str, set[str]] = {
    "_moved": set(),
    "extras": set(),
    "files": set(),
    "tensor_files": {"files"},
    "ops": set(),
    "values": {"ops"},
    "language": {"ops", "values"},
    "tracing": {"ops", "values", "language"},
    "notation": {"ops", "language", "tracing"},
    "properties": {"ops", "language", "tracing", "notation"},
    "export": {*LANGUAGE, "lowering", "engines", "files", "extras", "nn"},
    "units": {"ops", "language", "tracing", "export"},
    "lowering": {"ops", "language", "tracing", "properties", "notation"},
    "engines": {*LANGUAGE, "lowering"},
    "nn": {*LANGUAGE, "lowering", "engines", "display", "files", "tensor_files"},
    "picture": {*LANGUAGE, "export", "extras", "files"},
    "display": {*LANGUAGE, "picture", "extras"},
    "probe": LAYERS,
    "streaming": {"export", "engines", "lowering", "nn"},
}
# Part of the laboratory -> what it may import of the laboratory.
MAY_IMPORT_OF_LAB: dict[str, set[str]] = {
    "data": set(),
    "pages": set(),
    "recipes": {"tasks", "plugins"},
    "tasks": {"data", "recipes"},
    "plugins": {"recipes", "tasks"},
    "significance": set(),
    "runs": {"recipes", "significance", "train"},
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


# Names that stand twice, and why.
SAME_MODULES = {
    "__init__": "of packages",
    # A command is in a file of its name, beside the part that it is the command of.
    **dict.fromkeys(("compare", "doctor", "draw", "reproduce"), "a command and its part"),
    "base": "what an engine is, and what a task is: each the root of its own folder",
}
SAME_CLASSES = {
    "Map": "a map of a graph, and its weights in a layer, which are pickled by this name",
    # onegate.drop_in.GRU stands where torch.nn.GRU stood.
    **dict.fromkeys(("GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"), "torch's own names"),
}


def test_no_module_has_the_name_of_another() -> None:
    stems = Counter(path.stem for path in MODULE_FILES.values())
    assert {stem for stem, times in stems.items() if times > 1} == {*SAME_MODULES}


def test_no_class_has_the_name_of_another() -> None:
    found: dict[str, list[str]] = {}
    for name, path in MODULE_FILES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(name)
    twice = {name: where for name, where in found.items() if len(where) > 1}
    # The layer onegate.MGU is named after the equations that it runs.
    layers = {
        name
        for name, (*others, last) in twice.items()
        if others == ["nn.named"] and last.startswith("units.")
    }
    assert {*twice} - layers == {*SAME_CLASSES}


UNLISTED = ("__main__", "__init__")
PAGE = SOURCE.parent.parent / "docs" / "architecture.md"


@pytest.mark.skipif(not PAGE.exists(), reason="the pages are in the repository alone")
def test_the_page_lists_every_part() -> None:
    listing = PAGE.read_text().partition("Imports point")[0]
    parts = [path for folder in (SOURCE, SOURCE / "lab") for path in folder.iterdir()]
    modules = [path for path in parts if path.suffix == ".py" and path.stem not in UNLISTED]
    folders = [path for path in parts if (path / "__init__.py").exists() and path.name != "lab"]
    for name in (*(path.name for path in modules), *(f"{path.name}/" for path in folders)):
        assert f" {name} " in listing, f"docs/architecture.md does not list {name}"


@pytest.mark.skipif(not PAGE.exists(), reason="the pages are in the repository alone")
def test_what_the_page_points_to_is_there() -> None:
    rows = PAGE.read_text().partition("## To add something")[2]
    found = re.findall(r"`((?:tests|examples)/[\w/.]+)(?:::(\w+))?`", rows)
    assert len(found) >= 6
    for path, test in found:
        text = (PAGE.parents[1] / path).read_text()
        assert not test or f"def {test}(" in text, f"{path} has no {test}"


@pytest.mark.skipif(not PAGE.exists(), reason="the pages are in the repository alone")
def test_the_stages_on_the_page_are_what_comes_out() -> None:
    options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    text = PAGE.read_text().replace("```", "")  # which would be taken for output
    found = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, str(PAGE), 0)
    assert len(found.examples) >= 8
    assert doctest.DocTestRunner(optionflags=options).run(found).failed == 0
