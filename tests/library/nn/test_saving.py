"""Layers, cells and models in one file, and what a file may not do."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import onegate
from onegate import Affine, Unit, sigmoid, tanh, tensor_files
from onegate.nn.named import CELLS, LAYERS
from tests.library.comparing import X_ALONE


class Slow(Unit):
    """Moves a fixed part of the way."""

    rate: float = 0.5
    W_h = Affine()

    def step(self, x: Any, h: Any) -> Any:
        return h + self.rate * (tanh(self.W_h[h, x]) - h)


class Tagger(nn.Module):
    """A model with tied weights and a buffer."""

    def __init__(self, unit: Any = "mgu", **options: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 5)
        self.recurrent = onegate.Recurrent(unit, 5, 5, **options)
        self.norm = nn.BatchNorm1d(5)
        self.head = nn.Linear(5, 7)
        self.head.weight = self.embedding.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        states, _ = self.recurrent(self.embedding(words))
        logits: torch.Tensor = self.head(states)
        return logits


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """Random numbers are drawn as if nothing had been saved or loaded."""
    before = torch.get_rng_state()
    yield tmp_path / "m.safetensors"
    torch.set_rng_state(before)


def same(a: nn.Module, b: nn.Module, x: torch.Tensor) -> None:
    assert repr(a) == repr(b)
    assert a.state_dict().keys() == b.state_dict().keys()
    torch.testing.assert_close(a(x), b(x), rtol=0, atol=0)


@pytest.mark.parametrize("name", X_ALONE)
def test_every_unit_comes_back(name: str, path: Path) -> None:
    layer = LAYERS[name](3, 4)
    assert onegate.save(layer, path) == path
    found = onegate.load(path)
    assert type(found) is type(layer)
    same(found, layer, torch.randn(5, 2, 3))
    onegate.save(cell := CELLS[name](3, 4), path)
    assert type(onegate.load(path)) is type(cell)
    same(onegate.load(path), cell, torch.randn(2, 3))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_every_argument_comes_back(dtype: torch.dtype, path: Path) -> None:
    layer = onegate.Recurrent(
        "scrn", 3, 4, 2, False, True, 0.25, True, dtype=dtype, engine="reference",
        learn_initial_state=True, init={"U": ("normal", 0.01)}, context_size=3,
    ).eval()  # fmt: skip
    onegate.save(layer, path)
    drawn = torch.get_rng_state()
    found = onegate.load(path)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert found.training
    assert found.init == layer.init
    same(found.eval(), layer, torch.randn(2, 5, 3, dtype=dtype))
    assert all(p.requires_grad and p.is_leaf for p in found.parameters())
    assert isinstance(found, onegate.Recurrent)
    found.reset_parameters()


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_layers_with_a_nonlinearity(nonlinearity: str, path: Path) -> None:
    for layer in (onegate.RNN(3, 4, 2, nonlinearity), onegate.RNNCell(3, 4, False, nonlinearity)):
        onegate.save(layer, path)
        found = onegate.load(path)
        assert type(found) is type(layer)
        assert found.nonlinearity == nonlinearity
        same(found, layer, torch.randn(5, 3))


def test_a_projected_lstm_is_an_lstm(path: Path) -> None:
    layer = onegate.LSTM(3, 8, 2, proj_size=4, zoneout={"h": 0.1}).eval()
    onegate.save(layer, path)
    found = onegate.load(path)
    assert type(found) is onegate.LSTM
    same(found.eval(), layer, torch.randn(5, 2, 3))


def test_chrono_is_an_option_too(path: Path) -> None:
    onegate.save(onegate.LSTM(3, 4, init=onegate.chrono(784)), path)
    assert onegate.load(path).init == onegate.chrono(784)


def test_a_unit_of_ones_own_is_found_where_it_is_defined(path: Path) -> None:
    layer = onegate.Recurrent(Slow(rate=0.25), 3, 4)
    onegate.save(layer, path)
    same(onegate.load(path), layer, torch.randn(5, 2, 3))
    described = json.loads(tensor_files.read(path)[1]["onegate"])
    reference = described["layers"][""]["unit"]
    assert reference["file"] == "test_saving.py"
    assert len(reference["sha256"]) == 64
    assert reference["module"] == __name__


def load_elsewhere(path: Path, before: str, folder: Path) -> str:
    """What another program says that loads the file; it could import `stranger`."""
    code = f"import onegate, sys\n{before}\n"
    code += f"layer = onegate.load({str(path)!r}, units=units)\nprint(layer.unit.name)\n"
    (folder / "stranger.py").write_text("print('run by a file')\n")
    done = subprocess.run(
        [sys.executable, "-c", "units = []\n" + code], capture_output=True, text=True, cwd=folder
    )
    return (done.stdout + done.stderr).strip().splitlines()[-1]


def test_no_module_is_imported_because_a_file_names_it(path: Path, tmp_path: Path) -> None:
    kind = type("Stranger", (Slow,), {"__module__": "stranger"})
    onegate.save(onegate.Recurrent(kind, 3, 4), path)
    said = load_elsewhere(path, "", tmp_path)
    assert "unit 'Stranger' is 'stranger.Stranger', which is not defined here" in said
    assert "units=[its class]" in said
    own = """
class Stranger(onegate.Unit):
    rate: float = 0.5
    W_h = onegate.Affine()
    def step(self, x, h):
        return h + self.rate * (onegate.tanh(self.W_h[h, x]) - h)
units = [Stranger]
"""
    assert load_elsewhere(path, own, tmp_path) == "Stranger"
    changed = own.replace("- h)", "- h) * h")
    assert "equations of Stranger are others" in load_elsewhere(path, changed, tmp_path)


def test_equations_are_compared_and_not_names(path: Path) -> None:
    def unit(keep: bool) -> type[Unit]:
        class Two(Unit):
            W_f, W_h = Affine(), Affine()

            def step(self, x: Any, h: Any) -> Any:
                f = sigmoid(self.W_f[h, x])
                if keep:
                    return f * h + (1 - f) * tanh(self.W_h[h, x])
                new = tanh(self.W_h[h, x])
                return (1 - f) * h + f * new

        return Two

    onegate.save(onegate.Recurrent(unit(False), 3, 4), path)
    onegate.load(path, units=[unit(False)])
    with pytest.raises(ValueError, match="equations of Two are others, or have changed since"):
        onegate.load(path, units=[unit(True)])


def test_a_model_is_filled(path: Path) -> None:
    model = Tagger(num_layers=2, dropout=0.5)
    model(torch.randint(7, (5, 2)))
    model.norm(torch.randn(9, 5))
    onegate.save(model, path)
    other = Tagger(num_layers=2, engine="reference").double().float()
    assert onegate.load(path, model=other) is other
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name])
    assert other.head.weight is other.embedding.weight
    with pytest.raises(ValueError, match=r"holds the weights of 'Tagger': make one, .*model=it"):
        onegate.load(path)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tagger(), r"the model has no tensor 'recurrent\.l1"),
        (lambda: Tagger(num_layers=3), r"it has no tensor 'recurrent\.l2"),
        (lambda: Tagger(num_layers=2).double(), "is float32 .* in the file and float64"),
        (lambda: Tagger(num_layers=2, batch_first=True), "batch_first of recurrent is False in"),
        (lambda: Tagger("janet", num_layers=2), "those of 'mgu', and the equations of"),
        (lambda: Tagger("gru", num_layers=2), "it has no tensor"),
    ],
)
def test_another_model_is_refused(make: Any, message: str, path: Path) -> None:
    onegate.save(Tagger(num_layers=2), path)
    model = make()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ValueError, match=message):
        onegate.load(path, model=model)
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())


def test_files_of_other_programs_fill_models(path: Path) -> None:
    gru = nn.GRU(3, 4)
    tensor_files.write(path, gru.state_dict(), {})
    filled = onegate.load(path, model=nn.GRU(3, 4))
    assert torch.equal(filled.all_weights[0][1], gru.all_weights[0][1])
    with pytest.raises(ValueError, match="a model of another program"):
        onegate.load(path)


def test_parametrized_layers_are_filled(path: Path) -> None:
    def make() -> onegate.MGU:
        layer = onegate.MGU(3, 4)
        nn.utils.parametrizations.orthogonal(layer.l0.f, "U")  # type: ignore[arg-type, union-attr]
        return layer

    layer = make()
    onegate.save(layer, path)
    with pytest.raises(ValueError, match=r"it has no tensor 'l0\.f\.U'"):
        onegate.load(path)
    x = torch.randn(5, 2, 3)
    torch.testing.assert_close(onegate.load(path, model=make())(x), layer(x), rtol=0, atol=0)


def test_a_subclass_is_not_rebuilt_as_its_base(path: Path) -> None:
    class Doubled(onegate.MGU):
        def forward(self, *given: Any, **more: Any) -> Any:
            out, h = super().forward(*given, **more)
            return 2 * out, h

    onegate.save(layer := Doubled(3, 4), path)
    with pytest.raises(ValueError, match=r"weights of 'test_a_sub.*Doubled'"):
        onegate.load(path)
    same(onegate.load(path, model=Doubled(3, 4)), layer, torch.randn(5, 2, 3))


def test_what_is_no_plain_data_is_refused(path: Path) -> None:
    layer = onegate.MGU(3, 4)
    layer.init = object()
    with pytest.raises(ValueError, match=r"init is <object .* no plain data"):
        onegate.save(layer, path)
    assert not path.exists()
    with pytest.raises(TypeError, match=r"model is a dict, expected a torch\.nn\.Module"):
        onegate.save({}, path)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        onegate.save(layer, path.parent / "nowhere" / "m")


def described(path: Path, change: Any) -> None:
    """Writes the file anew with another description of its one layer."""
    tensors, metadata = tensor_files.read(path)
    found = json.loads(metadata["onegate"])
    change(found, found["layers"][""])
    tensor_files.write(path, tensors, {"onegate": json.dumps(found)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _, one: one["arguments"].update(hidden_size=2**40), "overflow"),
        (
            lambda _, one: one["arguments"].update(hidden_size="4"),
            "hidden_size should be of type int, got: str; it is '4', expected",
        ),
        (lambda _, one: one["arguments"].update(num_layers=2**40), "6 tensors for 1099511627776"),
        (lambda _, one: one["arguments"].update(device="cuda"), "no argument 'device'"),
        (lambda _, one: one["arguments"].update(engine="evil"), "engine is 'evil', expected"),
        (lambda _, one: one["arguments"].update(init="evil"), "evil"),
        (lambda _, one: one["arguments"].pop("input_size"), "input_size"),
        (lambda _, one: one["unit"].update(name="evil"), "has no unit 'evil'"),
        (lambda _, one: one["unit"].update(name="gru"), "two units, gru and mgu"),
        (lambda _, one: one["unit"].update(options={"x": 1}), "has no option 'x'"),
        (lambda _, one: one["unit"].update(qualname="system", module="os"), "not defined here"),
        (lambda _, one: one.update(kind="Linear"), "kind is .* expected one of Cell, Recurrent"),
        (lambda _, one: one.update(dtype="F99"), "dtype is"),
        (lambda all_, one: (all_.update(model="\x1b"), one.update({"class": ""})), "weights of"),
        (lambda _, one: one.update({"class": "torch"}), "two units, mgu and"),
        (lambda all_, _: all_.update(format=2), "format 2 is not known to this version"),
        (lambda all_, _: all_.update(layers=[]), "layers is a list, expected an object"),
    ],
)
def test_descriptions_are_checked(change: Any, message: str, path: Path) -> None:
    onegate.save(onegate.MGU(3, 4), path)
    described(path, change)
    with pytest.raises(ValueError, match=message) as error:
        onegate.load(path)
    assert str(path) in str(error.value)
    assert str(error.value).isprintable()


def test_a_damaged_file_is_named(path: Path) -> None:
    onegate.save(onegate.MGU(3, 4), path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"m\.safetensors is no whole safetensors file"):
        onegate.load(path)
