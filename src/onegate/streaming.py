"""One step at a time, without torch: NumPy in and out, on the native engine.

>>> stream = onegate.stream(onegate.MGU(28, 64))
>>> y = stream.step(x)  # x: (28,) or (1, 28); y: (64,), the output of the last layer
>>> stream.reset()
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from onegate.engines.cpu.native import ForwardCall, Input, NativeError, NativeProgram, library
from onegate.export.deployable import Deployable, Layer, deployable
from onegate.lowering.program import program
from onegate.nn.arguments import positive

Array = npt.NDArray[np.float32]
_MESSAGE_BYTES = 512


class _LayerStream:
    """A layer inside the library: its buffers, which the library reads and writes at each step."""

    def __init__(self, layer: Layer, x: Array, further: Sequence[Array]) -> None:
        rows, sizes = len(x), [state.size or 0 for state in layer.graph.states]
        self.start = np.concatenate([state.numpy() for state in layer.start])
        self.states = np.tile(self.start, (rows, 1))
        self.out = np.zeros((rows, layer.output_size), np.float32)
        ends = np.cumsum(sizes)
        self.views = [self.states[:, e - n : e] for e, n in zip(ends, sizes, strict=True)]
        self._program, self._x = NativeProgram.of(program(layer.graph)), x
        self._further = further
        self.handle = self._open(layer)

    def _open(self, layer: Layer) -> int:
        functions = library().functions
        assert functions is not None  # else there were no program
        rows, x, out, states = len(self._x), self._x, self.out, self.states.ctypes.data
        tensors = [layer.parameters[key].contiguous() for key in layer.graph.parameters]
        places = (ctypes.c_void_p * len(tensors))(*[t.data_ptr() for t in tensors])
        self._beside = (Input * len(self._further))(
            *(Input(each.ctypes.data, each.size, each.shape[1]) for each in self._further)
        )
        call = ForwardCall(
            self._program.handle, 32, 1, 1, 0, 1, rows, None,
            x.ctypes.data, x.size, x.shape[1], states,
            out.ctypes.data, out.size, out.shape[1], states, None, ctypes.addressof(places),
            extras=ctypes.addressof(self._beside) if self._further else None,
        )  # fmt: skip
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        handle = functions.og_stream_new(ctypes.addressof(call), message, _MESSAGE_BYTES)
        if not handle:
            raise NativeError(message.value.decode())
        self._free = functions.og_stream_free
        return int(handle)

    def __del__(self) -> None:
        if hasattr(self, "_free"):
            self._free(self.handle)


class Stream:
    """A model that runs one step at a time and keeps its states between the steps.

    The arrays that `step` returns and `state` holds are the stream's own: the next step writes
    into them. Copy what is to last. A stream belongs to one thread at a time.
    """

    def __init__(self, model: Deployable, batch: int) -> None:
        self._embedding = None if model.embedding is None else model.embedding.numpy()
        own, *beside = (np.zeros((batch, n), np.float32) for n in model.widths.values())
        self._x, self._further = own, dict(zip([*model.widths][1:], beside, strict=True))
        self._layers: list[_LayerStream] = []
        x = self._x
        for layer in model.layers:
            self._layers.append(_LayerStream(layer, x, beside))
            x = self._layers[-1].out
        self._dense = [
            (d.weight.numpy().T.copy(), None if d.bias is None else d.bias.numpy())
            for d in model.dense
        ]
        functions = library().functions
        assert functions is not None
        self._count = len(self._layers)
        self._handles = (ctypes.c_void_p * self._count)(*[s.handle for s in self._layers])
        self._run = functions.og_stream_step
        # The only row as a vector, so that a step of one need not be reshaped.
        self._in = self._x[0] if batch == 1 else self._x
        self._shape = self._in.shape
        self._out = x[0] if batch == 1 else x

    def step(self, x: Any, extra: Any = None) -> Array:
        """The output (B, n) of the step, (n,) where the batch is 1.

        x: (B, inputs), or (inputs,) where the batch is 1; with an embedding, words: (B,).
        extra: what the unit reads beside x, by name, or one array where there is one.
        """
        if extra is not None or self._further:
            self._read(extra)
        if self._embedding is not None:
            self._x[...] = self._embedding[self._words(x)]
        elif type(x) is np.ndarray and x.shape == self._shape:
            self._in[:] = x
        else:
            self._x[...] = _checked("x", x, self._x)
        self._run(self._handles, self._count)
        y = self._out
        for weight, bias in self._dense:
            y = y @ weight if bias is None else y @ weight + bias
        return y

    def _read(self, extra: Any) -> None:
        """Copies what there is beside x."""
        names = [*self._further]
        if not isinstance(extra, Mapping) and extra is not None and len(names) == 1:
            extra = {names[0]: extra}
        if not isinstance(extra, Mapping) or {*extra} != {*names}:
            given = [*extra] if isinstance(extra, Mapping) else type(extra).__name__
            wanted = f"arrays by name, {', '.join(names)}" if names else "nothing beside x"
            raise ValueError(f"extra is {given}, expected {wanted}")
        for name, into in self._further.items():
            into[...] = _checked(name, extra[name], into)

    def _words(self, x: Any) -> npt.NDArray[np.integer[Any]]:
        words, rows = np.atleast_1d(np.asarray(x)), len(self._x)
        count = 0 if self._embedding is None else len(self._embedding)
        if words.shape != (rows,) or not np.issubdtype(words.dtype, np.integer):
            raise ValueError(f"x is {words.shape}, {words.dtype}; expected {rows} whole numbers")
        if words.min() < 0 or words.max() >= count:
            raise ValueError(f"x holds a word beyond the {count} of the embedding")
        return words

    def reset(self, rows: Any = None) -> None:
        """The states before the first step again; rows: of these alone (indices or a mask)."""
        for layer in self._layers:
            layer.states[... if rows is None else rows] = layer.start

    @property
    def state(self) -> list[tuple[Array, ...]]:
        """The states of each layer, each (B, size); they are the stream's own, to be written to."""
        return [tuple(layer.views) for layer in self._layers]

    @state.setter
    def state(self, states: Sequence[Sequence[Any]]) -> None:
        given = [[np.asarray(value) for value in layer] for layer in states]
        shapes = [[value.shape for value in layer] for layer in given]
        expected = [[view.shape for view in layer.views] for layer in self._layers]
        if shapes != expected:
            raise ValueError(f"state is {shapes}, expected {expected}: by layer, its states")
        for layer, values in zip(self._layers, given, strict=True):
            for view, value in zip(layer.views, values, strict=True):
                view[...] = value


def _checked(name: str, given: Any, into: Array) -> npt.NDArray[Any]:
    found = np.asarray(given)
    expected = into.shape[1:] if len(into) == 1 else into.shape
    if found.shape not in (expected, into.shape):
        raise ValueError(
            f"{name} is {found.shape}, expected {expected}, the batch and inputs of the stream"
        )
    return found


def stream(model: nn.Module, batch: int = 1) -> Stream:
    """A `Stream` of `model`, with a copy of its weights in float32.

    model: a layer (`Recurrent`), a `Cell`, or a module of an embedding, layers and a dense head, as
        `onegate.export` takes it. Bidirectional layers and hooks are refused.

    >>> s = onegate.stream(layer)
    >>> for x in sequence: y = s.step(x)
    """
    problem = library().problem
    if problem is not None:
        raise NativeError(f"a stream needs the native engine: {problem}")
    return Stream(deployable(model), positive("batch", batch))
