"""Signals during a long run: Python's handlers are called, and what they raise ends the run.

Runs of 2^40 steps, all of which read and write the same memory, would otherwise never end.
"""

from __future__ import annotations

import ctypes
import faulthandler
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from onegate.engines.cpu import operator as fused
from onegate.engines.cpu import pool
from onegate.engines.cpu.native import BackwardCall, ForwardCall, NativeProgram
from onegate.lowering.program import program
from onegate.tracing import trace
from onegate.units import UNITS
from tests.library.engines.agreement import check, evaluate, problem

D, N, B = 3, 40, 5
WAYS = [(1, "rows"), (2, "rows"), (3, "columns")]
ENDLESS = 1 << 40
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class StopError(Exception):
    """Raised by the handler."""


@pytest.fixture(autouse=True)
def no_hanging() -> Iterator[None]:
    """A run that no signal ends would hold up the tests for ever."""
    faulthandler.dump_traceback_later(180, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


class Alarms:
    """Signals that come every few milliseconds; `handle` is given the number of each."""

    def __init__(self, handle: Callable[[int], None]) -> None:
        self.handle, self.count = handle, 0

    def __enter__(self) -> Alarms:
        self.before = signal.signal(signal.SIGALRM, self._called)
        signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
        return self

    def _called(self, *_: object) -> None:
        self.count += 1
        try:
            self.handle(self.count)
        except StopError:
            # Python drops what is raised in a finaliser: then there is another one, but not before
            # a busy machine has come to where the first is awaited.
            signal.setitimer(signal.ITIMER_REAL, 20.0)
            raise

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self.before)


class Run:
    """Tensors of one step of a unit, and calls that take that step again and again."""

    def __init__(self, unit: str, threads: int, split: str, directions: int = 1) -> None:
        graph = trace(UNITS[unit], D, N)
        generator = torch.Generator().manual_seed(0)

        def draw(*shape: int) -> Tensor:
            return 0.1 * torch.randn(shape, generator=generator)

        self.program = NativeProgram.of(program(graph))
        self.x, self.start = draw(1, B, D), draw(directions, B, N)
        self.out, self.last = torch.zeros(1, B, directions * N), torch.zeros(directions, B, N)
        self.parameters = [draw(*s) for s in directions * list(graph.parameters.values())]
        self.grads = [torch.zeros_like(p) for p in self.parameters]
        self.how = directions, threads, fused.SPLIT[split]
        self.pointers = [
            (ctypes.c_void_p * len(each))(*(t.data_ptr() for t in each))
            for each in (self.parameters, self.grads)
        ]

    def forward(self, steps: int = ENDLESS) -> ForwardCall:
        width = self.out.shape[2]
        return ForwardCall(
            self.program.handle, 32, *self.how, steps, B, None, self.x.data_ptr(), 0, D,
            self.start.data_ptr(), self.out.data_ptr(), 0, width, self.last.data_ptr(), None,
            ctypes.addressof(self.pointers[0]),
        )  # fmt: skip

    def backward(self, steps: int = ENDLESS) -> BackwardCall:
        grad_start = torch.zeros_like(self.start)
        self.grads.append(grad_start)
        width = self.out.shape[2]
        return BackwardCall(
            self.forward(steps), self.out.data_ptr(), 0, width, None, None, grad_start.data_ptr(),
            ctypes.addressof(self.pointers[1]),
        )  # fmt: skip


def raise_at(number: int) -> Callable[[int], None]:
    """A handler that returns until the alarm of that number."""

    def handle(count: int) -> None:
        if count >= number:
            raise StopError

    return handle


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize(("threads", "split"), WAYS)
def test_forward(threads: int, split: str, directions: int) -> None:
    run = Run("mgu", threads, split, directions)
    with Alarms(raise_at(4)) as alarms, pytest.raises(StopError):
        run.program.forward(run.forward())
    assert alarms.count >= 4  # those whose handler returned let the run go on
    assert run.out.isfinite().all()
    same = Run("mgu", 1, "rows", directions)
    for each in (run, same):
        each.program.forward(each.forward(steps=50))
    torch.testing.assert_close(run.last, same.last)


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize(("threads", "split"), WAYS)
def test_backward(threads: int, split: str, directions: int) -> None:
    """Of a unit of which nothing is kept but its output."""
    run = Run("irnn", threads, split, directions)
    assert run.program.kept_size(1, 1, 1) == 0
    with Alarms(raise_at(4)) as alarms, pytest.raises(StopError):
        run.program.backward(run.backward())
    assert alarms.count >= 4
    assert not any(t.any() for t in run.grads)  # written at the end of a run, or not at all
    same = Run("irnn", 1, "rows", directions)
    for each in (run, same):
        each.program.forward(each.forward(steps=50))
        each.program.backward(each.backward(steps=50))
    torch.testing.assert_close(run.grads[: len(run.parameters)], same.grads[: len(run.parameters)])


@pytest.mark.parametrize(("threads", "split"), WAYS)
def test_a_handler_may_run_the_engine_itself(threads: int, split: str) -> None:
    """The run that it interrupts goes on undisturbed, to the same fixed point."""
    run, settled = Run("mgu", threads, split), Run("mgu", 1, "rows")
    settled.program.forward(settled.forward(steps=2000))

    def handle(count: int) -> None:
        if count == 6:
            raise StopError
        inner = Run("gru", threads, split)
        inner.x = torch.full_like(inner.x, 1e3)
        inner.program.forward(inner.forward(steps=3))

    with Alarms(handle), pytest.raises(StopError):
        run.program.forward(run.forward())
    torch.testing.assert_close(run.out, settled.out)


def test_other_threads_run_on_while_the_main_thread_handles_signals() -> None:
    """Python has no handlers there: the run ends by itself."""
    run, expected = Run("mgu", 2, "rows"), Run("mgu", 1, "rows")
    expected.program.forward(expected.forward(steps=20_000))
    worker = threading.Thread(target=lambda: run.program.forward(run.forward(steps=20_000)))
    with Alarms(lambda _: None):
        worker.start()
        worker.join()
    torch.testing.assert_close(run.last, expected.last)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_layers_work_after_an_interruption(number: int) -> None:
    """Wherever it comes, memory that is used again is not handed out twice."""
    pool.release()
    long = problem(trace(UNITS["mgu"], D, 64), 3000, 7, dtype=torch.float32)

    def again_and_again() -> None:
        while True:
            evaluate(fused.run, long)

    with Alarms(raise_at(number)), pytest.raises(StopError):
        again_and_again()
    first, second = (pool.empty((1 << 19,), torch.zeros(1)).fill_(n) for n in (1.0, 2.0))
    assert (first == 1).all()
    assert (second == 2).all()
    check(problem(trace(UNITS["mgu"], D, N), 9, 7, 2, dtype=torch.float32))


SCRIPT = """
from tests.library.engines.test_native_interrupt import Run
run = Run("mgu", 2, "rows")
try:
    print("running", flush=True)
    run.program.forward(run.forward())
except KeyboardInterrupt:
    print("interrupted")
run.program.forward(run.forward(steps=50))
print(bool(run.last.any()))
"""


def take_control_c() -> None:
    """What runs in a shell's background ignores it, and so do its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_control_c() -> None:
    child: Any = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=take_control_c,
    )
    with child:
        try:
            assert child.stdout.readline() == "running\n"
            child.send_signal(signal.SIGINT)
            assert child.communicate(timeout=120)[0] == "interrupted\nTrue\n"
        finally:
            child.kill()
