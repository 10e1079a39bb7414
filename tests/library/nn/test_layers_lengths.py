"""`lengths=` equals packing equals one sequence at a time, whatever the sizes and layouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import onegate
from tests.library.comparing import assert_same, flat, with_gradients

# One of each sort: one state, two, two of different sizes, five, nothing recurrent in the maps.
UNITS = ("mgu", "lstm", "scrn", "lstm_fgr", "mingru")


@dataclass(frozen=True)
class Case:
    unit: str
    width: int
    hidden: int
    layers: int
    bidirectional: bool
    batch_first: bool
    learned: bool
    with_states: bool
    steps: int
    lengths: tuple[int, ...]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    steps = draw(st.integers(1, 6))
    return Case(
        unit=draw(st.sampled_from(UNITS)),
        width=draw(st.integers(1, 4)),
        hidden=draw(st.integers(1, 5)),
        layers=draw(st.integers(1, 3)),
        bidirectional=draw(st.booleans()),
        batch_first=draw(st.booleans()),
        learned=draw(st.booleans()),
        with_states=draw(st.booleans()),
        steps=steps,
        lengths=tuple(draw(st.lists(st.integers(1, steps), min_size=1, max_size=4))),
    )


def make(case: Case, engine: str) -> tuple[onegate.Recurrent, Tensor, list[Tensor]]:
    torch.manual_seed(0)
    options: dict[str, Any] = {"context_size": 3} if case.unit == "scrn" else {}
    layer = onegate.Recurrent(
        case.unit,
        case.width,
        case.hidden,
        case.layers,
        batch_first=case.batch_first,
        bidirectional=case.bidirectional,
        learn_initial_state=case.learned,
        dtype=torch.float64,
        engine=engine,
        **options,
    )
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    batch = len(case.lengths)
    shape = (batch, case.steps) if case.batch_first else (case.steps, batch)
    x = torch.randn(*shape, case.width, dtype=torch.float64)
    rows = case.layers * (2 if case.bidirectional else 1)
    sizes = layer.unit.state_sizes(case.hidden).values()
    states = [torch.randn(rows, batch, size, dtype=torch.float64) for size in sizes]
    return layer, x, states if case.with_states else []


def as_hx(states: tuple[Tensor, ...]) -> Any:
    return (states[0] if len(states) == 1 else states) if states else None


def by_lengths(layer: onegate.Recurrent, case: Case, x: Tensor, *states: Tensor) -> Any:
    return layer(x, as_hx(states), lengths=torch.tensor(case.lengths))


def by_packing(layer: onegate.Recurrent, case: Case, x: Tensor, *states: Tensor) -> Any:
    packed = pack_padded_sequence(
        x, torch.tensor(case.lengths), case.batch_first, enforce_sorted=False
    )
    out, last = layer(packed, as_hx(states))
    padded, lengths = pad_packed_sequence(out, case.batch_first, total_length=case.steps)
    assert tuple(lengths.tolist()) == case.lengths
    return padded, last


def one_by_one(layer: onegate.Recurrent, case: Case, x: Tensor, *states: Tensor) -> Any:
    batch = 0 if case.batch_first else 1
    outs, lasts = [], []
    for row, length in enumerate(case.lengths):
        sequence = x.select(batch, row)[:length]
        out, last = layer(sequence, as_hx(tuple(s[:, row] for s in states)))
        outs.append(torch.nn.functional.pad(out, (0, 0, 0, case.steps - length)))
        lasts.append(flat(last))
    return torch.stack(outs, batch), [torch.stack(s, 1) for s in zip(*lasts, strict=True)]


BACKWARD_AND_STACKED = Case("scrn", 2, 4, 2, True, True, True, True, 5, (3, 5, 1))


@pytest.mark.parametrize("other", [by_packing, one_by_one])
@given(case=cases())
@example(case=BACKWARD_AND_STACKED)
@settings(max_examples=40)
def test_lengths_equal(other: Any, case: Case) -> None:
    layer, x, states = make(case, "reference")
    used = {
        key: parameter
        for key, parameter in layer.named_parameters()
        if not (states and key.endswith("_0"))
    }
    ours = with_gradients(lambda *v: by_lengths(layer, case, *v), [x, *states], used)
    theirs = with_gradients(lambda *v: other(layer, case, *v), [x, *states], used)
    assert_same(ours, theirs)


def test_outputs_beyond_a_length_are_zero_and_the_last_state_is_the_one_there() -> None:
    layer = onegate.MGU(2, 3, bidirectional=True, engine="reference")
    out, last = layer(torch.randn(5, 2, 2), lengths=[2, 5])
    assert not out[2:, 0].any()
    assert out[:2, 0].all()
    assert isinstance(last, Tensor)
    torch.testing.assert_close(last[0, 0], out[1, 0, :3])
    torch.testing.assert_close(last[1, 0], out[0, 0, 3:])


@pytest.mark.parametrize("kind", [list, tuple, torch.tensor, lambda v: torch.tensor(v).int()])
def test_lengths_of_any_kind(kind: Any) -> None:
    layer = onegate.MGU(2, 3)
    x = torch.randn(5, 2, 2)
    torch.testing.assert_close(
        layer(x, lengths=kind([2, 5])), layer(x, lengths=torch.tensor([2, 5]))
    )


def test_full_lengths_change_nothing() -> None:
    layer = onegate.LSTM(2, 3, 2, bidirectional=True, engine="reference")
    x = torch.randn(5, 2, 2)
    torch.testing.assert_close(layer(x, lengths=[5, 5]), layer(x))
