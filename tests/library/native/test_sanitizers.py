"""A small part of `make sanitize`: the native engine under Address- and UndefinedBehaviorSanitizer.

The rest of the programs, and ThreadSanitizer, are `make sanitize`.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.library.engines.test_native_programs import WIDEST, many_products
from tests.library.native import sanitize
from tests.library.native.programs import write

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def driver() -> Path:
    if reason := sanitize.missing():
        pytest.skip(reason)
    return sanitize.build("address")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("native") / "programs.txt"
    write(path)
    return path


def test_programs_and_changed_programs(driver: Path, programs: Path) -> None:
    """No memory out of bounds, no undefined behaviour; nothing unwritten; threads agree."""
    said = sanitize.run(driver, programs, "--runs", "2", "--mutations", "20", "--every", "3")
    assert "programs" in said
    refused, taken = (int(n) for n in said.split("of changed programs ")[1].split() if n.isdigit())
    assert refused > taken > 0


def test_a_program_that_is_refused_is_named(driver: Path, programs: Path) -> None:
    name, code, constants, *_ = programs.read_text().split("\n")
    programs.with_name("broken.txt").write_text("\n".join([name, code + " 5", constants, ""]))
    with pytest.raises(subprocess.CalledProcessError) as raised:
        sanitize.run(driver, programs.with_name("broken.txt"))
    assert f"{name} is refused: 1 integers are left over" in raised.value.output


def test_sizes_that_overflow_are_refused(driver: Path, programs: Path) -> None:
    """2^24 x 2^24 matrices in so many products that their sizes add up to more than 2^64."""
    code = " ".join(map(str, many_products(WIDEST).encode()))
    programs.with_name("large.txt").write_text(f"large\n{code}\n\n")
    with pytest.raises(subprocess.CalledProcessError) as raised:
        sanitize.run(driver, programs.with_name("large.txt"))
    assert "large is refused: the program is too large" in raised.value.output
