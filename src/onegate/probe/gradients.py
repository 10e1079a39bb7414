"""How the loss depends on the states of earlier steps: gradients through time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from onegate.nn.layers import Recurrent
from onegate.probe.traces import Watched, watching
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
