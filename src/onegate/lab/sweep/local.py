"""The runs of a sweep in processes of this machine, side by side.

A process runs one run after the other, so that importing torch is paid for once. It leaves the
terminal's process group: Ctrl-C reaches this process alone, which asks the others to save and stop.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from onegate.lab import plugins, recipes
from onegate.lab.recipes import Recipe
from onegate.lab.sweep import worker
from onegate.lab.sweep.places import place
from onegate.lab.sweep.plan import Plan, cores
from onegate.lab.sweep.worker import News
from onegate.lab.train.session import StopRequest

_SECONDS_TO_STOP = 60.0


def run(plan: Plan, names: Sequence[str], report: Callable[[News], None]) -> int:
    """Runs the named runs; returns the number of the signal that stopped them, or 0."""
    side_by_side = min(len(names), max(1, cores() // plan.threads))
    if side_by_side == 1 or not _known_elsewhere(plan):
        return _one_after_the_other(plan, names, report)
    stop = StopRequest()
    with stop.watching():
        return _Pool(plan, names, report, stop).run(side_by_side)


def _known_elsewhere(plan: Plan) -> bool:
    """Whether other processes know the units and tasks; not those that a notebook has defined."""
    script = getattr(sys.modules["__main__"], "__file__", None)  # processes run it again
    if script is not None and Path(script).is_file():
        return True
    return not any(plugins.only_here(recipe) for recipe in plan.recipes)


def _one_after_the_other(plan: Plan, names: Sequence[str], report: Callable[[News], None]) -> int:
    """In this process: where there is nothing to do beside a run, or no other process can."""
    for name in names:
        recipe = plan.runs[name]
        news = worker.run(recipe, name, plan.place, plan.threads, plan.checkpoint_seconds, report)
        report(news)
        if news.state == "stopped":
            return signal.SIGINT
    return 0


class _Pool:
    """Processes that take runs from one queue."""

    def __init__(
        self, plan: Plan, names: Sequence[str], report: Callable[[News], None], stop: StopRequest
    ) -> None:
        self.plan, self.report, self.stop = plan, report, stop
        self.waiting = deque(names)
        self.processes: dict[Connection, _Process] = {}

    def run(self, count: int) -> int:
        for _ in range(count):
            self._start()
        asked_to_stop = False
        try:
            while self.processes:
                for connection in wait(list(self.processes), timeout=0.5):
                    assert isinstance(connection, Connection)
                    self._receive(connection)
                if self.stop.number and not asked_to_stop:
                    asked_to_stop = True
                    self.waiting.clear()
                    for process in self.processes.values():
                        process.stop()
        finally:
            for process in self.processes.values():
                process.kill()
        return self.stop.number

    def _start(self) -> None:
        process = _Process(self.plan)
        self.processes[process.connection] = process
        self._give(process)

    def _give(self, process: _Process) -> None:
        """The next run, or word that there is none."""
        if not self.waiting:
            process.run(None, None)
            return
        name = self.waiting.popleft()
        process.run(name, self.plan.runs[name])

    def _receive(self, connection: Connection) -> None:
        process = self.processes[connection]
        try:
            news = connection.recv()
        except (EOFError, OSError):
            self._reap(process)
            return
        self.report(news)
        if news.state != "running":
            self._give(process)

    def _reap(self, process: _Process) -> None:
        """A process that ended; if it had a run, another one takes its place."""
        del self.processes[process.connection]
        cause = process.end()
        if process.name is None:
            return
        if self.stop.number:
            self.report(News(process.name, "stopped", cause))
            return
        self.report(News(process.name, "failed", f"its process {cause}; the same command goes on"))
        if self.waiting:
            self._start()


class _Process:
    """A process of this machine that runs one run after the other."""

    def __init__(self, plan: Plan) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, there = context.Pipe()
        self.process = context.Process(
            target=_work,
            args=(
                there,
                plan.place.address,
                plan.threads,
                plan.checkpoint_seconds,
                plugins.luggage(),
            ),
            daemon=True,
        )
        self.process.start()
        there.close()
        self.name: str | None = None

    def run(self, name: str | None, recipe: Recipe | None) -> None:
        """Hands over a run; None is the end of work."""
        self.name = name
        with contextlib.suppress(OSError):  # it died: the open end of its pipe tells
            self.connection.send((name, recipes.to_json(recipe)) if name and recipe else None)

    def stop(self) -> None:
        """Asks it to save and end."""
        self.process.terminate()

    def end(self) -> str:
        """Waits for it; how it ended, in words."""
        self.process.join(_SECONDS_TO_STOP)
        self.connection.close()
        code = self.process.exitcode
        if code is not None and code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    def kill(self) -> None:
        """Ends it at once."""
        self.process.kill()
        self.process.join()


def _work(
    connection: Connection,
    address: str,
    threads: int,
    checkpoint_seconds: float,
    carried: plugins.Luggage,
) -> None:
    """The life of a process: runs that come through the pipe, and news that go back."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()
    there = place(address)
    plugins.unpack(carried)

    def report(news: News) -> None:
        try:
            connection.send(news)
        except OSError:  # nobody listens any more: save, and end
            os.kill(os.getpid(), signal.SIGTERM)

    while True:
        job: Any = connection.recv()
        if job is None:
            return
        name, content = job
        recipe = recipes.from_json(content)
        news = worker.run(recipe, name, there, threads, checkpoint_seconds, report)
        connection.send(news)
        if news.state == "stopped":
            return
