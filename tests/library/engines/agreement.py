"""One run of an engine with all its gradients, to be held against the float64 reference."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from onegate.engines import reference
from onegate.engines.base import Direction, Run
from onegate.engines.cpu import operator as fused
from onegate.language import Graph
from tests.library.comparing import TOLERANCE

Found = dict[str, Tensor]


@dataclass(frozen=True)
class Problem:
    """A graph, and leaves for it by name: "x", "start 0 h", "parameter 1 f.U", ...

    Numbers are the direction's. lengths: one per row, or None.
    """

    graph: Graph
    leaves: Mapping[str, Tensor]
    lengths: Tensor | None = None

    @property
    def directions(self) -> int:
        return sum(name.startswith(f"start {d} ") for d in (0, 1) for name in self.leaves) // len(
            self.graph.states
        )

    def to(self, dtype: torch.dtype) -> Problem:
        return replace(self, leaves={n: t.to(dtype) for n, t in self.leaves.items()})


def problem(
    graph: Graph,
    steps: int,
    rows: int,
    directions: int = 1,
    lengths: Sequence[int] | None = None,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
) -> Problem:
    """Random leaves; matrices are scaled so that sequences neither explode nor die."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype)

    leaves = {"x": draw(steps, rows, graph.input_size)}
    for d in range(directions):
        for state in graph.states:
            leaves[f"start {d} {state.name}"] = draw(rows, state.size or 0)
            if state.name == "n":  # a normaliser, which is divided by
                leaves[f"start {d} {state.name}"].abs_().add_(1)
        for key, shape in graph.parameters.items():
            scale = shape[1] ** -0.5 if len(shape) == 2 else 0.5
            leaves[f"parameter {d} {key}"] = scale * draw(*shape)
            if key == "nu":  # FastGRNN's, which starts there; at 0 its state grows without bound
                leaves[f"parameter {d} {key}"] -= 4
    return Problem(graph, leaves, None if lengths is None else torch.tensor(lengths))


def evaluate(
    run: Run, given: Problem, used: str = "out last", needed: Collection[str] | None = None
) -> Found:
    """Outputs, and gradients of the leaves `needed` (all by default) of a random sum of `used`."""
    graph = given.graph
    leaves = {
        name: leaf.detach().clone().requires_grad_(needed is None or name in needed)
        for name, leaf in given.leaves.items()
    }
    directions = [
        Direction(
            tuple(leaves[f"start {d} {state.name}"] for state in graph.states),
            {key: leaves[f"parameter {d} {key}"] for key in graph.parameters},
        )
        for d in range(given.directions)
    ]
    out, lasts = run(graph, leaves["x"], directions, given.lengths)
    outputs = {"out": out} | {
        f"last {d} {state.name}": last
        for d, each in enumerate(lasts)
        for state, last in zip(graph.states, each, strict=True)
    }
    found = {name: tensor.detach() for name, tensor in outputs.items()}
    wanted = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
    generator = torch.Generator().manual_seed(1)
    weights = {n: torch.randn(t.shape, generator=generator).to(t) for n, t in outputs.items()}
    chosen = [n for n, t in outputs.items() if t.requires_grad and n.split()[0] in used.split()]
    grads: Sequence[Tensor] = [torch.zeros_like(leaf) for leaf in wanted.values()]
    if chosen:
        grads = torch.autograd.grad(
            [outputs[n] for n in chosen],
            list(wanted.values()),
            [weights[n] for n in chosen],
            materialize_grads=True,
        )
    found |= {f"gradient of {name}": g for name, g in zip(wanted, grads, strict=True)}
    return found


def assert_agree(ours: Found, truth: Found) -> None:
    """Everywhere finite, and equal within the dtype's tolerance of the largest element."""
    assert list(ours) == list(truth)
    for name, tensor in ours.items():
        expected = truth[name]
        assert tensor.shape == expected.shape, name
        assert tensor.isfinite().all(), f"{name} is not finite"
        scale = max(1.0, float(expected.abs().max()))
        error = float((tensor.double() - expected).abs().max()) / scale
        tolerance = TOLERANCE[tensor.dtype]
        assert error <= tolerance, f"{name} is off by {error:.2e}, allowed is {tolerance:.0e}"


def check(given: Problem, **how: Any) -> None:
    """The fused engine, in the problem's own dtype, against the reference in float64."""
    ours = evaluate(fused.run, given, **how)
    assert_agree(ours, evaluate(reference.run, given.to(torch.float64), **how))
