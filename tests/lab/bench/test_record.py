"""Tables, JSON and pictures hold everything that was measured."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from onegate.lab.bench import plot
from onegate.lab.bench.contestants import TORCH_GRU
from onegate.lab.bench.record import Record
from onegate.lab.bench.shapes import PAPER
from onegate.lab.bench.verdicts import verdicts
from onegate.picture.draw import save
from tests.lab.bench.made import outcome
from tests.lab.bench.test_outcomes import made_sweep


def made_record(busy: float = 0.0) -> Record:
    outcomes = [
        outcome(
            PAPER["imdb"],
            {"mgu fused": 0.00325, TORCH_GRU: 0.013},
            {"mgu fused": 1.5, TORCH_GRU: 2.0},
            held={"mgu fused": 2_500_000, TORCH_GRU: 10_000_000},
            skipped={"Flax MGUCell (jit)": "flax is not installed"},
        ),
        outcome(
            PAPER["ptb"], {TORCH_GRU: 0.1}, skipped={"Flax MGUCell (jit)": "flax is not installed"}
        ),
    ]
    sweeps = [made_sweep("steps"), made_sweep("hidden")]
    return Record(2.0, outcomes, sweeps, verdicts(outcomes, sweeps), busy)


def shown(record: Record) -> str:
    console = Console(file=io.StringIO(), width=250)
    for table in record.tables():
        console.print(table)
    text = console.file
    assert isinstance(text, io.StringIO)
    return text.getvalue()


def test_a_row_has_medians_quartiles_ratios_shares_and_memory() -> None:
    lines = shown(made_record()).splitlines()
    row = next(line for line in lines if line.strip().startswith("mgu fused"))
    assert " ".join(row.split()) == (
        "mgu fused 3.250 2.925 .. 3.900 0.250 60 % 1500 1350 .. 1800 0.750 60 % 2.5 0.250"
    )


def test_tables_have_every_shape_contestant_sweep_and_figure() -> None:
    record = made_record()
    text = shown(record)
    for made in record.outcomes:
        assert f"{made.shape.name}: {made.shape.describe()}" in text
    assert "7 rounds, sgemm peak 100 GFLOPS" in text
    for sweep in record.sweeps:
        for made in sweep.outcomes:
            rows = [
                line for line in text.splitlines() if line.split()[:2] == made.shape.name.split()
            ]
            assert len(rows) == 2
    assert "1.500 at steps 1, inference" in text
    for verdict in record.verdicts:
        assert verdict.figure in text


def test_notes_give_reasons_once_and_warn_of_a_busy_machine() -> None:
    assert made_record().notes() == [
        "Flax MGUCell (jit): skipped, flax is not installed (imdb, ptb)"
    ]
    assert "99.0 processes wanted a core" in made_record(busy=99.0).notes()[-1]


def test_json_schema() -> None:
    record = made_record()
    found = json.loads(json.dumps(record.to_json(), allow_nan=False))
    assert set(found) == {
        "format", "date", "machine", "dtype", "seconds", "shapes", "sweeps", "figures",
    }  # fmt: skip
    assert {"torch", "python", "processor", "threads", "engine", "load"} <= set(found["machine"])
    first = found["shapes"][0]
    assert set(first) == {"shape", "peaks", "results", "held_bytes", "skipped", "notes"}
    assert first["shape"]["steps"] == 128
    assert len(first["results"]) == 4
    result = first["results"][0]
    assert result == {
        "kind": "train",
        "contestant": "mgu fused",
        "median": 0.00325,
        "lower": pytest.approx(0.9 * 0.00325),
        "upper": pytest.approx(1.2 * 0.00325),
        "fastest": pytest.approx(0.8 * 0.00325),
        "rounds": 7,
        "calls": 1,
        "operations": int(0.6e11 * 0.00325),
        "share_of_peak": 0.6,
        "ratio_to_torch_gru": 0.25,
    }
    assert first["held_bytes"] == {"mgu fused": 2_500_000, TORCH_GRU: 10_000_000}
    steps = found["sweeps"][0]
    assert set(steps) == {"field", "shapes", "lines", "worst"}
    assert steps["worst"] == [
        {"contestant": "mgu fused", "ratio": 1.5, "kind": "infer", "shape": "steps 1"}
    ]
    assert {line["contestant"] for line in steps["lines"]} == {"mgu fused", TORCH_GRU}
    assert len(found["figures"]) == len(record.verdicts)
    assert {figure["state"] for figure in found["figures"]} <= {"met", "not met", "not measured"}


def test_picture_has_a_row_for_each_shape_and_sweep() -> None:
    record = made_record()
    axes: Any = plot.draw(record).axes
    assert len(axes) == 2 * (len(record.outcomes) + len(record.sweeps))
    assert [bar.get_width() for bar in axes[0].patches] == pytest.approx([3.25, 13.0])
    assert [label.get_text() for label in axes[0].get_yticklabels()] == ["mgu fused", TORCH_GRU]
    line = next(line for line in axes[4].lines if line.get_label() == "mgu fused")
    assert line.get_xdata().tolist() == record.sweeps[0].sizes()
    assert line.get_ydata() == pytest.approx([1e3 * (1 + n) for n in record.sweeps[0].sizes()])


def test_picture_is_written_in_the_format_of_its_name(tmp_path: Path) -> None:
    record = replace(made_record(), outcomes=made_record().outcomes[:1], sweeps=[])
    save(plot.draw(record), tmp_path / "speed.PNG")
    assert (tmp_path / "speed.PNG").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match=r"should end in \.svg or \.pdf or \.png"):
        save(plot.draw(record), tmp_path / "speed.txt")
