"""Flax's MGUCell as a contestant, where JAX is installed."""

from __future__ import annotations

import importlib
import os
import sys
import types
from typing import Any

import numpy as np
import pytest

from onegate.lab.bench import jax_contestant
from onegate.lab.bench.shapes import LayerShape, parse

pytestmark = pytest.mark.peers


def prepared(shape: LayerShape) -> jax_contestant.Prepared:
    pytest.importorskip("flax")
    draw = np.random.default_rng(0)
    x = draw.normal(size=(shape.steps, shape.batch, shape.inputs)).astype(np.float32)
    grad_out = draw.normal(size=(shape.steps, shape.batch, shape.outputs)).astype(np.float32)
    return jax_contestant.prepare(shape, x, grad_out, threads=1)


@pytest.mark.parametrize("wanted", [False, True])
@pytest.mark.parametrize("text", ["4,3,2,5", "4,3,2,5,2,bi"])
def test_training_step_has_the_wanted_gradients(text: str, wanted: bool) -> None:
    sizes = parse(text)
    shape = LayerShape(text, 4, 3, 2, 5, sizes.layers, sizes.bidirectional, wanted)
    run = prepared(shape)
    import jax

    found: Any = run.train()
    out, gradients = found
    assert out.shape == (4, 3, shape.outputs)
    assert len(gradients) == 1 + wanted
    # in each layer and direction two matrices of x and of h, and three biases
    leaves = jax.tree.leaves(gradients[0])
    numbers = sum(leaf.size for leaf in leaves)
    widths = [2] + [shape.outputs] * (shape.layers - 1)
    assert numbers == shape.directions * sum(2 * 5 * (d + 5) + 3 * 5 for d in widths)
    assert all(np.isfinite(leaf).all() and np.any(leaf) for leaf in leaves)
    if wanted:
        assert gradients[1].shape == (4, 3, 2)
    assert np.asarray(run.infer()) == pytest.approx(np.asarray(out), abs=1e-6)


def test_it_holds_at_least_its_outputs_and_the_gate() -> None:
    assert prepared(parse("4,3,2,5")).held_bytes() >= 4 * 2 * (4 * 3 * 5)


def test_threads_are_limited_before_jax_starts_and_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Jax(types.ModuleType):
        class config:  # noqa: N801 - as jax has it
            update = staticmethod(lambda name, value: None)

    monkeypatch.setattr(sys, "modules", {k: m for k, m in sys.modules.items() if k != "jax"})
    monkeypatch.setenv("NPROC", "7")
    monkeypatch.setitem(sys.modules, "jax", Jax("jax"))
    jax_contestant._jax(threads=3)
    assert os.environ["NPROC"] == "7"
    assert "JAX had started before" in jax_contestant.thread_note(3)

    monkeypatch.delitem(sys.modules, "jax")
    monkeypatch.setattr(importlib, "import_module", lambda name: Jax(name))
    jax_contestant._jax(threads=3)
    assert os.environ["NPROC"] == "3"
    assert jax_contestant.thread_note(3) == "JAX runs on its own 3 threads"
