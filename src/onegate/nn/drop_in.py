"""torch.nn's own recurrent layers and cells, running on the fused engine.

Every class here is a subclass of torch's: the same parameters under the same names, the same
state dict, the same initial values. `accelerate` turns the layers of a model into them, in place.
What the engine cannot do, or does not do faster, is left to torch's kernel, and the reason is kept
for `engine_report`.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, Final, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.nn.utils import parametrize
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from onegate.engines import NOT_RUN, reference
from onegate.engines.base import Direction
from onegate.engines.cpu import stacked
from onegate.engines.cpu.operator import ENGINE as FUSED
from onegate.engines.cpu.operator import is_transformed
from onegate.engines.cpu.stacked import Portion, StackedRun, Stacks
from onegate.language import Graph
from onegate.nn.arguments import as_leaf
from onegate.nn.cells import Cell
from onegate.nn.drop_in_rule import FEW, RULES, torch_is_faster
from onegate.nn.forms import FORMS, PROJECTION, UNITS, projected
from onegate.nn.layers import Recurrent
from onegate.tracing import trace
from onegate.units import get

Model = TypeVar("Model", bound=nn.Module)

_PLAIN: Final = (Tensor, nn.Parameter)
_PLAIN_TYPES: Final = frozenset(_PLAIN)
_LAYERS_TAKE: Final = (*_PLAIN, PackedSequence)
_HALF: Final = (torch.bfloat16, torch.float16)
_TAKEN: Final = "_engine_taken"  # in a module's __dict__: plain data, so that it can be pickled


class _Left(Exception):  # noqa: N818 - a reason, not a fault
    """The call is left to torch's kernel; the message is the reason."""


class _Shared(nn.Module):
    """What layers and cells have in common."""

    _kind: str  # of the rule
    _torchs: Any  # torch's own forward

    def engine_report(self) -> EngineReport:
        """The kernel that the last call took, and why."""
        return engine_report(self)

    def __prepare_scriptable__(self) -> nn.Module:
        """TorchScript sees torch's own layer."""
        return restore(copy.copy(self))

    def _leave(self, reason: str, input: Any, hx: Any) -> Any:
        self.__dict__[_TAKEN] = ("torch", reason)
        return self._torchs(input, hx)

    def _refuse(self, reason: str, input: Any, hx: Any) -> Any:
        """As `_leave`, of what the engine cannot take; to torch.fx's tracer a leaf, as torch's."""
        leaf = as_leaf(self, input, *(() if hx is None else (hx,)))
        return self._leave(reason, input, hx) if leaf is None else leaf

    def _ran(self, dtype: torch.dtype) -> None:
        self.__dict__[_TAKEN] = _TRANSFORMED if is_transformed() else _fused_in(dtype)

    def _weights(self, names: Sequence[str]) -> list[Any]:
        """What the names stand for now: parameters, or what parametrizations compute."""
        found = list(map(self._parameters.get, names))
        if _PLAIN_TYPES.issuperset(map(type, found)):
            return found
        return [getattr(self, name) for name in names]


_SMALL: Final = "torch", FEW
_TRANSFORMED: Final = reference.ENGINE.name, "a torch.func transform is active"


@functools.cache
def _fused_in(dtype: torch.dtype) -> tuple[str, str]:
    return FUSED.name, f"{str(dtype).removeprefix('torch.')} on the CPU"


class _Layer(_Shared, nn.RNNBase):
    def forward(self, input: Any, hx: Any = None) -> Any:
        """As torch's layer."""
        if is_compiling():  # torch.compile and torch.export see what they know
            return self._torchs(input, hx)
        # Asked in few words: some such calls take ten microseconds.
        if type(input) is Tensor and input.numel() < RULES[self._kind].least * self.input_size:
            self.__dict__[_TAKEN] = _SMALL
            return self._torchs(input, hx)
        reason = torch_is_faster(self, input) if type(input) in _LAYERS_TAKE else None
        if reason is None:
            try:
                return self._fused(input, hx)
            except _Left as left:
                return self._refuse(str(left), input, hx)
        return self._leave(reason, input, hx)

    def _fused(self, input: Any, hx: Any) -> Any:
        packed = type(input) is PackedSequence
        data = input.data if packed else input
        _check_data(data, (2,) if packed else (2, 3), self.input_size)
        lengths: Tensor | None
        lengths, axes, rows = None, "td", 1
        if packed:
            given: Any = PackedSequence(data, input.batch_sizes)
            (data, lengths), axes = pad_packed_sequence(given), "tbd"
            rows = data.shape[1]
        elif data.dim() == 3:
            axes = "btd" if self.batch_first else "tbd"
            rows = data.shape[0 if self.batch_first else 1]
        states = self._states(hx, data, None if axes == "td" else rows)
        if packed and input.sorted_indices is not None:
            states = tuple([s.index_select(1, input.sorted_indices) for s in states])
        out: Any
        out, last = self._layers(data, axes, states, lengths)
        if lengths is not None:
            if input.unsorted_indices is not None:
                last = [s.index_select(1, input.unsorted_indices) for s in last]
            out = PackedSequence(
                pack_padded_sequence(out, lengths).data,
                input.batch_sizes,
                input.sorted_indices,
                input.unsorted_indices,
            )
        return out, tuple(last) if self.mode == "LSTM" else last[0]

    def _sizes(self) -> tuple[int, ...]:
        """Of the states: h, which may be a projection, and for LSTM c."""
        h = self.proj_size or self.hidden_size
        return (h, self.hidden_size) if self.mode == "LSTM" else (h,)

    def _states(self, hx: Any, x: Tensor, rows: int | None) -> tuple[Tensor, ...]:
        """Those before the first step, each (D * num_layers, B, its size); none for zeros."""
        if hx is None:
            return ()
        given = tuple(hx) if isinstance(hx, (tuple, list)) else (hx,)
        count = self.num_layers * (2 if self.bidirectional else 1)
        sizes = self._sizes()
        if len(given) != len(sizes):
            raise _Left("another number of states than the layer has")
        for state, size in zip(given, sizes, strict=True):
            _check_state(state, (count, size) if rows is None else (count, rows, size), x)
        return given

    def _layers(
        self, x: Tensor, axes: str, states: tuple[Tensor, ...], lengths: Tensor | None
    ) -> tuple[Tensor, list[Tensor]]:
        """The outputs, and the last states as `_states`."""
        ways = 2 if self.bidirectional else 1
        weights = self._weights(self._flat_weights_names)
        stacks = _stacks(self.mode, self.input_size, self.hidden_size, self.bias, self.proj_size)
        compute, given = _dtypes(self.mode, x, states)
        if self.num_layers == 1:
            _check_weights(stacks, weights, x)
            how = StackedRun(stacks, ways, axes, compute, given, given, lengths)
            out, *last = _run(how, x, states, weights)
            self._ran(given)
            return out, last
        turned = axes == "btd"  # dropout is drawn as torch draws it, the steps first
        axes = "tbd" if turned else axes
        out = x.transpose(0, 1) if turned else x
        each, width = len(stacks.shapes) * ways, ways * self._sizes()[0]
        own: Any = zip(*[s.split(ways) for s in states], strict=True)
        starts = list(own) if states else [()] * self.num_layers
        dropout = self.dropout if self.training else 0.0
        lasts = []
        for layer, start in enumerate(starts):
            if layer:
                stacks = _stacks(self.mode, width, self.hidden_size, self.bias, self.proj_size)
                out = _dropped(out, dropout, lengths) if dropout else out
            used = weights[layer * each :][:each]
            _check_weights(stacks, used, x)
            kind = given if layer + 1 == self.num_layers else compute
            how = StackedRun(stacks, ways, axes, compute, given, kind, lengths)
            out, *last = _run(how, out, start, used)
            lasts.append(last)
        self._ran(given)
        stacked = [torch.cat(s) for s in zip(*lasts, strict=True)]
        return out.transpose(0, 1) if turned else out, stacked


_OF_CELLS: Final = "weight_ih", "weight_hh", "bias_ih", "bias_hh"


class _OneStep(_Shared, nn.RNNCellBase):
    _mode: str

    def forward(self, input: Any, hx: Any = None) -> Any:
        """As torch's cell."""
        if is_compiling():
            return self._torchs(input, hx)
        if type(input) is Tensor and input.numel() < RULES[self._kind].least * self.input_size:
            self.__dict__[_TAKEN] = _SMALL
            return self._torchs(input, hx)
        reason = torch_is_faster(self, input) if type(input) in _PLAIN else None
        if reason is None:
            try:
                return self._fused(input, hx)
            except _Left as left:
                return self._refuse(str(left), input, hx)
        return self._leave(reason, input, hx)

    def _fused(self, input: Any, hx: Any) -> Any:
        _check_data(input, (1, 2), self.input_size)
        if not self.hidden_size:
            raise _Left("a cell without neurons")
        several, shape = self._mode == "LSTM", (*input.shape[:-1], self.hidden_size)
        weights = self._weights(_OF_CELLS if self.bias else _OF_CELLS[:2])
        stacks = _stacks(self._unit_mode(), self.input_size, self.hidden_size, self.bias, 0)
        _check_weights(stacks, weights, input)
        states: tuple[Any, ...] = () if hx is None else tuple(hx) if several else (hx,)
        if states and len(states) != len(stacks.sizes):
            raise _Left("another number of states than the cell has")
        for state in states:
            _check_state(state, shape, input)
        compute, given = _dtypes(f"{self._mode}Cell", input, states)
        how = StackedRun(stacks, 1, "bd" if input.dim() == 2 else "d", compute, given, compute)
        new = _run(how, input, states, weights)
        self._ran(given)
        return new if several else new[0]

    def _unit_mode(self) -> str:
        if self._mode != "RNN":
            return self._mode
        mode = f"RNN_{self.nonlinearity}".upper()
        if mode not in UNITS:
            raise _Left(f"nonlinearity={self.nonlinearity!r}")
        return mode


class GRU(_Layer, nn.GRU):
    """`torch.nn.GRU`, on the fused engine where that is faster."""

    _kind, _torchs = "GRU", nn.GRU.forward


class LSTM(_Layer, nn.LSTM):
    """`torch.nn.LSTM`, on the fused engine where that is faster."""

    _kind, _torchs = "LSTM", nn.LSTM.forward


class RNN(_Layer, nn.RNN):
    """`torch.nn.RNN`, on the fused engine where that is faster."""

    _kind, _torchs = "RNN", nn.RNN.forward


class GRUCell(_OneStep, nn.GRUCell):
    """`torch.nn.GRUCell`, on the fused engine where that is faster."""

    _mode, _kind, _torchs = "GRU", "GRUCell", nn.GRUCell.forward


class LSTMCell(_OneStep, nn.LSTMCell):
    """`torch.nn.LSTMCell`, on the fused engine where that is faster."""

    _mode, _kind, _torchs = "LSTM", "LSTMCell", nn.LSTMCell.forward


class RNNCell(_OneStep, nn.RNNCell):
    """`torch.nn.RNNCell`, on the fused engine where that is faster."""

    _mode, _kind, _torchs = "RNN", "RNNCell", nn.RNNCell.forward


def _check_data(x: Any, dims: tuple[int, ...], width: int) -> None:
    """Leaves to torch's kernel, and to its error messages, what is no plain CPU tensor."""
    if type(x) not in _PLAIN:
        raise _Left(f"the input is a {type(x).__name__}, no plain tensor")
    if x.dim() not in dims or x.shape[-1] != width:
        raise _Left(f"an input of {tuple(x.shape)}, expected {width} features")
    if not x.numel():
        raise _Left("an empty batch, no step, or no feature")
    if torch._C._get_tracing_state() is not None:
        raise _Left("TorchScript or ONNX records the call")


def _check_state(state: Any, shape: tuple[int, ...], x: Tensor) -> None:
    if type(state) not in _PLAIN or state.shape != shape:
        raise _Left("a state of another type or shape than the layer's")
    if state.dtype is not x.dtype or state.device != x.device:
        raise _Left("a state of another dtype or device than the input's")


def _check_weights(stacks: Stacks, weights: Sequence[Any], x: Tensor) -> None:
    if not _PLAIN_TYPES.issuperset(map(type, weights)):
        raise _Left("a weight is no plain tensor")
    if [w.shape for w in weights] != len(weights) // len(stacks.shapes) * stacks.shapes:
        raise _Left("weights of other shapes than the layer's")
    if len({x.dtype, *[w.dtype for w in weights]}) > 1 and not torch.is_autocast_enabled("cpu"):
        raise _Left("weights of another dtype than the input's")
    if len({x.device, *[w.device for w in weights]}) > 1:
        raise _Left("weights on another device than the input")


def _dtypes(kind: str, x: Tensor, states: Sequence[Tensor]) -> tuple[torch.dtype, torch.dtype]:
    """In which the engine computes, and of the results: torch's layer's own."""
    if torch.is_autocast_enabled("cpu") and x.dtype is not torch.float64:
        low = torch.get_autocast_dtype("cpu")
        # Their last operation adds to the state, which autocast leaves as it is.
        keeps = kind in ("GRU", "GRUCell", "LSTMCell")
        return torch.float32, (torch.promote_types(low, (*states, x)[0].dtype) if keeps else low)
    return (torch.float32 if x.dtype in _HALF else x.dtype), x.dtype


def _dropped(x: Tensor, share: float, lengths: Tensor | None) -> Tensor:
    """Dropout drawn as torch draws it: of a packed batch for its rows alone."""
    if lengths is None:
        return F.dropout(x, share)
    packed = pack_padded_sequence(x, lengths)
    dropped = F.dropout(packed.data, share)
    return pad_packed_sequence(PackedSequence(dropped, packed.batch_sizes))[0]


def _run(
    how: StackedRun, x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """What `stacked.run` does, by whichever way can be taken."""
    if stacked.can(x, states, weights):
        return stacked.run(how, x, states, weights)
    with _full_precision():
        return stacked.generally(how, x, states, weights, _seen)


def _full_precision() -> Any:
    if torch.is_autocast_enabled("cpu"):
        return torch.autocast("cpu", enabled=False)
    return nullcontext()


def _seen(
    graph: Graph, x: Tensor, directions: Sequence[Direction], lengths: Tensor | None
) -> tuple[Tensor, tuple[tuple[Tensor, ...], ...]]:
    """The engine's own run, for tracers, modes and transforms to see."""
    problem = FUSED.problem(graph, x, directions)
    if problem is None:
        return FUSED.run(graph, x, directions, lengths)
    if is_transformed():  # where torch's kernel, which writes in place, mostly raises
        return reference.run(graph, x, directions, lengths)
    raise _Left(problem)


@functools.lru_cache(maxsize=512)
def _stacks(mode: str, width: int, hidden: int, bias: bool, proj: int) -> Stacks:
    graph = trace(projected(get(UNITS[mode]), proj), width, hidden, bias)
    blocks = FORMS[UNITS[mode]].blocks
    rows = len(blocks) * hidden
    shapes: list[tuple[int, ...]] = [(rows, width), (rows, proj or hidden)]
    shapes += [(rows,), (rows,)] if bias else []
    gates = [len(blocks)] * len(shapes)
    places: dict[str, tuple[Portion, ...]] = {}
    if proj:
        places[PROJECTION] = (Portion(len(shapes), 0),)
        shapes, gates = [*shapes, (proj, hidden)], [*gates, 1]
    for gate, block in enumerate(blocks):
        places[block.weight_ih], places[block.weight_hh] = (Portion(0, gate),), (Portion(1, gate),)
        if bias and block.bias_ih == block.bias_hh:
            places[block.bias_ih] = Portion(2, gate), Portion(3, gate)
        elif bias:
            places[block.bias_ih], places[block.bias_hh] = (Portion(2, gate),), (Portion(3, gate),)
    return Stacks(graph, shapes, gates, places)


def _not_looked_into(function: Any) -> None:
    """torch.compile, which breaks its graph at recurrent layers, is to run them as they are.

    What torch.compiler.disable does in every call, done once, without the import of the compiler.
    """
    with suppress(AttributeError):  # no part of torch's public interface
        frames = torch._C._dynamo.eval_frame
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))


_not_looked_into(_Layer.forward)
_KINDS: Final[dict[type[nn.Module], type[_Shared]]] = {
    nn.GRU: GRU,
    nn.LSTM: LSTM,
    nn.RNN: RNN,
    nn.GRUCell: GRUCell,
    nn.LSTMCell: LSTMCell,
    nn.RNNCell: RNNCell,
}


def accelerate(model: Model) -> Model:
    """Lets every GRU, LSTM and RNN of torch.nn in `model`, and their cells, run on our engines.

    In place: parameters, state dict, hooks and optimisers stay what they are. A module of a
    subclass, which may compute something else, is left alone. `engine_report(model)` says what
    ran where.

    >>> model = onegate.accelerate(torch.nn.GRU(28, 100))
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"accelerate takes a torch.nn.Module, got {type(model).__name__}")
    for module in model.modules():
        if not isinstance(module, _Shared):
            new = _accelerated(type(module))
            if new is not None and "forward" not in vars(module):
                module.__class__ = new
    return model


def restore(model: Model) -> Model:
    """Gives every module that `accelerate` changed back its class."""
    for module in model.modules():
        if isinstance(module, _Shared):
            _give_back(module)
    return model


@contextmanager
def accelerated(model: Model) -> Iterator[Model]:
    """`accelerate` inside the `with` block; what ran on our engines before goes on to."""
    before = {module for module in model.modules() if isinstance(module, _Shared)}
    accelerate(model)
    try:
        yield model
    finally:
        for module in model.modules():
            if isinstance(module, _Shared) and module not in before:
                _give_back(module)


def _give_back(module: nn.Module) -> None:
    module.__class__ = _restored(type(module))
    module.__dict__.pop(_TAKEN, None)


def _accelerated(kind: type[nn.Module]) -> type[nn.Module] | None:
    """The subclass of `kind` that runs on our engine, None where there is none."""
    if _is_parametrized(kind):
        return _on_base(kind, _accelerated(kind.__bases__[0]))
    return _KINDS.get(kind)


def _restored(kind: type[nn.Module]) -> type[nn.Module]:
    if _is_parametrized(kind):
        return _on_base(kind, _restored(kind.__bases__[0])) or kind
    return next((theirs for theirs, ours in _KINDS.items() if ours is kind), kind)


def _is_parametrized(kind: type[nn.Module]) -> bool:
    """Whether torch.nn.utils.parametrize made the class, for one module."""
    return kind.__module__ == parametrize.__name__ and kind.__name__.startswith("Parametrized")


def _on_base(kind: type[nn.Module], base: type[nn.Module] | None) -> type[nn.Module] | None:
    """The same class on another base, to which the end of the parametrizations leads back."""
    if base is None:
        return None
    own = {k: v for k, v in vars(kind).items() if k not in ("__dict__", "__weakref__")}
    return type(kind.__name__, (base,), own)


class EngineRow(NamedTuple):
    """What ran a module: its name in the model, its class, the engine and the reason."""

    name: str
    kind: str
    engine: str
    reason: str


class EngineReport(tuple[EngineRow, ...]):
    """A row for each recurrent module; printed as a table."""

    __slots__ = ()

    def __str__(self) -> str:
        rows = [EngineRow("module", "class", "engine", "reason"), *self]
        widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:3]]
        return "\n".join(
            "  ".join([*(f"{c:<{w}}" for c, w in zip(row, widths, strict=False)), row.reason])
            for row in rows
        )


def engine_report(model: nn.Module) -> EngineReport:
    """Which engine ran each recurrent module of `model` in its last call, and why.

    >>> print(onegate.engine_report(model))
    """
    rows = []
    for name, module in model.named_modules():
        taken = _taken(module)
        if taken is not None:
            rows.append(EngineRow(name or "(the model)", type(module).__name__, *taken))
    return EngineReport(rows)


def _taken(module: nn.Module) -> tuple[str, str] | None:
    if isinstance(module, (Recurrent, Cell)):
        choice = module.engine_report()
        return choice.name, choice.reason
    if isinstance(module, _Shared):
        taken: tuple[str, str] = module.__dict__.get(_TAKEN, (NOT_RUN.name, NOT_RUN.reason))
        return taken
    if isinstance(module, tuple(_KINDS)):
        plain = type(module) in _KINDS or _is_parametrized(type(module))
        return "torch", "not accelerated" if plain else "a subclass of torch's layer"
    return None
