"""Recurrent layers of any unit, which stand where `torch.nn.GRU` stood."""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, cast, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from onegate.display import DisplayedLayer
from onegate.engines import NOT_RUN, Choice, choose, runner
from onegate.engines.base import Direction, Run
from onegate.language import Unit, flag
from onegate.nn import arguments
from onegate.nn import init as initial
from onegate.nn.cells import Device, States, Weights
from onegate.tracing import trace
from onegate.units import get


class Recurrent(DisplayedLayer, nn.Module):
    """Layers of a recurrent unit, called as `torch.nn.GRU` (or LSTM).

    unit: a registered name, a unit, or its class; its options are further keywords.
    engine: "auto", "fused" or "reference"; see `engine_report`.
    learn_initial_state: the states before the first step are parameters (l0.h_0), not zero.
    init: see `onegate.nn.init`.

    The other arguments are torch's, and so are shapes, with n = hidden_size, D = 2 directions if
    bidirectional, else 1:

    input: (T, B, input_size), (B, T, input_size) if batch_first, (T, input_size) for one sequence,
        or a PackedSequence.
    hx: the states before the first step, (D * num_layers, B, n), a tuple of them for a unit with
        several states; zeros by default.
    lengths: (B,), the steps of each row of a padded batch. Outputs beyond are zero, the last state
        is the one at the length, and the backward direction starts there.

    Returns the outputs (T, B, D * n), and the last states, shaped as hx.

    >>> layer = onegate.Recurrent("mgu", 28, 100)
    >>> out, h = layer(torch.randn(28, 16, 28))
    """

    def __init__(
        self,
        unit: str | Unit | type[Unit],
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        engine: str = "auto",
        learn_initial_state: bool = False,
        init: Any = None,
        **unit_options: Any,
    ) -> None:
        super().__init__()
        self.unit = get(unit, **unit_options)
        self.input_size = arguments.positive("input_size", input_size)
        self.hidden_size = arguments.positive("hidden_size", hidden_size)
        self.num_layers = arguments.positive("num_layers", num_layers)
        self.bias = arguments.has_bias(bias)
        self.batch_first = flag("batch_first", batch_first)
        self.dropout = arguments.probability("dropout", dropout)
        self.bidirectional = flag("bidirectional", bidirectional)
        self.engine = arguments.engine(engine)
        self.learn_initial_state = flag("learn_initial_state", learn_initial_state)
        self.init = init
        if self.dropout and self.num_layers == 1:
            warnings.warn(
                f"dropout={self.dropout} acts between layers, and num_layers is 1", stacklevel=2
            )
        dtype = arguments.dtype(dtype)
        self._axes = "BT" if self.batch_first else "TB"
        self._choice = NOT_RUN
        self._stand_in: Run | None = None
        self._names: list[list[str]] = []  # of the submodules, by layer and direction
        width = self.input_size
        for layer in range(self.num_layers):
            graph = trace(self.unit, width, self.hidden_size, self.bias)
            names = [f"l{layer}", f"l{layer}_reverse"][: 2 if self.bidirectional else 1]
            for name in names:
                self.add_module(name, Weights(graph, device, dtype, self.learn_initial_state))
            self._names.append(names)
            width = len(names) * (graph.states[0].size or 0)
        self._sizes = {state.name: state.size or 0 for state in graph.states}
        initial.check(init, [weights[0].graph for weights in self._weights()])
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new values as `init=` says."""
        for weights in itertools.chain.from_iterable(self._weights()):
            weights.initialise(self.init)

    def flatten_parameters(self) -> None:
        """Does nothing: parameters need no flattening; torch's layers have it."""

    def engine_report(self) -> Choice:
        """The engine that the last call took, and why.

        >>> print(layer.engine_report())
        """
        return self._choice

    @contextmanager
    def run_by(self, run: Run) -> Iterator[None]:
        """Inside the `with` block `run` stands in for the engine, called once for each layer.

        For who wants to see what an engine is given, such as `onegate.probe`.
        """
        before, self._stand_in = self._stand_in, run
        try:
            yield
        finally:
            self._stand_in = before

    @overload
    def forward(
        self, input: Tensor, hx: States | None = None, *, lengths: Any = None
    ) -> tuple[Tensor, States]: ...
    @overload
    def forward(
        self, input: PackedSequence, hx: States | None = None, *, lengths: None = None
    ) -> tuple[PackedSequence, States]: ...
    def forward(
        self, input: Tensor | PackedSequence, hx: States | None = None, *, lengths: Any = None
    ) -> tuple[Tensor | PackedSequence, States]:
        """Runs the layers over whole sequences; shapes are those of the class."""
        if isinstance(input, PackedSequence):
            if lengths is not None:
                raise ValueError("lengths= is for padded tensors; a PackedSequence has its own")
            return self._forward_packed(input, hx)
        arguments.check_input(input, self.input_size, self._axes)
        batched = input.dim() == 3
        if not batched:
            x = input.unsqueeze(1)
        else:
            x = input.transpose(0, 1) if self.batch_first else input
        if lengths is not None:
            if not batched:
                raise ValueError("lengths= is for batches; cut the one sequence to its length")
            lengths = arguments.lengths(lengths, x)
        states = None
        if hx is not None:
            states = self._checked(hx, x.shape[1] if batched else None)
            if not batched:
                states = tuple(state.unsqueeze(1) for state in states)
        out, last = self._run(x, states, lengths)
        if not batched:
            out, last = out.squeeze(1), tuple(state.squeeze(1) for state in last)
        elif self.batch_first:
            out = out.transpose(0, 1)
        return out, last[0] if len(last) == 1 else last

    def _forward_packed(
        self, packed: PackedSequence, hx: States | None
    ) -> tuple[PackedSequence, States]:
        """Runs a padded batch, longest row first; states come and go in the rows' own order."""
        arguments.check_input(packed.data, self.input_size, "T")
        x, lengths = pad_packed_sequence(PackedSequence(packed.data, packed.batch_sizes))
        states = None
        if hx is not None:
            states = self._checked(hx, x.shape[1])
            states = _reordered(states, packed.sorted_indices)
        out, last = self._run(x, states, lengths.to(x.device))
        last = _reordered(last, packed.unsorted_indices)
        data = pack_padded_sequence(out, lengths).data
        repacked = PackedSequence(
            data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices
        )
        return repacked, last[0] if len(last) == 1 else last

    def _run(
        self, x: Tensor, states: tuple[Tensor, ...] | None, lengths: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """x: (T, B, d). states, and those returned: each (D * num_layers, B, size)."""
        starts = self._starts(x, states)
        lasts: list[tuple[Tensor, ...]] = []
        for layer, weights in enumerate(self._weights()):
            graph = weights[0].graph
            directions = [Direction(next(starts), each.tensors()) for each in weights]
            if layer == 0:
                arguments.check_alike("input", x, weights[0].example())
                if self._stand_in is None:
                    choice = choose(self.engine, graph, x, directions)
                    run = runner(choice)
                else:
                    choice, run = self._choice, self._stand_in
            elif self.dropout:
                x = F.dropout(x, self.dropout, self.training)
            x, last = run(graph, x, directions, lengths)
            lasts += last
        if choice is not self._choice and not torch.compiler.is_compiling():
            self._choice = choice
        if len(lasts) == 1:
            return x, tuple([state.unsqueeze(0) for state in lasts[0]])
        return x, tuple([torch.stack(each) for each in zip(*lasts, strict=True)])

    def _starts(self, x: Tensor, states: tuple[Tensor, ...] | None) -> Iterator[tuple[Tensor, ...]]:
        """The states before the first step by layer and direction, each (B, size)."""
        if states is not None:
            return zip(*(state.unbind(0) for state in states), strict=True)
        if self.learn_initial_state:
            return (
                tuple(state.expand(x.shape[1], -1) for state in each.initial_states())
                for weights in self._weights()
                for each in weights
            )
        zeros = tuple([x.new_zeros(x.shape[1], size) for size in self._sizes.values()])
        return itertools.repeat(zeros)

    def _checked(self, hx: States, batch: int | None) -> tuple[Tensor, ...]:
        weights = self._weights()
        rows = len(weights) * len(weights[0])
        like = weights[0][0].example()
        if batch is None:
            return arguments.states(hx, self._sizes, (_ROWS,), (rows,), like)
        return arguments.states(hx, self._sizes, (_ROWS, "B"), (rows, batch), like)

    def _weights(self) -> list[list[Weights]]:
        """The parameters by layer and direction."""
        modules = self._modules
        return [[cast(Weights, modules[name]) for name in names] for names in self._names]

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *others: Any) -> None:
        if f"{prefix}weight_ih_l0" in state_dict:
            messages = others[-1]
            messages.append(
                f"{prefix}weight_ih_l0 is a weight of torch.nn's layers; load the state dict into "
                "torch's layer, and convert that with onegate.from_torch"
            )
        super()._load_from_state_dict(state_dict, prefix, *others)

    def extra_repr(self) -> str:
        """The arguments that are not the defaults."""
        shown = self._asked_for()
        defaults = inspect.signature(Recurrent.__init__).parameters
        for name in _SHOWN:
            value = getattr(self, name)
            if value != defaults[name].default:
                shown.append(f"{name}={value!r}")
        return ", ".join(shown)


_ROWS: Final = "layers and directions"
_SHOWN: Final = (
    "num_layers",
    "bias",
    "batch_first",
    "dropout",
    "bidirectional",
    "engine",
    "learn_initial_state",
    "init",
)


def _reordered(states: tuple[Tensor, ...], indices: Tensor | None) -> tuple[Tensor, ...]:
    if indices is None:
        return states
    return tuple(state.index_select(1, indices) for state in states)
