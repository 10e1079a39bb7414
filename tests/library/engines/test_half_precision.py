"""Tensors stored in half precision where all is computed in float32, on every instruction set."""

from __future__ import annotations

import copy
import ctypes
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import onegate
from onegate.engines.cpu import operator, stacked
from onegate.engines.cpu.native import ForwardCall, NativeProgram, library
from onegate.lowering.program import program
from onegate.nn.drop_in_rule import ALWAYS, RULES
from onegate.tracing import trace
from tests.library.comparing import cotangents
from tests.library.comparing import flat as flat_results
from tests.library.sample_unit import unit

pytestmark = pytest.mark.skipif(library().problem is not None, reason=str(library().problem))

LOW = torch.bfloat16, torch.float16
STORED = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
# Half a unit in the last place of results that are rounded once, and float32's own error.
ROUNDING = {torch.bfloat16: 2**-8, torch.float16: 2**-10}
INF, NAN = float("inf"), float("nan")
SETS = "avx512", "avx2", "baseline"


@pytest.mark.parametrize("instructions", SETS)
def test_all(instructions: str) -> None:
    """A process for each instruction set: it is chosen once."""
    script = f"import {__name__} as tests; tests.compare_all()"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"ONEGATE_ISA": instructions},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    if done.stdout.strip() != instructions:
        pytest.skip(f"this machine has no {instructions}")


def compare_all() -> None:
    with always_fused():
        for low in LOW:
            every_number_is_widened(low)
            numbers_are_rounded_as_torch_rounds(low)
        for case, low in itertools.product(CASES, LOW):
            equal_to_float32_that_is_rounded(case, low)
            near_float64(case, low)
        for low in LOW:
            autocast_is_float32_that_is_rounded(low)
            infinities_and_nan_pass_through(low)
    print(library().instruction_set)


@contextmanager
def always_fused() -> Iterator[None]:
    with mock.patch.dict(RULES, dict.fromkeys(RULES, ALWAYS)):
        yield


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def copied(x: Tensor, to: torch.dtype) -> Tensor:
    """x (T, B, n) through a unit that returns it, from the dtype of x to another."""
    steps, rows, width = x.shape
    native = NativeProgram.of(program(trace(unit(lambda self, x, h: x), width, width)))
    out, last = x.new_empty(x.shape, dtype=to), x.new_empty(x.shape[1:], dtype=to)
    start = torch.zeros(rows, width)
    call = ForwardCall(
        native.handle, 32, 1, 1, 0, steps, rows, None, x.data_ptr(), rows * width, width,
        start.data_ptr(), out.data_ptr(), rows * width, width, last.data_ptr(), None,
        ctypes.addressof((ctypes.c_void_p * 1)()),
        x_stored=STORED[x.dtype], out_stored=STORED[to], last_stored=STORED[to],
    )  # fmt: skip
    native.forward(call)
    assert_equal([last], [out[-1]])
    return out


def assert_equal(ours: Sequence[Tensor], truth: Sequence[Tensor], what: str = "") -> None:
    torch.testing.assert_close(
        list(ours), list(truth), rtol=0, atol=0, equal_nan=True,
        msg=lambda text: f"{what}: {text}",
    )  # fmt: skip


def every_number_is_widened(low: torch.dtype) -> None:
    numbers = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(low)
    for width in (256, 1, 16384 // 4 - 1):
        x = numbers[: len(numbers) // width * width].view(-1, 1, width)
        steps = x[-300:]  # with those of the largest exponent, which negative ones are not alone
        assert_equal([copied(steps, torch.float32)], [steps.float()], f"{low}, {width}")
    whole = numbers.view(8, 32, 256)
    assert_equal([copied(whole, torch.float32)], [whole.float()], str(low))
    for flushes in (True, False):  # denormals of half precision are no denormals of float32
        torch.set_flush_denormal(flushes)
        if low is torch.float16:
            assert_equal([copied(whole, torch.float32)], [whole.float()], f"{low}, flushed")


def numbers_are_rounded_as_torch_rounds(low: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(3)
    bits = torch.randint(-(1 << 31), 1 << 31, (1 << 16,), generator=generator)
    anything = bits.to(torch.int32).view(torch.float32)
    exact = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(low).float()
    beside = exact.view(torch.int32)[:, None] + torch.tensor([-1, 0, 1], dtype=torch.int32)
    shift = 15 if low is torch.bfloat16 else 12
    ties = (exact.view(torch.int32) | 1 << shift)[:, None] + torch.tensor(
        [-1, 0, 1], dtype=torch.int32
    )
    small = torch.linspace(-(2.0**-13), 2.0**-13, 1 << 16)  # where float16 is denormal
    large = torch.linspace(65400.0, 65600.0, 1 << 10)  # and where it ends
    for found in (anything, beside.view(torch.float32), ties.view(torch.float32), small, large):
        numbers = found.flatten()
        for width in (256, 37):
            x = numbers[: len(numbers) // width * width].view(-1, 1, width)
            assert_equal([copied(x, low)], [x.to(low)], f"{low}, {width}")


# Class, sizes, steps and rows (None: no batch), further arguments, lengths, threads.
Case = tuple[str, int, int, int, int | None, dict[str, Any], list[int] | None, int]
CASES: list[Case] = [
    ("GRU", 1, 1, 1, 1, {}, None, 1),
    ("LSTM", 3, 5, 1, 1, {"bias": False}, None, 1),
    ("GRU", 17, 23, 1, 2, {}, None, 1),
    ("RNN", 37, 41, 1, 3, {}, None, 1),
    ("GRU", 7, 13, 5, 4, {"bidirectional": True}, None, 1),
    ("LSTM", 19, 11, 7, 5, {"num_layers": 2, "batch_first": True}, None, 1),
    ("LSTM", 13, 17, 6, 4, {"proj_size": 5, "bidirectional": True}, [6, 1, 4, 4], 1),
    ("GRU", 101, 67, 9, 29, {"num_layers": 2, "bidirectional": True}, [9, 3] * 14 + [1], 2),
    ("LSTM", 67, 33, 11, 31, {"batch_first": True}, None, 2),
    ("RNN", 5, 7, 13, None, {"nonlinearity": "relu"}, None, 1),
    ("GRU", 300, 310, 1, 1, {}, None, 2),  # columns are split
    ("GRU", 300, 310, 9, 1, {}, None, 2),
    ("LSTM", 290, 210, 70, 1, {"bidirectional": True}, None, 2),
    ("GRUCell", 33, 65, 1, 7, {}, None, 1),
    ("LSTMCell", 65, 33, 1, 70, {}, None, 2),
    ("RNNCell", 3, 2, 1, None, {"bias": False}, None, 1),
]


def made(case: Case, dtype: torch.dtype) -> tuple[Any, Tensor, list[Tensor]]:
    """The layer of torch, x and the states before the first step."""
    kind, width, hidden, steps, rows, further, _, _ = case
    torch.manual_seed(0)
    module = getattr(nn, kind)(width, hidden, dtype=dtype, **further)
    cell, first = kind.endswith("Cell"), further.get("batch_first", False)
    shape = [] if rows is None else [rows]
    x = torch.randn(*([] if cell else [steps]), *shape, width).to(dtype)
    ways = (1 + further.get("bidirectional", False)) * further.get("num_layers", 1)
    sizes = [further.get("proj_size", 0) or hidden, hidden][: 1 + ("LSTM" in kind)]
    states = [torch.randn(*([] if cell else [ways]), *shape, size).to(dtype) for size in sizes]
    return module, x.transpose(0, 1).contiguous() if first else x, states


def results_of(
    module: Any, x: Tensor, states: list[Tensor], case: Case, weights: Sequence[Tensor] = ()
) -> list[Tensor]:
    """Outputs and all gradients; weights: of the outputs in the sum, or random ones."""
    lengths, further = case[6], case[5]
    x, states = x.clone().requires_grad_(), [s.clone().requires_grad_() for s in states]
    hx = states[0] if len(states) == 1 else tuple(states)
    data: Any = x
    if lengths is not None:
        first = further.get("batch_first", False)
        data = pack_padded_sequence(x, torch.tensor(lengths), first, enforce_sorted=False)
    outputs = flat_results(module(data, hx))
    sum_weights = list(weights) or cotangents(outputs)
    wanted = [x, *states, *module.parameters()]
    with threads(case[7]):
        grads = torch.autograd.grad(outputs, wanted, sum_weights)
    return [*[o.detach() for o in outputs], *grads]


def fused(module: Any) -> Any:
    return onegate.accelerate(copy.deepcopy(module))


def run(module: Any, x: Tensor, states: list[Tensor], case: Case, weights: Any = ()) -> Any:
    with threads(case[7]):
        found = results_of(module, x, states, case, weights)
    assert onegate.engine_report(module)[0].engine == "fused", onegate.engine_report(module)
    return found


def weights_of(module: Any, x: Tensor, states: list[Tensor], case: Case) -> list[Tensor]:
    outputs = results_of(module, x, states, case)
    return cotangents(outputs[: len(outputs) - 1 - len(states) - len(list(module.parameters()))])


def equal_to_float32_that_is_rounded(case: Case, low: torch.dtype) -> None:
    module, x, states = made(case, low)
    weights = weights_of(fused(module), x, states, case)
    got = run(fused(module), x, states, case, weights)
    assert {t.dtype for t in got} == {low}
    wide = copy.deepcopy(module).float()
    truth = run(
        fused(wide), x.float(), [s.float() for s in states], case, [w.float() for w in weights]
    )
    assert_equal(got, [t.to(low) for t in truth], f"{case}, {low}")


def near_float64(case: Case, low: torch.dtype) -> None:
    module, x, states = made(case, low)
    weights = weights_of(fused(module), x, states, case)
    got = run(fused(module), x, states, case, weights)
    exact = results_of(
        copy.deepcopy(module).double(), x.double(), [s.double() for s in states], case,
        [w.double() for w in weights],
    )  # fmt: skip
    for ours, theirs in zip(got, exact, strict=True):
        largest = max(1.0, theirs.abs().max().item())
        torch.testing.assert_close(
            ours.double(), theirs, rtol=ROUNDING[low], atol=2e-5 * largest,
            msg=lambda text: f"{case}, {low}: {text}",
        )  # fmt: skip


def autocast_is_float32_that_is_rounded(low: torch.dtype) -> None:
    """Weights, x and states of the same or of different dtypes, also weights among themselves."""
    for case, of_weights, of_x in itertools.product(
        CASES[4:9:2] + CASES[-3:-1], (torch.float32, low, None), (torch.float32, *LOW)
    ):
        module, x, states = made(case, torch.float32)
        if of_weights is None:
            first = next(iter(module.parameters()))
            first.data = first.data.to(low)
        else:
            module.to(of_weights)
        x, states = x.to(of_x), [s.to(of_x) for s in states]
        ours, wide = fused(module), copy.deepcopy(module).float()
        with mock.patch.object(ours, "forward", cast_around(ours.forward, low)):
            got = run(ours, x, states, case)
        weights = cotangents(got[: len(got) - 1 - len(states) - len(list(wide.parameters()))])
        truth = run(
            fused(wide), x.float(), [s.float() for s in states], case, [w.float() for w in weights]
        )
        assert_equal(got, [t.to(g.dtype) for t, g in zip(truth, got, strict=True)], f"{case} {low}")


def cast_around(forward: Callable[..., Any], low: torch.dtype) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        with torch.autocast("cpu", dtype=low):
            return forward(*arguments)

    return call


def infinities_and_nan_pass_through(low: torch.dtype) -> None:
    for case in (CASES[2], CASES[5], CASES[8], CASES[9]):
        module, x, states = made(case, low)
        for value in (INF, -INF, NAN, torch.finfo(low).max, torch.finfo(low).tiny / 4):
            given = x.clone()
            given.view(-1)[:: max(7, x.shape[-1] - 2)] = value
            weights = weights_of(fused(module), given, states, case)
            got = run(fused(module), given, states, case, weights)
            wide = [s.float() for s in states]
            truth = run(
                fused(copy.deepcopy(module).float()), given.float(), wide, case,
                [w.float() for w in weights],
            )  # fmt: skip
            assert_equal(got, [t.to(low) for t in truth], f"{case}, {low}, {value}")


# Unit, arguments of the layer and of the call.
OWN: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("mgu", {}, {}),
    ("lstm", {"bidirectional": True, "num_layers": 2}, {"lengths": [6, 1, 4, 4]}),
    ("lstm_peephole", {"learn_initial_state": True, "batch_first": True}, {"reset": True}),
    ("lstm", {"recompute": True}, {"return_states": True}),
    ("scrn", {"bidirectional": True}, {"return_states": True}),
    ("gru_reset_after", {"zoneout": 0.3, "recurrent_dropout": 0.2}, {"lengths": [6, 1, 4, 4]}),
    ("gru_d", {}, {"extra": True}),
    ("lstm_layer_norm", {}, {}),
    ("slstm", {}, {"reset": True}),
]


def results_of_own(
    layer: Any, x: Tensor, asked: dict[str, Any], around: Any, again: bool = False
) -> list[Tensor]:
    """Outputs and all gradients, or all gradients of a sum of those."""
    torch.manual_seed(5)
    x, given = x.clone().requires_grad_(), dict(asked)
    if "reset" in given:
        given["reset"] = torch.rand(x.shape[:2]) < 0.3
    if "extra" in given:
        mask, gap = (torch.rand(x.shape) < 0.5).to(x.dtype), torch.rand(x.shape).to(x.dtype)
        given["extra"] = {"mask": mask, "gap": gap}
    with around:
        outputs = flat_results(layer(x, **given))
    assert layer.engine_report().name == "fused"
    weights = cotangents(outputs)
    wanted = [x, *layer.parameters()]
    grads = torch.autograd.grad(outputs, wanted, weights, create_graph=again)
    if again:
        return list(torch.autograd.grad([g.float().square().sum() for g in grads], wanted))
    return [*[o.detach() for o in outputs], *grads]


@pytest.mark.parametrize("low", LOW)
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("case", OWN, ids=lambda case: str(case[0]))
@pytest.mark.parametrize("again", [False, True])
def test_own_layers_are_float32_that_is_rounded(
    case: tuple[str, dict[str, Any], dict[str, Any]], autocast: bool, low: torch.dtype, again: bool
) -> None:
    name, further, asked = case
    torch.manual_seed(0)
    layer = onegate.Recurrent(name, 12, 16, dtype=None if autocast else low, **further)
    x = torch.randn(4 if "batch_first" in further else 6, 4, 12).to(next(layer.parameters()).dtype)

    def around() -> Any:
        return torch.autocast("cpu", dtype=low, enabled=autocast)

    with mock.patch.object(operator, "_run_low", None):  # is not called
        found = [results_of_own(layer, x, asked, around(), again)]
        with mock.patch.object(stacked, "fits", return_value=None):  # nor the shortest way taken
            found.append(results_of_own(layer, x, asked, around(), again))
    with (
        mock.patch.object(operator, "_is_readable", return_value=False),
        mock.patch.object(stacked, "fits", return_value=None),
    ):
        truth = results_of_own(layer, x, asked, around(), again)
    for got in found:
        assert [t.dtype for t in got] == [t.dtype for t in truth]
        if not again:
            assert_equal(got, truth, name)
            continue
        for ours, theirs in zip(got, truth, strict=True):  # sums of rounded summands
            largest = theirs.abs().max().item()
            torch.testing.assert_close(ours, theirs, rtol=0, atol=2 * ROUNDING[low] * largest)


@pytest.mark.parametrize("accelerated", [True, False])
def test_outputs_may_be_changed_before_the_backward_pass(accelerated: bool) -> None:
    """What it reads is not the outputs, which are rounded."""
    with always_fused():
        torch.manual_seed(0)
        layer: Any = fused(nn.GRU(5, 7)) if accelerated else onegate.GRU(5, 7)
        layer.to(torch.bfloat16)
        x = torch.randn(3, 2, 5, dtype=torch.bfloat16)
        found = []
        for change in (False, True):
            out = layer(x)[0]
            result = out.float().sum() if not change else out.mul_(1).add_(3).float().sum()
            found.append(torch.autograd.grad(result, list(layer.parameters())))
    assert_equal(found[1], found[0])


@pytest.mark.parametrize("accelerated", [True, False])
def test_what_is_saved_may_be_packed_away(accelerated: bool) -> None:
    with always_fused():
        torch.manual_seed(0)
        layer: Any = fused(nn.LSTM(5, 7)) if accelerated else onegate.LSTM(5, 7)
        layer.to(torch.float16)
        x = torch.randn(3, 2, 5, dtype=torch.float16)
        found = []
        for around in (
            nullcontext(),
            torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t),
        ):
            with around:
                result = layer(x)[0].float().sum()
            found.append(torch.autograd.grad(result, list(layer.parameters())))
    assert_equal(found[1], found[0])


@pytest.mark.parametrize("low", LOW)
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("name", ["MGUCell", "LSTMCell"])
def test_own_cells_are_float32_that_is_rounded(name: str, autocast: bool, low: torch.dtype) -> None:
    torch.manual_seed(0)
    cell = getattr(onegate, name)(12, 16, dtype=None if autocast else low)
    x = torch.randn(3, 12).to(next(cell.parameters()).dtype)

    def results() -> list[Tensor]:
        given = x.clone().requires_grad_()
        with torch.autocast("cpu", dtype=low, enabled=autocast):
            first = cell(given)
            outputs = flat_results(cell(given, first))
        assert cell.engine_report().name == "fused"
        grads = torch.autograd.grad(outputs, [given, *cell.parameters()], cotangents(outputs))
        return [*outputs, *grads]

    got = results()
    with (
        mock.patch.object(operator, "_is_readable", return_value=False),
        mock.patch.object(stacked, "fits", return_value=None),
    ):
        assert_equal(got, results(), name)
    assert {t.dtype for t in got[: 1 + ("LSTM" in name)]} == {low}
