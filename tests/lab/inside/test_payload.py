"""Values as bytes: what the script in the page gets."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest
import torch

import onegate
from onegate.lab.inside import payload
from onegate.lab.inside.heatmaps import Shown, shown_values
from onegate.probe import record
from onegate.probe.traces import Pass
from tests.library.comparing import X_ALONE


def test_bytes_are_within_half_a_level() -> None:
    values = np.random.default_rng(0).uniform(-2, 2, size=(7, 11))
    levels = np.frombuffer(base64.b64decode(payload.bytes_of(values, -2, 2)), np.uint8)
    found = -2 + levels.reshape(7, 11) / 255 * 4
    assert np.abs(found - values).max() <= 4 / 255 / 2 + 1e-12


def test_bytes_of_what_lies_outside_or_is_no_number() -> None:
    text = payload.bytes_of(np.array([-9.0, 9.0, np.nan]), 0, 1)
    assert list(base64.b64decode(text)) == [0, 255, 0]


def traced(unit: str, units: int = 3, steps: int = 4) -> Pass:
    with torch.no_grad():
        return record(onegate.Recurrent(unit, 2, units), torch.randn(steps, 2, 2))["l0"]


def test_gates_start_at_zero_and_other_values_are_symmetric() -> None:
    one = traced("lstm")
    shown = shown_values(one)
    assert [value.name for value in shown] == ["f", "i", "o", "candidate", "c", "h"]
    assert [value.gate for value in shown] == [True, True, True, False, False, False]
    for value in shown:
        most = float(one[value.name].abs().max())
        assert value.low == (0 if value.gate else -value.high)
        assert most <= value.high <= 1.11 * most


@pytest.mark.parametrize("unit", X_ALONE)
def test_every_unit_has_its_states_shown(unit: str) -> None:
    one = traced(unit)
    names = [value.name for value in shown_values(one)]
    assert set(one.graph.unit.states) <= set(names)
    assert not any("(" in name for name in names)


def test_a_value_that_is_zero_throughout_has_a_range() -> None:
    one = traced("irnn")
    still = one.first(2)
    still.named["h"].zero_()
    assert shown_values(still) == [Shown("h", False, -1.0, 1.0)]


def test_spans_fit_into_json() -> None:
    spans = payload._plain(np.array([1.23456, np.inf, np.nan, 12345.0]))
    assert json.loads(json.dumps(spans, allow_nan=False)) == [1.23, -1, None, 12300.0]


def test_the_size_of_an_example() -> None:
    one = traced("mgu", units=100, steps=784)
    texts = [
        payload.bytes_of(one[v.name][:, 0].numpy().T, v.low, v.high) for v in shown_values(one)
    ]
    assert payload.size_of_example({"l0": one}) == pytest.approx(2 * sum(map(len, texts)), rel=0.01)
