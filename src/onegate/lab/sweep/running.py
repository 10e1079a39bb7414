"""A sweep from its plan to its end, and the table of its runs on the way."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.table import Table

from onegate.lab import StoppedError
from onegate.lab.sweep import local
from onegate.lab.sweep.plan import Plan
from onegate.lab.sweep.worker import News, State

_SHOWN: tuple[State, ...] = ("waiting", "running", "done", "failed")
_MOST_ROWS = 30
_COLORS = {"running": "cyan", "failed": "red", "done": "green"}


class Board:
    """What is known of every run of a sweep.

    names: of all runs; left: of those that are to be run.
    """

    def __init__(self, names: Iterable[str], left: Iterable[str]) -> None:
        todo = set(left)
        self.news = {n: News(n, "waiting" if n in todo else "done", "before") for n in names}
        self.console = Console(file=sys.stdout, soft_wrap=True, highlight=False, markup=False)
        self.live = Live(console=self.console, get_renderable=self.table, refresh_per_second=4)
        self.on_a_terminal = sys.stdout.isatty()

    def __enter__(self) -> Board:
        if self.on_a_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.on_a_terminal:
            self.live.stop()

    def update(self, news: News) -> None:
        before = self.news[news.name]
        if news.state == "running" and before.state == "running" and not news.text:
            return
        self.news[news.name] = news
        if not self.on_a_terminal and news.state != before.state and news.state != "waiting":
            print(f"{self.summary()} | {news.name} {news.state}  {news.text}".rstrip(), flush=True)

    def summary(self) -> str:
        """How many runs are in which state."""
        counts = Counter(news.state for news in self.news.values())
        return ", ".join(f"{counts[state]} {state}" for state in _SHOWN if counts[state])

    def table(self) -> Table:
        """The runs: those that run first, then failed, finished and waiting ones."""
        table = Table(box=None, pad_edge=False, title=self.summary(), title_justify="left")
        for heading in ("run", "state", ""):
            table.add_column(heading, no_wrap=True)
        order = ("running", "failed", "stopped", "done", "waiting")
        rows = sorted(self.news.values(), key=lambda news: order.index(news.state))
        for news in rows[:_MOST_ROWS]:
            table.add_row(news.name, news.state, news.text, style=_COLORS.get(news.state))
        if len(rows) > _MOST_ROWS:
            table.add_row(f"and {len(rows) - _MOST_ROWS} more", "", "")
        return table


# Runs the named runs of a plan, tells of them, and returns the signal that stopped it, or 0.
Backend = Callable[[Plan, Sequence[str], Callable[[News], None]], int]


@dataclass
class Outcome:
    """How a sweep ended: errors by the names of runs that failed, and warnings by run."""

    failed: dict[str, str] = field(default_factory=dict)
    notes: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def note(self, news: News) -> None:
        """Remembers what has to be said at the end."""
        if news.state == "failed":
            self.failed[news.name] = news.text
        if news.notes:
            self.notes[news.name] = news.notes

    def describe(self) -> str:
        """The failures and the warnings, a paragraph each."""
        lines = [f"{name}: warning: {note}" for name, notes in self.notes.items() for note in notes]
        if self.failed:
            lines.append(f"{len(self.failed)} of the runs failed:")
            lines += [f"{name}: {error}" for name, error in self.failed.items()]
        return "\n".join(lines)


def run(
    plan: Plan, backend: Backend = local.run, estimates: Sequence[float] | None = None
) -> Outcome:
    """Runs what is not finished yet, the longest runs first; a failed run stops no other.

    estimates: seconds of each recipe of the plan. Raises `StoppedError` after Ctrl-C or SIGTERM;
    the same plan goes on later.
    """
    seconds = dict(zip(plan.runs, estimates or [0.0] * len(plan.runs), strict=True))
    names = sorted(plan.unfinished(), key=lambda name: -seconds[name])
    outcome = Outcome()
    if not names:
        return outcome
    with Board(plan.runs, names) as board:

        def report(news: News) -> None:
            outcome.note(news)
            board.update(news)

        stopped_by = backend(plan, names, report)
    if stopped_by:
        left = len(plan.unfinished())
        raise StoppedError(
            f"stopped; {len(plan.runs) - left} of {len(plan.runs)} runs are finished, the others "
            "are saved; the same command goes on",
            stopped_by,
        )
    return outcome
