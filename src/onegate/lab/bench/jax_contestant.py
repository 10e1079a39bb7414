"""Flax's MGUCell under jit. Nothing else here knows of JAX, which is imported when it is used."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegate.lab.bench.shapes import LayerShape, Unavailable

# XLA reads it when it starts its threads.
_THREADS_VARIABLE = "NPROC"


@dataclass(frozen=True)
class Prepared:
    """Functions under jit, compiled at their first call, and the bytes held for backward."""

    train: Callable[[], object]
    infer: Callable[[], object]
    held_bytes: Callable[[], int]


def prepare(
    shape: LayerShape, x: NDArray[np.float32], grad_out: NDArray[np.float32], threads: int
) -> Prepared:
    """A stack of `flax.linen.RNN(MGUCell)`, the time axis first.

    x: (T, B, d). grad_out: (T, B, D * n), the gradient from which the training step starts.
    """
    jax = _jax(threads)
    model = _stack(shape)
    inputs, gradient = jax.numpy.asarray(x), jax.numpy.asarray(grad_out)
    parameters = model.init(jax.random.key(0), inputs)

    def forward(parameters: Any, inputs: Any) -> Any:
        """The output, and the function from its gradient to those that are wanted."""
        if shape.input_gradient:
            return jax.vjp(model.apply, parameters, inputs)
        return jax.vjp(lambda p: model.apply(p, inputs), parameters)

    def forward_and_backward(parameters: Any, inputs: Any, gradient: Any) -> Any:
        out, pull_back = forward(parameters, inputs)
        return out, pull_back(gradient)

    training, inference = jax.jit(forward_and_backward), jax.jit(model.apply)

    def held_bytes() -> int:
        _, pull_back = forward(parameters, inputs)
        kept = {_address(leaf): leaf.nbytes for leaf in jax.tree.leaves(pull_back)}
        for parameter in jax.tree.leaves(parameters):
            kept.pop(_address(parameter), None)
        return sum(kept.values())

    return Prepared(
        lambda: jax.block_until_ready(training(parameters, inputs, gradient)),
        lambda: jax.block_until_ready(inference(parameters, inputs)),
        held_bytes,
    )


def thread_note(threads: int) -> str:
    """What is to be said about JAX's threads, after it has started."""
    limited = os.environ.get(_THREADS_VARIABLE)
    if limited == str(threads):
        return f"JAX runs on its own {threads} threads"
    return (
        f"JAX had started before with {limited or 'all cores'} as its number of threads, "
        f"the others run on {threads}"
    )


def _jax(threads: int) -> Any:
    """The module, on the CPU and with so many threads where it has not started yet."""
    if "jax" not in sys.modules:
        os.environ[_THREADS_VARIABLE] = str(threads)
    jax = importlib.import_module("jax")
    jax.config.update("jax_platforms", "cpu")
    return jax


def _stack(shape: LayerShape) -> Any:
    """The layers as one Flax module."""
    from flax import linen

    if not hasattr(linen, "MGUCell"):
        raise Unavailable("this Flax has no MGUCell: install flax>=0.10")

    def one_way() -> Any:
        return linen.RNN(linen.MGUCell(shape.hidden), time_major=True)

    def layer() -> Any:
        if shape.bidirectional:
            return linen.Bidirectional(one_way(), one_way(), time_major=True)
        return one_way()

    return linen.Sequential([layer() for _ in range(shape.layers)])


def _address(array: Any) -> int:
    address: int = array.unsafe_buffer_pointer()
    return address
