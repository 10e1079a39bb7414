"""Stand-ins: balanced, disjoint, the same every time, and of the form of what they stand for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onegate.lab import data, recipes, tasks
from onegate.lab.cli import main
from onegate.lab.data import stand_ins
from onegate.lab.recipes import RecipeError


def test_digits_are_balanced_and_no_image_is_in_both_sets() -> None:
    made = stand_ins.digits()
    assert made.train.images.shape == (60_000, 28, 28)
    assert made.train.images.dtype == np.uint8
    assert np.bincount(made.train.labels).tolist() == [6_000] * 10
    assert np.bincount(made.test.labels).tolist() == [1_000] * 10
    train = {image.tobytes() for image in made.train.images}
    assert len(train) == 60_000
    assert not train & {image.tobytes() for image in made.test.images}


def test_digits_have_the_statistics_of_written_ones() -> None:
    """MNIST has a mean of 0.13 and a deviation of 0.31; ink stays within the image."""
    images = stand_ins.digits().train.images[:5_000] / 255
    assert 0.10 < images.mean() < 0.18
    assert 0.25 < images.std() < 0.36
    edge = np.concatenate([images[:, [0, -1]].ravel(), images[:, :, [0, -1]].ravel()])
    assert (edge > 0.5).mean() < 0.005
    columns = images.sum(axis=1)
    centres = (columns * np.arange(28)).sum(axis=1) / columns.sum(axis=1)
    assert 13 < centres.mean() < 14
    assert centres.std() > 0.7  # random places


def test_every_digit_can_be_told_by_its_mean_image_better_than_by_chance() -> None:
    made = stand_ins.digits()
    means = np.stack([made.train.images[made.train.labels == d].mean(axis=0) for d in range(10)])
    images = made.test.images[:1_000].reshape(1_000, -1)
    distances = ((images[:, None] - means.reshape(1, 10, -1)) ** 2).sum(axis=2)
    hits = distances.argmin(axis=1) == made.test.labels[:1_000]
    assert 0.4 < hits.mean() < 0.95  # neither noise nor trivial


def test_pages_say_how_good_guessing_is() -> None:
    text, texts = stand_ins.manual(), stand_ins.documentation()
    guessed = data.unigram_perplexity(text.train, text.test)
    assert f"{round(guessed, -2):.0f}." in stand_ins.notice("ptb", stand_in("ptb"))
    assert np.bincount(texts.test.ratings)[[1, 10]].tolist() == [250, 250]
    assert "50% of" in stand_ins.notice("imdb", stand_in("imdb"))
    assert "10% of" in stand_ins.notice("mnist", stand_in("mnist_rows"))
    assert stand_ins.notice("ptb", recipes.recipe("ptb", "paper", "mgu").data) == ""


def stand_in(task: str) -> object:
    """The data of a recipe on the stand-in."""
    usual = recipes.recipe(task, None, "mgu")
    return recipes.override(usual, tasks.get(task).stand_in).data


def test_the_manual_is_one_text_in_three_disjoint_parts() -> None:
    made = stand_ins.manual()
    assert len(made.train) == 40_000
    assert len(made.valid) > 3_000
    assert len(made.test) > 3_000
    counts = np.bincount(made.train, minlength=len(made.vocabulary))
    assert counts.min() > 0
    assert (np.diff(counts) <= 0).all()
    assert {"<eos>", "<unk>", "the", "python"} <= set(made.vocabulary)
    assert (made.test == made.vocabulary.index("<unk>")).mean() < 0.25
    long = {text for text in _paragraphs(made, made.test) if len(text) > 60}
    assert len(long) > 10
    assert not long & set(_paragraphs(made, made.train))
    assert not long & set(_paragraphs(made, made.valid))


def _paragraphs(made: data.PennTreebank, text: np.ndarray) -> list[str]:
    return " ".join(made.vocabulary[word] for word in text).split(" <eos> ")


def test_documentation_is_balanced_and_disjoint() -> None:
    made = stand_ins.documentation()
    assert (len(made.train), len(made.test)) == (1_500, 500)
    for part in (made.train, made.test):
        assert part.labels.mean() == 0.5
        assert set(part.ratings.tolist()) == {1, 10}
        assert part.texts.lengths.min() > 3
    train = {made.train.texts[i].tobytes() for i in range(1_500)}
    assert len(train) == 1_500
    same = [i for i in range(500) if made.test.texts[i].tobytes() in train]
    assert not same


def test_bags_hold_the_words_of_the_texts() -> None:
    made = stand_ins.documentation().test
    for number in (0, 249, 499):
        words, counts = np.unique(made.texts[number], return_counts=True)
        assert made.words[number].tolist() == words.tolist()
        assert made.counts[number].tolist() == counts.tolist()


def test_they_are_the_same_every_time() -> None:
    masks = stand_ins._masks()
    once, again = (stand_ins._draw(masks, 50, stream=1) for _ in range(2))
    assert (once[0] == again[0]).all()
    assert (once[1] == again[1]).all()
    assert (once[0] != stand_ins._draw(masks, 50, stream=0)[0]).any()
    texts = [stand_ins._numbered_manual() for _ in range(2)]
    assert all((texts[0][name] == texts[1][name]).all() for name in texts[0])


def test_the_choice_stands_in_the_recipe_and_leaves_others_as_they_were() -> None:
    for name, task in tasks.TASKS.items():
        for asked in task.recipes:
            real = recipes.recipe(name, asked, "mgu")
            assert "source" not in recipes.to_json(real)["data"]
            if task.stand_in:
                made = recipes.override(real, task.stand_in)
                kept = recipes.to_json(made)
                assert kept["data"]["source"] == "stand-in"
                assert recipes.from_json(kept) == made
                assert any("source" in part for part in recipes.difference(real, made))


def test_more_than_there_is_cannot_be_asked_for() -> None:
    with pytest.raises(RecipeError, match="40,000 words"):
        recipes.override(recipes.recipe("ptb", "paper", "mgu"), ["data.source=stand-in"])
    with pytest.raises(RecipeError, match="1,500 training texts"):
        recipes.override(recipes.recipe("imdb", "tuned", "mgu"), ["data.source=stand-in"])


@pytest.mark.parametrize("name", ["imdb", "mnist_rows", "mnist_pixels", "mnist_permuted", "ptb"])
def test_tasks_read_them(name: str) -> None:
    task = tasks.TASKS[name]
    asked = recipes.override(recipes.recipe(name, task.usual, "mgu"), task.stand_in)
    loaded = tasks.load(asked)
    assert loaded.splits == {"train", "valid", "test"}
    first = next(iter(loaded.evaluation("test")))
    view = task.view(asked.data, 0, first.inputs[:, 0], first.targets[..., 0])
    assert view.steps == len(first.inputs)


def test_the_command_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data"]) == 0
    told = capsys.readouterr().out
    for name, title in stand_ins.TITLES.items():
        assert f"{name} stand-in\there" in told
        assert title in told


def test_a_stand_in_is_not_taken_for_the_parsed_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("ONEGATE_DATA", raising=False)
    stand_ins.documentation()
    assert main(["data"]) == 0
    told = capsys.readouterr().out
    assert "imdb\tmissing\t\tno\t" in told
    assert "imdb stand-in\there\t\tyes\t" in told


def test_pages_say_what_is_a_stand_in() -> None:
    for name, task in tasks.TASKS.items():
        real = recipes.recipe(name, task.usual, "mgu")
        assert task.stands_in(real.data) == ""
        if task.stand_in:
            made = recipes.override(real, task.stand_in)
            assert stand_ins.TITLES[task.source] in task.stands_in(made.data)


def test_a_task_that_needs_none_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "adding", "--data", "stand-in"]) == 2
    assert "adding has no stand-in" in capsys.readouterr().err
