"""The fused engine with as little Python around it as can be, which a single step is bound by.

For parameters as they are kept: by torch.nn those of all gates in one tensor, by onegate's layers
each in its own. The native code reads each gate's rows where they lie, and writes their gradients
where they belong. Cut by autograd, one call would make a dozen views and as many nodes, which for
short sequences take longer than the run itself.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from onegate.engines import reference
from onegate.engines.base import Direction
from onegate.engines.cpu import pool, programs
from onegate.engines.cpu.native import BackwardCall, ForwardCall
from onegate.engines.cpu.operator import (
    DTYPES,
    ENGINE,
    LOW,
    alone,
    hooks,
    stored,
    transformed,
    unseen,
)
from onegate.language import Graph, of_graph


class Portion(NamedTuple):
    """Where a parameter lies: the tensor's number, and which of its equal parts."""

    tensor: int
    gate: int


class Stacks:
    """Which parameters of `graph` lie where in a direction's tensors.

    shapes: of the tensors. gates: into how many parts each is cut. places: by the parameters' keys;
    one that has two places is the sum of both. whole: every parameter is a tensor of its own.
    """

    def __init__(
        self,
        graph: Graph,
        shapes: Sequence[tuple[int, ...]],
        gates: Sequence[int],
        places: Mapping[str, tuple[Portion, ...]],
    ) -> None:
        self.graph, self.shapes, self.gates = graph, list(shapes), tuple(gates)
        self.places = [places[key] for key in graph.parameters]
        self.sizes = [state.size or 0 for state in graph.states]
        self.width = sum(self.sizes)
        pairs = ((p[0].tensor, p[1].tensor) for p in self.places if len(p) > 1)
        self.summed = next(pairs, None)
        own = [(Portion(number, 0),) for number in range(len(self.places))]
        self.whole = self.places == own and set(self.gates) <= {1}
        self._layouts: dict[tuple[int, int], _Layout] = {}

    def cut(self, weights: Sequence[Tensor]) -> dict[str, Tensor]:
        """The parameters of one direction, as views under autograd."""
        parts = [list(w.chunk(gates)) for w, gates in zip(weights, self.gates, strict=True)]
        if self.summed is not None:
            first, second = self.summed
            sums = (weights[first] + weights[second]).chunk(self.gates[first])
        named = {}
        for key, places in zip(self.graph.parameters, self.places, strict=True):
            number, gate = places[0]
            named[key] = parts[number][gate] if len(places) == 1 else sums[gate]
        return named

    def layout(self, directions: int, itemsize: int) -> _Layout:
        """Where all parameters lie, in bytes; itemsize: of a number there."""
        key = directions, itemsize
        if key not in self._layouts:
            self._layouts[key] = _Layout.of(self, directions, itemsize)
        return self._layouts[key]

    def offset(self, place: Portion) -> int:
        """Of a place, in numbers from the beginning of its tensor."""
        count = 1
        for size in self.shapes[place.tensor]:
            count *= size
        return count // self.gates[place.tensor] * place.gate


@of_graph
def whole(graph: Graph) -> Stacks:
    """Every parameter a tensor of its own, as onegate's own layers keep them."""
    shapes = list(graph.parameters.values())
    places = {key: (Portion(number, 0),) for number, key in enumerate(graph.parameters)}
    return Stacks(graph, shapes, [1] * len(shapes), places)


class _Layout(NamedTuple):
    """By the numbers of tensors, all directions' one after another; in bytes.

    places: where each parameter begins, and so its gradient, and then, if `adds`, what is added to
    each, where nothing is the tensor after the last. copies: of gradients that two tensors share,
    from where, to where and how many.
    """

    array: Any
    whole: bool
    adds: int  # where these begin, in bytes; 0: nothing is
    places: list[tuple[int, int]]
    copies: list[tuple[int, int, int, int, int]]

    @classmethod
    def of(cls, stacks: Stacks, directions: int, itemsize: int) -> _Layout:
        each = len(stacks.shapes)
        all_places, added, copies = [], [], []
        for d in range(directions):
            for places in stacks.places:
                first, *second = [
                    (d * each + p.tensor, stacks.offset(p) * itemsize) for p in places
                ]
                all_places.append(first)
                added.append(second[0] if second else (directions * each, 0))
                size = stacks.offset(Portion(places[0].tensor, 1)) * itemsize
                copies += [(*first, *other, size) for other in second]
        adds = 0
        if stacks.summed is not None:
            adds = len(all_places) * ctypes.sizeof(ctypes.c_void_p)
            all_places += added
        array = ctypes.c_void_p * len(all_places)
        return cls(array, stacks.whole, adds, all_places, _joined(sorted(copies)))

    def pointers(self, tensors: Sequence[Tensor]) -> Any:
        bases = [t.data_ptr() for t in tensors]
        if self.whole:
            return self.array(*bases)
        bases.append(0)
        return self.array(*[bases[number] + offset for number, offset in self.places])


def _joined(copies: list[tuple[int, int, int, int, int]]) -> list[tuple[int, int, int, int, int]]:
    """Pieces that follow one another on both sides as one."""
    found: list[tuple[int, int, int, int, int]] = []
    for a, at, b, to, size in copies:
        if found:
            a0, at0, b0, to0, size0 = found[-1]
            if (a0, at0 + size0, b0, to0 + size0) == (a, at, b, to):
                found[-1] = a0, at0, b0, to0, size0 + size
                continue
        found.append((a, at, b, to, size))
    return found


class StackedRun(NamedTuple):
    """What of a call is no tensor that could be learned.

    axes: of x, "tbd", "btd" or "td", and of a cell's "bd" or "d". compute: the dtype in which it
    runs; given: that of the last states; out: that of the outputs.
    """

    stacks: Stacks
    directions: int
    axes: str
    compute: torch.dtype
    given: torch.dtype
    out: torch.dtype
    lengths: Tensor | None = None


# How numbers may be stored for a run in each dtype.
_KNOWN: Final = {
    torch.float32: (torch.float32, torch.bfloat16, torch.float16),
    torch.float64: (torch.float64,),
}


def can(x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor]) -> bool:
    """Whether `run` may be taken: nobody else has to see the call."""
    return (
        x.is_cpu
        and x.dtype in DTYPES
        and forward_ad._current_level < 0
        and alone([x, *states, *weights])
        and ENGINE.missing() is None
    )


def fits(
    stacks: Stacks, x: Tensor, others: Sequence[Tensor], weights: Sequence[Tensor]
) -> tuple[torch.dtype, torch.dtype] | None:
    """In which dtype `run` computes and of which the results are, if it may be taken.

    others: the states and lengths, which like x are checked; what weights are now nobody knows.
    """
    if (
        not weights
        or not can(x, others, weights)
        or not x.numel()
        or False in [w.is_cpu for w in weights]
        or [w.shape for w in weights] != len(weights) // len(stacks.shapes) * stacks.shapes
    ):
        return None
    dtype = x.dtype
    if not torch.is_autocast_enabled("cpu"):
        if False in [w.dtype is dtype for w in weights]:
            return None
        return (torch.float32 if dtype in LOW else dtype), dtype
    low = torch.get_autocast_dtype("cpu")
    known = torch.float32, low, torch.int64
    if False in [t.dtype in known for t in (x, *others, *weights)]:
        return None
    return torch.float32, low


def run(
    how: StackedRun, x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """The outputs, in the order of x, and the last states; of a cell the states alone.

    states: before the first step, each (D, B, size), (D, size) where x is "td", and a cell's
    without D; none for zeros. weights: of every direction, as `Stacks` says. All is checked.
    """
    if torch.is_grad_enabled():
        tensors = x, *states, *weights
        if True in map(_requires, tensors):
            # Such wrappers outlive torch.func's transforms, and torch's own `apply` opens them.
            apply = _Stacked.apply if True in map(_wrapped, tensors) else _apply
            results: tuple[Tensor, ...] = apply(how, *tensors)
            return results
    x, states, weights = _readable(how, (x, *states, *weights))
    return _with_outputs(how, _forward(how, x, states, weights, False))


def generally(
    how: StackedRun, x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor], engine: Any
) -> tuple[Tensor, ...]:
    """The same under autograd by an engine's `run`, for whoever has to see what is done."""
    stacks, axes = how.stacks, how.axes
    x, states, weights = _told_apart(how, _in(how.compute, (x, *states, *weights)))
    if axes in _AXES:
        x = _AXES[axes](x)
    if axes != "tbd" and axes != "btd":
        states = [s.unsqueeze(_ROW) if axes == "td" else s.view(1, -1, s.shape[-1]) for s in states]
    if not states:
        states = [x.new_zeros(how.directions, x.shape[1], size) for size in stacks.sizes]
    each = len(weights) // how.directions
    directions = [
        Direction(tuple([s[d] for s in states]), stacks.cut(weights[d * each : (d + 1) * each]))
        for d in range(how.directions)
    ]
    out, lasts = engine(stacks.graph, x, directions, how.lengths)
    stacked = _in(how.given, [torch.stack(list(s)) for s in zip(*lasts, strict=True)])
    out = _in(how.out, (out,))[0]
    if axes in ("bd", "d"):
        return tuple([s.view(s.shape[1 if axes == "bd" else 2 :]) for s in stacked])
    if axes == "td":
        return out.squeeze(_ROW), *[s.squeeze(_ROW) for s in stacked]
    return out.transpose(0, 1) if axes == "btd" else out, *stacked


_ROW: Final = 1
_AXES: Final[dict[str, Any]] = {
    "btd": lambda x: x.transpose(0, 1),
    "td": lambda x: x.unsqueeze(_ROW),
    "bd": lambda x: x.unsqueeze(0),
    "d": lambda x: x.view(1, 1, -1),
}


class _Steps(NamedTuple):
    """How many there are, of how many rows, and the strides of x."""

    steps: int
    rows: int
    step: int
    row: int


def _steps(x: Tensor, axes: str) -> _Steps:
    shape, stride = x.shape, x.stride()
    if axes == "tbd":
        return _Steps(shape[0], shape[1], stride[0], stride[1])
    if axes == "btd":
        return _Steps(shape[1], shape[0], stride[1], stride[0])
    if axes == "td":
        return _Steps(shape[0], 1, stride[0], shape[1])
    return _Steps(1, shape[0], 0, stride[0]) if axes == "bd" else _Steps(1, 1, 0, shape[0])


def _arranged(t: Tensor, axes: str) -> Tensor:
    """A new tensor (D, B, n) as the caller has it. No view: that could not be changed in place."""
    if axes in ("td", "d"):
        t.squeeze_(_ROW)
    return t.squeeze_(0) if axes in ("bd", "d") else t


def _inner(t: Tensor) -> Tensor:
    return t if t.stride(-1) == 1 or t.shape[-1] == 1 else t.contiguous()


class _Made(NamedTuple):
    """What the forward pass makes."""

    results: tuple[Tensor, ...]
    out: Tensor  # (T, B, D * n)
    kept: Tensor | None


def _start(how: StackedRun, x: Tensor, states: Sequence[Tensor], rows: int) -> Tensor:
    if not states:
        return _zeros(how.directions * rows * how.stacks.width, x.dtype)
    return states[0].contiguous() if len(states) == 1 else torch.cat(tuple(states), -1)


# So few that torch fills them with one thread: in a forked process it has no others.
_MOST_ZEROS: Final = 1 << 14
_all_zeros: dict[torch.dtype, Tensor] = {}


def _zeros(count: int, dtype: torch.dtype) -> Tensor:
    """So many zeros or more, which the native code alone reads: few of them always the same."""
    found = _all_zeros.get(dtype)
    if found is None or count > len(found):
        found = torch.zeros(max(count, _MOST_ZEROS), dtype=dtype, device="cpu")
        if count <= _MOST_ZEROS:
            _all_zeros[dtype] = found
    return found


def _call(
    how: StackedRun, steps: _Steps, x: Tensor, start: Tensor, weights: Sequence[Tensor],
    out: Tensor | None, last: Tensor | None, kept: Tensor | None,
) -> tuple[ForwardCall, Any]:  # fmt: skip
    """With the pointers, which must live as long as the call."""
    layout = how.stacks.layout(how.directions, weights[0].element_size())
    pointers = layout.pointers(weights)
    place = ctypes.addressof(pointers)
    call = ForwardCall(
        programs.entry_of(how.stacks.graph).native.handle,
        how.compute.itemsize * 8,
        how.directions,
        torch.get_num_threads(),
        0,
        steps.steps,
        steps.rows,
        None if how.lengths is None else how.lengths.data_ptr(),
        x.data_ptr(),
        steps.step,
        steps.row,
        start.data_ptr(),
        *((None, 0, 0) if out is None else (out.data_ptr(), *out.stride()[:2])),
        None if last is None else last.data_ptr(),
        None if kept is None else kept.data_ptr(),
        place,
    )
    if layout.adds:
        call.added = place + layout.adds
    kind = how.compute
    if not (kind is x.dtype is start.dtype is weights[0].dtype is how.out is how.given):
        call.x_stored = call.start_stored = stored(x.dtype)
        if start.dtype is not x.dtype:
            call.start_stored = stored(start.dtype)
        call.parameters_stored = stored(weights[0].dtype)
        call.out_stored = call.last_stored = stored(how.given)
        if how.out is not how.given:
            call.out_stored = stored(how.out)
    return call, pointers


def _forward(
    how: StackedRun, x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor], keep: bool
) -> _Made:
    stacks, directions, axes = how.stacks, how.directions, how.axes
    entry = programs.entry_of(stacks.graph)
    x = _inner(x)
    steps = _steps(x, axes)
    count, rows = steps.steps, steps.rows
    start, weights = _start(how, x, states, rows), [w.contiguous() for w in weights]
    size = count, rows, directions * entry.size
    # torch's own memory where there is no gradient: only such a tensor may be resized.
    kept = None
    if keep:
        out = pool.empty(size, x, how.out)
        per_row = entry.per_row if how.out is how.compute else entry.per_row + entry.size
        kept = pool.empty((directions * count * rows * per_row,), x, how.compute)
    else:
        out = x.new_empty(*size) if x.dtype is how.out else pool.fresh(size, x, how.out)
    size = directions, rows, entry.width
    last = x.new_empty(*size) if x.dtype is how.given else pool.fresh(size, x, how.given)
    call, _pointers = _call(how, steps, x, start, weights, out, last, kept)
    entry.native.forward(call)
    lasts = [last]
    if len(stacks.sizes) > 1:
        own = torch.contiguous_format
        lasts = [s.clone(memory_format=own) for s in last.split(stacks.sizes, -1)]
    results = tuple([_arranged(s, axes) for s in lasts])
    return _Made(results, out, kept)


def _with_outputs(how: StackedRun, made: _Made) -> tuple[Tensor, ...]:
    """The results for the caller, who may do with them what he likes."""
    out, axes, results = made.out, how.axes, made.results
    if axes in ("bd", "d"):
        return results
    if axes == "btd":
        out.transpose_(0, 1)
    elif axes == "td":
        out.squeeze_(_ROW)
    return out, *results


def _readable(
    how: StackedRun, tensors: Sequence[Tensor]
) -> tuple[Tensor, Sequence[Tensor], Sequence[Tensor]]:
    """x, the states and the weights, each of them in one dtype that the engine reads."""
    x, states, weights = _told_apart(how, tensors)
    kind, own = how.compute, x.dtype
    joined = len(states) > 1 and own is not kind and torch.is_autocast_enabled("cpu")
    if not joined and own in _KNOWN[kind] and False not in [t.dtype is own for t in tensors]:
        return x, states, weights
    known = _KNOWN[kind]
    if x.dtype not in known:
        x = x.to(how.compute)
    first = weights[0].dtype
    if first not in known or False in [w.dtype is first for w in weights]:
        weights = _in(how.compute, weights)
    if False in [s.dtype is how.compute for s in states]:
        first = states[0].dtype
        # They are joined, and under autocast tensors of its own dtype and of float32 alone can be.
        alike = len(states) == 1 or not torch.is_autocast_enabled("cpu")
        if not alike or first not in known or False in [s.dtype is first for s in states]:
            states = _in(how.compute, states)
    return x, states, weights


def _in(dtype: torch.dtype, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    return [t if t.dtype is dtype else t.to(dtype) for t in tensors]


class _Stacked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, how: StackedRun, *tensors: Tensor) -> tuple[Tensor, ...]:
        made = _forward(how, *_readable(how, tensors), True)
        ctx.how, ctx.out, saved = how, None, None
        ctx.set_materialize_grads(False)
        if how.out is how.compute:  # else the backward pass reads what was kept alone
            out = made.out.detach()
            ctx.version = out._version
            if hooks(True) is None:
                # Saved without its version, which the backward pass compares: see `_unchanged`.
                ctx.out = out
            else:  # whoever packs away what is saved wants no further holder of its memory
                saved = out.clone()
        ctx.save_for_backward(saved, made.kept, how.lengths, *tensors)
        ctx.kinds = [(t.shape, t.dtype) for t in tensors]
        return _with_outputs(how, made)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        out, kept, _, *tensors = ctx.saved_tensors  # may be asked for only once
        given = [g for g in grads if g is not None]
        if not given:
            return (None,) * (1 + len(tensors))
        how: StackedRun = ctx.how
        if [(t.shape, t.dtype) for t in tensors] != ctx.kinds:
            raise RuntimeError(
                "the data of a tensor that is needed for the gradient was exchanged after the "
                "forward pass for one of another shape or dtype"
            )
        compiled = torch.compiler.is_compiling()  # where the questions below have no true answer
        # What was saved was seen by nobody in the forward pass, unless it was packed away.
        seen = compiled or not unseen(given if ctx.out is not None else [*tensors, *given])
        again = torch.is_grad_enabled() or (not compiled and transformed(given))
        # The operator knows no half precision.
        known = how.stacks.whole and how.compute is how.given is how.out
        if again or (seen and not known):
            return None, *_differentiable(how, tensors, grads)
        x, states, weights = _readable(how, tensors)
        if out is None and ctx.out is not None:
            out = ctx.out
            # Computed again where the caller has changed it; a copy for the few who do would cost
            # everybody its time and memory.
            if out._version != ctx.version:
                out = _forward(how, x, states, weights, False).out
        backward = _by_operator if seen else _backward
        found = backward(how, x, states, weights, out, kept, grads, ctx.needs_input_grad[1])
        return None, *found  # autograd rounds what is of a wider dtype than its tensor


_apply: Final[Any] = super(torch.autograd.Function, _Stacked).apply
_requires: Final = torch._C.TensorBase.requires_grad.__get__  # type: ignore[attr-defined]
_wrapped: Final = torch._C._functorch.is_functorch_wrapped_tensor


def _told_apart(
    how: StackedRun, tensors: Sequence[Tensor]
) -> tuple[Tensor, Sequence[Tensor], Sequence[Tensor]]:
    first = len(tensors) - how.directions * len(how.stacks.shapes)
    return tensors[0], tensors[1:first], tensors[first:]


def _differentiable(
    how: StackedRun, tensors: Sequence[Tensor], gradients: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """The backward pass by the reference engine, for derivatives of higher order."""
    again = torch.is_grad_enabled()
    # The forward pass ran in full precision, whatever is on around the backward pass.
    with torch.enable_grad(), torch.autocast("cpu", enabled=False):
        # Views cut the gradient at this layer's own inputs: x may itself depend on the parameters.
        inputs = [t.view_as(t) for t in tensors]
        results = generally(how, *_told_apart(how, inputs), reference.run)
        pairs = zip(results, gradients, strict=True)
        outputs, given = zip(*[(o, g) for o, g in pairs if g is not None], strict=True)
        needed = [t for t in inputs if t.requires_grad]
        grads = iter(
            torch.autograd.grad(outputs, needed, given, create_graph=again, materialize_grads=True)
        )
    return [next(grads) if t.requires_grad else None for t in inputs]


def _backward(
    how: StackedRun,
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    out: Tensor | None,
    kept: Tensor,
    gradients: Sequence[Tensor | None],
    grad_x: bool,
) -> list[Tensor | None]:
    """Gradients of x, the states and the weights."""
    stacks, directions, axes = how.stacks, how.directions, how.axes
    given = x
    x = _inner(x)
    steps = _steps(x, axes)
    rows, cell = steps.rows, axes in ("bd", "d")
    start, weights = _start(how, x, states, rows), [w.contiguous() for w in weights]
    grad_out, grad_lasts = (None, gradients) if cell else (gradients[0], gradients[1:])
    out_step = out_row = 0
    if grad_out is not None:
        grad_out = _inner(grad_out)
        _, _, out_step, out_row = _steps(grad_out, axes)
    grad_last = _last_gradient(how, grad_lasts, rows)
    kind = x.dtype if directions == 1 else how.compute  # rounded once, behind the sum
    shape = directions, steps.steps, rows, x.shape[-1]
    for_x = pool.fresh(shape, x, kind) if grad_x else None
    for_start = start.new_empty(directions, rows, stacks.width)
    small = pool.SMALLEST // weights[0].element_size()
    for_weights = [
        torch.empty_like(w) if w.numel() < small else pool.empty(w.shape, w)
        for w in weights  # contiguous
    ]
    layout = stacks.layout(directions, weights[0].element_size())
    places = layout.pointers(for_weights)
    forward, _pointers = _call(how, steps, x, start, weights, out, None, kept)
    call = BackwardCall(
        forward,
        None if grad_out is None else grad_out.data_ptr(),
        out_step,
        out_row,
        None if grad_last is None else grad_last.data_ptr(),
        None if for_x is None else for_x.data_ptr(),
        for_start.data_ptr(),
        ctypes.addressof(places),
    )
    if kind is not how.compute:
        call.grad_x_stored = stored(kind)
    programs.entry_of(stacks.graph).native.backward(call)
    for number, at, other, to, size in layout.copies:
        ctypes.memmove(
            for_weights[other].data_ptr() + to, for_weights[number].data_ptr() + at, size
        )
    if for_x is not None:
        for_x = for_x.squeeze_(0) if directions == 1 else for_x.sum(0)
        for_x = for_x.transpose_(0, 1) if axes == "btd" else for_x.view(given.shape)
    for_states: Sequence[Tensor] = [for_start] if len(states) == 1 else []
    if len(states) > 1:
        for_states = for_start.split(stacks.sizes, -1)
    shaped = [g.view(s.shape) for g, s in zip(for_states, states, strict=True)]
    return [for_x, *shaped, *for_weights]


def _by_operator(
    how: StackedRun,
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    out: Tensor,
    kept: Tensor,
    gradients: Sequence[Tensor | None],
    grad_x: bool,
) -> list[Tensor | None]:
    """As `_backward`, through torch's dispatcher, where the stacks are whole."""
    stacks, axes = how.stacks, how.axes
    order = _AXES.get(axes, lambda t: t)
    in_time = order(x)
    shape = how.directions, in_time.shape[1], stacks.width
    start = torch.cat(tuple(states), -1).view(shape) if states else x.new_zeros(shape)
    grad_out, grad_lasts = gradients[0], gradients[1:]
    if axes in ("bd", "d"):
        grad_out, grad_lasts = None, gradients
    grad_last = _last_gradient(how, grad_lasts, shape[1])
    for_x, for_start, *for_weights = torch.ops.onegate.backward(
        in_time,
        start,
        list(weights),
        how.lengths,
        programs.key_of(stacks.graph),
        out,
        kept,
        None if grad_out is None else order(grad_out),
        None if grad_last is None else grad_last.view(shape),
        grad_x,
    )
    if grad_x:
        for_x = for_x.transpose(0, 1) if axes == "btd" else for_x.view(x.shape)
    parts = for_start.split(stacks.sizes, -1)
    for_states = [g.reshape(s.shape) for g, s in zip(parts, states, strict=False)]
    return [for_x if grad_x else None, *for_states, *for_weights]


def _last_gradient(how: StackedRun, given: Sequence[Tensor | None], rows: int) -> Tensor | None:
    """Of the last states, (D, B, all sizes)."""
    known = [g for g in given if g is not None]
    if not known:
        return None
    if len(given) == 1:
        return known[0].contiguous()
    shapes = [(how.directions, rows, size) for size in how.stacks.sizes]
    return torch.cat(
        [
            known[0].new_zeros(shape) if g is None else g.reshape(shape)
            for g, shape in zip(given, shapes, strict=True)
        ],
        -1,
    )
