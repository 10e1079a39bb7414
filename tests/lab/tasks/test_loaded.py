"""From recipes to batches: every example, in the right shape and order."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from onegate.lab import data, tasks
from onegate.lab.recipes import Recipe, override, recipe
from onegate.lab.tasks import Split
from tests.lab import small_data


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    small_data.use(monkeypatch)


def asked(task: str, name: str, *settings: str) -> Recipe:
    return override(recipe(task, name, "mgu"), settings)


ADDING = asked(
    "adding", "tuned", "data.train=205", "data.valid=30", "data.test=31", "batch_size=20"
)
ROWS = asked(
    "mnist_rows", "flow", "data.train=400", "data.valid=100", "data.test=60", "batch_size=30"
)
IMDB = asked("imdb", "tuned", "data.train=50", "data.valid=10", "data.test=20", "batch_size=8",
             "data.vocabulary=100")  # fmt: skip
PTB = asked("ptb", "paper", "data.train=1_500", "data.steps=7", "batch_size=4")


def test_adding_batches_hold_every_example_once_with_its_length() -> None:
    task = tasks.load(ADDING)
    assert task.updates_per_epoch == 11
    made = data.adding(0, 205, 31, 30).train
    seen = []
    for batch in task.training(0, 0):
        assert batch.lengths is not None
        assert batch.inputs.shape[0] == batch.lengths.max()
        for column, length in enumerate(batch.lengths):
            sequence = batch.inputs[:, column]
            assert not sequence[length:].any()
            assert sequence[length - 1, 1] == -1
            marked = sequence[:, 1] == 1
            assert sequence[marked, 0].sum() == pytest.approx(float(batch.targets[column]))
            seen.append(float(batch.targets[column]))
    assert sorted(seen) == sorted(made.targets.tolist())


@pytest.mark.parametrize("wanted", [ADDING, ROWS, IMDB, PTB], ids=lambda r: r.task)
def test_an_epoch_can_be_entered_anywhere(wanted: Recipe) -> None:
    task = tasks.load(wanted)
    whole = list(task.training(3, 0))
    assert len(whole) == task.updates_per_epoch
    for start in (1, len(whole) - 1, len(whole)):
        rest = list(task.training(3, start))
        assert len(rest) == len(whole) - start
        for one, other in zip(rest, whole[start:], strict=True):
            assert torch.equal(one.inputs, other.inputs)
            assert torch.equal(one.targets, other.targets)


@pytest.mark.parametrize("wanted", [ADDING, ROWS, IMDB], ids=lambda r: r.task)
def test_order_depends_on_seed_and_epoch_not_on_the_unit(wanted: Recipe) -> None:
    def first(recipe: Recipe, epoch: int) -> list[float]:
        return next(tasks.load(recipe).training(epoch, 0)).targets.tolist()

    assert first(wanted, 0) == first(override(wanted, ["unit=gru"]), 0)
    assert first(wanted, 0) != first(wanted, 1)
    assert first(wanted, 0) != first(override(wanted, ["seed=1"]), 0)


@pytest.mark.parametrize("wanted", [ADDING, ROWS, IMDB], ids=lambda r: r.task)
@pytest.mark.parametrize("split", ["valid", "test"])
def test_evaluation_sees_every_example_once(wanted: Recipe, split: Split) -> None:
    task = tasks.load(wanted)
    count = sum(batch.columns for batch in task.evaluation(split))
    assert count == getattr(wanted.data, split)


@pytest.mark.parametrize(
    ("task", "shape"),
    [("mnist_rows", (28, 28)), ("mnist_pixels", (784, 1)), ("mnist_permuted", (784, 1))],
)
def test_images_become_sequences(task: str, shape: tuple[int, int]) -> None:
    settings = ("data.train=400", "data.valid=100", "data.test=60")
    loaded = tasks.load(asked(task, "flow", *settings))
    steps, width = shape
    assert (loaded.shape.steps, loaded.shape.inputs) == shape
    images = small_data.mnist().test.images[:60].reshape(60, -1) / 255
    (batch,) = loaded.evaluation("test")
    assert batch.inputs.shape == (steps, 60, width)
    assert batch.lengths is None
    found = batch.inputs.transpose(0, 1).reshape(60, -1).numpy()
    if task == "mnist_permuted":
        assert not np.allclose(found, images)
        found, images = np.sort(found), np.sort(images)
    np.testing.assert_allclose(found, images, rtol=1e-6)


def test_pixels_can_be_standardised() -> None:
    settings = ("data.train=400", "data.valid=100", "data.scaling=standard")
    (batch, *_) = tasks.load(asked("mnist_rows", "flow", *settings)).evaluation("test")
    image = small_data.mnist().test.images[0] / 255
    expected = (image - 0.1307) / 0.3081
    np.testing.assert_allclose(batch.inputs[:, 0].numpy(), expected, rtol=1e-5, atol=1e-6)


def test_training_and_validation_images_are_different_ones() -> None:
    task = tasks.load(ROWS)
    learned = {bytes(b.inputs[:, i].numpy()) for b in task.training(0, 0) for i in range(b.columns)}
    held = {
        bytes(b.inputs[:, i].numpy()) for b in task.evaluation("valid") for i in range(b.columns)
    }
    assert len(learned) == 400
    assert len(held) == 100
    assert not learned & held


def test_reviews_as_words() -> None:
    task = tasks.load(IMDB)
    assert task.shape.inputs == 100 + data.FIRST_WORD
    wanted = {1: 7 + data.FIRST_WORD, 0: 8 + data.FIRST_WORD}
    for batch in task.training(0, 0):
        assert batch.lengths is not None
        assert batch.inputs.dtype == torch.int64
        for column, length in enumerate(batch.lengths):
            assert wanted[int(batch.targets[column])] in batch.inputs[:length, column]
            assert (batch.inputs[length:, column] == data.PAD).all()
            assert (batch.inputs[:length, column] != data.PAD).all()


@pytest.mark.parametrize(("keep", "at"), [("first", 0), ("last", -1)])
def test_long_reviews_keep_one_end(keep: str, at: int) -> None:
    task = tasks.load(override(IMDB, [f"data.long={keep}", "data.length=4", "data.test=40"]))
    texts = small_data.imdb().test.texts
    expected = [int(data.keep_frequent(texts, 100)[i][at]) for i in range(40)]
    (batch,) = task.evaluation("test")
    assert batch.lengths is not None
    assert len(batch.inputs) == 4
    found = [int(batch.inputs[0 if at == 0 else n - 1, c]) for c, n in enumerate(batch.lengths)]
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("form", ["word_rank", "bag_index", "bag_count", "frequent_count"])
def test_reviews_as_one_number_a_step(form: str) -> None:
    settings = ("data.train=60", "data.test=40", f"data.input={form}", "data.length=10",
                "data.scale=0.5")  # fmt: skip
    task = tasks.load(asked("imdb", "flow", *settings))
    part = small_data.imdb().test
    (batch,) = task.evaluation("test")
    assert batch.inputs.shape == (10, 40, 1)
    sequences = {"word_rank": part.texts, "bag_index": part.words, "bag_count": part.counts}
    rows = []
    for i in range(40):
        if form == "frequent_count":
            counts = dict(zip(part.words[i].tolist(), part.counts[i].tolist(), strict=True))
            rows.append([counts.get(word, 0) / 2 for word in range(10)])
        else:
            values = sequences[form][i][:10].tolist()
            rows.append([v / 2 for v in values] + [0.0] * (10 - len(values)))
    assert sorted(batch.inputs[:, :, 0].T.tolist()) == sorted(rows)


def test_long_reviews_can_be_left_out_and_padding_read_as_zeros() -> None:
    settings = ("data.train=60", "data.test=40", "data.input=word_rank", "data.length=8",
                "data.long=drop", "data.padding=zeros")  # fmt: skip
    task = tasks.load(asked("imdb", "flow", *settings))
    (batch,) = task.evaluation("test")
    short = int((small_data.imdb().test.texts.lengths < 8).sum())
    assert batch.inputs.shape == (8, short, 1)
    assert batch.lengths is None


def test_part_of_the_reviews_has_both_classes() -> None:
    (batch,) = tasks.load(IMDB).evaluation("test")
    assert batch.targets.sum() == 10


def test_text_is_read_in_columns_in_order() -> None:
    task = tasks.load(PTB)
    text = small_data.ptb().train[:1_500]
    columns = np.stack([text[i * 375 : (i + 1) * 375] for i in range(4)], axis=1)
    batches = list(task.training(0, 0))
    assert len(batches) == task.updates_per_epoch == 54
    inputs, targets = (torch.cat([getattr(b, n) for b in batches]) for n in ("inputs", "targets"))
    assert torch.equal(inputs, torch.from_numpy(columns[:-1]).long())
    assert torch.equal(targets, torch.from_numpy(columns[1:]).long())
    assert task.items(batches[0]) == 28
