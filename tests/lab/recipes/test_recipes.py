"""The recipes themselves: complete, allowed, and what the paper says where it says it."""

from __future__ import annotations

import dataclasses

import pytest

from onegate import engines, units
from onegate.lab.recipes import RecipeError, from_json, recipe, to_json, values
from onegate.lab.runs import run_name
from onegate.lab.tasks import TASKS

EVERY = [(task, name) for task in TASKS for name in TASKS[task].recipes]


@pytest.mark.parametrize(("task", "name"), EVERY)
def test_every_recipe_exists_for_every_unit(task: str, name: str) -> None:
    for unit in units.UNITS:
        made = recipe(task, name, unit)
        assert (made.task, made.name, made.unit) == (task, name, unit)


@pytest.mark.parametrize(("task", "name"), EVERY)
def test_reasons_name_fields_that_exist(task: str, name: str) -> None:
    made = recipe(task, name, "mgu")
    assert made.reasons
    assert set(made.reasons) <= {path for path, _ in values(made)}


def test_three_recipes_where_the_flow_makes_sense() -> None:
    for task in TASKS:
        further = {"adding": set(), "ptb": {"regularised"}}.get(task, {"flow"})
        assert set(TASKS[task].recipes) == {"paper", "tuned"} | further


def test_what_the_paper_does_not_say_of_penn_treebank_is_a_recipe_of_its_own() -> None:
    plain, regularised = recipe("ptb", "paper", "mgu"), recipe("ptb", "regularised", "mgu")
    assert (plain.model.start_from_text, plain.optimizer.weight_decay) == (False, 0.0)
    pairs = zip(
        values(dataclasses.replace(plain, reasons={})),
        values(dataclasses.replace(regularised, reasons={})),
        strict=True,
    )
    assert {path: here for (path, there), (_, here) in pairs if there != here} == {
        "name": "regularised", "model.start_from_text": True, "optimizer.weight_decay": 0.0007
    }  # fmt: skip


def test_a_run_of_an_older_paper_recipe_is_read_as_it_was() -> None:
    content = to_json(recipe("ptb", "regularised", "mgu")) | {"name": "paper"}
    old = from_json(content)
    assert run_name(old) == "ptb-paper-mgu-500-s0-ab9d3f20"
    assert old.optimizer.weight_decay == 0.0007


@pytest.mark.parametrize(
    ("task", "batch", "lr", "momentum"),
    [
        ("adding", 100, 1e-3, 0.0),
        ("imdb", 16, 1e-8, 0.99),
        ("mnist_rows", 100, 1e-8, 0.99),
        ("mnist_pixels", 100, 1e-8, 0.99),
        ("ptb", 20, 1.0, 0.0),  # 0.01 in the text, for an optimiser that is not named there
    ],
)
def test_paper_recipes_follow_section_4(task: str, batch: int, lr: float, momentum: float) -> None:
    made = recipe(task, "paper", "mgu")
    assert (made.batch_size, made.optimizer.lr, made.optimizer.momentum) == (batch, lr, momentum)
    assert made.model.readout == "last"
    assert made.model.dropout == 0


@pytest.mark.parametrize("task", ["mnist_rows", "imdb"])
def test_flow_runs_for_the_paper_s_flow_time(task: str) -> None:
    asked, flow = recipe(task, "paper", "mgu"), recipe(task, "flow", "mgu")
    updates_an_epoch = -(-vars(asked.data)["train"] // asked.batch_size)
    updates = asked.updates(asked.length, updates_an_epoch)
    # s = updates x lr / (1 - momentum), to the rounding of the flow's own step.
    assert updates * 1e-8 / 0.01 == pytest.approx(flow.length, rel=1e-2)
    assert flow.updates(flow.length, updates_per_epoch=1) == round(flow.length / flow.optimizer.lr)


def test_only_paper_and_flow_look_at_the_test_set_while_training() -> None:
    for task, name in EVERY:
        made = recipe(task, name, "mgu")
        assert made.test_curve == (name != "tuned")
        if name == "tuned":
            assert made.keep == "best"


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("mnist_row", "flow", "mgu"), "mnist_rows"),
        (("mnist_rows", "flwo", "mgu"), "flow"),
        (("mnist_rows", "flow", "mug"), "mgu"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(
    arguments: tuple[str, str, str], hint: str
) -> None:
    with pytest.raises(ValueError, match=f"did you mean '?{hint}'?"):
        recipe(*arguments)


def test_recipes_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        recipe("ptb", "tuned", "mgu").seed = 3  # type: ignore[misc]


@pytest.mark.parametrize("task", ["mnist_pixels", "mnist_permuted"])
def test_units_without_a_gate_start_without_chrono(task: str) -> None:
    assert recipe(task, "tuned", "mgu").model.init == "chrono"
    assert recipe(task, "tuned", "irnn").model.init == "layer"


def test_a_flow_needs_plain_steps() -> None:
    made = recipe("mnist_rows", "flow", "mgu")
    with pytest.raises(RecipeError, match="only plain steps"):
        dataclasses.replace(made, optimizer=recipe("mnist_rows", "tuned", "mgu").optimizer)


# Runs on disk bear these names, and are found by them when they are resumed.
RUN_NAMES = """
adding-paper-mgu-100-s0-2c8b06c8
adding-tuned-mgu-100-s0-d0827bb3
imdb-paper-mgu-100-s0-b7702d89
imdb-flow-mgu-100-s0-9be94bc8
imdb-tuned-mgu-100-s0-098dae25
mnist_rows-paper-mgu-100-s0-9031f144
mnist_rows-flow-mgu-100-s0-025dc180
mnist_rows-tuned-mgu-100-s0-2fbe5596
mnist_pixels-paper-mgu-100-s0-77d85316
mnist_pixels-flow-mgu-100-s0-dd91198d
mnist_pixels-tuned-mgu-100-s0-ae0e5cfe
mnist_permuted-paper-mgu-100-s0-c0b5b8e2
mnist_permuted-flow-mgu-100-s0-53c7cefd
mnist_permuted-tuned-mgu-100-s0-831e231f
ptb-paper-mgu-500-s0-2729e921
ptb-regularised-mgu-500-s0-618d628d
ptb-tuned-mgu-500-s0-27d85782
"""


def test_runs_keep_their_names() -> None:
    assert [run_name(recipe(task, name, "mgu")) for task, name in EVERY] == RUN_NAMES.split()


def test_a_recipe_names_any_engine_that_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    made = recipe("adding", "tuned", "mgu")
    with pytest.raises(RecipeError, match="engine='mine': expected one of auto, fused, reference"):
        dataclasses.replace(made.model, engine="mine")
    monkeypatch.setattr(engines, "names", lambda: ["auto", "mine"])
    assert dataclasses.replace(made.model, engine="mine").engine == "mine"
