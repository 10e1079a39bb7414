"""What the fuzzers found once, and a few programs at the edge of what is taken.

Programs whose name begins with "refused" are refused; `make fuzz` runs the others under the
sanitizers.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from onegate.engines.cpu.native import NativeError, NativeProgram
from onegate.lowering.program import program
from onegate.tracing import trace
from onegate.units import UNITS
from tests.library.fuzz import programs, units


@pytest.mark.parametrize("path", sorted(programs.CORPUS.iterdir()), ids=lambda path: path.name)
def test_programs(path: Path) -> None:
    code, constants, _ = programs.read(path)
    refusal = pytest.raises(NativeError, match=r"the native engine refuses the program: .")
    with refusal if path.name.startswith("refused") else contextlib.suppress(NativeError):
        NativeProgram(code, constants)


@pytest.mark.parametrize("choices", units.corpus(), ids=lambda choices: f"{len(choices)} choices")
def test_units(choices: list[int]) -> None:
    outcome = units.compare(units.draw(units.Recorded(choices)))
    assert not outcome.finding


def test_a_small_error_is_found_and_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    def off(case: units.Case, leaves: units.Found, right: Any = units.ours) -> units.Found:
        return {name: tensor * (1 + 1e-9) for name, tensor in right(case, leaves).items()}

    def fails(choices: list[int]) -> bool:
        case = units.draw(units.Recorded(choices))
        return case.dtype is torch.float64 and units.compare(case).kind == "off"

    def made(seed: int) -> list[int]:
        choices = units.Recorded(random=Random(seed))
        units.draw(choices)
        return choices.made

    assert not any(fails(made(seed)) for seed in range(8))
    monkeypatch.setattr(units, "ours", off)
    found = next(made(seed) for seed in range(8) if fails(made(seed)))
    least = units.shrunk(found, fails, seconds=60)
    assert len(least) < len(found) / 4
    assert fails(least)


def test_what_is_left_unwritten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NativeProgram, "backward", lambda *_: None)
    kinds = {units.compare(units.draw(units.Recorded([], Random(seed)))).kind for seed in range(8)}
    assert "not written" in kinds


def test_programs_are_read_as_they_are_written(tmp_path: Path) -> None:
    made = program(trace(UNITS["mut1"], 2, 3))
    written = made.encode(), list(made.constants), 7
    (tmp_path / "program").write_text(programs.text_of(*written))
    assert programs.read(tmp_path / "program") == written
