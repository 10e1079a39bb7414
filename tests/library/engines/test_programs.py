"""Every unit has a program of its own, and a key finds it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

import onegate
from onegate.engines.cpu import programs
from onegate.language import Affine, Unit, sigmoid, tanh
from onegate.tracing import trace
from onegate.units import UNITS

T, B, D, N = 4, 3, 5, 9


class Squashed(Unit):
    """An option that is no plain data."""

    squash: Any = tanh
    W_h = Affine()

    def step(self, x: Any, h: Any) -> Any:
        return self.squash(self.W_h[h, x])


def test_units_that_differ_in_a_function_have_programs_of_their_own() -> None:
    x = torch.randn(T, B, D, dtype=torch.float64)
    for squash in (tanh, sigmoid, tanh):
        found = []
        for engine in ("fused", "reference"):
            torch.manual_seed(0)
            layer = onegate.Recurrent(
                Squashed, D, N, engine=engine, dtype=torch.float64, squash=squash
            )
            found.append(layer(x)[0])
        torch.testing.assert_close(*found)


def test_units_of_one_name_have_programs_of_their_own() -> None:
    """As when a cell of a notebook is run again with another equation."""
    layers = []
    for scale in (1.0, 2.0):

        class Scaled(Unit):
            W_h = Affine()
            factor = scale

            def step(self, x: Any, h: Any) -> Any:
                return tanh(self.factor * self.W_h[h, x])

        layers.append(onegate.Recurrent(Scaled, D, N, engine="fused"))
    layers[1].load_state_dict(layers[0].state_dict())
    x = torch.randn(T, B, D)
    assert not torch.allclose(layers[0](x)[0], layers[1](x)[0])


def test_a_registered_unit_is_found_by_what_the_key_says() -> None:
    key = programs.key_of(trace(UNITS["scrn"], D, N))
    named = json.loads(key)
    assert (named["unit"], named["input_size"], named["hidden_size"]) == ("scrn", D, N)
    entry = programs._ENTRIES.pop(key)
    assert programs.find(key).graph.parameters == entry.graph.parameters


def test_a_unit_of_another_process_is_named() -> None:
    key = json.dumps(
        {**json.loads(programs.key_of(trace(UNITS["mgu"], D, N))), "unit": "Mine", "process": 1}
    )
    with pytest.raises(RuntimeError, match="the unit 'Mine' is not registered and was defined in"):
        programs.find(key)
