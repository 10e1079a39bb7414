"""Small trained runs of several tasks, and pages on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from onegate.lab.inside import writing
from onegate.lab.recipes import Recipe, override, recipe
from onegate.lab.train import session
from tests.lab import small_data

_IMAGES = ["data.train=100", "data.valid=20", "data.test=20", "batch_size=50", "length=2"]
_SIZE = "model.hidden_size=6"
_SHORT = "schedule.warmup=0"  # a few updates are to change something


def small_recipes() -> dict[str, Recipe]:
    made = {
        "rows-mgu": override(recipe("mnist_rows", "tuned", "mgu"), [*_IMAGES, _SIZE]),
        "rows-gru": override(recipe("mnist_rows", "tuned", "gru"), [*_IMAGES, _SIZE]),
        "adding-lstm": override(
            recipe("adding", "tuned", "lstm"), [*_IMAGES, _SIZE, "model.bidirectional=true"]
        ),
        "imdb-simple": override(
            recipe("imdb", "tuned", "simple"),
            [*_IMAGES, _SIZE, "model.embedding=4", "data.vocabulary=200"],
        ),
        "ptb-gru": override(
            recipe("ptb", "tuned", "gru"),
            ["data.train=1000", "data.steps=7", "batch_size=4", _SIZE, "model.embedding=6",
             "length=1"],
        ),
    }  # fmt: skip
    return {name: override(each, [_SHORT]) for name, each in made.items()}


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with a run of each of the recipes."""
    root = tmp_path_factory.mktemp("inspected")
    with pytest.MonkeyPatch.context() as patch:
        small_data.use(patch)
        for name, made in small_recipes().items():
            session.train(made, root / name)
    return root


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The data sets that the runs were trained on."""
    small_data.use(monkeypatch)


@pytest.fixture(scope="session")
def pages(runs: Path) -> dict[str, Path]:
    """Pages by name: two runs on digits, one on words, one on numbers in both directions."""
    wanted = {
        "digits": ["rows-mgu", "rows-gru"],
        "text": ["ptb-gru"],
        "reviews": ["imdb-simple"],
        "numbers": ["adding-lstm"],
    }
    with pytest.MonkeyPatch.context() as patch:
        small_data.use(patch)
        return {
            name: writing.write([runs / run for run in of], runs / "pages" / name)
            for name, of in wanted.items()
        }
