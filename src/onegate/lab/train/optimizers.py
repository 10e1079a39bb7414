"""Optimisers and learning rates as recipes name them, and their state as plain tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from onegate.lab.recipes.recipe import Optimizer, Schedule


def groups(asked: Optimizer, model: nn.Module) -> list[dict[str, Any]]:
    """A model's parameters: those that weight decay shortens, and those that it does not."""
    vectors = {m.weight for m in model.modules() if isinstance(m, nn.Embedding)}
    found: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for parameter in model.parameters():
        matrix = parameter.ndim > 1 and parameter not in vectors
        found[matrix or asked.weight_decay_on == "all"].append(parameter)
    return [{"params": found[True]}, {"params": found[False], "weight_decay": 0.0}]


def build(
    asked: Optimizer, parameters: Iterable[nn.Parameter] | Iterable[dict[str, Any]]
) -> torch.optim.Optimizer:
    """The optimiser of a recipe."""
    common: dict[str, Any] = {
        "lr": asked.lr,
        "weight_decay": asked.weight_decay,
        "fused": True,
    }
    if asked.kind in ("sgd", "nesterov"):
        nesterov = asked.kind == "nesterov"
        return torch.optim.SGD(parameters, momentum=asked.momentum, nesterov=nesterov, **common)
    if asked.kind == "adagrad":
        return torch.optim.Adagrad(parameters, eps=asked.eps, **common)
    kind = torch.optim.AdamW if asked.kind == "adamw" else torch.optim.Adam
    return kind(parameters, betas=(asked.momentum, asked.second), eps=asked.eps, **common)


def state_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What the optimiser remembers of each parameter, as `number.name`."""
    state = optimizer.state_dict()["state"]
    return {
        f"{number}.{name}": value
        for number, values in state.items()
        for name, value in values.items()
        if isinstance(value, Tensor)
    }


def expected_state(asked: Optimizer, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What `state_tensors` gives after an update, by name: tensors of the same types and shapes."""
    expected: dict[str, Tensor] = {}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for number, parameter in enumerate(parameters):
        # Which of a state's tensors are as large as the parameter shows at one of an odd size.
        probe = nn.Parameter(torch.zeros(1, 3, 1, dtype=parameter.dtype))
        probe.grad = torch.zeros_like(probe)
        made = build(asked, [probe])
        made.step()
        for name, tensor in state_tensors(made).items():
            shape = parameter.shape if tensor.shape == probe.shape else tensor.shape
            kept = torch.empty(shape, dtype=tensor.dtype, device="meta")
            expected[f"{number}.{name.partition('.')[2]}"] = kept
    return expected


def load_state_tensors(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Puts back what `state_tensors` gave."""
    content = optimizer.state_dict()
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        number, _, name = key.partition(".")
        state.setdefault(int(number), {})[name] = tensor
    optimizer.load_state_dict({**content, "state": state})


@dataclass
class LearningRate:
    """The learning rate of every update.

    drops, stale, best: of a plateau schedule: how often the rate fell, and for how many
        evaluations the metric was not better than the best.
    """

    schedule: Schedule
    lr: float
    updates_per_epoch: int
    total: int
    drops: int = 0
    stale: int = 0
    best: float = math.inf

    def at(self, update: int) -> float:
        """The rate of the update after `update` of them."""
        return self.lr * self._factor(update) * self._warmth(update)

    def _factor(self, update: int) -> float:
        asked = self.schedule
        if asked.kind == "cosine":
            falling = (1 + math.cos(math.pi * update / self.total)) / 2
            return asked.floor + (1 - asked.floor) * falling
        if asked.kind == "decay":
            passes = update // self.updates_per_epoch
            return float(asked.factor ** max(0.0, passes + 1 - asked.start))
        return float(asked.factor**self.drops)

    def _warmth(self, update: int) -> float:
        return min(1.0, (update + 1) / self.schedule.warmup) if self.schedule.warmup else 1.0

    def evaluated(self, badness: float) -> None:
        """Notes a validation metric, lower being better; a plateau makes the rate fall."""
        if self.schedule.kind != "plateau":
            return
        self.stale = 0 if badness < self.best else self.stale + 1
        self.best = min(self.best, badness)
        if self.stale > self.schedule.patience:
            self.drops, self.stale = self.drops + 1, 0

    def values(self) -> dict[str, Any]:
        """What has to be kept in a checkpoint."""
        best = None if math.isinf(self.best) else self.best
        return {"drops": self.drops, "stale": self.stale, "best": best}

    def load_values(self, values: Mapping[str, Any]) -> None:
        """Puts back what `values` gave."""
        self.drops, self.stale = values["drops"], values["stale"]
        self.best = math.inf if values["best"] is None else values["best"]
