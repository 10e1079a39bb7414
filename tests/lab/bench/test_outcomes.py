"""What follows from measured times."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from onegate.lab.bench.contestants import TORCH_GRU, Contestant, Entrant
from onegate.lab.bench.measure import Call, Timing
from onegate.lab.bench.outcomes import KINDS, Sweep, Timings, fit_line, run_shape, run_sweep
from onegate.lab.bench.shapes import (
    PAPER,
    PEAK_OPERATIONS,
    SWEEPS,
    LayerShape,
    Unavailable,
    parse,
    sweep,
    work,
)
from tests.lab.bench.made import outcome, timing


def contestant(name: str, unit: str = "mgu", reason: Exception | None = None) -> Contestant:
    def enter(shape: LayerShape, x: torch.Tensor, grad_out: torch.Tensor) -> Entrant:
        assert x.shape == (shape.steps, shape.batch, shape.inputs)
        assert grad_out.shape == (shape.steps, shape.batch, shape.outputs)
        assert x.dtype == grad_out.dtype == torch.float32
        if reason is not None:
            raise reason
        return Entrant(lambda: f"train {name}", lambda: f"infer {name}", lambda: len(name))

    return Contestant(name, unit, enter)


def fake_race(calls: Mapping[str, Call], seconds: float) -> dict[str, Timing]:
    """2 s for training, 1 s for inference, times the length of the name; sgemm 0.01 s."""
    assert seconds == 1.5
    times: dict[str, Timing] = {}
    for name, call in calls.items():
        kind = str(call()).split()[0]
        times[name] = (
            timing({"train": 2.0, "infer": 1.0}[kind] * len(name))
            if (name != "sgemm")
            else timing(0.01)
        )
    return times


def test_results_of_all_that_can_run_and_reasons_of_the_others() -> None:
    shape = parse("4,3,2,5,2,bi")
    entered = [
        contestant("a"),
        contestant("bb", unit="lstm"),
        contestant("cannot", reason=Unavailable("no such layer")),
        contestant("broken", reason=ImportError("libx.so is missing")),
    ]
    found = run_shape(shape, entered, seconds=3.0, memory=True, timing=fake_race)
    assert list(found.results["train"]) == list(found.results["infer"]) == ["a", "bb"]
    assert found.seconds("train", "bb") == 4.0
    assert found.seconds("infer", "bb") == 2.0
    assert found.ratio("train", "a", "bb") == 0.5
    assert found.ratio("train", "a", "cannot") is None
    assert found.held == {"a": 1, "bb": 2}
    assert found.held_ratio("bb", "a") == 2.0
    assert found.skipped == {
        "cannot": "no such layer",
        "broken": "its library does not load: libx.so is missing",
    }
    peak = PEAK_OPERATIONS / 0.01
    assert found.peaks == {"train": peak, "infer": peak}
    lstm = work("lstm", shape)
    assert found.results["train"]["bb"].operations == lstm.training
    assert found.results["infer"]["bb"].operations == lstm.forward
    assert found.results["infer"]["bb"].share == pytest.approx(lstm.forward / 2.0 / peak)


def test_memory_only_on_request() -> None:
    assert run_shape(parse("4,3,2,5"), [contestant("a")], 3.0, timing=fake_race).held == {}


def test_line_through_times() -> None:
    line = fit_line([1, 2, 5, 10], [0.5 + 0.25 * n for n in (1, 2, 5, 10)])
    assert (line.fixed, line.each, line.r2) == pytest.approx((0.5, 0.25, 1.0))
    bent = fit_line([1, 10, 100, 1000, 2000], [n**2 for n in (1, 10, 100, 1000, 2000)])
    assert bent.r2 < 0.97
    # r2 as defined: one minus the squared errors over those of the mean
    sizes, times = [1.0, 2.0, 3.0, 4.0], [1.0, 2.5, 2.0, 4.0]
    line = fit_line(sizes, times)
    errors = [t - line.fixed - line.each * s for s, t in zip(sizes, times, strict=True)]
    spread = [t - sum(times) / 4 for t in times]
    assert line.r2 == pytest.approx(1 - sum(e * e for e in errors) / sum(s * s for s in spread))


def made_sweep(field: str) -> Sweep:
    """mgu takes 1 + n, torch.nn.GRU 10 n; at the first n inference of mgu is slower."""
    outcomes: list[Timings] = []
    for place, shape in enumerate(sweep(field, PAPER["mnist_rows"])):
        n = getattr(shape, field)
        train = {"mgu fused": 1.0 + n, TORCH_GRU: 10.0 * n}
        infer = {"mgu fused": 15.0 * n if place == 0 else 1.0 + n, TORCH_GRU: 10.0 * n}
        outcomes.append(outcome(shape, train, infer))
    return Sweep(field, outcomes)


def test_sweep_names_its_worst_point_and_fits_lines() -> None:
    made = made_sweep("steps")
    worst = made.worst("mgu fused")
    assert worst is not None
    assert (worst.ratio, worst.kind, worst.shape) == (1.5, "infer", "steps 1")
    assert made.worst("not there") is None
    lines = made.lines()
    assert set(lines) == set(KINDS)
    line = lines["train"]["mgu fused"]
    assert (line.fixed, line.each, line.r2) == pytest.approx((1.0, 1.0, 1.0))
    assert made_sweep("hidden").lines() == {}


def test_run_sweep_covers_every_size() -> None:
    said: list[str] = []
    found = run_sweep(
        "batch", parse("2,1,2,5"), [contestant("a")], 3.0, say=said.append, timing=fake_race
    )
    assert found.sizes() == list(SWEEPS["batch"])
    assert len(said) == len(found.outcomes)
