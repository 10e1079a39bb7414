"""Units without a gate: the simple recurrent network, IRNN, SCRN and IndRNN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from onegate.language import Affine, Unit, Vector, relu, sigmoid, tanh
from onegate.units.registry import register


@register("simple")
class Simple(Unit):
    """Simple recurrent network of Elman (1990), in the form of equation 2 of Zhou et al. (2016)."""

    title = "Simple recurrent network"
    citation = "Elman 1990, Finding Structure in Time"

    W_h = Affine()

    def step(self, x: Any, h: Any) -> Any:
        """The new state sees the old one through the matrix alone."""
        return tanh(self.W_h[h, x])


@register("irnn")
class IRNN(Unit):
    """ReLU network of Le, Jaitly and Hinton (2015), whose recurrent matrix starts as the identity.

    As published, biases start at zero and input weights come from N(0, 0.001).
    """

    title = "IRNN: ReLU with identity initialisation"
    citation = (
        "Le, Jaitly, Hinton 2015, A Simple Way to Initialize Recurrent Networks of "
        "Rectified Linear Units"
    )
    init: ClassVar[Mapping[str, Any]] = {"U": "identity", "W": ("normal", 0.001), "b": "zeros"}

    W_h = Affine()

    def step(self, x: Any, h: Any) -> Any:
        """At the start, and without input, a state that is not negative stays as it is."""
        return relu(self.W_h[h, x])


@register("scrn")
class SCRN(Unit):
    """Structurally constrained network of Mikolov et al. (2015): a slow context s beside h.

    The output is h; no map has a bias, as published.

    context_size: elements of s. alpha: share of s that a step keeps.
    """

    title = "Structurally Constrained Recurrent Network"
    citation = (
        "Mikolov, Joulin, Chopra, Mathieu, Ranzato 2015, Learning Longer Memory in "
        "Recurrent Neural Networks"
    )
    states = ("h", "s")

    context_size: int = 40
    alpha: float = 0.95

    B = Affine(like="s", bias=False)
    P = Affine(bias=False)
    A = Affine(bias=False)
    R = Affine(bias=False)

    def state_sizes(self, hidden_size: int) -> dict[str, int]:
        """The context s has a size of its own."""
        return {"h": hidden_size, "s": self.context_size}

    def step(self, x: Any, h: Any, s: Any) -> Any:
        """The new h sees the new s."""
        s = self.alpha * s + (1 - self.alpha) * self.B[x]
        return sigmoid(self.P[s] + self.A[x] + self.R[h]), s


@register("indrnn")
class IndRNN(Unit):
    """Independently recurrent network of Li et al. (2018): each neuron sees its own past alone."""

    title = "IndRNN: a diagonal recurrence"
    citation = (
        "Li, Li, Cook, Zhu, Gao 2018, Independently Recurrent Neural Network (IndRNN): Building "
        "a Longer and Deeper RNN"
    )

    W_h = Affine()
    u = Vector()

    def step(self, x: Any, h: Any) -> Any:
        """No matrix in the loop."""
        return relu(self.W_h[x] + self.u * h)
