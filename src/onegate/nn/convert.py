"""Layers from torch.nn's, and back where torch has the unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from onegate.language import flag
from onegate.nn.cells import Weights, compute_weights
from onegate.nn.layers import Recurrent
from onegate.nn.named import LAYERS


class Block(NamedTuple):
    """Where the rows of one gate in torch's stacked matrices go: keys of our parameters.

    torch always keeps two biases. Where both have the same key they act as their sum.
    """

    weight_ih: str
    weight_hh: str
    bias_ih: str
    bias_hh: str


def _of_map(name: str) -> Block:
    return Block(f"{name}.W", f"{name}.U", f"{name}.b", f"{name}.b")


class Form(NamedTuple):
    """A unit as torch has it: the module's class, its further arguments, the gates in its order."""

    kind: type[nn.RNN | nn.LSTM | nn.GRU]
    further: dict[str, Any]
    blocks: tuple[Block, ...]


_LSTM: Final = Form(nn.LSTM, {}, tuple(map(_of_map, ("i", "f", "c", "o"))))
# GRU's candidate has a bias of its own inside the reset product.
_GRU: Final = (_of_map("r"), _of_map("z"), Block("h.W", "U_h.U", "h.b", "U_h.b"))
FORMS: Final[dict[str, Form]] = {
    "simple": Form(nn.RNN, {"nonlinearity": "tanh"}, (_of_map("h"),)),
    "irnn": Form(nn.RNN, {"nonlinearity": "relu"}, (_of_map("h"),)),
    "lstm": _LSTM,
    "lstm_np": _LSTM,
    "gru_reset_after": Form(nn.GRU, {}, _GRU),
}


def from_torch(
    module: nn.RNN | nn.LSTM | nn.GRU, engine: str = "auto", *, values_only: bool = False
) -> Recurrent:
    """The layer that computes what `module` computes, with a copy of its weights.

    A frozen weight stays frozen. Where two biases of torch become one it learns if either did.

    values_only: of a module with parametrizations, pruning, shared weights, hooks or further
        parameters take the weights' present values, and leave those behind; else it is refused.

    >>> layer = onegate.from_torch(torch.nn.GRU(28, 100))
    """
    unit = _unit_of(module)
    form = FORMS[unit]
    _refuse_own_forward(module, form.kind)
    with torch.enable_grad():  # else a weight that is computed would seem frozen
        compute_weights(module)
        theirs = {name: getattr(module, name) for name in module._flat_weights_names}
    like = _checked(module, theirs, values_only)
    layer = LAYERS[unit](
        module.input_size,
        module.hidden_size,
        module.num_layers,
        module.bias,
        module.batch_first,
        module.dropout,
        module.bidirectional,
        like.device,
        like.dtype,
        engine=engine,
    )
    ours = dict(layer.named_parameters())
    with torch.no_grad():
        for parameter in ours.values():
            parameter.zero_().requires_grad_(False)
        for name, tensor in theirs.items():
            for key, _, rows in _blocks(name, tensor, form):
                ours[key].add_(rows)
                if tensor.requires_grad:
                    ours[key].requires_grad_()
    return layer.train(module.training)


def to_torch(layer: Recurrent, *, values_only: bool = False) -> nn.RNN | nn.LSTM | nn.GRU:
    """The module of torch.nn that computes what `layer` computes, with a copy of its weights.

    A frozen weight stays frozen. values_only: as in `from_torch`.
    """
    if not isinstance(layer, Recurrent):
        raise TypeError(f"to_torch takes a layer of onegate, got {type(layer).__name__}")
    form = FORMS.get(layer.unit.name)
    if form is None:
        raise ValueError(
            f"torch.nn has no layer of {layer.unit.name!r}, only of {', '.join(FORMS)}"
        )
    if layer.learn_initial_state:
        raise ValueError(
            "torch.nn has no learned initial state; convert a layer made with "
            "learn_initial_state=False, and pass the states as hx"
        )
    _refuse_own_forward(layer, Recurrent)
    with torch.enable_grad():  # as above
        ours = {
            f"{place}.{key}": tensor
            for place, weights in layer.named_children()
            if isinstance(weights, Weights)
            for key, tensor in weights.tensors().items()
        }
    like = _checked(layer, ours, values_only)
    module = form.kind(
        layer.input_size,
        layer.hidden_size,
        layer.num_layers,
        bias=layer.bias,
        batch_first=layer.batch_first,
        dropout=layer.dropout,
        bidirectional=layer.bidirectional,
        device=like.device,
        dtype=like.dtype,
        **form.further,
    )
    with torch.no_grad():
        for name, tensor in module.named_parameters():
            blocks = list(_blocks(name, tensor, form))
            for key, counted, rows in blocks:
                rows.copy_(torch.zeros_like(rows) if counted else ours[key])
            tensor.requires_grad_(_learns(name, blocks, ours))
    return module.train(layer.training)


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


def _blocks(name: str, tensor: Tensor, form: Form) -> Iterator[tuple[str, bool, Tensor]]:
    """Our key, whether bias_ih holds all of it, and the rows, gate by gate in torch's parameter.

    name: torch's, such as weight_ih_l0_reverse.
    """
    kind, _, place = name.rpartition("_l")
    for block, rows in zip(form.blocks, tensor.chunk(len(form.blocks)), strict=True):
        counted = kind == "bias_hh" and block.bias_hh == block.bias_ih
        yield f"l{place}.{getattr(block, kind)}", counted, rows


def _unit_of(module: nn.Module) -> str:
    if isinstance(module, nn.LSTM):
        if module.proj_size:
            raise ValueError(
                f"LSTM with proj_size={module.proj_size} has no unit here; "
                "put an nn.Linear after an LSTM without it"
            )
        return "lstm"
    if isinstance(module, nn.GRU):
        return "gru_reset_after"
    if isinstance(module, nn.RNN):
        # What torch computes with: `nonlinearity` is but shown.
        return "simple" if module.mode == "RNN_TANH" else "irnn"
    kind = type(module)
    raise TypeError(
        f"from_torch takes torch.nn.RNN, LSTM or GRU, got {kind.__name__} of {kind.__module__}"
    )
