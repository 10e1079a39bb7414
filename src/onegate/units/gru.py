"""The Gated Recurrent Unit in its published forms, with norms, and the mutations MUT1 to MUT3."""

from __future__ import annotations

from typing import Any

from onegate.language import Affine, Fit, LayerNorm, RMSNorm, Unit, sigmoid, tanh
from onegate.ops import silu
from onegate.units.registry import register

CHO = "Cho et al. 2014, Learning Phrase Representations using RNN Encoder-Decoder"
JOZEFOWICZ = (
    "Jozefowicz, Zaremba, Sutskever 2015, An Empirical Exploration of Recurrent Network "
    "Architectures"
)


@register("gru")
class GRU(Unit):
    """The paper's GRU: reset before the matrix. torch.nn.GRU's is `GRUResetAfter`.

    In the form of Chung et al. (2014), which Zhou et al. (2016) take.
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


@register("gru_layer_norm")
class GRULayerNorm(Unit):
    """GRU with layer norm of Ba et al. (2016), as in its supplement for skip-thoughts.

    The reset gate acts after the matrix and its norm. W x and U h are normalised apart, z and r
    with the statistics of both together. The paper's two shifts of z and r only add up: here the
    norm of W x has the one.
    """

    title = "GRU with layer norm"
    citation = "Ba, Kiros, Hinton 2016, Layer Normalization"

    W_z, U_z = Affine(bias=False), Affine(bias=False)
    W_r, U_r = Affine(bias=False), Affine(bias=False)
    W_h, U_h = Affine(bias=False), Affine(bias=False)
    N_x = LayerNorm()
    N_h = LayerNorm(shift=False)
    N_w = LayerNorm()
    N_u = LayerNorm()

    def step(self, x: Any, h: Any) -> Any:
        """z = 1 overwrites, z = 0 keeps."""
        x_z, x_r = self.N_x[self.W_z[x], self.W_r[x]]
        h_z, h_r = self.N_h[self.U_z[h], self.U_r[h]]
        z = sigmoid(h_z + x_z)
        r = sigmoid(h_r + x_r)
        x_h = self.N_w[self.W_h[x]]
        h_h = self.N_u[self.U_h[h]]
        candidate = tanh(x_h + r * h_h)
        return (1 - z) * h + z * candidate


@register("gru_block")
class GRUBlock(Unit):
    """Block GRU of DreamerV3 (Hafner et al. 2023), in the form of the authors' later code.

    Input and state are projected, normalised (by the mean square, not the layer norm of the first
    version) and pass SiLU; s mixes them with the state's own blocks, and from s each block makes
    its gates and its candidate, on which r acts after the matrix. The update gate is biased by -1
    towards keeping. The authors project action and stochastic state apart: x is one input here.

    heads: the blocks on the diagonal of what maps h and s; 8 in the paper.
    projection: how wide x and h are projected, an eighth of the state in the paper; 0: as wide as
        the state.
    """

    title = "Block GRU of DreamerV3"
    citation = (
        "Hafner, Pasukonis, Ba, Lillicrap 2023, Mastering Diverse Domains through World Models"
    )

    heads: int = 1
    projection: int = 0

    W_x, N_x = Affine(like="projection"), RMSNorm(eps=1e-4)
    W_p, N_p = Affine(like="projection"), RMSNorm(eps=1e-4)
    W_s, N_s = Affine(), RMSNorm(eps=1e-4)
    U_s = Affine(bias=False, heads="heads")
    W_r = Affine(heads="heads")
    W_h = Affine(heads="heads")
    W_z = Affine(heads="heads")

    def size_of(self, like: str | None, hidden_size: int) -> int:
        """A projection of 0 means the state's size."""
        return super().size_of(like, hidden_size) or hidden_size

    def step(self, x: Any, h: Any) -> Any:
        """z = 1 overwrites, z = 0 keeps."""
        q = silu(self.N_x[self.W_x[x]])
        p = silu(self.N_p[self.W_p[h]])
        s = silu(self.N_s[self.W_s[p, q] + self.U_s[h]])
        r = sigmoid(self.W_r[s])
        candidate = tanh(r * self.W_h[s])
        z = sigmoid(self.W_z[s] - 1)
        return (1 - z) * h + z * candidate


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
