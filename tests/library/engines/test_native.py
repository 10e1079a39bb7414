"""The native library: loading it, and the calls that it refuses."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from onegate.engines.cpu import native
from onegate.engines.cpu.native import (
    BackwardCall,
    ForwardCall,
    NativeError,
    NativeProgram,
    library,
)
from onegate.lowering.program import program
from onegate.tracing import trace
from onegate.units import UNITS

D, N = 3, 4
MGU = program(trace(UNITS["mgu"], D, N))


class TestLoading:
    @pytest.fixture(autouse=True)
    def once(self) -> Iterator[None]:
        library.cache_clear()
        yield
        library.cache_clear()

    def test_it_is_there_and_names_its_instruction_set(self) -> None:
        loaded = library()
        assert loaded.problem is None
        assert loaded.path is not None
        assert loaded.path.is_file()
        assert loaded.instruction_set in ("baseline", "avx2", "avx512")

    def test_another_build_can_be_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        path = library().path
        library.cache_clear()
        monkeypatch.setenv("ONEGATE_NATIVE", str(path))
        assert library().path == path
        assert library().problem is None

    def test_it_is_missing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ONEGATE_NATIVE", str(tmp_path / "none.so"))
        assert "is not built" in str(library().problem)
        with pytest.raises(NativeError, match="is not built"):
            NativeProgram.of(MGU)

    def test_it_is_no_library(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        broken = tmp_path / "broken.so"
        broken.write_text("not a library")
        monkeypatch.setenv("ONEGATE_NATIVE", str(broken))
        assert "does not load" in str(library().problem)

    def test_it_is_some_other_library(self, monkeypatch: pytest.MonkeyPatch) -> None:
        other = next(Path(torch.__file__).parent.glob("lib/libtorch_global_deps.so"), None)
        if other is None:
            pytest.skip("torch has no small library here")
        monkeypatch.setenv("ONEGATE_NATIVE", str(other))
        assert "does not load" in str(library().problem)

    def test_it_is_of_another_version(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(native, "FORMAT", -1)
        assert "another version of onegate: install again" in str(library().problem)


def test_messages_fit_their_buffer() -> None:
    functions = library().functions
    assert functions is not None
    code = (ctypes.c_int64 * 1)(99)
    whole = "the program has format 99, this engine reads"
    for size in (0, 1, 2, 10, 400):
        buffer = ctypes.create_string_buffer(b"~" * 511, 512)
        assert not functions.og_program_new(code, 1, None, 0, buffer, size)
        said = buffer.raw[:size].partition(b"\0")[0].decode()
        assert said.startswith(whole[: max(0, size - 1)])
        assert set(buffer.raw[size:511]) == {ord("~")}
        assert size == 0 or b"\0" in buffer.raw[:size]
    assert not functions.og_program_new(code, 1, None, 0, None, 512)
    assert not functions.og_program_new(None, 1, None, 0, None, 0)


class Tensors:
    """Everything that a run of MGU touches, and the calls that point to it."""

    T, B = 2, 3

    def __init__(self) -> None:
        shapes = MGU.parameters
        self.program = NativeProgram.of(MGU)
        self.x, self.start = torch.randn(self.T, self.B, D), torch.zeros(1, self.B, N)
        self.out, self.last = torch.zeros(self.T, self.B, N), torch.zeros(1, self.B, N)
        self.kept = torch.zeros(self.program.kept_size(1, self.T, self.B))
        self.lengths = torch.tensor([2, 1, 2])
        self.parameters = [torch.randn(shape) for shape in shapes]
        self.pointers = _pointers(self.parameters)
        self.grad_start = torch.zeros(1, self.B, N)
        self.grads = [torch.zeros(shape) for shape in shapes]
        self.grad_pointers = _pointers(self.grads)

    def forward(self) -> ForwardCall:
        return ForwardCall(
            self.program.handle, 32, 1, 1, 0, self.T, self.B,
            self.lengths.data_ptr(), self.x.data_ptr(), self.B * D, D, self.start.data_ptr(),
            self.out.data_ptr(), self.B * N, N, self.last.data_ptr(), self.kept.data_ptr(),
            ctypes.addressof(self.pointers),
        )  # fmt: skip

    def backward(self) -> BackwardCall:
        return BackwardCall(
            self.forward(), self.out.data_ptr(), self.B * N, N, None, None,
            self.grad_start.data_ptr(), ctypes.addressof(self.grad_pointers),
        )  # fmt: skip


def _pointers(tensors: list[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))


BAD_CALLS: dict[str, tuple[dict[str, Any], str]] = {
    "no program": ({"program": None}, "there is no program"),
    "another dtype": ({"bits": 16}, "bits is 16, not 32 or 64"),
    "no direction": ({"directions": 0}, "directions is 0, not 1 or 2"),
    "three directions": ({"directions": 3}, "directions is 3, not 1 or 2"),
    "no thread": ({"threads": 0}, "threads is 0, at least 1 is needed"),
    "another split": ({"split": 3}, "split is 3, not 0, 1 or 2"),
    "no step": ({"steps": 0}, "at least one step and one row, got 0 steps and 3 rows"),
    "no row": ({"rows": -1}, "at least one step and one row, got 2 steps and -1 rows"),
    "no input": ({"x": None}, "a tensor is missing"),
    "no start": ({"start": None}, "a tensor is missing"),
    "no output": ({"out": None}, "a tensor is missing"),
    "no parameters": ({"parameters": None}, "a tensor is missing"),
    "fewer steps than lengths": ({"steps": 1}, "length 2 of row 0 is not between 1 and"),
    "x stored otherwise": ({"x_stored": 3}, "x is stored as 3, not 0, 1 or 2"),
    "states stored otherwise": ({"start_stored": -1}, "start is stored as -1, not 0, 1 or 2"),
    "parameters stored otherwise": ({"parameters_stored": 4}, "parameters is stored as 4, not 0,"),
    "outputs stored otherwise": ({"out_stored": 9}, "out is stored as 9, not 0, 1 or 2"),
    "last states stored otherwise": ({"last_stored": 1 << 30}, "last is stored as 1073741824, not"),
    "halves of doubles": ({"bits": 64, "out_stored": 1}, "out is stored in half precision, which"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_calls_are_refused(case: str) -> None:
    fields, reason = BAD_CALLS[case]
    given = Tensors()
    forward, backward = given.forward(), given.backward()
    for name, value in fields.items():
        setattr(forward, name, value)
        setattr(backward.forward, name, value)
    with pytest.raises(NativeError, match=reason):
        given.program.forward(forward)
    with pytest.raises(NativeError, match=reason):
        given.program.backward(backward)


MOST = (1 << 63) - 1


@pytest.mark.parametrize("steps", [1 << 20, 1 << 31, 1 << 48, MOST])
@pytest.mark.parametrize("rows", [1 << 31, 1 << 50, MOST])
def test_calls_whose_sizes_overflow_are_refused(steps: int, rows: int) -> None:
    given = Tensors()
    forward, backward = given.forward(), given.backward()
    for call in (forward, backward.forward):
        call.steps, call.rows, call.lengths = steps, rows, None
    reason = f"{steps} steps of {rows} rows are more than a run of this program can have"
    with pytest.raises(NativeError, match=reason):
        given.program.forward(forward)
    with pytest.raises(NativeError, match=reason):
        given.program.backward(backward)
    with pytest.raises(NativeError, match="are more than a run of this program can have"):
        given.program.kept_size(2, steps, rows)


@pytest.mark.parametrize("field", ["x_step", "x_row", "out_step", "out_row", "grad_out_step"])
@pytest.mark.parametrize("stride", [MOST, -MOST - 1, 1 << 60])
def test_strides_that_overflow_are_refused(field: str, stride: int) -> None:
    given = Tensors()
    call = given.backward()
    setattr(call if field.startswith("grad") else call.forward, field, stride)
    with pytest.raises(NativeError, match="strides reach further than memory"):
        given.program.backward(call)


def test_as_many_threads_as_there_can_be() -> None:
    """More than a machine could start: fewer are used."""
    given = Tensors()
    call = given.forward()
    call.threads, call.split = (1 << 31) - 1, 1
    given.program.forward(call)
    assert given.out.any()


@pytest.mark.parametrize("length", [0, -1, 3, 1 << 40])
def test_lengths_out_of_range_are_refused(length: int) -> None:
    given = Tensors()
    given.lengths[1] = length
    with pytest.raises(NativeError, match=f"length {length} of row 1 is not between 1 and the 2"):
        given.program.forward(given.forward())


def test_missing_places_are_refused() -> None:
    given = Tensors()
    call = given.forward()
    call.last = None
    with pytest.raises(NativeError, match="there is nowhere to put the last states"):
        given.program.forward(call)
    given.pointers[2] = None
    with pytest.raises(NativeError, match="parameter 2 is missing"):
        given.program.forward(given.forward())


def test_half_precision_needs_what_it_reads() -> None:
    given = Tensors()
    call = given.forward()
    call.out_stored, call.out = 1, None
    with pytest.raises(NativeError, match="a tensor is missing"):
        given.program.forward(call)
    backward = given.backward()
    backward.forward.out_stored, backward.forward.kept = 1, None
    with pytest.raises(NativeError, match="kept nothing for the backward pass"):
        given.program.backward(backward)
    backward = given.backward()
    backward.grad_x_stored = 5
    with pytest.raises(NativeError, match="grad_x is stored as 5, not 0, 1 or 2"):
        given.program.backward(backward)


def test_nothing_is_added_to_a_matrix() -> None:
    given = Tensors()
    call = given.forward()
    call.added = ctypes.addressof(given.pointers)
    with pytest.raises(NativeError, match=r"parameter \d is a matrix, to which nothing is added"):
        given.program.forward(call)


@pytest.mark.parametrize("field", ["x_stored", "start_stored", "parameters_stored", "last_stored"])
def test_streams_have_no_half_precision(field: str) -> None:
    given = Tensors()
    call = given.forward()
    call.steps, call.lengths, call.kept = 1, None, None
    setattr(call, field, 1)
    functions = library().functions
    assert functions is not None
    message = ctypes.create_string_buffer(200)
    assert not functions.og_stream_new(ctypes.addressof(call), message, 200)
    assert message.value == b"a stream's tensors are stored as they are computed"


@pytest.mark.parametrize("field", ["grad_start", "grad_parameters"])
def test_missing_gradients_are_refused(field: str) -> None:
    given = Tensors()
    call = given.backward()
    setattr(call, field, None)
    with pytest.raises(NativeError, match="there is nowhere to put the gradients"):
        given.program.backward(call)


def said_by_a_child(work: Callable[[], str]) -> str:
    """What `work` returns in a forked process: one that crashes says nothing."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(theirs, work().encode())
        os._exit(0)
    os.close(theirs)
    os.waitpid(child, 0)
    with os.fdopen(ours, "rb") as pipe:
        return pipe.read().decode()


def refusal(run: Callable[[Any], None], call: Any) -> str:
    with pytest.raises(NativeError) as raised:
        run(call)
    return str(raised.value)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_missing_gradient_is_named() -> None:
    given = Tensors()
    given.grad_pointers[3] = None
    said = said_by_a_child(lambda: refusal(given.program.backward, given.backward()))
    assert said == "there is nowhere to put the gradient of parameter 3"


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("name", ["og_run_forward", "og_run_backward"])
def test_no_call_at_all(name: str) -> None:
    def work() -> str:
        message = ctypes.create_string_buffer(64)
        assert getattr(library().functions, name)(None, message, 64)
        return message.value.decode()

    assert said_by_a_child(work) == "there is no call"


def test_nothing_kept_is_refused_by_the_backward_pass() -> None:
    given = Tensors()
    call = given.backward()
    call.forward.kept = None
    with pytest.raises(NativeError, match="the forward pass kept nothing for the backward pass"):
        given.program.backward(call)


def test_a_good_call_is_taken() -> None:
    given = Tensors()
    given.program.forward(given.forward())
    assert given.out.any()
    given.program.backward(given.backward())
    assert all(tensor.any() for tensor in given.grads)
