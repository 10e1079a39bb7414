"""Which engine runs a layer, and why: nothing falls back silently."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Final

import torch
from torch import Tensor
from torch.autograd import forward_ad

from onegate.engines import reference
from onegate.engines.direction import Direction
from onegate.expressions import Graph

ENGINES: Final = ("auto", "fused", "reference")
DTYPES: Final = frozenset({torch.float32, torch.float64})

Run = Callable[
    [Graph, Tensor, Sequence[Direction], Tensor | None],
    tuple[Tensor, tuple[tuple[Tensor, ...], ...]],
]


class EngineError(ValueError):
    """The engine that was asked for cannot run this."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The engine taken, and the reason."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def _load_fused() -> ModuleType | None:
    try:
        return importlib.import_module("onegate.engines.fused")
    except ImportError:
        return None


_FUSED: Final = _load_fused()
NOT_RUN: Final = Choice("none", "the layer has not run yet")
_ASKED: Final = Choice("reference", "engine='reference' was asked for")
_FITS: Final = Choice("fused", "everything it needs is there")
_ASKED_FUSED: Final = Choice("fused", "engine='fused' was asked for")


def choose(engine: str, graph: Graph, x: Tensor, directions: Sequence[Direction]) -> Choice:
    """The engine that runs `graph` on `x` (T, B, d).

    "reference" always works; "auto" takes the fused engine where it can run; "fused" where it
    cannot raises an `EngineError` with the reason.
    """
    if engine == "reference":
        return _ASKED
    reason = _unavailable(graph, x, directions)
    if reason is None:
        return _FITS if engine == "auto" else _ASKED_FUSED
    if engine == "fused":
        raise EngineError(
            f"engine='fused' cannot run this: {reason}; engine='auto' or 'reference' can"
        )
    return Choice("reference", reason)


def runner(choice: Choice) -> Run:
    """The chosen engine's function."""
    if choice.name == "fused":
        assert _FUSED is not None
        run: Run = _FUSED.run
        return run
    return reference.run


def _unavailable(graph: Graph, x: Tensor, directions: Sequence[Direction]) -> str | None:
    """Why the fused engine cannot run this, or None."""
    if _FUSED is None:
        return "the native engine is not built"
    if not x.is_cpu:
        return f"the fused engine runs on the CPU, the input is on {x.device}"
    if x.dtype not in DTYPES:
        return f"the fused engine computes in float32 and float64, the input is {x.dtype}"
    if torch.is_autocast_enabled("cpu"):
        return "autocast is on"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "a torch.func transform (vmap, grad, jvp, ...) is active"
    if forward_ad._current_level >= 0:
        return "forward-mode differentiation is active"
    reason: str | None = _FUSED.unavailable(graph, x, directions)
    return reason
