"""torch.compile and torch.export see one operator for a whole sequence."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, export, load, save
from torch.utils._pytree import tree_leaves

import onegate
from onegate.engines.cpu import pool, programs
from onegate.nn.layers import Recurrent
from onegate.tracing import trace
from onegate.units import UNITS, get
from tests.library.comparing import with_gradients

T, B, D, N = 4, 3, 5, 9
OPERATOR = torch.ops.onegate.forward.default


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Seen:
    """A backend of torch.compile that counts graphs and our operators in them."""

    def __init__(self) -> None:
        self.operators: list[int] = []

    def __call__(self, module: Any, inputs: Any) -> Any:
        targets = [str(node.target) for node in module.graph.nodes]
        self.operators.append(sum("onegate.forward" in target for target in targets))
        return module.forward


def assert_same_bits(ours: Any, theirs: Any) -> None:
    for a, b in zip(tree_leaves(ours), tree_leaves(theirs), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("engine", ["auto", "fused"])
def test_one_graph_with_one_operator_for_each_layer(engine: str) -> None:
    seen = Seen()
    layer = onegate.LSTM(D, N, 3, bidirectional=True, engine=engine)
    x = torch.randn(T, B, D)
    assert_same_bits(torch.compile(layer, backend=seen, fullgraph=True)(x), layer(x))
    assert seen.operators == [3]


def gradients(call: Any, layer: nn.Module, *inputs: Tensor) -> Any:
    return with_gradients(call, inputs, dict(layer.named_parameters()))


@pytest.mark.parametrize("name", ["mgu", "lstm", "mut1", "scrn"])
def test_forward_and_backward_through_aot(name: str) -> None:
    layer = Recurrent(name, N, N, 2, bidirectional=True)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    x = torch.randn(T, B, N)
    assert_same_bits(gradients(compiled, layer, x), gradients(layer, layer, x))
    with torch.no_grad():
        assert_same_bits(compiled(x), layer(x))


def test_lengths_states_and_other_sizes() -> None:
    layer = onegate.MGU(D, N, bidirectional=True, batch_first=True)

    def call(x: Tensor, h: Tensor, lengths: Tensor) -> Any:
        return layer(2 * x, h, lengths=lengths)

    compiled = torch.compile(call, backend="aot_eager", fullgraph=True, dynamic=True)
    for steps, rows in ((4, 3), (7, 2), (2, 11)):
        x, h = torch.randn(rows, steps, D), torch.randn(2, rows, N)
        lengths = torch.arange(rows) % steps + 1
        assert_same_bits(
            gradients(lambda x, h, n=lengths: compiled(x, h, n), layer, x, h),
            gradients(lambda x, h, n=lengths: call(x, h, n), layer, x, h),
        )


def test_cells() -> None:
    cell = onegate.LSTMCell(D, N)
    x = torch.randn(B, D)
    compiled = torch.compile(cell, backend="aot_eager", fullgraph=True)
    assert_same_bits(gradients(compiled, cell, x), gradients(cell, cell, x))


INDUCTOR = """
import torch, onegate
torch.manual_seed(0)
layer = onegate.MGU(5, 9)
compiled = torch.compile(layer, fullgraph=True)
x = torch.randn(4, 3, 5, requires_grad=True)
found = []
for call in (compiled, layer):
    out, h = call(x)
    grads = torch.autograd.grad((out.square().sum() + h.sum()), [x, *layer.parameters()])
    found.append([out, h, *grads])
torch.testing.assert_close(*found)
print("equal")
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
def test_forward_and_backward_through_inductor() -> None:
    """In a process of its own: inductor warns of torch's own doings, which are errors here."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", INDUCTOR],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stdout.strip() == "equal", done.stderr


class OwnUnit(onegate.Unit):
    """Known in this process alone."""

    W_f, N_f = onegate.Affine(), onegate.LayerNorm()

    def step(self, x: Any, h: Any) -> Any:
        f = onegate.sigmoid(self.N_f[self.W_f[h, x]])
        return (1 - f) * h + f / (1 + onegate.abs(h))


class WithLengths(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = onegate.LSTM(D, N, 2, bidirectional=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Any:
        return self.layer(x, lengths=lengths)


STEPS, ROWS = Dim("steps", max=4096), Dim("rows", max=4096)


class TestExport:
    @pytest.mark.parametrize("strict", [True, False])
    def test_other_sizes(self, strict: bool) -> None:
        layer = onegate.MGU(D, N, 2, bidirectional=True)
        shapes = {"input": {0: STEPS, 1: ROWS}}
        program = export(layer, (torch.randn(T, B, D),), dynamic_shapes=shapes, strict=strict)
        assert [node.target for node in program.graph.nodes].count(OPERATOR) == 2
        exported = program.module()
        for steps, rows in ((4, 3), (1, 1), (2, 17), (100, 2)):
            x = torch.randn(steps, rows, D)
            assert_same_bits(exported(x), layer(x))

    def test_lengths_and_saving(self) -> None:
        model = WithLengths()
        example = torch.randn(T, B, D), torch.tensor([4, 1, 2])
        shapes = {"x": {0: STEPS, 1: ROWS}, "lengths": {0: ROWS}}
        file = io.BytesIO()
        save(export(model, example, dynamic_shapes=shapes), file)
        file.seek(0)
        loaded = load(file).module()
        x, lengths = torch.randn(9, 2, D), torch.tensor([3, 9])
        assert_same_bits(loaded(x, lengths), model(x, lengths))

    def test_an_exported_layer_can_be_trained(self) -> None:
        layer = onegate.MGU(D, N)
        exported = export(layer, (torch.randn(T, B, D),)).module()
        x = torch.randn(T, B, D)
        found = [
            torch.autograd.grad(module(x)[0].square().sum(), list(module.parameters()))
            for module in (exported, layer)
        ]
        by_shape = [sorted(grads, key=lambda g: (g.shape, float(g.sum()))) for grads in found]
        assert_same_bits(*by_shape)

    @pytest.mark.parametrize("unit", [get("scrn", context_size=3), OwnUnit()])
    def test_in_another_process(self, unit: Any, tmp_path: Any) -> None:
        """The program is all that it takes, also of a unit that is not known there."""
        torch.manual_seed(4)
        layer = onegate.Recurrent(unit, D, N)
        x = torch.linspace(-1, 1, T * B * D).view(T, B, D)
        save(export(layer, (x,)), tmp_path / "scrn.pt2")
        read = (
            "import sys, torch, onegate.engines.cpu.operator\n"
            "x = torch.linspace(-1, 1, 60).view(4, 3, 5)\n"
            "out, _ = torch.export.load(sys.argv[1]).module()(x)\n"
            "print(out.double().sum().item().hex())"
        )
        done = subprocess.run(
            [sys.executable, "-c", read, str(tmp_path / "scrn.pt2")],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        expected = layer(x)[0].double().sum().item()
        assert done.stdout.strip() == expected.hex(), done.stderr


# opcheck asks tensors of its own for .grad, and hides the warning only where it is not an error.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize(
    ("name", "directions", "lengths"), [("mgu", 1, None), ("lstm", 2, [4, 1, 2])]
)
def test_operators_keep_torchs_rules(
    name: str, directions: int, lengths: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch.library.opcheck: schema, autograd, fake tensors, tracing with dynamic shapes."""
    # What is kept beyond a row's length is never written nor read: opcheck would compare it.
    for owner, allocate in ((pool, "empty"), (Tensor, "new_empty")):
        make = getattr(owner, allocate)
        monkeypatch.setattr(owner, allocate, lambda *a, _make=make, **k: _make(*a, **k).zero_())
    graph = trace(UNITS[name], D, N)
    key = programs.key_of(graph)
    width = sum(state.size or 0 for state in graph.states)
    x, start = torch.randn(T, B, D), torch.randn(directions, B, width)
    parameters = [
        torch.randn(shape) for _ in range(directions) for shape in graph.parameters.values()
    ]
    given = None if lengths is None else torch.tensor(lengths)
    needing = [t.clone().requires_grad_() for t in (x, start, *parameters)]
    opcheck: Any = torch.library.opcheck
    opcheck(OPERATOR, (needing[0], needing[1], needing[2:], given, key, True))
    opcheck(OPERATOR, (x, start, parameters, given, key, False))
    out, last, kept = OPERATOR(x, start, parameters, given, key, True)
    backward = torch.ops.onegate.backward.default
    for grad_out, grad_last, grad_x in ((out, last, True), (None, last, False), (out, None, True)):
        opcheck(
            backward,
            (x, start, parameters, given, key, out, kept, grad_out, grad_last, grad_x),
        )
