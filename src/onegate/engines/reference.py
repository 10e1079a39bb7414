"""The reference engine: plain torch operations in a loop over the steps.

Any device, any dtype, any order of derivative, `torch.func` transforms, autocast. The other
engine is tested against this one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from onegate.engines.base import NOTHING, Direction, Engine, Further
from onegate.language import Graph, Value
from onegate.lowering.stages import MapProduct, Projection, Stages, stages
from onegate.ops import OPERATIONS

Values: TypeAlias = dict[Value, Any]  # a tensor for every node, a float for a constant
Parameters: TypeAlias = Mapping[str, Tensor]
# Called after each step with the direction's place (0 or 1), the step t, and the values of all
# nodes: (B, size) at t, (T, B, size) of what the loop does not need, (size,) of what is learned.
Watch: TypeAlias = Callable[[int, int, Values], None]


def run(
    graph: Graph,
    x: Tensor,
    directions: Sequence[Direction],
    lengths: Tensor | None,
    further: Further = NOTHING,
    watch: Watch | None = None,
) -> tuple[Tensor, tuple[tuple[Tensor, ...], ...]]:
    """All outputs (T, B, D * n), and per direction the last states, each (B, size).

    x: (T, B, d). directions: one, or two of which the second runs backward in time.
    lengths: (B,), or None for T everywhere. Beyond its length a row's output is zero and its
    states stand still: so the last states are those at the length, and the backward direction
    starts at each row's own end.
    """
    x, directions, further = _as_autocast(x, directions, further)
    inputs, inside = (x, *(given.to(x.dtype) for given in further.extras)), None
    if lengths is not None:
        inside = (torch.arange(x.shape[0], device=x.device)[:, None] < lengths).unsqueeze(-1)
        # Padding may hold anything: a NaN there must not reach a gradient.
        inputs = tuple(torch.where(inside, given, 0.0) for given in inputs)
        if further.reset is not None:
            further = replace(further, reset=further.reset & inside.squeeze(-1))
    passes = [
        _one_pass(
            graph,
            inputs,
            direction,
            inside,
            further,
            place == 1,
            watch and functools.partial(watch, place),
        )
        for place, direction in enumerate(directions)
    ]
    outputs, lasts = zip(*passes, strict=True)
    out = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
    return (out if inside is None else torch.where(inside, out, 0.0)), lasts


def _one_pass(
    graph: Graph,
    inputs: tuple[Tensor, ...],
    direction: Direction,
    inside: Tensor | None,
    further: Further,
    backward: bool,
    watch: Callable[[int, Values], None] | None = None,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Outputs (T, B, n) in the order of time, and the states after the last step taken."""
    # torch.compile looks through the cache, and warns of it.
    schedule = (stages.__wrapped__ if torch.compiler.is_compiling() else stages)(graph)
    steps = inputs[0].shape[0]
    parameters = {key: _dense(value) for key, value in direction.parameters.items()}
    values = _known(graph, inputs, parameters)
    sums = _before(schedule, values, parameters)
    over_time = [(n, values[n].unbind(0)) for n in schedule.given if _varies(values[n])]
    products = {
        product: (_each_step(sums.get(product), steps), _factors(product, parameters))
        for product in schedule.step
        if isinstance(product, MapProduct)
    }

    def step(t: int, *states: Tensor) -> tuple[Tensor, ...]:
        if further.reset is not None:
            first = further.initial or [s.new_zeros(()) for s in states]
            again = further.reset[t].unsqueeze(-1)
            states = tuple(torch.where(again, i, s) for i, s in zip(first, states, strict=True))
        values.update(zip(graph.states, states, strict=True))
        values.update((node, each[t]) for node, each in over_time)
        for stage in schedule.step:
            if isinstance(stage, Value):
                values[stage] = _pointwise(stage, values)
            else:
                projected, factors = products[stage]
                _share_out(_sum(projected[t], factors, values), stage, values)
        if watch is not None:
            watch(t, values)
        new = tuple(values[result] for result in graph.results)
        if inside is None:
            return new
        return tuple(torch.where(inside[t], n, s) for n, s in zip(new, states, strict=True))

    states, outputs = direction.start, []
    for t in reversed(range(steps)) if backward else range(steps):
        if further.recompute and torch.is_grad_enabled():
            states = checkpoint(step, t, *states, use_reentrant=False, preserve_rng_state=False)
        else:
            states = step(t, *states)
        outputs.append(torch.cat(states, -1) if further.all_states else states[0])
    return torch.stack(outputs[::-1] if backward else outputs), states


def _known(graph: Graph, inputs: Sequence[Tensor], parameters: Parameters) -> Values:
    """The inputs, the numbers and the learned vectors."""
    values: Values = dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        if node.op == "constant":
            values[node] = node.number
        elif node.op == "vector":
            values[node] = parameters[node.name]
    return values


def _factors(product: MapProduct, parameters: Parameters) -> list[tuple[Value, Tensor]]:
    """Each operand, and its matrix (size of the operand, size of the results)."""
    return [
        (operand, _joined(keys, parameters).t())
        for operand, keys in zip(product.operands, product.weights, strict=True)
    ]


def _before(schedule: Stages, values: Values, parameters: Parameters) -> dict[MapProduct, Tensor]:
    """Computes into `values` what depends on no state; returns the sums that products add to."""
    sums: dict[MapProduct, Tensor] = {}
    for stage in schedule.before:
        if isinstance(stage, Value):
            values[stage] = _pointwise(stage, values)
        elif (total := _projected(stage, values, parameters)) is not None:
            widths = [sum(product.sizes) for product in stage.products]
            for product, part in zip(
                stage.products, total.split_with_sizes(widths, -1), strict=True
            ):
                if product.operands:
                    sums[product] = part
                else:
                    _share_out(part, product, values)
    return sums


def _projected(stage: Projection, values: Values, parameters: Parameters) -> Tensor | None:
    """The sum of biases and products, (T, B, all results); None where there is neither."""
    total = _joined(stage.biases, parameters) if stage.biases else None
    for operand, keys in zip(stage.operands, stage.weights, strict=True):
        weight = _joined(keys, parameters)
        if total is None or total.dim() == 1:
            total = F.linear(values[operand], weight, total)
        else:
            total = total + F.linear(values[operand], weight)
    return total


def _sum(total: Tensor | None, factors: Iterable[tuple[Value, Tensor]], values: Values) -> Tensor:
    """`total` plus the products of the step, (B, all results)."""
    for operand, matrix in factors:
        v = values[operand]
        total = v @ matrix if total is None else torch.addmm(total, v, matrix)
    assert total is not None
    return total


def _share_out(total: Tensor, product: MapProduct, values: Values) -> None:
    """Gives each map of a product its part of the result."""
    if len(product.nodes) == 1:
        values[product.nodes[0]] = total
    else:
        values.update(zip(product.nodes, total.split_with_sizes(product.sizes, -1), strict=True))


def _pointwise(node: Value, values: Values) -> Tensor:
    result: Tensor = OPERATIONS[node.op].compute(*[values[a] for a in node.args])
    return result


def _joined(keys: Iterable[str], parameters: Parameters) -> Tensor:
    tensors = [parameters[key] for key in keys]
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors)


def _varies(value: Any) -> bool:
    """Whether a value has a time axis: learned vectors and what comes of them alone have none."""
    return isinstance(value, Tensor) and value.dim() == 3


def _each_step(value: Tensor | None, steps: int) -> Sequence[Tensor | None]:
    return value.unbind(0) if value is not None and _varies(value) else [value] * steps


def _dense(matrix: Tensor) -> Tensor:
    """A map with heads as one matrix, zero outside of the blocks on its diagonal."""
    return torch.block_diag(*matrix.unbind(0)) if matrix.dim() == 3 else matrix


def _as_autocast(
    x: Tensor, directions: Sequence[Direction], further: Further
) -> tuple[Tensor, Sequence[Direction], Further]:
    """Everything in autocast's dtype where it is on; like torch's own, it leaves float64 alone."""
    kind = x.device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return x, directions, further
    if x.dtype == torch.float64:
        return x, directions, further
    dtype = torch.get_autocast_dtype(kind)
    directions = [
        Direction(
            tuple(state.to(dtype) for state in direction.start),
            {key: value.to(dtype) for key, value in direction.parameters.items()},
        )
        for direction in directions
    ]
    extras, initial = (
        tuple(t.to(dtype) for t in tensors) for tensors in (further.extras, further.initial)
    )
    return x.to(dtype), directions, replace(further, extras=extras, initial=initial)


class _Reference:
    name = "reference"

    def missing(self) -> None:
        return None

    def problem(self, graph: Graph, x: Tensor, directions: Sequence[Direction]) -> None:  # noqa: ARG002
        return None

    run = staticmethod(run)


ENGINE: Final[Engine] = _Reference()
