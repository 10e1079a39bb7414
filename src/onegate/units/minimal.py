"""Other units that make do with one or two gates: JANET, Li-GRU, minGRU, FastGRNN and others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from onegate.language import Affine, LayerNorm, Unit, Vector, relu, sigmoid, tanh
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
    """Light GRU of Ravanelli et al. (2018): no reset gate, a ReLU candidate.

    The paper normalises W x over the batch, with a learned shift. Here a bias stands in its place,
    or, with layer_norm, a norm over the elements of both maps of x together: so a sequence does not
    depend on the others of its batch.

    layer_norm: W x is normalised.
    """

    title = "Light GRU (without batch norm)"
    citation = (
        "Ravanelli, Brakel, Omologo, Bengio 2018, Light Gated Recurrent Units for Speech "
        "Recognition"
    )

    layer_norm: bool = False

    W_z, W_h = Affine(), Affine()
    U_z, V_z = Affine(bias=False), Affine(bias=False)
    U_h, V_h = Affine(bias=False), Affine(bias=False)
    N_x = LayerNorm()

    def step(self, x: Any, h: Any) -> Any:
        """z = 1 keeps, z = 0 overwrites."""
        if self.layer_norm:
            x_z, x_h = self.N_x[self.V_z[x], self.V_h[x]]
            z = sigmoid(self.U_z[h] + x_z)
            candidate = relu(self.U_h[h] + x_h)
        else:
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


@register("minlstm")
class MinLSTM(Unit):
    """The minLSTM of Feng et al. (2024), sequential form: no gate sees h.

    In the length-independent form, where the two gates are divided by their sum.
    """

    title = "minLSTM"
    citation = "Feng, Tung, Ahmed, Bengio, Hajimirsadeghi 2024, Were RNNs All We Needed?"

    W_f = Affine()
    W_i = Affine()
    W_h = Affine()

    def step(self, x: Any, h: Any) -> Any:
        """f keeps, i writes; the shares add up to 1."""
        f = sigmoid(self.W_f[x])
        i = sigmoid(self.W_i[x])
        candidate = self.W_h[x]
        return f / (f + i) * h + i / (f + i) * candidate


@register("ugrnn")
class UGRNN(Unit):
    """Update gate network of Collins et al. (2017): the GRU without its reset gate."""

    title = "Update gate RNN"
    citation = (
        "Collins, Sohl-Dickstein, Sussillo 2017, Capacity and Trainability in Recurrent Neural "
        "Networks"
    )

    W_c = Affine()
    W_g = Affine()

    def step(self, x: Any, h: Any) -> Any:
        """g = 1 keeps, g = 0 overwrites."""
        c = tanh(self.W_c[h, x])
        g = sigmoid(self.W_g[h, x])
        return g * h + (1 - g) * c


@register("cfn")
class CFN(Unit):
    """Chaos-free network of Laurent and von Brecht (2017): without input, h goes to 0.

    Their theta and eta are f and i here.
    """

    title = "Chaos-free network"
    citation = "Laurent, von Brecht 2017, A Recurrent Neural Network without Chaos"

    W_f = Affine()
    W_i = Affine()
    W_h = Affine(bias=False)

    def step(self, x: Any, h: Any) -> Any:
        """f keeps, i writes."""
        f = sigmoid(self.W_f[h, x])
        i = sigmoid(self.W_i[h, x])
        return f * tanh(h) + i * tanh(self.W_h[x])


@register("fastgrnn")
class FastGRNN(Unit):
    """FastGRNN of Kusupati et al. (2018): gate and candidate share their matrices.

    zeta and nu have a number for each element of the state; the paper has one for all, which is
    where they start. Initial values are those of the authors' code. Sparsity and quantisation are
    no part of the unit. A layer made with `bias=False` keeps b_z and b_h, in which alone the gate
    differs from the candidate.

    input_rank, recurrent_rank: W and U are products of two matrices of that rank; 0: they are not.
    """

    title = "FastGRNN"
    citation = (
        "Kusupati, Singh, Bhatia, Kumar, Jain, Varma 2018, FastGRNN: A Fast, Accurate, Stable and "
        "Tiny Kilobyte Sized Gated Recurrent Neural Network"
    )
    init: ClassVar[Mapping[str, Any]] = {
        "W": ("normal", 0.1), "U": ("normal", 0.1), "b": 1.0, "zeta": 1.0, "nu": -4.0,
    }  # fmt: skip

    input_rank: int = 0
    recurrent_rank: int = 0

    W = Affine(bias=False)
    U = Affine(bias=False)
    L_x = Affine(bias=False, rank="input_rank")
    L_h = Affine(bias=False, rank="recurrent_rank")
    b_z, b_h = Vector(), Vector()
    zeta, nu = Vector(), Vector()

    def step(self, x: Any, h: Any) -> Any:
        """z = 1 keeps, z = 0 overwrites."""
        W = self.L_x if self.input_rank else self.W
        U = self.L_h if self.recurrent_rank else self.U
        s = W[x] + U[h]
        z = sigmoid(s + self.b_z)
        candidate = tanh(s + self.b_h)
        return (sigmoid(self.zeta) * (1 - z) + sigmoid(self.nu)) * candidate + z * h
