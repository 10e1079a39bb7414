"""Operations counted from equations against those that torch counts while the engine runs."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from onegate.lab.bench.shapes import PAPER, Shape, parse
from onegate.lab.bench.work import PEAK_OPERATIONS, peak_product, work
from onegate.nn.layers import Recurrent
from onegate.units import UNITS


def counted_by_torch(unit: str, shape: Shape) -> tuple[int, int]:
    """Forward and backward of the reference engine."""
    layer = Recurrent(
        unit, shape.inputs, shape.hidden, shape.layers,
        bidirectional=shape.bidirectional, engine="reference",
    )  # fmt: skip
    x = torch.randn(shape.steps, shape.batch, shape.inputs, requires_grad=shape.input_gradient)
    with FlopCounterMode(display=False) as forward:
        out, _ = layer(x)
    with FlopCounterMode(display=False) as backward:
        out.backward(torch.randn_like(out))
    return forward.get_total_flops(), backward.get_total_flops()


SHAPES = [
    Shape("one step", 1, 3, 5, 7),
    Shape("several", 6, 3, 5, 7),
    Shape("with the input's gradient", 6, 3, 5, 7, input_gradient=True),
    Shape("stacked", 4, 3, 5, 7, layers=3),
    Shape("both", 4, 3, 5, 7, layers=2, bidirectional=True, input_gradient=True),
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_mgu(shape: Shape) -> None:
    found = work("mgu", shape)
    assert (found.forward, found.backward) == counted_by_torch("mgu", shape)
    assert found.training == found.forward + found.backward


@pytest.mark.parametrize("unit", UNITS)
def test_every_unit(unit: str) -> None:
    shape = Shape("both", 3, 2, 5, 7, layers=2, bidirectional=True)
    found = work(unit, shape)
    assert (found.forward, found.backward) == counted_by_torch(unit, shape)


def test_mgu_by_hand_at_a_papers_shape() -> None:
    # MNIST rows, two maps of [h, x]: forward, weight gradients; dh but for the first step's h.
    rows = 28 * 100
    forward = 2 * 2 * rows * 100 * (100 + 28)
    to_states = 2 * rows * 100 * 100 + 2 * 27 * 100 * 100 * 100
    found = work("mgu", PAPER["mnist_rows"])
    assert (found.forward, found.backward) == (forward, forward + to_states)


def test_the_peak_is_one_product_of_that_many_operations() -> None:
    call = peak_product()
    with FlopCounterMode(display=False) as counter:
        call()
    assert counter.get_total_flops() == PEAK_OPERATIONS == 2 * 1024**3


def test_torch_layers_are_counted_by_units_of_the_same_products() -> None:
    # One matrix (3n, n + d) in a GRU, (4n, n + d) in an LSTM, (n, n + d) in an RNN.
    shape = parse("4,3,5,7")
    for unit, layer in (
        ("gru_reset_after", torch.nn.GRU(5, 7)),
        ("lstm", torch.nn.LSTM(5, 7)),
        ("simple", torch.nn.RNN(5, 7)),
    ):
        matrices = sum(p.numel() for p in layer.parameters() if p.dim() == 2)
        assert work(unit, shape).forward == 2 * 4 * 3 * matrices
