"""The native engine under sanitizers: builds the driver and runs all programs through it.

    python -m tests.library.native.sanitize          address, undefined behaviour and threads
    python -m tests.library.native.sanitize address    one of them

Builds are kept in build/sanitize-* until a source changes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.library.native.programs import write

ROOT: Final = Path(__file__).resolve().parents[3]
HERE, CSRC = ROOT / "tests" / "library" / "native", ROOT / "csrc"
# Optimised, all this would take longer to build than it saves while it runs.
FLAGS: Final = ("-std=gnu++17", "-O0", "-g", "-fno-omit-frame-pointer", "-Wall", "-Wextra")
# What is found ends the run at once, with where it was.
OPTIONS: Final = {
    "ASAN_OPTIONS": "detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1",
}


@dataclass(frozen=True)
class Kind:
    """flags: of the compiler. arguments: of a long run of the driver."""

    flags: tuple[str, ...]
    arguments: tuple[str, ...]


KINDS: Final = {
    "address": Kind(
        ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fopenmp"),
        ("--runs", "12", "--mutations", "400"),
    ),
    # ThreadSanitizer does not know OpenMP's barriers.
    "thread": Kind(
        ("-fsanitize=thread", "-DOG_PLAIN_THREADS", "-pthread"),
        ("--runs", "6", "--mutations", "5"),
    ),
}


@dataclass(frozen=True)
class InstructionSet:
    """A set as CMakeLists.txt builds it; needs: what /proc/cpuinfo must list to run it."""

    name: str
    vector_bytes: int
    needs: str = ""
    flags: tuple[str, ...] = ()

    @property
    def definitions(self) -> tuple[str, ...]:
        quoted = f'"{self.name}"'
        return (
            f"-DOG_ISA={self.name}",
            f"-DOG_ISA_NAME={quoted}",
            f"-DOG_VECTOR_BYTES={self.vector_bytes}",
        )


INSTRUCTION_SETS: Final = (
    InstructionSet("baseline", 16),
    InstructionSet("avx2", 32, "avx2", ("-mavx2", "-mfma", "-mf16c")),
    InstructionSet(
        "avx512", 64, "avx512vl", ("-mavx512f", "-mavx512dq", "-mavx512vl", "-mfma", "-mf16c")
    ),
)


def missing() -> str | None:
    """Why nothing can be built here, or None."""
    compiler = _compiler()
    if compiler is None:
        return "there is no C++ compiler"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "empty.cpp"
        source.write_text("int main() {}\n")
        for kind in KINDS.values():
            try:
                call([compiler, *kind.flags, str(source), "-o", str(source.with_suffix(""))])
            except subprocess.CalledProcessError as error:
                return f"{compiler} has no {kind.flags[0]}: {error.output.strip()}"
    return None


def build(name: str) -> Path:
    """The driver for one of `KINDS`, for the instruction sets that this machine can run."""
    start = [str(_compiler()), *FLAGS, *KINDS[name].flags]
    return compiled(HERE / "driver.cpp", start, ROOT / "build" / f"sanitize-{name}")


def compiled(
    main: Path, start: list[str], folder: Path, sets: Sequence[InstructionSet] | None = None
) -> Path:
    """`main` with the native engine, by commands that begin with `start`; kept in `folder`.

    sets: by default those that this machine can run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    program, log = folder / main.stem, folder / "commands.txt"
    compile_only, link = _commands(main, start, folder, _runnable() if sets is None else sets)
    commands = "\n".join(" ".join(command) for command in (*compile_only, link))
    sources = [main, *CSRC.iterdir(), *HERE.glob("*.cpp"), *HERE.glob("*.h")]
    newest = max(source.stat().st_mtime for source in sources)
    if log.is_file() and log.read_text() == commands and log.stat().st_mtime > newest:
        return program
    log.unlink(missing_ok=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(call, compile_only))
    call(link)
    log.write_text(commands)
    return program


def _runnable() -> list[InstructionSet]:
    cpu = Path("/proc/cpuinfo")
    features = ["", *(cpu.read_text().split() if cpu.is_file() else [])]
    return [each for each in INSTRUCTION_SETS if each.needs in features]


def _commands(
    main: Path, start: list[str], folder: Path, sets: Sequence[InstructionSet]
) -> tuple[list[list[str]], list[str]]:
    """What compiles the sources, the slowest first, and what links them."""
    start = [*start, f"-I{CSRC}", f"-I{HERE}"]
    have = [f"-DOG_HAVE_{each.name.upper()}" for each in sets]
    compile_only, objects = [], []
    for source, each in [
        *((CSRC / "isa.cpp", each) for each in sets),
        *((HERE / "scratch.cpp", each) for each in sets),
        *((path, None) for path in (main, CSRC / "api.cpp", CSRC / "program.cpp")),
    ]:
        suffix = f"-{each.name}.o" if each else ".o"
        own = [*each.definitions, *each.flags] if each else have
        objects.append(str(folder / (source.stem + suffix)))
        compile_only.append([*start, *own, "-c", str(source), "-o", objects[-1]])
    return compile_only, [*start, *objects, "-o", str(folder / main.stem)]


def run(driver: Path, programs: Path, *arguments: str, instruction_set: str = "") -> str:
    """What the driver says; a CalledProcessError has what the sanitizers say."""
    chosen = {"ONEGATE_ISA": instruction_set} if instruction_set else {}
    return call([str(driver), str(programs), *arguments], OPTIONS | chosen)


def call(command: list[str], environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        env=os.environ | (environment or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout)
    return done.stdout


def _compiler() -> str | None:
    names = (os.environ.get("CXX", ""), "c++", "g++", "clang++")
    return next((found for name in names if name and (found := shutil.which(name))), None)


def main(names: list[str]) -> int:
    """Prints what each run says; 1 if one of them finds something."""
    if reason := missing():
        print(reason, file=sys.stderr)
        return 1
    programs = ROOT / "build" / "sanitize-programs.txt"
    programs.parent.mkdir(exist_ok=True)
    write(programs)
    try:
        for name in names or KINDS:
            driver = build(name)
            for instruction_set in ("", "baseline"):
                start = time.monotonic()
                arguments = KINDS[name].arguments
                said = run(driver, programs, *arguments, instruction_set=instruction_set)
                print(f"{name}: {said.strip()} ({time.monotonic() - start:.0f} s)")
    except subprocess.CalledProcessError as error:
        print(error.output, error, sep="\n", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
