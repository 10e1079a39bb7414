"""Long Short-Term Memory: without peepholes, with them, and the eight variants of Greff et al."""

from __future__ import annotations

from typing import Any

from onegate.language import Affine, Unit, Vector, identity, sigmoid, tanh
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
