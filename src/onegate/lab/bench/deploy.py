"""The figures that exported models are meant to reach, measured in one run.

As many inputs as neurons, one stream, one thread. Contestants take turns; the least mean time of
many blocks of steps counts, as for a step that nothing disturbs.
"""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any, Final, TypeAlias

import torch

import onegate
from onegate.lab.bench.latency import SIZES, one_thread, onnx_step, stream_step, torch_cell
from onegate.lab.bench.verdicts import Verdict
from onegate.nn.layers import Recurrent

Block: TypeAlias = Callable[[], Any]

_STEPS: Final = 200  # in a block
_SEQUENCE: Final = 100  # steps
_FLAGS: Final = ("-std=c99", "-O2", "-ffp-contract=off")
_LOOP: Final = """
#include "model.h"
static model_state s;
void run(const float *x, float *y, int n) {
  model_reset(&s);
  for (int i = 0; i < n; i++) model_step(&s, x, y);
}
"""
# At most so many times the other's time, by neurons.
OF_ONNX_RUNTIME: Final = {64: 0.10, 128: 0.20, 256: 0.35}
OF_TORCH_CELL: Final = {64: 0.04, 128: 0.10, 256: 0.20}
STREAM_OF_ONNX_RUNTIME: Final = 0.25  # at 64 neurons
OPERATOR_OF_FUSED, SCAN_OF_FUSED = 1.0, 4.0  # 100 steps, a batch of 1, 64 neurons
INT8_OF_FLOAT: Final = 0.55  # at 256 neurons
CODE_BYTES: Final = 2048


def exported(size: int, folder: Path, quantise: str | None) -> Path:
    """An MGU of so many inputs and neurons as C."""
    more = {"quantise": quantise, "calibration": torch.randn(20, 20, size)} if quantise else {}
    return onegate.export(Recurrent("mgu", size, size), folder, format="c", **more)


def _compiled(size: int, folder: Path, quantise: str | None) -> Block:
    exported(size, folder, quantise)
    (folder / "loop.c").write_text(_LOOP)
    command = ["gcc", *_FLAGS, "-march=native", "-shared", "-fPIC", "-o", "m.so", "loop.c"]
    subprocess.run([*command, "model.c"], cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "m.so"))
    x, y = torch.randn(size), torch.empty(size)
    x_at, y_at = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
    # The tensors live as long as the function that has their addresses.
    return lambda: (library.run(x_at, y_at, _STEPS), x, y)


def _repeated(step: Callable[[], Any]) -> Block:
    def block() -> None:
        for _ in range(_STEPS):
            step()

    return block


def fastest(blocks: Mapping[str, Block], steps: int, rounds: int) -> dict[str, float]:
    """Microseconds a step, by contestant."""
    best = dict.fromkeys(blocks, float("inf"))
    with one_thread():
        for _ in range(rounds):
            for name, block in blocks.items():
                begun = time.perf_counter()
                block()
                best[name] = min(best[name], time.perf_counter() - begun)
    return {name: 1e6 * seconds / steps for name, seconds in best.items()}


def _steps(size: int, folder: Path, rounds: int) -> dict[str, float]:
    blocks = {
        "C": _compiled(size, folder / f"float{size}", None),
        "C int8": _compiled(size, folder / f"int8-{size}", "int8"),
        "stream": _repeated(stream_step(size, "mgu")),
        "ONNX Runtime GRU": _repeated(onnx_step(size, "gru_reset_after", "op")),
        "torch GRUCell": _repeated(torch_cell(size)),
    }
    return fastest(blocks, _STEPS, rounds)


def _sequence(folder: Path, rounds: int) -> dict[str, float]:
    """100 steps of 64 neurons in ONNX Runtime and on the fused engine."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    layer, x = Recurrent("mgu", 64, 64).eval(), torch.randn(_SEQUENCE, 1, 64)
    given, blocks = {"input": x.numpy()}, dict[str, Block]()
    for form in ("op", "scan"):
        path = onegate.export(layer, folder / f"{form}.onnx", form=form)
        ran = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        blocks[form] = functools.partial(ran.run, None, given)
    blocks["fused engine"] = lambda: layer(x)
    return fastest(blocks, _SEQUENCE, 4 * rounds)


def code_bytes(folder: Path) -> int:
    """Of the functions in model.c at -O2: its section .text."""
    subprocess.run(["gcc", *_FLAGS, "-c", "model.c"], cwd=folder, check=True)
    shown = subprocess.run(
        ["size", "-A", "model.o"], cwd=folder, check=True, capture_output=True, text=True
    ).stdout
    return sum(int(line.split()[1]) for line in shown.splitlines() if line.startswith(".text"))


def deploy(rounds: int = 60) -> dict[str, Any]:
    """Exported models: C, eight bits, streams and ONNX, and whether their figures are reached."""
    if shutil.which("gcc") is None:
        raise ValueError("onegate bench deploy compiles C files: install gcc")
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        times = {size: _steps(size, folder, rounds) for size in SIZES}
        sequence = _sequence(folder, rounds)
        code = max(code_bytes(folder / f"{kind}{SIZES[0]}") for kind in ("float", "int8-"))
    judged = _verdicts(times, sequence, code)
    names = list(times[SIZES[0]])
    print("us a step | " + " | ".join(names))
    for size, found in times.items():
        print(f"{size} neurons | " + " | ".join(f"{found[name]:.2f}" for name in names))
    print(
        f"{_SEQUENCE} steps, 64 neurons: " + ", ".join(f"{k} {v:.2f}" for k, v in sequence.items())
    )
    for verdict in judged:
        print(f"{verdict.figure}: {verdict.value:.3g}, at most {verdict.limit:g}: {verdict.state}")
    return {
        "steps": {str(size): found for size, found in times.items()},
        "sequence": sequence,
        "figures": [{**asdict(verdict), "state": verdict.state} for verdict in judged],
        "onnxruntime": metadata.version("onnxruntime"),
    }


def _verdicts(
    times: Mapping[int, Mapping[str, float]], sequence: Mapping[str, float], code: int
) -> list[Verdict]:
    found = []
    for other, limits in (("ONNX Runtime GRU", OF_ONNX_RUNTIME), ("torch GRUCell", OF_TORCH_CELL)):
        for size, limit in limits.items():
            if size in times:
                ratio = times[size]["C"] / times[size][other]
                found.append(Verdict(f"{size} neurons: C / {other}", limit, False, ratio))
    small, large = times[min(times)], times[max(times)]
    rows = (
        (f"{min(times)} neurons: stream.step / ONNX Runtime GRU", STREAM_OF_ONNX_RUNTIME,
         small["stream"] / small["ONNX Runtime GRU"]),
        ("MGU as GRU operator / fused engine", OPERATOR_OF_FUSED,
         sequence["op"] / sequence["fused engine"]),
        ("MGU as Scan / fused engine", SCAN_OF_FUSED, sequence["scan"] / sequence["fused engine"]),
        (f"{max(times)} neurons: C int8 / C", INT8_OF_FLOAT, large["C int8"] / large["C"]),
        ("bytes of C code beside the weights, float or int8", CODE_BYTES, float(code)),
    )  # fmt: skip
    return found + [Verdict(figure, limit, False, value) for figure, limit, value in rows]
