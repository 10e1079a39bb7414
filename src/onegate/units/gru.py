"""The Gated Recurrent Unit in its published forms, and the mutations MUT1 to MUT3."""

from __future__ import annotations

from typing import Any

from onegate.language import Affine, Fit, Unit, sigmoid, tanh
from onegate.units.registry import register

CHO = "Cho et al. 2014, Learning Phrase Representations using RNN Encoder-Decoder"
JOZEFOWICZ = (
    "Jozefowicz, Zaremba, Sutskever 2015, An Empirical Exploration of Recurrent Network "
    "Architectures"
)


@register("gru")
class GRU(Unit):
    """Gated recurrent unit in the form of Chung et al. (2014), which Zhou et al. (2016) take.

    The reset gate acts on h before the matrix.
    """

    title = "Gated Recurrent Unit"
    citation = (
        "Chung, Gulcehre, Cho, Bengio 2014, Empirical Evaluation of Gated Recurrent Neural "
        "Networks on Sequence Modeling"
    )

    W_z = Affine()
    W_r = Affine()
    W_h = Affine()

    def step(self, x: Any, h: Any) -> Any:
        """z = 1 overwrites, z = 0 keeps."""
        z = sigmoid(self.W_z[h, x])
        r = sigmoid(self.W_r[h, x])
        candidate = tanh(self.W_h[r * h, x])
        return (1 - z) * h + z * candidate


@register("gru_cho")
class GRUCho(Unit):
    """Gated recurrent unit as first proposed by Cho et al. (2014): z and 1 - z change places."""

    title = "Gated Recurrent Unit, first form"
    citation = CHO

    W_z = Affine()
    W_r = Affine()
    W_h = Affine()

    def step(self, x: Any, h: Any) -> Any:
        """z = 1 keeps, z = 0 overwrites."""
        z = sigmoid(self.W_z[h, x])
        r = sigmoid(self.W_r[h, x])
        candidate = tanh(self.W_h[r * h, x])
        return z * h + (1 - z) * candidate


@register("gru_reset_after")
class GRUResetAfter(Unit):
    """Gated recurrent unit of cuDNN and `torch.nn.GRU`, after Cho et al. (2014).

    The reset gate acts after the matrix, and on the bias of that product too.
    """

    title = "Gated Recurrent Unit, reset after the matrix"
    citation = CHO + "; in the form of cuDNN"

    W_z = Affine()
    W_r = Affine()
    W_h = Affine()
    U_h = Affine()

    def step(self, x: Any, h: Any) -> Any:
        """z = 1 keeps, z = 0 overwrites."""
        z = sigmoid(self.W_z[h, x])
        r = sigmoid(self.W_r[h, x])
        candidate = tanh(self.W_h[x] + r * self.U_h[h])
        return (1 - z) * candidate + z * h


@register("mut1")
class MUT1(Unit):
    """First mutation of Jozefowicz, Zaremba and Sutskever (2015): z does not see h.

    The candidate takes x as it is. Where the input is not as wide as the state, the bare x becomes
    a map of x without a bias.
    """

    title = "GRU mutation 1"
    citation = JOZEFOWICZ

    W_z = Affine()
    W_r = Affine()
    W_h = Affine()
    W_x = Fit()

    def step(self, x: Any, h: Any) -> Any:
        """z = 1 overwrites, z = 0 keeps."""
        z = sigmoid(self.W_z[x])
        r = sigmoid(self.W_r[h, x])
        candidate = tanh(self.W_h[r * h] + tanh(self.W_x[x]))
        return z * candidate + (1 - z) * h


@register("mut2")
class MUT2(Unit):
    """Second mutation of Jozefowicz, Zaremba and Sutskever (2015): r takes x as it is.

    Where the input is not as wide as the state, the bare x becomes a map of x without a bias.
    """

    title = "GRU mutation 2"
    citation = JOZEFOWICZ

    W_z = Affine()
    W_r = Affine()
    W_h = Affine()
    W_x = Fit()

    def step(self, x: Any, h: Any) -> Any:
        """z = 1 overwrites, z = 0 keeps."""
        z = sigmoid(self.W_z[h, x])
        r = sigmoid(self.W_x[x] + self.W_r[h])
        candidate = tanh(self.W_h[r * h, x])
        return z * candidate + (1 - z) * h


@register("mut3")
class MUT3(Unit):
    """Third mutation of Jozefowicz, Zaremba and Sutskever (2015): z sees tanh(h)."""

    title = "GRU mutation 3"
    citation = JOZEFOWICZ

    W_z = Affine()
    W_r = Affine()
    W_h = Affine()

    def step(self, x: Any, h: Any) -> Any:
        """z = 1 overwrites, z = 0 keeps."""
        z = sigmoid(self.W_z[tanh(h), x])
        r = sigmoid(self.W_r[h, x])
        candidate = tanh(self.W_h[r * h, x])
        return z * candidate + (1 - z) * h
