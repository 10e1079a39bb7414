"""The state of a training run, and the one loop that moves it on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from onegate import files
from onegate.lab.recipes import Recipe
from onegate.lab.runs import RunError
from onegate.lab.tasks import Batch, Loaded, Split
from onegate.lab.train import models, optimizers
from onegate.lab.train.checkpoints import Checkpoint, CheckpointError, layouts, require_layouts
from onegate.lab.train.distributed import ProcessGroup
from onegate.lab.train.optimizers import LearningRate
from onegate.lab.train.progress import Clock
from onegate.nn.cells import States

# What a checkpoint's values hold beside what is kept with them; see `files.require`.
_VALUES: dict[str, Any] = {
    "evaluated": int,
    "best": (None, float),
    "best_update": (None, int),
    "loss_sum": float,
    "loss_count": int,
    "learning_rate": {"drops": int, "stale": int, "best": (None, float)},
}


class DivergedError(RunError):
    """The loss or the gradient is not a finite number any more."""


class Hooks(Protocol):
    """What happens around the loop: logging, saving, stopping. The loop itself does none of it."""

    def after_update(self, loss: float, items: int) -> None:
        """After every update; raises to end the loop early."""

    def after_evaluation(self, metrics: dict[str, float], improved: bool) -> None:
        """After every evaluation."""


class Trainer:
    """Everything that changes while a run goes on: model, optimiser, position, random numbers.

    Two trainers that hold the same checkpoint go on to the same bits, given the same machine and
    number of threads. In a group of processes all take the same steps, each with its columns of
    every batch.
    """

    def __init__(self, recipe: Recipe, task: Loaded, group: ProcessGroup | None = None) -> None:
        self.recipe, self.task, self.group = recipe, task, group or ProcessGroup()
        if self.group.size > recipe.batch_size:
            raise RunError(
                f"batch_size={recipe.batch_size} cannot be shared by {self.group.size} processes: "
                "start fewer of them"
            )
        torch.manual_seed(recipe.seed)
        self.model = models.build(recipe, task.shape).to(self.group.device)
        self.optimizer = optimizers.build(
            recipe.optimizer, optimizers.groups(recipe.optimizer, self.model)
        )
        per_epoch = task.updates_per_epoch
        self.total = recipe.updates(recipe.length, per_epoch)
        self.between_evaluations = recipe.updates(recipe.evaluate_every, per_epoch)
        self.learning_rate = LearningRate(
            recipe.schedule, recipe.optimizer.lr, per_epoch, self.total
        )
        self.update = self.evaluated = 0
        self.carried: States | None = None
        self.best: float | None = None
        self.best_update: int | None = None
        self.loss_sum, self.loss_count = 0.0, 0
        self.clock = Clock()

    @property
    def epoch(self) -> float:
        """Passes over the training set so far."""
        return self.update / self.task.updates_per_epoch

    def run(self, hooks: Hooks) -> None:
        """Trains to the recipe's end."""
        batches = self.clock.timed("data", self.batches())
        while True:
            if self.evaluated < self.update and self._evaluation_is_due():
                hooks.after_evaluation(*self.evaluation())
            if self.update >= self.total:
                return
            batch = next(batches)
            hooks.after_update(self.step(batch), self.task.items(batch))

    def batches(self) -> Iterator[Batch]:
        """Training batches from the present position on, without end."""
        while True:
            epoch, start = divmod(self.update, self.task.updates_per_epoch)
            yield from self.task.training(epoch, start)

    def step(self, batch: Batch) -> float:
        """One update; returns the mean loss of the batch before it."""
        if self.update % self.task.updates_per_epoch == 0:
            self.carried = None
        self.model.train()
        part, predictions = self.group.part(batch), batch.targets.numel()
        with self.clock.phase("forward"):
            with self.group.drawing(part, batch):
                score, carried = self.model.score(part.batch, self.carried)
            (loss,) = self.group.sums(float(score.loss.detach()) * part.weight)
            mean = loss / predictions
        if not math.isfinite(mean):
            raise DivergedError(self._explain(f"the loss of update {self.update + 1} is {mean}"))
        with self.clock.phase("backward"):
            summed = self.recipe.optimizer.loss == "sum_over_steps"
            self.optimizer.zero_grad()
            (score.loss * part.weight / (batch.columns if summed else predictions)).backward()
            self.group.add_gradients(self.model.parameters())
        with self.clock.phase("optimizer"):
            self._clip()
            for group in self.optimizer.param_groups:
                group["lr"] = self.learning_rate.at(self.update)
            self.optimizer.step()
        self.carried = carried
        self.update += 1
        self.loss_sum += mean * predictions
        self.loss_count += predictions
        return mean

    def _clip(self) -> None:
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        norm = get_total_norm(gradients)
        if not math.isfinite(norm):
            raise DivergedError(
                self._explain(f"the gradient of update {self.update + 1} is {float(norm)}")
            )
        limit = self.recipe.optimizer.clip_norm
        if limit and norm > limit:
            clip_grads_with_norm_(self.model.parameters(), limit, norm)

    def _explain(self, what: str) -> str:
        """What went wrong, at which rate, with which gradients, and what to try."""
        norms = {
            name: float(p.grad.norm())
            for name, p in self.model.named_parameters()
            if p.grad is not None
        }
        order = sorted(norms, key=lambda n: (math.isfinite(norms[n]), -norms[n]))
        largest = ", ".join(f"{name} {norms[name]:.3g}" for name in order[:3])
        return (
            f"{what}, at a learning rate of {self.learning_rate.at(self.update):.3g}. "
            f"Largest gradients (the last ones computed): {largest or 'none yet'}. Try a smaller "
            f"optimizer.lr (half of {self.recipe.optimizer.lr:g}), optimizer.clip_norm=1 "
            f"(now {self.recipe.optimizer.clip_norm:g}), schedule.warmup=100, or "
            "precision=float64 to see whether rounding is to blame"
        )

    def _evaluation_is_due(self) -> bool:
        return self.update % self.between_evaluations == 0 or self.update >= self.total

    def evaluation(self) -> tuple[dict[str, float], bool]:
        """The metrics at the present position, and whether validation was never better."""
        metrics = {
            "update": self.update,
            "epoch": self.epoch,
            "lr": self.learning_rate.at(max(0, self.update - 1)),
            "train_loss": self.loss_sum / max(1, self.loss_count),
        }
        if self.recipe.optimizer.kind in ("sgd", "nesterov"):
            metrics["flow_time"] = self.update * self.recipe.flow_step
        for split in sorted(self.recipe.curves & self.task.splits):
            metrics |= self.measure(split)
        improved = self._note(metrics.get(f"valid_{self.task.metric.name}"))
        self.evaluated = self.update
        self.loss_sum, self.loss_count = 0.0, 0
        return metrics, improved

    def _note(self, metric: float | None) -> bool:
        if metric is None:
            return False
        sign = -1 if self.task.metric.higher_is_better else 1
        self.learning_rate.evaluated(sign * metric)
        improved = self.best is None or sign * metric < sign * self.best
        if improved:
            self.best, self.best_update = metric, self.update
        return improved

    @torch.no_grad()
    def measure(self, split: Split) -> dict[str, float]:
        """Loss and metric of the present model on a set."""
        with self.clock.phase("evaluation"):
            self.model.eval()
            own_loss, own_predictions, own_correct = 0.0, 0, 0
            state: States | None = None
            for batch in self.task.evaluation(split):
                part = self.group.part(batch)
                score, state = self.model.score(part.batch, state)
                own_loss += part.weight * float(score.loss)
                own_predictions += part.weight * score.predictions
                own_correct += part.weight * score.correct
            loss, predictions, correct = self.group.sums(own_loss, own_predictions, own_correct)
        loss /= predictions
        if not math.isfinite(loss):
            raise DivergedError(self._explain(f"after update {self.update} {split}_loss is {loss}"))
        metric = self.task.metric
        return {
            f"{split}_loss": loss,
            f"{split}_{metric.name}": metric.of(loss, correct / predictions),
        }

    def checkpoint(self, **more: Any) -> Checkpoint:
        """The whole state, the same for any number of processes; `more` is kept with it."""
        tensors = {f"model.{name}": p.detach() for name, p in self.model.named_parameters()}
        for name, tensor in optimizers.state_tensors(self.optimizer).items():
            tensors[f"optimizer.{name}"] = tensor
        carried = self.group.all_columns(self.carried, self.recipe.batch_size)
        for number, tensor in enumerate(_as_tuple(carried)):
            tensors[f"carried.{number}"] = tensor
        tensors["random"] = torch.get_rng_state()
        if self.group.device.type == "cuda":
            tensors["random_cuda"] = torch.cuda.get_rng_state()
        values = {
            "evaluated": self.evaluated,
            "best": self.best,
            "best_update": self.best_update,
            "loss_sum": self.loss_sum,
            "loss_count": self.loss_count,
            "learning_rate": self.learning_rate.values(),
            **more,
        }
        return Checkpoint(self.update, tensors, values)

    def check(self, checkpoint: Checkpoint, more: Mapping[str, Any] | None = None) -> None:
        """Raises `CheckpointError` that names what this run needs and the checkpoint lacks.

        more: kinds of the values that were kept with the state, see `files.require`.
        """
        what = f"the checkpoint of update {checkpoint.update}"
        try:
            files.require(dict(checkpoint.values), {**_VALUES, **(more or {})}, "")
        except ValueError as error:
            raise CheckpointError(f"{what}: {error}") from None
        tensors: dict[str, Tensor] = {
            f"model.{name}": p for name, p in self.model.named_parameters()
        }
        state = optimizers.expected_state(self.recipe.optimizer, self.optimizer)
        tensors |= {f"optimizer.{name}": tensor for name, tensor in state.items()}
        tensors["random"] = torch.get_rng_state()
        found = layouts(checkpoint.tensors)
        # How many states are carried, and how large, the list of the checkpoint's tensors tells.
        others = ("carried.", "random_cuda")
        known = {name: found[name] for name in found if name.startswith(others)}
        require_layouts(found, {**layouts(tensors), **known}, what)

    def load(self, checkpoint: Checkpoint) -> None:
        """Goes back, or forth, to a checkpoint."""
        tensors, values = checkpoint.tensors, checkpoint.values
        self.load_weights(checkpoint)
        optimizers.load_state_tensors(self.optimizer, _below("optimizer.", tensors))
        carried = tuple(_below("carried.", tensors).values())
        self.carried = self.group.own_columns(
            carried if len(carried) > 1 else carried[0] if carried else None
        )
        torch.set_rng_state(tensors["random"])
        if self.group.device.type == "cuda" and "random_cuda" in tensors:
            torch.cuda.set_rng_state(tensors["random_cuda"])
        self.update, self.evaluated = checkpoint.update, values["evaluated"]
        self.best, self.best_update = values["best"], values["best_update"]
        self.loss_sum, self.loss_count = values["loss_sum"], values["loss_count"]
        self.learning_rate.load_values(values["learning_rate"])

    def load_weights(self, checkpoint: Checkpoint) -> None:
        """Takes the model of a checkpoint and nothing else."""
        models.load_weights(self.model, _below("model.", checkpoint.tensors))


def _as_tuple(state: States | None) -> tuple[Tensor, ...]:
    if state is None:
        return ()
    return (state,) if isinstance(state, Tensor) else tuple(state)


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors under a prefix, by the rest of their names, in the order of these."""
    return {
        name.removeprefix(prefix): tensors[name]
        for name in sorted(tensors)
        if name.startswith(prefix)
    }
