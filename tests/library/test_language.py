"""The language: what it computes, and a clear error for everything that is not in it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from onegate.language import (
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
from onegate.units import UNITS
from tests.library.sample_unit import unit

# Each step, and what its error must say beside the unit and the line of the equation.
MISUSE: dict[str, tuple[Callable[..., Any], str]] = {
    "input and state of two sizes": (
        lambda self, x, h: tanh(x + h),
        r"'add' needs operands of one size, got 3 \(x\) and 2 \(h\)",
    ),
    "product of two sizes": (lambda self, x, h: self.W[h, x] * x, "'mul' needs operands of one"),
    "division": (lambda self, x, h: self.W[h, x] / 2, "unknown operation; the language has"),
    "division of a number": (lambda self, x, h: 1 / self.W[h, x], "unknown operation"),
    "power": (lambda self, x, h: self.W[h, x] ** 2, "unknown operation"),
    "matrix product": (lambda self, x, h: h @ h, "unknown operation"),
    "index": (lambda self, x, h: h[0], "unknown operation"),
    "less than": (lambda self, x, h: h < 0, "unknown operation"),
    "greater or equal": (lambda self, x, h: h >= self.p, "unknown operation"),
    "branch on a value": (lambda self, x, h: h if h else self.W[h, x], "unknown operation"),
    "absolute value": (lambda self, x, h: abs(h), "unknown operation"),
    "torch function": (lambda self, x, h: torch.exp(h), "unknown operation torch 'exp'"),
    "numpy function": (lambda self, x, h: np.exp(h), "ufunc"),
    "math function": (lambda self, x, h: h * math.exp(h), "unknown operation"),
    "method of a tensor": (lambda self, x, h: h.exp(), "no attribute 'exp'"),
    "a tensor": (lambda self, x, h: h + torch.ones(2), "Tensor is not a value"),
    "a tensor in front": (lambda self, x, h: torch.ones(2) + h, "unknown operation torch 'add'"),
    "a string": (lambda self, x, h: h + "one", "str is not a value"),
    "a truth value": (lambda self, x, h: h + True, "bool is not a value"),
    "map of a number": (lambda self, x, h: self.W[h, 1.0], "W maps vectors, got the number 1.0"),
    "map applied twice": (
        lambda self, x, h: self.W[h, x] * self.W[x],
        "W is applied to two different sets of operands; declare two maps",
    ),
    "unknown parameter": (lambda self, x, h: self.U[h], "no attribute 'U'"),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_names_unit_and_equation(name: str) -> None:
    step, message = MISUSE[name]
    with pytest.raises(UnitError, match=message) as caught:
        trace(unit(step), 3, 2)
    assert str(caught.value).startswith("Sample: ")
    first = step.__code__.co_firstlineno
    with open(__file__, encoding="utf-8") as source:  # noqa: PTH123
        lines = source.read().splitlines()
    assert str(caught.value).endswith(f"\n  in: {lines[first - 1].strip()}")


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
