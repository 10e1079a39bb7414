"""The problems that are timed: the paper's, those asked for, and sweeps; the arithmetic in them.

Counted are the matrix products that nobody can do without: forward, the gradients of the weights,
and the gradients of what the matrices are applied to where somebody wants them. A multiplication
and its addition are two operations. Pointwise work, and whatever an engine computes again, is not
counted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from onegate.language import Graph
from onegate.tracing import trace
from onegate.units import get


class Unavailable(Exception):  # noqa: N818 - a reason, not a fault
    """A contestant cannot run here, or not on a shape; the message is the reason."""


@dataclass(frozen=True)
class LayerShape:
    """T steps of B rows of `inputs` numbers through layers of n neurons."""

    name: str
    steps: int
    batch: int
    inputs: int
    hidden: int
    layers: int = 1
    bidirectional: bool = False
    input_gradient: bool = False

    @property
    def directions(self) -> int:
        """1, or 2 if bidirectional."""
        return 2 if self.bidirectional else 1

    @property
    def outputs(self) -> int:
        """Width of the layer's output."""
        return self.directions * self.hidden

    def describe(self) -> str:
        """The sizes in words."""
        more = [f"{self.layers} layers"] if self.layers > 1 else []
        more += ["bidirectional"] if self.bidirectional else []
        more += ["with the input's gradient"] if self.input_gradient else []
        sizes = f"T {self.steps}, B {self.batch}, in {self.inputs}, {self.hidden} neurons"
        return ", ".join([sizes, *more])


PAPER: Final = {
    shape.name: shape
    for shape in (
        LayerShape("adding", 55, 100, 2, 100, bidirectional=True),
        LayerShape("imdb", 128, 16, 1, 100),
        LayerShape("mnist_rows", 28, 100, 28, 100),
        LayerShape("mnist_pixels", 784, 100, 1, 100),
        LayerShape("ptb", 35, 20, 500, 500, layers=2, input_gradient=True),
    )
}

_BATCHES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_HIDDEN: Final = (32, 64, 128, 256, 512, 1024)

# The field of a shape that a sweep varies, and the values it takes; `single_`: of one step.
SWEEPS: Final = {
    "steps": (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000),
    "batch": _BATCHES,
    "hidden": _HIDDEN,
    "single_batch": _BATCHES,
    "single_hidden": _HIDDEN,
}
_SINGLE: Final = "single_"
_SINGLE_STEP: Final = LayerShape("single", 1, 20, 256, 256)


def swept_field(sweep: str) -> str:
    """The field that a sweep varies.

    >>> swept_field("single_batch")
    'batch'
    """
    return sweep.removeprefix(_SINGLE)


def parse(text: str) -> LayerShape:
    """A shape from T,B,d,n[,layers][,bi].

    >>> parse("784,100,1,100").steps
    784
    """
    numbers, bidirectional = re.subn(r",bi$", "", text.replace(" ", ""))
    if not re.fullmatch(r"[1-9]\d*(,[1-9]\d*){3,4}", numbers):
        raise ValueError(
            f"{text!r} is not a shape: expected T,B,d,n[,layers][,bi] with whole numbers from 1 "
            "up, such as 28,100,28,100 or 55,100,2,100,1,bi"
        )
    steps, batch, inputs, hidden, *layers = (int(number) for number in numbers.split(","))
    stacked = layers[0] if layers else 1
    return LayerShape(
        text, steps, batch, inputs, hidden, stacked, bidirectional=bool(bidirectional)
    )


def sweep(name: str, base: LayerShape) -> list[LayerShape]:
    """`base`, or a single step, with each value of the swept field; named by it."""
    field = swept_field(name)
    base = _SINGLE_STEP if name.startswith(_SINGLE) else base
    shapes = []
    for size in SWEEPS[name]:
        changes: dict[str, Any] = {field: size}
        shapes.append(replace(base, name=f"{name.replace('_', ' ')} {size}", **changes))
    return shapes


PEAK_SIZE: Final = 1024  # rows and columns of the product that gives the machine's peak
PEAK_OPERATIONS: Final = 2 * PEAK_SIZE**3


@dataclass(frozen=True)
class Work:
    """Operations of the forward and of the backward pass."""

    forward: int
    backward: int

    @property
    def training(self) -> int:
        return self.forward + self.backward


def work(unit: str, shape: LayerShape) -> Work:
    """The operations of all layers and directions of `unit` at `shape`."""
    forward = backward = 0
    width, wanted = shape.inputs, shape.input_gradient
    for _ in range(shape.layers):
        graph = trace(get(unit), width, shape.hidden)
        layer = _layer(graph, shape, wanted)
        forward += shape.directions * layer.forward
        backward += shape.directions * layer.backward
        width, wanted = shape.directions * (graph.states[0].size or 0), True
    return Work(forward, backward)


def _layer(graph: Graph, shape: LayerShape, input_gradient: bool) -> Work:
    """One direction. The states before the first step are given, so nobody wants their gradient."""
    learned = {node for node in graph.nodes if node.op in ("affine", "vector")}
    wanted = learned | {graph.input} if input_gradient else learned
    forward = backward = 0
    for each in graph.maps.values():
        for operand, key in zip(each.operands, each.weights, strict=True):
            a_step = 2 * math.prod(graph.parameters[key]) * shape.batch
            forward += a_step * shape.steps
            backward += a_step * shape.steps  # of the matrix
            if graph.depends_on(operand, wanted):
                backward += a_step * shape.steps
            elif graph.depends_on(operand, graph.states):
                backward += a_step * (shape.steps - 1)
    return Work(forward, backward)


def peak_product() -> Callable[[], object]:
    """The product of two 1024 x 1024 float32 matrices, PEAK_OPERATIONS operations."""
    a, b, c = (torch.randn(PEAK_SIZE, PEAK_SIZE) for _ in range(3))
    return lambda: torch.mm(a, b, out=c)
