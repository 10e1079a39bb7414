"""Bytes held for the backward pass against counts by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import onegate
from onegate.engines.cpu.native import library
from onegate.lab.bench.contestants import held_bytes

FLOAT = 4
T, B, D, N = 6, 3, 5, 8


@pytest.mark.skipif(library().problem is not None, reason=str(library().problem))
def test_mgu_keeps_input_output_gate_and_candidate() -> None:
    layer = onegate.MGU(D, N, engine="fused")  # zeros to start from need no memory
    numbers = T * B * D + T * B * N + 2 * T * B * N
    assert held_bytes(layer, torch.randn(T, B, D)) == FLOAT * numbers


@pytest.mark.skipif(library().problem is not None, reason=str(library().problem))
def test_layers_above_keep_their_input() -> None:
    layer = onegate.MGU(D, N, num_layers=2, engine="fused")
    # Under the hooks that count, an output is saved as a copy, since it may be changed in place:
    # the second layer's input is one tensor more.
    numbers = T * B * D + T * B * N + 2 * (T * B * N + 2 * T * B * N)
    assert held_bytes(layer, torch.randn(T, B, D)) == FLOAT * numbers


def test_a_plain_rnn_keeps_its_input_and_its_states() -> None:
    # Of each step tanh's result; of the products the input and the states before, the first zero.
    numbers = T * B * D + B * N + T * B * N
    assert held_bytes(nn.RNN(D, N), torch.randn(T, B, D)) == FLOAT * numbers


class Squares(nn.Module):
    """Saves two views of its input, and of a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(10))

    def forward(self, x: Tensor) -> Tensor:
        return x[:5] * self.factor[:5] + x[5:] * self.factor[5:]


def test_views_count_once_and_parameters_never() -> None:
    assert held_bytes(Squares(), torch.randn(10, requires_grad=True)) == 10 * FLOAT


def test_nothing_is_held_without_gradients() -> None:
    with torch.no_grad():
        assert held_bytes(onegate.MGU(D, N), torch.randn(T, B, D)) == 0
