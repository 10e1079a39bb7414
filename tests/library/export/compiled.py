"""Exported C files, compiled and called from Python."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

STRICT = [
    "-std=c99",
    "-O2",
    "-ffp-contract=off",
    "-pedantic",
    "-Wall",
    "-Wextra",
    "-Wconversion",
    "-Werror",
]
needs_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


def gcc(folder: Path, *arguments: str, compiler: str = "gcc") -> str:
    done = subprocess.run(
        [compiler, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class Compiled:
    """`model.c` of a folder: `run` takes (T, inputs) numbers, or (T,) words."""

    def __init__(self, folder: Path, *flags: str, stem: str = "model") -> None:
        gcc(folder, *STRICT, *flags, "-shared", "-fPIC", "-o", "model.so", f"{stem}.c")
        self.library = ctypes.CDLL(str(folder / "model.so"))
        self.stem = stem
        header = (folder / f"{stem}.h").read_text()
        self.outputs = int(header.split("_OUTPUTS ")[1].split()[0])
        self.room = ctypes.create_string_buffer(1 << 20)  # more than any state here

    def run(self, x: Tensor) -> Tensor:
        y = np.empty((len(x), self.outputs), np.float32)
        getattr(self.library, f"{self.stem}_reset")(self.room)
        for t in range(len(x)):
            assert self.step(x[t], y[t]) == 0
        return torch.from_numpy(y)

    def step(self, x: Tensor, y: np.ndarray) -> int:
        call = getattr(self.library, f"{self.stem}_step")
        where = y.ctypes.data_as(ctypes.c_void_p)
        if x.dim() == 0:
            return int(call(self.room, ctypes.c_int32(int(x)), where))
        given = x.float().contiguous().numpy()
        return int(call(self.room, given.ctypes.data_as(ctypes.c_void_p), where))


def check_strictly(folder: Path) -> None:
    """No warning from another compiler, no symbol but two, nothing that the sanitizers see."""
    compilers = [name for name in ("gcc", "clang") if shutil.which(name) is not None]
    for compiler in compilers:
        gcc(folder, *STRICT, "-c", "model.c", compiler=compiler)
        assert undefined(folder) <= {"memcpy", "memset"}
    for compiler in ("g++", "clang++"):
        if shutil.which(compiler) is not None:
            strict = ["-Wall", "-Wextra", "-Werror", "-O1"]
            gcc(folder, *strict, "-x", "c++", "-c", "model.c", "-o", "cpp.o", compiler=compiler)
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1"]
    gcc(
        folder, *STRICT, *checks, "-o", "checked", "model.c", "model_test.c", compiler=compilers[-1]
    )
    assert gcc(folder, compiler="./checked").startswith("ok ")


def undefined(folder: Path, name: str = "model.o") -> set[str]:
    """The symbols that an object file asks for."""
    shown = subprocess.run(
        ["nm", "-u", name], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.split()
    return {*shown} - {"U", "_GLOBAL_OFFSET_TABLE_"}


def check_has_no_float(folder: Path) -> None:
    """No soft float, no 64-bit products, no division: nothing but two functions is called."""
    if shutil.which("arm-none-eabi-gcc") is not None:
        arm = ["-mthumb", "-mcpu=cortex-m0plus", "-c", "model.c", "-o", "arm.o"]
        gcc(folder, *STRICT, *arm, compiler="arm-none-eabi-gcc")
        assert undefined(folder, "arm.o") <= {"memcpy", "memset"}
