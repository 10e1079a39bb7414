"""A unit made of any step, for tests of the language and of tracing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onegate.language import Affine, Unit, Vector, tanh


class Common(Unit, abstract=True):
    """Steps need not use all of it."""

    W, V, p = Affine(), Affine(), Vector()


def unit(step: Callable[..., Any], **body: Any) -> Unit:
    """A unit of class Sample with the given step; W and V are maps, p is a vector."""
    kind: type[Unit] = type("Sample", (Common,), {"step": step} | body)
    return kind()


def with_a_loop(turns: int) -> Unit:
    """As of a solver: each turn reads the one before it three times."""

    def step(self: Any, x: Any, h: Any) -> Any:
        a = tanh(self.W[h, x])
        for _ in range(turns):
            a = a + 0.5 * tanh(a) - 0.3 * a
        return a

    return unit(step)
