"""Shapes as written on the command line, and sweeps; operations against those that torch counts."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from onegate.lab.bench.shapes import (
    PAPER,
    PEAK_OPERATIONS,
    SWEEPS,
    LayerShape,
    parse,
    peak_product,
    sweep,
    work,
)
from onegate.nn.layers import Recurrent
from onegate.units import UNITS, get


def test_the_papers_shapes() -> None:
    sizes = {
        name: (s.steps, s.batch, s.inputs, s.hidden, s.layers, s.bidirectional, s.input_gradient)
        for name, s in PAPER.items()
    }
    assert sizes == {
        "adding": (55, 100, 2, 100, 1, True, False),
        "imdb": (128, 16, 1, 100, 1, False, False),
        "mnist_rows": (28, 100, 28, 100, 1, False, False),
        "mnist_pixels": (784, 100, 1, 100, 1, False, False),
        "ptb": (35, 20, 500, 500, 2, False, True),
    }
    assert PAPER["adding"].outputs == 200


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7,6,5,4", LayerShape("7,6,5,4", 7, 6, 5, 4)),
        ("7,6,5,4,3", LayerShape("7,6,5,4,3", 7, 6, 5, 4, 3)),
        ("7,6,5,4,bi", LayerShape("7,6,5,4,bi", 7, 6, 5, 4, 1, True)),
        ("7,6,5,4,3,bi", LayerShape("7,6,5,4,3,bi", 7, 6, 5, 4, 3, True)),
    ],
)
def test_parse(text: str, expected: LayerShape) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize("text", ["", "7,6,5", "7,6,5,0", "7,6,5,4,3,2", "7,6,5,4,by", "a,b,c,d"])
def test_what_is_not_a_shape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a shape: expected T,B,d,n\[,layers\]\[,bi\]"):
        parse(text)


@pytest.mark.parametrize(
    ("field", "first", "last"), [("steps", 1, 2000), ("batch", 1, 512), ("hidden", 32, 1024)]
)
def test_a_sweep_varies_one_size_alone(field: str, first: int, last: int) -> None:
    base = PAPER["mnist_rows"]
    shapes = sweep(field, base)
    assert [getattr(s, field) for s in shapes] == list(SWEEPS[field])
    assert (SWEEPS[field][0], SWEEPS[field][-1]) == (first, last)
    for other in {"steps", "batch", "hidden", "inputs", "layers"} - {field}:
        assert {getattr(s, other) for s in shapes} == {getattr(base, other)}
    assert len({s.name for s in shapes}) == len(shapes)


def counted_by_torch(unit: str, shape: LayerShape) -> tuple[int, int]:
    """Forward and backward of the reference engine."""
    layer = Recurrent(
        unit, shape.inputs, shape.hidden, shape.layers,
        bidirectional=shape.bidirectional, engine="reference",
    )  # fmt: skip
    x = torch.randn(shape.steps, shape.batch, shape.inputs, requires_grad=shape.input_gradient)
    sizes = layer.unit.input_sizes(shape.inputs, shape.hidden)
    extra = {name: torch.rand(*x.shape[:2], sizes[name]) for name in layer.unit.inputs[1:]}
    with FlopCounterMode(display=False) as forward:
        out, _ = layer(x, extra=extra or None)
    with FlopCounterMode(display=False) as backward:
        out.backward(torch.randn_like(out))
    return forward.get_total_flops(), backward.get_total_flops()


SHAPES = [
    LayerShape("one step", 1, 3, 5, 7),
    LayerShape("several", 6, 3, 5, 7),
    LayerShape("with the input's gradient", 6, 3, 5, 7, input_gradient=True),
    LayerShape("stacked", 4, 3, 5, 7, layers=3),
    LayerShape("both", 4, 3, 5, 7, layers=2, bidirectional=True, input_gradient=True),
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_mgu(shape: LayerShape) -> None:
    found = work("mgu", shape)
    assert (found.forward, found.backward) == counted_by_torch("mgu", shape)
    assert found.training == found.forward + found.backward


@pytest.mark.parametrize("unit", UNITS)
def test_every_unit(unit: str) -> None:
    layers = 1 if len(get(unit).inputs) > 1 else 2  # what is beside x is as wide as the first x
    shape = LayerShape("both", 3, 2, 5, 7, layers=layers, bidirectional=True)
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
