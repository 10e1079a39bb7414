"""ONNX files run by ONNX Runtime, held against the layers at sizes that the export never saw."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import onegate
from onegate import Affine, Recurrent, Unit, UnitError, Vector, sigmoid, softplus, tanh
from onegate.export.onnx import export_onnx, onnx_table
from onegate.export.onnx_operators import operator
from onegate.ops import OPERATIONS
from tests.library.export.test_c import Every, Heads, LowRank, Normed, Timed

ort = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed")


class Own(Unit):
    """Two states of two sizes, a number, a vector, an input outside the maps."""

    states = ("h", "slow")
    W_g, W_h, W_s, p = Affine(), Affine(bias=False), Affine(like="slow"), Vector()

    def state_sizes(self, hidden_size: int) -> dict[str, int]:
        return {"h": hidden_size, "slow": 3}

    def step(self, x: Any, h: Any, slow: Any) -> Any:
        slow = 0.9 * slow + 0.1 * tanh(self.W_s[x])
        g = sigmoid(self.W_g[h, slow] - softplus(self.p))
        return (1 - g) * h + g * tanh(self.W_h[x, h]), slow


class Mixes(Unit):
    """Mixes by a gate that is a rest itself, of which parts are used elsewhere, and of numbers."""

    W_g, W_h, p = Affine(), Affine(), Vector()

    def step(self, x: Any, h: Any) -> Any:
        z = 1 - sigmoid(self.W_g[x, h])
        kept, rest = (1 - z) * h, 1 - z
        c = kept + z * tanh(self.W_h[x, h])
        d = (1 - z) * c + z * h
        g = sigmoid(self.p * d)
        return 0.25 * (g * 0.5 + (1 - g) * d) + 0.5 * kept + 0.1 * rest


OPERATORS = {
    "RNN": "simple irnn",
    "LSTM": "lstm lstm_np lstm_peephole lstm_coupled lstm_cifg lstm_niaf lstm_noaf",
    "GRU": "gru gru_cho gru_reset_after mut2 mgu mgu1 mgu2 mgu3 mgu_gate_after mingru",
}
OWN = {
    "own": Own,
    "every": Every,
    "normed": Normed,
    "rank": LowRank,
    "timed": Timed,
    "mixes": Mixes,
}
ALL = [*onegate.UNITS, *OWN]


def layer_of(name: str, input_size: int, hidden_size: int, **more: Any) -> Recurrent:
    """A layer in whose parameters nothing is zero: peepholes start so."""
    torch.manual_seed(3)
    layer = Recurrent(OWN.get(name, name), input_size, hidden_size, **more)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-0.6, 0.6)
    return layer.eval()


def further(layer: Recurrent, steps: int, batch: int) -> dict[str, Tensor]:
    """What the layer reads beside x, by name."""
    return {name: torch.rand(steps, batch, size) for name, size in layer._extra_sizes.items()}


def session(path: Path) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def run(path: Path, **inputs: Tensor | np.ndarray) -> list[Tensor]:
    given = {name: np.asarray(v) for name, v in inputs.items()}
    return [torch.from_numpy(v) for v in session(path).run(None, given)]


def assert_close(ours: list[Tensor], expected: Any) -> None:
    out, last = expected[0], expected[1]
    want = [out, *(last if isinstance(last, tuple) else (last,))]
    assert len(ours) == len(want)
    for got, wanted in zip(ours, want, strict=True):
        torch.testing.assert_close(got, wanted.detach(), rtol=1e-5, atol=2e-6)


def test_operators_are_found_from_the_equations() -> None:
    found = {name: operator(onegate.trace(unit, 3, 5))[0] for name, unit in onegate.UNITS.items()}
    expected = {name: op for op, names in OPERATORS.items() for name in names.split()}
    assert {name: one.name for name, one in found.items() if one is not None} == expected


def test_loops_have_as_few_nodes_as_they_can(tmp_path: Path) -> None:
    """Of f h + (1 - f) c three, and beside the loop of an operator only what gives its results."""
    onnx = pytest.importorskip("onnx")

    def nodes(form: str) -> list[Any]:
        return list(
            onnx.load(export_onnx(layer_of("mgu", 3, 5), tmp_path / "m.onnx", form)).graph.node
        )

    (scan,) = [node for node in nodes("scan") if node.op_type == "Scan"]
    (body,) = [attribute.g for attribute in scan.attribute if attribute.name == "body"]
    operations = " ".join(node.op_type for node in body.node)
    assert operations == "Gemm Sigmoid Mul Gemm Tanh Sub Mul Add Identity"
    outside = {"GRU", "Squeeze", "Unsqueeze", "Identity"}
    assert {node.op_type for node in nodes("op")} == outside  # no states of zeros, no transposition


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("form", ["auto", "scan"])
def test_a_sequence(tmp_path: Path, name: str, form: str) -> None:
    layer = layer_of(name, 3, 5)
    path = export_onnx(layer, tmp_path / "m.onnx", form)
    for steps, batch in ((1, 1), (7, 2)):
        x, beside = torch.randn(steps, batch, 3), further(layer, steps, batch)
        assert_close(run(path, input=x, **beside), layer(x, extra=beside or None))


@pytest.mark.parametrize("name", ["mgu", "lstm_cifg", "gru_reset_after", "own", "scrn"])
@pytest.mark.parametrize("form", ["auto", "scan"])
def test_lengths_directions_layers_and_states(tmp_path: Path, name: str, form: str) -> None:
    layer = layer_of(name, 3, 5, num_layers=2, bidirectional=True, batch_first=True)
    path = export_onnx(layer, tmp_path / "m.onnx", form, lengths=True, states=True)
    x, lengths = torch.randn(4, 6, 3), torch.tensor([6, 1, 3, 5])
    sizes = layer.unit.state_sizes(5)
    hx = {f"{state}_0": torch.randn(4, 4, size) for state, size in sizes.items()}
    given = tuple(hx.values())
    expected = layer(x, given if len(given) > 1 else given[0], lengths=lengths)
    assert_close(run(path, input=x, lengths=lengths, **hx), expected)


@pytest.mark.parametrize("name", ALL)
def test_steps_with_explicit_states(tmp_path: Path, name: str) -> None:
    layer = layer_of(name, 3, 5, num_layers=1 if name == "gru_d" else 2)
    path = export_onnx(layer, tmp_path / "m.onnx", "step")
    x, beside = torch.randn(4, 2, 3), further(layer, 4, 2)
    sizes = layer.unit.state_sizes(5)
    states = [torch.zeros(layer.num_layers, 2, size) for size in sizes.values()]
    outs = []
    for t, one in enumerate(x):
        hx = {f"{state}_0": value for state, value in zip(sizes, states, strict=True)}
        out, *states = run(path, input=one, **hx, **{k: v[t] for k, v in beside.items()})
        outs.append(out)
    assert_close([torch.stack(outs), *states], layer(x, extra=beside or None))


def test_heads(tmp_path: Path) -> None:
    layer = Recurrent(Heads, 4, 6)
    x = torch.randn(5, 2, 4)
    for form in ("op", "scan"):
        assert_close(run(export_onnx(layer, tmp_path / "m.onnx", form), input=x), layer(x))


@pytest.mark.parametrize("form", ["scan", "step"])
def test_zoneout_is_its_mean(tmp_path: Path, form: str) -> None:
    layer = layer_of("lstm", 3, 5, zoneout={"c": 0.3})
    path, x = export_onnx(layer, tmp_path / "m.onnx", form), torch.randn(1, 2, 3)
    zeros = {name: torch.zeros(1, 2, 5) for name in ("h_0", "c_0")}
    out, *states = run(path, input=x[0], **zeros) if form == "step" else run(path, input=x)
    assert_close([out.view(1, 2, 5), *states], layer(x))


def test_learned_initial_states_and_float64(tmp_path: Path) -> None:
    layer = layer_of("mgu", 2, 3, learn_initial_state=True)
    x = torch.randn(3, 2, 2)
    for form in ("op", "scan"):
        assert_close(run(export_onnx(layer, tmp_path / "m.onnx", form), input=x), layer(x))
    # ONNX Runtime's GRU is for float32 alone: a loop is written.
    path = export_onnx(layer.double(), tmp_path / "m.onnx")
    assert_close(run(path, input=x.double()), layer(x.double()))


def test_a_cell_is_a_step(tmp_path: Path) -> None:
    cell = onegate.Cell("mgu", 3, 5)
    x, h = torch.randn(2, 3), torch.randn(2, 5)
    out, last = run(export_onnx(cell, tmp_path / "m.onnx"), input=x, h_0=h[None])
    torch.testing.assert_close(out, cell(x, h).detach(), rtol=1e-5, atol=2e-6)
    assert torch.equal(last[0], out)


class Timely(nn.Module):
    """A unit that reads more than x, with zoneout."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = layer_of("timed", 3, 5, zoneout=0.2)

    def forward(self, x: Tensor, gap: Tensor) -> Tensor:
        out: Tensor = self.layer(x, extra=gap)[0]
        return out


class Headed(nn.Module):
    """Maps with heads, and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Recurrent(Heads, 4, 6), layer_of("normed", 6, 5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(self.first(x)[0])[0]
        return out


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [Timely, Headed])
def test_other_models_through_torch(tmp_path: Path, make: Any) -> None:
    model = make().eval()
    sizes = (3, 5) if make is Timely else (4,)
    steps, batch = torch.export.Dim("steps"), torch.export.Dim("batch")
    path, names = tmp_path / "m.onnx", ["x", "gap"][: len(sizes)]
    torch.onnx.export(
        model, tuple(torch.randn(4, 2, n) for n in sizes), path, dynamo=True, verbose=False,
        custom_translation_table=onnx_table(), input_names=names,
        dynamic_shapes=({0: steps, 1: batch},) * len(sizes),
    )  # fmt: skip
    given = {name: torch.randn(7, 3, n) for name, n in zip(names, sizes, strict=True)}
    (ours,) = run(path, **given)
    torch.testing.assert_close(ours, model(**given).detach(), rtol=1e-5, atol=5e-6)


class Model(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 3)
        self.layer = layer_of(name, 3, 5, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(10, 4)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        out, _ = self.layer(self.embed(words), lengths=lengths)
        scores: Tensor = self.head(out.sum(1))
        return scores


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "form"), [("mgu", "auto"), ("own", "auto"), ("lstm", "scan")])
def test_a_whole_model_through_torch(tmp_path: Path, name: str, form: str) -> None:
    model = Model(name).eval()
    given = torch.randint(11, (3, 6)), torch.tensor([6, 2, 4])
    batch, steps = torch.export.Dim("batch"), torch.export.Dim("steps")
    path = tmp_path / "m.onnx"
    torch.onnx.export(
        model, given, path, dynamo=True, custom_translation_table=onnx_table(form),
        dynamic_shapes=({0: batch, 1: steps}, {0: batch}), input_names=["words", "lengths"],
        verbose=False,
    )  # fmt: skip
    words, lengths = torch.randint(11, (2, 9)), torch.tensor([4, 9])
    (ours,) = run(path, words=words, lengths=lengths)
    torch.testing.assert_close(ours, model(words, lengths).detach(), rtol=1e-5, atol=5e-6)


def test_what_cannot_be_exported_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    with pytest.raises(UnitError, match="janet is none of ONNX's GRU"):
        export_onnx(layer_of("janet", 2, 3), path, "op")
    with pytest.raises(ValueError, match="form is 'loop'"):
        export_onnx(layer_of("mgu", 2, 3), path, "loop")
    with pytest.raises(ValueError, match="bidirectional"):
        export_onnx(layer_of("mgu", 2, 3, bidirectional=True), path, "step")
    with pytest.raises(TypeError, match="onnx_table"):
        export_onnx(nn.Linear(2, 3), path)
    with pytest.raises(ValueError, match="float32"):
        export_onnx(layer_of("mgu", 2, 3).half(), path)
    hooked = layer_of("mgu", 2, 3)
    hooked.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="hooks"):
        export_onnx(hooked, path)
    monkeypatch.setitem(OPERATIONS, "softplus", replace(OPERATIONS["softplus"], onnx=""))
    with pytest.raises(UnitError, match="no spelling of 'softplus'"):
        export_onnx(layer_of("own", 2, 3), path)
    assert not list(tmp_path.iterdir())
