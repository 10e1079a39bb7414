"""The native library: where it is, what it says of itself, and its functions through ctypes.

Nothing here knows of torch. csrc/onegate.h documents every field.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onegate
from onegate.lowering.spec import FORMAT, Program
from onegate.ops import OPERATIONS

FILE = "onegate_native.so"
_MESSAGE_BYTES = 512


# A forked process has the parent's pool of threads in name only: waiting for it would never end.
# torch may have filled that pool before the library was loaded, which the library cannot know.
_forked = False


def _after_fork() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)


class NativeError(RuntimeError):
    """The native engine refused what it was given."""


class Host(ctypes.Structure):
    """og_host: three functions."""

    _fields_ = (
        ("leave", ctypes.c_void_p),
        ("enter", ctypes.c_void_p),
        ("check", ctypes.c_void_p),
    )

    @classmethod
    def interpreter(cls, *, signals: bool) -> Host:
        """This interpreter, whose lock is released while the library works."""
        api = ctypes.pythonapi
        functions = (api.PyEval_SaveThread, api.PyEval_RestoreThread, api.PyErr_CheckSignals)
        places = [ctypes.cast(function, ctypes.c_void_p).value for function in functions]
        return cls(*places[: 3 if signals else 2])


# Python handles signals in the main thread only; what a handler raises ends the run.
_MAIN, _OTHER = Host.interpreter(signals=True), Host.interpreter(signals=False)
_MAIN_PLACE, _OTHER_PLACE = ctypes.addressof(_MAIN), ctypes.addressof(_OTHER)


class Input(ctypes.Structure):
    """og_input."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("step", ctypes.c_int64),
        ("row", ctypes.c_int64),
        ("bytes", ctypes.c_int64),
    )


class ForwardCall(ctypes.Structure):
    """og_forward."""

    _fields_ = (
        ("program", ctypes.c_void_p),
        ("bits", ctypes.c_int32),
        ("directions", ctypes.c_int32),
        ("threads", ctypes.c_int32),
        ("split", ctypes.c_int32),
        ("steps", ctypes.c_int64),
        ("rows", ctypes.c_int64),
        ("lengths", ctypes.c_void_p),
        ("x", ctypes.c_void_p),
        ("x_step", ctypes.c_int64),
        ("x_row", ctypes.c_int64),
        ("start", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("out_step", ctypes.c_int64),
        ("out_row", ctypes.c_int64),
        ("last", ctypes.c_void_p),
        ("kept", ctypes.c_void_p),
        ("parameters", ctypes.c_void_p),
        ("host", ctypes.c_void_p),
        ("extras", ctypes.c_void_p),
        ("reset", ctypes.c_void_p),
        ("reset_step", ctypes.c_int64),
        ("reset_row", ctypes.c_int64),
        ("initial", ctypes.c_void_p),
        ("all_states", ctypes.c_int32),
        ("recompute", ctypes.c_int32),
        ("added", ctypes.c_void_p),
        ("x_stored", ctypes.c_int32),
        ("start_stored", ctypes.c_int32),
        ("parameters_stored", ctypes.c_int32),
        ("out_stored", ctypes.c_int32),
        ("last_stored", ctypes.c_int32),
    )


class BackwardCall(ctypes.Structure):
    """og_backward."""

    _fields_ = (
        ("forward", ForwardCall),
        ("grad_out", ctypes.c_void_p),
        ("grad_out_step", ctypes.c_int64),
        ("grad_out_row", ctypes.c_int64),
        ("grad_last", ctypes.c_void_p),
        ("grad_x", ctypes.c_void_p),
        ("grad_start", ctypes.c_void_p),
        ("grad_parameters", ctypes.c_void_p),
        ("grad_extras", ctypes.c_void_p),
        ("grad_initial", ctypes.c_void_p),
        ("grad_x_stored", ctypes.c_int32),
    )


@dataclass(frozen=True)
class Library:
    """The loaded library, or the reason why there is none."""

    path: Path | None
    problem: str | None
    functions: ctypes.CDLL | None

    @property
    def instruction_set(self) -> str:
        """The instruction set chosen for this machine."""
        assert self.functions is not None
        name: bytes = self.functions.og_instruction_set()
        return name.decode()


@functools.cache
def library() -> Library:
    """Loads the library once; $ONEGATE_NATIVE names another build of it."""
    asked = os.environ.get("ONEGATE_NATIVE")
    places = [Path(asked)] if asked else [Path(p) / FILE for p in onegate.__path__]
    path = next((p for p in places if p.is_file()), None)
    if path is None:
        return Library(None, "the native engine is not built (no C++ compiler at install?)", None)
    try:
        functions = ctypes.CDLL(str(path))
        _declare(functions)
    except (OSError, AttributeError) as error:
        return Library(path, f"the native engine does not load: {error}", None)
    if functions.og_format() != FORMAT or functions.og_call_size() != ctypes.sizeof(BackwardCall):
        return Library(path, f"{path} is of another version of onegate: install again", None)
    if (different := _differing_operation(functions)) is not None:
        return Library(path, f"{path} {different}: install again", None)
    return Library(path, None, functions)


def _differing_operation(functions: ctypes.CDLL) -> str | None:
    """Where the library's operations are not those of `onegate.ops`."""
    ours = {
        row.opcode: (name, row.arity, sum(1 << place % 4 for place in row.narrow))
        for name, row in OPERATIONS.items()
        if row.opcode is not None
    }
    theirs: dict[int, tuple[str, int, int]] = {}
    numbers = ctypes.c_int32(), ctypes.c_int32()
    places = [ctypes.byref(n) for n in numbers]
    while (name := functions.og_operation(len(theirs), *places)) is not None:
        theirs[len(theirs)] = name.decode(), numbers[0].value, numbers[1].value
    for opcode in sorted(ours.keys() | theirs.keys()):
        here, there = ours.get(opcode), theirs.get(opcode)
        if here != there:
            return f"has {_shown(there)} as operation {opcode}, onegate.ops has {_shown(here)}"
    return None


def _shown(operation: tuple[str, int, int] | None) -> str:
    if operation is None:
        return "nothing"
    name, operands, narrow = operation
    return f"{name} of {operands}" + (f", narrow {narrow:04b}" if narrow else "")


def _declare(functions: ctypes.CDLL) -> None:
    pointer, size, text = ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p
    functions.og_format.restype = ctypes.c_int32
    functions.og_call_size.restype = size
    functions.og_instruction_set.restype = text
    functions.og_operation.restype = text
    functions.og_operation.argtypes = [ctypes.c_int32, *[ctypes.POINTER(ctypes.c_int32)] * 2]
    functions.og_program_new.restype = pointer
    functions.og_program_new.argtypes = [pointer, size, pointer, size, text, size]
    functions.og_program_free.restype = None
    functions.og_program_free.argtypes = [pointer]
    functions.og_kept_size.restype = size
    functions.og_kept_size.argtypes = [pointer, size, size, size]
    word = ctypes.c_uint32
    functions.og_fill_mask.restype = None
    functions.og_fill_mask.argtypes = [
        pointer, ctypes.c_int32, size, word, word, word, ctypes.c_double,
    ]  # fmt: skip
    functions.og_stream_new.restype = pointer
    functions.og_stream_new.argtypes = [pointer, text, size]
    functions.og_stream_free.restype = None
    functions.og_stream_free.argtypes = [pointer]
    functions.og_stream_step.restype = None
    functions.og_stream_step.argtypes = [pointer, size]
    # The library releases Python's lock itself (Host): only then does ctypes raise what a signal's
    # handler has raised.
    run = ctypes.PYFUNCTYPE(ctypes.c_int32, pointer, text, size)
    for name in ("og_run_forward", "og_run_backward"):
        setattr(functions, name, run((name, functions)))


class NativeProgram:
    """A program inside the library; freed with this object."""

    def __init__(self, code: Sequence[int], constants: Sequence[float]) -> None:
        loaded = library()
        if loaded.functions is None:
            raise NativeError(str(loaded.problem))
        self._functions = loaded.functions
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        self.handle: int | None = self._functions.og_program_new(
            (ctypes.c_int64 * len(code))(*code), len(code),
            (ctypes.c_double * len(constants))(*constants), len(constants),
            message, _MESSAGE_BYTES,
        )  # fmt: skip
        if not self.handle:
            raise NativeError(f"the native engine refuses the program: {message.value.decode()}")

    @classmethod
    def of(cls, program: Program) -> NativeProgram:
        """The native form of a unit's program."""
        return cls(program.encode(), program.constants)

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._functions.og_program_free(self.handle)

    def kept_size(self, directions: int, steps: int, rows: int) -> int:
        """How many numbers the forward pass keeps for the backward pass."""
        size: int = self._functions.og_kept_size(self.handle, directions, steps, rows)
        if size < 0:
            raise NativeError(
                f"{steps} steps of {rows} rows in {directions} directions are more than a run of "
                "this program can have"
            )
        return size

    def forward(self, call: ForwardCall) -> None:
        self._run(self._functions.og_run_forward, call, call)

    def backward(self, call: BackwardCall) -> None:
        self._run(self._functions.og_run_backward, call, call.forward)

    def _run(
        self, function: ctypes._NamedFuncPointer, call: ctypes.Structure, shared: ForwardCall
    ) -> None:
        if _forked:
            shared.threads = 1
        main = threading.get_ident() == threading.main_thread().ident
        shared.host = _MAIN_PLACE if main else _OTHER_PLACE
        message = _messages.buffer
        if function(ctypes.addressof(call), message, _MESSAGE_BYTES):
            raise NativeError(message.value.decode())


class _Messages(threading.local):
    """Room for a message, one per thread."""

    def __init__(self) -> None:
        self.buffer = ctypes.create_string_buffer(_MESSAGE_BYTES)


_messages = _Messages()
