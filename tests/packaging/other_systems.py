"""The native engine built for other systems, warnings as errors, and run here.

    python -m tests.packaging.other_systems      all, or those that are named

Windows by Clang, under Wine: clang, lld, g++-mingw-w64-x86-64-posix and wine64. What MinGW cannot
show is the C++ library of Visual Studio, which clang-cl takes in the wheels. Linux on aarch64 by
GCC, under QEMU: g++-aarch64-linux-gnu and qemu-user.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.library.native.programs import write
from tests.library.native.sanitize import HERE, INSTRUCTION_SETS, ROOT, call, compiled

_MINGW: Final = "x86_64-w64-mingw32"
# GCC's libraries for Windows, of which those with POSIX's threads.
_LIBRARIES: Final = next(Path("/usr/lib/gcc", _MINGW).glob("*-posix"), Path("nowhere"))
_WINE: Final = "/usr/lib/wine/wine64"  # where Debian has it, beside the PATH
FOLDER: Final = ROOT / "build" / "other-systems"
ARGUMENTS: Final = ("--runs", "4", "--mutations", "50")


@dataclass(frozen=True)
class System:
    """needs: programs and folders. compiler: and its options. emulator: runs what it makes.

    sets: names of instruction sets. ending: of programs.
    """

    needs: tuple[str, ...]
    compiler: tuple[str, ...]
    emulator: str
    sets: tuple[str, ...]
    ending: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    def missing(self) -> list[str]:
        """What is not installed."""
        return [name for name in self.needs if not (shutil.which(name) or Path(name).is_dir())]


SYSTEMS: Final = {
    "windows": System(
        needs=("clang++", "ld.lld", str(_LIBRARIES), shutil.which("wine64") or _WINE),
        compiler=(
            *("clang++", f"--target={_MINGW}", "-Wno-unused-command-line-argument"),
            *("-fuse-ld=lld", "-static", "-pthread", f"-L{_LIBRARIES}"),
            *("-isystem", f"{_LIBRARIES}/include/c++"),
            *("-isystem", f"{_LIBRARIES}/include/c++/{_MINGW}"),
            *("-isystem", f"/usr/{_MINGW}/include"),
        ),
        emulator=shutil.which("wine64") or _WINE,
        sets=("baseline", "avx2", "avx512"),
        ending=".exe",
        environment={"WINEPREFIX": str(FOLDER / "wine"), "WINEDEBUG": "-all"},
    ),
    "aarch64": System(
        needs=("aarch64-linux-gnu-g++", "qemu-aarch64"),
        compiler=("aarch64-linux-gnu-g++", "-static", "-pthread"),
        emulator="qemu-aarch64",
        sets=("baseline",),
    ),
}


def run(name: str, programs: Path) -> list[str]:
    """Runs every program on one thread and on several; what the driver says of each set."""
    system = SYSTEMS[name]
    start = [*system.compiler, "-std=gnu++17", "-O2", "-Wall", "-Wextra", "-Werror"]
    cpu = ["", *Path("/proc/cpuinfo").read_text().split()]
    sets = [one for one in INSTRUCTION_SETS if one.name in system.sets and one.needs in cpu]
    driver = compiled(HERE / "driver.cpp", start, FOLDER / name, sets)
    command = [system.emulator, f"{driver}{system.ending}", str(programs), *ARGUMENTS]
    said = []
    for one in sets:
        chosen = {**system.environment, "ONEGATE_ISA": one.name}
        said.append(call(command, chosen).splitlines()[-1])
    return said


def main(names: list[str]) -> int:
    """Prints what each run says; 1 if one of them finds something or cannot be made."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    programs = FOLDER / "programs.txt"
    write(programs)
    failed = False
    for name in names or SYSTEMS:
        if lacking := SYSTEMS[name].missing():
            print(f"{name}: needs {', '.join(lacking)}", file=sys.stderr)
            failed = True
            continue
        try:
            print(*(f"{name}: {line}" for line in run(name, programs)), sep="\n")
        except subprocess.CalledProcessError as error:
            print(error.output, error, sep="\n", file=sys.stderr)
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
