"""Flax's MGUCell, written as a user's own unit, computes what Flax computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import onegate
from onegate import Affine, Unit, sigmoid, tanh
from tests.library.comparing import assert_same, cotangents, with_gradients

jax = pytest.importorskip("jax", reason="jax is not installed; make test-peers installs it")
linen = pytest.importorskip(
    "flax.linen", reason="flax is not installed; make test-peers installs it"
)

pytestmark = pytest.mark.peers

T, B, D, N = 7, 3, 4, 5
LENGTHS = [7, 2, 5]


class FlaxMGU(Unit):
    """The gate acts after the matrix, on its bias too, and f = 1 keeps."""

    W_f = Affine()
    W_n = Affine()
    U_n = Affine()

    def step(self, x: Any, h: Any) -> Any:
        f = sigmoid(self.W_f[h, x])
        candidate = tanh(self.W_n[x] + f * self.U_n[h])
        return (1 - f) * candidate + f * h


# Ours -> Flax's dense layer and its array; kernels are transposed.
KEYS = {
    "f.U": ("hf", "kernel"),
    "f.W": ("if", "kernel"),
    "f.b": ("if", "bias"),
    "n.W": ("in", "kernel"),
    "n.b": ("in", "bias"),
    "U_n.U": ("hn", "kernel"),
    "U_n.b": ("hn", "bias"),
}


@pytest.fixture(autouse=True)
def double_precision() -> Any:
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "lengths"])
@pytest.mark.parametrize("engine", ["reference", "auto"])
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_values_and_gradients(engine: str, reverse: bool, lengths: list[int] | None) -> None:
    layer = onegate.Recurrent(
        FlaxMGU, D, N, bidirectional=reverse, engine=engine, batch_first=True, dtype=torch.float64
    )
    place = "l0_reverse" if reverse else "l0"
    parameters = {key: layer.get_parameter(f"{place}.{key}") for key in KEYS}
    for parameter in parameters.values():
        torch.nn.init.normal_(parameter)
    x = torch.randn(B, T, D, dtype=torch.float64)

    def ours(x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = layer(x, lengths=lengths)[0][..., N if reverse else 0 :][..., :N]
        return out

    found = with_gradients(ours, [x], parameters)
    expected = by_flax(x, parameters, reverse, lengths)
    assert_same(found, {name: expected[name] for name in found})


def by_flax(
    x: torch.Tensor,
    parameters: dict[str, torch.nn.Parameter],
    reverse: bool,
    lengths: list[int] | None,
) -> dict[str, torch.Tensor]:
    cell: dict[str, dict[str, Any]] = {}
    for key, (dense, array) in KEYS.items():
        values = parameters[key].detach().numpy()
        cell.setdefault(dense, {})[array] = values.T if array == "kernel" else values
    double = jax.numpy.float64
    rnn = linen.RNN(
        linen.MGUCell(N, dtype=double, param_dtype=double), reverse=reverse, keep_order=True
    )

    def call(cell: Any, x: Any) -> Any:
        given = None if lengths is None else jax.numpy.array(lengths)
        out = rnn.apply({"params": {"cell": cell}}, x, seq_lengths=given)
        if lengths is None:
            return out
        inside = jax.numpy.arange(T)[None, :, None] < jax.numpy.array(lengths)[:, None, None]
        return jax.numpy.where(inside, out, 0.0)

    out, pull_back = jax.vjp(call, cell, jax.numpy.asarray(x.numpy()))
    gradients, x_gradient = pull_back(jax.numpy.asarray(cotangents([out])[0].numpy()))
    found = {"output 0": out, "gradient of input 0": x_gradient}
    for key, (dense, array) in KEYS.items():
        gradient = gradients[dense][array]
        found[key] = gradient.T if array == "kernel" else gradient
    return {name: torch.from_numpy(np.array(array)) for name, array in found.items()}
