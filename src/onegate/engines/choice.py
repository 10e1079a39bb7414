"""Which engine runs a layer, and why: nothing falls back silently."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.autograd import forward_ad

from onegate.engines import reference
from onegate.engines.compiling import constant
from onegate.engines.cpu import operator as fused
from onegate.engines.direction import Direction
from onegate.language import Graph

ENGINES: Final = ("auto", "fused", "reference")

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


NOT_RUN: Final = Choice("none", "the layer has not run yet")
_ASKED: Final = Choice("reference", "engine='reference' was asked for")
_FUSED: Final = {
    torch.float32: Choice("fused", "float32 on the CPU"),
    torch.float64: Choice("fused", "float64 on the CPU"),
}


def choose(engine: str, graph: Graph, x: Tensor, directions: Sequence[Direction]) -> Choice:
    """The engine that runs `graph` on `x` (T, B, d).

    "reference" always works; "auto" takes the fused engine where it can run; "fused" where it
    cannot raises an `EngineError` with the reason.
    """
    if engine == "reference":
        return _ASKED
    reason = _unavailable(graph, x, directions)
    if reason is None:
        return _FUSED[x.dtype]
    if engine == "fused":
        raise EngineError(
            f"engine='fused' cannot run this: {reason}; engine='auto' or 'reference' can"
        )
    return Choice("reference", reason)


def runner(choice: Choice) -> Run:
    """The chosen engine's function."""
    return fused.run if choice.name == "fused" else reference.run


def _unavailable(graph: Graph, x: Tensor, directions: Sequence[Direction]) -> str | None:
    """Why the fused engine cannot run this, or None."""
    if not x.is_cpu:
        return f"the fused engine runs on the CPU, the input is on {x.device}"
    if x.dtype not in _FUSED:
        return f"the fused engine computes in float32 and float64, the input is {x.dtype}"
    if torch.is_autocast_enabled("cpu"):
        return "autocast is on"
    if _transformed():
        return "a torch.func transform (vmap, grad, jvp, ...) is active"
    if forward_ad._current_level >= 0:
        return "forward-mode differentiation is active"
    if torch._C._get_tracing_state() is not None and torch.onnx.is_in_onnx_export():
        return "ONNX has no operator for a whole sequence"
    return fused.unavailable(graph, x, directions)


# torch.compile takes the stack for an object even where it is empty: it is to look while it traces.
@constant
def _transformed() -> bool:
    """Whether a torch.func transform is active."""
    return torch._C._functorch.peek_interpreter_stack() is not None
