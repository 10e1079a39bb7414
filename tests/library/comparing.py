"""Outputs and all gradients of a call, to be held against those of another one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from onegate.units import UNITS

# Units that read nothing beside x, which layers can be called with alone.
X_ALONE = [name for name, unit in UNITS.items() if unit.inputs == ("x",)]

# Largest difference by dtype, relative and absolute.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-5}


def flat(result: Any) -> list[Tensor]:
    """The tensors of nested tuples and packed sequences, in order."""
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, PackedSequence):
        return [result.data]
    return [tensor for each in result for tensor in flat(each)]


def gradients(result: Any, wanted: Iterable[Tensor]) -> list[Tensor]:
    """Of the sum of all outputs weighted at random, the same way for results of one shape."""
    outputs = flat(result)
    return list(torch.autograd.grad(outputs, list(wanted), cotangents(outputs)))


def cotangents(outputs: Iterable[Any]) -> list[Tensor]:
    """The weights by which `gradients` sums up outputs of these shapes, in float64 or as they."""
    generator = torch.Generator().manual_seed(7)
    return [
        torch.randn(
            tuple(o.shape),
            generator=generator,
            dtype=o.dtype if isinstance(o, Tensor) else torch.float64,
        )
        for o in outputs
    ]


def with_gradients(
    call: Callable[..., Any], inputs: Iterable[Tensor], parameters: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Outputs, gradients of the inputs and of the parameters, by name."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    result = call(*leaves)
    found = {f"output {i}": tensor.detach() for i, tensor in enumerate(flat(result))}
    names = [*(f"gradient of input {i}" for i in range(len(leaves))), *parameters]
    return found | dict(zip(names, gradients(result, [*leaves, *parameters.values()]), strict=True))


def assert_same(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> None:
    assert list(ours) == list(theirs)
    for name, tensor in ours.items():
        tolerance = TOLERANCE[tensor.dtype]
        try:
            torch.testing.assert_close(tensor, theirs[name], rtol=tolerance, atol=tolerance)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None
