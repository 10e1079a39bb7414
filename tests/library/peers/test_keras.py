"""Keras' GRU(reset_after=False) against ours, which gate before the matrix too."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import torch

import onegate
from tests.library.comparing import assert_same, cotangents, with_gradients

os.environ.setdefault("KERAS_BACKEND", "jax")
jax = pytest.importorskip("jax", reason="jax is not installed; make test-peers installs it")
keras = pytest.importorskip("keras", reason="keras is not installed; make test-peers installs it")

pytestmark = pytest.mark.peers

T, B, D, N = 7, 3, 4, 5
# Keras keeps z, r and the candidate side by side.
MAPS = ("z", "r", "h")
# h' = z h + (1 - z) candidate in Keras and gru_cho; in gru z and 1 - z change places, which is the
# same as turning the sign of all that z is computed from.
SIGN_OF_Z = {"gru_cho": 1.0, "gru": -1.0}


@pytest.fixture(autouse=True)
def double_precision() -> Any:
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("engine", ["reference", "auto"])
@pytest.mark.parametrize("unit", SIGN_OF_Z)
def test_values_and_gradients(unit: str, engine: str, backward: bool) -> None:
    layer = onegate.Recurrent(
        unit, D, N, bidirectional=backward, engine=engine, batch_first=True, dtype=torch.float64
    )
    place = "l0_reverse" if backward else "l0"
    parameters = {
        f"{m}.{part}": layer.get_parameter(f"{place}.{m}.{part}") for part in "WUb" for m in MAPS
    }
    for parameter in parameters.values():
        torch.nn.init.normal_(parameter)
    x = torch.randn(B, T, D, dtype=torch.float64)

    def ours(x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = layer(x)[0][..., N if backward else 0 :]
        return out

    found = with_gradients(ours, [x], parameters)
    expected = by_keras(x, parameters, backward, SIGN_OF_Z[unit])
    assert_same(found, {name: expected[name] for name in found})


def by_keras(
    x: torch.Tensor, parameters: dict[str, torch.nn.Parameter], backward: bool, sign: float
) -> dict[str, torch.Tensor]:
    gru = keras.layers.GRU(
        N,
        activation=jax.numpy.tanh,  # Keras' own computes in float32
        reset_after=False,
        return_sequences=True,
        go_backwards=backward,
        dtype="float64",
    )
    gru.build((B, T, D))
    signs = {"z": sign, "r": 1.0, "h": 1.0}
    stacked = [
        np.concatenate(
            [signs[m] * parameters[f"{m}.{part}"].detach().numpy().T for m in MAPS], axis=-1
        )
        for part in "WUb"
    ]
    # The backward pass of Keras comes out in its own order.
    order = slice(None, None, -1) if backward else slice(None)

    def call(variables: list[Any], x: Any) -> Any:
        others = [v.value for v in gru.non_trainable_variables]
        return gru.stateless_call(variables, others, x)[0][:, order]

    out, pull_back = jax.vjp(
        call, [jax.numpy.asarray(v) for v in stacked], jax.numpy.asarray(x.numpy())
    )
    gradients, x_gradient = pull_back(jax.numpy.asarray(cotangents([out])[0].numpy()))
    found = {"output 0": out, "gradient of input 0": x_gradient}
    for part, gradient in zip("WUb", gradients, strict=True):
        for m, rows in zip(MAPS, np.split(np.asarray(gradient), len(MAPS), axis=-1), strict=True):
            found[f"{m}.{part}"] = signs[m] * rows.T
    return {name: torch.from_numpy(np.array(array)) for name, array in found.items()}
