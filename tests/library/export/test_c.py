"""C files against the float64 reference."""

from __future__ import annotations

import copy
import ctypes
import errno
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import onegate
from onegate.export.deployable import ExportError
from onegate.ops import OPERATIONS, POINTWISE
from onegate.units import UNITS
from tests.library.comparing import X_ALONE
from tests.library.export import targets
from tests.library.export.compiled import (
    STRICT,
    Compiled,
    check_strictly,
    gcc,
    needs_compiler,
    undefined,
)
from tests.library.random_units import sketch

pytestmark = needs_compiler


def exported(model: nn.Module, folder: Path, *flags: str, **options: Any) -> Compiled:
    onegate.export(model, folder, format="c", **options)
    return Compiled(folder, *flags)


def call(layer: onegate.Recurrent, x: Tensor) -> Tensor:
    """(T, inputs) -> (T, outputs); what the unit reads beside x follows x."""
    own, *further = x.split([layer.input_size, *layer._extra_sizes.values()], -1)
    out: Tensor = layer(own, extra=dict(zip(layer._extra_sizes, further, strict=True)) or None)[0]
    return out


def width(layer: onegate.Recurrent) -> int:
    return layer.input_size + sum(layer._extra_sizes.values())


@torch.no_grad()
def assert_close(layer: onegate.Recurrent, compiled: Compiled, x: Tensor) -> None:
    """Within ten times the error of float32 torch."""
    layer = layer.eval()
    exact = call(copy.deepcopy(layer).double(), x.double())
    error = (call(layer, x).double() - exact).abs().max()
    ours = (compiled.run(x).double() - exact).abs().max()
    assert ours <= 10 * error + 1e-6 * max(1.0, float(exact.abs().max()))


def random_layer(unit: Any, inputs: int, size: int, layers: int, **options: Any) -> Any:
    torch.manual_seed(3)
    layer = onegate.Recurrent(unit, inputs, size, layers, engine="reference", **options)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=0.5 / max(1, parameter.shape[-1]) ** 0.5)
    return layer


@pytest.mark.parametrize(("inputs", "size", "layers"), [(1, 1, 1), (5, 17, 2)])
@pytest.mark.parametrize("unit", UNITS)
def test_every_unit(unit: str, inputs: int, size: int, layers: int, tmp_path: Path) -> None:
    layers = layers if unit in X_ALONE else 1
    layer = random_layer(unit, inputs, size, layers, learn_initial_state=size > 1)
    compiled = exported(layer, tmp_path)
    assert_close(layer, compiled, torch.randn(13, width(layer)))
    if unit in STRICTLY:
        check_strictly(tmp_path)


# Units that between them have every kind of stage; all are checked by `make test-targets`.
STRICTLY = ("mgu", "lstm_layer_norm", "slstm", "gru_d", "cornn")


class Rotated(onegate.Unit):
    """States that change places, one that is written before it is last read, a vector."""

    states = ("a", "b", "c")
    W = onegate.Affine()
    V = onegate.Affine(bias=False)
    p = onegate.Vector()

    def step(self, x: Any, a: Any, b: Any, c: Any) -> Any:
        new = onegate.softplus(self.W[x, b]) - 0.5 * onegate.exp(-c)
        return onegate.tanh(new), onegate.relu(self.V[new * a] + self.p) - b, a


class Every(onegate.Unit):
    """Every operation."""

    W, V = onegate.Affine(), onegate.Affine()

    def step(self, x: Any, h: Any) -> Any:
        a, b = self.W[x, h], self.V[x, h]
        small = onegate.minimum(onegate.hard_sigmoid(a), onegate.silu(b)) + onegate.hard_tanh(-b)
        large = onegate.maximum(onegate.abs(a), onegate.square(b)) - onegate.softplus(small)
        large = onegate.log(1 + onegate.sqrt(0.1 + onegate.abs(large))) / (0.5 + onegate.exp(a))
        new = onegate.tanh(large) * onegate.sigmoid(small) - onegate.relu(a) * 0.1
        for name in set(POINTWISE) - {value.op for value in a.builder.made.values()}:
            new = new + 0.1 * onegate.tanh(OPERATIONS[name](a))  # a row that came after this test
        return new


def test_every_operation(tmp_path: Path) -> None:
    layer = random_layer(Every, 3, 19, 1)
    used = {node.op for node in layer.l0.graph.nodes}
    assert set(POINTWISE) <= used
    assert_close(layer, exported(layer, tmp_path), 2 * torch.randn(11, 3))


@pytest.mark.parametrize("zoneout", [0.3, {"c": 0.5}])
def test_zoneout_is_its_mean(zoneout: Any, tmp_path: Path) -> None:
    layer = random_layer("lstm", 3, 19, 2, zoneout=zoneout)
    assert_close(layer, exported(layer, tmp_path), torch.randn(11, 3))


def test_inputs_beside_x_follow_it(tmp_path: Path) -> None:
    layer = random_layer(Timed, 3, 5, 2)
    assert_close(layer, exported(layer, tmp_path), torch.randn(11, 8))
    header = (tmp_path / "model.h").read_text()
    for line in ("MODEL_INPUTS 8", "MODEL_X_INPUTS 3", "MODEL_GAP_INPUTS 5"):
        assert line in header


class Heads(onegate.Unit):
    """Blocks on the diagonal."""

    W = onegate.Affine(heads=2)

    def step(self, x: Any, h: Any) -> Any:
        return onegate.tanh(self.W[x, h])


class LowRank(onegate.Unit):
    """Matrices that are products."""

    W = onegate.Affine(rank=3)

    def step(self, x: Any, h: Any) -> Any:
        return onegate.tanh(self.W[x, h])


class Normed(onegate.Unit):
    """A norm of two vectors, and one of a vector twice beside a learned one."""

    p = onegate.Vector()
    W, V, U = onegate.Affine(), onegate.Affine(bias=False), onegate.Affine()
    N, M = onegate.LayerNorm(), onegate.RMSNorm()

    def step(self, x: Any, h: Any) -> Any:
        a, b = self.N[self.W[x, h], self.V[h]]
        u = self.U[x]
        c, _, d = self.M[u, u, self.p]
        return onegate.tanh(a * onegate.sigmoid(b) + c - 0.5 * d)


class Timed(onegate.Unit):
    """Reads a second input."""

    inputs = ("x", "gap")
    W = onegate.Affine()

    def step(self, x: Any, gap: Any, h: Any) -> Any:
        return onegate.tanh(self.W[x, h] * gap)

    def input_sizes(self, input_size: int, hidden_size: int) -> dict[str, int]:
        return {"x": input_size, "gap": hidden_size}


@pytest.mark.parametrize("unit", [Heads, LowRank, Normed])
def test_maps_of_other_shapes(unit: Any, tmp_path: Path) -> None:
    layer, x = random_layer(unit, 6, 20, 2), torch.randn(11, 6)
    assert_close(layer, exported(layer, tmp_path), x)
    stream = onegate.stream(layer)
    steps = [torch.from_numpy(stream.step(each.numpy()).copy()) for each in x]
    torch.testing.assert_close(torch.stack(steps), layer(x)[0].detach())


def test_gates_to_look_at(tmp_path: Path) -> None:
    layer, x = random_layer("mgu", 3, 18, 1), torch.randn(1, 3)
    compiled = exported(layer, tmp_path, gates=True)
    compiled.run(x)
    kept = torch.frombuffer(compiled.room, dtype=torch.float32)[32 : 32 + 18]  # after h, padded
    wanted = torch.sigmoid(layer.l0.f.W @ x[0] + layer.l0.f.b).detach()
    torch.testing.assert_close(kept, wanted)
    assert "l0_gate_f[32]" in (tmp_path / "model.h").read_text()


def test_a_unit_of_ones_own(tmp_path: Path) -> None:
    layer = random_layer(Rotated, 3, 19, 2)
    assert_close(layer, exported(layer, tmp_path), torch.randn(11, 3))


class Seeded:
    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def integer(self, low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=self.generator))


@pytest.mark.parametrize("seed", range(24))
def test_random_units(seed: int, tmp_path: Path) -> None:
    drawn = sketch(Seeded(seed), (3, 7, 18))
    layer = random_layer(drawn.unit, drawn.input_size, drawn.hidden_size, 1)
    assert_close(layer, exported(layer, tmp_path), torch.randn(4, drawn.input_size))


@pytest.mark.parametrize("flags", [("-DONEGATE_NO_VECTORS",), ("-mavx2",), ("-O0",), ("-O3",)])
def test_the_same_bits_from_other_code(flags: tuple[str, ...], tmp_path: Path) -> None:
    layer, x = random_layer("lstm_peephole", 6, 37, 2), torch.randn(20, 6)
    plain = exported(layer, tmp_path / "a").run(x)
    if flags == ("-mavx2",) and "avx2" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this machine has no AVX2")
    assert torch.equal(plain, exported(layer, tmp_path / "b", *flags).run(x))


class Reader(nn.Module):
    def __init__(self, words: int | None, layer: onegate.Recurrent, outputs: int) -> None:
        super().__init__()
        self.embedding = None if words is None else nn.Embedding(words, layer.input_size)
        self.recurrent, self.dropout = layer, nn.Dropout(0.5)
        self.head = nn.Linear(layer.hidden_size, outputs)
        self.readout = "last"

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.embedding is None else self.embedding(x)
        scores: Tensor = self.head(self.recurrent(x)[0])
        return scores


@pytest.mark.parametrize("words", [None, 11])
@pytest.mark.parametrize("output", ["linear", "softmax", "argmax"])
def test_a_whole_model(words: int | None, output: str, tmp_path: Path) -> None:
    model = Reader(words, random_layer("mgu", 4, 9, 2), 3)
    x = torch.randn(7, 4) if words is None else torch.randint(11, (7,))
    exact = model.double()(x if words else x.double()).detach()
    compiled = exported(model, tmp_path, output=output)
    wanted = exact.softmax(-1) if output == "softmax" else exact
    found = compiled.run(x)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-6)
    if output == "argmax":
        scores = ctypes.c_void_p(found[0].numpy().ctypes.data)
        assert compiled.library.model_argmax(scores) == int(exact[0].argmax())
    if words is not None:
        assert compiled.step(torch.tensor(11), found[0].numpy()) == -1


def test_instances_of_their_own_name(tmp_path: Path) -> None:
    layer = random_layer("mgu", 2, 3, 1)
    onegate.export(layer, tmp_path, format="c", stem="gate")
    assert_close(layer, Compiled(tmp_path, stem="gate"), torch.randn(4, 2))
    assert "GATE_INPUTS 2" in (tmp_path / "gate.h").read_text()


@pytest.mark.parametrize("words", [None, 11])
@pytest.mark.parametrize("mode", [None, "int8", "integer"])
def test_the_code_of_the_readme_compiles(
    mode: str | None, words: int | None, tmp_path: Path
) -> None:
    model, options = Reader(words, random_layer("mgu", 4, 9, 1), 3), dict[str, Any]()
    if mode is not None:
        x = torch.randn(9, 5, 4) if words is None else torch.randint(11, (9, 5))
        options = {"quantise": mode, "calibration": x}
    onegate.export(model, tmp_path, format="c", stem="net", **options)
    use, *of_numbers = re.findall("```c\n(.*?)```", (tmp_path / "README.md").read_text(), re.DOTALL)
    assert bool(of_numbers) is (mode == "integer" and words is None)
    include, use = use.split("\n", 1)
    given = "float number = 0.5f; unsigned i = 0u; (void)i, (void)number;"
    body = "\n".join([given, use, *of_numbers, *(["(void)score;"] if of_numbers else [])])
    text = f"#include <math.h>\n{include}\nint main(void) {{\n{body}\nreturn 0;\n}}\n"
    (tmp_path / "main.c").write_text(text)
    gcc(
        tmp_path,
        *[flag for flag in STRICT if flag != "-Wconversion"],
        "-o",
        "main",
        "main.c",
        "net.c",
        "-lm",
    )
    gcc(tmp_path, compiler="./main")


def test_the_self_test_passes_and_can_fail(tmp_path: Path) -> None:
    onegate.export(random_layer("gru", 3, 5, 1), tmp_path, format="c")
    make = ["make", "-s", "-C", str(tmp_path), "test"]
    assert subprocess.run(make, capture_output=True, text=True, check=True).stdout.startswith("ok ")
    source = tmp_path / "model.c"
    source.write_text(source.read_text().replace("- v", "+ v", 1))
    done = subprocess.run(make, capture_output=True, text=True, check=False)
    assert "FAILED" in done.stdout
    assert done.returncode


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_sanitizers_and_symbols(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"needs {compiler}")
    onegate.export(Reader(None, random_layer("scrn", 3, 5, 2), 4), tmp_path, format="c")
    gcc(tmp_path, *STRICT, "-c", "model.c", compiler=compiler)
    assert undefined(tmp_path) <= {"memcpy", "memset"}
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g"]
    gcc(tmp_path, *STRICT, *checks, "-o", "checked", "model.c", "model_test.c", compiler=compiler)
    assert gcc(tmp_path, compiler="./checked").startswith("ok ")


def test_every_operation_of_the_language_is_spelled() -> None:
    missing = [name for name in POINTWISE if not (OPERATIONS[name].c and OPERATIONS[name].onnx)]
    assert not missing


def test_a_missing_operation_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPERATIONS, "tanh", replace(OPERATIONS["tanh"], c=""))
    with pytest.raises(ExportError, match="mgu: C has no spelling of 'tanh'"):
        onegate.export(onegate.MGU(2, 3), tmp_path / "out", format="c")
    assert not (tmp_path / "out").exists()


def with_hook() -> nn.Module:
    layer = onegate.MGU(2, 3)
    layer.register_forward_hook(lambda *_: None)
    return layer


def with_readout(readout: str) -> nn.Module:
    model = Reader(None, onegate.MGU(2, 3), 1)
    model.readout = readout
    return model


def with_nan() -> nn.Module:
    layer = onegate.MGU(2, 3)
    nn.init.constant_(next(layer.parameters()), float("nan"))
    return layer


def parametrized() -> nn.Module:
    layer = onegate.MGU(2, 3)
    parametrizations.weight_norm(layer.get_submodule("l0.f"), "U")
    return layer


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: onegate.MGU(2, 3, bidirectional=True), "bidirectional"),
        (lambda: with_readout("mean"), "readout 'mean' sees the whole sequence"),
        (with_hook, "has hooks"),
        (parametrized, "l0.f has parametrizations"),
        (with_nan, "infinite or NaN"),
        (lambda: Reader(5, onegate.Recurrent(Timed, 2, 3), 1), "reads words, and its unit gap"),
        (lambda: nn.GRU(2, 3), r"GRU has no layer `recurrent`.*onegate\.from_torch"),
        (lambda: Reader(None, onegate.LSTM(2, 3, proj_size=2), 1), "reads 3 numbers, .* given 2"),
        (lambda: onegate.MGU(2, 3, device="meta"), "on the device 'meta'"),
    ],
)
def test_what_cannot_be_exported_is_refused(make: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=message):
        onegate.export(make(), tmp_path / "out", format="c")
    assert not (tmp_path / "out").exists()


def test_files_are_replaced_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onegate.export(onegate.MGU(2, 3), tmp_path, format="c")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    room = iter(range(2))

    def fsync(_: int) -> None:
        if next(room, None) is None:
            raise OSError(errno.ENOSPC, "the disk is full at the third file")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(OSError, match="third file"):
            onegate.export(onegate.MGU(2, 4), tmp_path, format="c")
    with pytest.raises(ExportError, match="bidirectional"):
        onegate.export(onegate.MGU(2, 3, bidirectional=True), tmp_path, format="c")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    with pytest.raises(ExportError, match=r"model\.h is a file"):
        onegate.export(onegate.MGU(2, 3), tmp_path / "model.h", format="c")


def test_an_unknown_format() -> None:
    with pytest.raises(ValueError, match='use format="c"'):
        onegate.export(onegate.MGU(2, 3), "m.tflite")


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("mine")
    (tmp_path / "card.json").write_text('{"ace": "of spades"}')
    with pytest.raises(ExportError, match=r"has Makefile, card\.json, which no export has written"):
        onegate.export(onegate.MGU(2, 3), tmp_path, format="c")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["Makefile", "card.json"]
    assert (tmp_path / "Makefile").read_text() == "mine"


def named(of_states: tuple[str, ...], *further: str) -> type[onegate.Unit]:
    """A unit whose states and further inputs are called so; its maps W and W1 have 12 operands."""

    class Named(onegate.Unit):
        states, inputs = of_states, ("x", *further)
        W, W1 = onegate.Affine(), onegate.Affine(bias=False)

        def step(self, x: Any, *others: Any) -> Any:
            state = others[len(further)]
            f = onegate.sigmoid(self.W[(x, state) * 6] + sum(others[: len(further)], 0.0))
            return f * onegate.tanh(self.W1[(x, state) * 6]), *others[len(further) + 1 :]

        def input_sizes(self, input_size: int, hidden_size: int) -> dict[str, int]:
            return {"x": input_size} | dict.fromkeys(further, hidden_size)

    return Named


@pytest.mark.parametrize("mode", [None, "gates", "integer"])
@pytest.mark.parametrize(
    ("states", "inputs"),
    [
        (("gate_f", "int"), ()),
        (("h 1", ""), ()),
        (("a*/b", "//"), ()),
        (("é", "s0"), ("output", "input")),
    ],
)
def test_names_that_c_does_not_have(
    states: tuple[str, ...], inputs: tuple[str, ...], mode: str | None, tmp_path: Path
) -> None:
    layer = random_layer(named(states, *inputs), 2, 3, 1, learn_initial_state=True)
    options: dict[str, Any] = {"gates": True} if mode == "gates" else {}
    if mode == "integer":
        options = {"quantise": mode, "calibration": torch.randn(5, 4, width(layer))}
    onegate.export(layer, tmp_path, format="c", **options)
    check_strictly(tmp_path)


def test_names_that_are_one_in_c(tmp_path: Path) -> None:
    layer = random_layer(named(("h",), "gap", "Gap"), 2, 3, 1)
    with pytest.raises(ExportError, match="Named: C would have MODEL_GAP_INPUTS twice: rename"):
        onegate.export(layer, tmp_path / "out", format="c")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "options",
    [
        {"stem": "1x"}, {"stem": "stdint"}, {"output": "max"}, {"output": "softmax"},
        {"card": {"accuracy": float("nan")}}, {"card": {"accuracy": torch.ones(1)}},
    ],
)  # fmt: skip
def test_bad_options(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=next(iter(options))):
        onegate.export(onegate.MGU(2, 3), tmp_path / "out", format="c", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("mode", [None, "int8", "integer"])
def test_the_same_bits_on_another_machine(mode: str | None, tmp_path: Path) -> None:
    folder = targets.exported(mode, tmp_path)
    here = targets.run(targets.TARGETS["x86-64 plain C"], folder, mode).hash
    others = {n: t for n, t in targets.TARGETS.items() if t.missing() is None and t.runner}
    if not others:
        pytest.skip("needs a cross compiler and QEMU or Node: see make test-targets")
    ran = {name: targets.run(target, folder, mode) for name, target in others.items()}
    assert {each.hash for each in ran.values()} == {here}
    # Instructions and bytes: the same on every machine that has this compiler.
    assert [line for n, r in ran.items() for line in targets.exceeded(n, mode, r, folder)] == []
