"""What graphs tell: gates, what keeps a state, and every parameter count of the paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onegate.language import sigmoid, tanh
from onegate.properties import (
    Bias,
    Retention,
    gates,
    kept,
    parameter_count,
    retention,
)
from onegate.tracing import trace
from onegate.units import UNITS
from tests.library.sample_unit import unit, with_a_loop

GATES = {
    "simple": "", "irnn": "", "scrn": "", "indrnn": "",
    "lstm": "f i o", "lstm_no_forget": "i o", "lstm_peephole": "i f o", "lstm_coupled": "f o",
    "lstm_nig": "f o", "lstm_nfg": "i o", "lstm_nog": "i f", "lstm_niaf": "i f o",
    "lstm_noaf": "i f o", "lstm_cifg": "i o", "lstm_np": "f i o", "lstm_fgr": "i f o", "slstm": "o",
    "gru": "z r", "gru_cho": "z r", "gru_reset_after": "z r",
    "mut1": "z r", "mut2": "z r", "mut3": "z r",
    "mgu": "f", "mgu_gate_after": "f", "mgu1": "f", "mgu2": "f", "mgu3": "f",
    "janet": "f", "ligru": "z", "mingru": "z", "minlstm": "f i",
    "ugrnn": "g", "cfn": "f i", "cornn": "", "lem": "f g",
    "lstm_layer_norm": "f i o", "gru_layer_norm": "z r", "gru_block": "r z", "gru_d": "z r",
    "fastgrnn": "z -",  # the sigmoid of zeta has no name
}  # fmt: skip

# state, gate, bias and sign: +1 where a larger bias keeps more; then the gate that writes, if any.
_LSTM = ("c", "f", "f.b", 1, "i.b")
KEPT: dict[str, tuple[str, str, str | None, int, str | None]] = {
    "lstm": _LSTM, "lstm_peephole": _LSTM, "lstm_nog": _LSTM, "lstm_niaf": _LSTM,
    "lstm_noaf": _LSTM, "lstm_np": _LSTM, "lstm_fgr": _LSTM,
    "lstm_coupled": ("c", "f", "f.b", 1, None),
    "lstm_nig": ("c", "f", "f.b", 1, None),
    "lstm_cifg": ("c", "i", "i.b", -1, None),
    "gru": ("h", "z", "z.b", -1, None),
    "gru_cho": ("h", "z", "z.b", 1, None),
    "gru_reset_after": ("h", "z", "z.b", 1, None),
    "mut1": ("h", "z", "z.b", -1, None),
    "mut2": ("h", "z", "z.b", -1, None),
    "mut3": ("h", "z", "z.b", -1, None),
    "mgu": ("h", "f", "f.b", -1, None),
    "mgu_gate_after": ("h", "f", "f.b", -1, None),
    "mgu1": ("h", "f", "f.b", -1, None),
    "mgu2": ("h", "f", None, -1, None),
    "mgu3": ("h", "f", "b_f", -1, None),
    "janet": ("h", "f", "f.b", 1, None),
    "ligru": ("h", "z", "z.b", 1, None),
    "mingru": ("h", "z", "z.b", -1, None),
    "ugrnn": ("h", "g", "g.b", 1, None),
    "lstm_layer_norm": ("c", "f", "N_f.shift", 1, "N_i.shift"),
    "gru_layer_norm": ("h", "z", "N_x.shift_1", -1, None),
    "gru_block": ("h", "z", "z.b", -1, None),
    "fastgrnn": ("h", "z", "b_z", 1, "nu"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNITS)
def test_gates(name: str) -> None:
    graph = trace(UNITS[name], 3, 2)
    assert [graph.names.get(gate, "-") for gate in gates(graph)] == GATES[name].split()


@pytest.mark.parametrize("name", UNITS)
def test_retention(name: str) -> None:
    found = retention(trace(UNITS[name], 3, 2))
    if name == "lem":  # two states, each with a gate of its own
        assert [(kept.state, kept.keeps) for kept in found] == [
            ("h", Bias("g.b", -1)), ("z", Bias("f.b", -1)),
        ]  # fmt: skip
        return
    if name not in KEPT:
        assert found == ()
        return
    state, gate, key, sign, writes = KEPT[name]
    written = None if writes is None else Bias(writes, 1)
    assert found == (Retention(state, gate, Bias(key, sign), written),)


def test_without_biases_the_gate_is_found_but_has_none() -> None:
    (kept,) = retention(trace(UNITS["gru"], 3, 2, bias=False))
    assert kept == Retention("h", "z", Bias(None, -1), None)


def sample(step: Callable[..., Any], states: tuple[str, ...] = ("h",)) -> Any:
    return trace(unit(step, states=states), 2, 2)


SPELLINGS: dict[str, tuple[Callable[..., Any], Bias]] = {
    "step towards": (
        lambda self, x, h: h + sigmoid(self.W[x]) * (tanh(x) - h),
        Bias("W.b", -1),
    ),
    "negative argument": (
        lambda self, x, h: (1 - sigmoid(-self.W[x])) * h + x,
        Bias("W.b", 1),
    ),
    "subtracted argument": (lambda self, x, h: sigmoid(x - self.W[x]) * h, Bias("W.b", -1)),
    "bare vector": (lambda self, x, h: sigmoid(self.p) * h + x, Bias("p", 1)),
    "peephole is no bias": (lambda self, x, h: sigmoid(self.p * h) * h + x, Bias(None, 1)),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_retention_does_not_depend_on_the_spelling(name: str) -> None:
    step, bias = SPELLINGS[name]
    (kept,) = retention(sample(step))
    assert kept.keeps == bias
    assert kept.writes is None


def test_a_writing_gate_that_is_one_minus_something_has_the_other_sign() -> None:
    def step(self: Any, x: Any, h: Any) -> Any:
        return sigmoid(self.W[x]) * h + (1 - sigmoid(self.V[x])) * tanh(x)

    assert retention(sample(step)) == (Retention("h", "", Bias("W.b", 1), Bias("V.b", -1)),)


@pytest.mark.parametrize(
    "step",
    [
        lambda self, x, h: 0.9 * h + sigmoid(self.W[x]),
        lambda self, x, h: 2 * sigmoid(self.W[x]) * h,
        lambda self, x, h: (2 - sigmoid(self.W[x])) * h,
        lambda self, x, h: tanh(self.W[x]) * h,
        lambda self, x, h: sigmoid(self.W[x]) * sigmoid(self.V[x]) * h,
    ],
    ids=["constant", "twice a gate", "two minus a gate", "tanh", "two gates"],
)
def test_what_is_no_single_gate_keeps_nothing(step: Callable[..., Any]) -> None:
    assert retention(sample(step)) == ()


def test_a_sigmoid_that_multiplies_nothing_is_no_gate() -> None:
    assert gates(sample(lambda self, x, h: 2 * sigmoid(self.W[h, x]) - 1)) == ()
    assert len(gates(sample(lambda self, x, h: sigmoid(self.W[x]) * sigmoid(self.V[h])))) == 2


@pytest.mark.parametrize(("name", "maps"), [("simple", 1), ("mgu", 2), ("gru", 3), ("lstm", 4)])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (7, 3), (100, 28)])
def test_one_layer_has_maps_times_n_times_all_inputs(name: str, maps: int, n: int, d: int) -> None:
    assert parameter_count(UNITS[name], d, n) == maps * n * (n + d + 1)


def test_layers_above_see_both_directions() -> None:
    n, d = 5, 3
    first, above = 2 * n * (n + d + 1), 2 * n * (n + 2 * n + 1)
    assert parameter_count(UNITS["mgu"], d, n, layers=3, directions=2) == 2 * (first + 2 * above)


def test_the_share_that_is_kept() -> None:
    """1 - f of MGU, f of LSTM, a number, and nothing behind a matrix alone."""

    def shares(name: str) -> dict[str, dict[tuple[str, ...], float]]:
        graph = trace(UNITS[name], 2, 3)
        return {
            state: {tuple(graph.names[v] for v in factors): number for factors, number in s.items()}
            for state, s in kept(graph).items()
        }

    assert shares("mgu") == {"h": {(): 1.0, ("f",): -1.0}}
    assert shares("lstm") == {"c": {("f",): 1.0}}
    assert shares("lstm_no_forget") == {"c": {(): 1.0}}
    assert shares("scrn") == {"s": {(): 0.95}}
    assert shares("simple") == shares("irnn") == {}


def test_a_step_with_a_loop_has_each_value_looked_at_once() -> None:
    graph = trace(with_a_loop(60), 2, 3)
    assert not gates(graph)
    assert not retention(graph)
    assert kept(graph) == {}


def test_long_products_are_left_as_they_are() -> None:
    def step(self: Any, x: Any, h: Any) -> Any:
        a = h
        for _ in range(40):  # h to a power of thirteen digits
            a = a * a
        return self.W[x] + a

    assert kept(trace(unit(step), 2, 3)) == {}
