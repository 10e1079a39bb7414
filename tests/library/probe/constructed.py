"""Units and layers whose memory, gradients and derivatives are known."""

from __future__ import annotations

from typing import Any

import torch

import onegate
from onegate.language import Affine, Unit, Vector, identity, sigmoid, tanh
from onegate.probe import Pass, record


class ConstantGate(Unit):
    """Writes the constant share f of what it reads; no unit sees another one."""

    b_f = Vector()
    W_h = Affine()

    def step(self, x: Any, h: Any) -> Any:
        f = sigmoid(self.b_f)
        candidate = tanh(self.W_h[x])
        return (1 - f) * h + f * candidate


class Linear(Unit):
    """A matrix and nothing else."""

    W_h = Affine()

    def step(self, x: Any, h: Any) -> Any:
        return identity(self.W_h[h, x])


def constant_gate(shares: torch.Tensor, steps: int = 400, **options: Any) -> dict[str, Pass]:
    """Passes of a layer whose units write these shares."""
    layer = onegate.Recurrent(ConstantGate(), 2, len(shares), dtype=torch.float64, **options)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.endswith("b_f"):
                parameter.copy_(torch.logit(shares))
        return record(layer, torch.randn(steps, 3, 2, dtype=torch.float64))
