"""The language: what it computes, and a clear error for everything that is not in it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
import torch

import onegate
from onegate.language import (
    Affine,
    Fit,
    Graph,
    Unit,
    UnitError,
    identity,
    relu,
    sigmoid,
    tanh,
)
from onegate.tracing import trace
from onegate.units import UNITS, get, register
from onegate.units.mgu import MGU
from tests.library.sample_unit import unit

# Each step, and what its error must say beside the unit and the line of the equation.
MISUSE: dict[str, tuple[Callable[..., Any], str]] = {
    "input and state of two sizes": (
        lambda self, x, h: tanh(x + h),
        r"'add' needs operands of one size, got 3 \(x\) and 2 \(h\)",
    ),
    "product of two sizes": (lambda self, x, h: self.W[h, x] * x, "'mul' needs operands of one"),
    "whole division": (lambda self, x, h: self.W[h, x] // 2, "a rounded division is not .* h / 2"),
    "remainder": (lambda self, x, h: h % 2, "a remainder is not in the language"),
    "power": (lambda self, x, h: self.W[h, x] ** 2, r"a power is not .* such as f \* f"),
    "matrix product": (lambda self, x, h: h @ h, "a matrix product is not .* declare a map"),
    "index": (lambda self, x, h: h[0], "a part of a vector is not .* equations are of whole"),
    "length": (lambda self, x, h: len(h) * h, "a part of a vector is not"),
    "unpacking": (lambda self, x, h: (lambda a, b: a)(*h), "a part of a vector is not"),
    "Python's max": (lambda self, x, h: max(h, self.p), r"onegate.maximum\(f, h\)"),
    "less than": (lambda self, x, h: h < 0, "a branch on values is not .* mix by a gate"),
    "greater or equal": (
        lambda self, x, h: h >= self.p,
        "a branch on values is not .* mix by a gate",
    ),
    "branch on a value": (
        lambda self, x, h: h if h else self.W[h, x],
        "a branch on values is not .* mix by a gate",
    ),
    "rounding": (lambda self, x, h: round(h), "type Value doesn't define __round__"),
    "torch function": (lambda self, x, h: torch.sin(h), "unknown operation torch 'sin'"),
    "numpy function": (lambda self, x, h: np.sin(h), "unknown operation numpy 'sin'"),
    "numpy's tanh": (lambda self, x, h: np.tanh(h), "numpy's tanh .* use onegate.tanh"),
    "torch's tanh": (lambda self, x, h: torch.tanh(h), "torch's tanh .* use onegate.tanh"),
    "math function": (lambda self, x, h: h * math.exp(h), "Python's math.* onegate's functions"),
    "method of a tensor": (lambda self, x, h: h.exp(), r"write onegate.exp\(h\), not h.exp\(\)"),
    "another method of a tensor": (
        lambda self, x, h: h.roll(1),
        "a value has no roll: it is a whole vector",
    ),
    "map that is called": (lambda self, x, h: self.W(h, x), r"W is applied in brackets, W\[h, x\]"),
    "division by zero": (lambda self, x, h: self.W[h, x] / 0, "a division by 0"),
    "infinity": (lambda self, x, h: h * float("inf"), "inf is not a value"),
    "a tensor": (lambda self, x, h: h + torch.ones(2), "Tensor is not a value"),
    "a tensor in front": (
        lambda self, x, h: torch.ones(2) + h,
        r"Tensor is not a value: .* Vector\(\)",
    ),
    "an array": (lambda self, x, h: h * np.ones(2), r"ndarray is not a value: .* Vector\(\)"),
    "torch's cat": (lambda self, x, h: self.W[torch.cat([h, x])], r"takes all it reads, self.W"),
    "a string": (lambda self, x, h: h + "one", "str is not a value"),
    "a truth value": (lambda self, x, h: h + True, "True, False and comparisons are not"),
    "equality": (lambda self, x, h: h * (h == 1), "True, False and comparisons are not"),
    "two operands of a function of one": (lambda self, x, h: tanh(h, h), "takes 1 operand, got 2"),
    "three operands of a function of two": (
        lambda self, x, h: onegate.maximum(h, self.p, 0),
        "maximum takes 2 operands, got 3",
    ),
    "map of a number": (lambda self, x, h: self.W[h, 1.0], "W maps vectors, got the number 1.0"),
    "map of nothing": (lambda self, x, h: self.W[()] + h, r"W\[\(\)\] reads nothing"),
    "map applied in two brackets": (
        lambda self, x, h: self.W[h][x],
        r"a map takes all that it reads at once: write self.W\[h, x\]",
    ),
    "map of a list": (lambda self, x, h: self.W[[h, x]], r"not a list of them: write self.W\[h, x"),
    "map declared in step": (
        lambda self, x, h: Affine()[h, x],
        r"declare it in the class, W = Aff",
    ),
    "parameter without self": (lambda self, x, h: p * h, "'p' is not defined; write self.p"),  # type: ignore[name-defined]  # noqa: F821
    "map applied twice": (
        lambda self, x, h: self.W[h, x] * self.W[x],
        "W is applied to two different sets of operands; declare two maps",
    ),
    "unknown parameter": (lambda self, x, h: self.U[h], r"no attribute 'U'; .* U = Affine\(\)"),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_names_unit_and_equation(name: str) -> None:
    step, message = MISUSE[name]
    with pytest.raises(UnitError) as caught:
        trace(unit(step), 3, 2)
    said = str(caught.value).partition("\n")[0]  # the line of the equation holds `message`, too
    assert re.search(message, said)
    assert said.startswith("Sample: ")
    first = step.__code__.co_firstlineno
    with open(__file__, encoding="utf-8") as source:  # noqa: PTH123
        lines = source.read().splitlines()
    assert str(caught.value).endswith(f"\n  in: {lines[first - 1].strip()}")


def test_numbers_of_numpy_are_numbers() -> None:
    for number in (np.float32(0.5), np.float64(0.5)):
        front = trace(unit(lambda self, x, h, n=number: n * h), 3, 2)
        behind = trace(unit(lambda self, x, h, n=number: h * n - n), 3, 2)
        assert [n.number for n in (*front.nodes, *behind.nodes) if n.op == "constant"] == [0.5] * 2


class TestDefinition:
    """Mistakes that are told when a class is defined, registered or not."""

    def test_register_without_a_name(self) -> None:
        with pytest.raises(UnitError, match=r"write @onegate.register\('a_name'\) over class MGU"):
            register(MGU)  # type: ignore[arg-type]

    def test_a_class_that_is_no_unit(self) -> None:
        with pytest.raises(UnitError, match=r"is no unit: write class Plain\(onegate.Unit\)"):
            register("plain")(type("Plain", (), {}))

    def test_without_step(self) -> None:
        with pytest.raises(UnitError, match=r"Idle has no equations: write step\(self, x, h\)"):
            type("Idle", (Unit,), {"W": Affine()})

    def test_a_state_named_x(self) -> None:
        with pytest.raises(UnitError, match="x is the input"):
            unit(lambda self, x: x, states=("x",))

    def test_a_state_before_the_input(self) -> None:
        with pytest.raises(UnitError, match=r"h is a state; write step\(self, x, h\)"):
            unit(lambda self, h, x: tanh(self.W[h, x]))

    def test_two_states_of_one_name(self) -> None:
        with pytest.raises(UnitError, match="each has its own name"):
            unit(lambda self, x, a, b: (a, b), states=("h", "h"))

    def test_states_that_are_a_string(self) -> None:
        with pytest.raises(UnitError, match="states is 'h', expected a tuple of names"):
            unit(lambda self, x, h: h, states="h")

    def test_a_map_that_is_never_used(self) -> None:
        with pytest.raises(UnitError, match="Sample: U is declared and the new states do not"):
            unit(lambda self, x, h: tanh(self.W[h, x]), U=Affine())

    def test_a_map_that_waits_for_an_option(self) -> None:
        class Optional(Unit):
            U, W = Affine(), Affine()
            deep: bool = False

            def step(self, x: Any, h: Any) -> Any:
                return tanh(self.W[h, tanh(self.U[h])] if self.deep else self.W[h, x])

        assert set(trace(Optional(deep=True), 3, 2).parameters) == {
            "U.U",
            "U.b",
            "W.U",
            "W.U_2",
            "W.b",
        }

    def test_an_option_without_a_type(self) -> None:
        with pytest.raises(UnitError, match=r"width = 3 is no option .* write width: int = 3"):
            unit(lambda self, x, h: h, width=3)

    def test_an_option_of_a_base_without_its_type(self) -> None:
        class Wide(Unit):
            W = Affine()
            factor: float = 0.5

            def step(self, x: Any, h: Any) -> Any:
                return self.factor * self.W[h, x]

        with pytest.raises(UnitError, match=r"factor = 2.0 is no option .* factor: float = 2.0"):
            type("Wider", (Wide,), {"factor": 2.0})
        assert (
            type("Wider", (Wide,), {"factor": 2.0, "__annotations__": {"factor": "float"}})().factor
            == 2.0
        )
        assert type("Same", (Wide,), {})() != Wide()
        assert type("Same", (Wide,), {})(factor=3.0).factor == 3.0

    def test_a_class_in_the_place_of_a_map(self) -> None:
        with pytest.raises(UnitError, match=r"Sample: write W = Affine\(\), not W = Affine"):
            unit(lambda self, x, h: tanh(self.W[h, x]), W=Affine)

    def test_a_map_declared_in_a_method(self) -> None:
        def start(self: Any) -> None:
            self.W = Affine()

        with pytest.raises(UnitError, match=r"Sample: declare W = Affine\(\) in the class"):
            unit(lambda self, x, h: tanh(self.W[h, x]), __init__=start)

    def test_a_state_that_is_not_named(self) -> None:
        with pytest.raises(UnitError, match=r"named in the class: states = \('h', 'c'\)"):
            unit(lambda self, x, h, c: (tanh(self.W[h, x]), c))

    def test_an_option_without_a_default(self) -> None:
        class Open(Unit):
            W = Affine()
            factor: float

            def step(self, x: Any, h: Any) -> Any:
                return self.factor * self.W[h, x]

        assert get(Open, factor=2.0) == Open(2.0)
        with pytest.raises(UnitError, match=r"Open: factor has no default: give factor=\.\.\."):
            get(Open)
        with pytest.raises(UnitError, match="Open: a registered unit has a default for each"):
            register("open")(Open)

    @pytest.mark.parametrize("name", [None, "", "my unit"])
    def test_what_is_no_name(self, name: Any) -> None:
        with pytest.raises(UnitError, match="a unit's name is an identifier such as 'mgu'"):
            register(name)

    def test_an_object_in_the_place_of_its_class(self) -> None:
        with pytest.raises(UnitError, match=r"MGU\(\) is an object: register its class MGU"):
            register("object")(MGU())  # type: ignore[type-var]

    def test_a_list_of_states(self) -> None:
        with pytest.raises(UnitError, match="step returns a list; return the states as a tuple"):
            unit(lambda self, x, h, c: [h, c], states=("h", "c"))

    def test_a_class_that_is_defined_again_takes_the_place_of_the_first(self) -> None:
        def cell(factor: float) -> type[Unit]:
            class Mine(Unit):
                def step(self, x: Any, h: Any) -> Any:
                    return factor * h

            return register("defined_again")(Mine)

        try:
            cell(0.25)
            second = cell(0.5)
            assert type(UNITS["defined_again"]) is second
        finally:
            UNITS.pop("defined_again", None)


def test_a_unit_does_not_change() -> None:
    for made, name in ((UNITS["mgu"], "states"), (UNITS["lstm"], "note"), (UNITS["scrn"], "alpha")):
        with pytest.raises(FrozenInstanceError):
            setattr(made, name, 1)
        with pytest.raises(FrozenInstanceError):
            delattr(made, name)


def test_a_unit_without_values_says_how_to_get_them() -> None:
    with pytest.raises(UnitError, match=r"mgu: W_f has no values here; make a layer"):
        UNITS["mgu"].step(torch.zeros(1, 3), torch.zeros(1, 2))
    with pytest.raises(NotImplementedError, match=r"Unit has no step"):
        Unit().step(torch.zeros(1))


def test_fit_is_a_map_only_where_sizes_differ() -> None:
    fitted = unit(lambda self, x, h: self.fit[x] + h, fit=Fit())
    same: Graph = trace(fitted, 2, 2)
    assert same.parameters == {}
    other = trace(fitted, 3, 2)
    assert other.parameters == {"fit.W": (2, 3)}
    x, h, W = torch.randn(4, 3), torch.randn(4, 2), torch.randn(2, 3)
    torch.testing.assert_close(fitted.bind(same, {}).step(h, h), h + h)
    torch.testing.assert_close(fitted.bind(other, {"fit.W": W}).step(x, h), x @ W.T + h)


def test_functions_compute_on_tensors() -> None:
    v = torch.tensor([-2.0, 0.0, 3.0])
    torch.testing.assert_close(sigmoid(v), 1 / (1 + (-v).exp()))
    torch.testing.assert_close(tanh(v), v.tanh())
    torch.testing.assert_close(relu(v), v.clamp(min=0))
    assert identity(v) is v


def test_a_value_shows_what_it_is() -> None:
    graph = trace(UNITS["mgu"], 3, 2)
    assert [repr(n) for n in graph.nodes[:4]] == [
        "<x: 3>",
        "<h: 2>",
        "<W_f: 2>",
        "<sigmoid(W_f): 2>",
    ]
