"""Units against the cells of torch and torchrecurrent, where those compute the same equations.

torchrecurrent is compared where its equations are the published ones. Its MUT1 always maps x, as
ours does where x does not fit; its MUT2, SCRN and LEM are other functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torchrecurrent
from torch import Tensor, nn

from onegate.language import Unit
from onegate.tracing import trace
from onegate.units import UNITS, get

INPUT, HIDDEN, BATCH = 3, 5, 4


@dataclass(frozen=True)
class Peer:
    """A cell, and which of our maps the blocks of its stacked parameters belong to."""

    unit: str
    cell: type[nn.Module]
    input_maps: str
    state_maps: str
    peepholes: str = ""
    arguments: tuple[tuple[str, Any], ...] = ()

    def make(self) -> nn.Module:
        """The cell with no parameter at zero, which would hide a bias in the wrong place."""
        cell = self.cell(INPUT, HIDDEN, **dict(self.arguments)).double()
        torch.manual_seed(1)
        for name, parameter in cell.named_parameters():
            if name != "beta":
                nn.init.normal_(parameter)
        return cell

    def ours(self, cell: nn.Module) -> dict[str, Tensor]:
        """The cell's parameters by our keys; two biases of one map are added up."""
        named = dict(cell.named_parameters())
        taken: dict[str, Tensor] = {}
        for maps, side, kind in ((self.input_maps, "ih", "W"), (self.state_maps, "hh", "U")):
            names = maps.split()
            weights = named[f"weight_{side}"].chunk(len(names))
            biases = named[f"bias_{side}"].chunk(len(names))
            for name, weight, bias in zip(names, weights, biases, strict=True):
                taken[f"{name}.{kind}"] = weight
                taken[f"{name}.b"] = taken.get(f"{name}.b", torch.zeros(())) + bias
        if self.peepholes:
            names = self.peepholes.split()
            taken |= dict(zip(names, named["weight_ph"].chunk(len(names)), strict=True))
        return taken


PEERS = (
    Peer("simple", nn.RNNCell, "h", "h"),
    Peer("irnn", nn.RNNCell, "h", "h", arguments=(("nonlinearity", "relu"),)),
    Peer("lstm", nn.LSTMCell, "i f c o", "i f c o"),
    Peer("gru_reset_after", nn.GRUCell, "r z h", "r z U_h"),
    Peer("mgu", torchrecurrent.MGUCell, "f h", "f h"),
    Peer("lstm_peephole", torchrecurrent.PeepholeLSTMCell, "i f c o", "i f c o", "p_i p_f p_o"),
    Peer("lstm_no_forget", torchrecurrent.OriginalLSTMCell, "i c o", "i c o"),
    Peer("janet", torchrecurrent.JANETCell, "f h", "f h"),
    Peer("ligru", torchrecurrent.LiGRUCell, "z h", "z h"),
    Peer("ugrnn", torchrecurrent.UGRNNCell, "c g", "c g"),
    Peer("cfn", torchrecurrent.CFNCell, "f i h", "f i"),
    Peer("mut1", torchrecurrent.MUT1Cell, "z r x", "r h"),
    Peer("mut3", torchrecurrent.MUT3Cell, "z r h", "z r h"),
)


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: f"{peer.unit}-{peer.cell.__name__}")
def test_step_and_gradients_agree(peer: Peer) -> None:
    cell = peer.make()
    parameters = peer.ours(cell)
    learned = {name: p for name, p in cell.named_parameters() if name != "beta"}
    if peer.unit in ("mut1", "cfn"):  # our last map of x has no bias
        with torch.no_grad():
            learned.pop("bias_ih")[-HIDDEN:] = 0.0
        del parameters["x.b" if peer.unit == "mut1" else "h.b"]
    compare(UNITS[peer.unit], parameters, cell, learned.values())


def indrnn() -> tuple[Unit, nn.Module, dict[str, Tensor]]:
    cell = torchrecurrent.IndRNNCell(INPUT, HIDDEN, nonlinearity="relu")
    bias = cell.bias_ih + cell.bias_hh
    return UNITS["indrnn"], cell, {"h.W": cell.weight_ih, "h.b": bias, "u": cell.vector_u}


def cornn() -> tuple[Unit, nn.Module, dict[str, Tensor]]:
    options = {"dt": 0.3, "gamma": 1.7, "epsilon": 0.2}
    cell = torchrecurrent.coRNNCell(INPUT, HIDDEN, **options)
    bias = cell.bias_ih + cell.bias_hh + cell.bias_ch
    weights = {"z.U": cell.weight_hh, "z.U_z": cell.weight_ch, "z.W": cell.weight_ih}
    return get("cornn", **options), cell, weights | {"z.b": bias}


def fastgrnn() -> tuple[Unit, nn.Module, dict[str, Tensor]]:
    """Its zeta and nu are one number each."""
    cell = torchrecurrent.FastGRNNCell(INPUT, HIDDEN, nonlinearity="sigmoid")
    b_z, b_h = (cell.bias_ih + cell.bias_hh).chunk(2)
    scalars = {"zeta": cell.zeta.expand(HIDDEN), "nu": cell.nu.expand(HIDDEN)}
    weights = {"W.W": cell.weight_ih, "U.U": cell.weight_hh, "b_z": b_z, "b_h": b_h}
    return UNITS["fastgrnn"], cell, weights | scalars


@pytest.mark.parametrize("make", [indrnn, cornn, fastgrnn], ids=lambda make: make.__name__)
def test_cells_with_parameters_of_other_kinds(
    make: Callable[[], tuple[Unit, nn.Module, dict[str, Tensor]]],
) -> None:
    torch.manual_seed(1)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        unit, cell, parameters = make()
    finally:
        torch.set_default_dtype(before)
    compare(unit, parameters, cell, cell.parameters())


def compare(
    unit: Unit, parameters: dict[str, Tensor], cell: nn.Module, learned: Iterable[Tensor]
) -> None:
    """One step and the gradients of all, with our parameters made of the cell's."""
    graph = trace(unit, INPUT, HIDDEN)
    assert {key: tuple(p.shape) for key, p in parameters.items()} == graph.parameters
    x = torch.randn(BATCH, INPUT, dtype=torch.float64, requires_grad=True)
    states = [
        torch.randn(BATCH, HIDDEN, dtype=torch.float64, requires_grad=True) for _ in graph.states
    ]
    given: Any = states[0] if len(states) == 1 else tuple(states)
    if unit.name == "janet":  # its cell and its output are two names for one state
        given = (states[0], states[0])

    ours = _tuple(graph.unit.bind(graph, parameters).step(x, *states))
    theirs = _tuple(cell(x, given))[: len(ours)]
    leaves = [x, *states, *learned]
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    slopes = [torch.randn_like(a) for a in ours]
    of_ours = torch.autograd.grad(ours, leaves, slopes)
    of_theirs = torch.autograd.grad(theirs, leaves, slopes)
    for a, b in zip(of_ours, of_theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def _tuple(results: Any) -> tuple[Tensor, ...]:
    return results if isinstance(results, tuple) else (results,)
