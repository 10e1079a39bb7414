"""Random units at random sizes: the fused engine equals the reference.

The suite runs a fixed set of examples; with ONEGATE_EXAMPLES=5000 in the environment it runs as
many new ones of each kind.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import hypothesis
import hypothesis.strategies as st
import pytest
import torch

from onegate.engines import fused, reference
from onegate.graph.latex import equations
from onegate.graph.program import program
from tests.engines.agreement import Found, assert_agree, evaluate, problem
from tests.random_units import Sketch, sketches

ASKED = os.environ.get("ONEGATE_EXAMPLES")
LARGEST = 1e3  # values that grow beyond this are a matter of rounding


def examples(count: int) -> hypothesis.settings:
    return hypothesis.settings(
        max_examples=int(ASKED or count),
        derandomize=ASKED is None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )


@dataclass(frozen=True)
class Call:
    """How a unit is run."""

    steps: int
    rows: int
    directions: int
    lengths: tuple[int, ...] | None
    bias: bool
    threads: int
    split: str
    used: str
    input_needed: bool
    seed: int


@st.composite
def calls(draw: st.DrawFn, steps: st.SearchStrategy[int], rows: st.SearchStrategy[int]) -> Call:
    count, most = draw(rows), draw(steps)
    lengths = st.lists(st.integers(1, most), min_size=count, max_size=count).map(tuple)
    return Call(
        most,
        count,
        draw(st.integers(1, 2)),
        draw(st.none() | lengths),
        draw(st.booleans()),
        draw(st.integers(1, 4)),
        draw(st.sampled_from(list(fused.SPLIT))),
        draw(st.sampled_from(["out last", "out", "last"])),
        draw(st.booleans()),
        draw(st.integers(0, 1 << 16)),
    )


def bounded(found: Found) -> bool:
    return all(t.isfinite().all() and t.abs().max() < LARGEST for t in found.values())


def compare(sketch: Sketch, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = sketch.graph(call.bias)
    hypothesis.note("\n".join(equations(graph)))
    hypothesis.note(program(graph).describe())
    given = problem(graph, call.steps, call.rows, call.directions, call.lengths, seed=call.seed)
    needed = [name for name in given.leaves if name != "x" or call.input_needed]
    truth = evaluate(reference.run, given, call.used, needed)
    hypothesis.assume(bounded(truth))
    monkeypatch.setattr(fused, "_THREAD_SPLIT", fused.SPLIT[call.split])
    torch.set_num_threads(call.threads)
    try:
        ours = evaluate(fused.run, given, call.used, needed)
    finally:
        torch.set_num_threads(1)
    assert_agree(ours, truth)


@examples(150)
@hypothesis.given(sketches(), calls(st.integers(1, 7), st.integers(1, 5)))
def test_small(sketch: Sketch, call: Call) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        compare(sketch, call, monkeypatch)


@examples(40)
@hypothesis.given(
    sketches(largest=60), calls(st.sampled_from([3, 9, 30]), st.sampled_from([1, 2, 7, 13, 40]))
)
def test_large_enough_for_threads(sketch: Sketch, call: Call) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        compare(sketch, call, monkeypatch)
