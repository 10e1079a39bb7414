"""The rule that is made of measured times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from onegate.lab.bench import accelerate as bench
from onegate.lab.bench.accelerate import rules
from onegate.nn import drop_in
from onegate.nn.drop_in_rule import ANY, RULES, Rule


def _row(shape: tuple[int, int, int], fused: float) -> dict[str, Any]:
    return {"kind": "LSTM", "learns": False, "autocast": False, "shape": shape, "fused": fused}


def test_never_takes_what_was_measured_slower() -> None:
    few, many, large = (1, 1, 64), (10, 32, 64), (35, 20, 512)
    key = "LSTM", False, False
    assert rules([_row(few, 1.5), _row(many, 0.5), _row(large, 0.4)]) == {}
    assert rules([_row(few, 1.5), _row(many, 0.5), _row(large, 1.2)]) == {key: Rule(8, 512)}
    assert rules([_row(few, 1.5), _row((10, 1, 64), 1.1), _row(large, 0.4)]) == {key: Rule(11, ANY)}
    of_one = _row((1, 64, 256), 1.7), _row((10, 1, 64), 0.4), _row(large, 0.5)
    assert rules(of_one) == {key: Rule(8, ANY, 10)}
    slow = rules([_row(few, 1.5), _row(many, 1.3), _row(large, 1.2)])[key]
    assert all(t * b < slow.row_steps or n >= slow.hidden for t, b, n in (few, many, large))


@pytest.mark.parametrize("kind", sorted({kind for kind, _, _ in RULES}))
def test_layers_and_cells_find_their_rule(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = drop_in.accelerate(getattr(torch.nn, kind)(5, 7))
    x = torch.randn(9, 5) if kind.endswith("Cell") else torch.randn(9, 2, 5)
    for rule, engine in ((Rule(1, ANY), "fused"), (Rule(1, 7), "torch"), (Rule(19, ANY), "torch")):
        monkeypatch.setitem(RULES, (kind, True, False), rule)
        layer(x)
        assert drop_in.engine_report(layer)[0].engine == engine, rule
    for steps, engine in ((9, "fused"), (10, "torch")):
        monkeypatch.setitem(RULES, (kind, True, False), Rule(1, ANY, steps))
        for first in (True, False) if kind in bench.LAYERS else ():
            layer.batch_first = first
            layer(x.transpose(0, 1) if first else x)
            assert drop_in.engine_report(layer)[0].engine == engine, steps


def test_a_run_that_was_broken_off_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = [("GRU", True, False, (1, 1, 2)), ("GRU", True, False, (9, 1, 2))]
    monkeypatch.setattr(bench, "_cases", lambda: iter(cases[:1]))
    kept = tmp_path / "rows.json"
    bench.accelerate(0.001, kept)
    first = json.loads(kept.read_text())["rows"]
    assert [(row["taken"], row["shape"]) for row in first] == [("torch", [1, 1, 2])]
    monkeypatch.setattr(bench, "_cases", lambda: iter(cases))
    rows = bench.accelerate(0.001, kept)["rows"]
    assert rows[:1] == first
    assert rows[1]["shape"] == [9, 1, 2]
    assert "GRU, training: median" in capsys.readouterr().out


def test_half_precision_is_compared_with_our_own_float32() -> None:
    row = {"kind": "GRU", "learns": True, "shape": [9, 1, 2], "taken": "fused"}
    full, low = (
        {**row, "autocast": False, "seconds": 2.0},
        {**row, "autocast": True, "seconds": 3.0},
    )
    assert bench._low_over_full([full, low]) == {("GRU", True, True): [1.5]}
