"""Random units at random sizes: the fused engine equals the reference.

The suite runs a fixed set of examples; with ONEGATE_EXAMPLES=5000 in the environment it runs as
many new ones of each kind.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from torch import Tensor

from onegate import Recurrent
from onegate.engines import reference
from onegate.engines.cpu import operator as fused
from onegate.export.latex import equations
from onegate.language import Value
from onegate.lowering.program import program
from tests.library.engines.agreement import Found, Problem, assert_agree, evaluate, problem
from tests.library.random_units import Sketch, sketches

ASKED = os.environ.get("ONEGATE_EXAMPLES")
LARGEST = 1e3


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


def reference_if_well_conditioned(given: Problem, used: str, needed: list[str]) -> Found:
    """Of chaotic maps, and of sums that cancel, rounding decides: no two engines need agree."""
    peaks: list[float] = []

    def recorded(node: Value, values: Any, compute: Any = reference._pointwise) -> Tensor:
        result: Tensor = compute(node, values)
        peaks.append(peak_of(result.detach()))
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "_pointwise", recorded)
        truth = evaluate(reference.run, given, used, needed)
    peaks += map(peak_of, truth.values())
    hypothesis.assume(max(peaks) < LARGEST)
    near = {
        name: leaf * (1 + 1e-12 * torch.randn_like(leaf)) for name, leaf in given.leaves.items()
    }
    moved = evaluate(reference.run, replace(given, leaves=near), used, needed)
    hypothesis.assume(all(peak_of(moved[name] - truth[name]) < 1e-9 for name in truth))
    return truth


def peak_of(tensor: Tensor) -> float:
    return float(tensor.abs().max())


def compare(sketch: Sketch, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = sketch.graph(call.bias)
    hypothesis.note("\n".join(equations(graph)))
    hypothesis.note(program(graph).describe())
    given = problem(graph, call.steps, call.rows, call.directions, call.lengths, seed=call.seed)
    needed = [name for name in given.leaves if name != "x" or call.input_needed]
    truth = reference_if_well_conditioned(given, call.used, needed)
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


@examples(40)
@hypothesis.given(
    sketches(largest=7, most=10),
    st.integers(1, 9),
    st.integers(1, 4),
    st.fixed_dictionaries(
        {
            "zoneout": st.sampled_from([0.0, 0.3]),
            "recompute": st.booleans(),
            "learn_initial_state": st.booleans(),
        }
    ),
    st.booleans(),
    st.integers(0, 1 << 16),
)
def test_masks_and_resets(
    sketch: Sketch, steps: int, rows: int, options: dict[str, Any], resets: bool, seed: int
) -> None:
    hypothesis.note("\n".join(equations(sketch.graph())))
    torch.manual_seed(seed)
    x = torch.randn(steps, rows, sketch.input_size, dtype=torch.float64)
    call = {"reset": torch.rand(steps, rows) < 0.3} if resets else {}
    sizes = (sketch.unit, sketch.input_size, sketch.hidden_size)
    layers = [
        Recurrent(*sizes, engine=engine, dtype=torch.float64, **options)
        for engine in ("fused", "reference")
    ]
    layers[1].load_state_dict(layers[0].state_dict())

    def run(layer: Recurrent, x: Tensor) -> list[Tensor]:
        torch.manual_seed(seed)  # of the masks
        leaves = [x.requires_grad_(), *layer.parameters()]
        out, _, every = layer(x, return_states=True, **call)
        found = [out, *((every,) if isinstance(every, Tensor) else every)]
        total = torch.stack([t.sin().sum() for t in found]).sum()
        grads: Sequence[Tensor] = [torch.zeros_like(leaf) for leaf in leaves]
        if total.requires_grad:  # else nothing but a state that is given is read
            grads = torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
        return [*(t.detach() for t in found), *grads]

    truth = run(layers[1], x.clone())
    near = run(layers[1], x * (1 + 1e-12 * torch.randn_like(x)))
    hypothesis.assume(max(map(peak_of, truth)) < LARGEST)
    hypothesis.assume(all(peak_of(a - b) < 1e-9 for a, b in zip(near, truth, strict=True)))
    for ours, theirs in zip(run(layers[0], x.clone()), truth, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-8)
