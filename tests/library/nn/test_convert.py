"""Layers against torch.nn's own: values and all gradients in float64."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence

import onegate
from tests.library.comparing import assert_same, with_gradients

T, B, D = 6, 4, 3
LENGTHS = [4, 6, 1, 3]

# Ours by torch's order of the gates: maps of the input, maps of the state.
GATES = {
    "rnn_tanh": (["h"], ["h"]),
    "rnn_relu": (["h"], ["h"]),
    "lstm": (["i", "f", "c", "o"], ["i", "f", "c", "o"]),
    "gru": (["r", "z", "h"], ["r", "z", "U_h"]),
}


def make(kind: str, *args: Any, **kwargs: Any) -> Any:
    kwargs.setdefault("dtype", torch.float64)
    if kind.startswith("rnn"):
        return nn.RNN(*args, nonlinearity=kind.removeprefix("rnn_"), **kwargs)
    return {"lstm": nn.LSTM, "gru": nn.GRU}[kind](*args, **kwargs)


def torchs_view(kind: str, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our gradients, stacked as torch's parameters are, under its names.

    Where two biases of torch add up to one of ours the gradient of each is that of the sum.
    """
    inputs, states = GATES[kind]
    stacked = {}
    for place in dict.fromkeys(key.split(".")[0] for key in ours):
        suffix = place.replace("l", "_l", 1)
        for name, maps, part in (
            ("weight_ih", inputs, "W"),
            ("weight_hh", states, "U"),
            ("bias_ih", inputs, "b"),
            ("bias_hh", states, "b"),
        ):
            if f"{place}.{maps[0]}.{part}" in ours:
                stacked[name + suffix] = torch.cat([ours[f"{place}.{m}.{part}"] for m in maps])
    return stacked


def compare(
    kind: str, module: Any, call: Any, inputs: list[Tensor], engine: str = "reference"
) -> None:
    """`call(layer, *inputs)` gives the same by both, with the same gradients."""
    layer = onegate.from_torch(module, engine)
    ours = with_gradients(
        lambda *leaves: call(layer, *leaves), inputs, dict(layer.named_parameters())
    )
    theirs = with_gradients(
        lambda *leaves: call(module, *leaves), inputs, dict(module.named_parameters())
    )
    keys = dict(layer.named_parameters())
    seen = {name: tensor for name, tensor in ours.items() if name not in keys}
    seen |= torchs_view(kind, {key: ours[key] for key in keys})
    assert_same({name: seen[name] for name in theirs}, theirs)
    assert len(seen) == len(theirs)


def randn(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def states(kind: str, *shape: int) -> list[Tensor]:
    return [randn(*shape) for _ in range(2 if kind == "lstm" else 1)]


def hx(given: tuple[Tensor, ...]) -> Any:
    return given[0] if len(given) == 1 else given


@pytest.mark.parametrize("kind", GATES)
class TestAgainstTorch:
    @pytest.mark.parametrize("bias", [True, False])
    @pytest.mark.parametrize("hidden", [1, 5, 17])
    def test_one_layer(self, kind: str, hidden: int, bias: bool) -> None:
        module = make(kind, D, hidden, bias=bias)
        compare(kind, module, lambda m, x: m(x), [randn(T, B, D)])

    def test_stacked_bidirectional_with_initial_states(self, kind: str) -> None:
        module = make(kind, D, 5, num_layers=3, bidirectional=True)
        inputs = [randn(T, B, D), *states(kind, 6, B, 5)]
        compare(kind, module, lambda m, x, *s: m(x, hx(s)), inputs)

    def test_batch_first(self, kind: str) -> None:
        module = make(kind, D, 5, num_layers=2, batch_first=True)
        inputs = [randn(B, T, D), *states(kind, 2, B, 5)]
        compare(kind, module, lambda m, x, *s: m(x, hx(s)), inputs)

    def test_one_sequence_without_a_batch(self, kind: str) -> None:
        module = make(kind, D, 5, bidirectional=True, batch_first=True)
        inputs = [randn(T, D), *states(kind, 2, 5)]
        compare(kind, module, lambda m, x, *s: m(x, hx(s)), inputs)

    @pytest.mark.parametrize("batch_first", [True, False])
    def test_packed_in_any_order(self, kind: str, batch_first: bool) -> None:
        module = make(kind, D, 5, num_layers=2, bidirectional=True, batch_first=batch_first)

        def call(m: Any, x: Tensor, *s: Tensor) -> Any:
            packed = pack_padded_sequence(x, torch.tensor(LENGTHS), enforce_sorted=False)
            out, last = m(packed, hx(s))
            assert torch.equal(out.sorted_indices, packed.sorted_indices)  # type: ignore[arg-type]
            assert torch.equal(out.unsorted_indices, packed.unsorted_indices)  # type: ignore[arg-type]
            assert torch.equal(out.batch_sizes, packed.batch_sizes)
            return out, last

        compare(kind, module, call, [randn(T, B, D), *states(kind, 4, B, 5)])

    def test_packed_in_order(self, kind: str) -> None:
        module = make(kind, D, 5, bidirectional=True)

        def call(m: Any, *rows: Tensor) -> Any:
            out, last = m(pack_sequence(list(rows)))
            assert out.sorted_indices is None
            assert out.unsorted_indices is None
            return out, last

        compare(kind, module, call, [randn(n, D) for n in (6, 4, 4, 1)])

    def test_dropout_and_mode_are_kept(self, kind: str) -> None:
        module = make(kind, D, 5, num_layers=2, dropout=0.25).eval()
        layer = onegate.from_torch(module)
        assert (layer.dropout, layer.training) == (0.25, False)
        assert onegate.to_torch(layer).dropout == 0.25
        compare(kind, module, lambda m, x: m(x), [randn(T, B, D)])

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
    def test_dtype_is_kept(self, kind: str, dtype: torch.dtype) -> None:
        layer = onegate.from_torch(make(kind, D, 5, dtype=dtype))
        assert {p.dtype for p in layer.parameters()} == {dtype}
        assert {p.dtype for p in onegate.to_torch(layer).parameters()} == {dtype}

    @pytest.mark.parametrize("bias", [True, False])
    def test_there_and_back(self, kind: str, bias: bool) -> None:
        args = {"num_layers": 2, "bidirectional": True, "batch_first": True, "bias": bias}
        module = make(kind, D, 5, **args)
        back = onegate.to_torch(onegate.from_torch(module))
        assert type(back) is type(module)
        assert repr(back) == repr(module)
        x = randn(B, T, D)
        torch.testing.assert_close(back(x), module(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("engine", ["reference", "fused"])
@pytest.mark.parametrize("kind", GATES)
def test_everything_at_once_in_eval_mode(kind: str, engine: str) -> None:
    args = {"num_layers": 2, "dropout": 0.5, "bidirectional": True, "batch_first": True}
    module = make(kind, D, 5, **args).eval()
    inputs = [randn(B, T, D), *states(kind, 4, B, 5)]
    compare(kind, module, lambda m, x, *s: m(x, hx(s)), inputs, engine)


def test_complex_weights_compute_as_torchs() -> None:
    module = make("gru", D, 5, dtype=torch.complex128)
    x = torch.randn(T, B, D, dtype=torch.complex128)
    torch.testing.assert_close(onegate.from_torch(module)(x), module(x), rtol=1e-12, atol=1e-12)


def test_what_torch_computes_counts_not_what_it_shows() -> None:
    module = make("rnn_relu", D, 5)
    module.nonlinearity = "tanh"
    compare("rnn_relu", module, lambda m, x: m(x), [randn(T, B, D)])


def test_weights_without_values() -> None:
    layer = onegate.from_torch(nn.GRU(D, 5, device="meta"))
    assert {p.device.type for p in layer.parameters()} == {"meta"}
    assert {p.device.type for p in onegate.to_torch(layer).parameters()} == {"meta"}


class TestFrozen:
    """A weight with requires_grad=False stays so, there and back."""

    @pytest.mark.parametrize("engine", ["reference", "fused"])
    @pytest.mark.parametrize("kind", GATES)
    @pytest.mark.parametrize("name", ["weight_ih_l0", "weight_hh_l1", "weight_ih_l0_reverse"])
    def test_matrices(self, kind: str, name: str, engine: str) -> None:
        module = make(kind, D, 5, num_layers=2, bidirectional=True)
        module.get_parameter(name).requires_grad_(False)
        layer = onegate.from_torch(module, engine)
        part = "W" if "ih" in name else "U"
        place = "l" + name.partition("_l")[2]
        frozen = {key for key, p in layer.named_parameters() if not p.requires_grad}
        maps = GATES[kind]["ih" not in name]
        assert frozen == {f"{place}.{gate}.{part}" for gate in maps}
        x = randn(T, B, D)
        for m in (module, layer):
            m(x)[0].square().sum().backward()
        ours = {k: p.grad for k, p in layer.named_parameters() if p.grad is not None}
        assert len(ours) == len(list(layer.parameters())) - len(frozen)
        zeros = {key: torch.zeros_like(layer.get_parameter(key)) for key in frozen}
        seen = torchs_view(kind, {k: (ours | zeros)[k] for k, _ in layer.named_parameters()})
        theirs = {k: p.grad for k, p in module.named_parameters() if p.grad is not None}
        assert_same({key: seen[key] for key in theirs}, theirs)
        assert self.learning(onegate.to_torch(layer)) == self.learning(module)

    def test_all(self) -> None:
        module = make("lstm", D, 5).requires_grad_(False)
        layer = onegate.from_torch(module)
        assert not any(p.requires_grad for p in layer.parameters())
        assert self.learning(onegate.to_torch(layer)) == self.learning(module)

    def test_a_bias_learns_if_one_of_its_two_did(self) -> None:
        for name in ("bias_ih_l0", "bias_hh_l0"):
            module = make("lstm", D, 5)
            module.get_parameter(name).requires_grad_(False)
            assert all(self.learning(onegate.from_torch(module)).values())

    def test_the_second_bias_of_gru(self) -> None:
        module = make("gru", D, 5)
        module.bias_hh_l0.requires_grad_(False)
        layer = onegate.from_torch(module)
        assert [k for k, on in self.learning(layer).items() if not on] == ["l0.U_h.b"]
        assert self.learning(onegate.to_torch(layer)) == self.learning(module)

    @pytest.mark.parametrize("key", ["f.W", "o.b"])
    def test_one_part_of_a_parameter_of_torch(self, key: str) -> None:
        layer = onegate.LSTM(D, 5)
        layer.get_parameter(f"l0.{key}").requires_grad_(False)
        name = "weight_ih_l0" if key == "f.W" else "bias_ih_l0"
        parts = ", ".join(f"l0.{gate}.{key[-1]}" for gate in "ifco")
        message = f"{name} of torch.nn is one parameter for {parts}, of which l0.{key} do not learn"
        with pytest.raises(ValueError, match=re.escape(message)):
            onegate.to_torch(layer)

    def test_a_bias_that_torch_would_train(self) -> None:
        layer = onegate.GRUResetAfter(D, 5)
        for key in "rzh":
            layer.get_parameter(f"l0.{key}.b").requires_grad_(False)
        with pytest.raises(ValueError, match=r"bias_hh_l0 .* of which l0.r.b, l0.z.b do not learn"):
            onegate.to_torch(layer)

    def learning(self, module: nn.Module) -> dict[str, bool]:
        return {name: p.requires_grad for name, p in module.named_parameters()}


class OwnForward(nn.GRU):
    def forward(self, *args: Any) -> Any:
        out, last = super().forward(*args)
        return 2 * out, last


class OwnCall(nn.GRU):
    def __call__(self, *args: Any) -> Any:
        return None


class Plain(nn.GRU):
    """Neither a forward nor a parameter of its own."""


class TestWhatWouldBeLost:
    def test_a_forward_of_its_own(self) -> None:
        patched = nn.GRU(D, 5)
        patched.forward = lambda x: x  # type: ignore[assignment,method-assign]
        for module in (OwnForward(D, 5), OwnCall(D, 5), patched):
            with pytest.raises(TypeError, match="has a forward of its own, which a conv"):
                onegate.from_torch(module, values_only=True)

        class Doubled(onegate.LSTM):
            forward = OwnForward.forward  # type: ignore[assignment]

        with pytest.raises(TypeError, match="Doubled has a forward of its own, which a conversion"):
            onegate.to_torch(Doubled(D, 5))

    def test_subclasses_that_compute_the_same_are_taken(self) -> None:
        module = Plain(D, 5, dtype=torch.float64)
        compare("gru", module, lambda m, x: m(x), [randn(T, B, D)])

    @pytest.mark.parametrize(
        "register",
        [
            "register_forward_hook",
            "register_forward_pre_hook",
            "register_full_backward_hook",
            "register_full_backward_pre_hook",
        ],
    )
    def test_hooks(self, register: str) -> None:
        pairs: list[tuple[Any, Any]] = [
            (nn.LSTM(D, 5), onegate.from_torch),
            (onegate.LSTM(D, 5), onegate.to_torch),
        ]
        for module, convert in pairs:
            getattr(module, register)(lambda *_: None)
            with pytest.raises(
                ValueError, match="LSTM has hooks; remove them, or pass values_only"
            ):
                convert(module)
            convert(module, values_only=True)

    @pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
    def test_hooks_on_gradients(self, register: str) -> None:
        module = nn.LSTM(D, 5)
        getattr(module.weight_hh_l0, register)(lambda _: None)
        with pytest.raises(ValueError, match="weight_hh_l0 of LSTM has hooks on its gradient"):
            onegate.from_torch(module)

    def test_further_parameters(self) -> None:
        module = nn.GRU(D, 5)
        module.extra = nn.Linear(2, 2, bias=False)
        with pytest.raises(ValueError, match=r"GRU has further parameters: extra\.weight; remove"):
            onegate.from_torch(module)
        onegate.from_torch(module, values_only=True)

    def test_shared_weights(self) -> None:
        module = make("gru", 5, 5, num_layers=2)
        module.weight_hh_l1 = module.weight_hh_l0
        with pytest.raises(ValueError, match="weight_hh_l0 and weight_hh_l1 of GRU are one param"):
            onegate.from_torch(module)
        layer = onegate.from_torch(module, values_only=True)
        x = randn(T, B, 5)
        torch.testing.assert_close(layer(x), module(x), rtol=1e-12, atol=1e-12)
        layer = onegate.LSTM(5, 5, 2, dtype=torch.float64)
        for name in ("U", "W"):
            shared = layer.get_parameter(f"l0.f.{name}")
            layer.get_submodule("l1.f").register_parameter(name, shared)
        with pytest.raises(ValueError, match=r"l0\.f\.U and l1\.f\.U of LSTM are one parameter"):
            onegate.to_torch(layer)
        back = onegate.to_torch(layer, values_only=True)
        torch.testing.assert_close(back(x), layer(x), rtol=1e-12, atol=1e-12)

    @pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
    @pytest.mark.parametrize(
        "how",
        [
            parametrizations.weight_norm,
            parametrizations.spectral_norm,
            parametrizations.orthogonal,
            nn.utils.weight_norm,
            nn.utils.spectral_norm,
            lambda module, name: prune.random_unstructured(module, name, 0.5),
        ],
    )
    def test_computed_weights(self, how: Any) -> None:
        module = make("gru", D, 5)
        how(module, "weight_hh_l0")
        optimizer = torch.optim.SGD(module.parameters(), 0.1)
        module(randn(T, B, D))[0].sum().backward()
        optimizer.step()  # what a hook computed before the last call is out of date
        module.eval()
        with pytest.raises(
            ValueError, match=r"weight_hh_l0 of \w+ is not a parameter but computed"
        ):
            onegate.from_torch(module)
        with torch.no_grad():
            layer = onegate.from_torch(module, values_only=True)
        assert all(p.requires_grad for p in layer.parameters())
        x = randn(T, B, D)
        torch.testing.assert_close(layer(x), module(x), rtol=1e-12, atol=1e-12)

    def test_computed_weights_of_ours(self) -> None:
        layer = onegate.LSTM(D, 5, dtype=torch.float64)
        parametrizations.orthogonal(layer.get_submodule("l0.f"), "U")
        with pytest.raises(ValueError, match=r"l0\.f\.U of LSTM is not a parameter but computed"):
            onegate.to_torch(layer)
        x = randn(T, B, D)
        back = onegate.to_torch(layer, values_only=True)
        torch.testing.assert_close(back(x), layer(x), rtol=1e-12, atol=1e-12)

    def test_several_dtypes(self) -> None:
        module = nn.GRU(D, 5)
        module.weight_hh_l0 = nn.Parameter(module.get_parameter("weight_hh_l0").double())
        message = (
            "the weights are torch.float32 on cpu and torch.float64 on cpu, expected one dtype "
            "and device; convert all with .to('cpu', torch.float32)"
        )
        with pytest.raises(ValueError, match=re.escape(message)):
            onegate.from_torch(module)

    def test_the_flag_is_one(self) -> None:
        with pytest.raises(
            TypeError, match="values_only should be of type bool, got: str; it is 'yes'"
        ):
            onegate.from_torch(nn.GRU(D, 5), values_only="yes")  # type: ignore[call-overload]


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor, torch.quantize_per_channel")
def test_dynamic_quantization_takes_torchs_layers_alone() -> None:
    """As docs/drop-in.md says: ours stay as they are, and `to_torch` is the way."""
    pytest.importorskip("torch.ao.quantization")
    layer = onegate.LSTM(D, 5)
    model = torch.ao.quantization.quantize_dynamic(nn.Sequential(layer), {nn.LSTM, onegate.LSTM})
    x = torch.randn(T, B, D)
    torch.testing.assert_close(model(x), layer(x), rtol=0, atol=0)
    quantized = torch.ao.quantization.quantize_dynamic(nn.Sequential(onegate.to_torch(layer)))
    with pytest.raises(TypeError, match=r"or a model with them, got LSTM of torch\.ao"):
        onegate.from_torch(quantized[0])


def test_weights_are_copies() -> None:
    module = make("gru", D, 5)
    layer = onegate.from_torch(module)
    before = {key: value.clone() for key, value in layer.state_dict().items()}
    nn.init.zeros_(module.weight_ih_l0)
    torch.testing.assert_close(dict(layer.state_dict()), before, rtol=0, atol=0)


def test_our_layers_train_as_torchs() -> None:
    module = make("lstm", D, 5)
    layer = onegate.from_torch(module, engine="reference")
    x = randn(T, B, D)
    losses = []
    for m in (module, layer):
        optimizer = torch.optim.SGD([p for n, p in m.named_parameters() if "b" not in n], 0.1)
        for _ in range(5):
            optimizer.zero_grad()
            loss = m(x)[0].square().sum()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)


def test_other_modules_are_refused() -> None:
    takes = r"takes torch\.nn\.RNN, LSTM or GRU, their cells, or a model with them, got Linear"
    with pytest.raises(TypeError, match=takes):
        onegate.from_torch(nn.Linear(2, 2))


def test_units_that_torch_lacks_are_refused() -> None:
    with pytest.raises(ValueError, match="no layer of 'mgu', only of simple, irnn, lstm"):
        onegate.to_torch(onegate.MGU(D, 5))


@pytest.mark.parametrize("bad", [None, nn.GRU(D, 5), nn.Sequential()])
def test_what_is_no_layer_is_refused(bad: Any) -> None:
    with pytest.raises(TypeError, match=f"or a model with them, got {type(bad).__name__}"):
        onegate.to_torch(bad)


def test_learned_initial_states_are_refused() -> None:
    with pytest.raises(ValueError, match="no learned initial state"):
        onegate.to_torch(onegate.LSTM(D, 5, learn_initial_state=True))
