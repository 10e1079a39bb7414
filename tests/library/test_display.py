"""What notebooks show, and the examples that users begin with."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

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


def test_what_cannot_be_drawn_has_its_equations() -> None:
    layer: Any = onegate.GRUD(3, 4)
    assert layer._repr_svg_() is None
    assert r"\gamma_{x,t}" in layer._repr_html_()


@pytest.mark.parametrize("name", ["own_unit", "drop_in"])
def test_examples_run(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = dict(onegate.UNITS)
    try:
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    finally:
        onegate.UNITS.clear()
        onegate.UNITS.update(before)
    assert capsys.readouterr().out


def test_recurrent_ppo_learns_the_same_both_ways(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In float64: in float32 one rounding may turn a drawn action, and all that follows."""
    train = runpy.run_path(str(EXAMPLES / "recurrent_ppo.py"))["train"]
    train.__globals__.update(STEPS=40, CARTS=6, HIDDEN=9)
    torch.set_default_dtype(torch.float64)
    try:
        whole, stepping = (train(way, 0, 3)[0] for way in (True, False))
        files = [f"--figure={tmp_path / 'c.svg'}", f"--json={tmp_path / 'c.json'}"]
        train.__globals__["main"](["--seeds=1", "--rollouts=1", *files])
    finally:
        torch.set_default_dtype(torch.float32)
    assert len(set(whole)) == 3
    assert whole == stepping
    assert "times the updates a second" in capsys.readouterr().out
    assert (tmp_path / "c.svg").read_text().rstrip().endswith("</svg>")
    rows = json.loads((tmp_path / "c.json").read_text())["rows"]
    assert [len(row["curves"]) for row in rows] == [1, 1]
