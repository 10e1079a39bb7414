"""Runs them over a source tree of torch, and prints a table of what passes.

    make test-torch TORCH_SOURCE=pytorch-2.6.0

Nothing of torch's is kept here. What torch itself does not pass with the installed version (its
tests are of another) is not counted.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_ANY: Final = "rnn or RNN or lstm or LSTM or gru or GRU"
# Files of their tests, and which tests of each. test_jit and its like are about TorchScript.
FILES: Final = {
    "test_nn.py": f"({_ANY}) and not cuda",
    "test_modules.py": f"({_ANY}) and not cuda",
    "nn/test_packed_sequence.py": "",
    "nn/test_pruning.py": _ANY,
    "nn/test_load_state_dict.py": "ref_cycle",
    "test_overrides.py": _ANY,
    "test_serialization.py": "byteorder_mark or load_bom_data",
    "test_autocast.py": _ANY,
    "test_autograd.py": _ANY,
    "test_fake_tensor.py": _ANY,
    "dynamo/test_aot_autograd.py": _ANY,
    "functorch/test_aotdispatch.py": _ANY,
    "test_expanded_weights.py": _ANY,
}
WAYS: Final = ("torch", "accelerated", "own")


def outcomes(tests: Path, file: str, swap: str, results: Path) -> dict[str, str]:
    """By test: "passed", or the first line of why it failed. Skipped ones are left out."""
    written, which = results / f"{file.replace('/', '-')}-{swap}.xml", FILES[file]
    if not written.is_file():
        environment = {
            **os.environ,
            "ONEGATE_SWAP": swap,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(tests)]),
            "PYTORCH_TEST_WITH_SLOW": "0",
        }
        options = ["-q", "--noconftest", "-c", os.devnull, "--rootdir", str(tests), "-W", "ignore"]
        options += ["-p", "tests.torchs_own.swapped", "-p", "no:cacheprovider"]
        options += ["-k", which] if which else []
        command = [sys.executable, "-m", "pytest", *options, f"--junitxml={written}", file]
        done = subprocess.run(
            command, cwd=tests, env=environment, text=True, capture_output=True, check=False
        )
        if not written.is_file():
            return {f"{file} itself": done.stdout[-500:] + done.stderr[-500:]}
    return dict(_cases(written))


def _cases(written: Path) -> list[tuple[str, str]]:
    found = []
    for case in ET.parse(written).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        bad = case.find("failure")
        bad = case.find("error") if bad is None else bad
        if bad is not None:
            found.append((name, (bad.get("message") or "").strip().split("\n")[0]))
        elif case.find("skipped") is None:
            found.append((name, "passed"))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="a source tree of torch, with its folder test")
    parser.add_argument("--files", nargs="*", default=list(FILES), choices=list(FILES))
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=WAYS)
    parser.add_argument(
        "--results",
        type=Path,
        default=None,
        help="a folder of results, whose tests are not run again",
    )
    asked = parser.parse_args()
    kept = (asked.results or Path(tempfile.mkdtemp())).resolve()
    tests = (asked.source / "test").resolve()
    if not tests.is_dir():
        parser.error(f"{asked.source} has no folder test: expected a source tree of torch")
    lines, failed, passed = [], [], 0
    for file in asked.files:
        if not (tests / file).is_file():
            lines.append(f"| {file} | not in this version | | |")
            continue
        results = {way: outcomes(tests, file, way, kept) for way in asked.ways}
        if tuple(asked.ways) != WAYS:
            continue
        sound = [name for name, result in results["torch"].items() if result == "passed"]
        passed += len(sound)
        counts = []
        for way in WAYS[1:]:
            bad = {n: r for n in sound if (r := results[way].get(n, "not run")) != "passed"}
            failed += [f"{way}: {file} {name}: {reason}" for name, reason in bad.items()]
            counts.append(str(len(sound) - len(bad)))
        lines.append(f"| {file} | {len(sound)} | {' | '.join(counts)} |")
        print(lines[-1], file=sys.stderr, flush=True)
    if not passed and tuple(asked.ways) == WAYS:
        said = sorted(set(results["torch"].values()))
        parser.error(f"torch passes none of its own tests here: {said[:1]}")
    print("| tests of torch | torch passes | accelerated | our own layers |")
    print("| --- | --- | --- | --- |")
    print("\n".join(lines))
    print("\n" + "\n".join(failed))
    return any(line.startswith("accelerated") for line in failed)


if __name__ == "__main__":
    sys.exit(main())
