"""What torch does with modules: copies, files, dtypes, autocast, transforms, compilation."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.func import functional_call, grad, hessian, jvp, stack_module_state, vmap
from torch.nn.utils import parametrizations, parametrize, prune

import onegate
from tests.library.comparing import X_ALONE, assert_same, with_gradients

T, B, D, N = 5, 3, 4, 6


def make(unit: str = "lstm_peephole", **kwargs: Any) -> onegate.Recurrent:
    kwargs = {"dtype": torch.float64, "engine": "reference", **kwargs}
    return onegate.Recurrent(unit, D, N, 2, bidirectional=True, **kwargs)


def randn(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


@pytest.mark.parametrize("name", X_ALONE)
def test_copies_and_pickles_compute_the_same(name: str) -> None:
    layer = make(name, learn_initial_state=True)
    cell = onegate.nn.named.CELLS[name](D, N, dtype=torch.float64, engine="reference")
    x = randn(T, B, D)
    ways: list[Callable[[Any], Any]] = [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))]
    for way in ways:
        twin, twin_cell = way(layer), way(cell)
        torch.testing.assert_close(twin(x), layer(x), rtol=0, atol=0)
        torch.testing.assert_close(twin_cell(x[0]), cell(x[0]), rtol=0, atol=0)
        assert twin.unit == layer.unit
        assert repr(twin) == repr(layer)
        before = [p.clone() for p in layer.parameters()]
        for parameter in twin.parameters():
            nn.init.normal_(parameter)
        torch.testing.assert_close([*layer.parameters()], before, rtol=0, atol=0)


@pytest.mark.parametrize("assign", [True, False])
def test_frozen_weights_stay_frozen(assign: bool) -> None:
    layer = make(learn_initial_state=True)
    for key in ("l0.f.U", "l1_reverse.p_i", "l0.h_0"):
        layer.get_parameter(key).requires_grad_(False)
    learns = [p.requires_grad for p in layer.parameters()]
    assert learns.count(False) == 3
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert [p.requires_grad for p in twin.parameters()] == learns
    values = make(learn_initial_state=True).state_dict()
    layer.load_state_dict(values, assign=assign)
    assert [p.requires_grad for p in layer.parameters()] == learns
    torch.testing.assert_close(dict(layer.state_dict()), dict(values), rtol=0, atol=0)


def test_torch_save_round_trip() -> None:
    layer, file = make(), io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    twin = make()
    twin.load_state_dict(torch.load(file, weights_only=True))
    x = randn(T, B, D)
    torch.testing.assert_close(twin(x), layer(x), rtol=0, atol=0)


def test_safetensors_round_trip(tmp_path: Path) -> None:
    layer, twin = make(), make()
    save_file(layer.state_dict(), tmp_path / "layer.safetensors")
    twin.load_state_dict(load_file(tmp_path / "layer.safetensors"))
    x = randn(T, B, D)
    torch.testing.assert_close(twin(x), layer(x), rtol=0, atol=0)


def test_cells_take_the_weights_of_layers() -> None:
    layer, cell = onegate.LSTM(D, N), onegate.LSTMCell(D, N)
    cell.load_state_dict(layer.get_submodule("l0").state_dict())
    x = torch.randn(T, B, D)
    state = None
    for t in range(T):
        state = cell(x[t], state)
    torch.testing.assert_close(state, tuple(s[0] for s in layer(x)[1]))


class TestDtypes:
    @pytest.mark.parametrize("name", X_ALONE)
    def test_bfloat16(self, name: str) -> None:
        layer = make(name)
        x = randn(T, B, D)
        exact = layer(x)[0]
        out, _ = layer.to(torch.bfloat16)(x.bfloat16())
        assert out.dtype == torch.bfloat16
        # bfloat16 has 8 bits: relative steps of 0.4 %, added up over five steps and two layers.
        torch.testing.assert_close(out.double(), exact, rtol=0.1, atol=0.1)
        out.sum().backward()
        assert {p.grad.dtype for p in layer.parameters() if p.grad is not None} == {torch.bfloat16}

    def test_to_moves_everything(self) -> None:
        layer = make(learn_initial_state=True).to(torch.float32)
        assert {p.dtype for p in layer.parameters()} == {torch.float32}
        assert layer(torch.randn(T, B, D))[0].dtype == torch.float32
        layer = layer.to("meta")
        out, (h, c) = layer(torch.zeros(T, B, D, device="meta"))
        assert {out.device.type, h.device.type, c.device.type} == {"meta"}

    def test_built_on_a_device_with_a_dtype(self) -> None:
        layer = make(device="meta", dtype=torch.float16)
        assert {(p.device.type, p.dtype) for p in layer.parameters()} == {("meta", torch.float16)}


class TestAutocast:
    @pytest.mark.parametrize("name", ["mgu", "lstm_peephole", "scrn", "mgu3"])
    def test_it_computes_in_its_dtype_and_gradients_come_in_the_parameters(self, name: str) -> None:
        layer = make(name, dtype=torch.float32, learn_initial_state=True)
        x = torch.randn(T, B, D)
        exact = layer(x)[0]
        with torch.autocast("cpu", torch.bfloat16):
            out, last = layer(x, lengths=[5, 5, 5])
            assert out.dtype == torch.bfloat16
            layer(x, last)  # a state from an autocast call goes back in
        torch.testing.assert_close(out.float(), exact, rtol=0.1, atol=0.1)
        out.sum().backward()
        assert all(p.grad is not None and p.grad.dtype == p.dtype for p in layer.parameters())

    def test_it_leaves_float64_alone(self) -> None:
        layer, x = make(), randn(T, B, D)
        with torch.autocast("cpu", torch.bfloat16):
            assert layer(x)[0].dtype == torch.float64

    def test_cells(self) -> None:
        with torch.autocast("cpu", torch.bfloat16):
            assert onegate.MGUCell(D, N)(torch.randn(B, D)).dtype == torch.bfloat16


class TestTransforms:
    @pytest.mark.parametrize("name", X_ALONE)
    def test_vmap_over_parameters_is_an_ensemble(self, name: str) -> None:
        layers = [make(name, learn_initial_state=True) for _ in range(3)]
        for layer in layers:
            for parameter in layer.parameters():
                nn.init.normal_(parameter)
        parameters, _ = stack_module_state(list[nn.Module](layers))
        x = randn(T, B, D)

        def call(values: dict[str, Tensor]) -> Any:
            return functional_call(layers[0], values, (x,), {"lengths": [3, 5, 1]})

        out, _ = vmap(call)(parameters)
        for one, layer in zip(out, layers, strict=True):
            torch.testing.assert_close(one, layer(x, lengths=[3, 5, 1])[0])

    @pytest.mark.parametrize("name", X_ALONE)
    def test_vmap_over_inputs(self, name: str) -> None:
        layer = make(name)
        xs = randn(7, T, B, D)
        out = vmap(lambda x: layer(x)[0])(xs)
        torch.testing.assert_close(out, torch.stack([layer(x)[0] for x in xs]))

    def test_vmap_of_one_sequence_is_a_batch(self) -> None:
        layer = make(batch_first=True)
        xs = randn(B, T, D)
        torch.testing.assert_close(vmap(lambda x: layer(x)[0])(xs), layer(xs)[0])

    def test_gradients_for_each_example(self) -> None:
        layer = make("mgu", learn_initial_state=True)
        xs = randn(B, T, D)
        values: dict[str, Tensor] = dict(layer.named_parameters())

        def loss(values: dict[str, Tensor], x: Tensor) -> Tensor:
            out: Tensor = functional_call(layer, values, (x,))[0]
            return out.square().sum()

        each = vmap(grad(loss), in_dims=(None, 0))(values, xs)
        for row, x in enumerate(xs):
            expected = torch.autograd.grad(loss(values, x), list(values.values()))
            torch.testing.assert_close([g[row] for g in each.values()], list(expected))

    def test_functional_call_uses_the_values_given(self) -> None:
        layer, other, x = make(), make(), randn(T, B, D)
        out, _ = functional_call(layer, dict(other.named_parameters()), (x,))
        torch.testing.assert_close(out, other(x)[0])
        assert not torch.allclose(out, layer(x)[0])

    def test_forward_mode_agrees_with_reverse(self) -> None:
        layer, x, direction = make("gru"), randn(T, B, D), randn(T, B, D)

        def call(x: Tensor) -> Tensor:
            out: Tensor = layer(x)[0].square().sum()
            return out

        slope = jvp(call, (x,), (direction,))[1]
        torch.testing.assert_close(slope, (grad(call)(x) * direction).sum())


def test_second_derivatives() -> None:
    """The Hessian by two reverse passes, against the one by forward over reverse."""
    layer = onegate.MGU(2, 3, dtype=torch.float64, engine="reference")
    x = randn(3, 1, 2).requires_grad_()

    def loss(x: Tensor) -> Tensor:
        out: Tensor = layer(x)[0].square().sum()
        return out

    (first,) = torch.autograd.grad(loss(x), x, create_graph=True)
    rows = [torch.autograd.grad(g, x, retain_graph=True)[0].flatten() for g in first.flatten()]
    torch.testing.assert_close(torch.stack(rows), hessian(loss)(x.detach()).reshape(6, 6))


def test_parametrised_weights() -> None:
    layer = make("mgu")
    place = layer.get_submodule("l0.f")
    parametrizations.orthogonal(place, "U")
    x = randn(T, B, D)
    before = layer(x)[0]
    before.sum().backward()
    assert parametrize.is_parametrized(place, "U")
    with pytest.raises(ValueError, match=r"f\.U is computed from other parameters, .* end that"):
        layer.reset_parameters()
    parametrize.remove_parametrizations(place, "U")
    torch.testing.assert_close(layer(x)[0], before)


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
@pytest.mark.parametrize("engine", ["reference", "fused"])
@pytest.mark.parametrize(
    "how",
    [
        nn.utils.weight_norm,
        nn.utils.spectral_norm,
        lambda module, name: prune.random_unstructured(module, name, 0.5),
    ],
)
def test_weights_that_hooks_compute_are_computed_at_each_call(how: Any, engine: str) -> None:
    """Such hooks wait for a call of the module that has the weight, and maps are not called."""
    layer, x = make("lstm_peephole", engine=engine), randn(T, B, D)
    places = ((layer.get_submodule("l0.f"), "U"), (layer.get_submodule("l1"), "p_i"))
    for place, name in places:
        if name == "U" or how is not nn.utils.spectral_norm:  # which is of matrices
            how(place, name)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        layer(x)[0].square().sum().backward()
        optimizer.step()
    out = layer.eval()(x)[0]
    # In eval mode a call of the place computes the weight from what was learned.
    plain = make("lstm_peephole", engine=engine)
    for key in dict(plain.named_parameters()):
        path, _, name = key.rpartition(".")
        owner = layer.get_submodule(path)
        for hook in owner._forward_pre_hooks.values():
            hook(owner, ())
        setattr(plain.get_submodule(path), name, nn.Parameter(getattr(owner, name)))
    torch.testing.assert_close(out, plain(x)[0], rtol=1e-12, atol=1e-12)


class TestCompiled:
    @pytest.mark.parametrize("name", ["mgu", "lstm_peephole"])
    def test_without_a_graph_break(self, name: str) -> None:
        layer = onegate.Recurrent(
            name, D, N, bidirectional=True, dtype=torch.float64, engine="reference"
        )
        compiled = torch.compile(layer, fullgraph=True, backend="eager")
        inputs, parameters = [randn(3, B, D)], dict(layer.named_parameters())
        lengths = torch.tensor([1, 3, 2])
        assert_same(
            with_gradients(lambda x: compiled(x, lengths=lengths), inputs, parameters),
            with_gradients(lambda x: layer(x, lengths=lengths), inputs, parameters),
        )

    def test_exported(self) -> None:
        layer, x = make("mgu"), randn(T, B, D)
        program = torch.export.export(layer, (x,))
        torch.testing.assert_close(program.module()(x), layer(x))


class TestCells:
    def test_one_step_with_and_without_a_batch(self) -> None:
        cell = onegate.SCRNCell(D, N, context_size=2, dtype=torch.float64)
        x, states = randn(B, D), (randn(B, N), randn(B, 2))
        h, s = cell(x, states)
        assert (h.shape, s.shape) == ((B, N), (B, 2))
        for row in range(B):
            one = cell(x[row], tuple(state[row] for state in states))
            torch.testing.assert_close(one, (h[row], s[row]))

    def test_the_state_is_zero_by_default(self) -> None:
        cell = onegate.MGUCell(D, N)
        x = torch.randn(B, D)
        torch.testing.assert_close(cell(x), cell(x, torch.zeros(B, N)))
        torch.testing.assert_close(cell(x[0]), cell(x[0], torch.zeros(N)))

    @pytest.mark.parametrize(
        ("ours", "theirs", "maps"),
        [
            (onegate.LSTMCell, nn.LSTMCell, ["i", "f", "c", "o"]),
            (onegate.SimpleRNNCell, nn.RNNCell, ["h"]),
        ],
    )
    def test_as_torchs(self, ours: Any, theirs: Any, maps: list[str]) -> None:
        cell, module = ours(D, N, dtype=torch.float64), theirs(D, N, dtype=torch.float64)
        with torch.no_grad():
            for block, name in enumerate(maps):
                rows = slice(block * N, (block + 1) * N)
                values = cell.get_submodule(name)
                values.W.copy_(module.weight_ih[rows])
                values.U.copy_(module.weight_hh[rows])
                values.b.copy_(module.bias_ih[rows] + module.bias_hh[rows])
        x = randn(B, D)
        state = module(x)
        torch.testing.assert_close(cell(x), state)
        torch.testing.assert_close(cell(x, state), module(x, state))
