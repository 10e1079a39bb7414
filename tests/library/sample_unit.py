"""A unit made of any step, for tests of the language and of tracing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onegate.language import Affine, Unit, Vector


class Common(Unit, abstract=True):
    """Steps need not use all of it."""

    W, V, p = Affine(), Affine(), Vector()


def unit(step: Callable[..., Any], **body: Any) -> Unit:
    """A unit of class Sample with the given step; W and V are maps, p is a vector."""
    kind: type[Unit] = type("Sample", (Common,), {"step": step} | body)
    return kind()
