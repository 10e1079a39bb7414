"""Curves: mean and band over seeds, on the paper's axes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from onegate.lab.recipes import recipe
from onegate.lab.report.curves import axis, curve, quantity
from onegate.lab.report.groups import Group, grouped
from tests.lab.report import synthetic


def group(root: Path) -> Group:
    (found,) = grouped(synthetic.read(root))
    return found


@pytest.mark.parametrize(
    ("task", "name", "ends_at", "label"),
    [
        ("adding", "paper", 1000, "epoch"),
        ("imdb", "paper", 160, "epoch / 100"),
        ("imdb", "flow", 160, "epoch / 100 of the paper"),
        ("mnist_rows", "flow", 160, "epoch / 100 of the paper"),
        ("mnist_pixels", "flow", 160, "epoch / 100 of the paper"),
        ("mnist_rows", "tuned", None, "epoch"),
        ("ptb", "paper", None, "passes over the text (the paper's epoch / 1,316)"),
    ],
)
def test_axes_are_the_papers(
    tmp_path: Path, task: str, name: str, ends_at: float | None, label: str
) -> None:
    """The paper's runs on IMDB and MNIST are 16,000 epochs long, its figures divide by 100."""
    synthetic.seeds(tmp_path, task, name, "mgu", [0.5])
    only = group(tmp_path)
    shown = axis(only)
    x = curve(only, shown, f"valid_{only.metric.name}").x
    assert x[-1] == pytest.approx(ends_at or only.recipe.length)
    assert shown.label == label
    if name == "flow":
        assert shown.second is not None
        assert x[-1] * shown.second[1] == pytest.approx(only.recipe.length)


def test_a_shorter_flow_is_a_part_of_the_axis(tmp_path: Path) -> None:
    quarter = recipe("mnist_rows", "flow", "mgu").length / 4
    synthetic.seeds(tmp_path, "mnist_rows", "flow", "mgu", [0.5], [f"length={quarter}"])
    only = group(tmp_path)
    assert curve(only, axis(only), "test_accuracy").x[-1] == pytest.approx(40)


def test_mean_and_band_over_seeds(tmp_path: Path) -> None:
    synthetic.seeds(tmp_path, "adding", "paper", "mgu", [0.004, 0.005, 0.009], points=4)
    only = group(tmp_path)
    line = curve(only, axis(only), "test_mse")
    assert list(line.x) == [250, 500, 750, 1000]
    single = np.array([run.curve("epoch", "test_mse")[1] for run in only.runs])
    assert single.shape == (3, 4)
    np.testing.assert_allclose(line.mean, single.sum(axis=0) / 3)
    assert (line.mean[-1], line.low[-1], line.high[-1]) == (pytest.approx(0.006), 0.004, 0.009)


def test_only_points_that_all_seeds_have_are_drawn(tmp_path: Path) -> None:
    synthetic.seeds(tmp_path, "adding", "paper", "mgu", [0.004, 0.005], points=4)
    only = group(tmp_path)
    first, second = only.runs
    shorter = Group((first, replace(second, metrics=second.metrics[1:])))
    assert list(curve(shorter, axis(shorter), "test_mse").x) == [500, 750, 1000]


def test_what_is_drawn_is_what_all_groups_have(tmp_path: Path) -> None:
    synthetic.seeds(tmp_path / "a", "adding", "paper", "mgu", [0.004])
    synthetic.seeds(tmp_path / "b", "adding", "tuned", "mgu", [0.004])
    with_test, without = group(tmp_path / "a"), group(tmp_path / "b")
    assert quantity([with_test]) == "test_mse"
    assert quantity([with_test, without]) == "valid_mse"
    bare = Group(tuple(replace(run, metrics=()) for run in without.runs))
    assert quantity([bare]) is None
