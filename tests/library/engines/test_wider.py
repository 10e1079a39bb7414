"""Norms, heads, low rank, further inputs, resets, all states, recompute: fused against reference.

The reference engine in turn is held against `Unit.bind` and formulas of torch, in
tests/library/nn/test_inside.py.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

import onegate
from onegate.engines.cpu import operator, programs
from onegate.engines.cpu.native import library
from onegate.language import Affine, Diagonal, LayerNorm, RMSNorm, Unit, sigmoid, tanh
from onegate.ops import exp, square
from onegate.tracing import trace

pytestmark = pytest.mark.skipif(library().problem is not None, reason=str(library().problem))


class Heads(Unit):
    """Maps with heads beside dense ones, of state and input, with and without a bias."""

    W_f = Affine(heads=2)
    U_h = Affine(heads=3, bias=False)
    W_h = Affine()

    def step(self, x: Any, h: Any) -> Any:
        f = sigmoid(self.W_f[h, x])
        candidate = tanh(self.U_h[f * h] + self.W_h[h, x])
        return (1 - f) * h + f * candidate


class LowRank(Unit):
    W = Affine(rank=2)
    D = Diagonal()

    def step(self, x: Any, h: Any) -> Any:
        candidate = tanh(self.W[h, x] + self.D[h])
        return 0.5 * h + candidate


class Norms(Unit):
    states = ("h", "c")
    W_f = Affine()
    W_c = Affine()
    N_f = LayerNorm()
    N_c = RMSNorm(shift=True)
    N = LayerNorm(eps=1e-3)
    M = RMSNorm(gain=False)

    def step(self, x: Any, h: Any, c: Any) -> Any:
        f, a = self.N[self.W_f[h, x], self.W_c[h, x]]
        f = sigmoid(self.N_f[f])
        candidate = tanh(self.N_c[a])
        c = f * c + (1 - f) * candidate
        return tanh(self.M[c]), c


class Decay(Unit):
    """Two further inputs, one in a map, one outside."""

    inputs = ("x", "gap", "seen")
    states = ("h", "c")
    W = Affine()
    V = Affine()

    def input_sizes(self, input_size: int, hidden_size: int) -> dict[str, int]:
        return {"x": input_size, "gap": hidden_size, "seen": 2}

    def step(self, x: Any, gap: Any, seen: Any, h: Any, c: Any) -> Any:
        c = exp(-square(gap)) * c
        candidate = tanh(self.W[h, x, seen])
        f = sigmoid(self.V[seen])
        c = f * c + candidate
        return tanh(c), c


UNITS: list[type[Unit]] = [Heads, LowRank, Norms, Decay]


def pair(
    kind: Any, input_size: int, hidden_size: int, **options: Any
) -> tuple[onegate.Recurrent, onegate.Recurrent]:
    torch.manual_seed(0)
    options |= {"dtype": torch.float64}
    ours = onegate.Recurrent(kind, input_size, hidden_size, engine="fused", **options)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.uniform_(-0.7, 0.7)
    truth = onegate.Recurrent(kind, input_size, hidden_size, engine="reference", **options)
    truth.load_state_dict(ours.state_dict())
    return ours, truth


def results(layer: onegate.Recurrent, x: Tensor, *leaves: Tensor, **given: Any) -> list[Tensor]:
    """Outputs, last states, all states; and the gradients of a sum of all of these."""
    torch.manual_seed(1)  # of masks
    out, last, *more = layer(x, **given)
    found = [out]
    for states in (last, *more):
        found += [states] if isinstance(states, Tensor) else states
    total = sum((t * torch.arange(t.numel(), dtype=t.dtype).view_as(t).cos()).sum() for t in found)
    assert isinstance(total, Tensor)
    wanted = [x, *leaves, *layer.parameters()]
    return [*found, *torch.autograd.grad(total, wanted)]


def assert_alike(ours: list[Tensor], truth: list[Tensor]) -> None:
    for one, other in zip(ours, truth, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


def inputs(kind: type[Unit], T: int, B: int) -> tuple[Tensor, dict[str, Any], list[Tensor]]:
    generator = torch.Generator().manual_seed(2)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_()

    x = draw(T, B, 6)
    if kind is not Decay:
        return x, {}, []
    gap, seen = draw(T, B, 1), draw(T, B, 2)
    return x, {"extra": {"seen": seen, "gap": gap}}, [gap, seen]


@pytest.mark.parametrize("kind", UNITS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False},
        {"bidirectional": True, "num_layers": 2},
        {"recompute": True, "bidirectional": True},
        {"learn_initial_state": True, "reset": True},
        {"recompute": True, "reset": True, "return_states": True, "num_layers": 2},
        {"zoneout": 0.3, "recurrent_dropout": 0.2, "candidate_dropout": 0.1},
        {"zoneout": 0.3, "recurrent_dropout": 0.2, "recompute": True, "weight_drop": 0.5},
    ],
    ids=str,
)
def test_the_fused_engine_agrees(kind: type[Unit], options: dict[str, Any]) -> None:
    options = dict(options)
    given: dict[str, Any] = {k: options.pop(k) for k in ("reset", "return_states") if k in options}
    if kind is Decay and options.get("num_layers") == 2:
        options["num_layers"] = 1
    for T, B, lengths in ((7, 5, None), (40, 3, [40, 3, 17]), (1, 1, None), (23, 9, None)):
        ours, truth = pair(kind, 6, 12, **options)
        x, extra, leaves = inputs(kind, T, B)
        call: dict[str, Any] = {**extra, "lengths": lengths, **given}
        if "reset" in given:
            call["reset"] = torch.rand(T, B, generator=torch.Generator().manual_seed(3)) < 0.3
        assert_alike(*(results(layer, x, *leaves, **call) for layer in (ours, truth)))
        assert ours.engine_report().name == "fused"


@pytest.mark.parametrize("split", ["rows", "columns"])
@pytest.mark.parametrize(
    "kind", [Norms, Heads, Decay, *(onegate.UNITS[n] for n in ("mgu", "lstm"))]
)
def test_threads_share_the_work(kind: Any, split: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator, "_THREAD_SPLIT", operator.SPLIT[split])
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        for options in ({"recompute": True}, {"zoneout": 0.2, "recurrent_dropout": 0.3}):
            ours, truth = pair(kind, 6, 36, learn_initial_state=True, **options)
            x, extra, leaves = inputs(kind, 19, 4)
            reset = torch.rand(19, 4, generator=torch.Generator().manual_seed(3)) < 0.2
            for lengths in (None, [19, 2, 11, 5]):
                call = {**extra, "reset": reset, "return_states": True, "lengths": lengths}
                assert_alike(*(results(layer, x, *leaves, **call) for layer in (ours, truth)))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kind", UNITS)
def test_gradients_of_both_orders_are_right(kind: type[Unit]) -> None:
    layer, _ = pair(kind, 6, 6, learn_initial_state=True)
    x, _, leaves = inputs(kind, 3, 2)
    reset = torch.tensor([[False, True], [True, False], [False, False]])
    names = [name for name, _ in layer.named_parameters()]

    def run(x: Tensor, *tensors: Tensor) -> Any:
        given = dict(zip(("gap", "seen"), tensors, strict=False)) if leaves else {}
        parameters = dict(zip(names, tensors[len(leaves) :], strict=True))
        call = {"reset": reset, "return_states": True} | ({"extra": given} if given else {})
        out, _, every = torch.func.functional_call(layer, parameters, (x,), call)
        return (out, every) if isinstance(every, Tensor) else (out, *every)

    tensors = (x, *leaves, *(p.detach().requires_grad_() for p in layer.parameters()))
    assert torch.autograd.gradcheck(run, tensors, fast_mode=True)
    assert torch.autograd.gradgradcheck(run, tensors, fast_mode=True)


def test_a_recorded_call_runs_alike() -> None:
    """Through the operator, as torch.compile and torch.export see it."""
    layer, _ = pair(Decay, 6, 5, zoneout=0.2)
    layer.eval()
    x, extra, _ = inputs(Decay, 4, 2)
    args: dict[str, Any] = {"extra": {k: v.detach() for k, v in extra["extra"].items()}}
    args["reset"] = torch.tensor([[False, True]] * 4)
    program = torch.export.export(layer, (x.detach(),), args)
    torch.testing.assert_close(program.module()(x.detach(), **args), layer(x.detach(), **args))


@pytest.mark.parametrize("further", [{}, {"return_states": True}])
def test_states_that_start_as_one_number_are_not_held(further: dict[str, Any]) -> None:
    layer, _ = pair(onegate.UNITS["mgu"], 6, 5)
    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    x, _, _ = inputs(Norms, 4, 3)
    for value in (None, 0.5):  # None: the zeros of the layer
        one = None if value is None else torch.full((), value).double().expand(1, 3, 5)
        whole = torch.full((1, 3, 5), value or 0.0).double()
        found: list[Tensor] = []
        for start in (one, whole, one):
            saved.clear()
            with saved_tensors_hooks(pack, lambda tensor: tensor):
                layer(x, start, **further)
            held = [len(t.untyped_storage()) for t in saved if t.shape == (1, 3, 5)]
            assert (sum(held) <= 8) == (start is one)  # bytes of one number
            out = layer(x, start, **further)[0]
            (first,) = torch.autograd.grad(out.sin().sum(), x, create_graph=True)
            found += [first, *torch.autograd.grad(first.sin().sum(), [x, *layer.parameters()])]
        third = len(found) // 3
        assert_alike(found[:third], found[third : 2 * third])
        # One that is learned is held, and has its gradient.
        number = torch.full((), value or 0.0).double().requires_grad_()
        out = layer(x, number.expand(1, 3, 5), **further)[0]
        (given,) = torch.autograd.grad(out.sin().sum(), number)
        start = whole.requires_grad_()
        (truth,) = torch.autograd.grad(layer(x, start, **further)[0].sin().sum(), start)
        torch.testing.assert_close(given, truth.sum())


def test_masks_of_bytes_are_for_what_is_not_learned() -> None:
    entry = programs.entry_of(trace(Decay(), 6, 5))
    x, start = torch.randn(4, 2, 6), torch.zeros(1, 2, entry.width)
    parameters = [torch.randn(shape) for shape in entry.program.parameters]
    extras = [torch.ones(4, 2, width, dtype=torch.bool) for width in entry.program.inputs[1:]]
    with pytest.raises(ValueError, match=r"a further input is .*torch.bool"):
        torch.ops.onegate.forward(x, start, [*parameters, *extras], None, entry.key, False)


def test_the_backward_pass_keeps_little_where_it_computes_again() -> None:
    layer, _ = pair(onegate.UNITS["lstm"], 4, 8, recompute=True)
    kept: list[int] = []

    def pack(t: Tensor) -> Tensor:
        kept.append(t.numel())
        return t

    x = torch.randn(50, 3, 4, dtype=torch.float64)
    for recompute, numbers in ((True, 8), (False, 8 + 5 * 8)):  # c; and four gates and tanh(c)
        layer.recompute = recompute
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            layer(x)
        assert 50 * 3 * numbers in kept
