"""Where the time of a training run goes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

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
        """Seconds since the clock was made."""
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


def report(shares: Mapping[str, float]) -> str:
    """A table of the shares that `Clock.shares` gives, and the sum of those that compute."""
    computing = sum(shares[name] for name in COMPUTING)
    return "\n".join(
        [
            *(f"{name:<12} {share:7.1%}" for name, share in shares.items()),
            f"forward, backward and optimiser: {computing:.1%} of the time, "
            f"{computing_share(shares):.1%} of it outside evaluation",
        ]
    )
