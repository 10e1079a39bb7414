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


def test_a_picture_for_a_paper(tmp_path: Path) -> None:
    path = tmp_path / "mgu.pdf"
    assert main(["draw", "mgu", "-o", str(path), "--no-title"]) == 0
    assert path.read_bytes().startswith(b"%PDF")
    titled, bare = draw("mgu"), draw("mgu", title=False)
    assert bare.get_figheight() < titled.get_figheight()
    assert not any("parameters" in text.get_text() for text in bare.axes[0].texts)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mug", "-o", "mug.svg"], "no unit is called 'mug'; did you mean 'mgu'?"),
        (["mgu", "-o", "mgu.jpeg"], "mgu.jpeg should end in .svg or .pdf or .png"),
        (["mgu", "-o", "missing/mgu.svg"], "there is no folder missing"),
        (["mgu", "-o", "mgu.svg", "--hidden-size", "0"], "hidden_size=0"),
    ],
)
def test_errors(
    arguments: list[str], message: str, refuses: Callable[[list[str], str], None]
) -> None:
    refuses(["draw", *arguments], message)
