"""Grids: every combination once, from options and from files."""

from __future__ import annotations

from pathlib import Path

import pytest

from onegate.lab.recipes import RecipeError
from onegate.lab.sweep import GridError, read_toml
from onegate.lab.sweep.grid import of_options, values_of


def test_every_combination_once_seed_by_seed() -> None:
    grid = of_options(
        ["adding", "adding"], ["optimizer.lr=0.1,0.2", "model.bidirectional=false"],
        units=("mgu", "gru"), hidden=(5, 6, 5), seeds=(3, 1), settings=("length=2",),
    )  # fmt: skip
    made = grid.recipes()
    told = [(r.seed, r.unit, r.model.hidden_size, r.optimizer.lr) for r in made]
    assert told == [
        (seed, unit, size, lr)
        for seed in (3, 1) for unit in ("mgu", "gru") for size in (5, 6) for lr in (0.1, 0.2)
    ]  # fmt: skip
    assert {(r.length, r.model.bidirectional) for r in made} == {(2, False)}


def test_a_file_says_the_same_as_options(tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    path.write_text(
        'task = "adding"\nunits = ["mgu", "gru"]\nhidden = [5, 6]\nseeds = [0, 1]\n'
        '[set]\nlength = 2\n"model.bidirectional" = false\n'
        "[grid]\noptimizer.lr = [0.1, 1e-3]\n"
    )
    options = of_options(
        ["adding"], ["optimizer.lr=0.1,0.001"], units=("mgu", "gru"), hidden=(5, 6), seeds=(0, 1),
        settings=("length=2", "model.bidirectional=false"),
    )  # fmt: skip
    assert read_toml(path).recipes() == options.recipes()
    assert len(options.recipes()) == 16


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("units = [", "is not TOML"),
        ('units = ["mgu"]', "the task is missing"),
        ('task = "adding"\nsize = [1]', "size is not known; expected tasks, recipe, units"),
        ('task = "adding"\nhidden = ["5"]', "hidden is .* expected whole numbers"),
        ('task = "adding"\nseeds = [true]', "seeds is .* expected whole numbers"),
        ('task = "adding"\nunits = []', "units is .* expected names in a list"),
        ('task = "adding"\nrecipe = ["a"]', "recipe is .* expected one name"),
        ('task = "adding"\nset = 3', r"set is 3, expected a table \[set\]"),
        ('task = "adding"\n[grid]\nlength = 3', "grid: length is 3, expected a list of values"),
    ],
)
def test_mistakes_in_a_file_are_named(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    path.write_text(text)
    with pytest.raises(GridError, match=message) as caught:
        read_toml(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(GridError, match=r"no file .*grid\.toml with a grid: task ="):
        read_toml(tmp_path / "grid.toml")


@pytest.mark.parametrize("wrong", ["optimizer.lr", "optimizer.lr=", "length=1,,2"])
def test_fields_need_values(wrong: str) -> None:
    with pytest.raises(GridError, match="expected field=value,value"):
        values_of(wrong)


def test_fields_of_the_grid_are_checked_like_settings() -> None:
    with pytest.raises(RecipeError, match=r"did you mean optimizer\.lr\?"):
        of_options(["adding"], ["optimiser.lr=1"]).recipes()
    with pytest.raises(RecipeError, match="expected a number above 0"):
        of_options(["adding"], ["optimizer.lr=1,-1"]).recipes()
