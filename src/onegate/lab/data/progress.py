"""What a user sees of a download."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def transfer_bar(name: str) -> Iterator[Callable[[int, int | None], None]]:
    """A progress bar on a terminal, one plain line elsewhere; yields `report(done, total)`."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    if not console.is_terminal:
        console.print(f"downloading {name}", highlight=False)
    with Progress(
        *columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
