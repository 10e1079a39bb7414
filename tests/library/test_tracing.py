"""Tracing: nodes, names and keys of a graph, and a clear error for what is not a step."""

from __future__ import annotations

import cProfile
import sys
from collections.abc import Callable
from typing import Any

import pytest

from onegate.language import (
    Affine,
    Unit,
    UnitError,
    Value,
    identity,
    relu,
    sigmoid,
    tanh,
)
from onegate.tracing import trace
from onegate.units import UNITS
from tests.library.sample_unit import unit

# Faults of what step returns belong to no line: the message names the state instead.
WRONG_RESULTS: dict[str, tuple[Callable[..., Any], dict[str, Any], str]] = {
    "a state that is not returned": (
        lambda self, x, h, c: tanh(self.W[h, x]) + c,
        {"states": ("h", "c")},
        r"step returns 1 value\(s\) for the states \('h', 'c'\); return every state",
    ),
    "one state too many": (lambda self, x, h: (h, self.W[h, x]), {}, r"returns 2 value\(s\)"),
    "nothing": (
        lambda self, x, h: None,
        {},
        r"step returns nothing; end it with `return`, and the new states .*\('h',\)",
    ),
    "a number": (lambda self, x, h: 0.0, {}, "the new h is 0.0, not a value of step"),
    "another size": (lambda self, x, h: tanh(x), {}, "the new h has size 3, the state 2"),
    "neither input nor state": (
        lambda self, x, h: sigmoid(self.p),
        {},
        "the new h depends on neither input nor state",
    ),
    "one of two that depends on nothing": (
        lambda self, x, h, c: (self.W[h, x] + c, sigmoid(self.p)),
        {"states": ("h", "c")},
        "the new c depends on neither input nor state",
    ),
    "fewer arguments than states": (
        lambda self, x: x,
        {},
        r"step is written as step\(self, x\), expected step\(self, x, h\)",
    ),
    "no states": (lambda self, x: x, {"states": ()}, r"states is \(\), expected a tuple of names"),
    "sizes for other states": (
        lambda self, x, h: h,
        {"state_sizes": lambda self, hidden_size: {"c": hidden_size}},
        r"states are \('h',\), sizes are for \('c',\)",
    ),
    "size like nothing": (
        lambda self, x, h: self.W[h, x],
        {"W": Affine(like="memory")},
        r"^Sample: like='memory' names neither a state \('h',\) nor an integer option",
    ),
}


@pytest.mark.parametrize("name", WRONG_RESULTS)
def test_wrong_results_name_the_unit(name: str) -> None:
    step, body, message = WRONG_RESULTS[name]
    with pytest.raises(UnitError, match=message) as caught:
        trace(unit(step, **body), 3, 2)
    assert str(caught.value).startswith("Sample: ")


def test_values_of_another_step_are_refused() -> None:
    stranger = trace(UNITS["mgu"], 3, 2).states[0]
    with pytest.raises(UnitError, match="Sample: <h: 2> belongs to another unit's step"):
        trace(unit(lambda self, x, h: h + stranger), 3, 2)
    with pytest.raises(UnitError, match="the new h is <h: 2>, not a value of step"):
        trace(unit(lambda self, x, h: stranger), 3, 2)


def test_equal_expressions_are_one_value() -> None:
    seen: list[Value] = []

    def step(self: Any, x: Any, h: Any) -> Any:
        one, two = sigmoid(self.W[h, x]), sigmoid(self.W[h, x])
        seen.extend((one, two, one * h, two * h, h * one, 1 - one, 1.0 - two))
        return one * h

    trace(unit(step), 3, 2)
    assert seen[0] is seen[1]
    assert seen[2] is seen[3]
    assert seen[2] is not seen[4]
    assert seen[5] is seen[6]


def test_numbers_are_told_apart() -> None:
    graph = trace(unit(lambda self, x, h: 0.5 * h + 0.25 * h), 3, 2)
    assert sorted(n.number for n in graph.nodes if n.op == "constant") == [0.25, 0.5]


def test_a_factor_of_one_leaves_no_node() -> None:
    graph = trace(unit(lambda self, x, h: 1 * tanh(self.W[h, x]) * 1.0), 3, 2)
    assert [n.op for n in graph.nodes] == ["input", "state", "affine", "tanh"]


def test_nodes_are_what_the_results_need_in_the_order_of_step() -> None:
    def step(self: Any, x: Any, h: Any) -> Any:
        relu(self.V[h])
        a = tanh(self.W[h, x])
        return -a + identity(h)

    graph = trace(unit(step), 3, 2)
    assert [n.op for n in graph.nodes] == ["input", "state", "affine", "tanh", "neg", "add"]
    assert list(graph.parameters) == ["W.U", "W.W", "W.b"]
    assert graph.depends_on(graph.results[0], [graph.input])
    assert not graph.depends_on(graph.states[0], [graph.input])


def test_names_are_the_local_names_of_every_method_of_the_unit() -> None:
    def gate(self: Any, x: Any, h: Any) -> Any:
        drive = self.W[h, x]
        return sigmoid(drive)

    def step(self: Any, x: Any, h: Any) -> Any:
        f = self.gate(x, h)
        h = f * h
        return tanh(h)

    graph = trace(unit(step, gate=gate), 3, 2)
    assert {name: node.op for node, name in graph.names.items()} == {
        "drive": "affine", "f": "sigmoid", "h": "mul",
    }  # fmt: skip


def test_tracing_leaves_a_profiler_in_place() -> None:
    def profiler(*_: object) -> None:
        pass

    before = sys.getprofile()
    sys.setprofile(profiler)
    try:
        trace(unit(lambda self, x, h: tanh(self.W[h, x])), 3, 2)
        with pytest.raises(UnitError):
            trace(unit(lambda self, x, h: h // 2), 3, 2)
        after = sys.getprofile()
    finally:
        sys.setprofile(before)
    assert after is profiler


KEYS = {
    "simple": "h.U h.W h.b",
    "mgu": "f.U f.W f.b h.U h.W h.b",
    "mgu1": "f.U f.b h.U h.W h.b",
    "mgu2": "f.U h.U h.W h.b",
    "mgu3": "b_f h.U h.W h.b",
    "mgu_gate_after": "f.U f.W f.b h.W h.b U_h.U",
    "gru_reset_after": "z.U z.W z.b r.U r.W r.b h.W h.b U_h.U U_h.b",
    "scrn": "B.W P.U A.W R.U",
    "mut1": "z.W z.b r.U r.W r.b h.U h.b x.W",
    "lstm_peephole": "i.U i.W i.b p_i f.U f.W f.b p_f c.U c.W c.b o.U o.W o.b p_o",
    "lstm_fgr": "i.U i.W i.U_i i.U_f i.U_o i.b p_i f.U f.W f.U_i f.U_f f.U_o f.b p_f c.U c.W c.b "
    "o.U o.W o.U_i o.U_f o.U_o o.b p_o",
}


@pytest.mark.parametrize("name", KEYS)
def test_parameter_keys_read_like_the_equations(name: str) -> None:
    assert list(trace(UNITS[name], 3, 2).parameters) == KEYS[name].split()


def test_further_operands_get_keys_of_their_own() -> None:
    graph = trace(unit(lambda self, x, h: self.W[h, x, tanh(h), tanh(x)]), 3, 2)
    assert graph.parameters == {
        "W.U": (2, 2), "W.W": (2, 3), "W.U_3": (2, 2), "W.W_4": (2, 3), "W.b": (2,),
    }  # fmt: skip


def test_without_bias_no_map_has_one() -> None:
    graph = trace(UNITS["mgu"], 3, 2, bias=False)
    assert list(graph.parameters) == ["f.U", "f.W", "h.U", "h.W"]
    assert {used.bias for used in graph.maps.values()} == {None}
    one = trace(unit(lambda self, x, h: self.W[h] + self.V[x], V=Affine(bias=False)), 3, 2)
    assert list(one.parameters) == ["W.U", "W.b", "V.W"]


def test_parameter_count_is_the_sum_of_the_shapes() -> None:
    assert trace(UNITS["mgu"], 28, 100).parameter_count() == 25_800
    assert trace(UNITS["mgu3"], 3, 2).parameter_count() == 2 + 2 * 2 + 2 * 3 + 2


def test_a_trace_is_made_once_for_equal_units() -> None:
    assert trace(UNITS["mgu"], 3, 2) is trace(type(UNITS["mgu"])(), 3, 2)


def test_a_profiler_goes_on_after_tracing() -> None:
    class Traced(Unit):
        W_h = Affine()

        def step(self, x: Any, h: Any) -> Any:
            return tanh(self.W_h[h, x])

    with cProfile.Profile() as profile:
        graph = trace(Traced(), 2, 3)
        len(graph.nodes)
    assert list(graph.parameters) == ["h.U", "h.W", "h.b"]
    assert any("len" in str(entry.code) for entry in profile.getstats())
