"""Layers and cells on the fused engine give what they give on the reference engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import onegate
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
