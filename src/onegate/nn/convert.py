"""Layers from torch.nn's, and back where torch has the unit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

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


def from_torch(module: nn.RNN | nn.LSTM | nn.GRU, engine: str = "auto") -> Recurrent:
    """The layer that computes what `module` computes, with a copy of its weights.

    >>> layer = onegate.from_torch(torch.nn.GRU(28, 100))
    """
    unit = _unit_of(module)
    weight = next(module.parameters())
    layer = LAYERS[unit](
        module.input_size,
        module.hidden_size,
        module.num_layers,
        module.bias,
        module.batch_first,
        module.dropout,
        module.bidirectional,
        weight.device,
        weight.dtype,
        engine=engine,
    )
    ours = dict(layer.named_parameters())
    with torch.no_grad():
        for parameter in ours.values():
            parameter.zero_()
        for name, tensor in module.named_parameters():
            for key, _, rows in _blocks(name, tensor, FORMS[unit]):
                ours[key].add_(rows)
    return layer.train(module.training)


def to_torch(layer: Recurrent) -> nn.RNN | nn.LSTM | nn.GRU:
    """The module of torch.nn that computes what `layer` computes, with a copy of its weights."""
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
    ours = dict(layer.named_parameters())
    like = next(iter(ours.values()))
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
            for key, counted, rows in _blocks(name, tensor, form):
                rows.copy_(torch.zeros_like(rows) if counted else ours[key])
    return module.train(layer.training)


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
        return "simple" if module.nonlinearity == "tanh" else "irnn"
    raise TypeError(f"from_torch takes torch.nn.RNN, LSTM or GRU, got {type(module).__name__}")
