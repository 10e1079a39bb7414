"""How long one step takes, one at a time: median and worst of `onegate.stream` and of others."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from torch import nn

from onegate.export.onnx import export_onnx
from onegate.export.targets import export
from onegate.extras import missing
from onegate.nn.layers import Recurrent
from onegate.streaming import stream

SIZES: Final = (64, 128, 256)
_BLOCK: Final = 200  # steps of one contestant before the next one's turn

_GRU: Final = "ONNX Runtime GRU"

Step: TypeAlias = Callable[[], Any]


def stream_step(size: int, unit: str) -> Step:
    """Of `onegate.stream`."""
    s, x = stream(Recurrent(unit, size, size)), np.ones(size, np.float32)
    return lambda: s.step(x)


def torch_cell(size: int) -> Step:
    """Of torch.nn.GRUCell."""
    cell, x = nn.GRUCell(size, size), torch.ones(1, size)
    h = torch.zeros(1, size)

    def step() -> None:
        nonlocal h
        h = cell(x, h)

    return step


def onnx_step(size: int, unit: str, form: str) -> Step:
    """A step by ONNX Runtime's `run`; the GRU operator runs a sequence of one."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        path = export_onnx(Recurrent(unit, size, size), Path(folder, "m.onnx"), form, states=True)
        ran = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    x = np.ones((1, size) if form == "step" else (1, 1, size), np.float32)
    given = {"input": x, "h_0": np.zeros((1, 1, size), np.float32)}

    def step() -> None:
        _, given["h_0"] = ran.run(None, given)

    return step


def _c_step(size: int, unit: str) -> Step:
    """The C file, called from Python, which takes some 0.2 us of it."""
    with tempfile.TemporaryDirectory() as folder:
        export(Recurrent(unit, size, size), folder, format="c")
        command = ["gcc", "-std=c99", "-O2", "-ffp-contract=off", "-march=native", "-shared"]
        subprocess.run([*command, "-fPIC", "-o", "m.so", "model.c"], cwd=folder, check=True)
        library = ctypes.CDLL(f"{folder}/m.so")
    arrays = [np.zeros(1 << 16, np.float32), np.ones(size, np.float32), np.zeros(size, np.float32)]
    state, x, y = (ctypes.c_void_p(array.ctypes.data) for array in arrays)
    library.model_reset(state)
    return lambda: (library.model_step(state, x, y), arrays)


def contestants(size: int, unit: str) -> dict[str, Step]:
    """What takes one step, by name; ONNX Runtime and a C compiler where they are installed."""
    found = {f"onegate.stream {unit}": stream_step(size, unit), "torch GRUCell": torch_cell(size)}
    if shutil.which("gcc") is not None:
        found[f"C file {unit}"] = _c_step(size, unit)
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        return found
    if not missing("onnx"):
        found[_GRU] = onnx_step(size, "gru_reset_after", "op")
        found[f"ONNX Runtime {unit} step"] = onnx_step(size, unit, "step")
    return found


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread, without gradients."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_num_threads(before)


def measure(steps: dict[str, Step], rounds: int) -> dict[str, np.ndarray]:
    """Nanoseconds of every step, contestants alternating in blocks."""
    times: dict[str, list[int]] = {name: [] for name in steps}
    with one_thread():
        for _ in range(rounds):
            for name, step in steps.items():
                step()
                for _ in range(_BLOCK):
                    begun = time.perf_counter_ns()
                    step()
                    times[name].append(time.perf_counter_ns() - begun)
    return {name: np.array(taken) for name, taken in times.items()}


def latencies(unit: str = "mgu", rounds: int = 50) -> dict[str, Any]:
    """One step at a time: latencies of onegate.stream, the C file, torch's cell, ONNX Runtime."""
    rows = []
    print("| neurons | | p50 us | p99.9 us | of ONNX Runtime's GRU |")
    print("| --- | --- | --- | --- | --- |")
    for size in SIZES:
        taken = measure(contestants(size, unit), rounds)
        base = taken.get(_GRU)
        for name, times in taken.items():
            middle, worst = np.percentile(times, [50, 99.9]) / 1e3
            ratio = None if base is None else middle * 1e3 / float(np.median(base))
            shown = "" if ratio is None else f"{ratio:.2f}"
            print(f"| {size} | {name} | {middle:.1f} | {worst:.1f} | {shown} |", flush=True)
            row = {"units": size, "name": name, "p50": middle, "p99.9": worst, "ratio": ratio}
            rows.append(row)
    return {"streaming": rows}
