"""A plain interpreter of the integers that the native engine reads: one step, on torch tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor

from onegate.lowering.spec import SPACES
from onegate.ops import OPERATIONS, SUMS

_NAMES: Final = {row.opcode: name for name, row in OPERATIONS.items() if row.opcode is not None}

Place = tuple[str, int]


@dataclass
class _Step:
    """One direction of the step."""

    slots: list[tuple[str, int, int]]
    stages: list[Any]


@dataclass
class Gradients:
    """Of a step: by input, states and parameters."""

    x: Tensor
    states: list[Tensor]
    parameters: list[Tensor]


@dataclass
class Machine:
    """A program as `Program.encode` gives it."""

    code: Sequence[int]
    constants: Sequence[float]
    _at: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._next()  # the format
        (self.input,) = self._list()
        self.states = self._list()
        self.shapes = [(self._next(), self._next(), self._next()) for _ in range(self._next())]
        self.kept = self._list()
        assert self._next() == len(self.constants)
        self.steps = [self._step(), self._step()]
        self.maps = [self._map() for _ in range(self._next())]
        assert self._at == len(self.code), "integers are left over"

    def _next(self) -> int:
        self._at += 1
        return self.code[self._at - 1]

    def _list(self) -> list[int]:
        return [self._next() for _ in range(self._next())]

    def _step(self) -> _Step:
        slots = [(SPACES[self._next()], self._next(), self._next()) for _ in range(self._next())]
        self._list(), self._list()  # widths of scratch
        return _Step(slots, [self._stage() for _ in range(self._next())])

    def _stage(self) -> Any:
        if self._next() == 1:
            dst, init = self._next(), self._next()
            return dst, init, [(self._next(), self._next()) for _ in range(self._next())]
        return [
            (_NAMES[self._next()], self._next(), [self._next() for _ in range(3)])
            for _ in range(self._next())
        ]

    def _map(self) -> Any:
        output, bias = self._next(), self._next()
        return output, bias, [(self._next(), self._next()) for _ in range(self._next())]

    def forward(
        self, x: Tensor, states: Sequence[Tensor], parameters: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """(B, d), each (B, size), all parameters -> new states, kept values."""
        places = self._given(x, states, parameters)
        self._run(self.steps[0], places, parameters, transposed=True)
        new = [places["next", i] for i in range(len(self.states))]
        return new, [places["keep", i] for i in range(len(self.kept))]

    def backward(
        self,
        x: Tensor,
        states: Sequence[Tensor],
        parameters: Sequence[Tensor],
        results: tuple[Sequence[Tensor], Sequence[Tensor]],
        grads: Sequence[Tensor],
    ) -> Gradients:
        """results: of `forward`; grads: of the new states."""
        places = self._given(x, states, parameters)
        for space, tensors in zip(("next", "keep", "grad_next"), (*results, grads), strict=True):
            places |= {(space, i): tensor for i, tensor in enumerate(tensors)}
        step = self.steps[1]
        sums = self._run(step, places, parameters, transposed=False)
        found = Gradients(
            places.get(("grad_input", 0), torch.zeros_like(x)),
            [places["grad_prev", i] for i in range(len(self.states))],
            [sums.get(i, torch.zeros_like(p)) for i, p in enumerate(parameters)],
        )
        for output, bias, operands in self.maps:
            gradient = self._read(step, places, output)
            if bias >= 0:
                found.parameters[bias] = gradient.sum(0)
            for slot, matrix in operands:
                slopes = gradient.T @ self._read(step, places, slot)
                found.parameters[matrix] = _blocks(slopes, parameters[matrix])
                if step.slots[slot][0] == "input":
                    found.x = found.x + gradient @ whole(parameters[matrix])
        return found

    def _given(
        self, x: Tensor, states: Sequence[Tensor], parameters: Sequence[Tensor]
    ) -> dict[Place, Tensor]:
        rows = len(x)
        places: dict[Place, Tensor] = {("input", 0): x}
        places |= {("prev", i): state for i, state in enumerate(states)}
        for i, parameter in enumerate(parameters):
            if parameter.dim() == 1:
                places["vector", i] = parameter.expand(rows, -1)
        return places

    def _read(self, step: _Step, places: dict[Place, Tensor], slot: int) -> Tensor:
        space, index, width = step.slots[slot]
        if space == "constant":
            return torch.tensor(self.constants[index], dtype=places["input", 0].dtype).expand(
                len(places["input", 0]), width
            )
        value = places[space, index]  # a KeyError is a read before the first write
        assert value.shape[-1] == width
        return value

    def _run(
        self,
        step: _Step,
        places: dict[Place, Tensor],
        parameters: Sequence[Tensor],
        transposed: bool,
    ) -> dict[int, Tensor]:
        """Works through the stages; the sums of reductions, by parameter."""
        sums: dict[int, Tensor] = {}
        for stage in step.stages:
            if isinstance(stage, tuple):
                dst, init, terms = stage
                added = [] if init < 0 else [self._read(step, places, init)]
                for slot, key in terms:
                    # The engine reads all columns of an operand for every column of the result.
                    assert step.slots[slot] != step.slots[dst]
                    matrix = whole(parameters[key])
                    matrix = matrix.T if transposed else matrix
                    added.append(self._read(step, places, slot) @ matrix)
                places[step.slots[dst][:2]] = torch.stack(added).sum(0)
                continue
            for op, dst, slots in stage:
                args = [self._read(step, places, slot) for slot in slots if slot >= 0]
                value = OPERATIONS[op].compute(*args)
                if op in SUMS:
                    sums[dst] = sums.get(dst, 0.0) + value
                else:
                    places[step.slots[dst][:2]] = value
        return sums


def whole(matrix: Tensor) -> Tensor:
    """The block-diagonal matrix that (heads, rows, columns) stand for; a matrix as it is."""
    return matrix if matrix.dim() == 2 else torch.block_diag(*matrix)


def _blocks(slopes: Tensor, like: Tensor) -> Tensor:
    """Of a gradient of `whole(like)`, what belongs to `like`."""
    if like.dim() == 2:
        return slopes
    heads, rows, columns = like.shape
    apart = slopes.view(heads, rows, heads, columns)
    return torch.stack([apart[k, :, k] for k in range(heads)])
