"""Units of continuous time: coRNN and LEM, steps of a differential equation, and GRU-D."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from onegate.language import Affine, Unit, Value, Vector, relu, sigmoid, tanh
from onegate.ops import exp
from onegate.units.registry import register


@register("cornn")
class CoRNN(Unit):
    """Coupled oscillators of Rusch and Mishra (2021): h is their place, z their velocity.

    The damping is explicit (the paper's n - 1 for the bar over n), as in the authors' code. Its
    y is our h.

    dt: the length of a step. gamma: the frequency. epsilon: the damping; all as for the authors'
    digits, pixel by pixel.
    """

    title = "Coupled oscillatory RNN"
    citation = (
        "Rusch, Mishra 2021, Coupled Oscillatory Recurrent Neural Network (coRNN): An Accurate "
        "and (Gradient) Stable Architecture for Learning Long Time Dependencies"
    )
    states = ("h", "z")

    dt: float = 0.042
    gamma: float = 2.7
    epsilon: float = 4.7

    W_z = Affine()

    def step(self, x: Any, h: Any, z: Any) -> Any:
        """The new place sees the new velocity."""
        a = tanh(self.W_z[h, z, x])
        z = z + self.dt * (a - self.gamma * h - self.epsilon * z)
        return h + self.dt * z, z


@register("lem")
class LEM(Unit):
    """Long Expressive Memory of Rusch et al. (2022): two states, each with a time scale of its own.

    The paper's y is our h, and its two steps f and g.

    dt: the longest step, 1 in most of the paper's experiments.
    """

    title = "Long Expressive Memory"
    citation = "Rusch, Mishra, Erichson, Mahoney 2022, Long Expressive Memory for Sequence Modeling"
    states = ("h", "z")

    dt: float = 1.0

    W_f = Affine()
    W_g = Affine()
    W_z = Affine()
    W_h = Affine()

    def step(self, x: Any, h: Any, z: Any) -> Any:
        """f and g, times dt, overwrite; the new h sees the new z."""
        f = self.dt * sigmoid(self.W_f[h, x])
        g = self.dt * sigmoid(self.W_g[h, x])
        z = (1 - f) * z + f * tanh(self.W_z[h, x])
        return (1 - g) * h + g * tanh(self.W_h[z, x]), z


class _InputVector(Vector):
    """A learned vector as wide as an input, not as the state: `self.w[gap]` has the size of gap."""

    def __get__(self, unit: Unit | None, owner: type) -> Any:
        return self if unit is None else _WideAs(self, unit)


class _WideAs:
    def __init__(self, declared: _InputVector, unit: Unit) -> None:
        self.declared, self.unit = declared, unit

    def __getitem__(self, operand: Any) -> Any:
        if isinstance(operand, Value):
            return operand.builder.make("vector", (), operand.size, self.declared.name)
        return self.unit._scope_of(self.declared).vector(self.declared)


@register("gru_d")
class GRUD(Unit):
    """GRU-D of Che et al. (2018), for series with missing values and irregular times.

    It reads beside x, each as wide as x: mask, 1 where a value is observed at the step and 0 where
    it is missing; gap, the time that has passed since the observation before. x holds the value at
    the step or, where it is missing, the last one observed (0 before the first): the paper's x and
    x' in one. What was observed long ago fades to the mean, and the state fades to 0.

    >>> layer(x, extra={"mask": mask, "gap": gap})

    learn_mean: the mean to which an input fades is learned, starting at 0. Else it is 0: inputs are
        expected to be centred on their mean, as the paper does.
    """

    title = "GRU-D: a GRU with decay for missing values"
    citation = (
        "Che, Purushotham, Cho, Sontag, Liu 2018, Recurrent Neural Networks for Multivariate Time "
        "Series with Missing Values"
    )
    inputs = ("x", "mask", "gap")
    init: ClassVar[Mapping[str, Any]] = {"mean": 0.0}

    learn_mean: bool = False

    w_x, b_x = _InputVector(), _InputVector()
    mean = _InputVector()
    W_d = Affine()
    W_z, W_r, W_h = Affine(), Affine(), Affine()

    def step(self, x: Any, mask: Any, gap: Any, h: Any) -> Any:
        """z = 1 overwrites, z = 0 keeps, after the decay by gamma_h."""
        gamma_x = exp(-relu(self.w_x[gap] * gap + self.b_x[gap]))
        gamma_h = exp(-relu(self.W_d[gap]))
        faded = gamma_x * x
        if self.learn_mean:
            faded = faded + (1 - gamma_x) * self.mean[x]
        v = mask * x + (1 - mask) * faded
        d = gamma_h * h
        z = sigmoid(self.W_z[d, v, mask])
        r = sigmoid(self.W_r[d, v, mask])
        candidate = tanh(self.W_h[r * d, v, mask])
        return (1 - z) * d + z * candidate
