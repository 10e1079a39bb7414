"""What code written for torch.nn's recurrent layers does with them, done with ours."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, vmap
from torch.nn.utils import parametrizations
from torch.testing import assert_close

import onegate
from onegate.engines.cpu.native import library
from onegate.nn.drop_in_rule import ALWAYS, RULES

pytestmark = pytest.mark.skipif(library().problem is not None, reason=str(library().problem))

T, B, D, N = 7, 4, 3, 5
KINDS = ["GRU", "LSTM", "RNN"]
OURS: dict[str, Any] = {"GRU": onegate.GRUResetAfter, "LSTM": onegate.LSTM, "RNN": onegate.RNN}
CELLS: dict[str, Any] = {
    "GRUCell": onegate.GRUResetAfterCell,
    "LSTMCell": onegate.LSTMCell,
    "RNNCell": onegate.RNNCell,
}
RUNNERS = ["accelerated", "fused", "reference"]


@pytest.fixture(autouse=True)
def _always_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in RULES:
        monkeypatch.setitem(RULES, kind, ALWAYS)


def _randn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def _theirs(kind: str, *args: Any, **kwargs: Any) -> Any:
    torch.manual_seed(0)
    return getattr(nn, kind)(*args, dtype=torch.float64, **kwargs)


def _ours(module: Any, runner: str) -> Any:
    if runner == "accelerated":
        return onegate.accelerate(copy.deepcopy(module))
    return onegate.from_torch(module, "auto" if runner == "fused" else runner)


def _h(states: Any) -> Tensor:
    h: Tensor = states[0] if isinstance(states, tuple) else states
    return h


def _add(out: Tensor, _: Any) -> Tensor:
    out += 1
    return out.square().sum()


def _relu(out: Tensor, _: Any) -> Tensor:
    return out.relu_().square().sum()


def _dropout(out: Tensor, _: Any) -> Tensor:
    return F.dropout(out, 0.5, inplace=True).square().sum()


def _write(out: Tensor, _: Any) -> Tensor:
    out[out > 0.1] = 0
    out[1, 2] = 3
    return out.square().sum()


def _scale_state(out: Tensor, states: Any) -> Tensor:
    h = _h(states)
    h *= torch.arange(h.shape[-1])
    return h.square().sum() + out.sum()


def _detach_state(out: Tensor, states: Any) -> Tensor:
    _h(states).detach_()
    return out.square().sum() + _h(states).square().sum()


def _reorder_state(_: Tensor, states: Any) -> Tensor:
    h = _h(states)
    h[0] = h[0][torch.tensor([2, 0, 1, 2])]
    return h.pow(3).sum()


def _flatten_states(_: Tensor, states: Any) -> Tensor:
    states = states if isinstance(states, tuple) else (states,)
    return sum((s.view(-1).square().sum() for s in states), torch.zeros(()))


IN_PLACE = [
    _add, _relu, _dropout, _write, _scale_state, _detach_state, _reorder_state, _flatten_states
]  # fmt: skip


def _loss_and_gradient(layer: Any, x: Tensor, use: Callable[[Tensor, Any], Tensor]) -> Any:
    torch.manual_seed(1)
    x = x.clone().requires_grad_()
    loss = use(*layer(x))
    loss.backward()
    return loss, x.grad


@pytest.mark.parametrize("use", IN_PLACE)
@pytest.mark.parametrize("further", [{}, {"batch_first": True}, {"num_layers": 2}])
@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("kind", KINDS)
def test_results_can_be_changed_in_place(
    kind: str, runner: str, further: dict[str, Any], use: Callable[[Tensor, Any], Tensor]
) -> None:
    module = _theirs(kind, D, N, **further)
    x = _randn(T, B, D) if "batch_first" not in further else _randn(B, T, D)
    expected = _loss_and_gradient(module, x, use)
    assert_close(_loss_and_gradient(_ours(module, runner), x, use), expected)


def test_large_results_can_be_changed_in_place_too() -> None:
    """Their memory is another: see `engines/cpu/pool.py`."""
    module = _theirs("GRU", D, 64)
    x = _randn(100, 60, D)
    expected = _loss_and_gradient(module, x, _add)
    assert_close(_loss_and_gradient(_ours(module, "fused"), x, _add), expected)


def test_in_place_where_saved_tensors_are_packed_away() -> None:
    module = _theirs("LSTM", D, N)
    x = _randn(T, B, D)
    expected = _loss_and_gradient(module, x, _add)
    with torch.autograd.graph.save_on_cpu():
        assert_close(_loss_and_gradient(_ours(module, "fused"), x, _add), expected)
    with torch.profiler.profile():  # which sees the operator of the dispatcher
        assert_close(_loss_and_gradient(_ours(module, "fused"), x, _add), expected)


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("kind", CELLS)
def test_states_of_cells_can_be_changed_in_place(kind: str, runner: str) -> None:
    module = _theirs(kind, D, N)

    def call(cell: Any) -> Any:
        h, *others = states if isinstance(states := cell(x), tuple) else (states,)
        if cell is module:  # torch's own RNNCell would raise
            h = h * 0.5
        else:
            h *= 0.5
        again = cell(x, (h, *others) if others else h)
        loss = _h(again).square().sum()
        cell.zero_grad()
        loss.backward()
        _h(again).detach_()
        return loss

    x = _randn(B, D)
    assert_close(call(_ours(module, runner)), call(module))


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_batch(kind: str, runner: str) -> None:
    module = _theirs(kind, D, N, 2, bidirectional=True)
    x = torch.zeros(T, 0, D, dtype=torch.float64, requires_grad=True)
    ours = _ours(module, runner)
    for layer in (module, ours):
        out, states = layer(x)
        assert out.shape == (T, 0, 2 * N)
        assert _h(states).shape == (4, 0, N)
        out.sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in ours.parameters())


def test_an_empty_batch_with_lengths_and_of_a_cell() -> None:
    out, _ = onegate.MGU(D, N)(torch.zeros(T, 0, D), lengths=torch.zeros(0, dtype=torch.int64))
    assert out.shape == (T, 0, N)
    assert onegate.MGUCell(D, N)(torch.zeros(0, D)).shape == (0, N)


@torch.no_grad()
def test_results_without_gradient_can_be_resized() -> None:
    out, h = onegate.MGU(D, 64)(torch.randn(100, 60, D))
    assert out.resize_(200, 60, 64).shape == (200, 60, 64)
    assert h.resize_(2, 60, 64).shape == (2, 60, 64)


@pytest.mark.parametrize("kind", KINDS)
def test_state_dicts_of_torch_are_loaded(kind: str) -> None:
    theirs = nn.Sequential(_theirs(kind, D, N, 2, bidirectional=True))
    ours = nn.Sequential(OURS[kind](D, N, 2, bidirectional=True, dtype=torch.float64))
    state = theirs.state_dict()
    assert ours.load_state_dict(state) == ([], [])
    assert "0.weight_ih_l0" in state  # the caller's stays as it is
    x = _randn(T, B, D)
    assert_close(ours(x), theirs(x))


@pytest.mark.parametrize("kind", CELLS)
def test_state_dicts_of_torchs_cells_are_loaded(kind: str) -> None:
    theirs = _theirs(kind, D, N)
    ours = CELLS[kind](D, N, dtype=torch.float64)
    ours.load_state_dict(theirs.state_dict())
    x = _randn(B, D)
    assert_close(ours(x), theirs(x))


def test_a_state_dict_of_other_gates_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"weight_ih_l0 is \(5, 3\), expected rows for the 3"):
        onegate.GRUResetAfter(D, N).load_state_dict(nn.RNN(D, N).state_dict())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("runner", RUNNERS)
def test_projections(runner: str, bias: bool) -> None:
    module = _theirs("LSTM", D, N, 2, bias=bias, bidirectional=True, proj_size=2)
    ours = _ours(module, runner)
    x = _randn(T, B, D)
    hx = _randn(4, B, 2), _randn(4, B, N)
    results = []
    for layer in (module, ours):
        given = x.clone().requires_grad_()
        out, (h, c) = layer(given, hx)
        (out.square().sum() + h.sum() + c.sum()).backward()
        results.append([out, h, c, given.grad])
    assert_close(results[1], results[0])
    assert [r.engine for r in onegate.engine_report(ours)] == [
        runner if runner == "reference" else "fused"
    ]
    if runner == "fused":
        back = onegate.to_torch(ours)
        assert back.proj_size == 2
        assert_close(back(x), module(x))
        made = onegate.LSTM(D, N, 2, bias, bidirectional=True, proj_size=2, dtype=torch.float64)
        made.load_state_dict(module.state_dict())
        assert_close(made(x), module(x))


def test_proj_size_is_zero_elsewhere() -> None:
    assert onegate.MGU(D, N, proj_size=0).proj_size == 0
    with pytest.raises(
        ValueError, match=r"proj_size .* it is 2, expected 0; 'mgu' has no projection"
    ):
        onegate.MGU(D, N, proj_size=2)
    with pytest.raises(
        ValueError, match=r"proj_size should be a positive integer or zero .* it is -1"
    ):
        onegate.LSTM(D, N, proj_size=-1)


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_rnn_takes_torchs_arguments_in_torchs_order(nonlinearity: str) -> None:
    arguments = (D, N, 2, nonlinearity, True, True, 0.0, True)
    theirs, ours = nn.RNN(*arguments), onegate.RNN(*arguments)
    assert (ours.nonlinearity, ours.mode) == (nonlinearity, theirs.mode)
    assert all(p.abs().max() <= 1 / N**0.5 for p in ours.parameters())
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(B, T, D)
    assert_close(ours(x), theirs(x))
    cells = nn.RNNCell(D, N, True, nonlinearity), onegate.RNNCell(D, N, True, nonlinearity)
    cells[1].load_state_dict(cells[0].state_dict())
    assert_close(cells[1](x[:, 0]), cells[0](x[:, 0]))


def test_rnn_refuses_other_nonlinearities() -> None:
    for kind in (onegate.RNN, onegate.RNNCell):
        with pytest.raises(
            ValueError, match="Unknown nonlinearity: it is 'gelu', expected 'tanh' or 'relu'"
        ):
            kind(D, N, nonlinearity="gelu")


@pytest.mark.parametrize("kind", KINDS)
def test_attributes_of_torch(kind: str) -> None:
    theirs, ours = nn.__dict__[kind](D, N, 2), OURS[kind](D, N, 2)
    assert (ours.mode, ours.proj_size) == (theirs.mode, theirs.proj_size)
    assert [len(w) > 0 for w in ours.all_weights] == [True, True]
    assert sum(w.numel() for each in ours.all_weights for w in each) == sum(
        p.numel() for p in ours.parameters()
    )
    assert onegate.MGU(D, N).mode == "MGU"
    assert not hasattr(onegate.MGU(D, N), "nonlinearity")


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
@pytest.mark.parametrize("kind", [nn.RNN, nn.RNNCell])
def test_converted_modules_keep_their_nonlinearity(kind: Any, nonlinearity: str) -> None:
    assert onegate.from_torch(kind(D, N, nonlinearity=nonlinearity)).nonlinearity == nonlinearity


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m(torch.zeros(T, B, D + 1)),
        lambda m: m(torch.zeros(1, T, B, D)),
        lambda m: m(torch.zeros(0, B, D)),
        lambda m: m(torch.zeros(T, B, D), torch.zeros(1, B, N + 1)),
        lambda m: m(torch.zeros(T, B, D), torch.zeros(1, B + 1, N)),
    ],
)
def test_errors_are_both_torchs_and_pythons(call: Callable[[Any], Any]) -> None:
    with pytest.raises((RuntimeError, ValueError)):
        call(nn.GRU(D, N))
    for error in (RuntimeError, ValueError):
        with pytest.raises(error):
            call(onegate.MGU(D, N))


@pytest.mark.parametrize("kind", CELLS)
def test_cells_are_converted_both_ways(kind: str) -> None:
    theirs = _theirs(kind, D, N)
    ours = onegate.from_torch(theirs)
    again: Any = onegate.to_torch(ours)
    assert type(again) is type(theirs)
    x = _randn(B, D)
    assert_close(ours(x), theirs(x))
    assert_close(again(x), theirs(x))


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.GRU(D, N)
        self.again = self.encoder  # one layer in two places
        self.cell = nn.LSTMCell(N, 2)
        self.head = nn.Linear(2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """All of them, one after the other."""
        h, _ = self.cell(self.again(x)[0][-1])
        out: Tensor = self.head(h)
        return out


def test_models_are_converted_both_ways() -> None:
    model = _Model()
    ours: Any = onegate.from_torch(model)
    assert isinstance(ours.encoder, onegate.GRUResetAfter)
    assert ours.again is ours.encoder
    assert isinstance(ours.cell, onegate.LSTMCell)
    assert isinstance(model.encoder, nn.GRU)
    assert ours.head.weight is not model.head.weight
    x = torch.randn(T, B, D)
    assert_close(ours(x), model(x))
    again = onegate.to_torch(ours)
    assert isinstance(again.encoder, nn.GRU)
    assert_close(again(x), model(x))
    fresh = onegate.from_torch(_Model())
    fresh.load_state_dict(model.state_dict())  # a whole model's
    assert_close(fresh(x), model(x))


def test_a_parametrized_layer_inside_a_model() -> None:
    model = _Model()
    parametrizations.weight_norm(model.encoder, "weight_hh_l0")
    with pytest.raises(ValueError, match="not a parameter but computed from others"):
        onegate.from_torch(model)
    x = torch.randn(T, B, D)
    assert_close(onegate.from_torch(model, values_only=True)(x), model(x))


def test_gru_says_that_torchs_is_another() -> None:
    assert "torch.nn.GRU" in (onegate.GRU.__doc__ or "").splitlines()[0]
    assert "GRUResetAfter" in (onegate.GRU.__doc__ or "").splitlines()[0]
    with pytest.raises(ValueError, match=r"torch.nn.GRU is onegate.GRUResetAfter"):
        onegate.to_torch(onegate.GRU(D, N))


def _saved(module: nn.Module) -> io.BytesIO:
    written = io.BytesIO()
    torch.save(module, written)
    written.seek(0)
    return written


def test_whole_modules_load_with_weights_only() -> None:
    accelerated = onegate.accelerate(nn.GRU(D, N))
    x = torch.randn(T, B, D)
    expected = accelerated(x)
    own: list[Any] = [type(accelerated)]
    for allowed in (own, onegate.safe_globals()):
        with torch.serialization.safe_globals(allowed):
            assert_close(torch.load(_saved(accelerated), weights_only=True)(x), expected)
    layer = onegate.MGU(D, N)
    with torch.serialization.safe_globals(onegate.safe_globals()):
        assert_close(torch.load(_saved(layer), weights_only=True)(x), layer(x))
    written = _saved(layer)
    assert len(torch.serialization.get_unsafe_globals_in_checkpoint(written)) == 4


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("unit", ["mgu", "lstm", "gru_reset_after"])
def test_half_precision_on_the_fused_engine(unit: str, low: torch.dtype) -> None:
    layer = onegate.Recurrent(unit, D, N, 2, bidirectional=True)
    x = torch.randn(T, B, D)
    exact = layer(x)[0]
    with torch.autocast("cpu", dtype=low):
        out, states = layer(x)
    assert (out.dtype, _h(states).dtype) == (low, low)
    assert layer.engine_report().name == "fused"
    assert_close(out.float(), exact, rtol=0.02, atol=0.02)
    out.float().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in layer.parameters())
    halved = copy.deepcopy(layer).to(low)
    out, states = halved(x.to(low))
    assert (out.dtype, _h(states).dtype) == (low, low)
    assert halved.engine_report().name == "fused"
    assert_close(out.float(), exact, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("kind", KINDS)
class TestTransforms:
    def test_batched_gradients(self, kind: str, runner: str) -> None:
        module = _theirs(kind, D, N)
        ours = _ours(module, runner)
        x = _randn(3, 2, D).requires_grad_()
        given = _randn(6, 3, 2, N)
        results = [
            torch.autograd.grad(layer(x)[0], x, given, is_grads_batched=True)[0]
            for layer in (module, ours)
        ]
        assert_close(results[1], results[0])
        jacobians = [
            torch.autograd.functional.jacobian(lambda x, f=layer: f(x)[0], x, vectorize=True)
            for layer in (module, ours)
        ]
        assert_close(jacobians[1], jacobians[0])
        assert torch.autograd.gradcheck(
            lambda x: ours(x)[0], x, check_batched_grad=True, fast_mode=True
        )

    def test_gradients_of_each_sample(self, kind: str, runner: str) -> None:
        ours = _ours(_theirs(kind, D, N), runner)
        parameters = {name: p.detach() for name, p in ours.named_parameters()}
        x = _randn(3, T, D)

        def loss(parameters: Any, x: Tensor) -> Tensor:
            out: Tensor = functional_call(ours, parameters, (x,))[0]
            return out.square().sum()

        each = vmap(grad(loss), (None, 0))(parameters, x)
        for row in range(3):
            ours.zero_grad()
            ours(x[row])[0].square().sum().backward()
            assert_close(
                {name: g[row] for name, g in each.items()},
                {name: p.grad for name, p in ours.named_parameters()},
            )

    def test_forward_mode(self, kind: str, runner: str) -> None:
        ours = _ours(_theirs(kind, D, N), runner)
        x, tangent = _randn(T, 2, D), _randn(T, 2, D)
        with forward_ad.dual_level():
            got = forward_ad.unpack_dual(ours(forward_ad.make_dual(x, tangent))[0]).tangent
        step = 1e-6
        with torch.no_grad():
            expected = (ours(x + step * tangent)[0] - ours(x - step * tangent)[0]) / (2 * step)
        assert_close(got, expected, rtol=1e-6, atol=1e-8)
