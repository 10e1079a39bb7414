"""The Minimal Gated Unit: one gate that both forgets and writes."""

from __future__ import annotations

from typing import Any

from onegate.language import Affine, Unit, Vector, sigmoid, tanh
from onegate.units.registry import register

ZHOU = "Zhou, Wu, Zhang, Zhou 2016, Minimal Gated Unit for Recurrent Neural Networks"
HECK = "Heck, Salem 2017, Simplified Minimal Gated Unit Variations for Recurrent Neural Networks"


@register("mgu")
class MGU(Unit):
    """Minimal gated unit of Zhou et al. (2016), Table 1: the gate acts on h before the matrix."""

    title = "Minimal Gated Unit"
    citation = ZHOU

    W_f = Affine()
    W_h = Affine()

    def step(self, x: Any, h: Any) -> Any:
        """f = 1 overwrites, f = 0 keeps."""
        f = sigmoid(self.W_f[h, x])
        candidate = tanh(self.W_h[f * h, x])
        return (1 - f) * h + f * candidate


@register("mgu_gate_after")
class MGUGateAfter(Unit):
    """Minimal gated unit as in the code that Zhou et al. (2016) released: gate after the matrix."""

    title = "Minimal Gated Unit, gate after the matrix"
    citation = ZHOU + "; as in the authors' code, github.com/tzzcl/mgu"

    W_f = Affine()
    W_h = Affine()
    U_h = Affine(bias=False)

    def step(self, x: Any, h: Any) -> Any:
        """f = 1 overwrites, f = 0 keeps."""
        f = sigmoid(self.W_f[h, x])
        candidate = tanh(self.W_h[x] + f * self.U_h[h])
        return (1 - f) * h + f * candidate


@register("mgu1")
class MGU1(Unit):
    """MGU1 of Heck and Salem (2017): the gate does not see the input."""

    title = "Minimal Gated Unit, variant 1"
    citation = HECK

    W_f = Affine()
    W_h = Affine()

    def step(self, x: Any, h: Any) -> Any:
        """f = 1 overwrites, f = 0 keeps."""
        f = sigmoid(self.W_f[h])
        candidate = tanh(self.W_h[f * h, x])
        return (1 - f) * h + f * candidate


@register("mgu2")
class MGU2(Unit):
    """MGU2 of Heck and Salem (2017): the gate sees the state alone, without a bias."""

    title = "Minimal Gated Unit, variant 2"
    citation = HECK

    W_f = Affine(bias=False)
    W_h = Affine()

    def step(self, x: Any, h: Any) -> Any:
        """f = 1 overwrites, f = 0 keeps."""
        f = sigmoid(self.W_f[h])
        candidate = tanh(self.W_h[f * h, x])
        return (1 - f) * h + f * candidate


@register("mgu3")
class MGU3(Unit):
    """MGU3 of Heck and Salem (2017): the gate is a bias, the same at every step."""

    title = "Minimal Gated Unit, variant 3"
    citation = HECK

    b_f = Vector()
    W_h = Affine()

    def step(self, x: Any, h: Any) -> Any:
        """f = 1 overwrites, f = 0 keeps."""
        f = sigmoid(self.b_f)
        candidate = tanh(self.W_h[f * h, x])
        return (1 - f) * h + f * candidate
