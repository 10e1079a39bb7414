"""What users see while a run goes on, and where its time goes."""

from __future__ import annotations

import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from onegate.lab.train import progress
from onegate.lab.train.progress import Lines, Live, Position, Speed, Throttle, duration

HERE = Position(30, 120, 1.5, 0.25, 1234.4, "words", 75.0)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (727, "12:07"), (11_111, "3:05:11")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_position_in_words() -> None:
    assert str(HERE) == "epoch 1.50  update 30/120  loss 0.25  1,234 words/s  1:15 left"


def test_logs_get_a_line_for_an_evaluation_and_none_between(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (output,) = progress.for_output()
    assert type(output) is Lines
    output.started("runs/a [b]")
    output.updated(HERE)
    output.evaluated(HERE, {"update": 30, "valid_mse": 0.125, "valid_loss": 0.125, "lr": 1})
    output.ended()
    assert capsys.readouterr().out == f"runs/a [b]\n{HERE}  valid_mse 0.125\n"


def test_quiet_is_quiet() -> None:
    assert progress.for_output(quiet=True) == []


def test_a_terminal_gets_a_live_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    (output,) = progress.for_output()
    assert type(output) is Live
    output.started("a run")
    output.updated(HERE)
    (task,) = output.progress.tasks
    assert (task.completed, task.total, task.description) == (30, 120, f"{HERE}  ")
    output.evaluated(HERE, {"valid_mse": 0.125, "lr": 1})
    assert task.description == f"{HERE}  valid_mse 0.125"
    output.ended()


def test_speed_forgets_the_past() -> None:
    speed = Speed(half_life=1.0)
    for _ in range(20):
        speed.add(100, 1.0)
    assert speed.rate == pytest.approx(100)
    for _ in range(20):
        speed.add(300, 1.0)
    assert speed.rate == pytest.approx(300, rel=1e-3)


def test_throttle(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [10.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    throttle = Throttle(5.0)
    assert throttle.ready()
    now[0] = 14.9
    assert not throttle.ready()
    now[0] = 15.0
    assert throttle.ready()
    assert not throttle.ready()


def test_tensorboard_gets_every_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[object] = []

    class SummaryWriter:
        def __init__(self, folder: str) -> None:
            written.append(folder)

        def add_text(self, *args: object) -> None:
            written.append(args)

        add_scalar = add_text

        def close(self) -> None:
            written.append("closed")

    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    board = progress.TensorBoard(tmp_path)
    board.started("title")
    board.updated(HERE)
    board.evaluated(HERE, {"valid_mse": 0.5})
    board.ended()
    assert written == [str(tmp_path), ("run", "title"), ("valid_mse", 0.5, 30), "closed"]


def test_tensorboard_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ValueError, match=r"pip install 'onegate\[tensorboard\]'"):
        progress.TensorBoard(tmp_path)


def test_shares_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    clock = progress.Clock()
    for phase, seconds in (("forward", 3.0), ("backward", 4.0), ("optimizer", 1.0), ("data", 1.0)):
        with clock.phase(phase):
            now[0] += seconds
    with clock.phase("evaluation"):
        now[0] += 10.0
    now[0] += 1.0
    shares = clock.shares()
    assert shares["forward"] == pytest.approx(3 / 20)
    assert shares["other"] == pytest.approx(1 / 20)
    assert clock.training == 9
    assert progress.computing_share(shares) == pytest.approx(8 / 10)
    text = progress.shares_table(shares)
    assert "forward, backward and optimiser: 40.0% of the time, 80.0% of it outside" in text


def test_making_items_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    clock = progress.Clock()

    def slow() -> Iterator[int]:
        for i in range(3):
            now[0] += 2.0
            yield i

    for _ in clock.timed("data", slow()):
        now[0] += 5.0
    assert clock.seconds["data"] == 6.0


def test_a_long_step_says_that_it_is_alive(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    with progress.alive("[timing] some updates") as notify:
        written = ""
        while not written:  # not only at its end
            written = capsys.readouterr().err
        assert written == "[timing] some updates ...\n"
        time.sleep(0.1)  # for the timer's thread to end
        notify("the second")
        assert capsys.readouterr().err == "[timing] some updates: the second ...\n"
    assert capsys.readouterr().out == ""


def test_a_short_step_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.alive("timing") as notify:
        notify("the second")
    assert capsys.readouterr() == ("", "")
