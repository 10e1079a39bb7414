"""Figures hold what was measured, in all their forms."""

from __future__ import annotations

import csv
import io
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from PIL import Image

from onegate import units
from onegate.lab.pages import canvas
from onegate.lab.pages.canvas import _SERIES, INK, MUTED, RULE
from onegate.lab.pages.figure import Figure
from onegate.lab.report import draw, figures, pareto, plots
from onegate.lab.report.groups import grouped
from tests.lab.report import synthetic

STYLE = Path(canvas.__file__).with_name("page.css")


def made(root: Path) -> dict[str, Figure]:
    return {figure.name: figure for figure in figures.draw(grouped(synthetic.read(root)))}


def rows(figure: Figure) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(figure.data)))


def test_which_figures_there_are(drawn: dict[str, Figure]) -> None:
    assert list(drawn) == [
        "adding-paper-curves",
        "adding-tuned-curves",
        "imdb-flow-curves",
        "imdb-tuned-curves",
        "mnist_rows-flow-curves",
        "mnist_rows-tuned-curves",
        "mnist_rows-tuned-ranking",
        "mnist_pixels-flow-curves",
        "ptb-paper-curves",
        "ptb-paper-sizes",
        "ptb-tuned-curves",
    ]


def test_curves_hold_the_metrics(everything: Path, drawn: dict[str, Figure]) -> None:
    runs = [
        run for run in synthetic.read(everything)
        if (run.recipe.task, run.recipe.name, run.recipe.unit) == ("mnist_rows", "flow", "gru")
    ]  # fmt: skip
    assert len(runs) == 3
    ours = [row for row in rows(drawn["mnist_rows-flow-curves"]) if row["unit"] == "gru"]
    times, _ = runs[0].curve("flow_time", "test_accuracy")
    assert [float(row["flow_time"]) for row in ours] == pytest.approx(times)
    for number, row in enumerate(ours):
        values = [run.curve("flow_time", "test_accuracy")[1][number] for run in runs]
        assert float(row["mean"]) == pytest.approx(sum(values) / 3)
        assert float(row["lowest"]) == min(values)
        assert float(row["highest"]) == max(values)
        assert row["seeds"] == "3"


def test_the_curves_of_many_sizes_are_those_of_the_recipes(drawn: dict[str, Figure]) -> None:
    assert {row["hidden_size"] for row in rows(drawn["ptb-paper-curves"])} == {"500"}
    assert "2 of 8 curves" in drawn["ptb-paper-curves"].caption


def test_the_papers_units_are_among_too_many_curves(drawn: dict[str, Figure]) -> None:
    units = {row["unit"] for row in rows(drawn["mnist_rows-tuned-curves"])}
    assert len(units) == 8
    assert {"mgu", "gru"} <= units


def test_curves_of_the_recipe_and_of_what_was_changed_in_it(tmp_path: Path) -> None:
    """Not of other lengths or, where the recipe itself was run, of units that only have those."""
    for unit in ("mgu", "gru"):
        synthetic.seeds(tmp_path, "imdb", "flow", unit, [0.6])
        synthetic.seeds(tmp_path, "imdb", "flow", unit, [0.6], ["optimizer.lr=0.005"])
        synthetic.seeds(tmp_path, "imdb", "flow", unit, [0.7], ["length=10"])
    synthetic.seeds(tmp_path, "imdb", "flow", "lstm", [0.9], ["length=10"])
    shown = {row["curve"] for row in rows(made(tmp_path)["imdb-flow-curves"])}
    assert shown == {"GRU", "MGU", "GRU, lr 0.005", "MGU, lr 0.005"}


def test_lines_of_one_unit_can_be_told_apart(tmp_path: Path) -> None:
    for scale in range(1, 7):
        synthetic.seeds(tmp_path, "imdb", "flow", "mgu", [0.6], [f"data.scale={scale}"])
    plot = plots.over_training(grouped(synthetic.read(tmp_path)))
    assert plot is not None
    (axes,) = plot.figure.axes
    drawn = [line for line in axes.get_lines() if "paper" not in str(line.get_label())]
    styles = {str(getattr(line, "_dash_pattern", None)) for line in drawn}
    assert len(styles) == len(drawn) == 4


def test_units_are_ranked_within_one_study(tmp_path: Path) -> None:
    """Trained alike, at the size nearest to the recipe's."""
    for place, unit in enumerate(("mgu", "gru", "lstm", "simple", "irnn")):
        for size in (100, 79):
            settings = ["length=5", f"model.hidden_size={size}"]
            end = 0.9 + place / 100 - size / 10_000
            synthetic.seeds(tmp_path, "mnist_rows", "tuned", unit, [end], settings)
    synthetic.seeds(tmp_path, "mnist_rows", "tuned", "mgu", [0.99])
    synthetic.seeds(tmp_path, "mnist_rows", "tuned", "lstm", [0.98], ["length=5", "batch_size=7"])
    figure = made(tmp_path)["mnist_rows-tuned-ranking"]
    found = rows(figure)
    assert [row["unit"] for row in found] == ["irnn", "simple", "lstm", "gru", "mgu"]
    assert {row["hidden_size"] for row in found} == {"100"}
    assert "length 5" in figure.caption


@pytest.mark.parametrize("task", ["adding", "mnist_rows"])
def test_what_is_drawn_lies_within_the_figure(task: str, tmp_path: Path) -> None:
    """Also with every unit, costs far apart, and long names in the legend."""
    for place, unit in enumerate(units.UNITS):
        end, seconds = 0.5 + 0.4999 / (1 + place), 0.1 * 1.5**place
        synthetic.seeds(tmp_path, task, "tuned", unit, [end], seconds_per_epoch=seconds)
    for value in (1.0, 2.0):
        settings = ["model.init=forget_bias", f"model.init_value={value}", "batch_size=7"]
        synthetic.seeds(tmp_path, task, "tuned", "mgu", [0.9], settings)
    groups = grouped(synthetic.read(tmp_path))
    of_one_unit = [group for group in groups if group.unit == "mgu"]
    kinds = (plots.over_training, plots.ranking, pareto.against_time)
    with canvas.style():
        for plot in [*(kind(groups) for kind in kinds), plots.over_training(of_one_unit)]:
            assert plot is not None
            plot.figure.draw_without_rendering()
            inside = plot.figure.bbox
            assert plot.figure.axes[0].bbox.height > 1.5 * plot.figure.dpi
            for part in (*plot.figure.legends, *plot.figure.axes):
                box = part.get_tightbbox()
                assert box is not None
                assert box.x0 >= inside.x0, plot.kind
                assert box.x1 <= inside.x1, plot.kind
                assert box.y0 >= inside.y0, plot.kind
                assert box.y1 <= inside.y1, plot.kind


def test_sizes_hold_table_2(drawn: dict[str, Figure]) -> None:
    found = rows(drawn["ptb-paper-sizes"])
    paper = {
        (row["unit"], row["hidden_size"]): row["value"] for row in found if row["source"] == "paper"
    }
    assert len(paper) == 14
    assert paper["gru", "400"] == "102.33"
    ours = [row["hidden_size"] for row in found if row["source"] == "measured"]
    assert ours == ["50", "100", "200", "500"] * 2


def test_the_ranking_is_by_the_metric(drawn: dict[str, Figure]) -> None:
    found = rows(drawn["mnist_rows-tuned-ranking"])
    by_rank: dict[int, list[float]] = {}
    for row in found:
        by_rank.setdefault(int(row["rank"]), []).append(float(row["value"]))
    ranked = [sum(values) / len(values) for _, values in sorted(by_rank.items())]
    assert ranked == sorted(ranked, reverse=True)
    assert len(ranked) == 10


def test_low_is_ranked_first_where_low_is_good(tmp_path: Path) -> None:
    for unit, end in (("mgu", 0.3), ("gru", 0.1), ("lstm", 0.2), ("simple", 0.9)):
        synthetic.seeds(tmp_path, "adding", "tuned", unit, [end])
    found = rows(made(tmp_path)["adding-tuned-ranking"])
    assert [row["unit"] for row in found] == ["gru", "lstm", "mgu", "simple"]


def test_files_are_what_they_say(drawn: dict[str, Figure]) -> None:
    for figure in drawn.values():
        root = ET.fromstring(figure.svg)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        image = Image.open(io.BytesIO(figure.png))
        assert image.format == "PNG"
        assert image.size[0] == 1000
        assert image.getpixel((0, 0))[:3] == (255, 255, 255)  # type: ignore[index]


def test_inline_figures_have_the_pages_colours_alone(drawn: dict[str, Figure]) -> None:
    style = STYLE.read_text()
    light, _, dark = style.partition("@media (prefers-color-scheme: dark)")
    for color in (INK, MUTED, RULE, *_SERIES):
        assert f"{color.variable}: {color.light};" in light
        assert f"{color.variable}: #" in dark
    for figure in drawn.values():
        left = set(re.findall(r"#[0-9a-f]{6}\b", figure.inline))
        # matplotlib's own black stands in a rule for lines without a colour.
        assert left <= {"#000000"}, figure.name


def test_identifiers_of_figures_do_not_meet(drawn: dict[str, Figure]) -> None:
    seen: set[str] = set()
    for figure in drawn.values():
        ids = set(re.findall(r'\bid="([^"]*)"', figure.inline))
        asked = set(re.findall(r'(?:url\(|href=")#([^")]*)', figure.inline))
        assert asked <= ids
        assert not ids & seen
        seen |= ids


def test_runs_without_curves_have_none(tmp_path: Path) -> None:
    (run,) = synthetic.seeds(tmp_path, "adding", "tuned", "mgu", [0.1])
    (run / "metrics.jsonl").unlink()
    assert made(tmp_path) == {}


def test_figures_for_a_comparison(tmp_path: Path) -> None:
    for unit in ("gru", "mgu"):
        synthetic.seeds(tmp_path / "runs", "adding", "tuned", unit, [0.1, 0.2])
    (path,) = draw(synthetic.read(tmp_path / "runs"), tmp_path / "figures")
    assert path == tmp_path / "figures" / "adding-tuned-curves.svg"
    kinds = sorted(file.suffix for file in path.parent.iterdir())
    assert kinds == [".csv", ".pdf", ".png", ".svg"]
