"""Who has to see the operator sees it; who need not, is passed over without a wrong number."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import FlopCounterMode

import onegate
from onegate.engines import EngineError
from onegate.engines.cpu import programs
from onegate.nn.layers import Recurrent
from tests.library.comparing import TOLERANCE, X_ALONE, flat

T, B, D, N = 4, 3, 5, 9
DTYPES = {"float32": torch.float32, "float64": torch.float64}


def pair(name: str = "mgu", **how: Any) -> tuple[Recurrent, Recurrent]:
    """A fused layer, and a reference layer with the same parameters."""
    dtype = how.pop("dtype", torch.float64)
    fused = Recurrent(name, D, N, engine="fused", dtype=dtype, **how)
    reference = Recurrent(name, D, N, engine="reference", dtype=dtype, **how)
    reference.load_state_dict(fused.state_dict())
    return fused, reference


def assert_close(ours: Any, theirs: Any) -> None:
    for a, b in zip(flat(ours), flat(theirs), strict=True):
        tolerance = TOLERANCE[a.dtype]
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def negative(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """A view whose memory holds the opposite of its values; dense, so that nothing copies it."""
    view = torch._neg_view(torch.randn(shape, dtype=dtype))
    assert view.is_neg()
    return view


def zero(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Zeros without memory."""
    view = torch._efficientzerotensor(shape, dtype=dtype)
    assert view._is_zerotensor()
    return view


class Named(Tensor):
    """A subclass that changes nothing."""


def subclass(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype).as_subclass(Named)


LAZY: dict[str, Callable[..., Tensor]] = {
    "negative": negative, "zero": zero, "subclass": subclass,
}  # fmt: skip


def in_memory(tensor: Tensor) -> Tensor:
    """A plain tensor of the same values."""
    return tensor.as_subclass(Tensor) + torch.zeros(tensor.shape, dtype=tensor.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", LAZY)
class TestTensorsThatAreNotWhatTheirMemoryHolds:
    @pytest.mark.parametrize("needed", [True, False])
    @pytest.mark.parametrize("which", ["x", "hx", "both"])
    def test_input_and_state(self, which: str, needed: bool, kind: str, dtype: str) -> None:
        layer, reference = pair("lstm", bidirectional=True, dtype=DTYPES[dtype])
        make, shapes = LAZY[kind], {"x": (T, B, D), "h": (2, B, N), "c": (2, B, N)}
        odd = {"x": "x", "hx": "hc", "both": "xhc"}[which]
        x, h, c = (
            make(*shape, dtype=DTYPES[dtype])
            if name in odd
            else torch.randn(shape, dtype=DTYPES[dtype])
            for name, shape in shapes.items()
        )
        with torch.set_grad_enabled(needed):
            ours = layer(x, (h, c))
            theirs = reference(in_memory(x), (in_memory(h), in_memory(c)))
        assert_close(tree_map(in_memory, ours), theirs)
        if needed:
            found = [
                torch.autograd.grad(flat(result)[0].square().sum(), list(module.parameters()))
                for result, module in ((ours, layer), (theirs, reference))
            ]
            assert_close(tree_map(in_memory, found[0]), found[1])

    def test_parameters(self, kind: str, dtype: str) -> None:
        layer, reference = pair(dtype=DTYPES[dtype])
        odd = {name: LAZY[kind](*p.shape, dtype=p.dtype) for name, p in layer.named_parameters()}
        plain = {name: in_memory(p) for name, p in odd.items()}
        x = torch.randn(T, B, D, dtype=DTYPES[dtype], requires_grad=True)
        ours = torch.func.functional_call(layer, odd, (x,))
        theirs = torch.func.functional_call(reference, plain, (x,))
        assert layer.engine_report().name == "fused"
        assert_close(tree_map(in_memory, ours), theirs)
        assert_close(
            in_memory(torch.autograd.grad(ours[0].square().sum(), x)[0]),
            torch.autograd.grad(theirs[0].square().sum(), x),
        )

    @pytest.mark.parametrize("which", ["out", "last"])
    def test_incoming_gradients(self, which: str, kind: str, dtype: str) -> None:
        layer, reference = pair(dtype=DTYPES[dtype])
        x = torch.randn(T, B, D, dtype=DTYPES[dtype], requires_grad=True)
        place = ["out", "last"].index(which)
        given = LAZY[kind](*layer(x)[place].shape, dtype=DTYPES[dtype])
        found = [
            torch.autograd.grad(module(x)[place], [x, *module.parameters()], gradient)
            for module, gradient in ((layer, given), (reference, in_memory(given)))
        ]
        assert_close(tree_map(in_memory, found[0]), found[1])

    def test_the_operators(self, kind: str, dtype: str) -> None:
        layer, _ = pair(dtype=DTYPES[dtype])
        make = LAZY[kind]
        weights = layer._weights()[0][0]
        given = (
            make(T, B, D, dtype=DTYPES[dtype]),
            make(1, B, N, dtype=DTYPES[dtype]),
            [make(*p.shape, dtype=p.dtype) for p in weights.parameters()],
            None,
            programs.key_of(weights.graph),
        )
        plain = tree_map(lambda t: in_memory(t) if isinstance(t, Tensor) else t, given)
        forward, backward = torch.ops.onegate.forward, torch.ops.onegate.backward
        ours, theirs = forward(*given, True), forward(*plain, True)
        assert_close(tree_map(in_memory, ours), theirs)
        out, last, kept = theirs
        lazy = [make(*t.shape, dtype=t.dtype) for t in (out, last)]
        found = backward(*given, out, kept, *lazy, True)
        assert_close(
            tree_map(in_memory, found), backward(*plain, out, kept, *map(in_memory, lazy), True)
        )


def test_a_tensor_that_outlived_its_transform() -> None:
    layer, reference = pair()
    kept: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        kept.append(x)
        return x.sum()

    x = torch.randn(T, B, D, dtype=torch.float64)
    torch.func.grad(keep)(x)
    assert torch._C._functorch.is_functorch_wrapped_tensor(kept[0])
    ours, theirs = layer(kept[0])[0], reference(x)[0]
    assert_close(ours, theirs)
    found = [
        torch.autograd.grad(out.square().sum(), list(module.parameters()))
        for out, module in ((ours, layer), (theirs, reference))
    ]
    assert_close(*found)


def weighted(module: nn.Module, x: Tensor) -> Tensor:
    out: Tensor = module(x)[0]
    return out[:, :, ::2].tanh().sum((0, 1))


class TestManyGradientsAtOnce:
    @pytest.mark.parametrize("create_graph", [False, True])
    @pytest.mark.parametrize("name", ["mgu", "lstm"])
    def test_batched_gradients(self, name: str, create_graph: bool) -> None:
        layer, reference = pair(name, num_layers=2, bidirectional=True)
        x = torch.randn(T, B, D, dtype=torch.float64, requires_grad=True)
        many = torch.randn(6, T, B, 2 * N, dtype=torch.float64)
        found = [
            torch.autograd.grad(
                module(x)[0], [x, *module.parameters()], many,
                is_grads_batched=True, create_graph=create_graph,
            )
            for module in (layer, reference)
        ]  # fmt: skip
        assert layer.engine_report().name == "fused"
        assert_close(*found)

    def test_lengths_and_the_last_state(self) -> None:
        layer, reference = pair()
        x = torch.randn(T, B, D, dtype=torch.float64, requires_grad=True)
        many = torch.randn(2, 1, B, N, dtype=torch.float64)
        found = [
            torch.autograd.grad(module(x, lengths=[4, 1, 2])[1], x, many, is_grads_batched=True)
            for module in (layer, reference)
        ]
        assert_close(*found)

    def test_jacobian_and_hessian(self) -> None:
        layer, reference = pair()
        x = torch.randn(T, B, D, dtype=torch.float64)
        autograd: Any = torch.autograd.functional
        assert_close(
            *[
                autograd.jacobian(lambda x, m=module: weighted(m, x), x, vectorize=True)
                for module in (layer, reference)
            ]
        )
        assert_close(
            *[
                autograd.hessian(lambda x, m=module: weighted(m, x).sum(), x, vectorize=True)
                for module in (layer, reference)
            ]
        )

    def test_vmap_over_the_backward_pass(self) -> None:
        layer, reference = pair()
        x = torch.randn(T, B, D, dtype=torch.float64, requires_grad=True)
        many = torch.randn(T, B, 7, N, dtype=torch.float64)
        found = []
        for module in (layer, reference):
            out = module(x)[0]

            def back(g: Tensor, out: Tensor = out) -> tuple[Tensor, ...]:
                return torch.autograd.grad(out, x, g, retain_graph=True)

            found.append(torch.vmap(back, in_dims=2)(many))
        assert_close(*found)

    def test_gradcheck(self) -> None:
        layer, _ = pair()
        x = torch.randn(2, 2, D, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(
            lambda x: layer(x), x, check_batched_grad=True, check_batched_forward_grad=False
        )

    def test_tangents_of_the_incoming_gradient(self) -> None:
        """Forward mode over a backward pass whose forward pass ran before."""
        layer, reference = pair()
        x = torch.randn(T, B, D, dtype=torch.float64, requires_grad=True)
        value, tangent = torch.randn(2, T, B, N, dtype=torch.float64)
        found = []
        for module in (layer, reference):
            out = module(x)[0]
            with forward_ad.dual_level():
                (grad,) = torch.autograd.grad(out, x, forward_ad.make_dual(value, tangent))
                found.append(tuple(forward_ad.unpack_dual(grad)))
        assert_close(*found)


class Seen(TorchDispatchMode):
    """Which of our operators passed the dispatcher."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operators: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "onegate" in str(func):
            self.operators.append(str(func))
        return func(*args, **(kwargs or {}))


OPERATORS = ["onegate.forward.default", "onegate.backward.default"]


class TestModes:
    def test_a_mode_sees_both_operators(self) -> None:
        layer, _ = pair()
        with Seen() as seen:
            layer(torch.randn(T, B, D, dtype=torch.float64))[0].sum().backward()
            with torch.no_grad():
                layer(torch.randn(T, B, D, dtype=torch.float64))
        assert seen.operators == [*OPERATORS, OPERATORS[0]]

    def test_a_mode_around_the_backward_pass_alone(self) -> None:
        layer, _ = pair()
        out = layer(torch.randn(T, B, D, dtype=torch.float64))[0].sum()
        with Seen() as seen:
            out.backward()
        assert seen.operators == OPERATORS[1:]

    @pytest.mark.parametrize("name", ["mgu", "lstm"])
    @pytest.mark.parametrize("case", ["steps first", "batch first", "one sequence", "cell", "row"])
    def test_what_a_mode_around_the_backward_pass_lets_through(self, case: str, name: str) -> None:
        shapes = {"one sequence": (T, D), "cell": (B, D), "row": (D,)}
        x = torch.randn(shapes.get(case, (T, B, D)), dtype=torch.float64, requires_grad=True)
        if case in ("cell", "row"):
            module: Any = onegate.Cell(name, D, N, dtype=torch.float64)
            lead: tuple[int, ...] = (B,) if case == "cell" else ()
        else:
            module, _ = pair(name, batch_first=case == "batch first", bidirectional=True)
            lead = (2,) if case == "one sequence" else (2, x.shape[0 if module.batch_first else 1])
        count = 2 if name == "lstm" else 1
        states = [torch.randn(*lead, N, dtype=torch.float64).requires_grad_() for _ in range(count)]
        inputs, found = [x, *states, *module.parameters()], []
        for given in (states, []):
            needed = inputs if given else [x, *module.parameters()]
            hx = tuple(given) if count == 2 else given[0] if given else None
            for mode in (Seen(), nullcontext()):
                results = flat(module(x, hx or None) if count == 2 else module(x, hx))
                with mode:
                    loss = sum([t.square().sum() for t in results], torch.zeros(()))
                    found.append(torch.autograd.grad(loss, needed))
                assert isinstance(mode, nullcontext) or mode.operators == OPERATORS[1:]
        assert_close(found[0], found[1])
        assert_close(found[2], found[3])

    def test_the_profiler_shows_both_operators(self) -> None:
        layer, _ = pair()
        with torch.profiler.profile() as profile:
            layer(torch.randn(T, B, D, dtype=torch.float64))[0].sum().backward()
        shown = {event.key: event.count for event in profile.key_averages()}
        assert shown["onegate::forward"] == shown["onegate::backward"] == 1

    def test_make_fx(self) -> None:
        layer, _ = pair("lstm")

        def call(x: Tensor) -> Any:
            return torch.autograd.grad(layer(x)[0].square().sum(), [x, *layer.parameters()])

        x, y = torch.randn(2, T, B, D, dtype=torch.float64).requires_grad_()
        traced = make_fx(call)(x)
        targets = [str(node.target) for node in traced.graph.nodes]
        assert [targets.count(name) for name in OPERATORS] == [1, 1]
        assert_close(traced(y), call(y))

    @pytest.mark.parametrize("needed", [True, False])
    @pytest.mark.parametrize("name", X_ALONE)
    def test_flops_are_those_of_the_reference_engine(self, name: str, needed: bool) -> None:
        counts = []
        for module in pair(name, num_layers=2, bidirectional=True):
            x = torch.randn(T, B, D, dtype=torch.float64, requires_grad=needed)
            hx: Any = [
                torch.zeros(4, B, size, dtype=torch.float64, requires_grad=True)
                for size in module._sizes.values()
            ]
            passes = []
            with FlopCounterMode(display=False) as forward:
                out, _ = module(x, hx[0] if len(hx) == 1 else hx)
            with FlopCounterMode(display=False) as backward:
                out.sum().backward()
            passes = [forward.get_total_flops(), backward.get_total_flops()]
            counts.append(passes)
        assert counts[0] == counts[1]
        assert min(counts[0]) > 0


@pytest.fixture(autouse=True)
def no_compiled() -> Iterator[None]:
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("quiet")
def test_a_compiled_backward_pass() -> None:
    layer, reference = pair()
    x = torch.randn(T, B, D, dtype=torch.float64)

    def compiled(module: Any) -> Any:
        return torch.compile(module, backend="aot_eager")

    out = layer(x)[0].square().sum()
    with torch._dynamo.compiled_autograd._enable(compiled):
        out.backward()
    assert_close(
        [p.grad for p in layer.parameters()],
        torch.autograd.grad(reference(x)[0].square().sum(), list(reference.parameters())),
    )


@pytest.fixture
def quiet() -> Any:
    """For torch.jit (deprecated, warns of every check of a shape) and compiled autograd."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class WithLengths(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, lengths: Tensor) -> Any:
        return self.layer(x, lengths=lengths)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("needed", [True, False])
class TestTracing:
    @pytest.mark.parametrize("name", ["mgu", "lstm"])
    def test_other_values_and_sizes(self, name: str, needed: bool) -> None:
        layer, reference = pair(name, num_layers=2, bidirectional=True)
        with torch.set_grad_enabled(needed):
            traced: Any = torch.jit.trace(layer, torch.randn(T, B, D, dtype=torch.float64))
            for steps, rows in ((T, B), (7, 2), (1, 1)):
                x = torch.randn(steps, rows, D, dtype=torch.float64)
                assert_close(traced(x), reference(x))

    def test_gradients_of_a_traced_layer(self, needed: bool) -> None:
        """Traced without gradients nothing is kept: the backward pass is then the reference's."""
        layer, reference = pair()
        with torch.set_grad_enabled(needed):
            traced: Any = torch.jit.trace(layer, torch.randn(T, B, D, dtype=torch.float64))
        x = torch.randn(T, B, D, dtype=torch.float64)
        assert_close(
            torch.autograd.grad(traced(x)[0].square().sum(), list(traced.parameters())),
            torch.autograd.grad(reference(x)[0].square().sum(), list(reference.parameters())),
        )

    def test_lengths(self, needed: bool) -> None:
        layer, reference = map(WithLengths, pair())
        x, y = torch.randn(2, T, B, D, dtype=torch.float64)
        with torch.set_grad_enabled(needed):
            traced: Any = torch.jit.trace(layer, (x, torch.tensor([4, 1, 2])))
            assert_close(traced(y, torch.tensor([2, 3, 1])), reference(y, torch.tensor([2, 3, 1])))

    def test_saved_and_frozen(self, needed: bool) -> None:
        layer, reference = pair()
        with torch.set_grad_enabled(needed):
            traced: Any = torch.jit.trace(layer.eval(), torch.randn(T, B, D, dtype=torch.float64))
        file = io.BytesIO()
        torch.jit.save(traced, file)
        file.seek(0)
        loaded: Any = torch.jit.freeze(torch.jit.load(file))
        x = torch.randn(T, B, D, dtype=torch.float64)
        assert_close(loaded(x), reference(x))

    def test_cells(self, needed: bool) -> None:
        cell = onegate.LSTMCell(D, N)
        with torch.set_grad_enabled(needed):
            traced: Any = torch.jit.trace(cell, torch.randn(B, D))
            x = torch.randn(2, D)
            assert_close(traced(x), cell(x))


class Alone(nn.Module):
    """The old exporter would pass `lengths` by its place."""

    def __init__(self, engine: str) -> None:
        super().__init__()
        self.layer = onegate.MGU(D, N, 2, bidirectional=True, engine=engine)

    def forward(self, x: Tensor) -> Any:
        return self.layer(x)


@pytest.mark.usefixtures("quiet")
class TestTheOldOnnxExporter:
    def test_the_fused_engine_is_refused(self, tmp_path: Any) -> None:
        with pytest.raises(EngineError, match="ONNX has no operator for a whole sequence"):
            torch.onnx.export(Alone("fused"), (torch.randn(T, B, D),), tmp_path / "x", dynamo=False)

    @pytest.mark.parametrize("needed", [True, False])
    def test_auto_writes_the_reference_engines_loop(self, needed: bool, tmp_path: Any) -> None:
        onnx = pytest.importorskip("onnx", reason="onnx, which the exporter needs, is missing")
        evaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator
        model, file = Alone("auto"), tmp_path / "mgu.onnx"
        with torch.set_grad_enabled(needed):
            torch.onnx.export(model, (torch.randn(T, B, D),), file, dynamo=False, input_names=["x"])
        assert "ONNX" in model.layer.engine_report().reason
        x = torch.randn(T, B, D)
        found = evaluator(onnx.load(file)).run(None, {"x": x.numpy()})
        with torch.no_grad():
            assert_close([torch.from_numpy(each) for each in found], model(x))
