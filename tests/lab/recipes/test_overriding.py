"""Setting fields by path, and recipes as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onegate.lab.recipes import (
    RecipeError,
    difference,
    from_json,
    override,
    recipe,
    to_json,
)
from onegate.lab.runs import finished_runs
from onegate.lab.tasks import TASKS

ROWS = recipe("mnist_rows", "flow", "mgu")


@pytest.mark.parametrize("task", TASKS)
def test_json_round_trip(task: str) -> None:
    for build in TASKS[task].recipes.values():
        made = build("gru")
        again = from_json(json.loads(json.dumps(to_json(made))))
        assert again == made
        assert again.reasons == made.reasons


@pytest.mark.parametrize(
    ("setting", "path", "value"),
    [
        ("optimizer.lr=0.002", "optimizer.lr", 0.002),
        ("optimizer.lr=1e-3", "optimizer.lr", 1e-3),
        ("model.hidden_size=50", "model.hidden_size", 50),
        ("model.hidden_size=2e2", "model.hidden_size", 200),
        ("model.bidirectional=yes", "model.bidirectional", True),
        ("model.readout=mean", "model.readout", "mean"),
        ("data.train = 1_000", "data.train", 1000),
        ("unit=gru", "unit", "gru"),
        ("seed=7", "seed", 7),
    ],
)
def test_a_field_is_set(setting: str, path: str, value: Any) -> None:
    changed = override(ROWS, [setting])
    found: Any = changed
    for name in path.split("."):
        found = getattr(found, name)
    assert found == value
    assert type(found) is type(value)
    assert changed.reasons[path] == "set by hand"
    assert [d.split()[0] for d in difference(ROWS, changed)] == [path]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("optimizer.rl=1", "did you mean optimizer.lr"),
        ("lr=1", "did you mean optimizer.lr"),
        ("hiden_size=3", "did you mean model.hidden_size"),
        ("zzzzzz=3", "its fields are"),
        ("optimizer.lr", "expected field=value"),
        ("optimizer.lr=-1", "optimizer.lr=-1.0: expected a number above 0"),
        ("optimizer.lr=nan", "expected a number above 0"),
        ("optimizer.lr=inf", "expected a number above 0"),
        ("optimizer.lr=fast", "optimizer.lr='fast': expected a number"),
        ("optimizer.momentum=1", "expected a number of at least 0"),
        ("optimizer.kind=lion", "expected one of sgd, nesterov"),
        ("model.hidden_size=0", "at least 1"),
        ("model.hidden_size=2.5", "a whole number"),
        ("model.bidirectional=perhaps", "true or false"),
        ("model.embedding=20", "not words"),
        ("data.train=55000", "60,000 training images"),
        ("data.steps=3", "has no field 'data.steps'"),
        ("schedule.kind=cosine", "constant schedule"),
        ("optimizer.kind=adam", "only plain steps"),
        ("task=ptb", "cannot be set"),
        ("data=3", "has no field 'data'"),
    ],
)
def test_a_bad_setting_is_refused(setting: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        override(ROWS, [setting])


def test_settings_that_need_each_other_come_in_any_order() -> None:
    settings = ["clock=epochs", "optimizer.kind=adam", "length=3"]
    for given in (settings, settings[::-1]):
        assert override(ROWS, given).optimizer.kind == "adam"


def test_options_of_the_unit() -> None:
    changed = override(ROWS, ["unit=scrn", "model.unit_options.alpha=0.9"])
    assert changed.model.unit_options == {"alpha": 0.9}
    assert ROWS.model.unit_options == {}


def test_a_language_model_is_checked_as_such() -> None:
    made = recipe("ptb", "tuned", "mgu")
    with pytest.raises(RecipeError, match="words need an embedding"):
        override(made, ["model.embedding=0", "model.tie_embedding=false"])
    for field in ("tie_embedding", "start_from_text"):
        with pytest.raises(RecipeError, match=f"{field}.*mnist_rows does not choose among words"):
            override(ROWS, [f"model.{field}=true"])
    with pytest.raises(RecipeError, match="readout last"):
        override(made, ["model.readout=all"])


def test_choosing_needs_a_validation_set() -> None:
    with pytest.raises(RecipeError, match=r"data\.valid"):
        override(recipe("imdb", "paper", "mgu"), ["keep=best"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "chess"}, "task='chess'"),
        ({"lenght": 3}, "no field 'lenght'; did you mean length"),
        ({"optimizer": {"kind": "sgd", "lr": 1, "nesterv": 1}}, r"optimizer\.nesterv"),
        ({"optimizer": {"kind": "sgd"}}, "lr"),
        ({"data": {"train": "many"}}, r"data\.train='many': expected a whole number"),
        ({"data": 3}, "data=3: expected an object with fields"),
        ({"model": "large"}, "model='large': expected an object with fields"),
        ({"model": {"hidden_size": 10**400}}, r"model\.hidden_size=1000.*\.\.\.: expected .* most"),
        ({"model": {"hidden_size": 3, "init_value": float("nan")}}, r"model\.init_value=nan"),
        ({"model": {"hidden_size": 3, "init_value": 10**400}}, r"model\.init_value=1000"),
        ({"model": {"hidden_size": 3, "unit_options": [1]}}, r"model\.unit_options=\[1\]"),
        ({"model": {"hidden_size": 3, "unit_options": {"</p>": 1}}}, "instead of '</p>'"),
        ({"reasons": {"seed": 3}}, "expected a text for 'seed'"),
        ({"seed": -1}, "seed=-1"),
        ({"task": ["ptb"]}, r"task=\['ptb'\]: expected one of adding"),
        ({"a\x1b[2Jb": 3}, r"no field 'a\\x1b\[2Jb'"),
    ],
)
def test_json_of_another_shape_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        from_json({**to_json(ROWS), **change})


# What somebody may write into a recipe.json that others read: none of it names anything.
HOSTILE = [
    "<img src=x onerror=alert(1)>", 'a"onload="alert(1)', "a/b", "../up", "a\\b", "a\0b", "a\nb",
    "-rf", "a b", "", "a" * 101, "\u202eabc", "a\u202eb", "\ud800", "$\\frac{", "a.b", "3a", "a;b",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
@pytest.mark.parametrize("field", ["name", "unit", "task"])
def test_what_is_no_name_is_refused_in_one_line(field: str, name: str) -> None:
    with pytest.raises(RecipeError, match=f"{field}=.*: expected ") as caught:
        from_json({**to_json(ROWS), field: name})
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("field", "name"), [("unit", "my_unit"), ("unit", "größe"), ("name", "older-2"), ("name", "A")]
)
def test_names_of_others_are_read(field: str, name: str) -> None:
    """They need not be known here: the unit may be one that another program registers."""
    content = {**to_json(ROWS), field: name}
    assert to_json(from_json(json.loads(json.dumps(content)))) == content


def test_the_recipes_of_all_published_runs_are_read() -> None:
    kept = [Path(__file__).parents[3] / "results" / f"{task}.jsonl" for task in TASKS]
    lines = sum(len(path.read_bytes().splitlines()) for path in kept)
    assert sum(len(finished_runs(path)) for path in kept) == lines > 200


def test_a_missing_field_is_named() -> None:
    content = to_json(ROWS)
    del content["batch_size"]
    with pytest.raises(RecipeError, match="batch_size"):
        from_json(content)
