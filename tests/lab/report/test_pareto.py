"""Metrics against their costs."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from unittest import mock

import pytest

from onegate import files
from onegate.lab.pages.figure import Figure
from onegate.lab.recipes import override, recipe
from onegate.lab.report import figures, inventory, pareto
from onegate.lab.report.groups import grouped
from onegate.lab.report.inventory import take
from tests.lab.report import synthetic

# (unit, size, parameters, seconds per epoch, test errors of two seeds)
SWEPT = (
    ("mgu", 50, 100, 4.0, (0.30, 0.40)),
    ("mgu", 100, 400, 6.0, (0.20, 0.10)),
    ("gru", 50, 150, 3.0, (0.30, 0.50)),
    ("gru", 100, 600, 9.0, (0.04, 0.06)),
    ("gru", 200, 900, 8.0, (0.09, 0.07)),
)


def sweep(root: Path, machine: dict[str, object] | None = None, *more: str) -> dict[str, Figure]:
    for unit, size, parameters, seconds, ends in SWEPT:
        for seed, end in enumerate(ends):
            settings = [f"model.hidden_size={size}", f"seed={seed}", *more]
            folder = synthetic.finished(
                root, override(recipe("adding", "tuned", unit), settings), end,
                seconds_per_epoch=seconds,
                machine={**synthetic.MACHINE, **((machine or {}) if unit == "gru" else {})},
            )  # fmt: skip
            status = files.read_json(folder / "status.json")
            status["result"]["parameters"] = parameters
            files.write_json(folder / "status.json", status)
    return {f.name: f for f in figures.draw(grouped(synthetic.read(root)))}


def rows(figure: Figure) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(figure.data)))


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Figure]:
    return sweep(tmp_path_factory.mktemp("swept"))


def test_a_changed_recipe_is_told(drawn: dict[str, Figure], tmp_path: Path) -> None:
    changed = sweep(tmp_path, None, "length=20")
    for name in ("adding-tuned-parameters", "adding-tuned-time"):
        assert "recipe tuned. " in drawn[name].caption
        assert "recipe tuned, length 20. " in changed[name].caption


def test_both_costs_are_drawn_beside_curves(drawn: dict[str, Figure]) -> None:
    assert list(drawn) == ["adding-tuned-curves", "adding-tuned-parameters", "adding-tuned-time"]


@pytest.mark.parametrize(
    ("name", "best"),
    [
        ("parameters", [("mgu", "50"), ("mgu", "100"), ("gru", "100")]),
        ("time", [("gru", "50"), ("mgu", "50"), ("mgu", "100"), ("gru", "200"), ("gru", "100")]),
    ],
)
def test_the_frontier_is_what_nothing_beats_for_less(
    name: str, best: list[tuple[str, str]], drawn: dict[str, Figure]
) -> None:
    """By hand: larger is dearer, and a lower error is better."""
    found = rows(drawn[f"adding-tuned-{name}"])
    on_it = {(r["unit"], r["hidden_size"]) for r in found if r["on_frontier"] == "True"}
    assert on_it == set(best)


def test_points_are_means_with_the_spread_over_seeds(drawn: dict[str, Figure]) -> None:
    found = {(r["unit"], int(r["hidden_size"])): r for r in rows(drawn["adding-tuned-parameters"])}
    assert len(found) == len(SWEPT)
    for unit, size, parameters, _, ends in SWEPT:
        row = found[unit, size]
        assert float(row["parameters"]) == parameters
        assert row["seeds"] == "2"
        assert float(row["mean"]) == pytest.approx(sum(ends) / 2)
        assert (float(row["lowest"]), float(row["highest"])) == (min(ends), max(ends))
    seconds = [float(r["seconds"]) for r in rows(drawn["adding-tuned-time"])]
    assert sorted(seconds) == [60 * s for s in (3.0, 4.0, 6.0, 8.0, 9.0)]


def test_times_of_different_machines_are_not_compared(tmp_path: Path) -> None:
    assert list(sweep(tmp_path, {"threads": 1})) == [
        "adding-tuned-curves",
        "adding-tuned-parameters",
    ]


def test_two_costs_are_no_picture(tmp_path: Path) -> None:
    with mock.patch(f"{__name__}.SWEPT", SWEPT[:2]):
        assert list(sweep(tmp_path)) == ["adding-tuned-curves"]


def test_where_high_is_good_the_frontier_rises(tmp_path: Path) -> None:
    for number, end in enumerate((0.5, 0.9, 0.7)):
        made = override(recipe("mnist_rows", "tuned", "mgu"), [f"model.hidden_size={number + 5}"])
        synthetic.finished(tmp_path, made, end, seconds_per_epoch=number + 1.0)
    groups = grouped(synthetic.read(tmp_path))
    best = pareto.frontier(groups, pareto.TIME)
    assert [group.value for group in best] == [0.5, 0.9]


def test_planned_runs_that_were_not_begun_are_named(tmp_path: Path) -> None:
    sweep(tmp_path)
    begun = sorted(path.name for path in tmp_path.iterdir())[0]
    files.write_json(tmp_path / "sweep-1.json", {"threads": 1, "runs": [begun, "adding-x"]})
    (tmp_path / "sweep-2.json").write_text("{")
    assert take(tmp_path).unfinished == (
        inventory.LeftOut("adding-x", "planned by sweep-1.json, not begun yet"),
    )
