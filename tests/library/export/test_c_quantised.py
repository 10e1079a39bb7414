"""Eight-bit C files give the bits of the simulation, which is close to the float64 reference."""

from __future__ import annotations

import contextlib
import ctypes
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import onegate
from onegate.export import quantise
from onegate.export.deployable import ExportError, deployable
from onegate.export.quantise import MODES, Simulated, quantised
from tests.library.export.compiled import (
    STRICT,
    Compiled,
    check_has_no_float,
    check_strictly,
    gcc,
    needs_compiler,
)
from tests.library.export.test_c import (
    STRICTLY,
    Every,
    Normed,
    Reader,
    Rotated,
    Seeded,
    Timed,
    random_layer,
    width,
)
from tests.library.random_units import sketch

pytestmark = needs_compiler


def run_integer(compiled: Compiled, x: Tensor) -> Tensor:
    """x: whole numbers (T, inputs)."""
    y = np.empty((len(x), compiled.outputs), np.int32)
    compiled.library.model_reset(compiled.room)
    for t in range(len(x)):
        given = x[t].to(torch.int16).numpy()
        where = [ctypes.c_void_p(array.ctypes.data) for array in (given, y[t])]
        compiled.library.model_step(compiled.room, *where)
    return torch.from_numpy(y)


def assert_same_bits(model: Any, mode: str, inputs: int, folder: Path, *flags: str) -> None:
    torch.manual_seed(1)
    calibration, x = torch.randn(20, 32, inputs), torch.randn(15, inputs)
    found = quantised(model, mode, calibration)
    onegate.export(model, folder, format="c", quantise=mode, calibration=calibration)
    compiled, simulated = Compiled(folder, *flags), Simulated(found)(x[:, None])[:, 0]
    if mode == "int8":
        assert torch.equal(compiled.run(x), simulated)
    else:
        ours = run_integer(compiled, found.whole(x))
        assert torch.equal(ours.double() * 2.0**-found.output_exponent, simulated)
    exact = deployable(model).run(x[:, None])[:, 0]
    size = exact.square().mean().sqrt().clamp(min=1e-9)
    error = (simulated - exact).square().mean().sqrt() / size
    assert error < 0.06, f"relative RMS error {float(error)}"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("unit", [*sorted(onegate.UNITS), Rotated, Normed, Timed, Every])
def test_every_unit(unit: Any, mode: str, tmp_path: Path) -> None:
    layers = 1 if unit == "gru_d" or unit is Timed else 2
    layer = random_layer(unit, 5, 17, layers, learn_initial_state=True)
    assert_same_bits(layer, mode, width(layer), tmp_path)
    if mode == "integer":
        check_has_no_float(tmp_path)
    if unit in STRICTLY:
        check_strictly(tmp_path)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(12))
def test_random_units(seed: int, mode: str, tmp_path: Path) -> None:
    drawn = sketch(Seeded(seed), (3, 7, 18))
    layer = random_layer(drawn.unit, drawn.input_size, drawn.hidden_size, 1)
    with contextlib.suppress(ExportError):  # of a unit that grows without bound
        assert_same_bits(layer, mode, drawn.input_size, tmp_path)
        return
    with pytest.raises(ExportError, match="becomes infinite or NaN"):
        assert_same_bits(layer, mode, drawn.input_size, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("mode", MODES)
def test_zoneout(mode: str, tmp_path: Path) -> None:
    assert_same_bits(random_layer("lstm", 5, 17, 1, zoneout=0.3), mode, 5, tmp_path)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("inputs", [1, 28, 33])
def test_a_head_and_other_code(inputs: int, mode: str, tmp_path: Path) -> None:
    model = Reader(None, random_layer("mgu", inputs, 67, 1), 3)
    assert_same_bits(model, mode, inputs, tmp_path / "plain")
    assert_same_bits(model, mode, inputs, tmp_path / "wide", "-march=native")
    if "avx2" in Path("/proc/cpuinfo").read_text():
        assert_same_bits(model, mode, inputs, tmp_path / "avx2", "-mavx2")


@pytest.mark.parametrize("mode", MODES)
def test_sums_that_an_int32_does_not_hold_are_split(mode: str, tmp_path: Path) -> None:
    layer = random_layer("simple", 1200, 3, 1)
    with torch.no_grad():
        layer.l0.h.W.fill_(0.02)
    assert_same_bits(layer, mode, 1200, tmp_path)
    found = quantised(layer, mode, torch.ones(2, 1, 1200)).layers[0].blocks
    (blocks,) = [each for operands in found.values() for each in operands if len(each) > 1]
    assert [block.weight.shape[1] for block in blocks] == [512, 512, 176]
    assert quantise.COLUMNS * 127 * 32767 < 2**31


@pytest.mark.parametrize("mode", MODES)
def test_symbols_and_sanitizers(mode: str, tmp_path: Path) -> None:
    model = Reader(None, random_layer("gru", 5, 7, 2), 4)
    onegate.export(model, tmp_path, format="c", quantise=mode, calibration=torch.randn(9, 9, 5))
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    gcc(tmp_path, *STRICT, *checks, "-o", "checked", "model.c", "model_test.c")
    assert gcc(tmp_path, compiler="./checked").startswith("ok ")
    if mode == "integer":
        check_has_no_float(tmp_path)


def test_what_eight_bits_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, x = Reader(None, random_layer("mgu", 4, 9, 1), 3), torch.randn(6, 40, 4)
    before = deployable(model).run(x)
    wanted = before[-1].argmax(1)
    onegate.export(
        model, tmp_path, format="c", quantise="int8", calibration=x, held_out=(x, wanted)
    )
    found = json.loads((tmp_path / "card.json").read_text())["quantised"]
    after = Simulated(quantised(model, "int8", x))(x).double()
    same = float((after[-1].argmax(1) == wanted).double().mean())
    change = (after - before).square().mean().sqrt() / before.square().mean().sqrt()
    assert found["sequences"] == 40
    assert found["float_accuracy"] == 1.0
    assert found["int8_accuracy"] == found["same_decisions"] == same
    assert found["relative_error"] == pytest.approx(float(change))
    assert "same decisions" in capsys.readouterr().out
    assert "| quantised: same decisions |" in (tmp_path / "README.md").read_text()


def test_an_operation_that_integer_lacks(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(quantise, "TABLED", ())
    options: dict[str, Any] = {"quantise": "integer", "calibration": torch.ones(2, 1, 2)}
    with pytest.raises(ExportError, match=r"mgu: integer C has no operation '(sigmoid|tanh)'"):
        onegate.export(onegate.MGU(2, 3), tmp_path / "out", format="c", **options)
    assert not (tmp_path / "out").exists()


_HELD: dict[str, Any] = {"calibration": torch.ones(2, 1, 2)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quantise": "int4", "calibration": torch.ones(2, 1, 2)}, "quantise is 'int4'"),
        ({"quantise": "int8"}, "needs calibration="),
        ({"calibration": torch.ones(2, 1, 2)}, "are for quantise="),
        ({"quantise": "int8", **_HELD, "held_out": torch.ones(2, 1, 3)}, "held_out is .*expected"),
        (
            {"quantise": "int8", **_HELD, "held_out": (torch.ones(2, 1, 2), torch.ones(2))},
            "expected 1 classes",
        ),
        (
            {"quantise": "int8", **_HELD, "held_out": (torch.ones(2, 1, 2), None, torch.ones(1))},
            "lengths are 1 whole numbers",
        ),
        (
            {
                "quantise": "int8",
                **_HELD,
                "held_out": (torch.ones(2, 1, 2), None, torch.tensor([3])),
            },
            "lengths are 1 whole numbers from 1 to 2",
        ),
        ({"quantise": "int8", **_HELD, "held_out": ()}, "held_out has 0 parts"),
        ({"quantise": "int8", "calibration": torch.full((2, 1, 2), 1e9)}, "mgu: x becomes 1e"),
        ({"quantise": "int8", "calibration": torch.ones(2, 1, 3)}, r"\(2, 1, 3\), expected"),
        ({"quantise": "int8", "calibration": torch.ones(2, 2)}, "expected .* numbers"),
        ({"quantise": "int8", "calibration": torch.full((2, 1, 2), torch.nan)}, "NaN"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=message):
        onegate.export(onegate.MGU(2, 3), tmp_path / "out", format="c", **options)
    assert not (tmp_path / "out").exists()
