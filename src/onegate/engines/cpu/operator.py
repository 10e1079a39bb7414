"""The fused engine: a whole sequence in one call of the native code, as a torch operator.

`torch.ops.onegate.forward` and `torch.ops.onegate.backward` have fake implementations, so that
`torch.compile` and `torch.export` see one operator, and an autograd rule. Derivatives of the
backward pass are computed by the reference engine.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.utils.flop_counter import register_flop_formula

from onegate.engines import reference
from onegate.engines.compiling import constant
from onegate.engines.cpu import memory, programs
from onegate.engines.cpu.native import BackwardCall, ForwardCall, NativeProgram, library
from onegate.engines.cpu.programs import Entry
from onegate.engines.direction import Direction
from onegate.language import Graph

SPLIT = {"auto": 0, "rows": 1, "columns": 2}


def unavailable(graph: Graph, x: Tensor, directions: Sequence[Direction]) -> str | None:  # noqa: ARG001
    """Why this engine cannot run here, or None."""
    return _problem()


# torch.compile is to call these two while it traces and take what they return: followed into, it
# would trace the loading of the library and the making of programs.
@constant
def _problem() -> str | None:
    return library().problem


@constant
def _lasting_key_of(graph: Graph) -> str:
    return programs.lasting_key_of(graph)


def run(
    graph: Graph, x: Tensor, directions: Sequence[Direction], lengths: Tensor | None
) -> tuple[Tensor, tuple[tuple[Tensor, ...], ...]]:
    """As `reference.run`: outputs (T, B, D * n), and per direction the last states (B, size)."""
    parameters = [p for d in directions for p in d.parameters.values()]
    starts = [d.start[0] if len(d.start) == 1 else torch.cat(d.start, -1) for d in directions]
    start = starts[0].unsqueeze(0) if len(starts) == 1 else torch.stack(starts)
    keep = torch.is_grad_enabled() and (
        x.requires_grad or start.requires_grad or any(p.requires_grad for p in parameters)
    )
    tensors = [x, start, *parameters] if lengths is None else [x, start, lengths, *parameters]
    if torch.compiler.is_compiling() or not _alone(tensors):
        key = _lasting_key_of(graph)
        # torch.jit.trace checks a trace made with gradients against one made without.
        keep = keep and _tracer() is None
        out, last, _ = torch.ops.onegate.forward(x, start, parameters, lengths, key, keep)
    elif keep:
        out, last = _eager(x, start, lengths, programs.entry_of(graph), *parameters)
    else:
        out, last, _ = _forward(programs.entry_of(graph), x, start, parameters, lengths, False)
    if len(graph.states) == 1:
        return out, tuple([(each,) for each in last.unbind(0)])
    sizes = [s.size or 0 for s in graph.states]
    return out, tuple([each.split(sizes, -1) for each in last.unbind(0)])


_PLAIN = {Tensor, nn.Parameter}
# Bound once: to look them up would take as long as to call them.
_tracer, _profiled = torch._C._get_tracing_state, torch._C._autograd._profiler_enabled
_modes, _transform = torch._C._len_torch_dispatch_stack, torch._C._functorch.peek_interpreter_stack
_negative, _zero = Tensor.is_neg, Tensor._is_zerotensor


def _alone(tensors: Sequence[Tensor]) -> bool:
    """Whether nobody but this engine has to see a call on `tensors`.

    If not, the call goes through torch's dispatcher: to tracers, modes, profilers, transforms and
    subclasses, and to torch's own code that makes negative views and zero tensors into memory.
    """
    return (
        _tracer() is None
        and not _modes()
        and not _profiled()
        and _transform() is None
        and _PLAIN.issuperset(map(type, tensors))
        and True not in map(_negative, tensors)
        and True not in map(_zero, tensors)
    )


def _check(
    entry: Entry, x: Tensor, start: Tensor, parameters: Sequence[Tensor], lengths: Tensor | None
) -> None:
    """Refuses tensors other than the program is made for: it would read what is not theirs."""
    dtype, shape, directions = x.dtype, x.shape, start.shape[0]
    if dtype is not torch.float32 and dtype is not torch.float64:
        raise _wrong(entry, "x", x, shape, torch.float32)
    if shape[2] != entry.graph.input_size:
        raise _wrong(entry, "x", x, (*shape[:2], entry.graph.input_size), dtype)
    own = directions, shape[1], entry.width
    if start.shape != own or start.dtype is not dtype or not start.is_cpu:
        raise _wrong(entry, "start", start, own, dtype)
    if lengths is not None and (lengths.shape != shape[1:2] or lengths.dtype is not torch.int64):
        raise _wrong(entry, "lengths", lengths, shape[1:2], torch.int64)
    shapes = directions * entry.shapes
    if len(parameters) != len(shapes):
        name = entry.graph.unit.name
        raise ValueError(f"{name}: {len(parameters)} parameters came, expected {len(shapes)}")
    for parameter, expected in zip(parameters, shapes, strict=True):
        if parameter.shape != expected or parameter.dtype is not dtype or not parameter.is_cpu:
            raise _wrong(entry, "a parameter", parameter, expected, dtype)


def _wrong(
    entry: Entry, name: str, t: Tensor, shape: tuple[int, ...], dtype: torch.dtype
) -> ValueError:
    return ValueError(
        f"{entry.graph.unit.name}: {name} is {tuple(t.shape)}, {t.dtype} on {t.device}; "
        f"expected {tuple(shape)}, {dtype} on cpu"
    )


def _rows_contiguous(t: Tensor) -> Tensor:
    """The tensor itself if its last axis has stride 1."""
    return t if t.stride(-1) == 1 or t.shape[-1] == 1 else t.contiguous()


def _pointers(tensors: Sequence[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(tensors))(*[t.data_ptr() for t in tensors])


_THREAD_SPLIT = SPLIT["auto"]


def _call(
    native: NativeProgram, x: Tensor, start: Tensor, pointers: ctypes.Array[ctypes.c_void_p],
    lengths: Tensor | None, out: Tensor, last: Tensor | None, kept: Tensor | None,
) -> ForwardCall:  # fmt: skip
    return ForwardCall(
        native.handle,
        x.element_size() * 8,
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
        out.data_ptr(),
        out.stride(0),
        out.stride(1),
        None if last is None else last.data_ptr(),
        None if kept is None else kept.data_ptr(),
        ctypes.addressof(pointers),
    )


_LIBRARY = torch.library.Library("onegate", "DEF")
_LIBRARY.define(
    "forward(Tensor x, Tensor start, Tensor[] parameters, Tensor? lengths, str program, "
    "bool keep) -> (Tensor, Tensor, Tensor)"
)
_LIBRARY.define(
    "backward(Tensor x, Tensor start, Tensor[] parameters, Tensor? lengths, str program, "
    "Tensor out, Tensor kept, Tensor? grad_out, Tensor? grad_last, bool grad_x) -> Tensor[]"
)


def _forward(
    entry: Entry,
    x: Tensor,
    start: Tensor,
    parameters: Sequence[Tensor],
    lengths: Tensor | None,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Outputs, last states, and what is kept for the backward pass."""
    _check(entry, x, start, parameters, lengths)
    x, start = _rows_contiguous(x), start.contiguous()
    parameters = [p.contiguous() for p in parameters]
    lengths = None if lengths is None else lengths.contiguous()
    out_shape, kept_shape = _shapes(x, start, entry, keep)
    out = memory.empty(out_shape, x)
    kept = memory.empty(kept_shape, x) if keep else None
    last = torch.empty_like(start)
    pointers = _pointers(parameters)
    call = _call(entry.native, x, start, pointers, lengths, out, last, kept)
    entry.native.forward(call)
    return out, last, kept


def _shapes(
    x: Tensor, start: Tensor, entry: Entry, keep: bool
) -> tuple[tuple[int, int, int], tuple[int]]:
    """Of the outputs, and of what is kept for the backward pass."""
    steps, rows, directions = x.shape[0], x.shape[1], start.shape[0]
    kept = directions * steps * rows * entry.per_row if keep else 0
    return (steps, rows, directions * entry.size), (kept,)


def _forward_fake(
    x: Tensor,
    start: Tensor,
    parameters: list[Tensor],
    lengths: Tensor | None,
    key: str,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    entry = programs.find(key)
    _one_device(entry, x, start, lengths, *parameters)
    out_shape, kept_shape = _shapes(x, start, entry, keep)
    last = torch.empty_like(start, memory_format=torch.contiguous_format)
    return x.new_empty(out_shape), last, x.new_empty(kept_shape)


def _one_device(entry: Entry, x: Tensor, *others: Tensor | None) -> None:
    """Refuses a meta tensor among others: nothing would be computed for the others either."""
    for tensor in others:
        if tensor is not None and tensor.device != x.device:
            raise ValueError(
                f"{entry.graph.unit.name}: a tensor of {tuple(tensor.shape)} is on "
                f"{tensor.device}, expected {x.device}, where x is"
            )


def _backward(
    entry: Entry,
    x: Tensor,
    start: Tensor,
    parameters: list[Tensor],
    lengths: Tensor | None,
    out: Tensor,
    kept: Tensor,
    grad_out: Tensor | None,
    grad_last: Tensor | None,
    grad_x: bool,
) -> list[Tensor]:
    x, start = _rows_contiguous(x), start.contiguous()
    parameters = [p.contiguous() for p in parameters]
    lengths = None if lengths is None else lengths.contiguous()
    out, kept = _rows_contiguous(out), kept.contiguous()
    grad_out = None if grad_out is None else _rows_contiguous(grad_out)
    grad_last = None if grad_last is None else grad_last.contiguous()
    directions = start.shape[0]
    for_x = x.new_empty((directions, *x.shape) if grad_x else (0,))
    for_start = torch.empty_like(start)
    for_parameters = [torch.empty_like(p) for p in parameters]
    pointers, grad_pointers = _pointers(parameters), _pointers(for_parameters)
    call = BackwardCall(
        _call(entry.native, x, start, pointers, lengths, out, None, kept),
        None if grad_out is None else grad_out.data_ptr(),
        0 if grad_out is None else grad_out.stride(0),
        0 if grad_out is None else grad_out.stride(1),
        None if grad_last is None else grad_last.data_ptr(),
        for_x.data_ptr() if grad_x else None,
        for_start.data_ptr(),
        ctypes.addressof(grad_pointers),
    )
    entry.native.backward(call)
    if grad_x:
        for_x = for_x[0] if directions == 1 else for_x.sum(0)
    return [for_x, for_start, *for_parameters]


def _forward_operator(
    x: Tensor,
    start: Tensor,
    parameters: list[Tensor],
    lengths: Tensor | None,
    key: str,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    out, last, kept = _forward(programs.find(key), x, start, parameters, lengths, keep)
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
) -> list[Tensor]:
    """`_backward` for whoever calls the operator; autograd's own tensors need no check."""
    entry = programs.find(key)
    _check(entry, x, start, parameters, lengths)
    out_shape, kept_shape = _shapes(x, start, entry, True)
    given: list[tuple[str, Tensor | None, tuple[int, ...]]] = [
        ("out", out, out_shape),
        ("kept", kept if kept.numel() else None, kept_shape),  # nothing at all is refused later
        ("grad_out", grad_out, out_shape),
        ("grad_last", grad_last, start.shape),
    ]
    for name, tensor, shape in given:
        if tensor is not None and (tensor.shape != shape or tensor.dtype is not x.dtype):
            raise _wrong(entry, name, tensor, shape, x.dtype)
    return _backward(entry, x, start, parameters, lengths, out, kept, grad_out, grad_last, grad_x)


def _backward_fake(
    x: Tensor, start: Tensor, parameters: list[Tensor], *others: Any
) -> list[Tensor]:
    lengths, key, out, kept, grad_out, grad_last, grad_x = others
    rest = lengths, out, kept, grad_out, grad_last
    _one_device(programs.find(key), x, start, *parameters, *rest)
    return [
        x.new_empty(x.shape if grad_x else (0,)),
        torch.empty_like(start, memory_format=torch.contiguous_format),
        *[torch.empty_like(p, memory_format=torch.contiguous_format) for p in parameters],
    ]


_LIBRARY.impl("forward", _forward_operator, "CPU")
_LIBRARY.impl("backward", _backward_operator, "CPU")
torch.library.register_fake("onegate::forward", _forward_fake, lib=_LIBRARY)
torch.library.register_fake("onegate::backward", _backward_fake, lib=_LIBRARY)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, start, parameters, lengths, key, keep = inputs
    _remember(ctx, programs.find(key), keep, (x, start, output[0], output[2], lengths, *parameters))


def _remember(ctx: Any, entry: Entry, keep: bool, tensors: tuple[Tensor | None, ...]) -> None:
    ctx.entry, ctx.keep = entry, keep
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors)


def _gradients(
    ctx: Any, grad_out: Tensor | None, grad_last: Tensor | None
) -> tuple[Tensor | None, Tensor | None, Sequence[Tensor | None]]:
    """Of x, the start and the parameters."""
    saved = ctx.saved_tensors  # may be asked for only once
    x, start, out, kept, lengths, *parameters = saved
    if grad_out is None and grad_last is None:
        return None, None, [None] * len(parameters)
    entry, grad_x = ctx.entry, bool(ctx.needs_input_grad[0])
    rest = out, kept, grad_out, grad_last, grad_x
    given = [t for t in (grad_out, grad_last) if t is not None]
    compiled = torch.compiler.is_compiling()  # where the questions below have no true answer
    if torch.is_grad_enabled() or not ctx.keep or (not compiled and _transformed(given)):
        grads = _differentiable(entry, x, start, parameters, lengths, grad_out, grad_last)
    elif not compiled and _alone([t for t in saved if t is not None] + given):
        grads = _backward(entry, x, start, parameters, lengths, *rest)
    else:
        key = _lasting_key_of(entry.graph)
        grads = torch.ops.onegate.backward(x, start, parameters, lengths, key, *rest)
    return grads[0] if grad_x else None, grads[1], grads[2:]


def _transformed(gradients: Sequence[Tensor]) -> bool:
    """Whether many gradients come at once (vmap, torch.autograd's own too), or with tangents."""
    return (
        _transform() is not None
        or forward_ad._current_level >= 0
        or any(map(torch._C._functorch.is_legacy_batchedtensor, gradients))
    )


def _autograd(
    ctx: Any, grad_out: Tensor | None, grad_last: Tensor | None, _: Tensor | None
) -> tuple[Any, ...]:
    return *_gradients(ctx, grad_out, grad_last), None, None, None


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
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor]:
        out, last, kept = _forward(entry, x, start, parameters, lengths, True)
        _remember(ctx, entry, True, (x, start, out, kept, lengths, *parameters))
        return out, last

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor | None, grad_last: Tensor | None) -> tuple[Any, ...]:
        for_x, for_start, for_parameters = _gradients(ctx, grad_out, grad_last)
        return for_x, for_start, None, None, *for_parameters


_eager = cast("Callable[..., tuple[Tensor, Tensor]]", _Eager.apply)


def _differentiable(
    entry: Entry,
    x: Tensor,
    start: Tensor,
    parameters: list[Tensor],
    lengths: Tensor | None,
    grad_out: Tensor | None,
    grad_last: Tensor | None,
) -> list[Tensor]:
    """The backward pass by the reference engine, for derivatives of higher order."""
    again = torch.is_grad_enabled()
    # The forward pass ran in full precision, whatever is on around the backward pass.
    with torch.enable_grad(), torch.autocast("cpu", enabled=False):
        # Views cut the gradient at this layer's own inputs: x may itself depend on the parameters.
        inputs = [t.view_as(t) for t in (x, start, *parameters)]
        out, last = _by_reference(entry.graph, inputs, lengths)
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
    graph: Graph, inputs: Sequence[Tensor], lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Outputs and last states as the operator gives them. inputs: x, start and all parameters."""
    directions = []
    count, sizes = len(graph.parameters), [s.size or 0 for s in graph.states]
    for d, states in enumerate(inputs[1].unbind(0)):
        own = inputs[2 + d * count : 2 + (d + 1) * count]
        directions.append(
            Direction(states.split(sizes, -1), dict(zip(graph.parameters, own, strict=True)))
        )
    out, lasts = reference.run(graph, inputs[0], directions, lengths)
    return out, torch.stack([torch.cat(states, -1) for states in lasts])


def _forward_flops(
    x: Sequence[int], start: Sequence[int], _: Any, __: Any, key: str, *___: Any, **____: Any
) -> int:
    """Of the matrix products, as torch counts them for its own operators."""
    products = [shape for shape in programs.find(key).shapes if len(shape) == 2]
    return 2 * x[0] * x[1] * start[0] * sum(m * k for m, k in products)


def _backward_flops(
    x: Sequence[int], start: Sequence[int], _: Any, __: Any, key: str, *others: Any, **___: Any
) -> int:
    """Each product's matrix and operand have a gradient; the input only if it is asked for."""
    graph = programs.find(key).graph
    count = 0
    for used in graph.maps.values():
        for weight, operand in zip(used.weights, used.operands, strict=True):
            m, k = graph.parameters[weight]
            count += m * k * (1 if operand is graph.input and not others[-1] else 2)
    return 2 * x[0] * x[1] * start[0] * count


torch.library.register_autograd(
    "onegate::forward", _autograd, setup_context=_setup_context, lib=_LIBRARY
)
register_flop_formula(torch.ops.onegate.forward)(_forward_flops)
register_flop_formula(torch.ops.onegate.backward)(_backward_flops)
