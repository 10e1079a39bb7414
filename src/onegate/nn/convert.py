"""Layers, cells and models with torch.nn's recurrent layers to ours, and back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar, overload

import torch
from torch import Tensor, nn

from onegate.nn.cells import Cell, Weights, compute_weights
from onegate.nn.forms import FORMS, HINT, UNITS, blocks, form_of
from onegate.nn.layers import Recurrent
from onegate.nn.named import CELLS, LAYERS
from onegate.values import flag

Model = TypeVar("Model", bound=nn.Module)


@overload
def from_torch(
    module: nn.RNN | nn.LSTM | nn.GRU, engine: str = ..., *, values_only: bool = ...
) -> Recurrent: ...
@overload
def from_torch(module: nn.RNNCellBase, engine: str = ..., *, values_only: bool = ...) -> Cell: ...
@overload
def from_torch(module: Model, engine: str = ..., *, values_only: bool = ...) -> Model: ...
def from_torch(module: Any, engine: str = "auto", *, values_only: bool = False) -> Any:
    """The layer or cell that computes what `module` computes, with a copy of its weights.

    Of any other module that has such layers inside: a copy in which they are ours.

    A frozen weight stays frozen. Where two biases of torch become one it learns if either did.

    values_only: of a module with parametrizations, pruning, shared weights, hooks or further
        parameters take the weights' present values, and leave those behind; else it is refused.

    >>> layer = onegate.from_torch(torch.nn.GRU(28, 100))
    """
    if not isinstance(module, _THEIRS):
        takes = "from_torch takes torch.nn.RNN, LSTM or GRU, their cells, or a model with them"
        return _model(module, _THEIRS, lambda m: _from_torch(m, engine, values_only), takes)
    return _from_torch(module, engine, values_only)


def _from_torch(module: Any, engine: str, values_only: bool) -> Recurrent | Cell:
    unit = _unit_of(module)
    form = FORMS[unit]
    is_cell = isinstance(module, nn.RNNCellBase)
    _refuse_own_forward(module, form.cell if is_cell else form.kind)
    with torch.enable_grad():  # else a weight that is computed would seem frozen
        compute_weights(module)
        theirs = {name: getattr(module, name) for name in _names(module)}
    like = _checked(module, theirs, values_only)
    layer: Recurrent | Cell
    if is_cell:
        sizes = module.input_size, module.hidden_size, module.bias
        layer = CELLS[unit](*sizes, like.device, like.dtype, engine=engine)
    else:
        layer = LAYERS[unit](
            module.input_size,
            module.hidden_size,
            module.num_layers,
            module.bias,
            module.batch_first,
            module.dropout,
            module.bidirectional,
            module.proj_size,
            like.device,
            like.dtype,
            engine=engine,
        )
    ours = dict(layer.named_parameters())
    with torch.no_grad():
        for parameter in ours.values():
            parameter.zero_().requires_grad_(False)
        for name, tensor in theirs.items():
            for key, _, rows in blocks(name, tensor, form):
                ours[key].add_(rows)
                if tensor.requires_grad:
                    ours[key].requires_grad_()
    return layer.train(module.training)


@overload
def to_torch(layer: Recurrent, *, values_only: bool = ...) -> nn.RNN | nn.LSTM | nn.GRU: ...
@overload
def to_torch(layer: Cell, *, values_only: bool = ...) -> nn.RNNCellBase: ...
@overload
def to_torch(layer: Model, *, values_only: bool = ...) -> Model: ...
def to_torch(layer: Any, *, values_only: bool = False) -> Any:
    """The module of torch.nn that computes what `layer` computes, with a copy of its weights.

    Of any other module that has layers or cells of ours inside: a copy in which they are torch's.

    A frozen weight stays frozen. values_only: as in `from_torch`.
    """
    if not isinstance(layer, (Recurrent, Cell)):
        takes = "to_torch takes a layer or cell of onegate, or a model with them"
        return _model(layer, (Recurrent, Cell), lambda m: _to_torch(m, values_only), takes)
    return _to_torch(layer, values_only)


def _to_torch(layer: Any, values_only: bool) -> nn.Module:
    form = form_of(layer.unit)
    if form is None:
        raise ValueError(
            f"torch.nn has no layer of {layer.unit.name!r}, only of {', '.join(FORMS)}"
            + (HINT if layer.unit.name in ("gru", "gru_cho") else "")
        )
    if layer.learn_initial_state:
        raise ValueError(
            "torch.nn has no learned initial state; convert a layer made with "
            "learn_initial_state=False, and pass the states as hx"
        )
    _refuse_own_forward(layer, Cell if isinstance(layer, Cell) else Recurrent)
    with torch.enable_grad():  # as above
        ours = _tensors(layer)
    like = _checked(layer, ours, values_only)
    at: dict[str, Any] = {"device": like.device, "dtype": like.dtype}
    module: nn.Module
    if isinstance(layer, Cell):
        module = form.cell(
            layer.input_size, layer.hidden_size, bias=layer.bias, **form.further, **at
        )
    else:
        further = {"proj_size": layer.proj_size} if layer.proj_size else form.further
        module = form.kind(
            layer.input_size,
            layer.hidden_size,
            layer.num_layers,
            bias=layer.bias,
            batch_first=layer.batch_first,
            dropout=layer.dropout,
            bidirectional=layer.bidirectional,
            **further,
            **at,
        )
    with torch.no_grad():
        for name, tensor in module.named_parameters():
            parts = list(blocks(name, tensor, form))
            for key, counted, rows in parts:
                rows.copy_(torch.zeros_like(rows) if counted else ours[key])
            tensor.requires_grad_(_learns(name, parts, ours))
    return module.train(layer.training)


def _tensors(layer: Recurrent | Cell) -> dict[str, Tensor]:
    """All parameters as they are now, by name."""
    if isinstance(layer, Cell):
        return layer.tensors()
    return {
        f"{place}.{key}": tensor
        for place, weights in layer.named_children()
        if isinstance(weights, Weights)
        for key, tensor in weights.tensors().items()
    }


def _model(
    model: Any, kinds: tuple[type, ...], convert: Callable[[Any], nn.Module], takes: str
) -> nn.Module:
    """A copy of `model` with each module of `kinds` inside it converted, a shared one once."""
    if not isinstance(model, nn.Module) or not any(isinstance(m, kinds) for m in model.modules()):
        kind = type(model)
        raise TypeError(f"{takes}, got {kind.__name__} of {kind.__module__}")
    found = {id(m): convert(m) for m in model.modules() if isinstance(m, kinds)}
    # What deepcopy finds in its memo it takes for the copy: hooks and lists that hold a layer, too.
    return copy.deepcopy(model, dict(found))


_THEIRS: Final = (nn.RNN, nn.LSTM, nn.GRU, nn.RNNCell, nn.LSTMCell, nn.GRUCell)


def _names(module: Any) -> list[str]:
    """Of the weights, as torch has them."""
    if isinstance(module, nn.RNNCellBase):
        return ["weight_ih", "weight_hh"] + (["bias_ih", "bias_hh"] if module.bias else [])
    names: list[str] = module._flat_weights_names
    return names


def _checked(module: nn.Module, weights: Mapping[str, Tensor], values_only: bool) -> Tensor:
    """One of the weights, all of one dtype and device; unless `values_only` nothing else is lost.

    weights: those that `module` computes with, by name.
    """
    lost = None if flag("values_only", values_only) else next(_losses(module, weights), None)
    if lost is not None:
        raise ValueError(
            f"{lost[0]}; {lost[1]}, or pass values_only=True to take the weights' present values "
            "and leave this behind"
        )
    first, *others = weights.values()
    for other in others:
        if (other.dtype, other.device) != (first.dtype, first.device):
            raise ValueError(
                f"the weights are {first.dtype} on {first.device} and {other.dtype} on "
                f"{other.device}, expected one dtype and device; convert all with "
                f".to({str(first.device)!r}, {first.dtype})"
            )
    return first


def _losses(module: nn.Module, weights: Mapping[str, Tensor]) -> Iterator[tuple[str, str]]:
    """What a copy of the weights' values would not have: (what it is, what to do)."""
    kind = type(module).__name__
    names: dict[int, str] = {}
    for name, tensor in weights.items():
        if not isinstance(tensor, nn.Parameter):
            yield (
                f"{name} of {kind} is not a parameter but computed from others, as by parametrize, "
                "weight_norm or prune of torch.nn.utils",
                "end that with remove_parametrizations, remove_weight_norm or prune.remove",
            )
        if names.setdefault(id(tensor), name) != name:
            shared = f"{names[id(tensor)]} and {name} of {kind} are one parameter"
            yield shared, "give each a parameter of its own"
        if tensor._backward_hooks or getattr(tensor, "_post_accumulate_grad_hooks", None):
            yield f"{name} of {kind} has hooks on its gradient", "remove them"
    if any(getattr(module, hooks) for hooks in _HOOKS):
        yield f"{kind} has hooks", "remove them"
    held = [name for name, _ in module.named_parameters() if name not in weights]
    if held:
        yield f"{kind} has further parameters: {', '.join(held)}", "remove them"


_HOOKS: Final = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def _refuse_own_forward(module: nn.Module, base: type[nn.Module]) -> None:
    kind = type(module)
    own = kind.forward is not base.forward or kind.__call__ is not base.__call__
    if own or "forward" in vars(module):
        raise TypeError(
            f"{kind.__name__} has a forward of its own, which a conversion would lose; load its "
            f"weights into a plain {base.__name__} by load_state_dict, and convert that"
        )


def _learns(name: str, blocks: list[tuple[str, bool, Tensor]], ours: Mapping[str, Tensor]) -> bool:
    """Whether torch's parameter learns; all of our parameters that are in it must agree."""
    keys = [key for key, _, _ in blocks]
    own = [key for key, counted, _ in blocks if not counted] or keys
    frozen = [key for key in keys if not ours[key].requires_grad]
    learns = any(ours[key].requires_grad for key in own)
    if learns and frozen:
        raise ValueError(
            f"{name} of torch.nn is one parameter for {', '.join(keys)}, of which "
            f"{', '.join(frozen)} do not learn (requires_grad=False); freeze all of them or none"
        )
    return learns


def _unit_of(module: Any) -> str:
    if isinstance(module, nn.RNNBase):
        return UNITS[module.mode]  # what torch computes with: `nonlinearity` is but shown
    if isinstance(module, nn.RNNCell):
        mode = f"RNN_{module.nonlinearity}".upper()
        if mode not in UNITS:
            raise ValueError(
                f"RNNCell: nonlinearity is {module.nonlinearity!r}, expected tanh, relu"
            )
        return UNITS[mode]
    return "lstm" if isinstance(module, nn.LSTMCell) else "gru_reset_after"
