"""Memory spans of units whose memory is known, and of made-up gate values."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import onegate
from onegate.probe import keeping, measured_spans, record
from tests.library.probe.constructed import constant_gate

SHARES = torch.tensor([0.1, 0.25, 0.5, 0.9, 0.99], dtype=torch.float64)


def test_a_constant_gate_remembers_one_over_f_by_its_values() -> None:
    kept = keeping(constant_gate(SHARES, steps=5)["l0"])["h"]
    torch.testing.assert_close(kept.span, 1 / SHARES, rtol=1e-12, atol=0)
    torch.testing.assert_close(kept.share, 1 - SHARES)


@pytest.mark.parametrize("name", ["l0", "l0_reverse"])
def test_a_constant_gate_remembers_one_over_f_by_measurement(name: str) -> None:
    spans = measured_spans(constant_gate(SHARES, bidirectional=True)[name])["h"]
    torch.testing.assert_close(spans, 1 / SHARES, rtol=1e-6, atol=0)


def test_kinds_of_units() -> None:
    kept = keeping(constant_gate(torch.tensor([0.02, 0.5, 0.97]).double(), steps=20)["l0"])["h"]
    assert kept.hardly_moves.tolist() == [True, False, False]
    assert kept.always_overwrites.tolist() == [False, False, True]


def test_steps_beyond_a_length_do_not_count() -> None:
    layer = onegate.MGU(2, 3, dtype=torch.float64)
    x = torch.randn(9, 2, 2, dtype=torch.float64)
    padded = record(layer, x, lengths=[9, 4])["l0"]
    parts = [record(layer, x[:9, :1])["l0"].kept["h"], record(layer, x[:4, 1:])["l0"].kept["h"]]
    share = torch.cat([part.flatten(0, 1) for part in parts]).mean(0)
    torch.testing.assert_close(keeping(padded)["h"].share, share)


def test_what_is_never_lost_lasts_forever() -> None:
    one = record(onegate.LSTMNoForget(2, 3), torch.randn(5, 2, 2))["l0"]
    assert keeping(one)["c"].span.tolist() == [float("inf")] * 3
    assert keeping(record(onegate.SimpleRNN(2, 3), torch.randn(5, 2, 2))["l0"]) == {}


def test_the_measured_span_is_the_mean_lag_of_the_response() -> None:
    """Against finite differences of whole runs, one disturbed step at a time, with lengths."""
    torch.manual_seed(1)
    layer = onegate.LSTM(1, 3, dtype=torch.float64, engine="reference")
    x, lengths = torch.randn(12, 2, 1, dtype=torch.float64), [12, 7]
    one = record(layer, x, lengths=lengths)["l0"]
    total, weighted = torch.zeros(3).double(), torch.zeros(3).double()
    for row, length in enumerate(lengths):
        for place in (0.0, 0.125, 0.25, 0.375):
            t, states = int(place * length), []
            for change in (1e-6, -1e-6):
                moved = x[:length, row : row + 1].clone()
                moved[t] += change
                states.append(record(layer, moved)["l0"]["c"][:, 0])
            response = ((states[0] - states[1]) / 2e-6).abs()[t:]
            # The random directions are one number each here: they weigh a row's whole response.
            weight = _weights(len(lengths))[int(place * 8), row]
            total += weight * response.sum(0)
            weighted += weight * (response * torch.arange(1, len(response) + 1)[:, None]).sum(0)
    torch.testing.assert_close(measured_spans(one)["c"], weighted / total, rtol=1e-6, atol=0)


def _weights(batch: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(4 * batch, 1, generator=generator).abs().view(4, batch).double()


def test_a_unit_that_does_not_respond_has_no_span() -> None:
    one = constant_gate(SHARES, steps=20)["l0"]
    deaf = {**one.parameters, "h.W": torch.zeros_like(one.parameters["h.W"])}
    assert measured_spans(replace(one, parameters=deaf))["h"].isnan().all()


def test_the_first_sequences_alone() -> None:
    one = constant_gate(SHARES, steps=20, bidirectional=True)["l0_reverse"]
    assert torch.equal(one.first(2)["h"], one["h"][:, :2])
    assert one.first(2).input.shape[1] == 2
    assert measured_spans(one.first(1))["h"].isfinite().all()
