"""Every unit computes its paper's equations: one step against the formulas of `oracles`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import onegate
from onegate.language import Graph, Unit
from onegate.tracing import trace
from onegate.units import UNITS, get
from onegate.units.gru import MUT1
from tests.library.units.oracles import ORACLES, Array, Symbols, ligru_layer_norm

SIZES = [(1, 1), (3, 5), (5, 3), (7, 7), (2, 17), (1, 2)]
BATCH = 3
# Parameter keys whose symbol in the papers is not "operand_map", such as W_f for f.W.
SYMBOLS = {
    "B.W": "B", "P.U": "P", "A.W": "A", "R.U": "R", "U_h.b": "b_Uh", "s.U": "U_s_of_p",
    "W.W": "W", "U.U": "U", "L_x.W_low": "L_x_low", "L_h.U_low": "L_h_low",
    "z.W_3": "V_z", "r.W_3": "V_r", "h.W_3": "V_h",
}  # fmt: skip


def symbol(key: str) -> str:
    if "." not in key:
        return key
    name, operand = key.split(".")
    if key not in SYMBOLS and name[:2] in ("U_", "R_", "V_", "L_"):
        return name
    return SYMBOLS.get(key, f"{operand}_{name}")


def values(graph: Graph) -> dict[str, Array]:
    """Parameters, input and states of one graph, at random."""
    random = np.random.default_rng(graph.input_size * 1000 + graph.hidden_size)
    arrays = {key: random.normal(size=shape) for key, shape in graph.parameters.items()}
    for leaf in (*graph.inputs, *graph.states):
        arrays[leaf.name] = random.normal(size=(BATCH, leaf.size or 0))
    return arrays


def step(graph: Graph, arrays: dict[str, Array]) -> tuple[Array, ...]:
    tensors = {key: torch.from_numpy(array) for key, array in arrays.items()}
    leaves = [tensors[leaf.name] for leaf in (*graph.inputs, *graph.states)]
    results = graph.unit.bind(graph, tensors).step(*leaves)
    return tuple(r.numpy() for r in (results if isinstance(results, tuple) else (results,)))


def expected(graph: Graph, arrays: dict[str, Array], **options: Any) -> tuple[Array, ...]:
    """The oracle's step; it must use each of the unit's parameters and no other."""
    p = Symbols({symbol(key): arrays[key] for key in graph.parameters})
    leaves = [arrays[leaf.name] for leaf in (*graph.inputs, *graph.states)]
    oracle = options.pop("oracle", ORACLES[graph.unit.name])
    results = oracle(p, *leaves, **options)
    assert p.used == set(p.arrays)
    return results if isinstance(results, tuple) else (results,)


def check(unit: Unit, input_size: int, hidden_size: int, **options: Any) -> None:
    graph = trace(unit, input_size, hidden_size)
    arrays = values(graph)
    for name, ours, theirs in zip(
        unit.states, step(graph, arrays), expected(graph, arrays, **options), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12, err_msg=name)


T = 3
OTHER_FORMS: list[tuple[Unit, dict[str, Any]]] = [
    (get("slstm", heads=2, exponential_forget=True), {"exponential_forget": True}),
    (get("gru_block", heads=2, projection=3), {}),
    (get("fastgrnn", input_rank=2, recurrent_rank=3), {"low_rank": True}),
    (get("gru_d", learn_mean=True), {"learn_mean": True}),
    (get("ligru", layer_norm=True), {"oracle": ligru_layer_norm}),
]
FORMS = [*((unit, {}) for unit in UNITS.values()), *OTHER_FORMS]


def differences(f: Callable[[], float], array: Array, step: float = 1e-4) -> Array:
    """The gradient of f, which reads `array`, by central differences of sixth order."""
    gradient = np.zeros_like(array)
    for place in np.ndindex(array.shape):
        middle = array[place]
        for k, weight in ((1, 45.0), (2, -9.0), (3, 1.0)):
            array[place] = middle + k * step
            after = f()
            array[place] = middle - k * step
            gradient[place] += weight * (after - f()) / (60 * step)
        array[place] = middle
    return gradient


@pytest.mark.parametrize(("unit", "options"), FORMS, ids=lambda v: getattr(v, "name", ""))
def test_values_and_all_gradients_of_a_layer_are_the_papers(
    unit: Unit, options: dict[str, Any]
) -> None:
    """Three steps on the fused engine, of everything that goes in, against differences."""
    graph = trace(unit, 3, 4)
    arrays = values(graph)
    random = np.random.default_rng(1)
    for leaf in graph.inputs:
        arrays[leaf.name] = random.normal(size=(T, BATCH, leaf.size or 0))
    for leaf in graph.states:  # away from 0, by which some units divide
        arrays[leaf.name] = random.uniform(0.5, 1.5, size=(BATCH, leaf.size or 0))
    weights = [random.normal(size=(T, BATCH, s.size or 0)) for s in graph.states]

    def run() -> list[list[Array]]:
        """All states after each step."""
        states, every = tuple(arrays[s.name] for s in graph.states), []
        for t in range(T):
            leaves = {i.name: arrays[i.name][t] for i in graph.inputs}
            leaves |= dict(zip((s.name for s in graph.states), states, strict=True))
            states = expected(graph, arrays | leaves, **options)
            every.append(list(states))
        return every

    def total() -> float:
        found = zip(*run(), strict=True)
        return sum(float((w * np.stack(v)).sum()) for w, v in zip(weights, found, strict=True))

    layer = onegate.Recurrent(unit, 3, 4, dtype=torch.float64)
    learned = {key: layer.get_parameter(f"l0.{key}") for key in graph.parameters}
    with torch.no_grad():
        for key, parameter in learned.items():
            parameter.copy_(torch.from_numpy(arrays[key]))
    leaves = {
        leaf.name: torch.from_numpy(arrays[leaf.name].copy()).requires_grad_()
        for leaf in (*graph.inputs, *graph.states)
    }
    x, *extra = (leaves[i.name] for i in graph.inputs)
    hx = tuple(leaves[s.name][None] for s in graph.states)
    named = dict(zip(unit.inputs[1:], extra, strict=True)) if extra else None
    _, _, every = layer(x, hx if len(hx) > 1 else hx[0], extra=named, return_states=True)
    every = [every] if isinstance(every, torch.Tensor) else every
    for ours, theirs in zip(every, zip(*run(), strict=True), strict=True):
        np.testing.assert_allclose(ours[0].detach(), np.stack(theirs), rtol=1e-11, atol=1e-12)
    wanted = learned | leaves
    gradients = torch.autograd.grad(
        [v[0] for v in every], list(wanted.values()), [torch.from_numpy(w) for w in weights]
    )
    for name, gradient in zip(wanted, gradients, strict=True):
        np.testing.assert_allclose(
            gradient, differences(total, arrays[name]), rtol=1e-7, atol=1e-8, err_msg=name
        )


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


def test_options_of_units_from_differential_equations() -> None:
    check(get("cornn", dt=0.3, gamma=1.7, epsilon=0.2), 3, 4, dt=0.3, gamma=1.7, epsilon=0.2)
    check(get("lem", dt=0.4), 3, 4, dt=0.4)


def test_slstm_with_an_exponential_forget_gate_and_heads() -> None:
    check(get("slstm", exponential_forget=True), 3, 5, exponential_forget=True)
    check(get("slstm", heads=3), 5, 6)
    assert trace(get("slstm", heads=3), 5, 6).parameters["R_i.U"] == (3, 2, 2)


def test_blocks_and_projection_of_the_block_gru() -> None:
    unit = get("gru_block", heads=2, projection=3)
    check(unit, 5, 8)
    shapes = trace(unit, 5, 8).parameters
    assert shapes["x.W"] == (3, 5)
    assert shapes["p.U"] == (3, 8)
    assert shapes["s.W"] == (8, 3)
    assert shapes["z.U"] == (2, 4, 4)
    assert trace(get("gru_block"), 5, 8).parameters["x.W"] == (8, 5)


def test_fastgrnn_of_low_rank() -> None:
    unit = get("fastgrnn", input_rank=2, recurrent_rank=3)
    check(unit, 5, 7, low_rank=True)
    # Two factors each of W and U, two biases, zeta and nu.
    assert trace(unit, 5, 7).parameter_count() == 2 * (5 + 7) + 3 * (7 + 7) + 4 * 7
    assert UNITS["fastgrnn"].init["nu"] == -4.0


def test_gru_d_with_a_mean_that_is_learned() -> None:
    check(get("gru_d", learn_mean=True), 3, 5, learn_mean=True)
    layer = onegate.GRUD(3, 5, learn_mean=True)
    assert not layer.get_parameter("l0.mean").any()


def test_gru_d_sees_what_is_observed_as_it_is() -> None:
    """Without gaps and with nothing missing it is the GRU of what it reads, mask included."""
    grud = onegate.GRUD(2, 4, dtype=torch.float64)
    with torch.no_grad():
        for name in ("b_x", "d.b"):
            grud.get_parameter(f"l0.{name}").fill_(-1.0)
    x = torch.randn(5, 3, 2, dtype=torch.float64)
    extra = {"mask": torch.ones_like(x), "gap": torch.zeros_like(x)}
    gru = onegate.GRU(4, 4, dtype=torch.float64)
    with torch.no_grad():
        for name in "zrh":
            of_x, of_mask = (grud.get_parameter(f"l0.{name}.{key}") for key in ("W", "W_3"))
            gru.get_parameter(f"l0.{name}.W").copy_(torch.cat((of_x, of_mask), 1))
            for key in "Ub":
                of_gru, of_grud = (m.get_parameter(f"l0.{name}.{key}") for m in (gru, grud))
                of_gru.copy_(of_grud)
    expected = gru(torch.cat([x, extra["mask"]], -1))
    torch.testing.assert_close(grud(x, extra=extra), expected, rtol=1e-12, atol=1e-12)


def test_ligru_with_layer_norm() -> None:
    check(get("ligru", layer_norm=True), 3, 5, oracle=ligru_layer_norm)


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


def is_bias(key: str) -> bool:
    return key.endswith(".b") or ".shift" in key


@pytest.mark.parametrize("name", UNITS)
def test_without_biases_a_step_is_one_with_zero_biases(name: str) -> None:
    unit = UNITS[name]
    biased, bare = trace(unit, 3, 5), trace(unit, 3, 5, bias=False)
    arrays = values(biased)
    for key in biased.parameters:
        if is_bias(key):
            arrays[key] = np.zeros_like(arrays[key])
    assert not [key for key in bare.parameters if is_bias(key)]
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
