"""The rule that is made of measured times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from onegate.lab.bench import accelerate as bench
from onegate.lab.bench.accelerate import rules
from onegate.nn import drop_in
from onegate.nn.drop_in_rule import (
    ANY,
    FILE,
    KINDS,
    MAKER,
    NEVER,
    OTHERS,
    RULES,
    Rule,
    Rules,
    read,
)


def _row(shape: tuple[int, int, int], fused: float) -> dict[str, Any]:
    return {"kind": "LSTM", "learns": False, "precision": "float32", "shape": shape, "fused": fused}


def test_never_takes_what_was_measured_slower() -> None:
    few, many, large = (1, 1, 64), (10, 32, 64), (35, 20, 512)
    key = "LSTM", False, "float32"
    assert rules([_row(few, 1.5), _row(many, 0.5), _row(large, 0.4)]) == {key: Rule(320)}
    assert rules([_row(few, 1.5), _row(many, 0.5), _row(large, 1.2)]) == {key: Rule(320, 512)}
    assert rules([_row(few, 1.5), _row((10, 1, 64), 1.1), _row(large, 0.4)]) == {key: Rule(700)}
    of_one = _row((1, 64, 256), 1.7), _row((10, 1, 64), 0.4), _row(large, 0.5)
    assert rules(of_one) == {key: Rule(10, ANY, 10)}
    assert rules([_row(few, 1.5), _row(many, 1.3), _row(large, 1.2)]) == {key: NEVER}


def test_what_one_machine_has_measured_slower_is_taken_on_no_unknown_one() -> None:
    many = (10, 32, 64)
    runs = [("A", [_row(many, 0.5)]), ("B", [_row(many, 1.5)])]
    found = {maker: rules(rows)["LSTM", False, "float32"] for maker, rows in bench._by_maker(runs)}
    assert found == {"A": Rule(320, ANY, 10), "B": NEVER}
    assert rules([row for _, rows in runs for row in rows])["LSTM", False, "float32"] == NEVER


@pytest.mark.parametrize("kind", KINDS)
def test_layers_and_cells_find_their_rule(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = drop_in.accelerate(getattr(torch.nn, kind)(5, 7))
    x = torch.randn(9, 5) if kind.endswith("Cell") else torch.randn(9, 2, 5)

    def takes(learns: bool, low: str, rule: Rule) -> str:
        monkeypatch.setitem(RULES, kind, Rules.of({(learns, low): rule}))
        layer(x)
        return drop_in.engine_report(layer)[0].engine

    for rule, engine in ((Rule(1), "fused"), (Rule(1, 7), "torch"), (Rule(19), "torch")):
        assert takes(True, "float32", rule) == engine, rule
    assert takes(False, "float32", Rule(1)) == takes(True, "autocast", Rule(1)) == "torch"
    with torch.no_grad():
        assert takes(False, "float32", Rule(1)) == "fused"
        with torch.autocast("cpu"):
            assert takes(False, "autocast", Rule(1)) == "fused"
            assert takes(False, "float32", Rule(1)) == "torch"
    layer, x = layer.bfloat16(), x.bfloat16()
    assert takes(True, "float32", Rule(1)) == takes(True, "float16", Rule(1)) == "torch"
    assert takes(True, "bfloat16", Rule(1)) == "fused"
    layer, x = layer.float(), x.float()
    if kind in bench.LAYERS:
        packed = pack_padded_sequence(x, torch.tensor([9, 4]))
        inputs: list[Any] = [x, x.transpose(0, 1), packed, x[:, 0]]
        for given in inputs:
            x = given
            layer.batch_first = type(x) is not PackedSequence and x.shape[:2] == (2, 9)
            assert takes(True, "float32", Rule(1, ANY, 9)) == "fused"
            assert takes(True, "float32", Rule(1, ANY, 10)) == "torch"


def test_a_file_has_rules_for_all_classes_and_for_unknown_makers() -> None:
    written = json.loads(FILE.read_text())
    for maker in (*written, "NeverHeardOf"):
        assert {*read(written, maker)} == {*KINDS}
    assert read(written, "NeverHeardOf") == read(written, OTHERS)
    row = {"kind": "GRU", "learns": True, "precision": "float32", "row_steps": 8, "steps": 2}
    found = read({OTHERS: [row, {**row, "kind": "RNN", "hidden": 9}]}, OTHERS)
    assert found["GRU"] == Rules.of({(True, "float32"): Rule(8, ANY, 2)})
    assert found["RNN"] == Rules.of({(True, "float32"): Rule(8, 9, 2)})
    assert found["LSTM"] == Rules.of({})


def test_a_run_that_was_broken_off_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = [("GRU", True, "float32", (1, 1, 2)), ("GRU", True, "float32", (9, 1, 2))]
    monkeypatch.setattr(bench, "_cases", lambda: iter(cases[:1]))
    kept, rule = tmp_path / "accelerate-a.json", tmp_path / "rule.json"
    bench.accelerate(0.001, kept)
    first = json.loads(kept.read_text())["rows"]
    assert [row["shape"] for row in first] == [[1, 1, 2]]
    monkeypatch.setattr(bench, "_cases", lambda: iter(cases))
    slow = {**first[0], "shape": [9, 1, 2], "fused": 1.5}
    (tmp_path / "accelerate-b.json").write_text(json.dumps({"maker": "B", "rows": [slow]}))
    rows = bench.accelerate(0.001, kept, rule)["rows"]
    assert rows[:1] == first
    assert rows[1]["shape"] == [9, 1, 2]
    assert "GRU, training, float32: median" in capsys.readouterr().out
    assert {*json.loads(rule.read_text())} == {MAKER, "B", OTHERS}
    assert read(json.loads(rule.read_text()), OTHERS)["GRU"] == Rules.of({})
    assert "left to torch" not in RULES


def test_a_row_whose_control_is_off_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def measured(_: Any, base: str, seconds: float, **__: Any) -> tuple[dict[str, float], float]:
        asked.append(seconds)
        control = 1.5 if len(asked) < 2 else 1.01
        return {base: 1.0, "left to torch": control, "fused": 0.5}, 0.25

    monkeypatch.setattr(bench, "ratios", measured)
    row = bench._row("GRU", True, "float32", (1, 1, 2), 2.0)
    assert asked == [2.0, 6.0]
    assert (row["left"], row["fused"], row["seconds"]) == (1.01, 0.5, 0.25)


def test_verdicts_are_of_the_kernel_that_the_rule_takes() -> None:
    key = {"kind": "GRU", "learns": True, "precision": "float32"}
    rows = [
        {**key, "shape": [1, 1, 64], "left": 1.01, "fused": 3.0},
        {**key, "shape": [10, 1, 64], "left": 1.02, "fused": 0.3},
    ]
    always, never = (read({OTHERS: [{**key, "row_steps": n, "steps": 1}]}, OTHERS) for n in (1, 99))
    (line,) = bench.verdicts(rows, always)
    assert "median 1.65 of 2 shapes, largest 3.00, 2 of 2 fused: above 1.05, median" in line
    (line,) = bench.verdicts(rows, never)
    assert "largest 1.02, 0 of 2 fused: median above 0.4" in line


def test_half_precision_is_compared_with_our_own_float32() -> None:
    row = {"kind": "GRU", "learns": True, "shape": [9, 1, 2], "fused": 0.5}
    full, low = (
        {**row, "precision": "float32", "seconds": 2.0},
        {**row, "precision": "autocast", "seconds": 3.0},
    )
    assert bench._low_over_full([full, low]) == {("GRU", True, "autocast"): [1.5]}
