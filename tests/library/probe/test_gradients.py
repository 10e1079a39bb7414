"""dL/dh[t] against runs that start in the middle, and against finite differences."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import onegate
from onegate.probe import record, through_time

T, B, D, N = 8, 3, 2, 4


def weighted(out: Tensor, weights: Tensor) -> Tensor:
    return (out * weights).sum()


@pytest.mark.parametrize("unit", onegate.UNITS)
def test_it_is_the_gradient_of_a_run_that_starts_there(unit: str) -> None:
    """L read from the outputs after t, as a function of the states at t."""
    layer = onegate.Recurrent(unit, D, N, dtype=torch.float64, init=("normal", 0.7))
    x = torch.randn(T, B, D, dtype=torch.float64)
    weights = torch.randn(N, dtype=torch.float64)
    found = through_time(layer, lambda: weighted(layer(x)[0][-1], weights))["l0"]["h"]
    assert found.shape == (T, B)
    one = record(layer, x)["l0"]
    for t in (0, 3, T - 2):
        states = [one[state][t].detach() for state in layer.unit.states]
        h = states[0].requires_grad_()
        later, _ = layer(
            x[t + 1 :], h[None] if len(states) == 1 else tuple(s[None] for s in states)
        )
        (gradient,) = torch.autograd.grad(weighted(later[-1], weights), h)
        torch.testing.assert_close(found[t], gradient.norm(dim=-1))


def test_both_states_of_lstm_and_both_directions() -> None:
    layer = onegate.LSTM(D, N, bidirectional=True, dtype=torch.float64)
    x = torch.randn(T, B, D, dtype=torch.float64)
    found = through_time(layer, lambda: layer(x)[1][0].square().sum())
    assert {name: list(states) for name, states in found.items()} == {
        "l0": ["h", "c"],
        "l0_reverse": ["h", "c"],
    }
    h = found["l0"]["h"][-1]
    torch.testing.assert_close(h, 2 * layer(x)[0][-1, :, :N].detach().norm(dim=-1))
    # The backward direction's last step is the first one.
    reverse = found["l0_reverse"]["h"]
    torch.testing.assert_close(reverse[0], 2 * layer(x)[0][0, :, N:].detach().norm(dim=-1))
    # c reaches the loss through h as well: o (1 - tanh(c)^2) of it.
    last = record(layer, x)["l0"]
    through_h = 2 * last["h"][-1] * last["o"][-1] * (1 - last["c"][-1].tanh() ** 2)
    torch.testing.assert_close(found["l0"]["c"][-1], through_h.detach().norm(dim=-1))


def test_steps_beyond_a_length_have_no_gradient() -> None:
    layer = onegate.MGU(D, N, dtype=torch.float64)
    x = torch.randn(T, B, D, dtype=torch.float64)
    found = through_time(layer, lambda: layer(x, lengths=[T, 3, 5])[1].square().sum())["l0"]["h"]
    assert (found > 0).sum(0).tolist() == [T, 3, 5]


def test_a_linear_chain_shrinks_as_it_must() -> None:
    """With the matrix a I, dL/dh[t] is a^(T-1-t) times the last one."""
    layer = onegate.Recurrent("irnn", 1, N, dtype=torch.float64)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            parameter.copy_(0.8 * torch.eye(N) if name == "l0.h.U" else torch.ones_like(parameter))
    x = torch.ones(T, 1, 1, dtype=torch.float64)
    norms = through_time(layer, lambda: layer(x)[0][-1].sum())["l0"]["h"][:, 0]
    expected = 2 * 0.8 ** torch.arange(T - 1, -1, -1, dtype=torch.float64)
    torch.testing.assert_close(norms, expected)
