"""Who is timed: layers of ours, of torch.nn and of other libraries, ready to run on a shape."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from onegate import engines
from onegate.engines import EngineError, reference
from onegate.engines.cpu import operator
from onegate.lab.bench import jax_contestant
from onegate.lab.bench.shapes import LayerShape, Unavailable
from onegate.nn.layers import Recurrent

FUSED: Final = operator.ENGINE.name
REFERENCE: Final = reference.ENGINE.name
TORCH_GRU: Final = "torch.nn.GRU"
TORCH_LSTM: Final = "torch.nn.LSTM"
TORCH_RNN: Final = "torch.nn.RNN"
TORCHRECURRENT: Final = "torchrecurrent MGU"
FLAX: Final = "Flax MGUCell (jit)"


@dataclass(frozen=True)
class Entrant:
    """A contestant on one shape: what to call, and the bytes it holds for the backward pass."""

    train: Callable[[], object]
    infer: Callable[[], object]
    held_bytes: Callable[[], int]


@dataclass(frozen=True)
class Contestant:
    """unit: the registered unit with the same matrix products, from which they are counted.

    enter: makes the entry for a shape from its input (T, B, d) and the gradient of its outputs,
    or raises Unavailable with the reason.
    """

    name: str
    unit: str
    enter: Callable[[LayerShape, Tensor, Tensor], Entrant]


def ours_name(unit: str, engine: str) -> str:
    """The contestant's name of one of our units.

    >>> ours_name("mgu", "fused")
    'mgu fused'
    """
    return f"{unit} {engine}"


def ours(unit: str, engine: str) -> Contestant:
    """A registered unit on one of our engines."""

    def enter(shape: LayerShape, x: Tensor, grad_out: Tensor) -> Entrant:
        try:
            layer = Recurrent(
                unit, shape.inputs, shape.hidden, shape.layers,
                bidirectional=shape.bidirectional, engine=engine,
            )  # fmt: skip
        except ValueError as error:  # units with inputs beside x have one layer
            raise Unavailable(str(error)) from None
        sizes = layer.unit.input_sizes(shape.inputs, shape.hidden)
        extra = {name: torch.rand(*x.shape[:2], sizes[name]) for name in layer.unit.inputs[1:]}
        _require_engine(engine, layer, x, extra)
        given = {"extra": extra} if extra else {}
        return module_entry(layer, x, grad_out, shape.input_gradient, **given)

    return Contestant(ours_name(unit, engine), unit, enter)


def _require_engine(name: str, layer: nn.Module, x: Tensor, extra: Mapping[str, Tensor]) -> None:
    """Raises Unavailable with what the engine says of this machine, or of this layer."""
    (engine,) = (one for one in engines.ENGINES if one.name == name)
    if problem := engine.missing():
        raise Unavailable(problem)
    try:
        with torch.no_grad():
            layer(x[:1], extra={name: t[:1] for name, t in extra.items()} or None)
    except EngineError as error:
        raise Unavailable(str(error)) from None


def peers() -> list[Contestant]:
    """torch.nn and other libraries, installed or not."""
    return [
        _torch_nn(TORCH_GRU, "gru_reset_after", nn.GRU),
        _torch_nn(TORCH_LSTM, "lstm", nn.LSTM),
        _torch_nn(TORCH_RNN, "simple", nn.RNN),
        Contestant(TORCHRECURRENT, "mgu", _enter_torchrecurrent),
        Contestant(FLAX, "mgu_gate_after", _enter_flax),
    ]


def module_entry(
    layer: nn.Module, x: Tensor, grad_out: Tensor, input_gradient: bool = False, **given: Any
) -> Entrant:
    """The entry of a module that is called as torch.nn.GRU, with what else it is given."""
    x = x.detach().requires_grad_(input_gradient)
    leaves: Sequence[Tensor] = [x, *layer.parameters()]
    evaluating = copy.deepcopy(layer).eval()

    def train() -> None:
        for leaf in leaves:
            leaf.grad = None
        layer(x, **given)[0].backward(grad_out)

    def infer() -> None:
        with torch.no_grad():
            evaluating(x, **given)

    return Entrant(train, infer, lambda: held_bytes(layer, x, **given))


def held_bytes(layer: nn.Module, x: Tensor, **given: Any) -> int:
    """Bytes that autograd keeps for the backward pass of `layer(x)`, parameters excluded.

    Tensors that share memory count once; input and output count where they are kept.
    """
    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        output = layer(x, **given)  # alive until the sum is done, or memory might be used twice
    storages = {_address(tensor): tensor.untyped_storage().nbytes() for tensor in saved}
    for parameter in layer.parameters():
        storages.pop(_address(parameter), None)
    del output
    return sum(storages.values())


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _torch_nn(name: str, unit: str, kind: Callable[..., nn.Module]) -> Contestant:
    def enter(shape: LayerShape, x: Tensor, grad_out: Tensor) -> Entrant:
        layer = kind(shape.inputs, shape.hidden, shape.layers, bidirectional=shape.bidirectional)
        return module_entry(layer, x, grad_out, shape.input_gradient)

    return Contestant(name, unit, enter)


def _enter_torchrecurrent(shape: LayerShape, x: Tensor, grad_out: Tensor) -> Entrant:
    _require("torchrecurrent")
    if shape.bidirectional:
        raise Unavailable("it has no bidirectional layers")
    import torchrecurrent

    layer: Any = torchrecurrent.MGU(shape.inputs, shape.hidden, shape.layers)
    return module_entry(layer, x, grad_out, shape.input_gradient)


def _enter_flax(shape: LayerShape, x: Tensor, grad_out: Tensor) -> Entrant:
    _require("flax")
    _require("jax")
    run = jax_contestant.prepare(shape, x.numpy(), grad_out.numpy(), torch.get_num_threads())
    return Entrant(run.train, run.infer, run.held_bytes)


def _require(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise Unavailable(f"{package} is not installed: pip install 'onegate[peers]'")
