"""What torch.compile is told about the engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def constant(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Marks a function that torch.compile calls while it traces, taking what it returns.

    The mark is that of `torch.compiler.assume_constant_result`, which would import the whole
    compiler: half of the time that `import onegate` then took.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
