"""A task of one's own: registered, trained, compared, reported, looked into."""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onegate.lab import compare, report, sweep, tasks
from onegate.lab.inside import examples, writing
from onegate.lab.recipes import Recipe, RecipeError, from_json, override, recipe, summary, to_json
from onegate.lab.runs import Run, run_name
from onegate.lab.tasks import MSE, PERPLEXITY, TASKS, Generated, Metric, Task, register
from onegate.lab.train.session import train
from tests.lab.report.reading import ReadPage
from tests.lab.sweep.made import run_quickly

ROOT = Path(__file__).parents[3]
SMALL = ["data.train=40", "data.valid=20", "data.test=12", "model.hidden_size=5", "batch_size=10",
         "length=2"]  # fmt: skip


class Last(Task):
    """The last word of some, given as a list of lists."""

    name = "last_word"
    about = "Which word came last?"
    vocabulary = ("a", "b", "c")
    classes = ("first", "second", "third")

    def sets(self, options: Any) -> dict[Any, Any]:
        rng = np.random.default_rng(options.seed)
        sets = {}
        for split in ("train", "valid", "test"):
            lengths = rng.integers(2, 7, size=getattr(options, split))
            words = [rng.integers(3, size=length).tolist() for length in lengths]
            sets[split] = words, [one[-1] for one in words]
        return sets


class Fixed(Task):
    """Gives what it is told to."""

    name = "fixed"
    given: Mapping[str, Any]

    def sets(self, options: Any) -> Any:
        return self.given


@pytest.fixture(autouse=True)
def own() -> Iterator[None]:
    """The registry as it was, afterwards."""
    before = dict(TASKS)
    register(Last)
    yield
    TASKS.clear()
    TASKS.update(before)


def asked(unit: str = "mgu", *settings: str) -> Recipe:
    return override(recipe("last_word", None, unit), [*SMALL, *settings])


def fixed(given: Mapping[str, Any], *settings: str, **more: Any) -> tasks.Loaded:
    TASKS.pop("fixed", None)
    register(type("Fixed", (Fixed,), {"given": given, **more}))
    return tasks.load(override(recipe("fixed", "default", "mgu"), settings))


def test_the_usual_recipe_is_its_own() -> None:
    made = recipe("last_word", None, "gru")
    assert (made.task, made.name, made.unit) == ("last_word", "default", "gru")
    assert made.model.embedding > 0
    assert summary("last_word", "default").startswith("Adam")
    assert from_json(json.loads(json.dumps(to_json(made)))) == made
    assert run_name(made).startswith("last_word-default-gru-64-s0-")
    assert recipe("adding", None, "gru").name == "tuned"


def test_a_task_is_told_by_its_name() -> None:
    assert (TASKS["last_word"].title, TASKS["last_word"].short) == ("Last word", "last word")


def test_lists_become_padded_batches() -> None:
    loaded = tasks.load(asked())
    given = TASKS["last_word"].sets(asked().data)["train"]
    assert (loaded.shape.inputs, loaded.shape.outputs, loaded.shape.steps) == (3, 3, 0)
    found = []
    for batch in loaded.training(0, 0):
        assert batch.lengths is not None
        assert len(batch.inputs) == batch.lengths.max()
        for column, length in enumerate(batch.lengths.tolist()):
            words = batch.inputs[:length, column].tolist()
            assert words[-1] == batch.targets[column]
            found.append(words)
    assert sorted(found) == sorted(given[0])


def test_all_states_side_by_side_need_one_length() -> None:
    loaded = tasks.load(asked("mgu", "model.readout=all"))
    assert loaded.shape.steps == 6
    assert {len(batch.inputs) for batch in loaded.training(0, 0)} == {6}


def test_trained_reported_and_looked_into(tmp_path: Path) -> None:
    for unit in ("mgu", "lstm"):
        result = train(asked(unit), tmp_path / "runs" / unit)
        assert 0 <= result["test_accuracy"] <= 1
    assert result["parameters_paper"] == result["parameters"]
    page = ReadPage(report.write(tmp_path / "runs", tmp_path / "report").read_text())
    section = page.sections["last_word"]
    assert "Which word came last?" in section.text
    assert "Not run" not in section.text
    rows = section.table("Results").rows[1:]
    assert [row[0].text.rstrip("1") for row in rows] == ["default, MGU", "default, LSTM"]
    glance = [row[0].text for row in page.sections["glance"].table("Results").rows]
    assert {"Last word, MGU", "Last word, LSTM"} <= set(glance)
    written = writing.write([tmp_path / "runs" / "mgu"], tmp_path / "inside", [0, 3])
    text = written.read_text().split('id="data">')[1].split("</script>")[0]
    first = json.loads(text)["examples"][0]
    words, target = (part[0] for part in TASKS["last_word"].sets(asked().data)["test"])
    assert first["words"] == ["abc"[word] for word in words]
    assert first["answer"] == ("first", "second", "third")[target]
    assert first["answers"][0][0].startswith("answers ")


def test_a_task_that_was_not_run_is_no_section_of_the_report(tmp_path: Path) -> None:
    made = override(recipe("adding", "tuned", "mgu"), [*SMALL])
    train(made, tmp_path / "runs" / "one")
    page = ReadPage(report.write(tmp_path / "runs", tmp_path / "report").read_text())
    assert "last_word" not in page.sections
    assert {"adding", "mnist_permuted"} <= set(page.sections)


def test_compared_and_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_quickly(monkeypatch)
    request = compare.Request("last_word", "default", seeds=(0,), settings=tuple(SMALL))
    made = compare.compare(request, tmp_path)
    assert made.metric == "test_accuracy"
    grid = sweep.Grid(("last_word",), seeds=(0, 1), settings=tuple(SMALL))
    outcome = sweep.run(sweep.make(grid.recipes(), sweep.place(tmp_path)))
    assert not outcome.failed
    assert len(list(tmp_path.glob("last_word-default-*/recipe.json"))) == 4


def test_a_run_of_a_task_that_is_not_registered_says_so(tmp_path: Path) -> None:
    train(asked(), tmp_path / "run")
    del TASKS["last_word"]
    with pytest.raises(ValueError, match=r"task='last_word': expected one of .*registers it"):
        Run.read(tmp_path / "run")
    with pytest.raises(report.ReportError, match=r"damaged: run: .*task='last_word'"):
        report.write(tmp_path, tmp_path / "report")
    with pytest.raises(RecipeError, match=r"no task is called 'zzz'; there are .*registers it"):
        recipe("zzz", None, "mgu")


def test_names_are_taken_once() -> None:
    register(Last)  # a cell of a notebook may run again
    with pytest.raises(RecipeError, match="'adding' is taken by Adding"):
        register(type("Other", (Last,), {"name": "adding"}))
    for name in ("my task", "", 3, None):
        with pytest.raises(RecipeError, match="a name of letters"):
            register(type("Other", (Last,), {"name": name}))


@pytest.mark.parametrize("kind", [np.int64, np.float64, np.bool_])
def test_numbers_one_a_step(kind: type[np.generic]) -> None:
    values = np.arange(12).reshape(3, 4).astype(kind)
    loaded = fixed(dict.fromkeys(("train", "valid", "test"), (values, [0, 1, 1])))
    assert (loaded.shape.inputs, loaded.shape.outputs, loaded.shape.steps) == (1, 2, 4)
    (batch,) = loaded.evaluation("test")
    assert batch.lengths is None
    np.testing.assert_array_equal(batch.inputs[:, :, 0].T.numpy(), values.astype(np.float32))
    (view,) = examples.views(loaded, [2], next(loaded.evaluation("test")))[:1]
    assert (view.kind, view.answer, view.steps) == ("numbers", "0", 4)


def test_many_numbers_a_step_and_a_value() -> None:
    values = np.linspace(0, 1, 60).reshape(2, 6, 5)
    sets = dict.fromkeys(("train", "valid", "test"), (values, [0.5, 2.25], [6, 3]))
    loaded = fixed(sets, metric=MSE)
    assert (loaded.shape.inputs, loaded.shape.outputs, loaded.shape.steps) == (5, 1, 0)
    (batch,) = loaded.evaluation("test")  # the shorter one first
    view, _ = examples.views(loaded, [1, 0], batch)
    assert (view.kind, view.answer, view.steps) == ("words", "2.250", 3)
    assert view.words[0].split() == [*(f"{v:.2g}" for v in values[1, 0, :4]), "…"]


def test_a_text_of_one_s_own(tmp_path: Path) -> None:
    text = np.arange(400) % 7
    sets = {"train": text, "valid": text[:120], "test": text[:120]}
    fixed(sets, metric=PERPLEXITY, vocabulary=7)
    settings = ["batch_size=3", "model.hidden_size=5", "model.embedding=4", "length=2"]
    result = train(override(recipe("fixed", "default", "mgu"), settings), tmp_path / "run")
    assert 1 < result["test_perplexity"] < 8


def test_a_metric_of_one_s_own(tmp_path: Path) -> None:
    root = Metric("rmse", "root mean squared error", 3, of=lambda loss, hits: loss**0.5)
    values = np.linspace(0, 1, 60).reshape(10, 6)
    loaded_sets = dict.fromkeys(("train", "valid", "test"), (values, values.sum(1)))
    fixed(loaded_sets, metric=root)
    settings = ["model.hidden_size=3", "length=1"]
    result = train(override(recipe("fixed", "default", "mgu"), settings), tmp_path / "run")
    assert result["test_rmse"] == pytest.approx(result["test_loss"] ** 0.5)


GOOD = (np.zeros((3, 4, 2)), [0, 1, 1])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"train": GOOD, "valid": GOOD}, "gives the sets train, valid: expected train, test"),
        ({"train": GOOD, "test": GOOD}, "to choose by keep=best"),
        ({**dict.fromkeys(("train", "valid", "test"), GOOD), "dev": GOOD}, "train, valid, test, d"),
        ((np.zeros((3, 4, 2)), [0, 1]), r"targets of train .*one for each of 3"),
        ((np.zeros((3, 4, 2)), [0, 1, -1]), "whole numbers from 0 on"),
        ((np.zeros((3, 4, 2)), [0, 1, 0.5]), "whole numbers from 0 on"),
        ((np.zeros((3, 4, 2, 2)), [0, 1, 1]), r"inputs of train are float64 of shape \(3, 4, 2, 2"),
        ((np.full((3, 4, 2), np.nan), [0, 1, 1]), "inputs of train hold numbers that are not fin"),
        ((np.array([["a"] * 4] * 3), [0, 1, 1]), "expected .* numbers"),
        ((np.zeros((3, 4)), [0, 1, 1], [4, 5, 1]), "lengths of train: expected a number from 1 to"),
        ((np.zeros((3, 4)), [0, 1, 1], [4, 0, 1]), "lengths of train: expected a number from 1 to"),
        (([[1, 2], [], [3]], [0, 1, 1]), "lengths of train"),
    ],
)
def test_sets_that_make_no_sense_are_refused(given: Any, message: str) -> None:
    sets = given if isinstance(given, dict) else dict.fromkeys(("train", "valid", "test"), given)
    with pytest.raises(RecipeError, match=message):
        fixed(sets)


@pytest.mark.parametrize("words", [[[0, 1], [2, 7]], [[0, 1], [2, -1]], [[0.5, 1.0], [2.0, 0.0]]])
def test_words_that_are_not_known_are_refused(words: Any) -> None:
    sets = dict.fromkeys(("train", "valid", "test"), (np.array(words), [0, 1]))
    with pytest.raises(RecipeError, match="word numbers from 0 to 6"):
        fixed(sets, vocabulary=7)
    text = dict.fromkeys(("train", "valid", "test"), np.array(words).ravel())
    with pytest.raises(RecipeError, match="word numbers"):
        fixed(text, vocabulary=7, metric=PERPLEXITY)


def test_data_of_another_task_is_refused() -> None:
    with pytest.raises(RecipeError, match="data of adding is AddingData, got Generated"):
        type(asked())(**{**vars(recipe("adding", "tuned", "mgu")), "data": Generated()})


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "own_task.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert float(said.split()[-1].rstrip("%")) > 90
