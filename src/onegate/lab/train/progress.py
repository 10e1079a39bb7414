"""What a running training run shows, and where its time goes."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from onegate.lab import signs_of_life


@dataclass(frozen=True)
class Position:
    """Where a run is: `rate` is `item`s per second of training, `left` seconds to its end."""

    update: int
    total: int
    epoch: float
    loss: float
    rate: float
    item: str
    left: float

    def __str__(self) -> str:
        return (
            f"epoch {self.epoch:.2f}  update {self.update:,}/{self.total:,}  "
            f"loss {self.loss:.4g}  {self.rate:,.0f} {self.item}/s  {duration(self.left)} left"
        )


def duration(seconds: float) -> str:
    """Seconds in words that fit their size: 0:42, 12:07, 3:05:11.

    >>> duration(727)
    '12:07'
    """
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


class Observer(Protocol):
    """Looks on while a run goes on."""

    def started(self, title: str) -> None:
        """Before the first update."""

    def updated(self, position: Position) -> None:
        """Now and then, some times a second."""

    def evaluated(self, position: Position, metrics: Mapping[str, float]) -> None:
        """After every evaluation."""

    def ended(self) -> None:
        """At the end, however it came."""


class Lines:
    """One line at the start and at every evaluation: for logs."""

    def __init__(self) -> None:
        self.console = Console(file=sys.stdout, soft_wrap=True, highlight=False, markup=False)

    def started(self, title: str) -> None:
        self.console.print(title)

    def updated(self, position: Position) -> None:
        """Says nothing: a log is read later."""

    def evaluated(self, position: Position, metrics: Mapping[str, float]) -> None:
        self.console.print(f"{position}  {shown(metrics)}")

    def ended(self) -> None:
        """Nothing is left open."""


class Live(Lines):
    """A line that is always up to date, for a terminal."""

    def __init__(self) -> None:
        super().__init__()
        self.progress = Progress(
            SpinnerColumn(), BarColumn(20), TextColumn("{task.description}"), console=self.console
        )
        self.bar = self.progress.add_task("starting")
        self.last_metrics = ""

    def started(self, title: str) -> None:
        """Prints the title and begins the live line."""
        super().started(title)
        self.progress.start()

    def updated(self, position: Position) -> None:
        """Moves the line on."""
        text = f"{position}  {self.last_metrics}"
        self.progress.update(
            self.bar, completed=position.update, total=position.total, description=text
        )

    def evaluated(self, position: Position, metrics: Mapping[str, float]) -> None:
        """Prints position and metrics; the live line shows these metrics from now on."""
        super().evaluated(position, metrics)
        self.last_metrics = shown(metrics)
        self.updated(position)

    def ended(self) -> None:
        """Leaves the terminal as it was."""
        self.progress.stop()


def shown(metrics: Mapping[str, float]) -> str:
    """The metrics that a line has room for: of validation and test, without losses."""
    wanted = ("valid_", "test_")
    return "  ".join(
        f"{name} {value:.4g}"
        for name, value in metrics.items()
        if name.startswith(wanted) and not name.endswith("_loss")
    )


class TensorBoard:
    """Every metric as a TensorBoard scalar over updates."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ValueError(
                f"TensorBoard is not installed ({error}): pip install 'onegate[tensorboard]'"
            ) from None
        self.writer: Any = SummaryWriter(str(folder))

    def started(self, title: str) -> None:
        self.writer.add_text("run", title)

    def updated(self, position: Position) -> None:
        """Nothing between evaluations."""

    def evaluated(self, position: Position, metrics: Mapping[str, float]) -> None:
        """Writes the metrics at this update."""
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, position.update)

    def ended(self) -> None:
        self.writer.close()


def for_output(quiet: bool = False) -> list[Observer]:
    """What suits the place where the output goes."""
    if quiet:
        return []
    return [Live() if sys.stdout.isatty() else Lines()]


QUIET_SECONDS = 2.0  # what ends sooner need not show that it is alive


@contextmanager
def alive(doing: str) -> Iterator[Callable[[str], None]]:
    """Shows that something is being done: a moving sign on a terminal, elsewhere lines.

    What it gives takes a text that says more, at which step the work is. Lines are written of what
    takes longer than `QUIET_SECONDS`.
    """
    console = signs_of_life()
    if console.is_terminal:
        with console.status(doing) as status:
            yield lambda more: status.update(f"{doing}: {more}")
        return
    latest = doing

    def write() -> None:
        console.print(f"{latest} ...")

    timer = threading.Timer(QUIET_SECONDS, write)
    timer.daemon = True

    def notify(more: str) -> None:
        nonlocal latest
        latest = f"{doing}: {more}"
        if timer.finished.is_set():
            write()

    timer.start()
    try:
        yield notify
    finally:
        timer.cancel()


class Speed:
    """Smoothed items per second, counted over training alone."""

    def __init__(self, half_life: float = 20.0) -> None:
        self.half_life, self.items, self.seconds = half_life, 0.0, 1e-9

    def add(self, items: float, seconds: float) -> None:
        """Notes work that was done."""
        fading = 0.5 ** (seconds / self.half_life)
        self.items = self.items * fading + items
        self.seconds = self.seconds * fading + seconds

    @property
    def rate(self) -> float:
        """Items per second, the recent past counting most."""
        return self.items / self.seconds


class Throttle:
    """Lets something happen only so often."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.last = seconds, -float("inf")

    def ready(self) -> bool:
        """Whether the time has come; if so it starts anew."""
        now = time.monotonic()
        if now - self.last < self.seconds:
            return False
        self.last = now
        return True


_T = TypeVar("_T")

COMPUTING = ("forward", "backward", "optimizer")
PHASES = (*COMPUTING, "data", "logging", "checkpoints", "evaluation")


class Clock:
    """Seconds spent in each phase; phases must not overlap."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.started = time.perf_counter()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Counts the time inside the `with` block."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - start

    def timed(self, name: str, items: Iterator[_T]) -> Iterator[_T]:
        """The same items; the time to make them is counted."""
        while True:
            with self.phase(name):
                item = next(items, None)
            if item is None:
                return
            yield item

    def elapsed(self) -> float:
        return time.perf_counter() - self.started

    @property
    def training(self) -> float:
        """Seconds in which the model was being trained, data included."""
        return sum(self.seconds[name] for name in (*COMPUTING, "data"))

    def shares(self) -> dict[str, float]:
        """The share of each phase in the time since the clock was made; the rest is `other`."""
        total = self.elapsed()
        shares = {name: seconds / total for name, seconds in self.seconds.items()}
        return {**shares, "other": 1 - sum(shares.values())}


def computing_share(shares: Mapping[str, float]) -> float:
    """The share of forward, backward and optimiser in the time outside evaluation."""
    return sum(shares[name] for name in COMPUTING) / (1 - shares["evaluation"])


def shares_table(shares: Mapping[str, float]) -> str:
    """A table of the shares that `Clock.shares` gives, and the sum of those that compute."""
    computing = sum(shares[name] for name in COMPUTING)
    return "\n".join(
        [
            *(f"{name:<12} {share:7.1%}" for name, share in shares.items()),
            f"forward, backward and optimiser: {computing:.1%} of the time, "
            f"{computing_share(shares):.1%} of it outside evaluation",
        ]
    )
