"""How long a neuron remembers: told by its gate, and measured by disturbing its input."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from onegate.engines import reference
from onegate.engines.base import Direction
from onegate.probe.traces import Pass

# A step holds a neuron if it keeps more than this share of it, and overwrites it if it keeps less
# than the rest; a neuron with either at more than this share of the steps is of that kind.
MOSTLY = 0.9


@dataclass(frozen=True, eq=False)
class Keeping:
    """How a state is kept, neuron by neuron, all (size,).

    share: mean share of the old value that a step keeps.
    span: 1 / (1 - share), the memory in steps; a neuron that writes the constant share f at every
        step remembers 1 / f steps.
    held, overwritten: at how many of the steps, as a share, it keeps more than 0.9 or less than
        0.1.
    """

    share: Tensor
    span: Tensor
    held: Tensor
    overwritten: Tensor

    @property
    def hardly_moves(self) -> Tensor:
        """Neurons that nearly all steps leave nearly as they are."""
        return self.held > MOSTLY

    @property
    def always_overwrites(self) -> Tensor:
        """Neurons of which nearly all steps leave nearly nothing."""
        return self.overwritten > MOSTLY


def keeping(one: Pass) -> dict[str, Keeping]:
    """By state, how the gate values of a pass keep it, over all its steps and sequences.

    States that are kept by a matrix alone are left out.
    """
    inside = one.inside
    found = {}
    for state, shares in one.kept.items():
        kept = shares[inside].double()  # (steps of all sequences, size)
        share = kept.mean(0)
        # A sum of numbers such as 1 - f may miss 1 by its last digit.
        lost = (1 - share).clamp(min=0)
        lost[lost < 1e-12] = 0
        found[state] = Keeping(
            share,
            1 / lost,
            (kept > MOSTLY).double().mean(0),
            (kept < 1 - MOSTLY).double().mean(0),
        )
    return found


def measured_spans(one: Pass, disturbances: int = 4) -> dict[str, Tensor]:
    """By state, the memory of each neuron (size,) in steps, measured by disturbing the input.

    The input is disturbed a little in a random direction at some steps of the first half of each
    sequence. If r[k] is how strongly a neuron responds k steps later (the mean size of its change,
    by the derivative), its span is the mean of k + 1, weighted by r. It is 1 / f for a neuron that
    writes a constant share f and sees no other, and can never be longer than the rest of the
    sequence: a neuron with a longer memory comes out shorter. One that never responds has NaN.
    """
    places = torch.linspace(0, 0.5, disturbances + 1)[:-1]
    at = (places[:, None] * one.inside.sum(0).cpu()).long().flatten()  # (disturbances * B,)
    responses = _responses(one, at, disturbances)
    inside = one.inside.repeat(1, disturbances)
    lag = (torch.arange(len(inside))[:, None] - at + 1).to(inside.device).double()
    counts = (inside & (lag > 0)).unsqueeze(-1)
    found = {}
    for name, response in zip(one.graph.unit.states, responses, strict=True):
        strength = torch.where(counts, response.abs().double(), 0.0)
        total = strength.sum((0, 1))
        found[name] = (strength * lag.unsqueeze(-1)).sum((0, 1)) / total
    return found


def _responses(one: Pass, at: Tensor, disturbances: int) -> tuple[Tensor, ...]:
    """Derivative of each state (T, disturbances * B, size) by a random change of the input.

    at: the step of the change, by row of a batch that is repeated `disturbances` times.
    """
    x = one.own_order(one.input).detach().repeat(1, disturbances, 1)
    steps, rows, width = x.shape
    change = torch.zeros(steps, rows, width)
    change[at, torch.arange(rows)] = torch.randn(
        rows, width, generator=torch.Generator().manual_seed(0)
    )
    direction = Direction(
        tuple(state.detach().repeat(disturbances, 1) for state in one.start),
        {key: value.detach() for key, value in one.parameters.items()},
    )
    lengths = one.inside.sum(0).repeat(disturbances)

    def states(x: Tensor) -> tuple[Tensor, ...]:
        seen: list[list[Tensor]] = [[x] * steps for _ in one.graph.results]

        def watch(_: int, t: int, values: reference.Values) -> None:
            for place, result in enumerate(one.graph.results):
                seen[place][t] = values[result]

        reference.run(one.graph, x, [direction], lengths, watch=watch)
        return tuple(torch.stack(state) for state in seen)

    responses: tuple[Tensor, ...] = torch.func.jvp(states, (x,), (change.to(x),))[1]
    return responses
