"""Dropout inside the recurrence: which masks a layer has, and how they are drawn.

A mask is drawn from one number of torch's generator, by a hash of that number and the place of
each element: the same on every engine, and in parallel. A probability is a multiple of 2^-32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from onegate.engines.cpu import pool
from onegate.engines.cpu.native import library
from onegate.engines.cpu.operator import alone
from onegate.language import Graph, Unit, UnitError
from onegate.lowering.masks import masked
from onegate.nn import arguments

_WORD = 0xFFFFFFFF
_NATIVE = (torch.bool, torch.float32, torch.float64)


@dataclass(frozen=True)
class Dropouts:
    """The probabilities of one layer; see `onegate.Recurrent`. zoneout: by state."""

    input: float
    recurrent: float
    candidate: float
    zoneout: tuple[tuple[str, float], ...]
    weights: float

    @classmethod
    def of(
        cls, unit: Unit, on_input: Any, recurrent: Any, candidate: Any, zoneout: Any, weights: Any
    ) -> Dropouts:
        """Checks what a layer was given."""
        shares = zoneout if isinstance(zoneout, Mapping) else dict.fromkeys(unit.states, zoneout)
        if unknown := [name for name in shares if name not in unit.states]:
            raise ValueError(
                f"zoneout: {unit.name} has no state {unknown[0]!r}, only {', '.join(unit.states)}"
            )
        zoned = {name: arguments.probability("zoneout", share) for name, share in shares.items()}
        return cls(
            arguments.probability("input_dropout", on_input),
            arguments.probability("recurrent_dropout", recurrent),
            arguments.probability("candidate_dropout", candidate),
            tuple((name, share) for name, share in zoned.items() if share),
            arguments.probability("weight_drop", weights),
        )

    def __bool__(self) -> bool:
        some = self.input or self.recurrent or self.candidate or self.zoneout or self.weights
        return bool(some)

    def check(self, graph: Graph) -> None:
        """Refuses what has no meaning for the unit."""
        self.graph(graph, training=True)
        if self.weights and not any(map(_is_recurrent, graph.parameters)):
            raise UnitError(
                f"{graph.unit.name} cannot have weight_drop: no matrix of it maps a state"
            )

    def graph(self, graph: Graph, training: bool) -> Graph:
        """`graph` with the masks that it has in training, or in evaluation."""
        kinds = tuple(f"zoneout_{name}" for name, _ in self.zoneout)
        if training:
            kinds += ("recurrent",) * (self.recurrent > 0) + ("candidate",) * (self.candidate > 0)
        return masked(graph, kinds)

    def masks(self, graph: Graph, x: Tensor, training: bool) -> tuple[Tensor, ...]:
        """For each mask of `graph` numbers (T, B, its size), in the dtype of `x` (T, B, d).

        Where zoneout leaves a state alone there are booleans, a quarter of the memory.
        """
        steps, rows = x.shape[:2]
        zoneout = {f"zoneout_{name}": share for name, share in self.zoneout}
        drawn = []
        for node in graph.inputs[len(graph.unit.inputs) :]:
            size = node.size or 0
            if node.name in zoneout:
                share = zoneout[node.name]
                if training:
                    mask = draw((steps, rows, size), 1 - share, x.new_empty(0, dtype=torch.bool))
                else:  # the mean of both
                    mask = x.new_full((1, 1, size), share).expand(steps, rows, size)
            elif node.name.startswith("recurrent"):
                mask = _scaled((1, rows, size), self.recurrent, x).expand(steps, rows, size)
            else:
                mask = _scaled((steps, rows, size), self.candidate, x)
            drawn.append(mask)
        return tuple(drawn)

    def of_input(self, x: Tensor, training: bool) -> Tensor:
        """The input with one mask for all steps."""
        if not self.input or not training:
            return x
        return x * _scaled((1, *x.shape[1:]), self.input, x)

    def of_weights(self, parameters: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The parameters, with elements of the recurrent matrices dropped."""
        return {
            key: F.dropout(value, self.weights) if _is_recurrent(key) else value
            for key, value in parameters.items()
        }


def _is_recurrent(key: str) -> bool:
    """Whether a parameter is a matrix that maps a state, or what is computed from one."""
    return key.rpartition(".")[2].partition("_")[0] == "U"


def _scaled(shape: tuple[int, ...], dropped: float, like: Tensor) -> Tensor:
    """Zero with the probability `dropped`, else what keeps the mean at 1."""
    return draw(shape, dropped, like, 1 / (1 - dropped) if dropped < 1 else 0.0)


def draw(shape: tuple[int, ...], zero: float, like: Tensor, other: float = 1.0) -> Tensor:
    """A tensor of `like`'s dtype: 0 with the probability `zero`, else `other`."""
    seed = torch.randint(1 << 32, (2,), device=like.device)
    count, limit = torch.Size(shape).numel(), round(zero * (1 << 32))
    eager = not torch.compiler.is_compiling() and alone([seed])
    if like.is_cpu and like.dtype in _NATIVE and limit and eager:
        native = library().functions
        if native is not None:
            mask = pool.empty(shape, like)
            bits, (first, second) = 8 * mask.element_size(), seed.tolist()
            native.og_fill_mask(mask.data_ptr(), bits, count, first, second, limit - 1, other)
            return mask
    # The end of MurmurHash3 (Appleby 2011) with the second word of the seed in it.
    x = (torch.arange(count, device=like.device) * 0x9E3779B1 + seed[0]) & _WORD
    x = (x ^ (x >> 16)) * 0x85EBCA6B & _WORD
    x = (x ^ (x >> 13) ^ seed[1]) * 0xC2B2AE35 & _WORD
    return torch.where((x ^ (x >> 16)) < limit, 0.0, other).to(like.dtype).view(shape)
