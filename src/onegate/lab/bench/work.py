"""How much arithmetic the matrix products of a unit are, counted from its equations.

Counted are the products that nobody can do without: forward, the gradients of the weights, and the
gradients of what the matrices are applied to where somebody wants them. A multiplication and its
addition are two operations. Pointwise work, and whatever an engine computes again, is not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch

from onegate.lab.bench.shapes import Shape
from onegate.language import Graph
from onegate.tracing import trace
from onegate.units import get

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


def work(unit: str, shape: Shape) -> Work:
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


def _layer(graph: Graph, shape: Shape, input_gradient: bool) -> Work:
    """One direction. The states before the first step are given, so nobody wants their gradient."""
    learned = {node for node in graph.nodes if node.op in ("affine", "vector")}
    wanted = learned | {graph.input} if input_gradient else learned
    forward = backward = 0
    for each in graph.maps.values():
        for operand, key in zip(each.operands, each.weights, strict=True):
            rows, columns = graph.parameters[key]
            a_step = 2 * rows * columns * shape.batch
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
