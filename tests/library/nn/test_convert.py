"""Layers against torch.nn's own: values and all gradients in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence

import onegate
from tests.library.comparing import assert_same, with_gradients

T, B, D = 6, 4, 3
LENGTHS = [4, 6, 1, 3]

# Ours by torch's order of the gates: maps of the input, maps of the state.
GATES = {
    "rnn_tanh": (["h"], ["h"]),
    "rnn_relu": (["h"], ["h"]),
    "lstm": (["i", "f", "c", "o"], ["i", "f", "c", "o"]),
    "gru": (["r", "z", "h"], ["r", "z", "U_h"]),
}


def make(kind: str, *args: Any, **kwargs: Any) -> Any:
    kwargs.setdefault("dtype", torch.float64)
    if kind.startswith("rnn"):
        return nn.RNN(*args, nonlinearity=kind.removeprefix("rnn_"), **kwargs)
    return {"lstm": nn.LSTM, "gru": nn.GRU}[kind](*args, **kwargs)


def torchs_view(kind: str, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our gradients, stacked as torch's parameters are, under its names.

    Where two biases of torch add up to one of ours the gradient of each is that of the sum.
    """
    inputs, states = GATES[kind]
    stacked = {}
    for place in dict.fromkeys(key.split(".")[0] for key in ours):
        suffix = place.replace("l", "_l", 1)
        for name, maps, part in (
            ("weight_ih", inputs, "W"),
            ("weight_hh", states, "U"),
            ("bias_ih", inputs, "b"),
            ("bias_hh", states, "b"),
        ):
            if f"{place}.{maps[0]}.{part}" in ours:
                stacked[name + suffix] = torch.cat([ours[f"{place}.{m}.{part}"] for m in maps])
    return stacked


def compare(kind: str, module: Any, call: Any, inputs: list[Tensor]) -> None:
    """`call(layer, *inputs)` gives the same by both, with the same gradients."""
    layer = onegate.from_torch(module, engine="reference")
    ours = with_gradients(
        lambda *leaves: call(layer, *leaves), inputs, dict(layer.named_parameters())
    )
    theirs = with_gradients(
        lambda *leaves: call(module, *leaves), inputs, dict(module.named_parameters())
    )
    keys = dict(layer.named_parameters())
    seen = {name: tensor for name, tensor in ours.items() if name not in keys}
    seen |= torchs_view(kind, {key: ours[key] for key in keys})
    assert_same({name: seen[name] for name in theirs}, theirs)
    assert len(seen) == len(theirs)


def randn(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def states(kind: str, *shape: int) -> list[Tensor]:
    return [randn(*shape) for _ in range(2 if kind == "lstm" else 1)]


def hx(given: tuple[Tensor, ...]) -> Any:
    return given[0] if len(given) == 1 else given


@pytest.mark.parametrize("kind", GATES)
class TestAgainstTorch:
    @pytest.mark.parametrize("bias", [True, False])
    @pytest.mark.parametrize("hidden", [1, 5, 17])
    def test_one_layer(self, kind: str, hidden: int, bias: bool) -> None:
        module = make(kind, D, hidden, bias=bias)
        compare(kind, module, lambda m, x: m(x), [randn(T, B, D)])

    def test_stacked_bidirectional_with_initial_states(self, kind: str) -> None:
        module = make(kind, D, 5, num_layers=3, bidirectional=True)
        inputs = [randn(T, B, D), *states(kind, 6, B, 5)]
        compare(kind, module, lambda m, x, *s: m(x, hx(s)), inputs)

    def test_batch_first(self, kind: str) -> None:
        module = make(kind, D, 5, num_layers=2, batch_first=True)
        inputs = [randn(B, T, D), *states(kind, 2, B, 5)]
        compare(kind, module, lambda m, x, *s: m(x, hx(s)), inputs)

    def test_one_sequence_without_a_batch(self, kind: str) -> None:
        module = make(kind, D, 5, bidirectional=True, batch_first=True)
        inputs = [randn(T, D), *states(kind, 2, 5)]
        compare(kind, module, lambda m, x, *s: m(x, hx(s)), inputs)

    @pytest.mark.parametrize("batch_first", [True, False])
    def test_packed_in_any_order(self, kind: str, batch_first: bool) -> None:
        module = make(kind, D, 5, num_layers=2, bidirectional=True, batch_first=batch_first)

        def call(m: Any, x: Tensor, *s: Tensor) -> Any:
            packed = pack_padded_sequence(x, torch.tensor(LENGTHS), enforce_sorted=False)
            out, last = m(packed, hx(s))
            assert torch.equal(out.sorted_indices, packed.sorted_indices)  # type: ignore[arg-type]
            assert torch.equal(out.unsorted_indices, packed.unsorted_indices)  # type: ignore[arg-type]
            assert torch.equal(out.batch_sizes, packed.batch_sizes)
            return out, last

        compare(kind, module, call, [randn(T, B, D), *states(kind, 4, B, 5)])

    def test_packed_in_order(self, kind: str) -> None:
        module = make(kind, D, 5, bidirectional=True)

        def call(m: Any, *rows: Tensor) -> Any:
            out, last = m(pack_sequence(list(rows)))
            assert out.sorted_indices is None
            assert out.unsorted_indices is None
            return out, last

        compare(kind, module, call, [randn(n, D) for n in (6, 4, 4, 1)])

    def test_dropout_and_mode_are_kept(self, kind: str) -> None:
        module = make(kind, D, 5, num_layers=2, dropout=0.25).eval()
        layer = onegate.from_torch(module)
        assert (layer.dropout, layer.training) == (0.25, False)
        assert onegate.to_torch(layer).dropout == 0.25
        compare(kind, module, lambda m, x: m(x), [randn(T, B, D)])

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
    def test_dtype_is_kept(self, kind: str, dtype: torch.dtype) -> None:
        layer = onegate.from_torch(make(kind, D, 5, dtype=dtype))
        assert {p.dtype for p in layer.parameters()} == {dtype}
        assert {p.dtype for p in onegate.to_torch(layer).parameters()} == {dtype}

    @pytest.mark.parametrize("bias", [True, False])
    def test_there_and_back(self, kind: str, bias: bool) -> None:
        args = {"num_layers": 2, "bidirectional": True, "batch_first": True, "bias": bias}
        module = make(kind, D, 5, **args)
        back = onegate.to_torch(onegate.from_torch(module))
        assert type(back) is type(module)
        assert repr(back) == repr(module)
        x = randn(B, T, D)
        torch.testing.assert_close(back(x), module(x), rtol=1e-12, atol=1e-12)


def test_weights_are_copies() -> None:
    module = make("gru", D, 5)
    layer = onegate.from_torch(module)
    before = {key: value.clone() for key, value in layer.state_dict().items()}
    nn.init.zeros_(module.weight_ih_l0)
    torch.testing.assert_close(dict(layer.state_dict()), before, rtol=0, atol=0)


def test_our_layers_train_as_torchs() -> None:
    module = make("lstm", D, 5)
    layer = onegate.from_torch(module, engine="reference")
    x = randn(T, B, D)
    losses = []
    for m in (module, layer):
        optimizer = torch.optim.SGD([p for n, p in m.named_parameters() if "b" not in n], 0.1)
        for _ in range(5):
            optimizer.zero_grad()
            loss = m(x)[0].square().sum()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)


def test_proj_size_is_refused() -> None:
    with pytest.raises(ValueError, match=r"proj_size=2 has no unit here; put an nn\.Linear"):
        onegate.from_torch(nn.LSTM(D, 5, proj_size=2))


def test_other_modules_are_refused() -> None:
    with pytest.raises(TypeError, match=r"takes torch\.nn\.RNN, LSTM or GRU, got Linear"):
        onegate.from_torch(nn.Linear(2, 2))  # type: ignore[arg-type]


def test_units_that_torch_lacks_are_refused() -> None:
    with pytest.raises(ValueError, match="no layer of 'mgu', only of simple, irnn, lstm"):
        onegate.to_torch(onegate.MGU(D, 5))


def test_learned_initial_states_are_refused() -> None:
    with pytest.raises(ValueError, match="no learned initial state"):
        onegate.to_torch(onegate.LSTM(D, 5, learn_initial_state=True))
