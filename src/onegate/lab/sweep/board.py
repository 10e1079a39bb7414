"""The table of a sweep's runs: live on a terminal, a line for each beginning and end elsewhere."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable

from rich.console import Console
from rich.live import Live
from rich.table import Table

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

    def hear(self, news: News) -> None:
        """Takes news in."""
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
