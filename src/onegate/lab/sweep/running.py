"""A sweep from its plan to its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from onegate.lab import StoppedError
from onegate.lab.sweep import local
from onegate.lab.sweep.board import Board
from onegate.lab.sweep.plan import Plan
from onegate.lab.sweep.worker import News

# Runs the named runs of a plan, tells of them, and returns the signal that stopped it, or 0.
Backend = Callable[[Plan, Sequence[str], Callable[[News], None]], int]


@dataclass
class Outcome:
    """How a sweep ended: errors by the names of runs that failed, and warnings by run."""

    failed: dict[str, str] = field(default_factory=dict)
    notes: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def hear(self, news: News) -> None:
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

        def tell(news: News) -> None:
            outcome.hear(news)
            board.hear(news)

        stopped_by = backend(plan, names, tell)
    if stopped_by:
        left = len(plan.unfinished())
        raise StoppedError(
            f"stopped; {len(plan.runs) - left} of {len(plan.runs)} runs are finished, the others "
            "are saved; the same command goes on",
            stopped_by,
        )
    return outcome
