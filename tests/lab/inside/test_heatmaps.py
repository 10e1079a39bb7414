"""The order of units in heat maps, and the colours that a picture has."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import onegate
from onegate.lab.inside import heatmaps
from onegate.lab.inside.measures import PassMeasures
from onegate.lab.tasks import View
from onegate.probe import keeping, record
from tests.library.probe.constructed import constant_gate

NOTHING = np.zeros(0)


def measured(**given: object) -> PassMeasures:
    empty = PassMeasures("l0", {}, {}, {}, {}, NOTHING, NOTHING.astype(complex), NOTHING, {})
    return replace(empty, **given)  # type: ignore[arg-type]


def test_the_gate_decides_and_forever_comes_first() -> None:
    shares = torch.tensor([0.5, 0.1, 0.9], dtype=torch.float64)
    kept = keeping(constant_gate(shares, steps=5)["l0"])
    spans = {"h": np.array([9.0, 8.0, 7.0])}
    assert heatmaps.order(measured(keeping=kept, spans=spans)).tolist() == [1, 0, 2]
    span = torch.tensor([3.0, 5.0, float("inf")], dtype=torch.float64)
    forever = {"h": replace(kept["h"], span=span)}
    assert heatmaps.order(measured(keeping=forever, spans=spans)).tolist() == [2, 1, 0]


def test_without_a_gate_the_measured_span_decides_and_the_deaf_come_last() -> None:
    spans = {"h": np.array([2.0, np.nan, 4.0, 3.0])}
    assert heatmaps.order(measured(spans=spans)).tolist() == [2, 3, 0, 1]


@pytest.mark.parametrize("training", ["before", "after"])
def test_a_picture_has_the_longest_memory_on_top(training: str) -> None:
    """Two units with the gates 0.1 and 0.9: the upper half of the gate's map is the lighter one."""
    passes = constant_gate(torch.tensor([0.9, 0.1], dtype=torch.float64), steps=12)
    one = measured(keeping=keeping(passes["l0"]), spans={"h": np.array([1.1, 10.0])})
    numbers = np.linspace(0, 1, 12, dtype=np.float32)
    view = View(4, 12, "numbers", "sum 1", numbers=numbers, marked=numbers > 0.9)
    figure = heatmaps.draw("constant", training, view, passes, {"l0": one})
    assert figure.name == f"heatmap-constant-4-{training}"
    image = np.asarray(Image.open(io.BytesIO(figure.png)).convert("RGB")).astype(int)
    blue = np.abs(image - (0x0B, 0x5C, 0xAD)).sum(-1) < 12  # the gate at its highest
    rows = np.flatnonzero(blue.mean(1) > 0.5)
    middle = image[rows[0] - (rows[-1] - rows[0]) // 2]  # as far above the dark half as it is high
    light = np.abs(middle - (0xE4, 0xEC, 0xF6)).sum(-1) < 25  # a ninth of the way from white
    assert light.mean() > 0.5


def test_a_value_of_another_size_keeps_its_order() -> None:
    with torch.no_grad():
        one = record(onegate.SCRN(2, 3, context_size=5), torch.randn(4, 1, 2))["l0"]
    view = View(0, 4, "words", "", words=("a", "b", "c", "d"))
    spans = {"s": np.arange(5.0), "h": np.arange(3.0)}
    values = measured(keeping=keeping(one), spans=spans)
    shown = {value.name: value for value in heatmaps.shown_values(one)}
    drawn = heatmaps._values(one, shown["h"], view, values)
    np.testing.assert_allclose(drawn, one["h"][:, 0].T.double())
