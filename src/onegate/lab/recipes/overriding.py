"""Recipes as JSON, and single fields of them replaced by dotted path."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from onegate.lab.recipes.recipe import (
    INSIDE,
    Model,
    NotGivenError,
    Optimizer,
    Recipe,
    RecipeError,
    Schedule,
    kinds,
    parse,
    shown,
)

# What names a run's subject is chosen by its own options, not by --set.
_FIXED = ("task", "name", "reasons")
# Fields younger than runs that were kept: where they say nothing new, runs keep their names.
_LEFT_OUT = [("source", "real"), *((name, 0.0) for name in INSIDE)]


def override(recipe: Recipe, settings: Iterable[str]) -> Recipe:
    """The recipe with fields replaced, each given as `path=value`.

    >>> override(recipe, ["optimizer.lr=0.002", "model.hidden_size=50"])

    All settings are put in before any is checked, so that two that need each other may come in
    any order; a problem is reported with the settings that were given.
    """
    changes: dict[str, Any] = {}
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise RecipeError(f"{setting!r}: expected field=value, such as optimizer.lr=0.002")
        changes[path.strip()] = _value_for(recipe, path.strip(), text.strip())
    return replaced(recipe, changes)


def replaced(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """The recipe with the fields at these dotted paths replaced, and the reasons marked so."""
    if not changes:
        return recipe
    content = to_json(recipe)
    for path, value in changes.items():
        *parents, last = path.split(".")
        inner = content
        for parent in parents:
            inner = inner[parent]
        inner[last] = value
        content["reasons"][path] = "set by hand"
    made = from_json(content)
    if made.unit == recipe.unit:
        return made
    from onegate.lab import plugins  # see Recipe

    return replace(made, plugins=plugins.used(made))


def _value_for(recipe: Recipe, path: str, text: str) -> Any:
    known = dict(paths(recipe))
    option = path.removeprefix("model.unit_options.")
    if option != path and option:
        return _guessed(text)
    if path not in known:
        raise RecipeError(
            f"a recipe of {recipe.task} has no field {path!r}; {_nearest(path, known)}"
        )
    if path in _FIXED:
        raise RecipeError(f"{path} cannot be set: choose another task or recipe instead")
    return parse(known[path], text)


def _guessed(text: str) -> Any:
    """A unit's option: the unit itself checks it, so any kind of value is taken."""
    for kind in (bool, int, float):
        value = parse(kind, text)
        if isinstance(value, kind) and not (kind is bool and text in "01"):
            return value
    return text


def _nearest(path: str, known: Mapping[str, Any]) -> str:
    settable = [p for p in known if p not in _FIXED]
    by_last = [p for p in settable if p.rpartition(".")[2] == path.rpartition(".")[2]]
    near = by_last or difflib.get_close_matches(path, settable, 1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"its fields are {', '.join(settable)}"


def paths(recipe: Recipe) -> Iterator[tuple[str, Any]]:
    """Every field's dotted path and type, but for `plugins`, which nobody sets."""
    for name, kind in kinds(Recipe).items():
        if name == "plugins":
            continue
        part = getattr(recipe, name)
        if is_dataclass(part):
            for inner, inner_kind in kinds(type(part)).items():
                yield f"{name}.{inner}", inner_kind
        else:
            yield name, kind


def values(recipe: Recipe) -> Iterator[tuple[str, Any]]:
    """Every field's dotted path and value."""
    for path, _ in paths(recipe):
        value: Any = recipe
        for name in path.split("."):
            value = getattr(value, name)
        yield path, value


def to_json(recipe: Recipe) -> dict[str, Any]:
    """The recipe as plain dictionaries; `from_json` is the way back."""
    return {
        f.name: {
            g.name: _plain(getattr(part, g.name))
            for g in fields(part)
            if (g.name, getattr(part, g.name)) not in _LEFT_OUT
        }
        if is_dataclass(part := getattr(recipe, f.name)) and not isinstance(part, type)
        else _plain(part)
        for f in fields(recipe)
        # Recipes of onegate's own units have no such field, and so the names that they always had.
        if f.name != "plugins" or recipe.plugins
    }


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def from_json(content: Mapping[str, Any]) -> Recipe:
    """The recipe that `to_json` wrote; what is missing, unknown or not allowed is named."""
    from onegate.lab import plugins, tasks  # see Recipe

    task = content.get("task")
    if not isinstance(task, str) or task not in tasks.TASKS:
        if isinstance(files := content.get("plugins"), Mapping) and files:
            raise NotGivenError(plugins.not_given(f"task {shown(task)}", map(str, files)))
        raise RecipeError(f"task={shown(task)}: expected one of {tasks.known()}")
    parts = {
        "data": tasks.get(task).options, "model": Model, "optimizer": Optimizer,
        "schedule": Schedule,
    }  # fmt: skip
    values = dict(content)
    for name, kind in parts.items():
        if isinstance(values.get(name), Mapping):
            values[name] = _build(kind, values[name], f"{name}.")
    recipe = _build(Recipe, values, "")
    assert isinstance(recipe, Recipe)
    return recipe


def _build(kind: type, content: Mapping[str, Any], prefix: str) -> Any:
    known = kinds(kind)
    for name in content:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {prefix}{near[0]}?" if near else f"known: {', '.join(known)}"
            raise RecipeError(f"a recipe has no field {shown(prefix + name)}; {hint}")
    try:
        return kind(**content)
    except RecipeError as error:
        raise RecipeError(f"{prefix}{error}") from None
    except TypeError as error:
        raise RecipeError(f"{prefix or 'recipe'}: {error}") from None


def difference(one: Recipe, other: Recipe) -> list[str]:
    """The fields in which two recipes differ, with both values."""
    if type(one.data) is not type(other.data):
        return [f"task ({one.task} and {other.task})"]
    different = [
        f"{path} ({value!r} and {there!r})"
        for (path, value), (_, there) in zip(values(one), values(other), strict=True)
        if value != there and path != "reasons"
    ]
    if {*one.plugins.values()} != {*other.plugins.values()}:
        different.append(f"what is in {', '.join({**one.plugins, **other.plugins})}")
    return different
