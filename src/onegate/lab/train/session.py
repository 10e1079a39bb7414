"""A training run in its folder: started, watched, saved, stopped, resumed, finished."""

from __future__ import annotations

import contextlib
import shlex
import signal
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from onegate.lab import StoppedError, plugins, recipes, tasks
from onegate.lab.recipes import Recipe
from onegate.lab.runs import LINES, RunError, RunFolder, State, WatchedFolder, run_name
from onegate.lab.train import machine, models
from onegate.lab.train.checkpoints import Checkpoint, CheckpointError
from onegate.lab.train.distributed import PeerError, ProcessGroup
from onegate.lab.train.loop import Trainer
from onegate.lab.train.progress import Observer, Position, Speed, Throttle, alive

RUNS = Path("runs")
# What is kept in a checkpoint beside the trainer's state; versions before did not count lines.
_KEPT: dict[str, Any] = {"seconds": float, "training_seconds": float, "metrics?": LINES}


def train(
    recipe: Recipe,
    folder: Path | None = None,
    *,
    resume: bool = False,
    observers: Sequence[Observer] = (),
    checkpoint_seconds: float = 60.0,
    patience: float = 0.0,
    group: ProcessGroup | None = None,
) -> Mapping[str, Any]:
    """Trains a recipe in a run folder and returns the result, as it stands in status.json.

    resume: goes on from the last checkpoint if there is one; a run that is done is not run again.
    checkpoint_seconds: between checkpoints, beside those of the best model and of the end.
    patience: how many seconds to wait for another process to leave the folder.
    group: the processes that train this run together, each of which calls this function; the first
        one alone reads and writes the folder.

    Raises `StoppedError` after Ctrl-C or SIGTERM, `RunError` if the folder cannot be used,
    `DivergedError` if the numbers are not finite any more.

    >>> train(recipe("adding", "tuned", "mgu"), Path("runs/adding"))["test_mse"]
    """
    group = group or ProcessGroup()
    run = (RunFolder if group.leads else WatchedFolder)(folder or RUNS / run_name(recipe))
    with contextlib.ExitStack() as stack:

        def earlier_result() -> Mapping[str, Any] | None:
            stack.enter_context(run.locked(patience))
            return run.result() if _is_finished(run, recipe, resume) else None

        result: Mapping[str, Any] | None = group.lead(earlier_result)
        if result is not None:
            return result
        if changed := plugins.changed(recipe):
            raise RunError(f"{changed}: go on with the file as it was, or start a run anew")
        reading = alive(f"{recipe.task}: reading the data") if observers else nullcontext()
        with reading:
            trainer = Trainer(recipe, tasks.load(recipe), group)
        with _write_errors_explained(run):
            return _Session(run, trainer, observers, checkpoint_seconds).run()


def _is_finished(run: RunFolder, recipe: Recipe, resume: bool) -> bool:
    """Whether there is nothing left to do; refuses a folder that holds something else."""
    if not run.has_run():
        return False
    if not resume:
        raise RunError(
            f"{run.path} holds a run already: add --resume to go on with it, or choose another "
            "folder with --run"
        )
    different = recipes.difference(run.recipe(), recipe)
    if different:
        raise RunError(
            f"{run.path} holds a run of another recipe; they differ in {', '.join(different)}. "
            "Choose another folder with --run"
        )
    return run.is_done()


@contextmanager
def _write_errors_explained(run: RunFolder) -> Iterator[None]:
    """A full disk or a folder gone read-only ends the run; what was saved before stays whole."""
    try:
        yield
    except BrokenPipeError:  # of the terminal, not of the folder: nobody reads what is shown
        raise
    except OSError as error:
        kept = run.checkpoints.updates()
        saved = f"the checkpoint of update {kept[-1]} is whole" if kept else "nothing was saved yet"
        raise RunError(
            f"{error.filename or run.path} cannot be written: {error.strerror or error}; {saved}. "
            f"Make room or allow writing, then: {resume_command(run.path)}"
        ) from error


def resume_command(folder: Path) -> str:
    """The command that goes on with a run."""
    return f"onegate train --run {shlex.quote(str(folder))} --resume"


class _Session:
    """One process's share of a run: from a start or a resume to the end or a stop.

    In a group all processes go through the same steps, because many of them are taken together:
    a checkpoint gathers the carried state, an evaluation sums over all.
    """

    def __init__(
        self,
        run: RunFolder,
        trainer: Trainer,
        observers: Sequence[Observer],
        checkpoint_seconds: float,
    ) -> None:
        self.folder, self.trainer, self.observers = run, trainer, observers
        self.group = trainer.group
        self.seconds_before = self.training_before = 0.0
        self.saved_at = -1
        self.saving = Throttle(checkpoint_seconds)
        self.showing = Throttle(0.2)
        self.speed = Speed()
        self.counted = 0.0
        self.machine_noted = False
        # torchrun passes on the signals that its processes get from the terminal as well.
        self.stop = StopRequest(impatient=self.group.size == 1)

    def run(self) -> Mapping[str, Any]:
        """Runs to the end and returns the result."""
        self._prepare()
        self.saving.ready()
        title = f"{self.folder.path}: {self.trainer.recipe.task} with {self.trainer.recipe.unit}"
        for observer in self.observers:
            observer.started(title)
        try:
            with self.stop.watching():
                self.trainer.run(self)
            result = self._finish()
        except RunError as error:
            state: State = "stopped" if isinstance(error, PeerError) else "failed"
            with contextlib.suppress(OSError):
                self.folder.note_status(state, update=self.trainer.update, error=str(error))
            raise
        finally:
            for observer in self.observers:
                observer.ended()
        return result

    def _prepare(self) -> None:
        """Begins a new run, or takes up the old one where its last whole checkpoint left it."""
        if not self.folder.has_run():
            self.folder.start(self.trainer.recipe)
        checkpoint = self.group.checkpoint(self._last_checkpoint)
        update, lines = 0, None
        if checkpoint is not None:
            self.trainer.load(checkpoint)
            self.seconds_before = checkpoint.values["seconds"]
            self.training_before = checkpoint.values["training_seconds"]
            lines = checkpoint.values.get("metrics")
            update = self.saved_at = checkpoint.update
        self.folder.checkpoints.remove_after(update)
        self.folder.keep_metrics(lines, self.trainer.evaluated)
        self.folder.note_status("running", update=update)

    def _last_checkpoint(self) -> Checkpoint | None:
        found = self.folder.checkpoints.last(lambda c: self.trainer.check(c, _KEPT))
        status = self.folder.status()
        saved = status.get("state") == "stopped" and "error" not in status
        if found is None and saved:
            raise RunError(
                f"{self.folder.checkpoints.folder} holds no checkpoint, although the run was saved "
                f"after update {status.get('update')}; put it back, or start the run anew in "
                "another folder with --run"
            )
        return found

    def after_update(self, loss: float, items: int) -> None:
        """Shows the position, saves if it is time, stops if asked to."""
        trained = self.trainer.clock.training
        self.speed.add(items, trained - self.counted)
        self.counted = trained
        if not self.machine_noted:
            self._note_machine()
        if self.showing.ready():
            with self.trainer.clock.phase("logging"):
                position = self._position(loss)
                for observer in self.observers:
                    observer.updated(position)
        due = self.group.leads and self.saving.ready()
        self.stop.number, save = self.group.largest(self.stop.number, int(due))
        if self.stop.number:
            self._stop()
        if save:
            self._save()

    def after_evaluation(self, metrics: dict[str, float], improved: bool) -> None:
        """Logs the metrics; the best model so far is saved where it will count."""
        metrics["seconds"] = self._seconds()
        metrics["training_seconds"] = self._training_seconds()
        metrics[f"{self.trainer.task.item}_per_second"] = self.speed.rate
        with self.trainer.clock.phase("logging"):
            self.folder.append_metrics(metrics)
            position = self._position(metrics["train_loss"])
            for observer in self.observers:
                observer.evaluated(position, metrics)
        if improved and self.trainer.recipe.keep == "best":
            self._save()

    def _position(self, loss: float) -> Position:
        trainer = self.trainer
        done = max(1, trainer.update)
        left = self._seconds() / done * (trainer.total - trainer.update)
        item = trainer.task.item
        return Position(
            trainer.update, trainer.total, trainer.epoch, loss, self.speed.rate, item, left
        )

    def _seconds(self) -> float:
        return self.seconds_before + self.trainer.clock.elapsed()

    def _training_seconds(self) -> float:
        return self.training_before + self.trainer.clock.training

    def _note_machine(self) -> None:
        """After the first update, when the layers know which engine they took."""
        engine = str(self.trainer.model.recurrent.engine_report())
        facts = machine.describe(engine) | {
            "seed": self.trainer.recipe.seed,
            "processes": self.group.size,
            "device": self.group.device.type,
        }
        changed = self.folder.note_machine(facts)
        if changed:
            warnings.warn(
                f"{self.folder.path} was started elsewhere ({'; '.join(changed)}): the numbers "
                "may differ in their last digits from those of an uninterrupted run",
                stacklevel=2,
            )
        self.machine_noted = True

    def _save(self) -> None:
        if self.saved_at == self.trainer.update:
            return
        with self.trainer.clock.phase("checkpoints"):
            self.folder.checkpoints.save(
                self.trainer.checkpoint(
                    seconds=self._seconds(),
                    training_seconds=self._training_seconds(),
                    metrics=self.folder.metric_lines(),
                )
            )
        self.saved_at = self.trainer.update

    def _stop(self) -> None:
        self._save()
        self.folder.note_status("stopped", update=self.trainer.update)
        raise StoppedError(
            f"stopped after update {self.trainer.update:,} of {self.trainer.total:,} and saved; "
            f"go on with: {resume_command(self.folder.path)}",
            self.stop.number,
        )

    def _finish(self) -> Mapping[str, Any]:
        """Measures what counts, once, and marks the run as done."""
        self._save()
        update = self._take_kept_model()
        logged = self.group.lead(lambda: self._logged_at(update))
        metrics = {k: v for k, v in logged.items() if k.startswith(("valid_", "test_"))}
        for split in sorted(self.trainer.task.splits - {"train"}):
            if f"{split}_{self.trainer.task.metric.name}" not in metrics:
                metrics |= self.trainer.measure(split)
        counts = models.count_parameters(self.trainer.recipe, self.trainer.model)
        result = {
            "update": update,
            "epoch": update / self.trainer.task.updates_per_epoch,
            **metrics,
            "seconds": self._seconds(),
            "seconds_per_epoch": self._training_seconds() / self.trainer.epoch,
            "time_shares": self.trainer.clock.shares(),
            "parameters": counts.hidden,
            "parameters_paper": counts.paper,
            "parameters_total": counts.total,
        }
        lines = self.folder.metric_lines()
        self.folder.note_status("done", update=self.trainer.update, result=result, metrics=lines)
        return result

    def _take_kept_model(self) -> int:
        """Goes to the model that counts; returns its update."""
        best = self.trainer.best_update
        if self.trainer.recipe.keep == "last" or best in (None, self.trainer.update):
            return self.trainer.update
        assert best is not None
        kept = self.group.checkpoint(lambda: self._checkpoint_if_whole(best))
        if kept is None:
            return self.trainer.update
        self.trainer.load_weights(kept)
        return best

    def _checkpoint_if_whole(self, update: int) -> Checkpoint | None:
        try:
            return self.folder.checkpoints.load(update)
        except CheckpointError as error:
            warnings.warn(f"{error}; the last model counts instead of the best", stacklevel=2)
            return None

    def _logged_at(self, update: int) -> Mapping[str, float]:
        lines = [m for m in self.folder.metrics() if m["update"] == update]
        return lines[-1] if lines else {}


class StopRequest:
    """Remembers that Ctrl-C or SIGTERM came; a second one interrupts at once if `impatient`."""

    def __init__(self, impatient: bool = True) -> None:
        self.number, self.impatient = 0, impatient

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Takes over the signals inside the `with` block; only a main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {s: signal.signal(s, self._note) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.number and self.impatient:
            raise KeyboardInterrupt
        self.number = number


def use_threads(count: int | None) -> None:
    """Sets how many threads compute; the numbers of a run depend on it."""
    if count is not None:
        torch.set_num_threads(count)


def use_bfloat16() -> None:
    """Lets the output layer of a language model learn with bfloat16 products."""
    torch.set_float32_matmul_precision("medium")
