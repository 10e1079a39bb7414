"""Formats that a model can be written in, one of a user's own among them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import nn

import onegate
from onegate.export.latex import latex
from onegate.export.targets import TARGETS
from onegate.nn.cells import Weights


def test_a_target_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def equations(model: nn.Module, path: Path, *, title: str = "") -> Path:
        graphs = [m.graph for m in model.modules() if isinstance(m, Weights)]
        path.write_text(title + "".join(latex(graph) for graph in graphs))
        return path

    monkeypatch.setitem(TARGETS, "tex", equations)
    model = nn.ModuleDict({"recurrent": onegate.MGU(3, 4)})
    for options in ({}, {"format": "tex", "title": "Ours\n"}):
        chosen: dict[str, Any] = options
        where = onegate.export(model, tmp_path / "unit.tex", **chosen)
        written = where.read_text()
        assert written.startswith(chosen.get("title", "\\begin{align}"))
        assert "f_t &= \\sigma(W_f [h_{t-1}, x_t] + b_f)" in written


@pytest.mark.parametrize(("format", "known"), [("c", "stem, output"), ("onnx", "form, lengths")])
def test_an_option_that_is_not_there(format: str, known: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=f"quantize is no option of this format: it has {known}"):
        onegate.export(onegate.MGU(3, 4), tmp_path / "out", format=format, quantize="int8")
    assert not (tmp_path / "out").exists()


def test_a_format_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"format 'docx', which is not known: use format=\"c\""):
        onegate.export(onegate.MGU(3, 4), tmp_path / "unit.docx")
