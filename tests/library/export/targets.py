"""One hash of an exported model's outputs on every machine that can be had here.

    python -m tests.library.export.targets [UNIT ...]

Compiles the self-test for x86-64 with its vector sets, aarch64, riscv64, Cortex-M0+, M3, M4 and M7
(under QEMU), and wasm32 (in Node). For Cortex-M it counts the instructions of a step, and measures
the state and the stack that it takes. Then each registered unit, or those that are named, goes
through most of the targets, the compilers' warnings and the sanitizers. What is not installed is
left out, and said.
"""

from __future__ import annotations

import concurrent.futures
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

import onegate
from onegate.export.deployable import deployable
from onegate.export.quantise import MODES
from tests.library.export.compiled import check_has_no_float, check_strictly

HERE = Path(__file__).parent
_NO_LIBRARY = f"-I{HERE / 'bare/none'}"
FLAGS = ["-std=c99", "-O2", "-ffp-contract=off"]
_BARE = [
    "-nostdlib",
    "-ffreestanding",
    "-Dmain=test_main",
    "-T",
    str(HERE / "bare/cortex.ld"),
    _NO_LIBRARY,
]
# Clang's wasm32 has no C library: the self-test is called by the host.
_WASM = ["--target=wasm32", "-nostdlib", "-Wl,--no-entry", "-Wl,--export=run", "-mbulk-memory"]


@dataclass(frozen=True)
class Target:
    """A compiler with its flags, and what runs its program; ticks: instructions a SysTick."""

    compiler: str
    flags: tuple[str, ...] = ()
    runner: tuple[str, ...] = ()
    ticks: float = 0.0

    def missing(self) -> str | None:
        tools = [self.compiler, *self.runner[:1]]
        return next((tool for tool in tools if shutil.which(tool) is None), None)


def _cortex(core: str, machine: str, ticks: float, *more: str) -> Target:
    runner = ("qemu-system-arm", "-M", machine, "-nographic", "-monitor", "none", "-icount",
              "shift=0", "-semihosting-config", "enable=on,target=native", "-kernel")  # fmt: skip
    return Target("arm-none-eabi-gcc", ("-mthumb", f"-mcpu={core}", *more), runner, ticks)


_FPU = ("-mfloat-abi=hard",)
TARGETS = {
    "x86-64 SSE2": Target("gcc"),
    "x86-64 plain C": Target("gcc", ("-DONEGATE_NO_VECTORS",)),
    "x86-64 AVX2": Target("gcc", ("-mavx2", "-mfma")),
    "x86-64 AVX2 clang": Target("clang", ("-mavx2",)),
    "x86-64 native": Target("gcc", ("-march=native",)),
    "x86-64 clang": Target("clang", ("-march=native",)),
    "aarch64": Target("aarch64-linux-gnu-gcc", ("-static",), ("qemu-aarch64",)),
    "riscv64": Target("riscv64-linux-gnu-gcc", ("-static",), ("qemu-riscv64",)),
    "Cortex-M0+": _cortex("cortex-m0plus", "microbit", 62.5),
    "Cortex-M3": _cortex("cortex-m3", "mps2-an385", 40),
    "Cortex-M4": _cortex("cortex-m4", "mps2-an386", 40, *_FPU, "-mfpu=fpv4-sp-d16"),
    "Cortex-M7": _cortex("cortex-m7", "mps2-an500", 40, *_FPU, "-mfpu=fpv5-sp-d16"),
    "wasm32": Target("clang", tuple(_WASM), ("node",)),
    "wasm32 SIMD": Target("clang", (*_WASM, "-msimd128"), ("node",)),
}


def model() -> nn.Module:
    """MGU 28 -> 64 with a head of 10."""
    torch.manual_seed(0)
    found = nn.Module()
    found.recurrent, found.head = onegate.MGU(28, 64), nn.Linear(64, 10)
    return found


def exported(mode: str | None, folder: Path) -> Path:
    """`model` in C, in float or quantised."""
    options = {} if mode is None else {"quantise": mode, "calibration": torch.randn(20, 50, 28)}
    return onegate.export(model(), folder, format="c", **options)


# What every unit goes through; the others are variants of these.
OF_UNITS = [name for name in TARGETS if not name.endswith(("clang", "SIMD", "M3"))]


@dataclass(frozen=True)
class Ran:
    """The hash that a self-test prints; where they are measured, instructions of a step, and the
    bytes of its state and stack."""

    hash: str
    instructions: float = 0.0
    room: int = 0


def run(target: Target, folder: Path, mode: str | None = None) -> Ran:
    """Compiles the self-test of a folder for a target and runs it there."""
    sources = ["model.c", "model_test.c"]
    program, extra = "program", list(target.flags)
    if target.ticks:
        types = ("int16_t", "int32_t") if mode == "integer" else ("float", "float")
        extra += [f"-DINPUT={types[0]}", f"-DOUTPUT={types[1]}"]
        extra += [*_BARE, str(HERE / "bare/start.c"), "-I.", "-lgcc"]
    if "node" in target.runner:
        sources, program = (
            [str(HERE / "bare/wasm.c"), "-I.", _NO_LIBRARY],
            "program.wasm",
        )
    link = [flag for flag in extra if flag == "-lgcc"]
    flags = [flag for flag in extra if flag != "-lgcc"]
    command = [target.compiler, *FLAGS, *flags, "-o", program, *sources, *link]
    subprocess.run(command, cwd=folder, check=True)
    if "node" in target.runner:
        (folder / "run.mjs").write_text(_HOST)
        program = "run.mjs"
    runner = [*target.runner, f"./{program}"]
    done = subprocess.run(
        runner, cwd=folder, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,  # semihosting prints there
    )  # fmt: skip
    lines = re.findall(r"ok ([0-9a-f]{8})|^([0-9a-f]{8})$", done.stdout, re.MULTILINE)
    if not lines or not lines[0][0]:
        raise RuntimeError(f"{target.compiler}: {done.stdout}")
    if not target.ticks:
        return Ran(lines[0][0])
    (_, ticks), (_, room) = lines[1:]
    return Ran(lines[0][0], int(ticks, 16) * target.ticks / 10, int(room, 16))


_HOST = """
import { readFileSync } from 'node:fs';
const wasm = await WebAssembly.instantiate(readFileSync('program.wasm'), {});
const { run } = wasm.instance.exports;
const hash = run() >>> 0;
console.log((hash ? 'ok ' : 'FAILED ') + hash.toString(16).padStart(8, '0'));
"""


# At most: of `model` on a target in some arithmetic, what `Ran` and `sizes` say.
LIMITS = {
    ("integer", "Cortex-M4"): {"instructions": 35_000, "flash": 18_000, "room": 2_000},
    ("integer", "Cortex-M0+"): {"instructions": 100_000},
    **{(mode, "x86-64 SSE2"): {"code": 2_048} for mode in ("float", *MODES)},
}


def exceeded(name: str, mode: str | None, ran: Ran, folder: Path) -> list[str]:
    """The figures of a target that a folder's code does not keep to."""
    key = mode or "float", name
    if key not in LIMITS:
        return []
    code, constants = sizes(TARGETS[name], folder)
    found = {
        "instructions": ran.instructions, "room": ran.room, "code": code,
        "flash": code + constants,
    }  # fmt: skip
    return [
        f"{' '.join(key)}: {found[what]:,.0f} {what}, at most {limit:,}"
        for what, limit in LIMITS[key].items()
        if found[what] > limit
    ]


def hashes(mode: str | None, folder: Path) -> tuple[set[str], list[str]]:
    """Those of all targets, printed with the counts; and the limits that are not kept."""
    exported(mode, folder)
    found, beyond = set[str](), list[str]()
    for name, target in TARGETS.items():
        if (tool := target.missing()) is not None:
            print(f"{name:16} left out: {tool} is not installed")
            continue
        ran = run(target, folder, mode)
        told = f"{ran.instructions:12,.0f} instructions a step, " if ran.room else "  "
        if ran.room or name == "x86-64 SSE2":
            code, constants = sizes(target, folder)
            told += f"{code:,} B of code, {constants:,} B of constants"
        told += f", {ran.room:,} B of state and stack" if ran.room else ""
        print(f"{mode or 'float':8} {name:16} {ran.hash}{told}".rstrip(), flush=True)
        found.add(ran.hash)
        beyond += exceeded(name, mode, ran, folder)
    return found, beyond


def unit_hashes(unit: str, mode: str | None) -> set[str]:
    """Those of a unit of 5 inputs and 17 neurons on all targets, after the compilers' checks."""
    torch.manual_seed(1)
    layer = onegate.Recurrent(unit, 5, 17, learn_initial_state=True)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=0.5 / max(1, parameter.shape[-1]) ** 0.5)
    options = {}
    if mode is not None:
        calibration = torch.randn(20, 32, deployable(layer).inputs)
        options = {"quantise": mode, "calibration": calibration}
    with tempfile.TemporaryDirectory() as path:
        folder = onegate.export(layer, Path(path), format="c", **options)
        check_strictly(folder)
        if mode == "integer":
            check_has_no_float(folder)
        targets = [TARGETS[name] for name in OF_UNITS]
        return {run(t, folder, mode).hash for t in targets if t.missing() is None}


def units(names: list[str]) -> list[str]:
    """Units that differ between targets; each is printed with its hashes."""
    differ, modes = [], (None, *MODES)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for name in names:
            found = list(pool.map(lambda mode, name=name: unit_hashes(name, mode), modes))
            print(f"{name:18} {' '.join('/'.join(sorted(each)) for each in found)}", flush=True)
            differ += [name] if any(len(each) > 1 for each in found) else []
    return differ


def sizes(target: Target, folder: Path) -> tuple[int, int]:
    """Code, and constants and data, of model.c in bytes."""
    command = [target.compiler, *FLAGS, *target.flags, "-c", "model.c", "-o", "model.o"]
    subprocess.run(command, cwd=folder, check=True)
    size = shutil.which("arm-none-eabi-size") if target.ticks else None
    shown = subprocess.run(
        [size or "size", "-A", "model.o"], cwd=folder, capture_output=True, text=True,
        check=True,
    ).stdout  # fmt: skip
    rows = re.findall(r"^\.(\w+)\S*\s+(\d+)", shown, re.MULTILINE)
    code, constants = (
        sum(int(n) for name, n in rows if name == part) for part in ("text", "rodata")
    )
    return code, constants


def main() -> int:
    """All arithmetics on all targets; 1 if two targets differ, or a limit is not kept."""
    differ, beyond = list[str](), list[str]()
    with tempfile.TemporaryDirectory() as path:
        for mode in () if sys.argv[1:] else (None, *MODES):
            found, more = hashes(mode, Path(path))
            differ += [mode or "float"] if len(found) > 1 else []
            beyond += more
    for line in beyond or ["every limit that could be measured is kept"]:
        print(line)
    print(f"float, int8 and integer on {', '.join(OF_UNITS)}:")
    differ += units(sys.argv[1:] or sorted(onegate.UNITS))
    if differ:
        print(f"the hashes differ: {differ}")
    return bool(differ or beyond)


if __name__ == "__main__":
    sys.exit(main())
