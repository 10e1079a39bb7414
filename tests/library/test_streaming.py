"""Streams: step by step as over the whole sequence."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import onegate
from onegate.export.deployable import ExportError
from onegate.units import UNITS

T = 9


def _draw(module: nn.Module) -> nn.Module:
    """Every parameter away from zero, biases and initial states too."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.uniform_(-0.6, 0.6)
    return module


def _whole(layer: onegate.Recurrent, x: Tensor, extra: Any = None) -> tuple[Any, Any]:
    """By the reference engine in float64, in evaluation."""
    layer = layer.double().eval()
    layer.engine = "reference"
    with torch.no_grad():
        given = {key: v.double() for key, v in extra.items()} if extra else None
        out, last = layer(x.double(), extra=given)
    return out, last if isinstance(last, tuple) else (last,)


@pytest.mark.parametrize("name", sorted(UNITS))
@pytest.mark.parametrize(("batch", "d", "n"), [(1, 1, 1), (1, 5, 17), (3, 50, 7)])
def test_steps_are_those_of_the_sequence(name: str, batch: int, d: int, n: int) -> None:
    layers = 1 if name == "gru_d" else 2
    layer = onegate.Recurrent(name, d, n, num_layers=layers, learn_initial_state=True)
    _draw(layer)
    stream, x = onegate.stream(layer, batch=batch), torch.randn(T, batch, d)
    extra = {key: torch.rand(T, batch, size) for key, size in layer._extra_sizes.items()}
    beside = [{key: v[t].numpy() for key, v in extra.items()} or None for t in range(T)]
    steps = zip(x.numpy(), beside, strict=True)
    found = np.stack([stream.step(*step).copy() for step in steps])
    out, lasts = _whole(layer, x, extra)
    # sLSTM divides by a normaliser that comes near zero: float32 has fewer digits there.
    rtol, atol = (1e-3, 1e-4) if name == "slstm" else (2e-5, 2e-6)
    np.testing.assert_allclose(found.reshape(out.shape), out, rtol=rtol, atol=atol)
    for i, states in enumerate(stream.state):
        for state, last in zip(states, lasts, strict=True):
            np.testing.assert_allclose(state, last[i], rtol=rtol, atol=atol)


def test_zoneout_is_its_mean() -> None:
    layer = onegate.LSTM(3, 4, zoneout={"h": 0.2, "c": 0.5})
    stream, x = onegate.stream(layer), torch.randn(T, 1, 3)
    found = np.stack([stream.step(step).copy() for step in x.numpy()])
    np.testing.assert_allclose(found, _whole(layer, x)[0][:, 0], rtol=2e-5, atol=2e-6)


def test_what_is_beside_x_is_asked_for() -> None:
    stream, x = onegate.stream(onegate.Recurrent("gru_d", 3, 4)), np.ones(3, np.float32)
    for extra in (None, x, {"mask": x}, {"mask": x, "gap": x, "more": x}):
        with pytest.raises(ValueError, match="expected arrays by name, mask, gap"):
            stream.step(x, extra)
    with pytest.raises(ValueError, match=r"gap is \(2,\), expected \(3,\)"):
        stream.step(x, {"mask": x, "gap": x[:2]})
    with pytest.raises(ValueError, match="expected nothing beside x"):
        onegate.stream(onegate.MGU(3, 4)).step(x, {"mask": x})


def test_reset_and_states() -> None:
    layer = onegate.LSTM(3, 4, learn_initial_state=True)
    _draw(layer)
    stream, x = onegate.stream(layer, batch=2), np.ones((2, 3), np.float32)
    first = stream.step(x).copy()
    kept = [tuple(state.copy() for state in states) for states in stream.state]
    second = stream.step(x).copy()
    assert not np.allclose(first, second)
    with pytest.raises(ValueError, match=r"state is \[\[\(2, 4\)\]\], expected \[\[\(\d, 4\), "):
        stream.state = [(np.ones((2, 4)),)]
    stream.state = kept
    np.testing.assert_array_equal(stream.step(x), second)
    stream.reset(rows=[1])
    partly = stream.step(x)
    np.testing.assert_array_equal(partly[1], first[1])
    assert not np.allclose(partly[0], first[0])
    stream.reset()
    np.testing.assert_array_equal(stream.step(x), first)


def test_a_model_with_embedding_and_head() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(11, 5)
            self.recurrent = onegate.MGU(5, 6)
            self.head = nn.Linear(6, 3)

    model = _draw(Words())
    stream = onegate.stream(model)
    words = torch.tensor([3, 0, 10, 3])
    found = np.stack([stream.step(word) for word in words.numpy()])
    with torch.no_grad():
        expected = model.head(model.recurrent(model.embedding(words)[:, None])[0])[:, 0]  # type: ignore[operator]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="beyond the 11"):
        stream.step(11)
    with pytest.raises(ValueError, match="whole numbers"):
        stream.step(1.5)


def test_a_cell() -> None:
    cell = _draw(onegate.MGUCell(3, 4))
    stream, x = onegate.stream(cell), torch.randn(2, 3)
    with torch.no_grad():
        expected = cell(x[1:], cell(x[:1]))
    stream.step(x[0])
    np.testing.assert_allclose(stream.step(x[1:].numpy()), expected[0], rtol=1e-5, atol=1e-6)


def test_it_has_weights_of_its_own() -> None:
    layer = onegate.MGU(3, 4)
    stream, x = onegate.stream(layer), np.ones(3, np.float32)
    before = stream.step(x).copy()
    _draw(layer)
    del layer
    gc.collect()
    stream.reset()
    np.testing.assert_array_equal(stream.step(x), before)


def test_what_does_not_fit() -> None:
    stream = onegate.stream(onegate.MGU(3, 4), batch=2)
    for x in (np.ones(3), np.ones((1, 3)), np.ones((2, 4)), 1.0):
        with pytest.raises(ValueError, match="expected \\(2, 3\\)"):
            stream.step(x)
    np.testing.assert_array_equal(stream.step(np.ones((2, 3))), stream._out)  # float64 is taken
    with pytest.raises(ExportError, match="bidirectional"):
        onegate.stream(onegate.MGU(3, 4, bidirectional=True))
    with pytest.raises(ValueError, match="batch must be greater than zero: it is 0"):
        onegate.stream(onegate.MGU(3, 4), batch=0)
