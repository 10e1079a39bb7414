"""Names for units. A unit defined outside the package registers itself in the same way."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from typing import Any, TypeVar

from onegate.export.latex import latex
from onegate.language import Unit, UnitError, is_ours
from onegate.tracing import trace

UNITS: dict[str, Unit] = {}

_U = TypeVar("_U", bound=type[Unit])


def register(name: str = "") -> Callable[[_U], _U]:
    """Class decorator: enters a unit under `name` in `UNITS`.

    The equations end the class's docstring, in LaTeX. The same class defined again, as when a
    notebook's cell is run once more, takes the place of the first.
    """
    if isinstance(name, type):  # type: ignore[unreachable]  # as if it were no function
        raise UnitError(f"write @onegate.register('a_name') over class {name.__name__}")
    if not (isinstance(name, str) and name.isidentifier()):
        raise UnitError(f"a unit's name is an identifier such as 'mgu', got {name!r}")

    def enter(kind: _U) -> _U:
        if not (isinstance(kind, type) and issubclass(kind, Unit)):
            if isinstance(kind, Unit):  # type: ignore[unreachable]
                raise UnitError(f"{kind!r} is an object: register its class {type(kind).__name__}")
            called = getattr(kind, "__name__", name)
            raise UnitError(f"{kind!r} is no unit: write class {called}(onegate.Unit)")
        if open_ := _without_default(kind):
            raise UnitError(
                f"{kind.__name__}: a registered unit has a default for each option: write "
                f"{open_[0]}: float = 1.0, or whatever {open_[0]} is to be"
            )
        taken = type(UNITS.get(name, kind()))
        if _place(taken) != _place(kind):
            raise UnitError(f"the name {name!r} is taken by {taken.__qualname__}")
        kind.registered = name
        unit = kind()
        # An equation that mixes up two sizes is found.
        if not (is_ours(kind) or vars(kind).get("_fits_sizes")):
            trace(unit, 3, 2)
        LateDocstring(functools.partial(_with_equations, unit, kind.__doc__ or "")).give(kind)
        UNITS[name] = unit
        return kind

    return enter


class LateDocstring:
    """A class's docstring that is written when it is first read: most never are."""

    def __init__(self, write: Callable[[], str]) -> None:
        self.write = write

    def __get__(self, _instance: object, owner: type) -> str:
        owner.__doc__ = self.write()
        return owner.__doc__

    def give(self, kind: type) -> None:
        """Makes it the docstring of the class."""
        type.__setattr__(kind, "__doc__", self)


def _with_equations(unit: Unit, written: str) -> str:
    shown = latex(trace(unit, 2, 2))
    return written if shown in written else f"{inspect.cleandoc(written)}\n\n{shown}\n".lstrip()


def _without_default(kind: type[Unit]) -> list[str]:
    return [f.name for f in fields(kind) if f.default is f.default_factory is MISSING]


def _place(kind: type) -> tuple[str, str]:
    """Where a class stands: two of the same place are versions of one."""
    return kind.__module__, kind.__qualname__


def get(unit: str | Unit | type[Unit], **options: Any) -> Unit:
    """The unit meant by a name, a unit or its class, with the given options set."""
    if isinstance(unit, str):
        if unit not in UNITS:
            near = difflib.get_close_matches(unit, UNITS, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(UNITS)}"
            raise UnitError(f"no unit is called {unit!r}; {hint}")
        unit = UNITS[unit]
    elif isinstance(unit, type) and issubclass(unit, Unit):
        if open_ := [name for name in _without_default(unit) if name not in options]:
            raise UnitError(f"{unit.__name__}: {open_[0]} has no default: give {open_[0]}=...")
        given = {name: options.pop(name) for name in _without_default(unit)}
        unit = unit(**given)
    if not isinstance(unit, Unit):
        raise UnitError(
            f"unit is {unit!r}, expected a name such as 'mgu', an onegate.Unit, or its class"
        )
    known = [f.name for f in fields(unit)]
    for option in options:
        if option not in known:
            has = f"its options are {', '.join(known)}" if known else "it has none"
            raise UnitError(f"{unit.name} has no option {option!r}; {has}")
    return replace(unit, **options) if options else unit
