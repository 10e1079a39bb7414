"""Times by turns, on a clock that the contestants themselves move."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from itertools import cycle

import numpy as np
import pytest

from onegate.lab.bench.measure import MINIMUM, TURN, WARM_UP, race, summary


class FakeClock:
    """Seconds pass only while a contestant runs."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ran: list[str] = []

    def __call__(self) -> float:
        return self.now

    def entrant(self, name: str, *seconds: float) -> Callable[[], None]:
        """One whose calls take the given times, over and over."""
        lengths: Iterator[float] = cycle(seconds)

        def call() -> None:
            self.ran.append(name)
            self.now += next(lengths)

        return call


def test_median_and_quartiles_are_numpys() -> None:
    times = [0.7, 0.1, 0.4, 0.35, 0.9, 2.0]
    found = summary(times, calls=3)
    assert [found.lower, found.median, found.upper] == pytest.approx(
        np.percentile(times, [25, 50, 75]).tolist()
    )
    assert (found.fastest, found.rounds, found.calls) == (0.1, 6, 3)


def test_race_reports_each_entrants_own_times() -> None:
    clock = FakeClock()
    # After two calls of warm-up the slow one takes 0.1, 0.2, 0.3, ... in its five rounds, each led
    # in by a call of 7 seconds.
    entrants = {
        "steady": clock.entrant("steady", 0.05),
        "slow": clock.entrant("slow", 9.0, 0.5, 7, 0.1, 7, 0.2, 7, 0.3, 7, 0.4, 7, 0.6),
    }
    found = race(entrants, seconds=0.0, clock=clock)
    assert found["steady"].median == pytest.approx(0.05)
    assert found["steady"].upper == pytest.approx(0.05)
    assert found["slow"].median == pytest.approx(0.3)
    assert (found["slow"].lower, found["slow"].upper) == pytest.approx((0.2, 0.4))
    assert found["slow"].rounds == found["steady"].rounds == MINIMUM


def test_rounds_fill_the_time_that_all_entrants_have_together() -> None:
    clock = FakeClock()
    entrants = {"a": clock.entrant("a", 0.25), "b": clock.entrant("b", 0.75)}
    found = race(entrants, seconds=10.0, clock=clock)  # with the calls that lead in
    assert found["a"].rounds == found["b"].rounds == 10


def test_every_round_is_one_turn_of_each_in_changing_order() -> None:
    clock = FakeClock()
    names = ["a", "b", "c"]
    race({name: clock.entrant(name, 0.125) for name in names}, 5, clock)
    counted = clock.ran[WARM_UP * len(names) :: 2]
    rounds = [tuple(counted[i : i + 3]) for i in range(0, len(counted), 3)]
    assert len(rounds) == 20
    assert all(sorted(order) == names for order in rounds)
    assert len(set(rounds)) == 6  # all orders occur


def test_turns_are_led_in_and_short_calls_repeated() -> None:
    clock = FakeClock()
    found = race({"tiny": clock.entrant("tiny", TURN / 4)}, 0.0, clock)
    assert found["tiny"].calls == 4
    assert found["tiny"].median == pytest.approx(TURN / 4)
    assert len(clock.ran) == WARM_UP + MINIMUM * (1 + 4)

    clock = FakeClock()
    assert race({"long": clock.entrant("long", 2 * TURN)}, 0.0, clock)["long"].calls == 1
    assert len(clock.ran) == WARM_UP + MINIMUM * 2


def test_garbage_is_not_collected_while_rounds_run_and_is_again_after_an_error() -> None:
    seen: list[bool] = []
    race({"a": lambda: seen.append(gc.isenabled())}, 0.0)
    assert seen[-1] is False
    assert gc.isenabled()

    calls = 0

    def failing() -> None:
        nonlocal calls
        calls += 1
        if calls > WARM_UP:
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        race({"a": failing}, 0.0)
    assert gc.isenabled()
