"""The loss of a large vocabulary without keeping its probabilities."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# Probabilities held at once: 32 MB of float32. Less would read the weights more often.
_AT_ONCE = 8_000_000


def summed_cross_entropy(states: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """The sum over rows of -log softmax(states W^T + bias)[target].

    states (N, n), weight (V, n), bias (V,), targets (N,) -> a number. The gradients are computed
    together with the loss, some rows at a time, in the memory of these rows' probabilities; torch's
    own functions hold three arrays (N, V) at once. First derivatives only.

    After `torch.set_float32_matmul_precision("medium")` the products are of bfloat16 numbers, added
    up and used in float32, where gradients are asked for: faster on processors that have
    such products, and the loss then has an error of some thousandths. Without gradients
    nothing is rounded.
    """
    # Inside the function gradients are off, and parameters ask for theirs under no_grad as well.
    learning = torch.is_grad_enabled() and any(t.requires_grad for t in (states, weight, bias))
    loss: Tensor = _SummedCrossEntropy.apply(states, weight, bias, targets, learning)  # type: ignore[no-untyped-call]
    return loss


def _products_may_be_short() -> bool:
    return torch.get_float32_matmul_precision() == "medium"


def _add_product(to: Tensor, one: Tensor, other: Tensor) -> Tensor:
    """Adds a product, perhaps of shorter numbers, in place."""
    return to.addmm_(one, other) if one.dtype == to.dtype else to.add_(torch.mm(one, other))


class _SummedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, learning: bool
    ) -> Tensor:
        short = learning and states.dtype == torch.float32 and _products_may_be_short()
        kind = torch.bfloat16 if short else states.dtype
        matrix = weight.to(kind)
        if learning:
            to_states, to_weight, to_bias = map(torch.zeros_like, (states, weight, bias))
            ctx.save_for_backward(to_states, to_weight, to_bias)
        loss = states.new_zeros(())
        rows = max(1, _AT_ONCE // len(weight))
        for start in range(0, len(states), rows):
            some = states[start : start + rows].to(kind)
            wanted = targets[start : start + rows, None]
            table = _add_product(bias.repeat(len(some), 1), some, matrix.t())
            torch.log_softmax(table, 1, out=table)
            loss -= table.gather(1, wanted).sum()
            if learning:
                # d loss / d logits is softmax minus one at the target; it takes the table's place.
                table.exp_().scatter_add_(1, wanted, table.new_full((), -1.0).expand(wanted.shape))
                to_bias += table.sum(0)
                table = table.to(kind)
                _add_product(to_states[start : start + rows], table, matrix)
                _add_product(to_weight, table.t(), some)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, ...]:
        return (*(gradient * scale for gradient in ctx.saved_tensors), None, None)
