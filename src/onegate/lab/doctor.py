"""Whether this installation works, how fast it can be, and what to do where it falls short."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import torch

from onegate.engines import ENGINES
from onegate.engines.cpu.native import Library, library
from onegate.extras import EXTRAS
from onegate.lab.data.source_files import complete, data_folders
from onegate.lab.data.sources import SOURCES
from onegate.lab.train import machine
from onegate.lowering.spec import FORMAT
from onegate.nn.layers import Recurrent

State = Literal["ok", "hint", "problem"]

# Of the processor's features, those that arithmetic on vectors uses.
_FEATURES: Final = (
    "sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512dq", "avx512vl", "avx512_bf16",
    "avx_vnni", "amx_bf16", "asimd", "sve",
)  # fmt: skip
_TOLERANCE: Final = 1e-4


@dataclass(frozen=True)
class Finding:
    """One fact. A hint costs speed or comfort; a problem keeps the package from being used."""

    topic: str
    name: str
    value: str
    state: State = "ok"
    advice: str = ""


def examine() -> list[Finding]:
    """All findings, in the order in which they are shown."""
    parts: tuple[Callable[[], Iterator[Finding]], ...] = (
        _versions, _processor, _engines, _data, _extras,
    )  # fmt: skip
    return [finding for part in parts for finding in part()]


def usable(findings: list[Finding]) -> bool:
    """Whether nothing keeps the package from being used."""
    return all(finding.state != "problem" for finding in findings)


def _versions() -> Iterator[Finding]:
    described = machine.describe("")
    for name in ("onegate", "python", "torch", "numpy", "system"):
        yield Finding("versions", name, str(described[name]))


def _processor() -> Iterator[Finding]:
    yield Finding("processor", "model", machine.processor())
    yield Finding("processor", "features", " ".join(cpu_features()) or "unknown")
    cores, threads = _cores(), torch.get_num_threads()
    yield Finding("processor", "cores", str(cores))
    if threads > cores:
        yield Finding(
            "processor", "threads", str(threads), "hint",
            f"more threads than cores wait for each other: set OMP_NUM_THREADS={cores}, or call "
            f"torch.set_num_threads({cores})",
        )  # fmt: skip
    else:
        yield Finding("processor", "threads", str(threads))
    runtimes = openmp_runtimes()
    if len(runtimes) > 1:
        yield Finding(
            "processor", "OpenMP", ", ".join(runtimes), "hint",
            "several thread pools in one process fight for the cores; torch and the native engine "
            "share the first, another package has brought the second",
        )  # fmt: skip


def cpu_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> list[str]:
    """Vector features of the processor; elsewhere than on Linux what torch makes of it."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return [torch.backends.cpu.get_cpu_capability()]
    flags = {
        flag
        for line in lines
        if line.lower().startswith(("flags", "features"))
        for flag in line.partition(":")[2].split()
    }
    return [feature for feature in _FEATURES if feature in flags]


def openmp_runtimes(maps: Path = Path("/proc/self/maps")) -> list[str]:
    """The OpenMP libraries loaded into this process; none where that cannot be seen."""
    try:
        lines = maps.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    paths = {line.split(maxsplit=5)[-1] for line in lines if "/" in line}
    names = ("libgomp", "libiomp5", "libomp")
    return sorted(path for path in paths if Path(path).name.startswith(names))


def _cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _engines() -> Iterator[Finding]:
    native = library()
    if native.problem is None:
        yield Finding("engines", "native library", str(native.path))
        yield Finding("engines", "instruction set", native.instruction_set)
        yield Finding("engines", "program format", str(FORMAT))
    else:
        advice = f"{_remedy(native)}; until then the reference engine runs, more slowly"
        yield Finding("engines", "native library", native.problem, "hint", advice)
    yield from _trial()


def _remedy(native: Library) -> str:
    """What to do about a native library that is missing or does not fit."""
    asked = os.environ.get("ONEGATE_NATIVE")
    if asked:
        return f"ONEGATE_NATIVE is {asked}: unset it, or name a library that fits"
    again = "install onegate again (in a source tree: pip install -e .)"
    if native.path is not None:
        return again
    compiler = compiler_found()
    if compiler is None:
        return f"no C++ compiler was found: install g++ or clang++, then {again}"
    return f"the compiler {compiler} is there: {again} and see what it says"


def compiler_found() -> str | None:
    """The C++ compiler that an installation would use."""
    names = [os.environ.get("CXX", ""), "c++", "g++", "clang++"]
    return next((found for name in names if name and (found := shutil.which(name))), None)


def _trial() -> Iterator[Finding]:
    """Runs a small layer forward and backward on each engine."""
    *others, reference = ENGINES
    expected = _small_run(reference.name)
    title = f"{reference.name} engine"
    if all(bool(value.isfinite().all()) for value in expected):
        yield Finding("engines", title, "works")
    else:
        yield Finding(
            "engines", title, "computes no finite numbers", "problem",
            "this installation of torch is broken: install it again",
        )  # fmt: skip
    for engine in others:
        if engine.missing() is not None:
            continue
        pairs = zip(_small_run(engine.name), expected, strict=True)
        # torch's maximum, unlike Python's, is not a number where one of them is not.
        error = float(torch.stack([(ours - theirs).abs().max() for ours, theirs in pairs]).max())
        title, same = f"{engine.name} engine", f"the {reference.name} engine"
        if error < _TOLERANCE:
            yield Finding("engines", title, f"works, and equals {same}")
        else:
            yield Finding(
                "engines", title, f"differs from {same} by {error:.3g}", "problem",
                f'use engine="{reference.name}", and report it with the output of this command',
            )  # fmt: skip


def _small_run(engine: str) -> list[torch.Tensor]:
    """Outputs and gradients of a layer with the same weights and input for every engine."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = Recurrent("mgu", 5, 17, engine=engine)
        x = torch.randn(7, 3, 5)
    out, _ = layer(x)
    out.sum().backward()
    return [out.detach(), *(p.grad for p in layer.parameters() if p.grad is not None)]


def _data() -> Iterator[Finding]:
    yield Finding("data", "looked for in", ", then ".join(map(str, data_folders())))
    for name, source in SOURCES.items():
        if complete(source):
            yield Finding("data", name, "here")
        else:
            advice = f"run: onegate data fetch {name}"
            yield Finding("data", name, "missing", "hint", advice)


def _extras() -> Iterator[Finding]:
    bringing = {package: extra for extra, packages in EXTRAS.items() for package in packages}
    for package, extra in bringing.items():
        if importlib.util.find_spec(package) is not None:
            yield Finding("extras", package, _version(package))
        else:
            advice = f"if wanted: pip install 'onegate[{extra}]'"
            yield Finding("extras", package, "not installed", "hint", advice)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"
