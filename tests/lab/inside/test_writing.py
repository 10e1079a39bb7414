"""Pages and figures of whole runs: what is in them, and what is refused."""

from __future__ import annotations

import base64
import csv
import functools
import itertools
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from onegate.lab.inside import examples, measure_plots, writing
from onegate.lab.inside.measures import measure
from onegate.lab.inside.opened import InspectError, open_run
from onegate.probe.traces import traced

pytestmark = pytest.mark.usefixtures("small")

FIGURES = ["gates", "gradients", "jacobians", "memory"]


def data(page: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text())
    assert found is not None
    content: dict[str, Any] = json.loads(found[1])
    return content


def test_the_page_holds_the_values_before_and_after_training(
    pages: dict[str, Path], runs: Path
) -> None:
    content = data(pages["digits"])
    assert [run["label"] for run in content["runs"]] == ["MGU", "GRU"]
    chosen = [example["number"] for example in content["examples"]]
    assert chosen == examples.varied(open_run(runs / "rows-mgu").task, 8)
    for place, folder in enumerate(("rows-mgu", "rows-gru")):
        opened = open_run(runs / folder)
        passes = []
        for model in (opened.trained, opened.initial):
            batch, state = examples.batch(opened.task, model, chosen)
            with torch.no_grad():
                score = functools.partial(model.score, batch, state)
                passes.append(traced(model.recurrent, score)["l0"])
        for value in content["runs"][place]["passes"][0]["values"]:
            for (when, one), number in itertools.product(enumerate(passes), (0, 5)):
                levels = np.frombuffer(base64.b64decode(value["data"][when][number]), np.uint8)
                width = value["high"] - value["low"]
                found = value["low"] + levels.reshape(6, 28) / 255 * width
                expected = one[value["name"]][:, number].numpy().T
                assert np.abs(found - expected).max() <= width / 255
        measured = measure(opened.task, opened.trained)["l0"]
        spans = content["runs"][place]["passes"][0]
        assert spans["span"] == pytest.approx(measured.keeping["h"].span.tolist(), rel=0.01)
        assert spans["measured"] == pytest.approx(measured.spans["h"].tolist(), rel=0.01)


def heat_maps(label: str) -> list[str]:
    return [f"heatmap-{label.lower()}-0-{when}" for when in ("before", "after")]


def test_figures_lie_beside_the_page(pages: dict[str, Path]) -> None:
    for name, drawn in (
        ("digits", [*FIGURES, *heat_maps("MGU"), *heat_maps("GRU")]),
        ("text", [*FIGURES, *heat_maps("GRU")]),
        ("reviews", [*FIGURES[1:], *heat_maps("simple")]),  # no gate
        ("numbers", [*FIGURES, *heat_maps("LSTM")]),
    ):
        first = data(pages[name])["examples"][0]["number"]
        expected = [figure.replace("-0-", f"-{first}-") for figure in drawn]
        folder = pages[name].parent / "figures"
        files = {path.name for path in folder.iterdir()}
        assert files == {
            f"{figure}.{kind}" for figure in expected for kind in ("svg", "pdf", "png", "csv")
        }
        for figure in expected:
            with Image.open(folder / f"{figure}.png") as image:
                assert image.width > 800
                assert len(image.convert("L").getcolors() or ()) > 5
            with (folder / f"{figure}.csv").open() as file:
                rows = list(csv.reader(file))
            assert len(rows) > 6
            assert {len(row) for row in rows} == {len(rows[0])}


def test_figures_have_what_was_measured(pages: dict[str, Path], runs: Path) -> None:
    folder = pages["digits"].parent / "figures"
    opened = open_run(runs / "rows-mgu")
    before, after = (measure(opened.task, m)["l0"] for m in (opened.initial, opened.trained))
    with (folder / "memory.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["run"] == "MGU"]
    for column, expected in (
        ("span_before", before.keeping["h"].span),
        ("span_after", after.keeping["h"].span),
        ("measured_before", before.spans["h"]),
        ("measured_after", after.spans["h"]),
    ):
        np.testing.assert_allclose([float(row[column]) for row in rows], expected, rtol=1e-6)
    with (folder / "gradients.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["line"] == "MGU"]
    np.testing.assert_allclose([float(r["before"]) for r in rows], before.gradients["h"], rtol=1e-5)
    np.testing.assert_allclose([float(r["after"]) for r in rows], after.gradients["h"], rtol=1e-5)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take most of the time, and other tests look at them."""
    monkeypatch.setattr(measure_plots, "draw", lambda _: [])


@pytest.mark.usefixtures("undrawn")
def test_the_same_run_gives_the_same_page(runs: Path, tmp_path: Path) -> None:
    texts = [writing.write([runs / "rows-mgu"], tmp_path / name, [1]).read_bytes() for name in "ab"]
    assert texts[0] == texts[1]


@pytest.mark.usefixtures("undrawn")
def test_chosen_examples(runs: Path, tmp_path: Path) -> None:
    opened = open_run(runs / "rows-mgu")
    assert examples.of_digits(opened.task, [9]) == [3]
    page = writing.write([runs / "rows-mgu"], tmp_path, [7, 2, 7], digits=[9])
    assert [example["number"] for example in data(page)["examples"]] == [7, 2, 3]
    assert (tmp_path / "figures" / "heatmap-mgu-7-after.svg").exists()


@pytest.mark.usefixtures("undrawn")
def test_two_runs_of_one_unit_have_names_of_their_own(runs: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(runs / "rows-mgu", other)
    page = writing.write([runs / "rows-mgu", other], tmp_path, [0])
    assert [run["label"] for run in data(page)["runs"]] == ["MGU rows-mgu", "MGU other"]
    with pytest.raises(InspectError, match="rows-mgu is given twice"):
        writing.write([runs / "rows-mgu"] * 2, tmp_path)


def test_runs_of_different_tasks_are_refused(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(InspectError, match=r"rows-mgu is a run of mnist_rows and .* one of adding"):
        writing.write([runs / "rows-mgu", runs / "adding-lstm"], tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("undrawn")
def test_too_many_examples_are_refused(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Three examples of 3 values, 6 units and 28 steps, before and after training.
    monkeypatch.setattr(writing, "_ROOM", 5000)
    with pytest.raises(InspectError, match=r"4 examples would be too large .* have room for 3"):
        writing.write([runs / "rows-mgu"], tmp_path, [0, 1, 2, 3])
    page = writing.write([runs / "rows-mgu"], tmp_path)
    assert len(data(page)["examples"]) == 3
