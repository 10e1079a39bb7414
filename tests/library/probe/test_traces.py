"""Traces against runs written by hand in NumPy, and against the reference engine to the bit."""

from __future__ import annotations

from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import onegate
from onegate.language import Affine, Unit, sigmoid, tanh
from onegate.probe import Pass, named_values, record
from tests.library.comparing import X_ALONE
from tests.library.random_units import Sketch, sketches

Array = NDArray[np.float64]
T, B, D, N = 9, 4, 3, 5


def sigma(v: Array) -> Array:
    return 1 / (1 + np.exp(-v))


def mgu(p: dict[str, Array], x: Array) -> dict[str, list[Array]]:
    h = np.zeros((B, N))
    seen: dict[str, list[Array]] = {"f": [], "candidate": [], "h": []}
    for x_t in x:
        f = sigma(h @ p["f.U"].T + x_t @ p["f.W"].T + p["f.b"])
        candidate = np.tanh((f * h) @ p["h.U"].T + x_t @ p["h.W"].T + p["h.b"])
        h = (1 - f) * h + f * candidate
        for name, value in (("f", f), ("candidate", candidate), ("h", h)):
            seen[name].append(value)
    return seen


def gru(p: dict[str, Array], x: Array) -> dict[str, list[Array]]:
    h = np.zeros((B, N))
    seen: dict[str, list[Array]] = {"z": [], "r": [], "candidate": [], "h": []}
    for x_t in x:
        z = sigma(h @ p["z.U"].T + x_t @ p["z.W"].T + p["z.b"])
        r = sigma(h @ p["r.U"].T + x_t @ p["r.W"].T + p["r.b"])
        candidate = np.tanh((r * h) @ p["h.U"].T + x_t @ p["h.W"].T + p["h.b"])
        h = (1 - z) * h + z * candidate
        for name, value in (("z", z), ("r", r), ("candidate", candidate), ("h", h)):
            seen[name].append(value)
    return seen


def lstm(p: dict[str, Array], x: Array) -> dict[str, list[Array]]:
    h, c = np.zeros((B, N)), np.zeros((B, N))
    names = ("f", "i", "o", "candidate", "c", "tanh(cₜ)", "h")
    seen: dict[str, list[Array]] = {name: [] for name in names}
    for x_t in x:
        f, i, o = (
            sigma(h @ p[f"{g}.U"].T + x_t @ p[f"{g}.W"].T + p[f"{g}.b"]) for g in ("f", "i", "o")
        )
        candidate = np.tanh(h @ p["c.U"].T + x_t @ p["c.W"].T + p["c.b"])
        c = f * c + i * candidate
        h = o * np.tanh(c)
        for name, value in zip(names, (f, i, o, candidate, c, np.tanh(c), h), strict=True):
            seen[name].append(value)
    return seen


def layer_of(unit: str | Unit, **options: Any) -> onegate.Recurrent:
    return onegate.Recurrent(
        unit, D, N, dtype=torch.float64, engine="reference", init=("normal", 0.8), **options
    )


def sequences() -> torch.Tensor:
    return torch.randn(T, B, D, dtype=torch.float64)


@pytest.mark.parametrize("by_hand", [mgu, gru, lstm])
def test_every_value_equals_a_run_by_hand(by_hand: Any) -> None:
    layer, x = layer_of(by_hand.__name__), sequences()
    parameters = {
        name.removeprefix("l0."): p.detach().numpy() for name, p in layer.named_parameters()
    }
    expected = by_hand(parameters, x.numpy())
    found = record(layer, x)["l0"]
    assert list(found) == list(expected)
    for name, steps in expected.items():
        np.testing.assert_allclose(
            found[name].detach().numpy(), np.stack(steps), rtol=1e-12, atol=1e-13, err_msg=name
        )


@pytest.mark.parametrize("unit", X_ALONE)
def test_states_are_the_reference_engines_to_the_bit(unit: str) -> None:
    """Two layers in both directions, sequences of different lengths, states given."""
    layer = layer_of(unit, num_layers=2, bidirectional=True)
    x, lengths = sequences(), [T, 2, 1, 6]
    sizes = layer.unit.state_sizes(N)
    states = tuple(torch.randn(4, B, size, dtype=torch.float64) for size in sizes.values())
    h_0 = states[0] if len(states) == 1 else states
    out, last = layer(x, h_0, lengths=lengths)
    found = record(layer, x, h_0, lengths)
    assert list(found) == ["l0", "l0_reverse", "l1", "l1_reverse"]
    assert torch.equal(torch.cat((found["l1"]["h"], found["l1_reverse"]["h"]), -1), out)
    assert torch.equal(
        found["l1"].input, torch.cat((found["l0"]["h"], found["l0_reverse"]["h"]), -1)
    )
    ends = torch.tensor(lengths) - 1
    lasts = (last,) if isinstance(last, torch.Tensor) else last
    for number, one in enumerate(found.values()):
        for state, expected in zip(sizes, lasts, strict=True):
            at = torch.zeros_like(ends) if one.backward else ends
            assert torch.equal(one[state][at, torch.arange(B)], expected[number])


@pytest.mark.parametrize("unit", X_ALONE)
def test_each_step_follows_from_the_state_before_it(unit: str) -> None:
    """Also in the backward direction, for rows of different lengths; and what is kept adds up."""
    layer, x, lengths = layer_of(unit, bidirectional=True), sequences(), [T, 3, 1, 6]
    for one in record(layer, x, lengths=lengths).values():
        bound = one.graph.unit.bind(one.graph, one.parameters)
        before = [one.before(state) for state in one.graph.unit.states]
        new = bound.step(one.input, *before)
        for state, value in zip(
            one.graph.unit.states, new if isinstance(new, tuple) else (new,), strict=True
        ):
            expected = torch.where(one.inside.unsqueeze(-1), value, 0.0)
            torch.testing.assert_close(one[state], expected, rtol=1e-10, atol=1e-10)


def test_one_step_at_a_time_gives_the_same() -> None:
    """Batch first, unbatched and time-major inputs are the same sequences."""
    x = sequences()
    plain = layer_of("gru")
    first = layer_of("gru", batch_first=True)
    first.load_state_dict(plain.state_dict())
    whole = record(plain, x)["l0"]["z"]
    assert torch.equal(record(first, x.transpose(0, 1))["l0"]["z"], whole)
    torch.testing.assert_close(record(plain, x[:, 2])["l0"]["z"], whole[:, 2:3])


SHARES = [
    ("mgu", "h", lambda p: 1 - p["f"]),
    ("gru", "h", lambda p: 1 - p["z"]),
    ("gru_cho", "h", lambda p: p["z"]),
    ("lstm", "c", lambda p: p["f"]),
    ("lstm_cifg", "c", lambda p: 1 - p["i"]),
    ("lstm_no_forget", "c", lambda p: torch.ones_like(p["c"])),
    ("scrn", "s", lambda p: torch.full_like(p["s"], 0.95)),
    ("mingru", "h", lambda p: 1 - p["z"]),
    ("mgu3", "h", lambda p: 1 - p["f"]),
]


@pytest.mark.parametrize(("unit", "state", "share"), SHARES, ids=[s[0] for s in SHARES])
def test_what_a_step_keeps(unit: str, state: str, share: Any) -> None:
    found = record(layer_of(unit), sequences())["l0"]
    assert list(found.kept) == [state]
    torch.testing.assert_close(found.kept[state], share(found))


@pytest.mark.parametrize("unit", ["simple", "irnn"])
def test_a_state_behind_a_matrix_keeps_nothing(unit: str) -> None:
    assert record(layer_of(unit), sequences())["l0"].kept == {}


class Leaky(Unit):
    """A user's own, with a gate that has no name."""

    rate: float = 0.5
    W_g = Affine()
    W_h = Affine()

    def step(self, x: Any, h: Any) -> Any:
        move = tanh(self.W_h[h, x])
        return h + self.rate * sigmoid(self.W_g[x]) * (move - h)


def test_a_users_own_unit() -> None:
    layer, x = layer_of(Leaky(rate=0.3)), sequences()
    found = record(layer, x)["l0"]
    unnamed = "\N{GREEK SMALL LETTER SIGMA}(W_g xₜ + b_g)"
    assert list(found) == ["move", unnamed, "h"]
    gate = found[unnamed]
    torch.testing.assert_close(found.kept["h"], 1 - 0.3 * gate)
    h = found.before("h")
    torch.testing.assert_close(found["h"], h + 0.3 * gate * (found["move"] - h))


@hypothesis.settings(max_examples=60)
@hypothesis.given(sketches())
def test_random_units(sketch: Sketch) -> None:
    """Every state is the reference engine's; what is not named has an expression."""
    torch.manual_seed(0)
    hypothesis.assume(sketch.graph().parameters)  # a layer learns something
    unit, sizes = sketch.unit, (sketch.input_size, sketch.hidden_size)
    layer = onegate.Recurrent(unit, *sizes, dtype=torch.float64, engine="reference")
    x = 0.5 * torch.randn(3, 2, sketch.input_size, dtype=torch.float64)
    out, last = layer(x)
    found = record(layer, x)["l0"]
    assert torch.equal(found[unit.states[0]], out)
    for state, value in zip(unit.states, last if isinstance(last, tuple) else (last,), strict=True):
        assert torch.equal(found[state][-1], value[0])
    for state, share in found.kept.items():
        assert share.shape == found[state].shape
    assert len(found) == len(named_values(found.graph)) >= len(unit.states)


def test_dropout_is_off_and_the_layer_stays_as_it_was() -> None:
    layer, x = layer_of("mgu", num_layers=2, dropout=0.5), sequences()
    first, second = record(layer, x), record(layer, x)
    assert torch.equal(first["l1"]["h"], second["l1"]["h"])
    modes = [layer.training]
    record(layer.eval(), x)
    modes.append(layer.training)
    assert modes == [True, False]
    assert str(layer.engine_report()) == "none: the layer has not run yet"
    layer(x)
    assert layer.engine_report().name == "reference"


def test_the_layer_runs_by_its_engine_again_after_an_error() -> None:
    layer = layer_of("mgu")
    with pytest.raises(ValueError, match="Expected 3, got 4"):
        record(layer, torch.zeros(T, B, D + 1, dtype=torch.float64))
    assert layer._stand_in is None


def test_gradients_flow() -> None:
    layer, x = layer_of("mgu"), sequences().requires_grad_()
    (gradient,) = torch.autograd.grad(record(layer, x)["l0"]["f"].sum(), x)
    assert gradient.abs().sum() > 0


def test_unknown_names_and_packed_sequences_are_refused() -> None:
    layer, x = layer_of("mgu"), sequences()
    found: Pass = record(layer, x)["l0"]
    with pytest.raises(KeyError, match="mgu has no value 'z'; it has f, candidate, h"):
        found["z"]
    packed = torch.nn.utils.rnn.pack_sequence([x[:, 0]])
    with pytest.raises(TypeError, match=r"PackedSequence, expected a torch\.Tensor.*lengths="):
        record(layer, packed)  # type: ignore[arg-type]
