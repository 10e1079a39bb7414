"""The fused engine among threads and processes, and what it keeps and leaves to the reference."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.func import functional_call, grad, vmap
from torch.utils.data import DataLoader, Dataset

import onegate
from onegate.engines.cpu import programs
from onegate.engines.cpu.native import NativeProgram
from onegate.nn.layers import Recurrent

T, B, D, N = 20, 8, 50, 32  # enough work for threads, too little for torch's own operations
TIMEOUT = 120  # seconds; a deadlock would take for ever


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def layer_and_input(**options: Any) -> tuple[Recurrent, Tensor]:
    torch.manual_seed(0)
    layer = onegate.LSTM(D, N, bidirectional=True, engine="fused", **options)
    return layer, torch.randn(T, B, D)


def step(layer: Recurrent, x: Tensor) -> list[Tensor]:
    """Outputs and gradients, as in training."""
    out, _ = layer(x)
    return [out.detach(), *torch.autograd.grad(out[-1].square().sum(), list(layer.parameters()))]


def close(ours: list[Tensor], theirs: list[Tensor]) -> bool:
    return all(torch.allclose(a, b, atol=1e-5) for a, b in zip(ours, theirs, strict=True))


def test_many_threads_at_once() -> None:
    """Of one layer, and of layers made meanwhile."""
    layer, x = layer_and_input()
    expected = step(layer, x)
    together = threading.Barrier(6)

    def work(number: int) -> bool:
        torch.set_num_threads(1 + number % 3)  # is the thread's own
        together.wait(TIMEOUT)
        own = onegate.MGU(D, N + number, engine="fused")
        for _ in range(10):
            own(x)
            if not close(step(layer, x), expected):
                return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(6), timeout=TIMEOUT))


def in_fork(work: Any, *args: Any) -> Any:
    """What `work` returns in a forked process; a test fails if that hangs."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=lambda: theirs.send(work(*args)))
    process.start()
    try:
        assert ours.poll(TIMEOUT), "the forked process hangs"
        return ours.recv()
    finally:
        process.kill()
        process.join()


def listed(tensors: list[Tensor]) -> list[Any]:
    return [tensor.tolist() for tensor in tensors]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_after_fork() -> None:
    layer, x = layer_and_input()
    expected = step(layer, x)
    found = in_fork(lambda: listed(step(layer, x)))
    assert close([torch.tensor(each) for each in found], expected)
    assert close(step(layer, x), expected)


ONLY_TORCH_BEFORE = f"""
import multiprocessing, torch, onegate
torch.set_num_threads(2)
layer, x = onegate.LSTM({D}, {N}, engine="fused"), torch.randn({T}, {B}, {D})
(torch.ones(600, 600) @ torch.ones(600, 600)).relu().sum()
context = multiprocessing.get_context("fork")
ours, theirs = context.Pipe(duplex=False)
process = context.Process(target=lambda: theirs.send(layer(x)[0].tolist()))
process.start()
answered = ours.poll({TIMEOUT})
same = answered and torch.allclose(torch.tensor(ours.recv()), layer(x)[0], atol=1e-5)
process.kill()
print("same" if same else "differs" if answered else "hangs")
"""


def output_of(script: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        capture_output=True,
        text=True,
        timeout=2 * TIMEOUT,
        env=os.environ | environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_after_a_fork_before_which_torch_alone_had_threads() -> None:
    assert output_of(ONLY_TORCH_BEFORE) == "same"


class Encoded(Dataset[Tensor]):
    """Runs a layer while it loads."""

    def __init__(self, layer: Recurrent, x: Tensor) -> None:
        self.layer, self.x = layer, x

    def __len__(self) -> int:
        return 6

    def __getitem__(self, place: int) -> Tensor:
        with torch.no_grad():
            out: Tensor = self.layer(self.x + place)[0]
        return out


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_in_the_workers_of_a_data_loader() -> None:
    layer, x = layer_and_input()
    data = Encoded(layer, x)
    expected = torch.stack([data[i] for i in range(len(data))])
    loader = DataLoader(data, 3, num_workers=2, multiprocessing_context="fork", timeout=TIMEOUT)
    torch.testing.assert_close(torch.cat(list(loader)), expected)


COUNT_THREADS = """
import os, torch, onegate
torch.set_num_threads(1)
layer, x = onegate.MGU(64, 64, engine="fused"), torch.randn(30, 8, 64)  # enough for a team
counts = []
for threads in (1, 2, 4):
    torch.set_num_threads(threads)
    layer(x)[0][0, 0, 0].backward()
    counts.append(len(os.listdir("/proc/self/task")))
print(*(count - counts[0] for count in counts))
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_as_many_threads_as_torch_is_told() -> None:
    """And none of its own while torch has one."""
    counts = [int(count) for count in output_of(COUNT_THREADS).split()]
    assert counts == [0, 1, 3]


WHERE_NO_THREAD_CAN_BE_HAD = f"""
import torch, onegate
layer, x = onegate.LSTM({D}, {N}, engine="fused"), torch.randn({T}, {B}, {D})
found = []
for threads in (1, 3):
    torch.set_num_threads(threads)
    layer.zero_grad()
    out, _ = layer(x)
    out.square().sum().backward()
    found.append([out, *(p.grad for p in layer.parameters())])
torch.testing.assert_close(*found)
print("same")
"""


def test_fewer_threads_than_asked_for() -> None:
    assert output_of(WHERE_NO_THREAD_CAN_BE_HAD, OMP_THREAD_LIMIT="2") == "same"


WITH_THIS_INSTRUCTION_SET = """
import torch, onegate
from onegate.engines.cpu.native import library
torch.manual_seed(0)
print(library().instruction_set)
for dtype in (torch.float32, torch.float64):
    found = []
    x = torch.randn(7, 5, 50, dtype=dtype)
    for engine in ("fused", "reference"):
        torch.manual_seed(1)
        layer = onegate.LSTM(50, 33, 2, bidirectional=True, engine=engine, dtype=dtype)
        out, _ = layer(x)
        grads = torch.autograd.grad(out.square().sum(), list(layer.parameters()))
        found.append([out, *grads])
    torch.testing.assert_close(*found, rtol=2e-5, atol=2e-5)
"""


@pytest.mark.parametrize("kind", ["baseline", "avx2"])
def test_other_instruction_sets(kind: str) -> None:
    """What the machine lacks is not taken."""
    assert output_of(WITH_THIS_INSTRUCTION_SET, ONEGATE_ISA=kind) in (kind, "baseline")


class TestKeeping:
    """What is kept for a backward pass: something where there will be one, nothing elsewhere."""

    @pytest.fixture
    def kept(self, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
        seen: list[bool] = []

        def watched(self: Any, call: Any, run: Any = NativeProgram.forward) -> None:
            seen.append(bool(call.kept))
            run(self, call)

        monkeypatch.setattr(NativeProgram, "forward", watched)
        return seen

    def test_training_keeps(self, kept: list[bool]) -> None:
        layer, x = layer_and_input()
        layer(x)
        assert kept == [True]

    @pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
    def test_no_grad_and_inference_keep_nothing(self, kept: list[bool], mode: Any) -> None:
        layer, x = layer_and_input()
        expected, _ = layer(x)
        with mode():
            out, _ = layer(x)
        assert kept == [True, False]
        assert not out.requires_grad
        assert torch.equal(out, expected)

    def test_frozen_parameters_keep_nothing(self, kept: list[bool]) -> None:
        layer, x = layer_and_input()
        layer.requires_grad_(False)
        layer(x)
        layer(x.requires_grad_())
        assert kept == [False, True]

    def test_the_operator_returns_nothing_kept(self) -> None:
        layer, x = layer_and_input()
        graph = layer._weights()[0][0].graph
        parameters = list(layer.parameters())
        start = torch.zeros(2, B, 2 * N)
        for keep in (True, False):
            with torch.no_grad():
                kept = torch.ops.onegate.forward(
                    x, start, parameters, None, programs.key_of(graph), keep
                )[2]
            assert bool(kept.numel()) is keep

    def test_as_much_as_it_says(self) -> None:
        """MGU keeps f and the candidate: two numbers for each of the output's."""
        layer, x = onegate.MGU(D, N, engine="fused"), torch.randn(T, B, D)
        saved = []

        def pack(tensor: Tensor) -> Tensor:
            saved.append(tensor)
            return tensor

        with saved_tensors_hooks(pack, lambda tensor: tensor):
            out, _ = layer(x)
        own = {t.data_ptr() for t in (x, out, *layer.parameters())}
        extra = sum(t.numel() for t in saved if t.data_ptr() not in own and t.shape[-1:] != (N,))
        assert extra == 2 * out.numel()


def test_changing_an_output_in_place_changes_no_gradient() -> None:
    layer, x = layer_and_input()
    parameters = list(layer.parameters())
    expected = torch.autograd.grad(layer(x)[0].sum(), parameters)
    out, _ = layer(x)
    with torch.no_grad():
        out.zero_()
    torch.testing.assert_close(torch.autograd.grad(out.sum(), parameters), expected)


def test_backward_twice() -> None:
    layer, x = layer_and_input()
    out, _ = layer(x)
    parameters = list(layer.parameters())
    first = torch.autograd.grad(out.sum(), parameters, retain_graph=True)
    again = torch.autograd.grad(out.sum(), parameters)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_checkpointing_runs_it_again() -> None:
    layer, x = layer_and_input()
    expected = step(layer, x)
    checkpoint: Any = torch.utils.checkpoint.checkpoint
    out, _ = checkpoint(layer, x, use_reentrant=False)
    grads = torch.autograd.grad(out[-1].square().sum(), list(layer.parameters()))
    assert all(torch.equal(a, b) for a, b in zip([out, *grads], expected, strict=True))


class TestLeftToTheReference:
    def test_vmap(self) -> None:
        layer = onegate.MGU(D, N, dtype=torch.float64)
        xs = torch.randn(3, T, B, D, dtype=torch.float64)
        found = vmap(lambda x: layer(x)[0])(xs)
        assert layer.engine_report().name == "reference"
        assert "vmap" in layer.engine_report().reason
        for x, out in zip(xs, found, strict=True):
            torch.testing.assert_close(layer(x)[0], out)
        assert layer.engine_report().name == "fused"

    def test_gradients_of_each_row(self) -> None:
        """torch.func over the parameters: the sum over rows is the fused engine's gradient."""
        layer = onegate.MGU(D, N, dtype=torch.float64)
        x = torch.randn(T, B, D, dtype=torch.float64)
        parameters = dict(layer.named_parameters())

        def loss(values: Any, row: Tensor) -> Tensor:
            out: Tensor = functional_call(layer, values, row)[0]
            return out.square().sum()

        each = vmap(grad(loss), in_dims=(None, 1))(parameters, x)
        assert layer.engine_report().name == "reference"
        whole = torch.autograd.grad(layer(x)[0].square().sum(), list(parameters.values()))
        assert layer.engine_report().name == "fused"
        for (name, found), expected in zip(each.items(), whole, strict=True):
            torch.testing.assert_close(found.sum(0), expected, msg=name)

    @pytest.mark.parametrize("name", ["mgu", "lstm", "mut1"])
    def test_second_derivatives(self, name: str) -> None:
        """A gradient penalty: the fused forward pass, the reference's derivatives behind it."""
        found = []
        for engine in ("fused", "reference"):
            torch.manual_seed(0)
            layer = Recurrent(name, 4, 4, bidirectional=True, engine=engine, dtype=torch.float64)
            x = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)
            out, _ = layer(x, lengths=[3, 2])
            (slope,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
            penalty = slope.square().sum()
            found.append(torch.autograd.grad(penalty, [x, *layer.parameters()]))
        torch.testing.assert_close(*found)
