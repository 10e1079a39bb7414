"""Layers and cells on the fused engine give what they give on the reference engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import onegate
from onegate.engines.cpu import stacked
from onegate.nn.layers import Recurrent
from onegate.units import UNITS
from tests.library.comparing import X_ALONE, assert_same, with_gradients
from tests.library.engines.poison import poison

T, B, D, N = 6, 4, 5, 9
LENGTHS = [4, 6, 1, 3]


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    poison(monkeypatch)


def compare(
    name: str, call: Callable[..., Any], inputs: list[Tensor], input_size: int = D, **options: Any
) -> None:
    """call(layer, *inputs) -> outputs: the same, with all gradients, on both engines."""
    found = []
    for engine in ("fused", "reference"):
        torch.manual_seed(3)
        if name == "scrn":
            options["context_size"] = 3
        dtype = inputs[0].dtype
        layer = Recurrent(name, input_size, N, engine=engine, dtype=dtype, **options)
        for key, parameter in layer.named_parameters():
            if key.endswith("_0"):
                nn.init.normal_(parameter)
        parameters = {f"gradient of {key}": p for key, p in layer.named_parameters()}
        found.append(with_gradients(lambda *v, run=layer: call(run, *v), inputs, parameters))
        assert layer.engine_report().name == engine
    assert_same(*found)


def states_of(name: str, layers: int, directions: int, *batch: int) -> list[Tensor]:
    sizes = UNITS[name].state_sizes(N)
    if name == "scrn":
        sizes["s"] = 3
    return [
        torch.randn(layers * directions, *batch, n, dtype=torch.float64) for n in sizes.values()
    ]


def with_states(layer: Any, x: Any, *states: Tensor, **how: Any) -> Any:
    return layer(x, states[0] if len(states) == 1 else states, **how)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("name", X_ALONE)
def test_two_layers_with_states_and_lengths(name: str, bidirectional: bool) -> None:
    x = torch.randn(T, B, D, dtype=torch.float64)
    compare(
        name,
        lambda layer, x, *states: with_states(layer, x, *states, lengths=LENGTHS),
        [x, *states_of(name, 2, 1 + bidirectional, B)],
        num_layers=2,
        bidirectional=bidirectional,
    )


@pytest.mark.parametrize("name", ["mgu", "lstm", "scrn"])
class TestCalls:
    """The ways in which torch.nn.GRU may be called."""

    def test_batch_first(self, name: str) -> None:
        x = torch.randn(B, T, D, dtype=torch.float64)
        compare(name, lambda layer, x: layer(x), [x], batch_first=True, bidirectional=True)

    def test_batch_first_with_lengths_and_wide_inputs(self, name: str) -> None:
        x = torch.randn(B, T, 50, dtype=torch.float64)
        compare(name, lambda layer, x: layer(x, lengths=LENGTHS), [x], 50, batch_first=True)

    def test_one_sequence(self, name: str) -> None:
        x = torch.randn(T, D, dtype=torch.float64)
        states = states_of(name, 2, 2)
        compare(name, with_states, [x, *states], num_layers=2, bidirectional=True)

    @pytest.mark.parametrize("enforce_sorted", [True, False])
    def test_packed(self, name: str, enforce_sorted: bool) -> None:
        lengths = sorted(LENGTHS, reverse=True) if enforce_sorted else LENGTHS

        def call(layer: Any, x: Tensor, *states: Tensor) -> Any:
            packed = pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=enforce_sorted)
            out, last = with_states(layer, packed, *states)
            return pad_packed_sequence(out)[0], last

        x = torch.randn(T, B, D, dtype=torch.float64)
        states = states_of(name, 2, 2, B)
        compare(name, call, [x, *states], num_layers=2, bidirectional=True)

    def test_without_biases_in_float32(self, name: str) -> None:
        compare(name, lambda layer, x: layer(x), [torch.randn(T, B, D)], bias=False, num_layers=2)

    def test_learned_initial_states(self, name: str) -> None:
        x = torch.randn(T, B, D, dtype=torch.float64)
        compare(
            name,
            lambda layer, x: layer(x, lengths=LENGTHS),
            [x],
            learn_initial_state=True,
            bidirectional=True,
            num_layers=2,
        )

    def test_dropout(self, name: str) -> None:
        def call(layer: Any, x: Tensor) -> Any:
            torch.manual_seed(5)
            return layer(x)

        x = torch.randn(T, B, D, dtype=torch.float64)
        compare(name, call, [x], num_layers=3, dropout=0.4)

    def test_dropout_between_layers_with_the_batch_first(self, name: str) -> None:
        def call(layer: Any, x: Tensor) -> Any:
            torch.manual_seed(5)
            return layer(x, lengths=LENGTHS)

        x = torch.randn(B, T, D, dtype=torch.float64)
        compare(name, call, [x], num_layers=3, dropout=0.4, batch_first=True)

    def test_the_last_state_alone(self, name: str) -> None:
        """As a classifier uses it: the output's gradient does not exist."""
        x = torch.randn(T, B, D, dtype=torch.float64)
        compare(name, lambda layer, x: layer(x, lengths=LENGTHS)[1], [x], bidirectional=True)

    def test_outputs_that_are_used_in_part(self, name: str) -> None:
        x = torch.randn(T, B, D, dtype=torch.float64)
        compare(name, lambda layer, x: layer(x)[0][-1, :, 2:5], [x], num_layers=2)


@pytest.mark.parametrize("name", X_ALONE)
def test_cells(name: str) -> None:
    found = []
    inputs = [torch.randn(B, D, dtype=torch.float64), *(s[0] for s in states_of(name, 1, 1, B))]
    options: Any = {"context_size": 3} if name == "scrn" else {}
    for engine in ("fused", "reference"):
        torch.manual_seed(3)
        cell = onegate.Cell(name, D, N, dtype=torch.float64, engine=engine, **options)
        parameters = {f"gradient of {key}": p for key, p in cell.named_parameters()}
        found.append(with_gradients(lambda *v, run=cell: with_states(run, *v), inputs, parameters))
        assert cell.engine_report().name == engine
    assert_same(*found)


@pytest.mark.parametrize("name", ["mgu", "lstm", "gru_reset_after"])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("more", [{}, {"bidirectional": True}, {"batch_first": True}])
def test_a_single_step(name: str, rows: int, more: dict[str, Any]) -> None:
    shape = (rows, 1, D) if "batch_first" in more else (1, rows, D)
    x = torch.randn(shape, dtype=torch.float64)
    states = states_of(name, 1, 1 + ("bidirectional" in more), rows)
    compare(name, lambda layer, x: layer(x), [x], **more)
    compare(name, with_states, [x, *states], **more)


def test_a_batch_with_more_zeros_than_are_kept() -> None:
    layer, x = onegate.MGU(D, 64), torch.randn(2, 1200, D)
    assert stacked._MOST_ZEROS < 1200 * 64
    found = [
        with_gradients(call, [x], {"gradient of f.U": layer.get_parameter("l0.f.U")})
        for call in (lambda x: layer(x), lambda x: layer(x, torch.zeros(1, 1200, 64)))
    ]
    assert_same(*found)


def test_training_after_inference_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """The zeros that are kept are made by whoever comes first."""
    monkeypatch.setattr(stacked, "_all_zeros", {})
    layer, x = onegate.MGU(D, N), torch.randn(T, B, D)
    with torch.inference_mode():
        expected = layer(x)[0].clone()
    out = layer(x)[0]
    out.sum().backward()
    assert torch.equal(out, expected)
    assert all(p.grad is not None and not p.grad.is_inference() for p in layer.parameters())


DIRECTLY: dict[str, Callable[[], Any]] = {
    "states": lambda: onegate.MGU(D, N)(torch.randn(T, B, D), torch.zeros(1, B, N)),
    "lengths": lambda: onegate.LSTM(D, N, 2)(torch.randn(T, B, D), lengths=LENGTHS),
    "batch first": lambda: onegate.GRU(D, N, 2, batch_first=True)(torch.randn(B, T, D)),
    "one sequence": lambda: onegate.MGU(D, N, bidirectional=True)(torch.randn(T, D)),
    "a cell": lambda: onegate.LSTMCell(D, N)(torch.randn(B, D)),
    "a cell and one row": lambda: onegate.MGUCell(D, N)(torch.randn(D), torch.zeros(N)),
}


@pytest.mark.parametrize("needed", [True, False])
@pytest.mark.parametrize("case", DIRECTLY)
def test_what_asks_for_little_takes_the_shortest_way(
    case: str, needed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(_: Any) -> Any:
        raise AssertionError("an engine's `run` was asked for")

    monkeypatch.setattr("onegate.nn.layers.runner", other)
    monkeypatch.setattr("onegate.nn.cells.runner", other)
    with torch.set_grad_enabled(needed):
        DIRECTLY[case]()


def test_lengths_between_other_numbers() -> None:
    given = torch.tensor([[n, 99] for n in LENGTHS])[:, 0]
    x = torch.randn(T, B, D, dtype=torch.float64)
    compare("mgu", lambda layer, x: layer(x, lengths=given), [x])


def test_parameters_between_other_numbers_and_new_ones() -> None:
    layer: Any = onegate.MGU(D, N)
    x = torch.randn(T, B, D)
    expected = layer(x)[0]
    u = layer.l0.f.U
    u.data = torch.stack([u.data, torch.zeros(N, N)], -1)[..., 0]
    assert torch.equal(layer(x)[0], expected)
    u.data = u.data.t()
    assert not torch.equal(layer(x)[0], expected)
    out = layer(x)[0]
    u.data = torch.zeros(N, N + 1)
    with pytest.raises(RuntimeError, match="exchanged after the forward pass"):
        out.sum().backward()
    with pytest.raises(ValueError, match="a parameter is \\(9, 10\\)"):
        layer(x)
    layer.l0.f.U = nn.Parameter(torch.zeros(N, N))
    layer(x)[0].sum().backward()
    assert layer.l0.f.U.grad is not None


class Counted(nn.Module):
    calls = 0

    def forward(self, weight: Tensor) -> Tensor:
        self.calls += 1
        return weight.clone()


@pytest.mark.parametrize("low", [False, True])
def test_a_parameter_that_is_computed_is_computed_once(low: bool) -> None:
    """Whichever way is taken: it might be drawn, or iterated, as by spectral_norm."""
    layer: Any = onegate.MGU(D, N)
    counted = Counted()
    parametrize.register_parametrization(layer.l0.h, "U", counted, unsafe=True)
    before = counted.calls
    with torch.autocast("cpu", enabled=low):
        layer(torch.randn(T, B, D))
    assert counted.calls == before + 1


def test_auto_takes_the_fused_engine() -> None:
    layer = onegate.MGU(D, N)
    layer(torch.randn(T, B, D))
    assert layer.engine_report().name == "fused"


def test_a_training_run_is_the_same() -> None:
    """Twenty steps of Adam, where any wrong gradient would lead elsewhere."""
    losses = []
    for engine in ("fused", "reference"):
        torch.manual_seed(1)
        layer = onegate.MGU(D, N, 2, bidirectional=True, engine=engine, dtype=torch.float64)
        optimiser = torch.optim.Adam(layer.parameters(), 0.01)
        x = torch.randn(T, B, D, dtype=torch.float64)
        for _ in range(20):
            loss = (layer(x)[0] - x.mean()).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)
    assert losses[0] < 0.05


@pytest.mark.parametrize("learn_mean", [False, True])
def test_a_unit_that_reads_a_mask_and_gaps(learn_mean: bool) -> None:
    x, mask, gap = (torch.randn(T, B, D, dtype=torch.float64) for _ in range(3))
    inputs = [x, (mask > 0).double(), gap.abs()]

    def call(layer: Any, x: Tensor, mask: Tensor, gap: Tensor) -> Any:
        return layer(x, extra={"mask": mask, "gap": gap}, lengths=[6, 1, 4, 6])

    compare("gru_d", call, inputs, bidirectional=True, learn_mean=learn_mean)
