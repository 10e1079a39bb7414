"""Examples as a model reads them and as a reader sees them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from onegate.lab import data, tasks
from onegate.lab.inside import examples
from onegate.lab.inside.opened import InspectError, open_run
from onegate.lab.recipes import override, recipe
from onegate.lab.tasks import LoadedExamples
from tests.lab import small_data

pytestmark = pytest.mark.usefixtures("small")


def test_digits_are_shown_as_they_were(runs: Path) -> None:
    opened = open_run(runs / "rows-mgu")
    chosen, state = examples.batch(opened.task, opened.trained, [3, 0])
    assert state is None
    views = examples.views(opened.task, [3, 0], chosen)
    digits = small_data.mnist().test
    for view, number in zip(views, (3, 0), strict=True):
        assert view.number == number
        assert view.answer == f"digit {digits.labels[number]}"
        assert view.image is not None
        expected = digits.images[number] / digits.images[number].max()
        np.testing.assert_allclose(view.image, expected, atol=0.01)
        assert view.pixels is not None
        assert view.pixels[2].tolist() == list(range(56, 84))


def test_permuted_pixels_are_put_back_in_place() -> None:
    settings = ["data.train=20", "data.valid=10", "data.test=10", "data.permutation_seed=3"]
    made = override(recipe("mnist_permuted", "tuned", "mgu"), settings)
    task = tasks.load(made)
    assert isinstance(task, tasks.LoadedExamples)
    chosen = task.sets["test"].batch(np.array([4]))
    (view,) = examples.views(task, [4], chosen)
    image = small_data.mnist().test.images[4]
    assert view.image is not None
    np.testing.assert_allclose(view.image, image / image.max(), atol=0.01)
    read = data.permuted(image[None], 3)[0, :, 0]
    assert view.pixels is not None
    assert image.reshape(-1)[view.pixels[:, 0]].tolist() == read.tolist()


def test_marked_numbers(runs: Path) -> None:
    opened = open_run(runs / "adding-lstm")
    chosen, _ = examples.batch(opened.task, opened.trained, [5])
    (view,) = examples.views(opened.task, [5], chosen)
    assert view.numbers is not None
    assert view.marked is not None
    assert view.marked.sum() == 2
    assert view.answer == f"sum {view.numbers[view.marked].sum():.3f}"
    assert view.steps == len(view.numbers) == int(chosen.lengths[0])  # type: ignore[index]


def test_words_of_reviews(runs: Path) -> None:
    opened = open_run(runs / "imdb-simple")
    assert isinstance(opened.task, tasks.LoadedExamples)
    chosen, _ = examples.batch(opened.task, opened.trained, [1, 7])
    views = examples.views(opened.task, [1, 7], chosen)
    for view, column in zip(views, (0, 1), strict=True):
        words = chosen.inputs[: view.steps, column].tolist()
        assert list(view.words) == ["<unknown>" if w == 1 else f"w{w - 2}" for w in words]
        assert view.answer == ("positive" if "w7" in view.words else "negative")


def test_a_text_is_read_on_from_the_segments_before(runs: Path) -> None:
    """Losses and start states of examples are those of the whole text read in one go."""
    opened = open_run(runs / "ptb-gru")
    numbers = [1, 4, 11]  # columns 1, 0 and 3 of the segments 0, 1 and 2
    assert examples.count(opened.task) == (300 // 4 - 1) // 7 * 4
    chosen, state = examples.batch(opened.task, opened.trained, numbers)
    views = examples.views(opened.task, numbers, chosen)
    text = small_data.ptb().test
    columns = text[: len(text) // 4 * 4].reshape(4, -1)
    for view, (column, start) in zip(views, ((1, 0), (0, 7), (3, 14)), strict=True):
        assert list(view.words) == [str(w) for w in columns[column, start : start + 7]]
    model = opened.trained
    with torch.no_grad():
        outputs, _ = model(torch.from_numpy(columns.astype(np.int64)).T[:21])
        found, _ = model(chosen.inputs, state)
    torch.testing.assert_close(found[:, 2], outputs[14:21, 3])
    torch.testing.assert_close(found[:, 1], outputs[7:14, 0])


def test_the_loss_at_the_end_of_a_text_is_the_last_words(runs: Path) -> None:
    opened = open_run(runs / "ptb-gru")
    chosen, state = examples.batch(opened.task, opened.trained, [0, 1])
    outputs, _ = opened.trained(chosen.inputs, state)
    logits = opened.trained.head(outputs)  # type: ignore[operator]
    expected = cross_entropy(logits[-1], chosen.targets[-1], reduction="sum")
    found = examples.loss_at_the_end(opened.trained, chosen, state)
    torch.testing.assert_close(found, expected)
    perplexity = cross_entropy(logits[:, 1], chosen.targets[:, 1]).exp()
    assert (
        examples.answers(opened.task, opened.trained, chosen, state)[1]
        == f"perplexity {perplexity:,.0f} here"
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [("rows-mgu", "reads it as"), ("adding-lstm", "answers"), ("imdb-simple", "judges it")],
)
def test_answers_in_words(runs: Path, name: str, words: str) -> None:
    opened = open_run(runs / name)
    chosen = examples.batch(opened.task, opened.trained, [0, 1, 2])
    found = examples.answers(opened.task, opened.trained, *chosen)
    assert len(found) == 3
    assert all(answer.startswith(words) for answer in found)
    scored = opened.trained.score(*chosen)[0]
    if name == "rows-mgu":
        targets = [f"reads it as {target}" for target in chosen[0].targets.tolist()]
        assert sum(map(str.__eq__, found, targets)) == scored.correct


@pytest.mark.parametrize("number", [-1, 20, 1000])
def test_unknown_examples_are_refused(runs: Path, number: int) -> None:
    opened = open_run(runs / "rows-mgu")
    with pytest.raises(InspectError, match=f"no example {number}: the test set has 20, .* to 19"):
        examples.batch(opened.task, opened.trained, [0, number])


def test_digits_by_name(runs: Path) -> None:
    opened = open_run(runs / "rows-mgu")
    labels = small_data.mnist().test.labels[:20].tolist()
    digits = sorted(set(labels))[:3]
    assert examples.of_digits(opened.task, digits) == [labels.index(digit) for digit in digits]
    with pytest.raises(InspectError, match="the test set has no digit 12; it has "):
        examples.of_digits(opened.task, [12])


def test_a_task_without_images_has_no_digits(runs: Path) -> None:
    opened = open_run(runs / "adding-lstm")
    with pytest.raises(InspectError, match=r"images of digits, and adding has none; .*--examples"):
        examples.of_digits(opened.task, [7])


def test_some_of_every_class_in_turn(runs: Path) -> None:
    for name in ("rows-mgu", "imdb-simple"):
        task = open_run(runs / name).task
        assert isinstance(task, LoadedExamples)
        targets = np.asarray(task.sets["test"].targets)
        chosen = examples.varied(task, 9)
        assert len(set(chosen)) == len(chosen) == 9
        classes = np.unique(targets)
        first = targets[chosen[: len(classes)]]
        assert first.tolist() == classes[: len(first)].tolist()
        assert sorted(examples.varied(task, 1000)) == list(range(len(targets)))
    assert examples.varied(open_run(runs / "adding-lstm").task, 3) == [0, 1, 2]
