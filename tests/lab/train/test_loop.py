"""The loop: what an update does, when it evaluates, what it chooses by."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch
from torch import nn

from onegate.lab import tasks
from onegate.lab.recipes import Recipe, override, recipe
from onegate.lab.train.loop import DivergedError, Trainer
from tests.lab import small_data

SMALL = ["data.train=200", "data.valid=50", "data.test=50", "model.hidden_size=5", "batch_size=20"]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    small_data.use(monkeypatch)


def adding(*settings: str) -> Recipe:
    return override(recipe("adding", "tuned", "mgu"), [*SMALL, *settings])


def text(*settings: str) -> Recipe:
    sizes = ["data.train=1000", "data.steps=5", "batch_size=4", "model.hidden_size=6"]
    return override(
        recipe("ptb", "tuned", "mgu"), [*sizes, "model.embedding=6", "length=1", *settings]
    )


def trainer(made: Recipe) -> Trainer:
    return Trainer(made, tasks.load(made))


class Notes:
    """Hooks that remember."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.evaluations: list[dict[str, float]] = []
        self.improved: list[bool] = []

    def after_update(self, loss: float, items: int) -> None:
        self.losses.append(loss)

    def after_evaluation(self, metrics: dict[str, float], improved: bool) -> None:
        self.evaluations.append(metrics)
        self.improved.append(improved)


def run(made: Recipe) -> tuple[Trainer, Notes]:
    subject, notes = trainer(made), Notes()
    subject.run(notes)
    return subject, notes


def test_evaluates_on_time_and_at_the_end() -> None:
    subject, notes = run(adding("length=2.5", "evaluate_every=0.7"))
    assert subject.update == len(notes.losses) == 25
    assert [m["update"] for m in notes.evaluations] == [7, 14, 21, 25]
    assert [m["epoch"] for m in notes.evaluations] == [0.7, 1.4, 2.1, 2.5]
    first = sum(notes.losses[:7]) / 7
    assert notes.evaluations[0]["train_loss"] == pytest.approx(first)
    assert "test_mse" not in notes.evaluations[0]
    assert "flow_time" not in notes.evaluations[0]


def test_flow_time_is_the_clock() -> None:
    settings = [*SMALL, "data.train=400", "optimizer.lr=0.1", "length=1.2", "evaluate_every=0.4"]
    subject, notes = run(override(recipe("mnist_rows", "flow", "mgu"), settings))
    assert subject.total == 12
    assert [m["flow_time"] for m in notes.evaluations] == pytest.approx([0.4, 0.8, 1.2])
    assert "test_accuracy" in notes.evaluations[0]


def test_metrics_are_those_of_the_whole_set_at_once() -> None:
    subject, notes = run(adding("length=1"))
    valid = subject.task.sets["valid"]  # type: ignore[attr-defined]
    batch = valid.batch(torch.arange(50).numpy())
    with torch.no_grad():
        outputs = subject.model(batch.inputs, batch.lengths)[:, 0]
    expected = ((outputs - batch.targets) ** 2).mean().item()
    assert notes.evaluations[-1]["valid_mse"] == pytest.approx(expected, rel=1e-5)
    assert notes.evaluations[-1]["valid_loss"] == notes.evaluations[-1]["valid_mse"]


def test_perplexity_is_the_exponential_of_the_loss() -> None:
    settings = ["optimizer.kind=adam", "optimizer.momentum=0.9", "optimizer.lr=0.03"]
    _, notes = run(text("model.dropout=0", "length=3", "optimizer.loss=mean", *settings))
    found = notes.evaluations[-1]
    assert found["valid_perplexity"] == pytest.approx(math.exp(found["valid_loss"]))
    assert found["valid_perplexity"] < 9  # a text that counts to ten is learned a little


def test_the_best_is_chosen_on_validation_in_the_right_direction() -> None:
    for made, key, best in (
        (adding("length=4"), "valid_mse", min),
        (override(recipe("mnist_rows", "tuned", "mgu"), [*SMALL, "data.train=400", "length=3"]),
         "valid_accuracy", max),
    ):  # fmt: skip
        subject, notes = run(made)
        values = [m[key] for m in notes.evaluations]
        assert subject.best == best(values)
        at = values.index(best(values))
        assert subject.best_update == notes.evaluations[at]["update"]
        assert notes.improved[0]
        assert notes.improved[at]


def test_the_test_set_chooses_nothing() -> None:
    """The same run with another test set takes the same steps and keeps the same model."""
    one, _ = run(adding("length=2", "test_curve=true", "schedule.kind=plateau"))
    other, _ = run(adding("length=2", "test_curve=true", "schedule.kind=plateau", "data.test=7"))
    assert one.best_update == other.best_update
    for p, q in zip(one.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(p, q)


@pytest.mark.parametrize("loss", ["mean", "sum_over_steps"])
def test_one_plain_step_is_the_gradient_of_the_loss_and_the_decay(loss: str) -> None:
    made = text(f"optimizer.loss={loss}", "optimizer.clip_norm=0", "model.dropout=0",
                "schedule.kind=constant", "optimizer.lr=0.5",
                "optimizer.weight_decay=0.01", "optimizer.weight_decay_on=all")  # fmt: skip
    subject = trainer(made)
    batch = next(subject.batches())
    outputs, _ = subject.model(batch.inputs)
    logits = subject.model.head(outputs).flatten(0, 1)  # type: ignore[operator]
    summed = nn.functional.cross_entropy(logits, batch.targets.flatten(), reduction="sum")
    scale = 20 if loss == "mean" else 4
    parameters = list(subject.model.parameters())
    gradients = torch.autograd.grad(summed / scale, parameters)
    expected = [
        (p - 0.5 * (g + 0.01 * p)).detach() for p, g in zip(parameters, gradients, strict=True)
    ]
    assert subject.step(batch) == pytest.approx(summed.item() / 20, rel=1e-5)
    for p, e in zip(parameters, expected, strict=True):
        torch.testing.assert_close(p.detach(), e, rtol=1e-4, atol=1e-6)


def test_long_gradients_are_shortened_to_the_limit() -> None:
    def moved(limit: float) -> float:
        subject = trainer(
            text(f"optimizer.clip_norm={limit}", "optimizer.lr=1", "optimizer.weight_decay=0")
        )
        before = [p.detach().clone() for p in subject.model.parameters()]
        subject.step(next(subject.batches()))
        after = subject.model.parameters()
        squares = [((p - b) ** 2).sum().item() for p, b in zip(after, before, strict=True)]
        return math.sqrt(sum(squares))

    free = moved(0)
    assert free > 0.05
    assert moved(free / 2) == pytest.approx(free / 2, rel=1e-3)
    assert moved(free * 2) == pytest.approx(free)


def test_state_is_carried_within_an_epoch_and_dropped_after_it() -> None:
    subject = trainer(text("length=3"))
    batches = subject.batches()
    subject.step(next(batches))
    assert isinstance(subject.carried, torch.Tensor)
    assert subject.carried.abs().sum() > 0
    seen: list[Any] = []
    score = subject.model.score

    def watch(batch: Any, state: Any) -> Any:
        seen.append(state)
        return score(batch, state)

    subject.model.score = watch  # type: ignore[method-assign]
    for _ in range(subject.task.updates_per_epoch):
        subject.step(next(batches))
    assert [state is None for state in seen].index(True) == subject.task.updates_per_epoch - 1
    assert sum(state is None for state in seen) == 1


@pytest.mark.parametrize(
    "made",
    [
        adding("length=3", "schedule.kind=plateau"),
        text("length=3", "optimizer.kind=adam", "optimizer.momentum=0.9", "optimizer.lr=0.01"),
        text("length=3", "unit=lstm", "schedule.kind=cosine", "schedule.warmup=10"),
        text("length=3", "unit=scrn", "model.learn_initial_state=true"),
    ],
    ids=["adding", "text-adam", "text-lstm", "text-scrn"],
)
def test_a_checkpoint_goes_on_to_the_same_bits(made: Recipe) -> None:
    """Dropout, carried state, optimiser and schedule included."""
    whole = trainer(made)
    batches = whole.batches()
    middle = whole.total // 2 + 3
    for _ in range(whole.total):
        if whole.update == middle:
            kept = whole.checkpoint(note="x")
            kept.tensors.update({k: t.clone() for k, t in kept.tensors.items()})  # type: ignore[attr-defined]
        whole.step(next(batches))
    torch.manual_seed(99)
    resumed = trainer(made)
    resumed.load(kept)
    assert kept.values["note"] == "x"
    batches = resumed.batches()
    while resumed.update < resumed.total:
        resumed.step(next(batches))
    for (name, p), q in zip(
        whole.model.named_parameters(), resumed.model.parameters(), strict=True
    ):
        assert torch.equal(p, q), name
    assert resumed.loss_sum == whole.loss_sum


def test_same_seed_same_bits_other_seed_other_bits() -> None:
    one, other, third = (run(text(f"seed={seed}"))[0] for seed in (0, 0, 1))
    weights = [next(t.model.parameters()) for t in (one, other, third)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_loss_that_is_not_finite_is_explained() -> None:
    subject = trainer(adding("optimizer.lr=0.25"))
    batches = subject.batches()
    subject.step(next(batches))
    with torch.no_grad():
        subject.model.get_parameter("head.weight").fill_(math.inf)
    with pytest.raises(DivergedError) as caught:
        subject.step(next(batches))
    message = str(caught.value)
    assert re.search("the loss of update 2 is (nan|-?inf)", message)
    assert "learning rate of 0.2" in message
    assert "Largest gradients" in message
    assert "head." in message or "recurrent." in message
    assert "optimizer.lr (half of 0.25)" in message
    assert "optimizer.clip_norm=1" in message


def test_a_gradient_that_is_not_finite_is_explained() -> None:
    subject = trainer(adding())
    batch = next(subject.batches())
    parameter = subject.model.get_parameter("head.weight")
    parameter.register_hook(lambda g: g * math.inf)
    before = [p.detach().clone() for p in subject.model.parameters()]
    with pytest.raises(DivergedError, match=r"the gradient of update 1 is .*head\.weight"):
        subject.step(batch)
    for p, b in zip(subject.model.parameters(), before, strict=True):
        assert torch.equal(p, b)


def test_an_evaluation_that_is_not_finite_is_explained() -> None:
    subject = trainer(adding())
    with torch.no_grad():
        subject.model.get_parameter("head.bias").fill_(math.nan)
    with pytest.raises(DivergedError, match="valid_loss is nan"):
        subject.measure("valid")


def test_time_is_accounted_for() -> None:
    subject, _ = run(adding("length=2"))
    seconds = subject.clock.seconds
    for phase in ("forward", "backward", "optimizer", "data", "evaluation"):
        assert seconds[phase] > 0
    assert sum(subject.clock.shares().values()) == pytest.approx(1)


def test_same_bits_with_several_threads() -> None:
    """Sizes at which torch and the engines do share out the work."""
    sizes = ["model.hidden_size=70", "model.embedding=70", "batch_size=40", "data.steps=20"]
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        one, other = (run(text(*sizes, "data.train=2000", "length=2"))[0] for _ in range(2))
    finally:
        torch.set_num_threads(before)
    for p, q in zip(one.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(p, q)
