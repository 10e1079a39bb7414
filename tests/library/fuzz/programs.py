"""libFuzzer with Address- and UndefinedBehaviorSanitizer on programs; see programs.cpp.

It begins with the programs of all units and with tests/fuzz/corpus/programs; what it learns stays
in build/fuzz/corpus. Builds are kept in build/fuzz until a source changes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from onegate.lowering.program import program
from onegate.lowering.spec import FORMAT, upgraded
from onegate.tracing import trace
from onegate.units import UNITS, get
from tests.library.native import sanitize

HERE: Final = Path(__file__).parent
CORPUS: Final = HERE / "corpus" / "programs"
BUILD: Final = sanitize.ROOT / "build" / "fuzz"
FLAGS: Final = (
    *sanitize.FLAGS,
    "-O1",
    "-fsanitize=fuzzer,address,undefined",
    "-fno-sanitize-recover=all",
    "-DOG_PLAIN_THREADS",  # clang's OpenMP is a package of its own
    "-pthread",
)
SIZES: Final = ((1, 1), (3, 5), (9, 17))


def missing() -> str | None:
    """Why nothing can be built here, or None."""
    install = "(on Debian: apt install clang libclang-rt-14-dev)"
    compiler = shutil.which("clang++")
    if compiler is None:
        return f"the programs' fuzzer needs clang++ {install}"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "empty.cpp"
        source.write_text(
            'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }\n'
        )
        try:
            sanitize.call([compiler, *FLAGS, str(source), "-o", str(source.with_suffix(""))])
        except subprocess.CalledProcessError as error:
            said = error.output.strip().splitlines()
            return f"the programs' fuzzer needs clang's libFuzzer {install}: {said[-1]}"
    return None


def build() -> Path:
    """The fuzzer."""
    return sanitize.compiled(HERE / "programs.cpp", ["clang++", *FLAGS], BUILD)


def text_of(code: Sequence[int], constants: Sequence[float], seed: int) -> str:
    """A program as an input of the fuzzer; `seed` draws how it is called."""
    return f"{' '.join(map(str, code))}\n{' '.join(map(repr, constants))}\n{seed}\n"


def read(path: Path) -> tuple[list[int], list[float], int]:
    """Integers, constants and seed of an input of the fuzzer, in today's format.

    A program of another format would be refused for that alone.
    """
    code, constants, seed, *_ = [*path.read_text().split("\n"), "", ""]
    integers = [int(word) for word in code.split()]
    if integers and "format" not in path.name:
        integers = upgraded([2, *integers[1:]]) if integers[0] != FORMAT else integers
    return integers, [float(word) for word in constants.split()], int(seed or 0)


def write_seeds(folder: Path) -> None:
    """The programs of all units at a few sizes, and the corpus."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in UNITS:
        unit = get(name, **({"context_size": 4} if name == "scrn" else {}))
        for d, n in SIZES:
            made = program(trace(unit, d, n))
            (folder / f"{name}-{d}-{n}").write_text(text_of(made.encode(), made.constants, d))
    for path in CORPUS.iterdir():
        (folder / path.name).write_text(text_of(*read(path)))


def run(seconds: float, seed: int, files: Sequence[str] = ()) -> int:
    """Half of the time with the widest instruction set, half with the plainest; 1 at a finding."""
    if reason := missing():
        print(reason, file=sys.stderr)
        return 2
    fuzzer = build()
    learned, findings = BUILD / "corpus", BUILD / "findings"
    for folder in (learned, findings):
        folder.mkdir(exist_ok=True)
    write_seeds(BUILD / "seeds")
    what = [str(learned), str(BUILD / "seeds"), f"-max_total_time={seconds / 2:.0f}"]
    for instruction_set in ("", "baseline"):
        command = [
            str(fuzzer), *(files or what), f"-seed={seed % (1 << 31)}", "-max_len=16384",
            "-timeout=60", "-print_final_stats=1", "-verbosity=1", f"-artifact_prefix={findings}/",
        ]  # fmt: skip
        environment = os.environ | sanitize.OPTIONS | {"ONEGATE_ISA": instruction_set}
        if not instruction_set:
            del environment["ONEGATE_ISA"]
        log = BUILD / f"log-{instruction_set or 'widest'}.txt"
        with log.open("w") as to:
            code = subprocess.run(command, env=environment, stderr=to, check=False).returncode
        said = log.read_text().splitlines()
        if code:
            print("\n".join(said[-60:]), _how_to_see_it_again(said), sep="\n")
            return 1
        print(_summary(said))
    return 0


def _how_to_see_it_again(said: list[str]) -> str:
    file = next((line.split()[-1] for line in said if "Test unit written to" in line), "FILE")
    return (
        f"programs: a finding, see above and build/fuzz/log-*.txt\n"
        f"see it again:  python -m tests.library.fuzz programs {file}\n"
        f"make it smaller:  build/fuzz/programs -minimize_crash=1 -max_total_time=60 {file}\n"
        f"mended, it becomes a file of {CORPUS.relative_to(sanitize.ROOT)}"
    )


def _summary(said: list[str]) -> str:
    done = next((line.split("\t")[-1] for line in said if "DONE" in line), "")
    taken = next((line for line in said if "of them taken" in line), "")
    return f"programs: {taken}; {' '.join(done.split())}"
