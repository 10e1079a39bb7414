"""The laboratory: tasks, training, sweeps, reports, benchmarks and the command line."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from onegate.extras import need

if TYPE_CHECKING:
    from rich.console import Console

need("onegate.lab", "lab")


@functools.cache
def signs_of_life() -> Console:
    """Where signs that move are shown: one console, in which one within another has its line."""
    from rich.console import Console

    return Console(stderr=True, soft_wrap=True, highlight=False, markup=False)


class StoppedError(Exception):
    """Training was asked to stop; it is saved, and the message says how to go on."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.signal_number = signal_number
