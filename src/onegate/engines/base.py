"""What an engine is, and what it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, ParamSpec, Protocol, TypeAlias, TypeVar

from torch import Tensor

from onegate.language import Graph

_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Direction:
    """One pass over the sequence.

    start: the states before its first step, each (B, size of the state).
    parameters: by the keys of the graph.
    """

    start: tuple[Tensor, ...]
    parameters: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Further:
    """What a run may have beside x, the directions and lengths.

    extras: the inputs of the graph after x, each (T, B, its size); a mask may be of booleans.
    reset: (T, B), True where the states start anew before the step; with one direction only.
    initial: the states they start from then, each (its size,); zero by default.
    all_states: the outputs are all states side by side, not the first alone.
    recompute: keep nothing but the states for the backward pass, which computes the rest anew.
    """

    extras: tuple[Tensor, ...] = ()
    reset: Tensor | None = None
    initial: tuple[Tensor, ...] = ()
    all_states: bool = False
    recompute: bool = False


NOTHING: Final = Further()
# Outputs (T, B, D * n), and per direction the last states, each (B, size).
Result: TypeAlias = tuple[Tensor, tuple[tuple[Tensor, ...], ...]]
Run: TypeAlias = Callable[..., Result]  # as `Engine.run`


class Engine(Protocol):
    """Runs layers of any unit."""

    @property
    def name(self) -> str:
        """By which `engine=` asks for it."""

    def missing(self) -> str | None:
        """Why it cannot run on this machine at all, or None."""

    def problem(self, graph: Graph, x: Tensor, directions: Sequence[Direction]) -> str | None:
        """Why it cannot run `graph` on `x` (T, B, d), or None."""

    def run(
        self,
        graph: Graph,
        x: Tensor,
        directions: Sequence[Direction],
        lengths: Tensor | None,
        further: Further = NOTHING,
    ) -> Result:
        """Runs a layer; the second direction, if there is one, goes backward in time.

        lengths: (B,), or None for T everywhere. Beyond its length a row's output is zero and its
        states stand still. further: is given where it says anything.
        """


def constant(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Marks a function that torch.compile calls while it traces, taking what it returns.

    The mark is that of `torch.compiler.assume_constant_result`, which would import the whole
    compiler: half of the time that `import onegate` then took.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
