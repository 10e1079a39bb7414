"""Optimisers against their equations, learning rates against their definitions."""

from __future__ import annotations

import math
from typing import Literal

import pytest
import torch
from torch import nn

from onegate.lab.recipes.recipe import Optimizer, Schedule
from onegate.lab.train import optimizers
from onegate.lab.train.optimizers import LearningRate

KINDS = [
    Optimizer("sgd", lr=0.1),
    Optimizer("sgd", lr=0.1, momentum=0.9, weight_decay=0.01),
    Optimizer("nesterov", lr=0.1, momentum=0.99),
    Optimizer("adagrad", lr=0.1, eps=1e-6),
    Optimizer("adam", lr=0.1, momentum=0.9),
    Optimizer("adamw", lr=0.1, momentum=0.8, second=0.95, weight_decay=0.1),
]


def parameters() -> list[nn.Parameter]:
    torch.manual_seed(1)
    return [nn.Parameter(torch.randn(shape, dtype=torch.float64)) for shape in ((3, 2), (5,))]


def give_gradients(to: list[nn.Parameter], step: int) -> None:
    torch.manual_seed(100 + step)
    for p in to:
        p.grad = torch.randn_like(p)


def steps_by_hand(asked: Optimizer, count: int) -> list[torch.Tensor]:
    """The textbook form of each rule."""
    values = [p.detach().clone() for p in parameters()]
    first = [torch.zeros_like(v) for v in values]
    second = [torch.zeros_like(v) for v in values]
    leaves = parameters()
    for step in range(1, count + 1):
        give_gradients(leaves, step)
        for i, v in enumerate(values):
            g = leaves[i].grad
            assert g is not None
            if asked.kind == "adamw":
                v *= 1 - asked.lr * asked.weight_decay
            else:
                g = g + asked.weight_decay * v
            if asked.kind in ("sgd", "nesterov"):
                first[i] = asked.momentum * first[i] + g
                move = g + asked.momentum * first[i] if asked.kind == "nesterov" else first[i]
            elif asked.kind == "adagrad":
                second[i] += g * g
                move = g / (second[i].sqrt() + asked.eps)
            else:
                first[i] = asked.momentum * first[i] + (1 - asked.momentum) * g
                second[i] = asked.second * second[i] + (1 - asked.second) * g * g
                mean = first[i] / (1 - asked.momentum**step)
                square = second[i] / (1 - asked.second**step)
                move = mean / (square.sqrt() + asked.eps)
            v -= asked.lr * move
    return values


@pytest.mark.parametrize("asked", KINDS, ids=lambda o: f"{o.kind}-{o.momentum}")
def test_steps_are_the_textbook_s(asked: Optimizer) -> None:
    learned = parameters()
    optimizer = optimizers.build(asked, learned)
    for step in range(1, 6):
        give_gradients(learned, step)
        optimizer.step()
    for p, expected in zip(learned, steps_by_hand(asked, 5), strict=True):
        torch.testing.assert_close(p.detach(), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("asked", KINDS, ids=lambda o: f"{o.kind}-{o.momentum}")
def test_a_restored_optimiser_goes_on_to_the_same_bits(asked: Optimizer) -> None:
    whole = parameters()
    optimizer = optimizers.build(asked, whole)
    for step in range(4):
        give_gradients(whole, step)
        optimizer.step()
        if step == 1:
            kept = [p.detach().clone() for p in whole]
            tensors = {k: t.clone() for k, t in optimizers.state_tensors(optimizer).items()}
    resumed = [nn.Parameter(p) for p in kept]
    optimizer = optimizers.build(asked, resumed)
    optimizers.load_state_tensors(optimizer, tensors)
    for step in (2, 3):
        give_gradients(resumed, step)
        optimizer.step()
    for one, other in zip(resumed, whole, strict=True):
        assert torch.equal(one, other)


class Words(nn.Module):
    """Word vectors that are the head's matrix too, a matrix between, and a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 2)
        self.between = nn.Linear(3, 2, bias=False)
        self.head = nn.Linear(2, 5)
        self.head.weight = self.embedding.weight


@pytest.mark.parametrize(("on", "shortened"), [("all", {0, 1, 2}), ("matrices", {1})])
def test_weight_decay_shortens_what_it_is_asked_to(
    on: Literal["all", "matrices"], shortened: set[int]
) -> None:
    asked = Optimizer("sgd", lr=0.1, weight_decay=0.5, weight_decay_on=on)
    model = Words()
    before = [p.detach().clone() for p in model.parameters()]
    optimizer = optimizers.build(asked, optimizers.groups(asked, model))
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    for place, (p, then) in enumerate(zip(model.parameters(), before, strict=True)):
        torch.testing.assert_close(p.detach(), then * (0.95 if place in shortened else 1.0))


def rate(schedule: Schedule, total: int = 100) -> LearningRate:
    return LearningRate(schedule, lr=2.0, updates_per_epoch=10, total=total)


def test_constant_and_warmup() -> None:
    assert rate(Schedule()).at(57) == 2.0
    warm = rate(Schedule(warmup=4))
    assert [warm.at(u) for u in range(6)] == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]


def test_cosine_falls_from_all_to_the_floor() -> None:
    cosine = rate(Schedule("cosine", floor=0.1))
    assert cosine.at(0) == 2.0
    assert cosine.at(50) == pytest.approx(2.0 * (0.1 + 0.9 / 2))
    assert cosine.at(100) == pytest.approx(0.2)
    falling = [cosine.at(u) for u in range(101)]
    assert falling == sorted(falling, reverse=True)


def test_decay_begins_after_the_given_epochs() -> None:
    """Zaremba et al. 2014: a rate of 1 for the first 4 epochs, halved in every one after it."""
    decay = rate(Schedule("decay", factor=0.5, start=4))
    assert [decay.at(10 * epoch) for epoch in range(7)] == [2, 2, 2, 2, 1, 0.5, 0.25]
    assert decay.at(39) == 2
    assert decay.at(49) == 1


def test_plateau_falls_when_nothing_gets_better() -> None:
    plateau = rate(Schedule("plateau", factor=0.5, patience=1))
    expected = []
    for badness in (5.0, 4.0, 4.0, 4.5, 3.0, 3.1, 3.2, 3.3, 3.4):
        plateau.evaluated(badness)
        expected.append(plateau.at(0))
    assert expected == [2, 2, 2, 1, 1, 1, 0.5, 0.5, 0.25]


def test_plateau_is_restored() -> None:
    one = rate(Schedule("plateau"))
    assert one.values()["best"] is None
    one.evaluated(3.0)
    one.evaluated(3.0)
    other = rate(Schedule("plateau"))
    other.load_values(one.values())
    assert other == one
    assert not math.isinf(other.best)
