"""What training costs beside its layers: the arithmetic, and what the command leaves."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from onegate.lab import compare, data
from onegate.lab.bench import costs
from onegate.lab.bench.inside import (
    FUSED_SHARE,
    LIMITS,
    MEMORY,
    NEW_UNITS,
    OVER_COMPILED,
    inside,
    new_units,
    norms,
)
from onegate.lab.bench.shapes import LayerShape
from onegate.lab.cli import main
from onegate.lab.recipes import recipe


def test_makespan_beside_the_best_of_all_assignments() -> None:
    """Longest first is within 4/3 of the best assignment, and is it where all fits exactly."""
    for seconds, workers in (([3.0, 1.0, 2.0], 2), ([5.0, 4.0, 3.0, 3.0, 3.0], 2), ([2.0], 3)):
        best = min(
            max(sum(s for s, w in zip(seconds, at, strict=True) if w == k) for k in range(workers))
            for at in itertools.product(range(workers), repeat=len(seconds))
        )
        found = costs.makespan(seconds, workers)
        assert best <= found <= 4 / 3 * best
    assert costs.makespan([4.0, 4.0, 4.0], 1) == 12.0


def test_the_output_layer_leaves_threads_and_precision_as_they_were(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = torch.get_num_threads(), torch.get_float32_matmul_precision()
    found = costs.output_layer(words=3, width=4, vocabulary=7, rounds=2)
    assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == before
    assert found["float32"] > 0 < found["bfloat16"]
    assert "ratio" in capsys.readouterr().out


def test_baselines_know_frequencies_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def pair(name: str, train: list[float], test: list[float]) -> SimpleNamespace:
        parts = (SimpleNamespace(**{name: np.array(part)}) for part in (train, test))
        return SimpleNamespace(**dict(zip(("train", "test"), parts, strict=True)))

    monkeypatch.setattr(data, "adding", lambda seed: pair("targets", [1.0, 3.0], [2.0, 4.0]))
    monkeypatch.setattr(data, "mnist", lambda: pair("labels", [1, 7, 7], [7, 1, 2, 7]))
    monkeypatch.setattr(data, "imdb", lambda: pair("ratings", [], [1, 10, 9, 8]))
    monkeypatch.setattr(data, "ptb", lambda: SimpleNamespace(train=None, test=None))
    monkeypatch.setattr(data, "unigram_perplexity", lambda *_: 600.0)
    assert costs.baselines() == {"adding": 2.0, "mnist": 0.5, "imdb": 0.75, "ptb": 600.0}


def test_epochs_are_written_with_their_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(request: compare.Request, folder: Path, threads: int) -> list[SimpleNamespace]:
        assert folder.is_dir()
        return [
            SimpleNamespace(recipe=recipe(request.task, request.recipe, unit), seconds_per_epoch=s)
            for unit, s in (("mgu", 1.0), ("gru", 2.0))
        ]

    monkeypatch.setattr(compare, "prepare", prepare)
    path = tmp_path / "epochs.json"
    assert main(["bench", "epochs", "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert {"date", "machine", "rows"} == found.keys()
    assert [row["task"] for row in found["rows"]] == [
        *("adding", "imdb", "mnist_rows", "mnist_pixels", "ptb")
    ]
    assert found["rows"][0] == {"task": "adding", "hidden_size": 100, "mgu": 1.0, "gru": 2.0}


def test_what_is_inside_the_recurrence_is_set_against_the_plain_layer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    small = LayerShape("small", 3, 2, 4, 5)
    found = inside([replace(small, layers=2)], seconds=0.01)["rows"]
    # Of output, gate and candidate the output; of those, the other gates and two of c output and c.
    memory = {row["unit"]: row["ratio"] for row in found if row["what"] == MEMORY}
    numbers = 3 * 2 * 5  # of one value; recomputing holds the start of the LSTM, h and c
    assert memory["mgu"] == 1 / 3
    assert memory["lstm"] == (2 * numbers + 20) / (7 * numbers)
    found += norms([small], seconds=0.01, compiled=False)["rows"]
    assert {row["what"] for row in found} == {*LIMITS} - {OVER_COMPILED, FUSED_SHARE}
    assert all(row["ratio"] > 0 for row in found)
    assert capsys.readouterr().out.count("at most") == len(found)


def test_new_units_are_set_against_the_reference_engine() -> None:
    found = new_units([LayerShape("small", 3, 2, 4, 5, bidirectional=True)], seconds=0.01)["rows"]
    assert [row["unit"] for row in found] == list(NEW_UNITS)
    assert {row["what"] for row in found} == {FUSED_SHARE}
