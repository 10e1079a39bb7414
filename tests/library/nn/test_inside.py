"""Layers with norms, masks, resets and dropout, against formulas of torch and cut sequences."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import onegate
from onegate.export.latex import latex
from onegate.language import Affine, LayerNorm, RMSNorm, SizeError, Unit, UnitError, sigmoid, tanh
from onegate.nn import dropout
from onegate.picture.diagram import diagram
from onegate.tracing import trace

T, B, D, N = 9, 4, 5, 6
DOUBLE = torch.float64


def layer_of(unit: Any, **options: Any) -> onegate.Recurrent:
    torch.manual_seed(0)
    layer = onegate.Recurrent(unit, D, N, dtype=DOUBLE, **options)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-0.8, 0.8)
    return layer


def learned(layer: onegate.Recurrent) -> dict[str, Tensor]:
    return layer._weights()[0][0].tensors()


def sequences() -> Tensor:
    return torch.randn(T, B, D, dtype=DOUBLE, generator=torch.Generator().manual_seed(1))


def flat(states: Any) -> list[Tensor]:
    return [states] if isinstance(states, Tensor) else list(states)


class Normed(Unit):
    W_f = Affine()
    W_h = Affine(heads=2, bias=False)
    N_f = LayerNorm(eps=1e-3)
    N = RMSNorm()

    def step(self, x: Any, h: Any) -> Any:
        f = sigmoid(self.N_f[self.W_f[h, x]])
        a, b = self.N[self.W_h[h], f]
        candidate = tanh(a + b)
        return (1 - f) * h + f * candidate


@pytest.mark.parametrize("engine", ["fused", "reference"])
def test_norms_and_heads_are_those_of_torch(engine: str) -> None:
    layer = layer_of(Normed, engine=engine)
    x = sequences().requires_grad_()
    p = learned(layer)
    h, eps, outputs = torch.zeros(B, N, dtype=DOUBLE), 1e-5, []
    for xt in x:
        a = h @ p["f.U"].T + xt @ p["f.W"].T + p["f.b"]
        f = torch.sigmoid(F.layer_norm(a, (N,), p["N_f.gain"], p["N_f.shift"], 1e-3))
        half = N // 2
        a = torch.cat([h[:, :half] @ p["h.U"][0].T, h[:, half:] @ p["h.U"][1].T], -1)
        normed = F.rms_norm(torch.cat([a, f], -1), (2 * N,), eps=eps)
        a, b = p["N.gain_1"] * normed[:, :N], p["N.gain_2"] * normed[:, N:]
        h = (1 - f) * h + f * torch.tanh(a + b)
        outputs.append(h)
    truth, (out, _) = torch.stack(outputs), layer(x)
    torch.testing.assert_close(out, truth, rtol=1e-12, atol=1e-12)
    leaves = [x, *layer.parameters()]
    for one, other in zip(
        torch.autograd.grad(out.cos().sum(), leaves),
        torch.autograd.grad(truth.cos().sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-11)


def test_gains_begin_at_one_and_shifts_at_zero() -> None:
    for init in (None, "orthogonal", 0.1):
        p = learned(onegate.Recurrent(Normed, D, N, init=init))
        assert (p["N_f.gain"] == 1).all()
        assert (p["N_f.shift"] == 0).all()
    named = learned(onegate.Recurrent(Normed, D, N, init={"gain": 0.1}))
    assert (named["N_f.gain"] == 0.1).all()


def test_what_is_written() -> None:
    graph = trace(Normed(), D, N)
    assert r"\sigma(\gamma_f \odot \mathrm{LN}(W_f [h_{t-1}, x_t] + b_f) + \beta_f)" in latex(graph)
    assert r"\mathrm{RMS}(U_h h_{t-1}; f_t)" in latex(graph)
    boxes = [box for box in diagram(graph).boxes if box.text == r"\mathrm{LN}"]
    assert [box.parameters for box in boxes] == [("W_f", "b_f")]


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SizeError, match="W_h has 2 heads, which 7 is no multiple of"):
        onegate.Recurrent(Normed, 3, 7)
    with pytest.raises(UnitError, match="heads or a rank"):
        Affine(heads=2, rank=3)


# Resets.


@pytest.mark.parametrize(
    ("engine", "learned"), [("fused", False), ("fused", True), ("reference", True)]
)
@pytest.mark.parametrize("name", sorted(onegate.UNITS))
def test_a_reset_is_a_cut(name: str, engine: str, learned: bool) -> None:
    """Row by row and piece by piece, with lengths, two layers and the batch first."""
    more = onegate.UNITS[name].inputs[1:]
    options = {"num_layers": 1 if more else 2, "learn_initial_state": learned, "engine": engine}
    layer = layer_of(name, batch_first=True, **options)
    x = sequences().transpose(0, 1).contiguous().requires_grad_()
    extra = {name: (x + k).detach().square() for k, name in enumerate(more)}
    lengths = [9, 4, 7, 1]
    reset = torch.zeros(B, T, dtype=torch.bool)
    for row, step in ((0, 3), (0, 4), (1, 2), (2, 0), (2, 6), (1, 7)):
        reset[row, step] = True
    out, last = layer(x, reset=reset, lengths=lengths, extra=extra or None)
    pieces, lasts = [], []
    for row, length in enumerate(lengths):
        cuts = [t for t in range(1, length) if reset[row, t]]
        found = []
        for first, end in zip([0, *cuts], [*cuts, length], strict=True):
            here = slice(row, row + 1), slice(first, end)
            own = {name: value[here] for name, value in extra.items()}
            piece, state = layer(x[here], extra=own or None)
            found.append(piece[0])
        pieces.append(F.pad(torch.cat(found), (0, 0, 0, T - length)))
        lasts.append(flat(state))
    truth = [torch.stack(pieces), *(torch.cat(s, 1) for s in zip(*lasts, strict=True))]
    ours = [out, *flat(last)]
    leaves = [x, *layer.parameters()]
    grads = []
    for results in (ours, truth):
        total = torch.stack([t.sin().sum() for t in results]).sum()
        grads.append(torch.autograd.grad(total, leaves))
    for one, other in zip((*ours, *grads[0]), (*truth, *grads[1]), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


def test_a_reset_is_refused_where_it_has_no_meaning() -> None:
    x, reset = sequences(), torch.zeros(T, B, dtype=torch.bool)
    with pytest.raises(ValueError, match="one direction"):
        layer_of("mgu", bidirectional=True)(x, reset=reset)
    with pytest.raises(ValueError, match=r"reset is \(4, 9\), expected .* \(9, 4\)"):
        layer_of("mgu")(x, reset=reset.T)
    with pytest.raises(ValueError, match=r"reset is torch.float32, expected torch.bool"):
        layer_of("mgu")(x, reset=reset.float())


# Dropout inside the recurrence.

OPTIONS: dict[str, Any] = {
    "input_dropout": 0.4, "recurrent_dropout": 0.4, "candidate_dropout": 0.4, "weight_drop": 0.4,
}  # fmt: skip


@pytest.mark.parametrize("option", OPTIONS)
def test_dropout_is_exactly_off_in_evaluation(option: str) -> None:
    plain, layer = layer_of("lstm"), layer_of("lstm", **{option: OPTIONS[option]})
    x = sequences()
    assert not torch.equal(layer(x)[0], plain(x)[0])
    layer.eval()
    assert torch.equal(layer(x)[0], plain(x)[0])


@pytest.mark.parametrize("option", [*OPTIONS, "zoneout"])
def test_masks_come_from_the_generator_of_torch(option: str) -> None:
    x, found = sequences(), []
    for engine in ("fused", "fused", "reference"):
        layer = layer_of("lstm", engine=engine, **{option: 0.4})
        torch.manual_seed(7)
        found.append(layer(x)[0])
    assert torch.equal(found[0], found[1])
    torch.testing.assert_close(found[0], found[2], rtol=1e-12, atol=1e-12)
    assert not torch.equal(found[0], layer(x)[0])


def test_masks_are_alike_inside_a_transform_of_torch_func() -> None:
    layer = layer_of("lstm", zoneout=0.3, weight_drop=0.1, **dict.fromkeys(list(OPTIONS)[:3], 0.2))
    x, found = sequences(), []

    def loss(parameters: dict[str, Tensor]) -> Any:
        return torch.func.functional_call(layer, parameters, (x,))[0].sin().sum()

    parameters: dict[str, Tensor] = dict(layer.named_parameters())
    for gradients in (torch.func.grad(loss), lambda p: torch.autograd.grad(loss(p), [*p.values()])):
        torch.manual_seed(3)
        grads: Any = gradients(parameters)
        found.append([*grads.values()] if isinstance(grads, dict) else grads)
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("engine", ["fused", "reference"])
def test_variational_dropout_is_one_mask_on_input_and_state(engine: str) -> None:
    layer = layer_of("simple", engine=engine, input_dropout=0.5, recurrent_dropout=0.25)
    x, p = sequences(), learned(layer)
    torch.manual_seed(3)
    out, _ = layer(x)
    torch.manual_seed(3)
    mask_x = dropout.draw((1, B, D), 0.5, x, 2.0)[0]
    mask_h = dropout.draw((1, B, N), 0.25, x, 4 / 3)[0]
    assert 0 < (mask_x == 0).sum() < mask_x.numel()
    assert 0 < (mask_h == 0).sum() < mask_h.numel()
    h = torch.zeros(B, N, dtype=DOUBLE)
    for t in range(T):
        h = torch.tanh((h * mask_h) @ p["h.U"].T + (x[t] * mask_x) @ p["h.W"].T + p["h.b"])
        torch.testing.assert_close(out[t], h, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("engine", ["fused", "reference"])
def test_zoneout_keeps_elements_and_takes_the_mean_in_evaluation(engine: str) -> None:
    layer = layer_of("simple", engine=engine, zoneout=0.3)
    x, p = sequences(), learned(layer)
    torch.manual_seed(3)
    out, _ = layer(x)
    torch.manual_seed(3)
    keeps = dropout.draw((T, B, N), 0.7, x)
    layer.eval()
    mean, _ = layer(x)
    for result, share in ((out, keeps), (mean, torch.full_like(keeps, 0.3))):
        h = torch.zeros(B, N, dtype=DOUBLE)
        for t in range(T):
            new = torch.tanh(h @ p["h.U"].T + x[t] @ p["h.W"].T + p["h.b"])
            h = share[t] * h + (1 - share[t]) * new
            torch.testing.assert_close(result[t], h, rtol=1e-12, atol=1e-12)


def test_zoneout_by_state() -> None:
    layer = layer_of("lstm", zoneout={"c": 1.0})
    _, (_, c) = layer(sequences(), (torch.zeros(1, B, N).double(), torch.ones(1, B, N).double()))
    assert (c == 1).all()
    with pytest.raises(ValueError, match="no state 'z', only h, c"):
        layer_of("lstm", zoneout={"z": 0.1})


def test_weight_drop_leaves_all_but_the_recurrent_matrices() -> None:
    layer = layer_of("simple", weight_drop=1.0)
    x, p = sequences(), learned(layer)
    torch.testing.assert_close(layer(x)[0], torch.tanh(x @ p["h.W"].T + p["h.b"]))


def test_candidate_dropout_leaves_the_old_state_alone() -> None:
    layer = layer_of("mgu", candidate_dropout=1.0)
    start = torch.rand(1, B, N, dtype=DOUBLE)
    _, h = layer(sequences(), start)
    assert ((h.abs() < start) & (h > 0)).all()  # forgotten, and nothing written
    with pytest.raises(UnitError, match="no value of its equations is called candidate"):
        layer_of("simple", candidate_dropout=0.1)
    with pytest.raises(UnitError, match="no map of it reads a state"):
        layer_of("mingru", recurrent_dropout=0.1)
    with pytest.raises(UnitError, match="no matrix of it maps a state"):
        layer_of("indrnn", weight_drop=0.1)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, DOUBLE], ids=str)
@pytest.mark.parametrize("zero", [0.0, 0.05, 0.5, 1.0])
def test_masks_have_their_probability_and_are_alike_without_the_library(
    zero: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    like, found = torch.empty(0, dtype=dtype), []
    other = 1.0 if dtype is torch.bool else 3.0
    for native in ((torch.bool, torch.float32, DOUBLE), ()):
        monkeypatch.setattr(dropout, "_NATIVE", native)
        torch.manual_seed(5)
        found.append(dropout.draw((1000, 301), zero, like, other))
    assert torch.equal(*found)
    mask = found[0] == 0
    spread = 5 * math.sqrt(zero * (1 - zero))
    assert abs(mask.double().mean() - zero) <= spread / math.sqrt(mask.numel())
    assert ((mask.double().mean(0) - zero).abs() <= spread / math.sqrt(1000)).all()
    neighbours = (mask[:, 1:] & mask[:, :-1]).double().mean()
    assert abs(neighbours - zero**2) <= 2 * spread / math.sqrt(mask.numel()) + 1e-12
    assert set(found[0].unique().tolist()) <= {0.0, other}


# Further results.


@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}])
def test_all_states_of_all_steps(options: dict[str, Any]) -> None:
    layer = layer_of("lstm", **options)
    out, (h, c), (every_h, every_c) = layer(sequences(), return_states=True)
    directions = 2 if options else 1
    assert every_h.shape == every_c.shape == (len(h), T, B, N)
    assert torch.equal(torch.cat(list(every_h[-directions:]), -1), out)
    for row in range(len(h)):
        end = 0 if directions == 2 and row % 2 else -1
        assert torch.equal(every_h[row, end], h[row])
        assert torch.equal(every_c[row, end], c[row])
    torch.testing.assert_close(out, layer(sequences())[0])


def test_further_inputs_are_checked() -> None:
    class Reads(Unit):
        inputs = ("x", "dt")
        W = Affine()

        def step(self, x: Any, dt: Any, h: Any) -> Any:
            return tanh(self.W[h, x, dt])

    layer, x = onegate.Recurrent(Reads, D, N), sequences().float()
    with pytest.raises(ValueError, match="extra is None, expected a mapping of dt to tensors"):
        layer(x)
    with pytest.raises(ValueError, match=r"extra: dt is \(9, 4, 3\), expected \(9, 4, 5\)"):
        layer(x, extra=x[..., :3])
    with pytest.raises(ValueError, match="the unit reads x alone"):
        onegate.MGU(D, N)(x, extra=x)
    with pytest.raises(ValueError, match="make a module for each layer"):
        onegate.Recurrent(Reads, D, N, num_layers=2)
    cell = onegate.Cell(Reads, D, N)
    cell.load_state_dict({k.removeprefix("l0."): v for k, v in layer.state_dict().items()})
    torch.testing.assert_close(cell(x[0], extra=x[1]), layer(x[:1], extra=x[1:2])[1][0])
