"""Timing by turns: medians and quartiles of contestants that alternate."""

from __future__ import annotations

import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

WARM_UP: Final = 2  # rounds
MINIMUM: Final = 5  # rounds, whatever they take, if nothing else is asked for
TURN: Final = 20e-3  # seconds that a turn lasts at least

Call = Callable[[], object]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Timing:
    """Seconds per call: median, quartiles and the fastest, over so many rounds of `calls` calls."""

    median: float
    lower: float
    upper: float
    fastest: float
    rounds: int
    calls: int


def race(
    entrants: Mapping[str, Call],
    seconds: float,
    clock: Clock = time.perf_counter,
    minimum: int = MINIMUM,
) -> dict[str, Timing]:
    """Times every entrant's call in turns, for about `seconds` seconds times their number.

    All have the same number of rounds, at least `minimum`; the slow ones set how many there are.
    """
    times, calls = _rounds(entrants, seconds, clock, minimum)
    return {name: summary(times[name], calls[name]) for name in entrants}


def ratios(
    entrants: Mapping[str, Call],
    base: str,
    seconds: float,
    clock: Clock = time.perf_counter,
    minimum: int = MINIMUM,
) -> tuple[dict[str, float], float]:
    """Each entrant's time over that of `base`: the median over rounds; and the median of base.

    What slows the machine for a while slows both of a round.
    """
    times, _ = _rounds(entrants, seconds, clock, minimum)
    found = {
        name: statistics.median(t / b for t, b in zip(own, times[base], strict=True))
        for name, own in times.items()
    }
    return found, statistics.median(times[base])


def _rounds(
    entrants: Mapping[str, Call], seconds: float, clock: Clock, minimum: int
) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Seconds per call, round by round, and how many calls a turn has."""
    turns = {name: _Turn.warmed_up(call, clock) for name, call in entrants.items()}
    times: dict[str, list[float]] = {name: [] for name in entrants}
    order, shuffler = list(entrants), random.Random(0)
    end = clock() + seconds * len(entrants)
    rounds = 0
    with _no_garbage_collection():
        while rounds < minimum or clock() < end:
            shuffler.shuffle(order)
            for name in order:
                times[name].append(turns[name].seconds_per_call(clock))
            rounds += 1
    return times, {name: turn.calls for name, turn in turns.items()}


def summary(times: Sequence[float], calls: int = 1) -> Timing:
    """Median and quartiles of seconds per call.

    >>> summary([1.0, 2.0, 3.0, 4.0, 5.0]).lower
    2.0
    """
    lower, median, upper = statistics.quantiles(times, n=4, method="inclusive")
    return Timing(median, lower, upper, min(times), len(times), calls)


@dataclass(frozen=True)
class _Turn:
    """One entrant's share of a round."""

    call: Call
    calls: int

    @classmethod
    def warmed_up(cls, call: Call, clock: Clock) -> _Turn:
        # The first call may compile; the last one tells how long a call is.
        taken = [_seconds(call, 1, clock) for _ in range(WARM_UP)][-1]
        return cls(call, max(1, math.ceil(TURN / max(taken, 1e-7))))

    def seconds_per_call(self, clock: Clock) -> float:
        self.call()  # meets the caches and the busy threads that the one before has left
        return _seconds(self.call, self.calls, clock) / self.calls


def _seconds(call: Call, calls: int, clock: Clock) -> float:
    start = clock()
    for _ in range(calls):
        call()
    return clock() - start


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
