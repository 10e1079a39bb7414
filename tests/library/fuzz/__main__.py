"""The fuzzers: random units against the reference, and programs that nobody wrote.

    python -m tests.library.fuzz                                both, ten minutes each
    python -m tests.library.fuzz --seconds 60                   both, a minute each
    python -m tests.library.fuzz units --seed 7 --seconds 0     the one case of a seed
    python -m tests.library.fuzz units --case '3 1 4'           a case by its choices
    python -m tests.library.fuzz programs FILE                  one program

Ends with 1 at a finding, and with 2 if none was found but one of them could not run.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.library.fuzz import programs, units


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.library.fuzz")
    parser.add_argument("which", nargs="?", choices=("both", "units", "programs"), default="both")
    parser.add_argument("files", nargs="*", help="programs to run instead of making new ones")
    parser.add_argument("--seconds", type=float, default=600.0, help="of each (default: 600)")
    parser.add_argument("--seed", type=int, help="of the first case (default: by the clock)")
    parser.add_argument("--case", help="choices of one random unit")
    parser.add_argument("--strict", action="store_true", help="infinities and NaN must agree too")
    asked = parser.parse_args(arguments)
    seed = int(time.time()) if asked.seed is None else asked.seed
    if asked.case is not None:
        return units.run_one([int(word) for word in asked.case.split()], asked.strict)
    codes = [0]
    if asked.which != "programs":
        codes.append(units.run(asked.seconds, seed, asked.strict))
    if asked.which != "units":
        codes.append(programs.run(asked.seconds, seed, asked.files))
    return 1 if 1 in codes else max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
