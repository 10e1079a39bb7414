"""Other units that make do with one gate: JANET, Li-GRU and minGRU."""

from __future__ import annotations

from typing import Any

from onegate.language import Affine, Unit, relu, sigmoid, tanh
from onegate.units.registry import register


@register("janet")
class JANET(Unit):
    """LSTM with the forget gate alone, of van der Westhuizen and Lasenby (2018).

    In its final form, where a step writes a little more than it forgets: by `beta`, which is 1
    there. With beta = 0 it is their first form, h = f h + (1 - f) candidate. Cell and output are
    one state. The authors start the bias of f by the chrono rule.
    """

    title = "JANET: LSTM with the forget gate alone"
    citation = "van der Westhuizen, Lasenby 2018, The Unreasonable Effectiveness of the Forget Gate"

    beta: float = 1.0

    W_f = Affine()
    W_h = Affine()

    def step(self, x: Any, h: Any) -> Any:
        """f = 1 keeps."""
        s = self.W_f[h, x]
        f = sigmoid(s)
        candidate = tanh(self.W_h[h, x])
        return f * h + (1 - sigmoid(s - self.beta)) * candidate


@register("ligru")
class LiGRU(Unit):
    """Light GRU of Ravanelli et al. (2018): no reset gate, a ReLU candidate; no batch norm here.

    The paper normalises W x over the batch, with a learned shift; here a bias stands in its place.
    """

    title = "Light GRU (without batch norm)"
    citation = (
        "Ravanelli, Brakel, Omologo, Bengio 2018, Light Gated Recurrent Units for Speech "
        "Recognition"
    )

    W_z = Affine()
    W_h = Affine()

    def step(self, x: Any, h: Any) -> Any:
        """z = 1 keeps, z = 0 overwrites."""
        z = sigmoid(self.W_z[h, x])
        candidate = relu(self.W_h[h, x])
        return z * h + (1 - z) * candidate


@register("mingru")
class MinGRU(Unit):
    """The minGRU of Feng et al. (2024), sequential form: neither gate nor candidate sees h."""

    title = "minGRU"
    citation = "Feng, Tung, Ahmed, Bengio, Hajimirsadeghi 2024, Were RNNs All We Needed?"

    W_z = Affine()
    W_h = Affine()

    def step(self, x: Any, h: Any) -> Any:
        """z = 1 overwrites, z = 0 keeps."""
        z = sigmoid(self.W_z[x])
        candidate = self.W_h[x]
        return (1 - z) * h + z * candidate
