"""The Minimal Gated Unit: one gate that both forgets and writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onegate.expressions import Affine, Unit, sigmoid, tanh
from onegate.units.registry import register


@register("mgu")
@dataclass(frozen=True)
class MGU(Unit):
    """Minimal gated unit as published: the gate acts on h before the matrix."""

    title = "Minimal Gated Unit"
    citation = "Zhou, Wu, Zhang, Zhou 2016, Minimal Gated Unit for Recurrent Neural Networks"

    W_f = Affine()
    W_h = Affine()

    def step(self, x: Any, h: Any) -> Any:
        """f = 1 overwrites, f = 0 keeps."""
        f = sigmoid(self.W_f[h, x])
        candidate = tanh(self.W_h[f * h, x])
        return (1 - f) * h + f * candidate
