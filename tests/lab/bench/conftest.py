"""Benchmarks of nothing in particular."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from onegate.lab.bench import outcomes


@pytest.fixture(autouse=True)
def small_peak_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures mean nothing here, so that their product need not take long."""

    def product() -> Callable[[], object]:
        a = torch.randn(8, 8)
        return lambda: torch.mm(a, a)

    monkeypatch.setattr(outcomes, "peak_product", product)
