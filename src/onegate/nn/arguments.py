"""Checks of what users pass to layers and cells: errors say what, what came, what to do.

Where torch.nn's layers refuse the same, errors begin in their words.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from onegate import engines, values

_R = TypeVar("_R")


class InputError(ValueError, RuntimeError):
    """A layer was called with what it cannot take; torch's layers raise RuntimeError."""


def positive(name: str, value: Any) -> int:
    """`value` as an int, if it is a whole number above 0."""
    expected = f"it is {value!r}, expected a whole number of 1 or more"
    try:
        size = values.whole(name, value)
    except TypeError:
        kind = type(value).__name__
        raise TypeError(f"{name} should be of type int, got: {kind}; {expected}") from None
    if size > 0:
        return size
    raise ValueError(f"{name} must be greater than zero: {expected}")


def probability(name: str, value: Any) -> float:
    """`value` as a float, if it is within 0 and 1."""
    try:
        if 0 <= (share := values.number(name, value)) <= 1:
            return float(share)
    except TypeError:
        pass
    raise ValueError(
        f"{name} should be a number in range [0, 1]: it is {value!r}, expected a probability"
    )


def proj_size(value: Any) -> int:
    """`value` as an int, if it is a whole number of 0 or more."""
    if (size := values.whole("proj_size", value)) >= 0:
        return size
    raise ValueError(
        f"proj_size should be a positive integer or zero to disable projections: it is {value!r}"
    )


_TAKE_ONE: Final = (
    "; onegate.RNN and onegate.RNNCell alone take a nonlinearity, where torch.nn's do"
)


def has_bias(value: Any) -> bool:
    """`value`, if it is True or False; it stands where torch.nn.RNN has its nonlinearity."""
    try:
        return values.flag("bias", value)
    except TypeError as error:
        raise TypeError(f"{error}{_TAKE_ONE if _is_nonlinearity(value) else ''}") from None


def cell_has_bias(value: Any) -> bool:
    """The same for a cell, where a nonlinearity counts as True, as in torch, with a warning."""
    if not _is_nonlinearity(value):
        return values.flag("bias", value)
    warnings.warn(  # of the caller of a named cell
        f"bias is {value!r}, which counts as True, as in torch.nn's cells, and changes nothing; "
        "onegate.RNNCell alone takes a nonlinearity, as torch.nn's does: after the bias",
        stacklevel=4,
    )
    return True


def cell_device(value: Any) -> Any:
    """`value`; it stands where torch.nn.RNNCell has its nonlinearity."""
    if _is_nonlinearity(value):
        raise TypeError(f"device is {value!r}, expected a device of torch{_TAKE_ONE}")
    return value


def _is_nonlinearity(value: Any) -> bool:
    return isinstance(value, str) and value in ("tanh", "relu")


def dtype(value: Any) -> torch.dtype | None:
    """`value`, if parameters can be of this dtype; None is torch's default."""
    known = isinstance(value, torch.dtype) and value.itemsize > 1
    if value is None or (known and (value.is_floating_point or value.is_complex)):
        return cast(torch.dtype | None, value)
    raise TypeError(
        f"dtype is {value!r}, expected a floating or complex dtype of torch, such as torch.float32"
    )


def engine(value: str) -> str:
    """`value`, if it names an engine."""
    if value not in (known := engines.names()):
        raise ValueError(f"engine is {value!r}, expected one of {', '.join(map(repr, known))}")
    return value


def check_tensor(name: str, value: Any) -> None:
    """Refuses anything but a tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} is a {type(value).__name__}, expected a torch.Tensor")


def is_wrapper(value: object) -> bool:
    """Whether it is no tensor and takes part in calls as one, by `__torch_function__`."""
    return not isinstance(value, Tensor) and has_torch_function((value,))


def as_leaf(module: Any, x: Any, *given: Any, **named: Any) -> Any:
    """What torch.fx's tracer records for a call of one of torch's own modules; None elsewhere."""
    tracer: Any = x.tracer if isinstance(x, torch.fx.Proxy) else None
    if not isinstance(tracer, torch.fx.Tracer):
        return None
    if tracer.root is module:
        kind = type(module).__name__
        raise TypeError(f"{kind} is a leaf of torch.fx's tracing; trace a module that holds it")
    path = tracer.path_of_module(module)
    return tracer.create_proxy("call_module", path, (x, *given), named)


def by_wrapper(forward: Callable[..., _R], module: object, x: Any, *given: Any, **named: Any) -> _R:
    """Calls `forward` as the wrapper `x` says, as torch's functions do."""
    if (leaf := as_leaf(module, x, *given, **named)) is not None:
        return cast(_R, leaf)
    return handle_torch_function(forward, (x,), module, x, *given, **named)


def check_input(x: Any, width: int, axes: str) -> None:
    """Refuses an input that is not (axes, width), with or without its axis B, or has no step.

    axes: one letter each, such as "TB".
    """
    check_tensor("input", x)
    shape = x.shape
    if len(shape) == len(axes):
        axes = axes.replace("B", "")
    if len(shape) != len(axes) + 1:
        batched = ", ".join((*axes, str(width)))
        single = ", ".join((*axes.replace("B", ""), str(width)))
        count = len(axes) + 1
        told = f"Expected input to be {count - 1}D or {count}D, got {len(shape)}D instead"
        also = f", or without a batch ({single})"
        if batched == single:  # of a PackedSequence
            told, also = f"input must have {count} dimensions, got {len(shape)}", ""
        raise InputError(f"{told}: input is {_shape(x)}, expected ({batched}){also}")
    if shape[-1] != width:
        theirs = f"input has inconsistent input_size: got {shape[-1]} expected {width}"
        if "T" in axes:
            theirs = (
                f"input.size(-1) must be equal to input_size. Expected {width}, got {shape[-1]}"
            )
        raise InputError(
            f"{theirs}, the last axis of {_shape(x)}; pass {width} features, or set "
            f"input_size={shape[-1]}"
        )
    if "T" in axes and shape[axes.index("T")] == 0:
        raise InputError(
            f"Expected sequence length to be larger than 0 in RNN: input is {_shape(x)}, "
            "no step (T = 0), expected 1 or more; skip the call"
        )


def check_alike(name: str, value: Tensor, parameter: Tensor) -> None:
    """Refuses a tensor of another device or dtype than the parameters', unless autocast is on."""
    if value.device != parameter.device:
        told = f"{name} is on {value.device}, the parameters are on {parameter.device}"
        if name == "input":
            told = (
                "Input and parameter tensors are not at the same device, found input tensor at "
                f"{value.device} and parameter tensor at {parameter.device}"
            )
        raise InputError(
            f"{told}; move it with .to({str(parameter.device)!r}), or the module with "
            f".to({str(value.device)!r})"
        )
    if value.dtype != parameter.dtype and not autocast(value):
        told = f"{name} is {value.dtype}, the parameters are {parameter.dtype}; convert it with "
        told, module = f"{told}.to({parameter.dtype})", "the module with "
        if name == "input":
            told = (
                f"RNN input dtype ({value.dtype}) does not match weight dtype ({parameter.dtype})"
            )
            told += f". Convert input: input.to({parameter.dtype})"
            module = "convert model: model"
        if value.is_floating_point() or value.is_complex():  # modules cannot be of whole numbers
            told += f", or {module}.to({value.dtype})"
        raise InputError(told)


def autocast(x: Tensor) -> bool:
    """Whether autocast is on for the device of `x`."""
    kind = x.device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def states(
    hx: Any, sizes: Mapping[str, int], axes: Sequence[str], lead: tuple[int, ...], like: Tensor
) -> tuple[Tensor, ...]:
    """`hx` as a tuple; each state must be (*lead, its size), and as `like` in dtype and device.

    sizes: by the names of the states. axes: the names of the axes whose sizes are `lead`.
    """
    given = hx if isinstance(hx, (tuple, list)) else (hx,)
    for state in given:
        check_tensor("hx", state)
    if len(given) != len(sizes) or isinstance(hx, Tensor) is not (len(sizes) == 1):
        names = ", ".join(sizes)
        expected = f"one tensor, {names}" if len(sizes) == 1 else f"a tuple ({names})"
        got = "one tensor" if isinstance(hx, Tensor) else f"a {type(hx).__name__} of {len(given)}"
        raise InputError(f"hx is {got}, expected {expected}")
    for (name, size), state in zip(sizes.items(), given, strict=True):
        shape = (*lead, size)
        if state.shape != shape:
            named = zip((*axes, f"size of {name}"), shape, strict=True)
            expected = ", ".join(f"{axis} {n}" for axis, n in named)
            place = list(sizes).index(name)
            theirs = (_of_layers if ROWS in axes else _of_cells)(state, shape, place, len(sizes))
            raise InputError(f"{theirs}hx: {name} is {_shape(state)}, expected ({expected})")
        if state.dtype != like.dtype or state.device != like.device:
            check_alike(f"hx: {name}", state, like)
    return tuple(given)


ROWS: Final = "layers and directions"  # the first axis of a layer's states


def _of_layers(state: Tensor, shape: tuple[int, ...], place: int, states: int) -> str:
    """What torch.nn's layers say of a state of another shape."""
    which = f"[{place}]" if states > 1 else ""
    return f"Expected hidden{which} size {shape}, got {list(state.shape)}; "


def _of_cells(state: Tensor, shape: tuple[int, ...], place: int, states: int) -> str:
    """What torch.nn's cells say of a state of another shape."""
    if state.dim() not in (1, 2):
        which = f"hx[{place}]" if states > 1 else "hidden"
        return f"Expected {which} to be 1D or 2D, got {state.dim()}D instead; "
    if len(shape) == 2 and state.shape[0] != shape[0]:
        rows = state.shape[0]
        return f"Input batch size {shape[0]} doesn't match hidden{place} batch size {rows}; "
    if state.shape[-1] != shape[-1]:
        sizes = f"got {state.shape[-1]}, expected {shape[-1]}"
        return f"hidden{place} has inconsistent hidden_size: {sizes}; "
    return ""


def lengths(given: Any, x: Tensor) -> Tensor:
    """`given` as a tensor (B,) of int64 on the device of `x` (T, B, d), each within 1 and T."""
    steps, batch = x.shape[:2]
    value: Tensor = given if isinstance(given, Tensor) else torch.as_tensor(given)
    if value.is_floating_point() or value.is_complex() or value.dtype == torch.bool:
        raise InputError(f"lengths are {value.dtype}, expected whole numbers")
    if value.shape != (batch,):
        raise InputError(
            f"lengths are {_shape(value)}, expected one for each row of the batch: ({batch},)"
        )
    # While compiling the values are not known.
    if batch and not torch.compiler.is_compiling():
        least, most = int(value.min()), int(value.max())
        if least < 1 or most > steps:
            raise InputError(
                f"lengths hold {least if least < 1 else most}, expected 1 to {steps}, the steps of "
                "the input; " + ("leave empty rows out" if least < 1 else "pad the input further")
            )
    return value.to(x.device, torch.int64)


def extras(
    given: Any, sizes: Mapping[str, int], x: Tensor, axes: str, like: Tensor
) -> tuple[Tensor, ...]:
    """`given` by name, or the only one, each as (T, B, its size) for `x` (T, B, d).

    sizes: of the inputs after x. axes: of the input as it came. A last axis of 1 stands for all
    elements.
    """
    names = ", ".join(sizes)
    if isinstance(given, Tensor) and len(sizes) == 1:
        given = dict.fromkeys(sizes, given)
    if not isinstance(given, Mapping) or set(given) != set(sizes):
        got = tuple(given) if isinstance(given, Mapping) else given
        if isinstance(given, Tensor):
            got = "a tensor"
        expected = f"a mapping of {names} to tensors" if sizes else "none: the unit reads x alone"
        raise ValueError(f"extra is {got!r}, expected {expected}")
    found = []
    for name, size in sizes.items():
        value = given[name]
        check_tensor(f"extra: {name}", value)
        lead = {"T": x.shape[0], "B": x.shape[1]}
        shape = tuple(lead[axis] for axis in axes)
        if value.shape[:-1] != shape or value.shape[-1] not in (1, size):
            raise ValueError(f"extra: {name} is {_shape(value)}, expected {(*shape, size)}")
        check_alike(f"extra: {name}", value, like)
        value = _in_time(value, axes)
        found.append(value.expand(*x.shape[:2], size))
    return tuple(found)


def reset(given: Any, x: Tensor, axes: str) -> Tensor:
    """`given` as a tensor (T, B) of bool for `x` (T, B, d). axes: of the input as it came."""
    check_tensor("reset", given)
    if given.dtype != torch.bool:
        raise ValueError(f"reset is {given.dtype}, expected torch.bool; convert it with .bool()")
    lead = {"T": x.shape[0], "B": x.shape[1]}
    shape = tuple(lead[axis] for axis in axes)
    if given.shape != shape:
        raise ValueError(
            f"reset is {_shape(given)}, expected one for each step and row of the input: {shape}"
        )
    return _in_time(given, axes).to(x.device)


def _in_time(value: Tensor, axes: str) -> Tensor:
    """A tensor (*axes, ...) as (T, B, ...)."""
    if axes == "T":
        return value.unsqueeze(1)
    return value.transpose(0, 1) if axes == "BT" else value


def _shape(x: Tensor) -> str:
    return str(tuple(x.shape))
