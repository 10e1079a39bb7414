"""What notebooks show, and the examples that users begin with."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

import onegate
from onegate import extras

EXAMPLES = Path(__file__).parents[2] / "examples"
SHOWN: dict[str, Any] = {
    "unit": onegate.UNITS["mgu"],
    "layer": onegate.MGU(3, 4),
    "layers by name": onegate.Recurrent("mgu", 3, 4, 2),
    "cell": onegate.MGUCell(3, 4),
}


@pytest.mark.parametrize("name", SHOWN)
def test_equations_and_picture(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = SHOWN[name]
    written = shown._repr_latex_()
    assert written.startswith("$$\\begin{aligned}\nf_t &= ")
    assert shown._repr_svg_().startswith("<svg")
    page = shown._repr_html_()
    assert "<svg" in page
    assert written in page
    monkeypatch.setattr(extras, "missing", lambda _: ["matplotlib"])
    assert shown._repr_svg_() is None
    assert "<svg" not in shown._repr_html_()


def test_the_text_form_names_the_unit_once() -> None:
    assert repr(onegate.Recurrent("mgu", 3, 4)).startswith("Recurrent(\n  'mgu', 3, 4\n")
    assert repr(onegate.MGU(3, 4)).startswith("MGU(\n  3, 4\n")
    assert "'mgu', 3, 4" in repr(onegate.Cell("mgu", 3, 4))


@pytest.mark.parametrize("name", ["own_unit", "drop_in"])
def test_examples_run(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = dict(onegate.UNITS)
    try:
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    finally:
        onegate.UNITS.clear()
        onegate.UNITS.update(before)
    assert capsys.readouterr().out
