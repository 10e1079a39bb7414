"""How torch.nn lays out the weights of the units that it has, and its state dicts as ours."""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping
from typing import Any, Final, NamedTuple

from torch import Tensor, nn

from onegate.language import Unit
from onegate.units import get
from onegate.units.lstm import LSTMProjected


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
    """A unit as torch has it: the layer's class, its mode, the gates in its order."""

    kind: type[nn.RNN | nn.LSTM | nn.GRU]
    cell: type[nn.RNNCell | nn.LSTMCell | nn.GRUCell]
    mode: str
    blocks: tuple[Block, ...]

    @property
    def further(self) -> dict[str, Any]:
        """The arguments that layer and cell take beyond the common ones."""
        name, _, nonlinearity = self.mode.partition("_")
        return {"nonlinearity": nonlinearity.lower()} if name == "RNN" else {}


_LSTM: Final = Form(nn.LSTM, nn.LSTMCell, "LSTM", tuple(map(_of_map, ("i", "f", "c", "o"))))
# GRU's candidate has a bias of its own inside the reset product.
_GRU: Final = (_of_map("r"), _of_map("z"), Block("h.W", "U_h.U", "h.b", "U_h.b"))
PROJECTION: Final = "r.U"  # of torch's weight_hr
FORMS: Final[dict[str, Form]] = {
    "simple": Form(nn.RNN, nn.RNNCell, "RNN_TANH", (_of_map("h"),)),
    "irnn": Form(nn.RNN, nn.RNNCell, "RNN_RELU", (_of_map("h"),)),
    "lstm": _LSTM,
    "lstm_np": _LSTM,
    "gru_reset_after": Form(nn.GRU, nn.GRUCell, "GRU", _GRU),
}
UNITS: Final = {form.mode: name for name, form in FORMS.items() if name != "lstm_np"}  # by mode


def form_of(unit: Unit) -> Form | None:
    """torch's form of the unit, None where torch has none."""
    return _LSTM if isinstance(unit, LSTMProjected) else FORMS.get(unit.name)


def projected(unit: Unit, size: int) -> Unit:
    """The unit with outputs of `size`; the unit itself for 0."""
    if not size or (isinstance(unit, LSTMProjected) and unit.proj_size == size):
        return unit
    if unit.name != "lstm":
        raise ValueError(
            "proj_size argument is only supported for LSTM, not RNN or GRU: it is "
            f"{size}, expected 0; {unit.name!r} has no projection, only 'lstm'; put an nn.Linear "
            "behind the layer"
        )
    return get(LSTMProjected, proj_size=size)


_NAME: Final = re.compile(r"(weight_ih|weight_hh|weight_hr|bias_ih|bias_hh)(_l\d+(_reverse)?)?")


def blocks(name: str, tensor: Tensor, form: Form) -> Iterator[tuple[str, bool, Tensor]]:
    """Our key, whether bias_ih holds all of it, and the rows, gate by gate in torch's parameter.

    name: torch's, such as weight_ih_l0_reverse, or weight_ih of a cell.
    """
    found = _NAME.fullmatch(name)
    assert found is not None, name
    kind, place = found[1], f"{found[2][1:]}." if found[2] else ""
    if kind == "weight_hr":
        yield f"{place}{PROJECTION}", False, tensor
        return
    for block, rows in zip(form.blocks, tensor.chunk(len(form.blocks)), strict=True):
        counted = kind == "bias_hh" and block.bias_hh == block.bias_ih
        yield f"{place}{getattr(block, kind)}", counted, rows


def translate(state: MutableMapping[str, Any], prefix: str, unit: Unit) -> str | None:
    """Puts our keys in the place of torch's in a state dict; returns why that is impossible.

    Two biases that act as their sum are added.
    """
    theirs = [
        key for key in state if key.startswith(prefix) and _NAME.fullmatch(key[len(prefix) :])
    ]
    if not theirs:
        return None
    form = form_of(unit)
    if form is None:
        return (
            f"{theirs[0]} is a weight of torch.nn's layers, which have no {unit.name!r}, only "
            f"{', '.join(FORMS)}" + _HINTS.get(unit.name, "")
        )
    for key in theirs:
        tensor = state.pop(key)
        if "weight_hr" not in key and tensor.shape[0] % len(form.blocks):
            return (
                f"{key} is {tuple(tensor.shape)}, expected rows for the {len(form.blocks)} gates "
                f"of {unit.name!r}"
            )
        for ours, _, rows in blocks(key[len(prefix) :], tensor, form):
            ours = f"{prefix}{ours}"
            state[ours] = state[ours] + rows if ours in state else rows
    return None


HINT: Final = "; onegate.GRU resets before the matrix, torch.nn.GRU is onegate.GRUResetAfter"
_HINTS: Final = {"gru": HINT, "gru_cho": HINT}
