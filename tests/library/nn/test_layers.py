"""Layers as modules that stand where torch.nn.GRU stood: arguments, names, shapes, states."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import onegate
from onegate import Affine, Unit, UnitError, Vector, register, sigmoid, tanh
from onegate.nn.cells import Weights
from onegate.nn.named import CELLS, LAYERS
from onegate.units import UNITS
from tests.library.comparing import X_ALONE

T, B, D, N = 5, 3, 4, 6


def weights(layer: nn.Module, place: str) -> Weights:
    found = layer.get_submodule(place)
    assert isinstance(found, Weights)
    return found


def test_every_unit_has_its_layer_and_its_cell() -> None:
    assert list(LAYERS) == list(UNITS)
    assert list(CELLS) == list(UNITS)
    for classes in (LAYERS, CELLS):
        for kind in classes.values():
            assert getattr(onegate, kind.__name__) is kind
            assert kind.__name__ in onegate.__all__


@pytest.mark.parametrize("name", UNITS)
def test_classes_have_the_docstrings_of_their_units(name: str) -> None:
    for kind in (LAYERS[name], CELLS[name]):
        assert (UNITS[name].__doc__ or "?").splitlines()[0] in (kind.__doc__ or "")


def test_everything_exported_exists_and_is_sorted() -> None:
    assert all(hasattr(onegate, name) for name in onegate.__all__)
    assert len(set(onegate.__all__)) == len(onegate.__all__)


def test_arguments_stand_in_torchs_order() -> None:
    ours = list(inspect.signature(onegate.MGU).parameters)
    documented = "input_size hidden_size num_layers bias batch_first dropout bidirectional"
    assert ours[:10] == [*documented.split(), "proj_size", "device", "dtype"]
    by_position = (3, 7, 2, False, True, 0.5, True)
    layer, module = onegate.MGU(*by_position), nn.GRU(*by_position)
    for name in documented.split():
        assert getattr(layer, name) == getattr(module, name)
    cell = inspect.signature(onegate.MGUCell).parameters
    torchs = inspect.signature(nn.GRUCell).parameters
    assert list(cell)[:5] == list(torchs)


def test_forward_has_torchs_names() -> None:
    layer = onegate.GRU(D, 6)
    x, h = torch.randn(T, B, D), torch.randn(1, B, 6)
    torch.testing.assert_close(layer(input=x, hx=h), layer(x, h))
    layer.flatten_parameters()


def test_the_papers_parameter_count() -> None:
    assert sum(p.numel() for p in onegate.MGU(28, 100).parameters()) == 25_800


@pytest.mark.parametrize("name", X_ALONE)
def test_parameters_are_those_of_the_graph(name: str) -> None:
    layer = onegate.Recurrent(name, D, 6, 2, bidirectional=True)
    first, above = weights(layer, "l0").graph, weights(layer, "l1").graph
    assert (first.input_size, above.input_size) == (D, 12)
    expected = {
        f"{place}.{key}": shape
        for place, graph in (
            ("l0", first), ("l0_reverse", first), ("l1", above), ("l1_reverse", above),
        )
        for key, shape in graph.parameters.items()
    }  # fmt: skip
    assert {key: tuple(p.shape) for key, p in layer.state_dict().items()} == expected


def test_keys_read_like_the_equations() -> None:
    assert list(onegate.MGU(2, 3).state_dict()) == [
        "l0.f.U", "l0.f.W", "l0.f.b", "l0.h.U", "l0.h.W", "l0.h.b",
    ]  # fmt: skip
    assert "l0.p_i" in onegate.LSTMPeephole(2, 3).state_dict()
    assert not [key for key in onegate.LSTM(2, 3, bias=False).state_dict() if key.endswith(".b")]


@pytest.mark.parametrize("name", X_ALONE)
@pytest.mark.parametrize("batch_first", [True, False])
def test_shapes(name: str, batch_first: bool) -> None:
    options: dict[str, Any] = {"context_size": 2} if name == "scrn" else {}
    layer = onegate.Recurrent(
        name, D, 6, 2, batch_first=batch_first, bidirectional=True, engine="reference", **options
    )
    sizes = list(layer.unit.state_sizes(6).values())
    out, last = layer(torch.randn((B, T, D) if batch_first else (T, B, D)))
    assert out.shape == ((B, T, 12) if batch_first else (T, B, 12))
    states = last if isinstance(last, tuple) else (last,)
    assert [state.shape for state in states] == [(4, B, size) for size in sizes]
    again, _ = layer(torch.zeros_like(out)[..., :D], last)
    assert again.shape == out.shape
    out, last = layer(torch.randn(T, D))
    states = last if isinstance(last, tuple) else (last,)
    assert out.shape == (T, 12)
    assert [state.shape for state in states] == [(4, size) for size in sizes]


def test_a_sequence_can_be_cut_and_its_state_carried_over() -> None:
    layer = onegate.LSTM(D, 6, 2, dtype=torch.float64)
    x = torch.randn(7, B, D, dtype=torch.float64)
    whole, last = layer(x)
    first, state = layer(x[:3])
    second, end = layer(x[3:], state)
    torch.testing.assert_close(torch.cat([first, second]), whole)
    torch.testing.assert_close(end, last)


class TestLearnedInitialState:
    def test_it_is_a_parameter_of_each_layer_and_direction(self) -> None:
        layer = onegate.LSTM(D, 6, 2, bidirectional=True, learn_initial_state=True)
        keys = [key for key in layer.state_dict() if key.endswith("_0")]
        assert keys == [
            f"{place}.{s}_0" for place in ("l0", "l0_reverse", "l1", "l1_reverse") for s in "hc"
        ]
        assert not any(layer.state_dict()[key].any() for key in keys)

    def test_it_stands_for_hx(self) -> None:
        layer = onegate.SCRN(D, 6, 2, bidirectional=True, learn_initial_state=True, context_size=2)
        x = torch.randn(T, B, D)
        states = []
        for name in ("h_0", "s_0"):
            learned = [p for key, p in layer.named_parameters() if key.endswith(name)]
            for parameter in learned:
                nn.init.normal_(parameter)
            states.append(torch.stack([*learned])[:, None].expand(-1, B, -1))
        torch.testing.assert_close(layer(x), layer(x, tuple(states)))
        zeros = tuple(torch.zeros_like(state) for state in states)
        assert not torch.allclose(layer(x)[0], layer(x, zeros)[0])

    def test_it_has_a_gradient(self) -> None:
        layer = onegate.MGU(D, 6, learn_initial_state=True)
        layer(torch.randn(T, B, D))[0].sum().backward()
        gradient = layer.get_parameter("l0.h_0").grad
        assert gradient is not None
        assert gradient.any()


class TestDropout:
    x = torch.randn(T, B, D)

    def test_it_acts_between_layers_while_training(self) -> None:
        layer = onegate.MGU(D, 6, 2, dropout=1.0)
        upper = onegate.MGU(6, 6)
        upper.load_state_dict({f"l0.{k}": v for k, v in weights(layer, "l1").state_dict().items()})
        torch.testing.assert_close(layer(self.x)[0], upper(torch.zeros(T, B, 6))[0])

    def test_it_rests_otherwise(self) -> None:
        layer = onegate.MGU(D, 6, 2, dropout=1.0).eval()
        plain = onegate.MGU(D, 6, 2)
        plain.load_state_dict(layer.state_dict())
        torch.testing.assert_close(layer(self.x), plain(self.x))

    def test_with_one_layer_it_warns(self) -> None:
        with pytest.warns(UserWarning, match="dropout=0.5 acts between layers, and num_layers is"):
            onegate.MGU(D, 6, dropout=0.5)


def test_repr_shows_what_was_asked_for() -> None:
    layer = onegate.SCRN(3, 5, 2, bidirectional=True, context_size=2, init="normal")
    shown = "3, 5, context_size=2, alpha=0.95, num_layers=2, bidirectional=True, init='normal'"
    assert shown in repr(layer)
    assert "(f): Map(U (5, 5), W (5, 3), b (5,))" in repr(onegate.MGU(3, 5))
    assert "3, 5, bias=False" in repr(onegate.MGUCell(3, 5, bias=False))


class TestOwnUnits:
    """A unit defined outside the package is used as a built-in one."""

    class Leaky(Unit):
        keep: float = 0.9

        W_h = Affine()
        g = Vector()

        def step(self, x: Any, h: Any) -> Any:
            return self.keep * h + (1 - self.keep) * sigmoid(self.g) * tanh(self.W_h[h, x])

    @pytest.fixture
    def leaky(self) -> Iterator[str]:
        register("leaky")(self.Leaky)
        yield "leaky"
        del UNITS["leaky"]
        self.Leaky.registered = ""

    def test_by_class_by_object_and_by_name(self, leaky: str) -> None:
        x = torch.randn(T, B, D)
        layers = [
            onegate.Recurrent(self.Leaky, D, 6, keep=0.5),
            onegate.Recurrent(self.Leaky(keep=0.5), D, 6),
            onegate.Recurrent(leaky, D, 6, keep=0.5),
        ]
        for layer in layers:
            layer.load_state_dict(layers[0].state_dict())
            torch.testing.assert_close(layer(x), layers[0](x))
        assert list(layers[0].state_dict()) == ["l0.g", "l0.h.U", "l0.h.W", "l0.h.b"]
        cell = onegate.Cell(leaky, D, 6, keep=0.5)
        cell.load_state_dict(weights(layers[0], "l0").state_dict())
        torch.testing.assert_close(cell(x[0]), layers[0](x[:1])[0][0])

    def test_a_layer_class_of_its_own(self, leaky: str) -> None:
        class LeakyLayer(onegate.nn.named.NamedLayer, unit=leaky): ...

        assert isinstance(LeakyLayer(D, 6, keep=0.2).unit, self.Leaky)
        del LAYERS[leaky]

    def test_names_that_torch_modules_have_are_refused(self) -> None:
        class Train(Unit):
            W_train = Affine()

            def step(self, x: Any, h: Any) -> Any:
                return tanh(self.W_train[h, x])

        class Taken(Unit):
            h_0 = Vector()

            def step(self, x: Any, h: Any) -> Any:
                return self.h_0 * h

        with pytest.raises(UnitError, match="Train: a parameter cannot be called 'train', which"):
            onegate.Recurrent(Train, 2, 3)
        with pytest.raises(UnitError, match="Taken: a parameter cannot be called 'h_0', which"):
            onegate.Recurrent(Taken, 2, 3, learn_initial_state=True)


class TestWithoutParameters:
    """A unit that only adds up has nothing to learn: a running average."""

    class Average(Unit):
        def step(self, x: Any, h: Any) -> Any:
            return 0.75 * h + 0.25 * x

    @pytest.mark.parametrize("engine", ["auto", "reference"])
    def test_layers_and_cells_compute(self, engine: str) -> None:
        layer = onegate.Recurrent(self.Average, D, D, engine=engine)
        x, start = torch.randn(T, B, D, requires_grad=True), torch.randn(1, B, D)
        out, last = layer(x, start)
        time = torch.arange(T)[:, None]
        shares = torch.tril(0.25 * 0.75 ** (time - time.T))
        expected = torch.einsum("ts,sbd->tbd", shares, x) + 0.75 ** (time[..., None] + 1) * start
        torch.testing.assert_close(out, expected)
        torch.testing.assert_close(last, expected[-1:])
        torch.testing.assert_close(*(torch.autograd.grad(o.sum(), x) for o in (out, expected)))
        cell = onegate.Cell(self.Average, D, D, engine=engine)
        torch.testing.assert_close(cell(x[0], start[0]), expected[0])
        assert layer.state_dict() == cell.state_dict() == {}

    def test_dtype_is_the_modules(self) -> None:
        layer = onegate.Recurrent(self.Average, D, D, dtype=torch.float64)
        x = torch.randn(T, B, D)
        assert layer(x.double())[0].dtype == torch.float64
        with pytest.raises(ValueError, match=r"RNN input dtype .torch.float32. does not match"):
            layer(x)
        assert layer.float()(x)[0].dtype == torch.float32


class _Wrapper:
    """No tensor, but one inside, which `__torch_function__` unwraps for each call."""

    def __init__(self, inside: Tensor) -> None:
        self.inside = inside

    @classmethod
    def _map(cls, kind: type, make: Any, value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return type(value)(cls._map(kind, make, each) for each in value)
        return make(value) if isinstance(value, kind) else value

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        assert types == (cls,)
        args = cls._map(cls, lambda wrapper: wrapper.inside, args)
        return cls._map(Tensor, cls, function(*args, **(kwargs or {})))


@pytest.mark.parametrize("kind", ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"])
def test_wrappers_by_torch_function(kind: str) -> None:
    theirs = getattr(nn, kind)(D, N)
    ours = onegate.from_torch(theirs)
    is_cell = kind.endswith("Cell")
    x, state = torch.randn(B, D) if is_cell else torch.randn(T, B, D), torch.randn(B, N)
    state = state if is_cell else state[None]
    hx = (state, state) if kind.startswith("LSTM") else state
    for given in ((), (hx,)):
        expected = theirs(x, *given)
        wrapped = _Wrapper._map(Tensor, _Wrapper, (x, *given))
        got = ours(*wrapped)
        assert isinstance(got[0] if isinstance(got, tuple) else got, _Wrapper)
        assert_close(_Wrapper._map(_Wrapper, lambda wrapper: wrapper.inside, got), expected)


def test_a_wrapper_keeps_what_else_is_given() -> None:
    layer = onegate.MGU(D, N)
    x, lengths = torch.randn(T, B, D), [1, 5, 3]
    got = layer(_Wrapper(x), lengths=lengths)
    assert_close(got[0].inside, layer(x, lengths=lengths)[0])
    got = layer(_Wrapper(x), return_states=True)
    assert_close(got[2].inside, layer(x, return_states=True)[2])
    with pytest.raises(TypeError, match=r"input is a list, expected a torch.Tensor"):
        layer([1.0])


def test_symbolic_tracing() -> None:
    """torch.fx's proxies are such wrappers; to its tracer a layer or cell is a leaf, as torch's."""
    x = torch.randn(T, B, D)
    accelerated = [onegate.accelerate(kind(D, N)) for kind in (nn.GRU, nn.LSTMCell)]
    for module in (onegate.MGU(D, N), onegate.LSTMCell(D, N), *accelerated):
        model = nn.Sequential(nn.Linear(D, D), module)
        traced = torch.fx.symbolic_trace(model)
        kinds = [node.op for node in traced.graph.nodes]
        assert kinds == ["placeholder", "call_module", "call_module", "output"]
        given = x[0] if isinstance(module, (onegate.Cell, nn.LSTMCell)) else x
        assert_close(traced(given), model(given))


def test_symbolic_tracing_of_what_else_is_given() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.theirs = onegate.LSTM(D, N), onegate.accelerate(nn.LSTM(N, N))

        def forward(self, x: Tensor, h: Tensor, lengths: Tensor) -> Any:
            out, hx = self.layer(x, (h, 2 * h), lengths=lengths)
            return self.theirs(out, hx)

    model = Model()
    x, h = torch.randn(T, B, D), torch.randn(1, B, N)
    for lengths in (torch.tensor([5, 1, 3]), torch.tensor([2, 5, 4])):
        traced = torch.fx.symbolic_trace(model)
        assert_close(traced(x, h, lengths), model(x, h, lengths))
    for module in (onegate.MGU(D, N), onegate.MGUCell(D, N), onegate.accelerate(nn.GRU(D, N))):
        with pytest.raises(TypeError, match=r"is a leaf of torch.fx's tracing; trace a"):
            torch.fx.symbolic_trace(module)
