"""Units against the modules of xlstm, TorchRL, speechbrain and ncps."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

import onegate
from tests.library.comparing import assert_same, with_gradients

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]

T, B, D, N, HEADS = 6, 3, 5, 8, 2


def double(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def module_of(package: str, path: str, *without: str) -> Any:
    """One file of an installed package, without what the package imports for other ends.

    without: modules that the file imports and that the test has no need of.
    """
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"{package} is not installed; make test-peers installs it")
    file = Path(found.submodule_search_locations[0], path)
    spec = importlib.util.spec_from_file_location(f"{package}_alone", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with mock.patch.dict(sys.modules, {name: mock.MagicMock() for name in without}):
        spec.loader.exec_module(module)
    return module


def test_lstm_is_that_of_ncps() -> None:
    """Its forget gate has 1 added to it, which stands in our bias."""
    cells = module_of("ncps", "torch/lstm.py")
    cell, layer = cells.LSTMCell(D, N).double(), onegate.LSTM(D, N, dtype=torch.float64)
    x = double(T, B, D)

    def theirs(x: Tensor) -> Tensor:
        h = c = torch.zeros(B, N, dtype=torch.float64)
        out = []
        for one in x:
            h, c = cell(one, (h, c))
            out.append(h)
        return torch.stack(out)

    places: dict[str, Tensor] = {}
    for name, kind in (("input_map.weight", "W"), ("recurrent_map.weight", "U")):
        places |= {
            f"{g}.{kind}": w for g, w in zip("cifo", cell.get_parameter(name).chunk(4), strict=True)
        }
    for g, bias in zip("cifo", cell.input_map.bias.chunk(4), strict=True):
        places[f"{g}.b"] = bias + 1.0 if g == "f" else bias
    learned = {key.removeprefix("l0."): p for key, p in layer.named_parameters()}
    with torch.no_grad():
        for key, parameter in learned.items():
            parameter.copy_(places[key])
    ours = with_gradients(lambda x: layer(x)[0], [x], learned)
    expected = with_gradients(theirs, [x], dict(cell.named_parameters()))
    torch.testing.assert_close(ours["output 0"], expected["output 0"], rtol=1e-9, atol=1e-9)
    for name, kind in (
        ("input_map.weight", "W"), ("recurrent_map.weight", "U"), ("input_map.bias", "b"),
    ):  # fmt: skip
        together = torch.cat([ours[f"{g}.{kind}"] for g in "cifo"])
        torch.testing.assert_close(together, expected[name], rtol=1e-9, atol=1e-9)


def test_slstm_with_heads_is_the_authors() -> None:
    vanilla = module_of("xlstm", "blocks/slstm/src/vanilla/slstm.py")
    layer = onegate.SLSTM(D, N, heads=HEADS, dtype=torch.float64)
    parameters = dict(layer.named_parameters())
    for parameter in parameters.values():
        torch.nn.init.normal_(parameter)
    pointwise = vanilla.slstm_forward_pointwise
    gates = "ifzo"  # in their order

    def theirs(x: Tensor) -> Tensor:
        W = torch.cat([parameters[f"l0.{g}.W"] for g in gates])
        b = torch.cat([parameters[f"l0.{g}.b"] for g in gates])
        R = torch.cat([torch.block_diag(*parameters[f"l0.R_{g}.U"]) for g in gates])
        states, out = torch.zeros(4, B, N, dtype=torch.float64), []
        for one in x:
            states, _ = pointwise(one @ W.T, states[0] @ R.T, b, states, {})
            out.append(states[0])
        return torch.stack(out)

    x = double(T, B, D)
    assert_same(
        with_gradients(lambda x: layer(x)[0], [x], parameters),
        with_gradients(theirs, [x], parameters),
    )


def test_block_gru_is_torchrls() -> None:
    modules = pytest.importorskip(
        "torchrl.modules", reason="torchrl is not installed; make test-peers does"
    )
    wide = 3
    cell = modules.DreamerV3BlockGRUCell(D, N, projection_size=wide, num_blocks=HEADS)
    for parameter in cell.parameters():
        torch.nn.init.normal_(parameter)
    layer = onegate.GRUBlock(D, N, heads=HEADS, projection=wide)
    ours = {key.removeprefix("l0."): p for key, p in layer.named_parameters()}
    share = N // HEADS

    def taken() -> dict[str, Tensor]:
        """Theirs by our keys; their matrices are (heads, columns, rows)."""
        mixed = cell.dynamic_linears[0].weight.mT  # of a block's state, and of all features
        of_h, of_x, of_p = mixed.split([share, wide, wide], -1)
        gates = cell.gates.weight.mT.unflatten(1, (3, share)).unbind(1)
        biases = cell.gates.bias.view(HEADS, 3, share).transpose(0, 1).flatten(1)
        found = {
            "x.W": cell.input_linear.weight, "x.b": cell.input_linear.bias,
            "N_x.gain": cell.input_norm.weight,
            "p.U": cell.hidden_linear.weight, "p.b": cell.hidden_linear.bias,
            "N_p.gain": cell.hidden_norm.weight,
            "s.U": of_p.flatten(0, 1), "s.W": of_x.flatten(0, 1),
            "s.b": cell.dynamic_linears[0].bias, "U_s.U": of_h,
            "N_s.gain": cell.dynamic_norms[0].weight,
        }  # fmt: skip
        for name, matrix, bias in zip("rhz", gates, biases, strict=True):
            found |= {f"{name}.U": matrix, f"{name}.b": bias}
        return found

    with torch.no_grad():
        for key, value in taken().items():
            ours.pop(key).copy_(value)
    assert not ours
    x = torch.randn(T, B, D)
    h, expected = torch.zeros(B, N), []
    for one in x:
        h = cell(one, h)
        expected.append(h)
    out = layer(x)[0]
    # In float32: their norm computes in nothing else.
    torch.testing.assert_close(out, torch.stack(expected), rtol=2e-5, atol=2e-5)
    weights = torch.randn_like(out)
    theirs = torch.autograd.grad((torch.stack(expected) * weights).sum(), list(cell.parameters()))
    learned = {key.removeprefix("l0."): p for key, p in layer.named_parameters()}
    slopes = torch.autograd.grad((out * weights).sum(), list(learned.values()))
    # Ours, put where theirs stand, must be theirs: the same taking apart, of gradients.
    of_ours = dict(zip(learned, slopes, strict=True))
    found = taken()
    pulled = torch.autograd.grad(
        [found[key] for key in of_ours], list(cell.parameters()), list(of_ours.values())
    )
    for a, b in zip(pulled, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("steps", [1, T])
def test_ligru_with_layer_norm_is_speechbrains(steps: int) -> None:
    unneeded = ("speechbrain.nnet.attention", "speechbrain.utils.logger")
    theirs = (
        module_of("speechbrain", "nnet/RNN.py", *unneeded)
        .LiGRU_Layer(D, N, 1, B, normalization="layernorm")
        .double()
        .eval()
    )
    layer = onegate.LiGRU(D, N, layer_norm=True, dtype=torch.float64)
    with torch.no_grad():
        for name, of_h in (("w.weight", "V"), ("u.weight", "U")):
            candidate, z = theirs.get_parameter(name).chunk(2)
            layer.get_parameter(f"l0.{of_h}_h.{'W' if of_h == 'V' else 'U'}").copy_(candidate)
            layer.get_parameter(f"l0.{of_h}_z.{'W' if of_h == 'V' else 'U'}").copy_(z)
        torch.nn.init.normal_(theirs.norm.weight)
        torch.nn.init.normal_(theirs.norm.bias)
        for name, kind in (("weight", "gain"), ("bias", "shift")):
            candidate, z = theirs.norm.get_parameter(name).chunk(2)
            layer.get_parameter(f"l0.N_x.{kind}_2").copy_(candidate)
            layer.get_parameter(f"l0.N_x.{kind}_1").copy_(z)
    x = double(B, steps, D)
    ours, expected = layer(x.transpose(0, 1))[0].transpose(0, 1), theirs(x)
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)
    weights = torch.randn_like(ours)
    learned = dict(layer.named_parameters())
    slopes = torch.autograd.grad((ours * weights).sum(), list(learned.values()))
    found = dict(zip(learned, slopes, strict=True))
    (expected * weights).sum().backward()
    for keys, theirs_key in (
        (("V_h.W", "V_z.W"), "w.weight"),
        (("U_h.U", "U_z.U"), "u.weight"),
        (("N_x.gain_2", "N_x.gain_1"), "norm.weight"),
        (("N_x.shift_2", "N_x.shift_1"), "norm.bias"),
    ):
        together = torch.cat([found[f"l0.{key}"] for key in keys])
        gradient = theirs.get_parameter(theirs_key).grad
        torch.testing.assert_close(together, gradient, rtol=1e-9, atol=1e-9)
