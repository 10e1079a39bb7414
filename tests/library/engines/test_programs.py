"""Every unit has a program of its own, and a key finds it."""

from __future__ import annotations

import gc
import json
import pickle
import weakref
from typing import Any

import pytest
import torch
from torch.export import export

import onegate
from onegate.engines.cpu import programs
from onegate.engines.cpu.programs import entry_of
from onegate.language import Affine, Unit, sigmoid, tanh
from onegate.lowering.program import program
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


def own_unit(number: float) -> type[Unit]:
    """A class of its own at each call, all of one name."""

    class Own(Unit):
        W_h = Affine()

        def step(self, x: Any, h: Any) -> Any:
            return tanh(number * self.W_h[h, x])

    return Own


class TestUnitsThatAreThrownAway:
    @pytest.mark.parametrize("engine", ["fused", "reference"])
    def test_nothing_of_them_stays(self, engine: str) -> None:
        kinds: weakref.WeakSet[type] = weakref.WeakSet()
        gone: weakref.WeakSet[Any] = weakref.WeakSet()
        for number in range(20):
            kind = own_unit(number)
            layer = onegate.Recurrent(kind, D, N, 2, engine=engine)
            layer(torch.randn(T, B, D))[0].sum().backward()
            graph = layer._weights()[1][0].graph
            kinds.add(kind)
            gone.update((graph, program(graph), *([entry_of(graph)] if engine == "fused" else [])))
            del kind, layer, graph
        gc.collect()
        assert len(gone) == 0
        gc.collect()  # the table of graphs let go of the units when the graphs went
        assert len(kinds) == 0

    def test_a_backward_pass_outlives_its_layer(self) -> None:
        kind, x = own_unit(0.5), torch.randn(T, B, D, requires_grad=True)
        layer = onegate.Recurrent(kind, D, N, engine="fused")
        (expected,) = torch.autograd.grad(layer(x)[0].sum(), x)
        outputs = [layer(x)[0].sum()]
        with torch.profiler.profile():  # through the operator
            outputs.append(layer(x)[0].sum())
        del layer, kind
        gc.collect()
        for out in outputs:
            assert torch.equal(torch.autograd.grad(out, x)[0], expected)

    def test_an_exported_program_outlives_its_layer(self) -> None:
        layer, x = onegate.Recurrent(own_unit(0.5), D, N, engine="fused"), torch.randn(T, B, D)
        expected, exported = layer(x)[0], export(layer, (x,)).module()
        del layer
        gc.collect()
        assert torch.equal(exported(x)[0], expected)

    def test_a_pickled_layer_has_a_program_of_its_own(self) -> None:
        layer, x = onegate.Recurrent(Squashed, D, N, engine="fused"), torch.randn(T, B, D)
        expected, stored = layer(x)[0], pickle.dumps(layer)
        del layer
        gc.collect()
        assert torch.equal(pickle.loads(stored)(x)[0], expected)

    def test_a_registered_unit_is_made_anew_once(self) -> None:
        """As for a loaded model, which has no layer that holds the program."""
        key = programs.key_of(trace(UNITS["mgu"], D, 2 * N + 1))
        gc.collect()
        assert key not in programs._ENTRIES
        entry = programs.find(key)
        gc.collect()
        assert programs.find(key) is entry


def test_a_unit_of_another_process_is_named() -> None:
    key = json.dumps(
        {**json.loads(programs.key_of(trace(UNITS["mgu"], D, N))), "unit": "Mine", "process": 1}
    )
    with pytest.raises(RuntimeError, match="the unit 'Mine' is not registered and was defined in"):
        programs.find(key)
