"""Derivatives through time: of the loss by earlier states, and of a step by the state before it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from onegate.engines import reference
from onegate.engines.base import Direction
from onegate.nn.layers import Recurrent
from onegate.probe.traces import Pass, Watched, watching
from onegate.properties import kept


def through_time(layer: Recurrent, loss: Callable[[], Tensor]) -> dict[str, dict[str, Tensor]]:
    """The length of dL/dh[t] at every step, by pass and state, (T, B).

    loss: calls the layer once and returns L, the sum over the sequences of a batch, so that each
    sequence has a gradient of its own. The derivatives are total: they hold what h[t] does to all
    later steps. Of a unit with several states these are the output and those that are kept
    without a matrix in between, h and c of LSTM.

    >>> through_time(layer, lambda: layer(x)[0][-1].square().sum())["l0"]["h"]
    """
    with torch.enable_grad(), watching(layer) as watched:
        value = loss()
    places = [(each, state) for each in watched for state in _followed(each)]
    tensors = [tensor for each, state in places for tensor in each.steps[state]]
    gradients = iter(torch.autograd.grad(value, tensors, materialize_grads=True))
    found: dict[str, dict[str, Tensor]] = {}
    for each, state in places:
        norms = [next(gradients).norm(dim=-1) for _ in each.steps[state]]
        found.setdefault(each.name, {})[state] = torch.stack(norms)
    return found


def _followed(watched: Watched) -> list[str]:
    output, *others = watched.graph.unit.states
    return [output, *(state for state in others if state in kept(watched.graph))]


_ROWS_AT_ONCE = 64


def step_jacobians(one: Pass, steps: Sequence[int] | None = None) -> Tensor:
    """ds[t] / ds[t-1] for all sequences at some steps (all by default), (steps, B, N, N).

    s holds all states of the unit one after the other, N numbers: h for MGU, h and c for LSTM.
    steps: counted in the order in which the pass reads.
    """
    before, x = _states(one), one.own_order(one.input).detach()
    if steps is not None:
        before, x = before[list(steps)], x[list(steps)]
    lead = before.shape[:2]

    def step(state: Tensor, x: Tensor) -> Tensor:
        return _step(one, state.unsqueeze(0), x.unsqueeze(0)).squeeze(0)

    jacobian = torch.func.vmap(torch.func.jacrev(step), chunk_size=_ROWS_AT_ONCE)
    found: Tensor = jacobian(before.flatten(0, 1), x.flatten(0, 1))
    return found.reshape(*lead, *found.shape[1:])


def lyapunov_exponents(one: Pass) -> Tensor:
    """The largest Lyapunov exponent along each sequence, (B,): growth of differences per step.

    A random difference between states is carried along by the steps' derivatives, and brought back
    to length 1 after each; the exponent is the mean of the logarithms of its lengths. The first
    tenth of the steps, in which it turns into the direction that grows most, does not count.
    Below 0 differences die out, above 0 they explode; log(1 - f) for a constant gate f.
    """
    before, x = _states(one), one.own_order(one.input).detach()
    generator = torch.Generator().manual_seed(0)
    difference = torch.randn(before.shape[1:], generator=generator).to(before)
    lengths = one.inside.sum(0)
    skipped = lengths // 10
    total = torch.zeros(before.shape[1], dtype=torch.float64, device=before.device)
    for t in range(len(x)):
        # A difference that a step wipes out stays gone: its exponent is minus infinity.
        norm = difference.norm(dim=-1, keepdim=True).clamp(min=torch.finfo(before.dtype).tiny)
        step = functools.partial(_step, one, x=x[t])
        difference = torch.func.jvp(step, (before[t],), (difference / norm,))[1]
        growth = difference.norm(dim=-1).double().log()
        total += torch.where((t >= skipped) & (t < lengths), growth, 0.0)
    return total / (lengths - skipped)


def _states(one: Pass) -> Tensor:
    """All states before each step side by side, (T, B, N), in the order of the pass."""
    parts = [one.own_order(one.before(state)) for state in one.graph.unit.states]
    return torch.cat(parts, -1).detach()


def _step(one: Pass, states: Tensor, x: Tensor) -> Tensor:
    """One step of the reference engine: (B, N) states and (B, d) input -> (B, N)."""
    sizes = [state.size or 0 for state in one.graph.states]
    parameters = {key: value.detach() for key, value in one.parameters.items()}
    direction = Direction(tuple(states.split(sizes, -1)), parameters)
    _, (new,) = reference.run(one.graph, x.unsqueeze(0), [direction], None)
    return torch.cat(new, -1)
