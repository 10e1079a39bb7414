"""Units and tasks of one's own: from a Python file, or from a package that is installed.

All units and tasks that a file defines are known once it was run, by the name that the file has
registered them under; a unit that it has not, by the name of its class.

A file is run only if whoever starts a command or a program names it, never because a run folder
does: the recipe of a run keeps the path and the SHA-256 of the file, so that its unit is known
again, and a file that has changed since is noticed. A file stands alone: where work is done in
other processes or on other machines, its text goes there.

Packages have entry points in the groups `onegate.units` and `onegate.tasks`, each a class.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple

from onegate.lab import tasks
from onegate.lab.recipes import Recipe
from onegate.lab.tasks import TASKS, Task
from onegate.language import Unit
from onegate.units import UNITS
from onegate.units import register as register_unit


class PluginError(ValueError):
    """A file or a package of one's own cannot be used; the message says why."""


@dataclass(frozen=True)
class Plugin:
    """A file that was run; path: as it was given."""

    path: str
    content: bytes
    module: ModuleType

    @property
    def sha256(self) -> str:
        """Of the file as it was read."""
        return hashlib.sha256(self.content).hexdigest()


class Luggage(NamedTuple):
    """What another process needs to know the same units and tasks.

    files: path and text of each. modules: those that are imported by name.
    """

    files: tuple[tuple[str, bytes], ...]
    modules: tuple[str, ...]


PLUGINS: Final[dict[str, Plugin]] = {}  # by the name of the module
# Name and version of the distribution that has brought a class, by the class.
_PACKAGES: Final[dict[type, tuple[str, str]]] = {}


def load(path: str | Path) -> Plugin:
    """Runs a file, so that its units and tasks are known; as long as it stays the same, once."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise PluginError(f"{path} cannot be read: {error.strerror or error}") from None
    return _run(str(Path(path)), content)


def unit(text: str) -> str:
    """The name of a unit that is given by its name or as FILE.py:Class."""
    return _named(text, Unit, "onegate.Unit")


def task(text: str) -> str:
    """The name of a task that is given by its name or as FILE.py:Class."""
    return _named(text, Task, "onegate.lab.tasks.Task")


def _named(text: str, wanted: type, described: str) -> str:
    path, _, name = (f"{text}:" if text.endswith(".py") else text).rpartition(":")
    if not path.endswith(".py"):
        return text
    own = vars(load(path).module)
    types = {key: one for key, one in own.items() if isinstance(one, type) and _is_whole(one)}
    fitting = {key: one for key, one in types.items() if issubclass(one, wanted)}
    if name not in fitting:
        known = ", ".join(f"{path}:{key}" for key in fitting) or "none"
        missing = f"has no class {name!r}" if name else "is a file: name a class in it"
        raise PluginError(f"{path} {missing} that is a {described}; there is {known}")
    return _registered(fitting[name], name)


def _registered(kind: type, name: str) -> str:
    """Enters a class that has not entered itself; returns the name that it is known by.

    name: for a unit; a task has its own.
    """
    if issubclass(kind, Task):
        if type(TASKS.get(kind.name)) is not kind:
            tasks.register(kind)
        return kind.name
    if not issubclass(kind, Unit):
        raise PluginError(f"{kind.__qualname__} is neither a unit nor a task")
    known = vars(kind).get("registered")
    if not known:
        register_unit(name)(kind)
    return known or name


def _run(path: str, content: bytes) -> Plugin:
    for known in PLUGINS.values():
        if known.content == content:
            return known
    name = f"{Path(path).stem}_{hashlib.sha256(path.encode()).hexdigest()[:8]}"
    module = ModuleType(f"onegate_plugin_{name}")
    module.__file__ = path
    with _all_or_nothing(module):
        try:
            exec(compile(importlib.util.decode_source(content), path, "exec"), vars(module))
            for kind in [one for one in vars(module).values() if isinstance(one, type)]:
                if kind.__module__ == module.__name__ and _is_whole(kind):
                    _registered(kind, kind.__name__)
        except Exception as error:
            raise PluginError(f"{path}{_line(error, path)}: {_said(error)}") from error
    PLUGINS[module.__name__] = Plugin(path, content, module)
    return PLUGINS[module.__name__]


def _is_whole(kind: type) -> bool:
    """Whether it is a unit or a task, not a base of others."""
    return (issubclass(kind, Unit) and kind.step is not Unit.step) or (
        issubclass(kind, Task) and hasattr(kind, "name")
    )


@contextmanager
def _all_or_nothing(module: ModuleType) -> Iterator[None]:
    """Forgets what a file has registered before an error."""
    units_before, tasks_before = dict(UNITS), dict(TASKS)
    module_before = sys.modules.get(module.__name__)
    sys.modules[module.__name__] = module  # dataclasses look for their module there
    try:
        yield
    except BaseException:
        UNITS.clear()
        UNITS.update(units_before)
        TASKS.clear()
        TASKS.update(tasks_before)
        del sys.modules[module.__name__]
        if module_before is not None:
            sys.modules[module.__name__] = module_before
        raise


def _line(error: Exception, path: str) -> str:
    """Where in the file an error came up."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == path]
    if isinstance(error, SyntaxError):
        lines.append(error.lineno)
    return f", line {lines[-1]}" if lines else ""


def _said(error: Exception) -> str:
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}"


@functools.cache
def installed() -> None:
    """Makes the units and tasks of installed packages known; one that fails is a warning."""
    for group in ("onegate.units", "onegate.tasks"):
        for point in importlib.metadata.entry_points(group=group):
            name, version = (point.dist.name, point.dist.version) if point.dist else ("", "")
            try:
                kind = point.load()
                _registered(kind, point.name)
                _PACKAGES[kind] = name, version
            except Exception as error:
                message = f"{point.value} of the package {name} is left out: {_said(error)}"
                warnings.warn(message, stacklevel=2)


def luggage() -> Luggage:
    """What another process needs; `unpack` takes it there."""
    modules = {type(one).__module__ for one in (*UNITS.values(), *TASKS.values())}
    importable = (
        name
        for name in sorted(modules - {*PLUGINS, "__main__"})
        if not name.startswith("onegate.") and name in sys.modules
    )
    files = ((one.path, one.content) for one in PLUGINS.values())
    return Luggage(tuple(files), tuple(importable))


def unpack(carried: Luggage) -> None:
    """Makes known here what was known where `luggage` was called."""
    installed()
    for name in carried.modules:
        with suppress(ImportError):  # if it is needed, the run says which unit is unknown
            importlib.import_module(name)
    for path, content in carried.files:
        _run(path, content)


def only_here(recipe: Recipe) -> str:
    """The unit or task that other processes cannot know, as in a notebook; empty if there is none.

    A script is run again by processes that Python starts on this machine.
    """
    for name, one in _subjects(recipe).items():
        if type(one).__module__ == "__main__":
            return name
    return ""


def used(recipe: Recipe) -> dict[str, str]:
    """Path and SHA-256 of the files that a recipe's unit and task are from, or package and version.

    Empty for those of onegate itself, and for what a program has defined.
    """
    found = {}
    for one in _subjects(recipe).values():
        kind = type(one)
        if plugin := PLUGINS.get(kind.__module__):
            found[plugin.path] = plugin.sha256
        elif kind in _PACKAGES:
            name, version = _PACKAGES[kind]
            found[name] = version
    return found


def _subjects(recipe: Recipe) -> dict[str, Unit | Task]:
    known: dict[str, Unit | Task | None] = {
        recipe.unit: UNITS.get(recipe.unit),
        recipe.task: TASKS.get(recipe.task),
    }
    return {name: one for name, one in known.items() if one is not None}


def changed(recipe: Recipe) -> str:
    """Which of a run's files is not as it was; empty if all are. One that was not given raises."""
    now = used(recipe)
    for path, recorded in recipe.plugins.items():
        if recorded in now.values():
            continue
        if len(now) < len(recipe.plugins):
            raise PluginError(not_given(f"unit {recipe.unit} or task {recipe.task}", [path]))
        return f"{path} is not as it was when the run began ({recorded[:12]})"
    return ""


def not_given(what: str, paths: Iterable[str]) -> str:
    """What to do about a unit or a task of these files or packages, which a recipe names."""
    named = list(paths)
    ways = " and ".join(map(_way_to_have, named))
    return f"{what} is from {' and '.join(named)}, which was not given: {ways}"


def _way_to_have(path: str) -> str:
    if not path.endswith(".py"):
        return f"pip install {path}"
    if Path(path).is_file():
        return f"add --plugin {path}"
    return f"add --plugin and where that file is now; there is none at {path}"
