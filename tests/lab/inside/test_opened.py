"""Runs opened again: the weights before and after training, and what cannot be opened."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from onegate.lab.inside.opened import open_run
from onegate.lab.runs import RunError
from onegate.lab.train.loop import Trainer
from tests.lab.inside.conftest import small_recipes

pytestmark = pytest.mark.usefixtures("small")


@pytest.mark.parametrize("name", small_recipes())
def test_the_initial_model_is_that_of_training(runs: Path, name: str) -> None:
    opened = open_run(runs / name)
    started = Trainer(opened.recipe, opened.task).model
    for ours, theirs in zip(opened.initial.parameters(), started.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert not opened.trained.training
    assert not opened.initial.training


@pytest.mark.parametrize("name", small_recipes())
def test_the_trained_model_is_the_one_that_counts(runs: Path, name: str) -> None:
    opened = open_run(runs / name)
    measured = Trainer(opened.recipe, opened.task)
    measured.model = opened.trained
    for metric, value in measured.measure("test").items():
        assert value == pytest.approx(opened.run.result[metric], rel=1e-5)


def test_opening_leaves_the_random_numbers_alone(runs: Path) -> None:
    before = torch.get_rng_state()
    open_run(runs / "rows-mgu")
    assert torch.equal(torch.get_rng_state(), before)


def test_what_is_no_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"holds no run: recipe\.json is missing"):
        open_run(tmp_path)
    with pytest.raises(RunError, match=r"there is no folder .*nowhere: give the folder of a run"):
        open_run(tmp_path / "nowhere")


def test_a_run_without_a_checkpoint_is_said(runs: Path, tmp_path: Path) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(runs / "rows-mgu", copied)
    shutil.rmtree(copied / "checkpoints")
    with pytest.raises(RunError, match=r"there is no checkpoint .*copied.*\. Train it again"):
        open_run(copied)
    (copied / "status.json").write_text('{"state": "running", "update": 0}')
    with pytest.raises(RunError, match="has no checkpoint: the run has to get further first"):
        open_run(copied)


def test_a_recipe_of_others_that_is_none_is_named(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(runs / "rows-mgu", folder)
    text = (folder / "recipe.json").read_text()
    (folder / "recipe.json").write_text(text.replace('"tuned"', '"<script>"'))
    with pytest.raises(RunError, match=r"run/recipe\.json: name='<script>': expected a name"):
        open_run(folder)
