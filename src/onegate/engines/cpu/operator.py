"""The fused engine: a whole sequence in one call of the native code, as a torch operator.

`torch.ops.onegate.forward` and `torch.ops.onegate.backward` have fake implementations, so that
`torch.compile` and `torch.export` see one operator, and an autograd rule. Derivatives of the
backward pass are computed by the reference engine.

The operators' list `parameters` holds all that is learned or may be: the parameters of each
direction, then the inputs after x, then the states that a reset starts from.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.utils.flop_counter import register_flop_formula

from onegate.engines import reference
from onegate.engines.base import NOTHING, Direction, Engine, Further, constant
from onegate.engines.cpu import pool, programs
from onegate.engines.cpu.native import BackwardCall, ForwardCall, Input, NativeProgram, library
from onegate.engines.cpu.programs import Entry
from onegate.language import Graph

SPLIT = {"auto": 0, "rows": 1, "columns": 2}


# torch.compile is to call these two while it traces and take what they return: followed into, it
# would trace the loading of the library and the making of programs.
@constant
def _problem() -> str | None:
    return library().problem


@constant
def _key_of(graph: Graph) -> str:
    return programs.key_of(graph)


def run(
    graph: Graph,
    x: Tensor,
    directions: Sequence[Direction],
    lengths: Tensor | None,
    further: Further = NOTHING,
) -> tuple[Tensor, tuple[tuple[Tensor, ...], ...]]:
    """As `reference.run`: outputs (T, B, D * n), and per direction the last states (B, size).

    Half precision, autocast's too, is computed in float32.
    """
    low = _low_precision(x)
    parameters = [p for d in directions for p in d.parameters.values()]
    if low is not None and not _is_readable(low, x, directions, parameters):
        return _run_low(low, graph, x, directions, lengths, further)
    how = PLAIN if low is None else How(low=low)
    if further is not NOTHING:
        if low is not None:  # which x, the states and the parameters may have
            further = _in_float32(further)
        how = How(further.reset, further.all_states, further.recompute, low)
        parameters += further.extras
        if further.reset is not None:
            parameters.append(_initial(graph, x, further.initial, low))
    starts = [d.start[0] if len(d.start) == 1 else torch.cat(d.start, -1) for d in directions]
    start = starts[0].unsqueeze(0) if len(starts) == 1 else torch.stack(starts)
    keep = torch.is_grad_enabled() and (
        x.requires_grad or start.requires_grad or any(p.requires_grad for p in parameters)
    )
    tensors = [x, start, *parameters]
    tensors += [t for t in (lengths, how.reset) if t is not None]
    if low is None and (torch.compiler.is_compiling() or not alone(tensors)):
        key = _key_of(graph)
        # torch.jit.trace checks a trace made with gradients against one made without.
        keep = keep and _tracer() is None
        given = lengths, key, keep, *how.of_operator()
        out, last, _ = torch.ops.onegate.forward(x, start, parameters, *given)
    elif keep:
        out, last = _eager(x, start, lengths, programs.entry_of(graph), how, *parameters)
    else:
        entry = programs.entry_of(graph)
        out, last, _ = _forward(entry, x, start, parameters, lengths, False, how)
    if len(graph.states) == 1:
        return out, tuple([(each,) for each in last.unbind(0)])
    sizes = [s.size or 0 for s in graph.states]
    return out, tuple([each.split(sizes, -1) for each in last.unbind(0)])


class How(NamedTuple):
    """What of `Further` is no tensor that could be learned.

    low: the dtype of the results in half precision, where x, the start and the parameters may each
    be of another dtype than float32; the torch operator knows no such runs.
    """

    reset: Tensor | None = None
    all_states: bool = False
    recompute: bool = False
    low: torch.dtype | None = None

    def of_operator(self) -> tuple[Tensor | None, bool, bool]:
        """The arguments of the torch operator."""
        assert self.low is None
        return self.reset, self.all_states, self.recompute


PLAIN: Final = How()


def _initial(
    graph: Graph, x: Tensor, states: tuple[Tensor, ...], low: torch.dtype | None
) -> Tensor:
    """What a reset starts from, all states side by side."""
    if states:
        return torch.cat(states)
    kind = x.dtype if low is None else torch.float32
    return x.new_zeros(sum(s.size or 0 for s in graph.states), dtype=kind)


class _Given(NamedTuple):
    """The tensors of a call's list, told apart."""

    parameters: list[Tensor]
    extras: list[Tensor]
    initial: list[Tensor]  # one, or none


def _told_apart(entry: Entry, directions: int, tensors: Sequence[Tensor]) -> _Given:
    learned = directions * len(entry.program.parameters)
    inputs = learned + len(entry.program.inputs) - 1
    return _Given(list(tensors[:learned]), list(tensors[learned:inputs]), list(tensors[inputs:]))


LOW = (torch.bfloat16, torch.float16)
DTYPES = (torch.float32, torch.float64, *LOW)


def _low_precision(x: Tensor) -> torch.dtype | None:
    """The dtype of the results, if the run is one of half precision."""
    if torch.is_autocast_enabled("cpu") and x.dtype is not torch.float64:
        return torch.get_autocast_dtype("cpu")
    return x.dtype if x.dtype in LOW else None


def _run_low(
    low: torch.dtype,
    graph: Graph,
    x: Tensor,
    directions: Sequence[Direction],
    lengths: Tensor | None,
    further: Further,
) -> tuple[Tensor, tuple[tuple[Tensor, ...], ...]]:
    with torch.autocast("cpu", enabled=False):
        widened = [
            Direction(_widened(d.start), {key: p.float() for key, p in d.parameters.items()})
            for d in directions
        ]
        if further is not NOTHING:
            further = _in_float32(further)
        out, lasts = run(graph, x.float(), widened, lengths, further)
        return out.to(low), tuple([tuple([s.to(low) for s in states]) for states in lasts])


def _is_readable(
    low: torch.dtype, x: Tensor, directions: Sequence[Direction], parameters: Sequence[Tensor]
) -> bool:
    """Whether the native code reads these tensors as they are, and nobody has to see the call."""
    states = [s for d in directions for s in d.start]
    of_states, known = states[0].dtype, (torch.float32, low)
    of_parameters = parameters[0].dtype if parameters else low
    return (
        not torch.compiler.is_compiling()
        and x.dtype in known
        and of_states in known
        and of_parameters in known
        and False not in [s.dtype is of_states for s in states]
        and False not in [p.dtype is of_parameters for p in parameters]
        and alone([x, *states, *parameters])
    )


def _in_float32(further: Further) -> Further:
    return replace(further, extras=_widened(further.extras), initial=_widened(further.initial))


def _widened(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple([t if t.dtype is torch.bool else t.float() for t in tensors])


_PLAIN = {Tensor, nn.Parameter}
# Bound once: to look them up would take as long as to call them.
_tracer, _profiled = torch._C._get_tracing_state, torch._C._autograd._profiler_enabled
_modes, _transform = torch._C._len_torch_dispatch_stack, torch._C._functorch.peek_interpreter_stack
hooks = torch._C._autograd._top_saved_tensors_default_hooks
_negative, _zero = Tensor.is_neg, Tensor._is_zerotensor


def alone(tensors: Sequence[Tensor]) -> bool:
    """Whether nobody but this engine has to see a call on `tensors`.

    If not, the call goes through torch's dispatcher: to tracers, modes, profilers, transforms and
    subclasses, and to torch's own code that makes negative views and zero tensors into memory.
    """
    return not _profiled() and unseen(tensors)


def unseen(tensors: Sequence[Tensor]) -> bool:
    """`alone` but for profilers, which see the backward pass of what they saw."""
    return (
        _tracer() is None
        and not _modes()
        and _transform() is None
        and _PLAIN.issuperset(map(type, tensors))
        and True not in map(_negative, tensors)
        and True not in map(_zero, tensors)
    )


def _check(
    entry: Entry,
    x: Tensor,
    start: Tensor,
    given: _Given,
    lengths: Tensor | None,
    how: How,
) -> None:
    """Refuses tensors other than the program is made for: it would read what is not theirs."""
    dtype, shape, directions, reset = x.dtype, x.shape, start.shape[0], how.reset
    of_start = of_parameters = of_others = dtype
    if how.low is not None:
        known = torch.float32, how.low
        dtype = dtype if dtype in known else torch.float32
        of_start = start.dtype if start.dtype in known else torch.float32
        of_others = of_parameters = torch.float32
        if given.parameters and given.parameters[0].dtype in known:
            of_parameters = given.parameters[0].dtype
    elif dtype is not torch.float32 and dtype is not torch.float64:
        raise _wrong(entry, "x", x, shape, torch.float32)
    if x.dtype is not dtype:
        raise _wrong(entry, "x", x, shape, dtype)
    if shape[2] != entry.program.inputs[0]:
        raise _wrong(entry, "x", x, (*shape[:2], entry.program.inputs[0]), dtype)
    own = directions, shape[1], entry.width
    if start.shape != own or start.dtype is not of_start or not start.is_cpu:
        raise _wrong(entry, "start", start, own, of_start)
    if lengths is not None and (lengths.shape != shape[1:2] or lengths.dtype is not torch.int64):
        raise _wrong(entry, "lengths", lengths, shape[1:2], torch.int64)
    shapes = directions * entry.program.parameters
    widths = entry.program.inputs[1:]
    came, needed = sum(map(len, given)), len(shapes) + len(widths) + (reset is not None)
    if came != needed:
        raise ValueError(f"{entry.name}: {came} parameters came, expected {needed}")
    for parameter, expected in zip(given.parameters, shapes, strict=True):
        known_dtype = parameter.dtype is of_parameters
        if parameter.shape != expected or not known_dtype or not parameter.is_cpu:
            raise _wrong(entry, "a parameter", parameter, expected, of_parameters)
    for extra, width, learned in zip(given.extras, widths, entry.learned, strict=True):
        is_number = extra.dtype is of_others or (extra.dtype is torch.bool and not learned)
        if extra.shape != (*shape[:2], width) or not is_number or not extra.is_cpu:
            raise _wrong(entry, "a further input", extra, (*shape[:2], width), of_others)
    if reset is None:
        return
    if reset.shape != shape[:2] or reset.dtype is not torch.bool or not reset.is_cpu:
        raise _wrong(entry, "reset", reset, tuple(shape[:2]), torch.bool)
    (initial,) = given.initial
    if initial.shape != (entry.width,) or initial.dtype is not of_others or not initial.is_cpu:
        raise _wrong(entry, "the initial state", initial, (entry.width,), of_others)


def _wrong(
    entry: Entry, name: str, t: Tensor, shape: tuple[int, ...], dtype: torch.dtype
) -> ValueError:
    return ValueError(
        f"{entry.name}: {name} is {tuple(t.shape)}, {t.dtype} on {t.device}; "
        f"expected {tuple(shape)}, {dtype} on cpu"
    )


def _rows_contiguous(t: Tensor) -> Tensor:
    """The tensor itself if its last axis has stride 1."""
    return t if t.stride(-1) == 1 or t.shape[-1] == 1 else t.contiguous()


def _pointers(tensors: Sequence[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(tensors))(*[t.data_ptr() for t in tensors])


def _inputs(tensors: Sequence[Tensor]) -> ctypes.Array[Input]:
    return (Input * len(tensors))(
        *[Input(t.data_ptr(), *t.stride()[:2], t.dtype is torch.bool) for t in tensors]
    )


_THREAD_SPLIT = SPLIT["auto"]


def _call(
    native: NativeProgram, x: Tensor, start: Tensor, pointers: ctypes.Array[ctypes.c_void_p],
    lengths: Tensor | None, out: Tensor | None, last: Tensor | None, kept: Tensor | None,
    inputs: ctypes.Array[Input], given: _Given, how: How,
) -> ForwardCall:  # fmt: skip
    call = ForwardCall(
        native.handle,
        64 if x.dtype is torch.float64 else 32,
        start.shape[0],
        torch.get_num_threads(),
        _THREAD_SPLIT,
        x.shape[0],
        x.shape[1],
        None if lengths is None else lengths.data_ptr(),
        x.data_ptr(),
        x.stride(0),
        x.stride(1),
        start.data_ptr(),
        *((None, 0, 0) if out is None else (out.data_ptr(), out.stride(0), out.stride(1))),
        None if last is None else last.data_ptr(),
        None if kept is None else kept.data_ptr(),
        ctypes.addressof(pointers),
    )
    if given.extras:
        call.extras = ctypes.addressof(inputs)
    if how.reset is not None:
        call.reset = how.reset.data_ptr()
        call.reset_step, call.reset_row = how.reset.stride()
        call.initial = given.initial[0].data_ptr()
    call.all_states, call.recompute = how.all_states, how.recompute
    if how.low is not None:
        call.x_stored, call.start_stored = stored(x.dtype), stored(start.dtype)
        call.parameters_stored = stored(given.parameters[0].dtype) if given.parameters else 0
        call.out_stored = call.last_stored = stored(how.low)
    return call


def stored(dtype: torch.dtype) -> int:
    """The native code's word for how numbers of a run in float32 or float64 are stored."""
    return 1 if dtype is torch.bfloat16 else 2 if dtype is torch.float16 else 0


def _contiguous(given: _Given) -> _Given:
    return _Given(
        [p.contiguous() for p in given.parameters],
        [_rows_contiguous(t) for t in given.extras],
        [t.contiguous() for t in given.initial],
    )


_LIBRARY = torch.library.Library("onegate", "DEF")
_LIBRARY.define(
    "forward(Tensor x, Tensor start, Tensor[] parameters, Tensor? lengths, str program, "
    "bool keep, Tensor? reset=None, bool all_states=False, bool recompute=False) "
    "-> (Tensor, Tensor, Tensor)"
)
_LIBRARY.define(
    "backward(Tensor x, Tensor start, Tensor[] parameters, Tensor? lengths, str program, "
    "Tensor out, Tensor kept, Tensor? grad_out, Tensor? grad_last, bool grad_x, "
    "Tensor? reset=None, bool all_states=False, bool recompute=False) -> Tensor[]"
)


def _forward(
    entry: Entry,
    x: Tensor,
    start: Tensor,
    parameters: Sequence[Tensor],
    lengths: Tensor | None,
    keep: bool,
    how: How = PLAIN,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Outputs, last states, and what is kept for the backward pass."""
    given = _told_apart(entry, start.shape[0], parameters)
    _check(entry, x, start, given, lengths, how)
    x, start, given = _rows_contiguous(x), start.contiguous(), _contiguous(given)
    lengths = None if lengths is None else lengths.contiguous()
    out_shape, kept_shape = _shapes(x, start, entry, keep, how)
    # torch's own memory where there is no gradient: only such a tensor may be resized.
    low, of_kept = how.low or x.dtype, x.dtype if how.low is None else torch.float32
    out = pool.empty(out_shape, x, low) if keep else pool.fresh(out_shape, x, low)
    kept = pool.empty(kept_shape, x, of_kept) if keep else None
    last = torch.empty_like(start) if how.low is None else torch.empty_like(start, dtype=low)
    # These arrays must live as long as the call.
    pointers, inputs = _pointers(given.parameters), _inputs(given.extras)
    call = _call(entry.native, x, start, pointers, lengths, out, last, kept, inputs, given, how)
    entry.native.forward(call)
    return out, last, kept


def _shapes(
    x: Tensor, start: Tensor, entry: Entry, keep: bool, how: How
) -> tuple[tuple[int, int, int], tuple[int]]:
    """Of the outputs, and of what is kept for the backward pass."""
    steps, rows, directions = x.shape[0], x.shape[1], start.shape[0]
    per_row = entry.width - entry.size if how.recompute else entry.per_row
    if how.low is not None:
        per_row += entry.size  # the outputs' states, before they are rounded
    kept = directions * steps * rows * per_row if keep else 0
    return (steps, rows, directions * (entry.width if how.all_states else entry.size)), (kept,)


def _forward_fake(
    x: Tensor,
    start: Tensor,
    parameters: list[Tensor],
    lengths: Tensor | None,
    key: str,
    keep: bool,
    reset: Tensor | None = None,
    all_states: bool = False,
    recompute: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    entry = programs.find(key)
    _one_device(entry, x, start, lengths, reset, *parameters)
    out_shape, kept_shape = _shapes(x, start, entry, keep, How(reset, all_states, recompute))
    last = torch.empty_like(start, memory_format=torch.contiguous_format)
    return x.new_empty(out_shape), last, x.new_empty(kept_shape)


def _one_device(entry: Entry, x: Tensor, *others: Tensor | None) -> None:
    """Refuses a meta tensor among others: nothing would be computed for the others either."""
    for tensor in others:
        if tensor is not None and tensor.device != x.device:
            raise ValueError(
                f"{entry.name}: a tensor of {tuple(tensor.shape)} is on "
                f"{tensor.device}, expected {x.device}, where x is"
            )


def _backward(
    entry: Entry,
    x: Tensor,
    start: Tensor,
    parameters: list[Tensor],
    lengths: Tensor | None,
    out: Tensor | None,
    kept: Tensor,
    grad_out: Tensor | None,
    grad_last: Tensor | None,
    grad_x: bool,
    how: How = PLAIN,
) -> list[Tensor]:
    """Gradients of x, start and all of `parameters`; empty where there is none."""
    given = _contiguous(_told_apart(entry, start.shape[0], parameters))
    x, start = _rows_contiguous(x), start.contiguous()
    lengths = None if lengths is None else lengths.contiguous()
    out, kept = None if out is None else _rows_contiguous(out), kept.contiguous()
    grad_out = None if grad_out is None else _rows_contiguous(grad_out)
    grad_last = None if grad_last is None else grad_last.contiguous()
    directions = start.shape[0]
    # Of two directions rounded once, behind their sum.
    of_x = x.dtype if directions == 1 or how.low is None else torch.float32
    for_x = pool.fresh((directions, *x.shape) if grad_x else (0,), x, of_x)
    for_start = torch.empty_like(start)
    for_parameters = [torch.empty_like(p) for p in given.parameters]
    for_extras = [
        extra.new_empty((directions, *extra.shape) if learned else (0,))
        for extra, learned in zip(given.extras, entry.learned, strict=True)
    ]
    for_initial = [t.new_zeros(x.shape[1], entry.width) for t in given.initial]  # by row
    pointers, grad_pointers = _pointers(given.parameters), _pointers(for_parameters)
    inputs = _inputs(given.extras)
    places = (ctypes.c_void_p * len(for_extras))(
        *[t.data_ptr() if t.numel() else None for t in for_extras]
    )
    call = BackwardCall(
        _call(entry.native, x, start, pointers, lengths, out, None, kept, inputs, given, how),
        None if grad_out is None else grad_out.data_ptr(),
        0 if grad_out is None else grad_out.stride(0),
        0 if grad_out is None else grad_out.stride(1),
        None if grad_last is None else grad_last.data_ptr(),
        for_x.data_ptr() if grad_x else None,
        for_start.data_ptr(),
        ctypes.addressof(grad_pointers),
        ctypes.addressof(places) if for_extras else None,
        for_initial[0].data_ptr() if for_initial else None,
        stored(of_x),
    )
    entry.native.backward(call)
    if grad_x:
        for_x = for_x[0] if directions == 1 else for_x.sum(0).to(x.dtype)
    for_extras = [t.sum(0) if t.numel() else t for t in for_extras]
    return [for_x, for_start, *for_parameters, *for_extras, *[t.sum(0) for t in for_initial]]


def _forward_operator(
    x: Tensor,
    start: Tensor,
    parameters: list[Tensor],
    lengths: Tensor | None,
    key: str,
    keep: bool,
    *how: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    entry = programs.find(key)
    out, last, kept = _forward(entry, x, start, parameters, lengths, keep, How(*how))
    return out, last, x.new_empty(0) if kept is None else kept


def _backward_operator(
    x: Tensor,
    start: Tensor,
    parameters: list[Tensor],
    lengths: Tensor | None,
    key: str,
    out: Tensor,
    kept: Tensor,
    grad_out: Tensor | None,
    grad_last: Tensor | None,
    grad_x: bool,
    *more: Any,
) -> list[Tensor]:
    """`_backward` for whoever calls the operator; autograd's own tensors need no check."""
    entry, how = programs.find(key), How(*more)
    given_list = _told_apart(entry, start.shape[0], parameters)
    _check(entry, x, start, given_list, lengths, how)
    out_shape, kept_shape = _shapes(x, start, entry, True, how)
    given: list[tuple[str, Tensor | None, tuple[int, ...]]] = [
        ("out", out, out_shape),
        ("kept", kept if kept.numel() else None, kept_shape),  # nothing at all is refused later
        ("grad_out", grad_out, out_shape),
        ("grad_last", grad_last, start.shape),
    ]
    for name, tensor, shape in given:
        if tensor is not None and (tensor.shape != shape or tensor.dtype is not x.dtype):
            raise _wrong(entry, name, tensor, shape, x.dtype)
    rest = out, kept, grad_out, grad_last, grad_x, how
    return _backward(entry, x, start, parameters, lengths, *rest)


def _backward_fake(
    x: Tensor, start: Tensor, parameters: list[Tensor], *others: Any
) -> list[Tensor]:
    lengths, key, out, kept, grad_out, grad_last, grad_x, *how = others
    entry = programs.find(key)
    rest = lengths, out, kept, grad_out, grad_last, How(*how).reset
    _one_device(entry, x, start, *parameters, *rest)
    given = _told_apart(entry, start.shape[0], parameters)
    extras = [
        x.new_empty(t.shape if has_gradient else (0,))
        for t, has_gradient in zip(given.extras, entry.learned, strict=True)
    ]
    for_x, own = x.new_empty(x.shape if grad_x else (0,)), torch.contiguous_format
    for_start, *learned = [
        torch.empty_like(t, memory_format=own) for t in (start, *given.parameters)
    ]
    initial = [torch.empty_like(t, memory_format=own) for t in given.initial]
    return [for_x, for_start, *learned, *extras, *initial]


_LIBRARY.impl("forward", _forward_operator, "CPU")
_LIBRARY.impl("backward", _backward_operator, "CPU")
torch.library.register_fake("onegate::forward", _forward_fake, lib=_LIBRARY)
torch.library.register_fake("onegate::backward", _backward_fake, lib=_LIBRARY)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, start, parameters, lengths, key, keep, *how = inputs
    # What is compiled has no operations in place; else the caller may change the outputs.
    out = output[0] if torch.compiler.is_compiling() or not keep else output[0].clone()
    saved = x, start, out, output[2], lengths
    _remember(ctx, programs.find(key), keep, How(*how), (*saved, *parameters))


def _remember(
    ctx: Any, entry: Entry, keep: bool, how: How, tensors: tuple[Tensor | None, ...]
) -> None:
    ctx.entry, ctx.keep, ctx.how = entry, keep, how
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors)


def _gradients(
    ctx: Any, grad_out: Tensor | None, grad_last: Tensor | None
) -> tuple[Tensor | None, Tensor | None, Sequence[Tensor | None]]:
    """Of x, the start and the parameters."""
    saved = ctx.saved_tensors  # may be asked for only once
    x, start, out, kept, lengths, *parameters = saved
    if start is None:
        shape, value, dtype = ctx.start
        start = x.new_full(shape, value, dtype=dtype)
    if grad_out is None and grad_last is None:
        return None, None, [None] * len(parameters)
    out = _unchanged(ctx, x, start, parameters, lengths, out)
    entry, how, grad_x = ctx.entry, ctx.how, bool(ctx.needs_input_grad[0])
    rest = out, kept, grad_out, grad_last, grad_x
    given = [t for t in (grad_out, grad_last) if t is not None]
    compiled = torch.compiler.is_compiling()  # where the questions below have no true answer
    by_reference = torch.is_grad_enabled() or not ctx.keep or (not compiled and transformed(given))
    seen = compiled or not alone([t for t in saved if t is not None] + given)
    if by_reference or (seen and how.low is not None):
        grads = _differentiable(entry, x, start, parameters, lengths, grad_out, grad_last, how)
    elif not seen:
        grads = _backward(entry, x, start, parameters, lengths, *rest, how)
    else:
        key = entry.key
        given_too = *rest, *how.of_operator()
        grads = torch.ops.onegate.backward(x, start, parameters, lengths, key, *given_too)
    others: Sequence[Tensor | None] = grads[2:]
    if False in entry.learned:  # masks
        pairs = zip(grads[2:], parameters, strict=True)
        others = [gradient if gradient.shape == p.shape else None for gradient, p in pairs]
    return grads[0] if grad_x else None, grads[1], others


def _unchanged(
    ctx: Any,
    x: Tensor,
    start: Tensor,
    parameters: list[Tensor],
    lengths: Tensor | None,
    out: Tensor,
) -> Tensor:
    """The outputs as they were: computed again where the caller has changed them in place.

    A copy for the few who do would cost everybody its time and memory.
    """
    returned = getattr(ctx, "returned", None)
    if returned is None or returned._version == ctx.version:
        return out
    return _forward(ctx.entry, x, start, parameters, lengths, False, ctx.how)[0]


def transformed(gradients: Sequence[Tensor]) -> bool:
    """Whether many gradients come at once (vmap, torch.autograd's own too), or with tangents."""
    return (
        _transform() is not None
        or forward_ad._current_level >= 0
        or any(map(torch._C._functorch.is_legacy_batchedtensor, gradients))
    )


def _autograd(
    ctx: Any, grad_out: Tensor | None, grad_last: Tensor | None, _: Tensor | None
) -> tuple[Any, ...]:
    # The dispatcher has left out arguments that have their defaults.
    return *_gradients(ctx, grad_out, grad_last), *[None] * (len(ctx.needs_input_grad) - 3)


class _Eager(torch.autograd.Function):
    """The operator and its autograd rule without the dispatcher.

    For short sequences the dispatcher would take longer than the run itself.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        start: Tensor,
        lengths: Tensor | None,
        entry: Entry,
        how: How,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor]:
        out, last, kept = _forward(entry, x, start, parameters, lengths, True, how)
        kept_start: Tensor | None = start
        if not ctx.needs_input_grad[1] and not any(start.stride()[1:]):  # one number: no memory
            ctx.start, kept_start = (start.shape, start[0, 0, 0].item(), start.dtype), None
        if how.low is not None:  # the backward pass reads what was kept alone
            ctx.returned = saved = None
        elif hooks(True) is None:
            # Saved without its version, which is compared in the backward pass: see `_unchanged`.
            ctx.returned, ctx.version, saved = out.detach(), out._version, out.data
        else:  # whoever packs away what is saved wants no further holder of its memory
            ctx.returned, saved = None, out.clone()
        _remember(ctx, entry, True, how, (x, kept_start, saved, kept, lengths, *parameters))
        return out, last

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor | None, grad_last: Tensor | None) -> tuple[Any, ...]:
        for_x, for_start, for_parameters = _gradients(ctx, grad_out, grad_last)
        return for_x, for_start, None, None, None, *for_parameters


_eager = cast("Callable[..., tuple[Tensor, Tensor]]", _Eager.apply)


def _differentiable(
    entry: Entry,
    x: Tensor,
    start: Tensor,
    parameters: list[Tensor],
    lengths: Tensor | None,
    grad_out: Tensor | None,
    grad_last: Tensor | None,
    how: How,
) -> list[Tensor]:
    """The backward pass by the reference engine, for derivatives of higher order."""
    again = torch.is_grad_enabled()
    # The forward pass ran in full precision, whatever is on around the backward pass.
    with torch.enable_grad(), torch.autocast("cpu", enabled=False):
        # Views cut the gradient at this layer's own inputs: x may itself depend on the parameters.
        inputs = [t.view_as(t) for t in (x, start, *parameters)]
        if entry.graph is None:
            raise RuntimeError(
                f"{entry.name}: these derivatives need the unit's equations, and a recorded model "
                "has its program alone: import and register the unit (onegate.register) first"
            )
        out, last = _by_reference(entry, entry.graph, inputs, lengths, how)
        given = [(o, g) for o, g in ((out, grad_out), (last, grad_last)) if g is not None]
        outputs, gradients = zip(*given, strict=True)
        needed = [t for t in inputs if t.requires_grad]
        grads = iter(
            torch.autograd.grad(
                outputs, needed, gradients, create_graph=again, materialize_grads=True
            )
        )
    return [next(grads) if t.requires_grad else torch.zeros_like(t) for t in inputs]


def _by_reference(
    entry: Entry, graph: Graph, inputs: Sequence[Tensor], lengths: Tensor | None, how: How
) -> tuple[Tensor, Tensor]:
    """Outputs and last states as the operator gives them. inputs: x, start and all parameters."""
    if how.low is not None:
        wide = _by_reference(entry, graph, _widened(inputs), lengths, how._replace(low=None))
        return wide[0].to(how.low), wide[1].to(how.low)
    directions = []
    count, sizes = len(graph.parameters), [s.size or 0 for s in graph.states]
    for d, states in enumerate(inputs[1].unbind(0)):
        own = inputs[2 + d * count : 2 + (d + 1) * count]
        directions.append(
            Direction(states.split(sizes, -1), dict(zip(graph.parameters, own, strict=True)))
        )
    given = _told_apart(entry, len(directions), inputs[2:])
    initial = tuple(given.initial[0].split(sizes)) if given.initial else ()
    further = Further(tuple(given.extras), how.reset, initial, how.all_states)
    out, lasts = reference.run(graph, inputs[0], directions, lengths, further)
    return out, torch.stack([torch.cat(states, -1) for states in lasts])


def _forward_flops(
    x: Sequence[int], start: Sequence[int], _: Any, __: Any, key: str, *___: Any, **____: Any
) -> int:
    """Of the matrix products, as torch counts them for its own operators."""
    products = [shape for shape in programs.find(key).program.parameters if len(shape) > 1]
    return 2 * x[0] * x[1] * start[0] * sum(map(math.prod, products))


def _backward_flops(
    x: Sequence[int], start: Sequence[int], _: Any, __: Any, key: str, *others: Any, **___: Any
) -> int:
    """Each product's matrix and operand have a gradient; the input only if it is asked for."""
    made = programs.find(key).program
    count = 0
    for slot, parameter in (term for m in made.maps for term in m.operands):
        from_x = made.backward.slots[slot].space == "input" and not made.backward.slots[slot].index
        count += math.prod(made.parameters[parameter]) * (1 if from_x and not others[4] else 2)
    return 2 * x[0] * x[1] * start[0] * count


torch.library.register_autograd(
    "onegate::forward", _autograd, setup_context=_setup_context, lib=_LIBRARY
)
register_flop_formula(torch.ops.onegate.forward)(_forward_flops)
register_flop_formula(torch.ops.onegate.backward)(_backward_flops)


class _Fused:
    name = "fused"

    def missing(self) -> str | None:
        return _problem()

    def problem(self, graph: Graph, x: Tensor, directions: Sequence[Direction]) -> str | None:  # noqa: ARG002
        if not x.is_cpu:
            return f"the fused engine runs on the CPU, the input is on {x.device}"
        if x.dtype not in DTYPES:
            return f"the fused engine computes in float32 and float64, the input is {x.dtype}"
        if not x.numel():
            return "an empty batch"
        if is_transformed():
            return "a torch.func transform (vmap, grad, jvp, ...) is active"
        if forward_ad._current_level >= 0:
            return "forward-mode differentiation is active"
        if _tracer() is not None and torch.onnx.is_in_onnx_export():
            return "ONNX has no operator for a whole sequence"
        return _problem()

    run = staticmethod(run)


# torch.compile takes the stack for an object even where it is empty: it is to look while it traces.
@constant
def is_transformed() -> bool:
    """Whether a torch.func transform is active."""
    return _transform() is not None


ENGINE: Final[Engine] = _Fused()
