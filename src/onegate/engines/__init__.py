"""Engines, and which of them runs a layer, and why: nothing falls back silently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from onegate.engines import reference
from onegate.engines.base import Direction, Engine, Run
from onegate.engines.cpu import operator as fused
from onegate.language import Graph


class EngineError(ValueError):
    """The engine that was asked for cannot run this."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The engine taken, and the reason."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


# By preference; the last one runs everything.
ENGINES: Final[list[Engine]] = [fused.ENGINE, reference.ENGINE]
NOT_RUN: Final = Choice("none", "the layer has not run yet")
# Layers compare choices by identity, which takes no time.
_CHOICES: Final[dict[tuple[str, str, torch.dtype, str], Choice]] = {}


def register(engine: Engine) -> None:
    """Adds an engine, preferred to all others; one of the same name is replaced."""
    ENGINES[:] = [engine, *(other for other in ENGINES if other.name != engine.name)]


def names() -> list[str]:
    """What `engine=` may be."""
    return ["auto", *(engine.name for engine in ENGINES)]


def choose(asked: str, graph: Graph, x: Tensor, directions: Sequence[Direction]) -> Choice:
    """The engine that runs `graph` on `x` (T, B, d).

    asked: "auto" for the first engine that can, or the name of one; an `EngineError` says why that
    one cannot.
    """
    problem: str | None = None
    for engine in ENGINES:
        if asked not in ("auto", engine.name):
            continue
        found = engine.problem(graph, x, directions)
        if found is None:
            return _remembered(asked, engine, x, problem)
        if asked == engine.name:
            raise EngineError(
                f"engine={asked!r} cannot run this: {found}; engine='auto' or "
                f"{ENGINES[-1].name!r} can"
            )
        problem = found
    raise EngineError(f"no engine can run this: {problem}")


def fused_alone(asked: str) -> bool:
    """Whether the fused engine's own `run` is what `choose` looks at first."""
    return ENGINES[0].run is fused.run and asked in ("auto", ENGINES[0].name)


def fused_taken(asked: str, x: Tensor) -> Choice:
    """What `choose` says where the fused engine is the first and can run."""
    known = _CHOICES.get((fused.ENGINE.name, asked, x.dtype, "cpu"))
    return known or _remembered(asked, fused.ENGINE, x, None)


def _remembered(asked: str, engine: Engine, x: Tensor, problem: str | None) -> Choice:
    key = engine.name, problem or asked, x.dtype, x.device.type
    return _CHOICES.get(key) or _CHOICES.setdefault(key, _choice(asked, engine, x, problem))


def _choice(asked: str, engine: Engine, x: Tensor, problem: str | None) -> Choice:
    if problem is not None:
        return Choice(engine.name, problem)
    if asked == ENGINES[-1].name:
        return Choice(engine.name, f"engine={asked!r} was asked for")
    kind = str(x.dtype).removeprefix("torch.")
    return Choice(engine.name, f"{kind} on the {x.device.type.upper()}")


def runner(choice: Choice) -> Run:
    """The chosen engine's function."""
    for engine in ENGINES:
        if engine.name == choice.name:
            return engine.run
    raise EngineError(f"there is no engine {choice.name!r}, only {', '.join(names())}")
