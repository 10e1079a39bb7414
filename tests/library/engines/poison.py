"""Memory that is handed out full of NaN: whatever the engine leaves unwritten is seen."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from onegate.engines.cpu import pool


def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every way in which the fused engine asks for memory."""
    for owner, name in (
        (pool, "empty"),
        (torch, "empty"),
        (torch, "empty_like"),
        (Tensor, "new_empty"),
    ):
        monkeypatch.setattr(owner, name, _filled(getattr(owner, name)))


def _filled(allocate: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def call(*args: object, **kwargs: object) -> Tensor:
        made = allocate(*args, **kwargs)
        return made.fill_(torch.nan) if made.is_floating_point() else made

    return call
