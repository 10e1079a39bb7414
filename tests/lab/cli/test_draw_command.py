"""`onegate draw` writes the picture it is asked for, or says what is wrong."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from onegate.lab.cli import main
from onegate.picture.draw import draw, save


def test_writes_what_the_library_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "units.svg"
    assert main(["draw", "gru", "mgu", "-o", str(path), "--dark", "--input-size", "1"]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    save(draw("gru", "mgu", input_size=1, dark=True), tmp_path / "expected.svg")
    assert path.read_bytes() == (tmp_path / "expected.svg").read_bytes()
    ET.parse(path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mug", "-o", "mug.svg"], "no unit is called 'mug'; did you mean 'mgu'?"),
        (["mgu", "-o", "mgu.jpeg"], "mgu.jpeg should end in .svg or .png"),
        (["mgu", "-o", "missing/mgu.svg"], "there is no folder missing"),
        (["mgu", "-o", "mgu.svg", "--hidden-size", "0"], "hidden_size=0"),
    ],
)
def test_errors(
    arguments: list[str], message: str, refuses: Callable[[list[str], str], None]
) -> None:
    refuses(["draw", *arguments], message)
