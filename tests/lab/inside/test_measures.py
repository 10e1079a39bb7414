"""What is measured of runs: against the traces themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from onegate.lab.inside import examples
from onegate.lab.inside.measures import BINS, measure
from onegate.lab.inside.opened import open_run
from onegate.probe import lyapunov_exponents, through_time
from onegate.probe.traces import traced
from tests.lab.inside.conftest import small_recipes

pytestmark = pytest.mark.usefixtures("small")


def test_of_digits(runs: Path) -> None:
    opened = open_run(runs / "rows-gru")
    model = opened.trained
    found = measure(opened.task, model, sequences=10)
    assert list(found) == ["l0"]
    one = found["l0"]
    chosen = examples.varied(opened.task, 10)
    assert chosen != list(range(10))  # every class, not those that come first
    batch, state = examples.batch(opened.task, model, chosen)
    with torch.no_grad():
        passed = traced(model.recurrent, lambda: model.score(batch, state))["l0"]
    assert list(one.gates) == ["z", "r"]
    for gate, shares in one.gates.items():
        values = passed[gate].numpy().ravel()
        counts, _ = np.histogram(values, BINS, (0, 1))
        np.testing.assert_allclose(shares, counts / len(values), atol=2 / len(values))
        assert one.gate_means[gate] == pytest.approx(values.mean(), rel=1e-5)
    assert one.memory == "h"
    assert one.singular.shape == (8, 6)
    assert (np.diff(one.singular, axis=1) <= 1e-6).all()
    assert one.exponent == pytest.approx(float(lyapunov_exponents(passed).mean()))
    norms = through_time(model.recurrent, lambda: model.score(batch, state)[0].loss)["l0"]["h"]
    np.testing.assert_allclose(one.gradients["h"], norms.mean(1), rtol=1e-4)


def test_gradients_count_the_sequences_that_reach_a_step(runs: Path) -> None:
    opened = open_run(runs / "adding-lstm")
    one = measure(opened.task, opened.trained)["l0"]
    assert list(one.gradients) == ["h", "c"]
    batch, state = examples.batch(opened.task, opened.trained, range(20))
    assert batch.lengths is not None
    norms = through_time(
        opened.trained.recurrent, lambda: opened.trained.score(batch, state)[0].loss
    )["l0"]["h"]
    longest = batch.lengths == batch.lengths.max()
    assert 0 < longest.sum() < 20
    assert one.gradients["h"][-1] == pytest.approx(float(norms[-1, longest].mean()), rel=1e-5)


@pytest.mark.parametrize("name", small_recipes())
def test_every_task_and_kind_of_unit(runs: Path, name: str) -> None:
    opened = open_run(runs / name)
    layer = opened.trained.recurrent
    for one in measure(opened.task, opened.initial).values():
        assert np.isfinite(one.exponents).all()
        assert one.spans[one.memory].shape == (6,)
        assert set(one.keeping) == (
            {"c"} if "lstm" in name else set() if "simple" in name else {"h"}
        )
        assert all(len(norms) for norms in one.gradients.values())
    assert len(measure(opened.task, opened.initial)) == layer.num_layers * (1 + layer.bidirectional)
