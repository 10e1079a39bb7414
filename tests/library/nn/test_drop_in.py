"""torch's layers on the fused engine: values, gradients, trajectories and what stays torch's."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize
from torch.nn.utils.rnn import pack_padded_sequence

import onegate
from onegate.engines.cpu.native import library
from onegate.nn import drop_in
from onegate.nn.drop_in_rule import ALWAYS, RULES

pytestmark = pytest.mark.skipif(library().problem is not None, reason=str(library().problem))

LAYERS: list[tuple[str, dict[str, Any]]] = [
    ("GRU", {}),
    ("LSTM", {}),
    ("RNN", {}),
    ("RNN", {"nonlinearity": "relu"}),
]


@pytest.fixture(autouse=True)
def _always_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in RULES:
        monkeypatch.setitem(RULES, kind, ALWAYS)


def _made(name: str, *args: Any, **kwargs: Any) -> Any:
    torch.manual_seed(0)
    return getattr(nn, name)(*args, **kwargs)


def _pair(module: nn.Module) -> tuple[Any, Any]:
    return module, onegate.accelerate(copy.deepcopy(module))


def _flat(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    return [t for part in result if part is not None for t in _flat(part)]


def _values_and_gradients(module: nn.Module, x: Tensor, call: Callable[[Any, Tensor], Any]) -> Any:
    torch.manual_seed(1)  # of dropout
    x = x.clone().requires_grad_()
    outputs = [t for t in _flat(call(module, x)) if t.is_floating_point()]
    module.zero_grad()
    torch.autograd.backward([(t * (t + 0.3)).sum() for t in outputs])
    return [*outputs, x.grad, *[p.grad for p in module.parameters()]]


def _assert_alike(module: nn.Module, x: Tensor, call: Callable[[Any, Tensor], Any]) -> None:
    theirs, ours = _pair(module)
    expected = _values_and_gradients(theirs, x, call)
    torch.testing.assert_close(_values_and_gradients(ours, x, call), expected)
    assert [row.engine for row in onegate.engine_report(ours)] == ["fused"]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("name", "further"), LAYERS)
def test_layers_compute_as_torch_does(
    name: str, further: dict[str, Any], bias: bool, packed: bool
) -> None:
    module = _made(
        name, 3, 5, 2, bias=bias, batch_first=True, dropout=0.3, bidirectional=True,
        dtype=torch.float64, **further,
    )  # fmt: skip
    x = torch.randn(4, 7, 3, dtype=torch.float64)
    lengths = torch.tensor([3, 7, 1, 4])

    def call(layer: Any, x: Tensor) -> Any:
        hx = torch.linspace(-1, 1, 4 * 4 * 5, dtype=x.dtype).view(4, 4, 5)
        states = (hx, hx / 2) if name == "LSTM" else hx
        if not packed:
            return layer(x, states)
        given = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return layer(given, states)

    _assert_alike(module, x, call)


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize(("name", "further"), LAYERS)
def test_cells_compute_as_torch_does(name: str, further: dict[str, Any], batched: bool) -> None:
    module = _made(f"{name}Cell", 3, 5, dtype=torch.float64, **further)
    x = torch.randn(*([7] if batched else []), 3, dtype=torch.float64)

    def call(cell: Any, x: Tensor) -> Any:
        return cell(x, cell(x))

    _assert_alike(module, x, call)


@pytest.mark.parametrize(("name", "further"), LAYERS)
def test_one_sequence(name: str, further: dict[str, Any]) -> None:
    module = _made(name, 3, 5, dtype=torch.float64, **further)
    _assert_alike(module, torch.randn(7, 3, dtype=torch.float64), lambda m, x: m(x))


@pytest.mark.parametrize(("name", "further"), LAYERS)
def test_two_hundred_steps_of_adam_follow_torch(name: str, further: dict[str, Any]) -> None:
    curves = []
    for module in _pair(_made(name, 3, 5, 2, bidirectional=True, dtype=torch.float64, **further)):
        torch.manual_seed(2)
        optimiser = torch.optim.Adam(module.parameters(), 0.01)
        losses = []
        for _ in range(200):
            x = torch.randn(6, 4, 3, dtype=torch.float64)
            loss = (module(x)[0] - x.cumsum(0).sum(-1, keepdim=True).tanh()).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        curves.append(torch.tensor(losses, dtype=torch.float64))
    torch.testing.assert_close(curves[1], curves[0], rtol=1e-9, atol=0)


def test_the_model_stays_what_it_is() -> None:
    model = nn.ModuleDict({"a": _made("GRU", 3, 5), "b": _made("LSTMCell", 5, 2)})
    seen: list[str] = []
    model["a"].register_forward_hook(lambda *_: seen.append("hook"))
    parameters, state = list(model.parameters()), copy.deepcopy(model.state_dict())
    assert onegate.accelerate(model) is model
    assert isinstance(model["a"], nn.GRU)
    assert isinstance(model["b"], onegate.drop_in.LSTMCell)
    assert all(p is q for p, q in zip(model.parameters(), parameters, strict=True))
    torch.testing.assert_close(dict(model.state_dict()), dict(state))
    model["a"](torch.randn(2, 4, 3))
    assert seen == ["hook"]
    report = onegate.engine_report(model)
    assert [(row.name, row.engine) for row in report] == [("a", "fused"), ("b", "none")]
    assert "float32 on the CPU" in str(report)
    onegate.restore(model)
    assert type(model["a"]) is nn.GRU
    assert type(model["b"]) is nn.LSTMCell
    assert "_engine_taken" not in vars(model["a"])


def test_context_manager_leaves_what_was_accelerated_before() -> None:
    model = nn.ModuleList([_made("GRU", 3, 5), drop_in.GRU(3, 5)])
    with onegate.accelerated(model):
        assert type(model[0]) is drop_in.GRU
    assert type(model[0]) is nn.GRU
    assert type(model[1]) is drop_in.GRU


class _Own(nn.GRU):
    def forward(self, input: Any, hx: Any = None) -> Any:
        return super().forward(2 * input, hx)


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(TypeError, match=r"accelerate takes a torch.nn.Module, got list"):
        onegate.accelerate([nn.GRU(3, 5)])  # type: ignore[type-var]


@pytest.mark.parametrize("wrap", [nn.DataParallel, copy.deepcopy, nn.Sequential])
def test_models_that_hold_a_layer_more_than_once_or_wrapped(wrap: Any) -> None:
    layer = _made("GRU", 3, 5)
    model = nn.ModuleList([wrap(layer), layer])
    x = torch.randn(2, 4, 3)
    expected = layer(x)
    onegate.accelerate(onegate.accelerate(model))
    for module in model:
        torch.testing.assert_close(module(x), expected)
    assert {(row.kind, row.engine) for row in onegate.engine_report(model)} == {("GRU", "fused")}
    assert type(onegate.restore(model)[1]) is nn.GRU


def test_a_weight_that_a_wrapper_computes() -> None:
    """As AWD-LSTM's authors drop weights: what was a parameter becomes a plain tensor."""
    layer = onegate.accelerate(_made("LSTM", 3, 5))
    raw = nn.Parameter(layer._parameters.pop("weight_hh_l0").detach())
    layer.weight_hh_l0 = raw * 2
    layer(torch.randn(7, 4, 3))[0].sum().backward()
    assert raw.grad is not None
    assert raw.grad.abs().sum() > 0
    assert onegate.engine_report(layer)[0].engine == "fused"


def test_a_subclass_is_left_alone() -> None:
    model = onegate.accelerate(_Own(3, 5))
    assert type(model) is _Own
    assert onegate.engine_report(model)[0].reason == "a subclass of torch's layer"


@pytest.mark.parametrize(
    ("make", "x", "reason"),
    [
        (lambda: nn.GRU(3, 5), torch.randn(2, 0, 3), "an empty batch, no step"),
        (lambda: nn.GRUCell(3, 0), torch.randn(4, 3), "a cell without neurons"),
        (lambda: nn.GRU(3, 5, device="meta"), torch.randn(2, 4, 3, device="meta"), "meta"),
    ],
)
def test_what_is_left_to_torch_is_said(make: Any, x: Tensor, reason: str) -> None:
    theirs, ours = _pair(make())
    expected, got = _flat(theirs(x)), _flat(ours(x))
    assert [t.shape for t in got] == [t.shape for t in expected]
    row = onegate.engine_report(ours)[0]
    assert row.engine == "torch"
    assert reason in row.reason


def test_errors_are_those_of_torch() -> None:
    theirs, ours = _pair(nn.GRU(3, 5))
    for x, hx in ((torch.randn(2, 4, 2), None), (torch.randn(2, 4, 3), torch.randn(1, 3, 5))):
        with pytest.raises(RuntimeError) as expected:
            theirs(x, hx)
        with pytest.raises(RuntimeError) as got:
            ours(x, hx)
        assert str(got.value) == str(expected.value)


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("name", "further"), LAYERS)
def test_half_precision_gives_the_dtypes_of_torch(
    name: str, further: dict[str, Any], low: torch.dtype
) -> None:
    for cell, shape in (("", (7, 2, 3)), ("Cell", (2, 3))):
        theirs, ours = _pair(_made(name + cell, 3, 5, **further))
        x = torch.randn(shape)
        exact = _flat(theirs(x))
        with torch.autocast("cpu", dtype=low):
            got = _flat(ours(x))
            if (name, low) != ("LSTM", torch.float16):  # torch itself raises on most CPUs
                assert [t.dtype for t in got] == [t.dtype for t in _flat(theirs(x))]
        torch.testing.assert_close([t.float() for t in got], exact, rtol=0.02, atol=0.02)
        assert onegate.engine_report(ours)[0].engine == "fused"
        halved = _flat(ours.to(low)(x.to(low)))
        assert {t.dtype for t in halved} == {low}
        torch.testing.assert_close([t.float() for t in halved], exact, rtol=0.02, atol=0.02)
        assert onegate.engine_report(ours)[0].engine == "fused"


def test_parametrizations_stay_and_end() -> None:
    module = _made("GRU", 3, 5)
    parametrizations.weight_norm(module, "weight_hh_l0")
    x = torch.randn(2, 4, 3)
    expected = module(x)[0]
    onegate.accelerate(module)
    torch.testing.assert_close(module(x)[0], expected)
    parametrize.remove_parametrizations(module, "weight_hh_l0")
    assert type(module) is drop_in.GRU


def test_saving_and_scripting() -> None:
    ours = onegate.accelerate(_made("GRU", 3, 5))
    x = torch.randn(2, 4, 3)
    expected = ours(x)[0]
    written = io.BytesIO()
    torch.save(ours, written)
    written.seek(0)
    again = torch.load(written, weights_only=False)
    torch.testing.assert_close(again(x)[0], expected)
    model = _Model(ours)
    torch.testing.assert_close(torch.jit.script(model)(x), expected)


@pytest.mark.parametrize("kind", ["GRU", "LSTMCell"])
def test_compiled_models_run(kind: str) -> None:
    """torch.compile runs a layer between two graphs, on our engine, and looks into a cell."""
    theirs, ours = _pair(nn.Sequential(nn.Linear(3, 3), _made(kind, 3, 5)))
    x = torch.randn(7, 4, 3)[: 7 if kind == "GRU" else 1].squeeze(0)
    compiled = torch.compile(ours, backend="eager", fullgraph=kind != "GRU")
    found = []
    for model, call in ((theirs, theirs), (ours, compiled)):
        first = _flat(call(x))[0]
        first.sum().backward()
        found.append([first, *[p.grad for p in model.parameters()]])
    torch.testing.assert_close(found[1], found[0])
    report = onegate.engine_report(ours)
    assert [row.engine for row in report] == ["fused" if kind == "GRU" else "none"]


class _Model(nn.Module):
    def __init__(self, layer: nn.GRU) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        """The outputs alone."""
        out: Tensor = self.layer(x)[0]
        return out


@pytest.mark.parametrize(("name", "further"), LAYERS)
@pytest.mark.parametrize("axes", ["steps first", "batch first", "both ways", "one sequence"])
def test_a_single_layer_with_states(name: str, further: dict[str, Any], axes: str) -> None:
    """Read where torch keeps its matrices, in each of the orders that axes can have."""
    both = axes == "both ways"
    made = {"batch_first": axes == "batch first", "bidirectional": both}
    module = _made(name, 3, 5, dtype=torch.float64, **made, **further)
    x = torch.randn(4, 7, 3, dtype=torch.float64)
    shape = {"steps first": (1, 7, 5), "batch first": (1, 4, 5), "both ways": (2, 7, 5)}
    h = torch.randn(*shape.get(axes, (1, 5)), dtype=torch.float64, requires_grad=True)

    def call(layer: Any, x: Tensor) -> Any:
        h.grad = None
        states = (h, h / 2) if name == "LSTM" else h
        return layer(x[:, 0] if axes == "one sequence" else x, states)

    _assert_alike(module, x, call)
    theirs, ours = _pair(module)
    found = []
    for each in (theirs, ours):  # derivatives of higher order, by the reference engine
        x = x.detach().requires_grad_()
        outputs = _flat(call(each, x))
        loss = sum([(t**3).sum() for t in outputs], start=torch.zeros(()))
        grads = torch.autograd.grad(loss, [x, h, *each.parameters()], create_graph=True)
        second = sum([g.square().sum() for g in grads], start=torch.zeros(()))
        found.append([*grads, *torch.autograd.grad(second, [x, h, *each.parameters()])])
    torch.testing.assert_close(found[1], found[0])


def test_a_projection_in_one_layer() -> None:
    module = _made("LSTM", 3, 5, proj_size=2, bidirectional=True, dtype=torch.float64)
    _assert_alike(module, torch.randn(4, 7, 3, dtype=torch.float64), lambda m, x: m(x))


def test_parameters_that_were_replaced_are_those_that_are_used() -> None:
    theirs, ours = _pair(_made("GRU", 3, 5))
    x = torch.randn(7, 4, 3)
    new = {name: p * 2 for name, p in theirs.named_parameters()}
    expected = torch.func.functional_call(theirs, new, (x,))
    torch.testing.assert_close(torch.func.functional_call(ours, new, (x,)), expected)
    for module in (theirs, ours):
        module.weight_hh_l0 = nn.Parameter(new["weight_hh_l0"].detach())
    torch.testing.assert_close(ours(x), theirs(x))


def test_a_weight_that_changes_before_the_backward_pass_is_told() -> None:
    ours: Any = drop_in.GRU(3, 5)
    out = ours(torch.randn(7, 4, 3))[0].sum()
    with torch.no_grad():
        ours.weight_hh_l0.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()
    out = ours(torch.randn(7, 4, 3))[0].sum()
    ours.weight_hh_l0.data = torch.zeros(1, 1)  # of which torch keeps no account
    with pytest.raises(RuntimeError, match="exchanged after the forward pass"):
        out.backward()
    ours.weight_hh_l0.data = torch.zeros(15, 4)
    with pytest.raises(RuntimeError):
        ours(torch.randn(7, 4, 3))


def test_gradients_are_tensors_of_their_own() -> None:
    """Two biases that act as their sum have gradients that are changed one by one."""
    ours: Any = drop_in.LSTM(3, 5)
    ours(torch.randn(7, 4, 3))[0].sum().backward()
    places = {p.grad.untyped_storage().data_ptr() for p in ours.parameters() if p.grad is not None}
    assert len(places) == 4
    assert torch.equal(ours.bias_ih_l0.grad, ours.bias_hh_l0.grad)
    ours.bias_ih_l0.grad.zero_()
    assert ours.bias_hh_l0.grad.abs().sum() > 0
