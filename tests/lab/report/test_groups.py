"""Runs that differ in their seed alone are one group."""

from __future__ import annotations

from pathlib import Path

import pytest

from onegate.lab.recipes import recipe
from onegate.lab.report.groups import Group, closest, grouped, labels
from tests.lab.report import synthetic


def read(root: Path) -> list[Group]:
    return grouped(synthetic.read(root))


def test_seeds_are_taken_together_and_nothing_else(tmp_path: Path) -> None:
    synthetic.seeds(tmp_path, "mnist_rows", "flow", "mgu", [0.87, 0.88, 0.92])
    synthetic.seeds(tmp_path, "mnist_rows", "flow", "gru", [0.86])
    synthetic.seeds(tmp_path, "mnist_rows", "flow", "mgu", [0.5], ["optimizer.lr=0.0123"])
    gru, mgu, changed = read(tmp_path)
    assert (gru.unit, mgu.unit, changed.unit) == ("gru", "mgu", "mgu")
    assert mgu.seeds == (0, 1, 2)
    assert mgu.values("test_accuracy") == [0.87, 0.88, 0.92]
    assert mgu.value == pytest.approx((0.87 + 0.88 + 0.92) / 3)
    # Squared distances from the mean 0.89: 0.0004, 0.0001, 0.0009; by n - 1 = 2.
    assert mgu.spread("test_accuracy") == pytest.approx(0.0007**0.5)
    assert gru.spread("test_accuracy") is None
    assert mgu.changes == ()
    named = recipe("mnist_rows", "flow", "mgu").optimizer.lr
    assert changed.changes == (("optimizer.lr", named, 0.0123),)


def test_published_values_belong_to_a_size(tmp_path: Path) -> None:
    synthetic.seeds(tmp_path, "ptb", "paper", "mgu", [100.0], ["model.hidden_size=400"])
    synthetic.seeds(tmp_path, "ptb", "paper", "mgu", [100.0], ["model.hidden_size=123"])
    found = {group.hidden_size: group.published() for group in read(tmp_path)}
    assert found[123] is None
    assert found[400] is not None
    assert found[400].printed == "106.02"


def test_the_group_that_stands_for_a_unit_is_not_chosen_by_its_result(tmp_path: Path) -> None:
    synthetic.seeds(tmp_path, "ptb", "paper", "mgu", [140.0])
    synthetic.seeds(tmp_path, "ptb", "paper", "mgu", [90.0], ["model.hidden_size=600"])
    synthetic.seeds(tmp_path, "ptb", "paper", "mgu", [80.0], ["length=3"])
    synthetic.seeds(tmp_path, "ptb", "tuned", "mgu", [70.0])
    chosen = closest(read(tmp_path), "mgu", ("paper", "flow"))
    assert chosen is not None
    assert chosen.value == 140.0
    assert closest(read(tmp_path), "gru", ("paper", "flow")) is None


def test_the_recipe_as_it_stands_goes_before_its_size(tmp_path: Path) -> None:
    synthetic.seeds(tmp_path, "ptb", "paper", "mgu", [120.0], ["model.hidden_size=50"])
    synthetic.seeds(tmp_path, "ptb", "paper", "mgu", [80.0], ["length=3"])
    chosen = closest(read(tmp_path), "mgu", ("paper", "flow"))
    assert chosen is not None
    assert chosen.hidden_size == 50


def test_labels_tell_groups_apart(tmp_path: Path) -> None:
    for reading in ("bag_count", "bag_index"):  # the first is the recipe's
        synthetic.seeds(tmp_path, "imdb", "flow", "mgu", [0.5], [f"data.input={reading}"])
    assert sorted(labels(read(tmp_path))) == ["MGU", "MGU, input bag_index"]
    settings = ["model.hidden_size=50", "data.input=bag_count"]
    synthetic.seeds(tmp_path, "imdb", "flow", "gru", [0.5], settings)
    assert sorted(labels(read(tmp_path))) == [
        "GRU, 50 neurons",
        "MGU, 100 neurons",
        "MGU, 100 neurons, input bag_index",
    ]
    assert labels(read(tmp_path)[:1]) in (["GRU"], ["MGU"])


def test_labels_leave_out_what_all_groups_share(tmp_path: Path) -> None:
    for unit, lr in (("mgu", 0.1), ("gru", 0.1), ("mgu", 0.2)):
        settings = ["length=3", f"optimizer.lr={lr}"]
        synthetic.seeds(tmp_path, "imdb", "flow", unit, [0.5], settings)
    assert sorted(labels(read(tmp_path))) == ["GRU, lr 0.1", "MGU, lr 0.1", "MGU, lr 0.2"]


def test_what_is_only_watched_is_no_change(tmp_path: Path) -> None:
    watched = ["evaluate_every=7", "test_curve=false"]
    synthetic.seeds(tmp_path / "last", "adding", "paper", "mgu", [0.1], watched)
    synthetic.seeds(tmp_path / "best", "adding", "tuned", "mgu", [0.1], watched)
    (last,), (best,) = read(tmp_path / "last"), read(tmp_path / "best")
    assert [change.path for change in last.differences] == ["evaluate_every", "test_curve"]
    assert last.is_as_named
    # Which model is the best depends on when it is looked for.
    assert [change.path for change in best.changes] == ["evaluate_every"]
