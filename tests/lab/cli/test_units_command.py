"""`onegate units` prints what the graphs say."""

from __future__ import annotations

import json

import pytest

from onegate.export.latex import equations, latex
from onegate.lab.cli import main
from onegate.lowering.program import program
from onegate.tracing import trace
from onegate.units import UNITS


def test_table_has_every_unit_with_its_equations(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["units"]) == 0
    shown = capsys.readouterr().out
    for name, unit in UNITS.items():
        assert f" {name} " in shown
        for line in equations(trace(unit, 28, 100)):
            assert line in shown
    row = next(line for line in shown.split("\n") if line.split()[:1] == ["mgu"])
    assert row.split("Zhou")[0].split()[-3:] == ["h", "1", "25,800"]
    assert "input 28, hidden 100" in shown


def test_sizes_are_taken(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["units", "--input-size", "1", "--hidden-size", "100"]) == 0
    shown = capsys.readouterr().out
    assert "20,400" in shown
    assert "30,600" in shown


def test_one_unit_in_detail(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["units", "lstm_cifg"]) == 0
    shown = capsys.readouterr().out
    for part in ("iₜ = ", "fₜ = 1 - iₜ", "Search Space Odyssey", "p_o", "a larger i.b keeps less"):
        assert part in shown
    assert main(["units", "scrn", "--hidden-size", "10"]) == 0
    shown = capsys.readouterr().out
    assert "h (10), s (40)" in shown
    assert "context_size=40, alpha=0.95" in shown
    assert "no gate" in shown
    assert main(["units", "mgu2"]) == 0
    assert "h by f: no bias" in capsys.readouterr().out


def test_latex_of_one_and_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["units", "mgu", "--latex"]) == 0
    assert capsys.readouterr().out == latex(trace(UNITS["mgu"], 28, 100)) + "\n"
    assert main(["units", "--latex"]) == 0
    shown = capsys.readouterr().out
    assert shown.count(r"\begin{align}") == len(UNITS)
    assert "% mgu: Minimal Gated Unit\n\\begin{align}" in shown


def test_json_of_one_and_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["units", "mgu", "--json"]) == 0
    mgu = json.loads(capsys.readouterr().out)
    assert mgu["parameter_count"] == 25_800
    assert mgu["gates"] == ["f"]
    assert mgu["retention"][0]["keeps"] == {"key": "f.b", "sign": -1}
    assert mgu["parameters"]["f.W"] == [100, 28]
    assert main(["units", "--json"]) == 0
    assert [unit["name"] for unit in json.loads(capsys.readouterr().out)] == list(UNITS)


def test_program_of_one_and_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["units", "mgu", "--program"]) == 0
    shown = capsys.readouterr().out
    assert shown == program(trace(UNITS["mgu"], 28, 100)).describe() + "\n"
    assert shown.startswith("forward, at every step:\n  product ")
    assert "\nbackward, at every step:\n" in shown
    assert "\n  d f.U += " in shown
    assert main(["units", "--program"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("forward, at every step:") == len(UNITS)
    assert "\n\nmgu: Minimal Gated Unit\nforward, at every step:\n" in shown
    with pytest.raises(SystemExit):
        main(["units", "--program", "--json"])


def test_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["units", "mguu"]) == 2
    assert "no unit is called 'mguu'; did you mean 'mgu'?" in capsys.readouterr().err
    for size in ("0", "-3", "many"):
        with pytest.raises(SystemExit):
            main(["units", "--hidden-size", size])
        assert "a size is a whole number from 1 up" in capsys.readouterr().err
