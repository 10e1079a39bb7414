"""Long Short-Term Memory: without peepholes, with them, Greff's eight variants, norms, sLSTM."""

from __future__ import annotations

from typing import Any

from onegate.language import Affine, LayerNorm, Unit, Vector, identity, sigmoid, tanh
from onegate.ops import exp, maximum, softplus
from onegate.units.registry import register

GREFF = "Greff, Srivastava, Koutnik, Steunebrink, Schmidhuber 2015, LSTM: A Search Space Odyssey"


@register("lstm")
class LSTM(Unit):
    """LSTM with a forget gate (Gers et al. 1999), no peepholes: Table 1 of Zhou et al. (2016)."""

    title = "Long Short-Term Memory"
    citation = "Gers, Schmidhuber, Cummins 1999, Learning to Forget"
    states = ("h", "c")

    W_f = Affine()
    W_i = Affine()
    W_o = Affine()
    W_c = Affine()

    def step(self, x: Any, h: Any, c: Any) -> Any:
        """f = 1 keeps the cell, i = 1 writes to it, o = 1 shows it."""
        f = sigmoid(self.W_f[h, x])
        i = sigmoid(self.W_i[h, x])
        o = sigmoid(self.W_o[h, x])
        candidate = tanh(self.W_c[h, x])
        c = f * c + i * candidate
        return o * tanh(c), c


class LSTMProjected(LSTM):
    """LSTM whose output is a projection of its cell (Sak et al. 2014), `proj_size` wide.

    `onegate.LSTM(..., proj_size=)` takes it, as torch.nn.LSTM does.
    """

    title = "LSTM with a projected output"
    citation = (
        "Sak, Senior, Beaufays 2014, Long Short-Term Memory Based Recurrent Neural Network "
        "Architectures for Large Vocabulary Speech Recognition"
    )

    proj_size: int = 1

    W_f = Affine(like="c")
    W_i = Affine(like="c")
    W_o = Affine(like="c")
    W_c = Affine(like="c")
    W_r = Affine(like="h", bias=False)

    def state_sizes(self, hidden_size: int) -> dict[str, int]:
        """The output has a size of its own."""
        return {"h": self.proj_size, "c": hidden_size}

    def step(self, x: Any, h: Any, c: Any) -> Any:
        """As LSTM, and the output is projected."""
        shown, c = super().step(x, h, c)
        return self.W_r[shown], c


@register("lstm_no_forget")
class LSTMNoForget(Unit):
    """LSTM of Hochreiter and Schmidhuber (1997), before the forget gate: f = 1.

    The squashing functions are the tanh of today; the first paper stretched them to other ranges.
    """

    title = "LSTM without a forget gate"
    citation = "Hochreiter, Schmidhuber 1997, Long Short-Term Memory"
    states = ("h", "c")

    W_i = Affine()
    W_o = Affine()
    W_c = Affine()

    def step(self, x: Any, h: Any, c: Any) -> Any:
        """The cell adds up what i lets in, and never forgets."""
        i = sigmoid(self.W_i[h, x])
        o = sigmoid(self.W_o[h, x])
        candidate = tanh(self.W_c[h, x])
        c = c + i * candidate
        return o * tanh(c), c


@register("lstm_peephole")
class LSTMPeephole(Unit):
    """LSTM whose gates see the cell (Gers et al. 2002): the vanilla LSTM of Greff et al. (2015).

    The output gate sees the new cell. The variants of Greff et al. replace one of the methods.
    """

    title = "LSTM with peepholes"
    citation = (
        "Gers, Schraudolph, Schmidhuber 2002, Learning Precise Timing with LSTM Recurrent Networks"
    )
    states = ("h", "c")

    W_i = Affine()
    W_f = Affine()
    W_o = Affine()
    W_c = Affine()
    p_i = Vector()
    p_f = Vector()
    p_o = Vector()

    block_input = staticmethod(tanh)
    block_output = staticmethod(tanh)

    def input_gate(self, x: Any, h: Any, c: Any) -> Any:
        """What of the candidate is written."""
        return sigmoid(self.W_i[h, x] + self.p_i * c)

    def forget_gate(self, x: Any, h: Any, c: Any, i: Any) -> Any:  # noqa: ARG002 - see lstm_cifg
        """What of the cell is kept."""
        return sigmoid(self.W_f[h, x] + self.p_f * c)

    def output_gate(self, x: Any, h: Any, c: Any) -> Any:
        """What of the new cell is shown."""
        return sigmoid(self.W_o[h, x] + self.p_o * c)

    def step(self, x: Any, h: Any, c: Any) -> Any:
        """f = 1 keeps the cell, i = 1 writes to it, o = 1 shows it."""
        i = self.input_gate(x, h, c)
        f = self.forget_gate(x, h, c, i)
        candidate = self.block_input(self.W_c[h, x])
        c = f * c + i * candidate
        o = self.output_gate(x, h, c)
        return o * self.block_output(c), c


@register("lstm_coupled")
class LSTMCoupled(Unit):
    """LSTM with coupled gates (Greff et al. 2015), i = 1 - f, without peepholes."""

    title = "LSTM with coupled gates"
    citation = GREFF
    states = ("h", "c")

    W_f = Affine()
    W_o = Affine()
    W_c = Affine()

    def step(self, x: Any, h: Any, c: Any) -> Any:
        """f = 1 keeps the cell, f = 0 overwrites it."""
        f = sigmoid(self.W_f[h, x])
        i = 1 - f
        o = sigmoid(self.W_o[h, x])
        candidate = tanh(self.W_c[h, x])
        c = f * c + i * candidate
        return o * tanh(c), c


@register("lstm_nig")
class LSTMNoInputGate(LSTMPeephole):
    """NIG of Greff et al. (2015): `lstm_peephole` with i = 1."""

    title = "LSTM, no input gate"
    citation = GREFF

    def input_gate(self, *_: Any) -> Any:
        """Everything is written."""
        return 1


@register("lstm_nfg")
class LSTMNoForgetGate(LSTMPeephole):
    """NFG of Greff et al. (2015): `lstm_peephole` with f = 1."""

    title = "LSTM, no forget gate"
    citation = GREFF

    def forget_gate(self, *_: Any) -> Any:
        """Everything is kept."""
        return 1


@register("lstm_nog")
class LSTMNoOutputGate(LSTMPeephole):
    """NOG of Greff et al. (2015): `lstm_peephole` with o = 1."""

    title = "LSTM, no output gate"
    citation = GREFF

    def output_gate(self, *_: Any) -> Any:
        """Everything is shown."""
        return 1


@register("lstm_niaf")
class LSTMNoInputActivation(LSTMPeephole):
    """NIAF of Greff et al. (2015): `lstm_peephole` with a linear block input."""

    title = "LSTM, no input activation"
    citation = GREFF

    block_input = staticmethod(identity)


@register("lstm_noaf")
class LSTMNoOutputActivation(LSTMPeephole):
    """NOAF of Greff et al. (2015): `lstm_peephole` with h = o * c."""

    title = "LSTM, no output activation"
    citation = GREFF

    block_output = staticmethod(identity)


@register("lstm_cifg")
class LSTMCoupledInputForget(LSTMPeephole):
    """CIFG of Greff et al. (2015): `lstm_peephole` with f = 1 - i."""

    title = "LSTM, coupled input and forget gate"
    citation = GREFF

    def forget_gate(self, x: Any, h: Any, c: Any, i: Any) -> Any:  # noqa: ARG002
        """What is not overwritten is kept."""
        return 1 - i


@register("lstm_np")
class LSTMNoPeepholes(LSTM):
    """NP of Greff et al. (2015): `lstm_peephole` without peepholes, which is `lstm`."""

    title = "LSTM, no peepholes"
    citation = GREFF


@register("lstm_fgr")
class LSTMFullGateRecurrence(Unit):
    """FGR of Greff et al. (2015): every gate also sees the three gates of the step before.

    The gates are states of the unit; nine further matrices lead from them to the gates.
    """

    title = "LSTM, full gate recurrence"
    citation = GREFF
    states = ("h", "c", "i", "f", "o")

    W_i = Affine()
    W_f = Affine()
    W_o = Affine()
    W_c = Affine()
    p_i = Vector()
    p_f = Vector()
    p_o = Vector()

    def step(self, x: Any, h: Any, c: Any, i: Any, f: Any, o: Any) -> Any:
        """Gates as in `lstm_peephole`, each seeing all gates of the step before."""
        seen = h, x, i, f, o
        i = sigmoid(self.W_i[seen] + self.p_i * c)
        f = sigmoid(self.W_f[seen] + self.p_f * c)
        candidate = tanh(self.W_c[h, x])
        c = f * c + i * candidate
        o = sigmoid(self.W_o[seen] + self.p_o * c)
        return o * tanh(c), c, i, f, o


@register("lstm_layer_norm")
class LSTMLayerNorm(Unit):
    """LSTM with layer norm after Ba et al. (2016), normalised gate by gate.

    Each gate normalises its own W [h, x], with a shift in place of the bias, and the cell is
    normalised where it is shown, not where it is handed on. The paper normalises W x and U h of all
    gates together and apart from each other.
    """

    title = "LSTM with layer norm"
    citation = "Ba, Kiros, Hinton 2016, Layer Normalization"
    states = ("h", "c")

    W_f, N_f = Affine(bias=False), LayerNorm()
    W_i, N_i = Affine(bias=False), LayerNorm()
    W_o, N_o = Affine(bias=False), LayerNorm()
    W_c, N_g = Affine(bias=False), LayerNorm()
    N_c = LayerNorm()

    def step(self, x: Any, h: Any, c: Any) -> Any:
        """f = 1 keeps the cell, i = 1 writes to it, o = 1 shows it."""
        f = sigmoid(self.N_f[self.W_f[h, x]])
        i = sigmoid(self.N_i[self.W_i[h, x]])
        o = sigmoid(self.N_o[self.W_o[h, x]])
        candidate = tanh(self.N_g[self.W_c[h, x]])
        c = f * c + i * candidate
        return o * tanh(self.N_c[c]), c


@register("slstm")
class SLSTM(Unit):
    """The sLSTM of Beck et al. (2024): exponential gates, normaliser n, stabiliser m.

    a and b are the logarithms of the gates i and f; m is the larger of the two, and what is stored
    is c and n divided by exp(m), so that nothing overflows: h does not depend on m. States start at
    zero, also m; where the first input gate is below exp(-100), h is 0 / 0 in float32. Every head
    sees the whole input, as in the paper's equations; convolution, group norm and projections of
    its residual block are no part of the unit.

    heads: the recurrent matrices have so many blocks, and nothing is mixed between them.
    exponential_forget: f is exp instead of the sigmoid, the paper's other form.
    """

    title = "sLSTM"
    citation = (
        "Beck, Poeppel, Spanring, Auer, Prudnikova, Kopp, Klambauer, Brandstetter, Hochreiter "
        "2024, xLSTM: Extended Long Short-Term Memory"
    )
    states = ("h", "c", "n", "m")

    heads: int = 1
    exponential_forget: bool = False

    W_i, R_i = Affine(), Affine(bias=False, heads="heads")
    W_f, R_f = Affine(), Affine(bias=False, heads="heads")
    W_z, R_z = Affine(), Affine(bias=False, heads="heads")
    W_o, R_o = Affine(), Affine(bias=False, heads="heads")

    def step(self, x: Any, h: Any, c: Any, n: Any, m: Any) -> Any:
        """f keeps, i writes."""
        a = self.W_i[x] + self.R_i[h]
        b = self.W_f[x] + self.R_f[h]
        if not self.exponential_forget:
            b = -softplus(-b)
        m_t = maximum(b + m, a)
        i = exp(a - m_t)
        f = exp(b + m - m_t)
        z = tanh(self.W_z[x] + self.R_z[h])
        o = sigmoid(self.W_o[x] + self.R_o[h])
        c = f * c + i * z
        n = f * n + i
        return o * (c / n), c, n, m_t
