"""Every unit computes its paper's equations: one step against the formulas of `oracles`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from onegate.language import Graph, Unit
from onegate.tracing import trace
from onegate.units import UNITS, get
from onegate.units.gru import MUT1
from tests.library.units.oracles import ORACLES, Array, Symbols

SIZES = [(1, 1), (3, 5), (5, 3), (7, 7), (2, 17), (1, 2)]
BATCH = 3
# Parameter keys whose symbol in the papers is not "operand_map", such as W_f for f.W.
SYMBOLS = {"B.W": "B", "P.U": "P", "A.W": "A", "R.U": "R", "U_h.U": "U_h", "U_h.b": "b_Uh"}


def symbol(key: str) -> str:
    if "." not in key:
        return key
    name, operand = key.split(".")
    return SYMBOLS.get(key, f"{operand}_{name}")


def values(graph: Graph) -> dict[str, Array]:
    """Parameters, input and states of one graph, at random."""
    random = np.random.default_rng(graph.input_size * 1000 + graph.hidden_size)
    arrays = {key: random.normal(size=shape) for key, shape in graph.parameters.items()}
    for leaf in (graph.input, *graph.states):
        arrays[leaf.name] = random.normal(size=(BATCH, leaf.size or 0))
    return arrays


def step(graph: Graph, arrays: dict[str, Array]) -> tuple[Array, ...]:
    tensors = {key: torch.from_numpy(array) for key, array in arrays.items()}
    leaves = [tensors[leaf.name] for leaf in (graph.input, *graph.states)]
    results = graph.unit.bind(graph, tensors).step(*leaves)
    return tuple(r.numpy() for r in (results if isinstance(results, tuple) else (results,)))


def expected(graph: Graph, arrays: dict[str, Array], **options: Any) -> tuple[Array, ...]:
    """The oracle's step; it must use each of the unit's parameters and no other."""
    p = Symbols({symbol(key): arrays[key] for key in graph.parameters})
    leaves = [arrays[leaf.name] for leaf in (graph.input, *graph.states)]
    results = ORACLES[graph.unit.name](p, *leaves, **options)
    assert p.used == set(p.arrays)
    return results if isinstance(results, tuple) else (results,)


def check(unit: Unit, input_size: int, hidden_size: int, **options: Any) -> None:
    graph = trace(unit, input_size, hidden_size)
    arrays = values(graph)
    for name, ours, theirs in zip(
        unit.states, step(graph, arrays), expected(graph, arrays, **options), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12, err_msg=name)


def test_every_unit_has_an_oracle() -> None:
    assert list(ORACLES) == list(UNITS)


@pytest.mark.parametrize(("input_size", "hidden_size"), SIZES)
@pytest.mark.parametrize("name", UNITS)
def test_step_is_the_papers(name: str, input_size: int, hidden_size: int) -> None:
    check(UNITS[name], input_size, hidden_size)


def test_scrn_takes_a_context_size_and_alpha_of_its_own() -> None:
    unit = get("scrn", context_size=3, alpha=0.7)
    assert unit.state_sizes(5) == {"h": 5, "s": 3}
    check(unit, 2, 5, alpha=0.7)


def test_janet_without_beta_is_its_first_form() -> None:
    check(get("janet", beta=0.0), 3, 4, beta=0.0)
    graph = trace(get("janet", beta=0.0), 3, 4)
    arrays = values(graph)
    p = Symbols({symbol(key): arrays[key] for key in graph.parameters})
    x, h = arrays["x"], arrays["h"]
    f = 1 / (1 + np.exp(-(h @ p.U_f.T + x @ p.W_f.T + p.b_f)))
    candidate = np.tanh(h @ p.U_h.T + x @ p.W_h.T + p.b_h)
    np.testing.assert_allclose(
        step(graph, arrays)[0], f * h + (1 - f) * candidate, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("name", UNITS)
def test_without_biases_a_step_is_one_with_zero_biases(name: str) -> None:
    unit = UNITS[name]
    biased, bare = trace(unit, 3, 5), trace(unit, 3, 5, bias=False)
    arrays = values(biased)
    for key in biased.parameters:
        if key.endswith(".b"):
            arrays[key] = np.zeros_like(arrays[key])
    assert not [key for key in bare.parameters if key.endswith(".b")]
    for ours, theirs in zip(step(bare, arrays), step(biased, arrays), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_mutations_map_x_only_where_it_does_not_fit() -> None:
    assert "x.W" not in trace(MUT1(), 4, 4).parameters
    assert trace(MUT1(), 3, 4).parameters["x.W"] == (4, 3)
    assert "x.b" not in trace(MUT1(), 3, 4).parameters


def test_lstm_np_is_lstm() -> None:
    graph, other = trace(UNITS["lstm_np"], 3, 5), trace(UNITS["lstm"], 3, 5)
    assert graph.parameters == other.parameters
    arrays = values(graph)
    for ours, theirs in zip(step(graph, arrays), step(other, arrays), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_irnn_starts_as_its_paper_says() -> None:
    assert UNITS["irnn"].init == {"U": "identity", "W": ("normal", 0.001), "b": "zeros"}
