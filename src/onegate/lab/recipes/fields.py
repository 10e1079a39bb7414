"""Types of recipe fields that know which values they allow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

_MOST_SHOWN = 200


class RecipeError(ValueError):
    """A recipe, or a value given for one of its fields, makes no sense."""


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`; `above` leaves out `low` itself."""

    low: float
    high: float = float("inf")
    above: bool = False

    def __contains__(self, value: float) -> bool:
        return (self.low < value if self.above else self.low <= value) and value <= self.high

    def __str__(self) -> str:
        low = f"a number above {self.low:g}" if self.above else f"a number of at least {self.low:g}"
        return low if self.high == float("inf") else f"{low} and at most {self.high:g}"


@dataclass(frozen=True)
class Identifier:
    """Names that files, pages and commands can bear: as Python's, if `hyphens` with hyphens."""

    hyphens: bool = False
    longest: int = 100

    def __contains__(self, value: str) -> bool:
        plain = value[:1] + value[1:].replace("-", "_") if self.hyphens else value
        return len(value) <= self.longest and plain.isidentifier()

    def __str__(self) -> str:
        letters = "letters, digits, _ and -" if self.hyphens else "letters, digits and _"
        return f"a name of {letters} that begins with a letter"


_WHOLE = 2**63 - 1  # what 64 bits hold
Count = Annotated[int, Range(1, _WHOLE)]
Natural = Annotated[int, Range(0, _WHOLE)]
Finite = Annotated[float, Range(-1e30, 1e30)]  # JSON has no infinity and no NaN
Positive = Annotated[float, Range(0, 1e30, above=True)]
NotNegative = Annotated[float, Range(0, 1e30)]
Share = Annotated[float, Range(0, 1)]
BelowOne = Annotated[float, Range(0, 0.999_999)]


class Checked:
    """Base of the recipe's dataclasses: a value that its field does not allow is refused."""

    def __post_init__(self) -> None:
        for name, kind in kinds(type(self)).items():
            problem = _problem(kind, getattr(self, name))
            if problem:
                raise RecipeError(f"{name}={shown(getattr(self, name))}: expected {problem}")


def shown(value: Any) -> str:
    """A value for a message: in one line, however long it is and whatever is in it."""
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def kinds(recipe_class: type[Any]) -> Mapping[str, Any]:
    """The type of each field of a recipe's dataclass, its range included."""
    hints = get_type_hints(recipe_class, include_extras=True)
    return {f.name: hints[f.name] for f in fields(recipe_class)}


def _problem(kind: Any, value: Any) -> str:
    """What was expected of `value`, empty if it is as it should be."""
    if get_origin(kind) is Annotated:
        plain, allowed = get_args(kind)
        return _problem(plain, value) or ("" if value in allowed else str(allowed))
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        return "" if value in choices else f"one of {', '.join(choices)}"
    if kind is float:
        return "" if isinstance(value, (int, float)) and not _is_flag(value) else "a number"
    if kind is int:
        return "" if isinstance(value, int) and not _is_flag(value) else "a whole number"
    if kind is bool:
        return "" if _is_flag(value) else "true or false"
    if kind is str:
        return "" if isinstance(value, str) else "a text"
    if get_origin(kind) is Mapping:
        return _problem_of_mapping(get_args(kind), value)
    parts = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    if all(is_dataclass(part) for part in parts) and not isinstance(value, parts):
        return "an object with fields"
    return ""


def _problem_of_mapping(kinds: tuple[Any, ...], value: Any) -> str:
    if not isinstance(value, Mapping):
        return "an object with fields"
    for key, inner in value.items():
        if problem := _problem(kinds[0], key):
            return f"{problem} instead of {shown(key)}"
        if problem := _problem(kinds[1], inner):
            return f"{problem} for {shown(key)}"
    return ""


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def parse(kind: Any, text: str) -> Any:
    """The value that `text` from a command line means for a field of this type."""
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if kind is bool:
        flags = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        return flags.get(text.lower(), text)
    if kind in (int, float):
        return _number(text, kind)
    return text


def _number(text: str, kind: type[int] | type[float]) -> int | float | str:
    """A number if it is one; otherwise the text, which the field then refuses."""
    try:
        number = float(text.replace("_", ""))
    except ValueError:
        return text
    return int(number) if kind is int and number.is_integer() else number
