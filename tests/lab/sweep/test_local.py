"""Sweeps in processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from onegate.lab import StoppedError, sweep
from onegate.lab.runs import Run
from onegate.lab.sweep import Plan, local, make, place
from onegate.lab.sweep.worker import News
from tests.lab.sweep.made import recipes, same_bits

# Long enough to be hit in the middle.
ASKED = recipes(("mgu", "gru"), (0, 1), "length=15")
DIVERGES = ("optimizer.kind=sgd", "optimizer.momentum=0", "optimizer.lr=1e25",
            "optimizer.clip_norm=0", "schedule.kind=constant")  # fmt: skip


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "cores", lambda: 2)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs one after the other in this process."""
    folder = tmp_path_factory.mktemp("alone")
    plan = Plan(tuple(ASKED), place(folder), 1)
    assert local._one_after_the_other(plan, list(plan.runs), lambda _: None) == 0
    return folder


def planned(folder: Path) -> Plan:
    return make(ASKED, place(folder), 1, checkpoint_seconds=0.2)


def compare(one: Path, other: Path, plan: Plan) -> None:
    for name in plan.runs:
        same_bits(one / name, other / name)


def test_side_by_side_and_failures_stop_nothing(alone: Path, tmp_path: Path) -> None:
    plan = make([*recipes(("mgu",), (5,), *DIVERGES), *ASKED], place(tmp_path), 1)
    diverging, *others = plan.runs
    outcome = sweep.run(plan)
    assert list(outcome.failed) == [diverging]
    assert "Try a smaller optimizer.lr" in outcome.failed[diverging]
    assert outcome.describe().startswith(f"1 of the runs failed:\n{diverging}: the ")
    for name in others:
        same_bits(tmp_path / name, alone / name)
        assert Run.read(tmp_path / name).machine["threads"] == 1
    assert plan.unfinished() == [diverging]


def test_killed_processes_cost_their_runs_and_the_same_plan_goes_on(
    alone: Path, tmp_path: Path
) -> None:
    plan = planned(tmp_path)
    last: dict[str, News] = {}
    killed: list[str] = []

    def kill_once(news: News) -> None:
        last[news.name] = news
        if not killed and news.text:
            killed.append(news.name)
            for child in multiprocessing.active_children():
                assert child.pid is not None
                os.kill(child.pid, signal.SIGKILL)

    assert local.run(plan, list(plan.runs), kill_once) == 0
    failed = [name for name, news in last.items() if news.state == "failed"]
    assert len(failed) == 2
    for name in failed:
        assert last[name].text.startswith("its process was killed by SIGKILL")
    assert [n for n in plan.runs if last[n].state == "done"] == [
        n for n in plan.runs if n not in failed
    ]
    assert plan.unfinished() == sorted(failed, key=list(plan.runs).index)
    assert sweep.run(plan).failed == {}
    compare(tmp_path, alone, plan)


def test_stopped_runs_are_saved_and_the_same_plan_goes_on(
    alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(tmp_path)
    original = local.run
    seen: list[News] = []
    sent: list[int] = []

    def interrupted(*args: object) -> int:
        def report(news: News) -> None:
            seen.append(news)
            if news.text and not sent:
                sent.append(signal.SIGINT)
                os.kill(os.getpid(), signal.SIGINT)

        return original(args[0], args[1], report)  # type: ignore[arg-type]

    with pytest.raises(StoppedError, match=r"of 4 runs are finished, .* the same command goes on"):
        sweep.run(plan, interrupted)
    # One that was just being started is ended at once, before it has a folder.
    stopped = [n for n in seen if n.state == "stopped" and n.text.startswith("stopped after")]
    assert stopped
    for news in stopped:
        assert place(tmp_path).status(news.name)["state"] == "stopped"
    assert not multiprocessing.active_children()
    monkeypatch.setattr(local, "cores", lambda: 1)
    assert sweep.run(plan).failed == {}
    compare(tmp_path, alone, plan)


def test_one_run_has_no_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_Pool", None)
    plan = make(recipes(("mgu",), (0,)), place(tmp_path), 1)
    assert sweep.run(plan).failed == {}
    assert plan.unfinished() == []


def test_the_longest_run_goes_first(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    order: list[str] = []

    def backend(plan: Plan, names: Sequence[str], report: Callable[[News], None]) -> int:
        order.extend(names)
        return 0

    sweep.run(plan, backend, estimates=[1.0, 4.0, 2.0, 3.0])
    names = list(plan.runs)
    assert order == [names[1], names[3], names[2], names[0]]
