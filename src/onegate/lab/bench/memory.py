"""How much memory a training step holds between its forward and its backward pass."""

from __future__ import annotations

from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks


def held_bytes(layer: nn.Module, x: Tensor) -> int:
    """Bytes that autograd keeps for the backward pass of `layer(x)`, parameters excluded.

    Tensors that share memory count once; input and output count where they are kept.
    """
    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        output = layer(x)  # alive until the sum is done, or memory might be used twice
    storages = {_address(tensor): tensor.untyped_storage().nbytes() for tensor in saved}
    for parameter in layer.parameters():
        storages.pop(_address(parameter), None)
    del output
    return sum(storages.values())


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
