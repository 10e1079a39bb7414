"""What an engine is given for each direction of a layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Direction:
    """One pass over the sequence.

    start: the states before its first step, each (B, size of the state).
    parameters: by the keys of the graph.
    """

    start: tuple[Tensor, ...]
    parameters: Mapping[str, Tensor]
