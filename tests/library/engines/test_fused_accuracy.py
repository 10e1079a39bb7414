"""The engine's own sigmoid, tanh and relu, in units in the last place over the whole range.

sigmoid and tanh are within 3 units everywhere, but for sigmoid where it is smaller than the dtype's
least normal number: there it stays at about that number, where torch goes on down to 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from onegate.engines.base import Direction
from onegate.engines.cpu import operator as fused
from onegate.language import Unit, relu, sigmoid, tanh
from onegate.tracing import trace

Array = npt.NDArray[Any]
DTYPES: dict[str, Any] = {"float32": np.float32, "float64": np.float64}
BOUND = 3.0  # units in the last place
RANGE = {"float32": 87.0, "float64": 708.0}  # beyond, exp(-x) is not a normal number


class Sigmoid(Unit):
    def step(self, x: Any, h: Any) -> Any:
        return sigmoid(x)


class Tanh(Unit):
    def step(self, x: Any, h: Any) -> Any:
        return tanh(x)


class Relu(Unit):
    def step(self, x: Any, h: Any) -> Any:
        return relu(x)


# In more digits than float64 has, where the machine has them.
UNITS: dict[str, tuple[Unit, Callable[[Array], Array]]] = {
    "sigmoid": (Sigmoid(), lambda x: 1 / (1 + np.exp(-x))),
    "tanh": (Tanh(), np.tanh),
}


def engine(unit: Unit, x: Array) -> Array:
    row = torch.from_numpy(x)[None, None]
    graph = trace(unit, len(x), len(x))
    out, _ = fused.run(graph, row, [Direction((torch.zeros_like(row[0]),), {})], None)
    found: Array = out[0, 0].numpy()
    return found


def points(dtype: str) -> Array:
    """All magnitudes down to the least subnormal number, and all of the range evenly."""
    kind = DTYPES[dtype]
    least, most = np.log10(float(np.finfo(kind).smallest_subnormal)), RANGE[dtype]
    small = np.logspace(least, 0, 20_001)
    even = np.concatenate([np.linspace(-most, most, 60_001), np.linspace(-25, 25, 60_001)])
    return np.unique(np.concatenate([small, -small, even]).astype(kind))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNITS)
def test_units_in_the_last_place(name: str, dtype: str) -> None:
    unit, formula = UNITS[name]
    x = points(dtype)
    exact = formula(x.astype(np.longdouble))
    unit_in_last_place = np.spacing(np.abs(exact).astype(DTYPES[dtype])).astype(np.longdouble)
    error = np.abs(engine(unit, x) - exact) / unit_in_last_place
    worst = int(error.argmax())
    assert error[worst] < BOUND, f"{name}({x[worst]}) is off by {error[worst]:.2f} units"


@pytest.mark.parametrize("dtype", DTYPES)
def test_beyond_the_range(dtype: str) -> None:
    kind = DTYPES[dtype]
    info = np.finfo(kind)
    x = np.array([RANGE[dtype], 2 * RANGE[dtype], info.max, np.inf], kind)
    assert (engine(Sigmoid(), x) == 1).all()
    low = engine(Sigmoid(), -x)
    assert (low >= 0).all()
    assert (low < 2 * info.tiny).all()
    assert (engine(Tanh(), x) == 1).all()
    assert (engine(Tanh(), -x) == -1).all()
    assert (engine(Relu(), x) == x).all()
    assert (engine(Relu(), -x) == 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_exact_values(dtype: str) -> None:
    kind = DTYPES[dtype]
    zeros = np.array([0.0, -0.0], kind)
    assert (engine(Sigmoid(), zeros) == 0.5).all()
    assert (engine(Tanh(), zeros) == 0).all()
    assert (engine(Relu(), zeros) == 0).all()
    least = np.finfo(kind).smallest_subnormal
    tiny = np.array([least, -least, np.finfo(kind).tiny], kind)
    assert (engine(Tanh(), tiny) == tiny).all()
    assert (engine(Relu(), tiny) == np.maximum(tiny, 0)).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_passes_through(dtype: str) -> None:
    """And through its own element only."""
    for width in (1, 7, 8, 33):
        x = np.ones(width, DTYPES[dtype])
        x[-1] = np.nan
        for unit in (Sigmoid(), Tanh(), Relu()):
            found = engine(unit, x)
            assert np.isnan(found[-1])
            assert np.isfinite(found[:-1]).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNITS)
def test_the_place_of_an_element_does_not_matter(name: str, dtype: str) -> None:
    """The bits are the same in a whole vector and in the rest of one."""
    unit, _ = UNITS[name]
    x = np.linspace(-6, 6, 67).astype(DTYPES[dtype])
    whole = engine(unit, x)
    for width in (1, 2, 3, 5, 7, 15, 17):
        assert (engine(unit, x[-width:].copy()) == whole[-width:]).all()
        assert (engine(unit, x[:width].copy()) == whole[:width]).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNITS)
def test_it_never_falls(name: str, dtype: str) -> None:
    """Monotone but for rounding: nowhere two units below a point to its left."""
    unit, _ = UNITS[name]
    found = engine(unit, points(dtype)).astype(np.longdouble)
    highest = np.maximum.accumulate(found)
    unit_in_last_place = np.spacing(np.abs(found).astype(DTYPES[dtype]))
    assert (highest - found <= 2 * BOUND * unit_in_last_place).all()
    assert (np.abs(found) <= 1).all()
