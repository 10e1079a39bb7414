"""A unit of one's own: five lines of equations, fused at once.

python examples/own_unit.py
"""

from __future__ import annotations

from typing import Any

import torch

import onegate
from onegate import Affine, sigmoid, tanh


@onegate.register("one_gate_three_ways")
class OneGateThreeWays(onegate.Unit):
    """One gate that forgets, writes, and lets out."""

    W_f, W_h = Affine(), Affine()

    def step(self, x: Any, h: Any) -> Any:
        f = sigmoid(self.W_f[h, x])
        candidate = tanh(self.W_h[f * h, x])
        return f * ((1 - f) * h + f * candidate)


def main() -> None:
    layer = onegate.Recurrent("one_gate_three_ways", 28, 100)
    out, h = layer(torch.randn(50, 16, 28))  # (T, B, inputs), as torch.nn.GRU takes it
    out.sum().backward()
    print(layer)
    print(f"out {tuple(out.shape)}, h {tuple(h.shape)}, run by {layer.engine_report()}")
    count = sum(p.numel() for p in layer.parameters())
    gru = sum(p.numel() for p in torch.nn.GRU(28, 100).parameters())
    print(f"{count:,} parameters, torch.nn.GRU has {gru:,}")


if __name__ == "__main__":
    main()
