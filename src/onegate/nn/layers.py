"""Recurrent layers of any unit, which stand where `torch.nn.GRU` stood."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, repeat
from typing import Any, Final, Literal, TypeAlias, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from onegate.display import DisplayedLayer
from onegate.engines import NOT_RUN, Choice, choose, fused_alone, fused_taken, runner
from onegate.engines.base import NOTHING, Direction, Further, Run
from onegate.engines.cpu import stacked
from onegate.engines.cpu.stacked import StackedRun
from onegate.language import Graph, Unit
from onegate.nn import arguments
from onegate.nn import init as initial
from onegate.nn.cells import Device, States, Weights
from onegate.nn.dropout import Dropouts
from onegate.nn.forms import form_of, projected, translate
from onegate.tracing import trace
from onegate.units import get
from onegate.values import flag

Parameters: TypeAlias = list[list[dict[str, Tensor]]]
# What layers that were pickled whole by version 0.1 do not have yet.
_SINCE_0_1: Final = {
    **dict.fromkeys(("input_dropout", "recurrent_dropout", "candidate_dropout"), 0.0),
    **{"zoneout": 0.0, "weight_drop": 0.0, "proj_size": 0, "recompute": False},
    **{"_extra_sizes": {}},
}


class Recurrent(DisplayedLayer, nn.Module):
    """Layers of a recurrent unit, called as `torch.nn.GRU` (or LSTM).

    unit: a registered name, a unit, or its class; its options are further keywords.
    engine: "auto", "fused" or "reference"; see `engine_report`.
    proj_size: for `lstm` alone: the width of the outputs, if they are projected.
    learn_initial_state: the states before the first step are parameters (l0.h_0), not zero.
    init: see `onegate.nn.init`.
    input_dropout, recurrent_dropout: one mask for all steps of a sequence, on the input and on what
        maps read of the states (Gal and Ghahramani 2016).
    candidate_dropout: on what is written into a state (Semeniuta, Severyn and Barth 2016).
    zoneout: the probability that an element of a state stays as it was (Krueger et al. 2017); a
        mapping gives each state its own. In evaluation the mean of old and new is taken.
    weight_drop: on the elements of the recurrent matrices, once a call (Merity et al. 2018).
    recompute: keep nothing but the states for the backward pass; the rest is computed anew there.

    The other arguments are torch's, and so are shapes, with n = hidden_size, D = 2 directions if
    bidirectional, else 1:

    input: (T, B, input_size), (B, T, input_size) if batch_first, (T, input_size) for one sequence,
        or a PackedSequence.
    hx: the states before the first step, (D * num_layers, B, n), a tuple of them for a unit with
        several states; zeros by default.
    lengths: (B,), the steps of each row of a padded batch. Outputs beyond are zero, the last state
        is the one at the length, and the backward direction starts there.
    extra: what the unit reads beside x, (T, B, its size) each, by the names in `Unit.inputs`; one
        tensor where there is one.
    reset: (T, B), True where the states start anew before the step: from zero, or from the learned
        initial state. As if the sequence were cut there; not for two directions.
    return_states: also return all states after every step.

    Returns the outputs (T, B, D * n), and the last states, shaped as hx; with return_states also
    the states of all steps, (D * num_layers, T, B, n), a tuple of them for several states.

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
        proj_size: int = 0,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        engine: str = "auto",
        learn_initial_state: bool = False,
        init: Any = None,
        input_dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        candidate_dropout: float = 0.0,
        zoneout: float | Mapping[str, float] = 0.0,
        weight_drop: float = 0.0,
        recompute: bool = False,
        **unit_options: Any,
    ) -> None:
        super().__init__()
        proj_size = arguments.proj_size(proj_size)
        self.unit = projected(get(unit, **unit_options), proj_size)
        self.proj_size: int = getattr(self.unit, "proj_size", 0)
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
        self.input_dropout, self.recurrent_dropout = input_dropout, recurrent_dropout
        self.candidate_dropout, self.zoneout = candidate_dropout, zoneout
        self.weight_drop = weight_drop
        self.recompute = flag("recompute", recompute)
        self._inside = self._dropouts()
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
        self._extra_sizes = self._same_extras([each[0].graph for each in self._weights()])
        graphs = [weights[0].graph for weights in self._weights()]
        initial.check(init, graphs)
        for graph in graphs:
            self._inside.check(graph)
        self.reset_parameters()

    def _dropouts(self) -> Dropouts:
        return Dropouts.of(
            self.unit,
            self.input_dropout,
            self.recurrent_dropout,
            self.candidate_dropout,
            self.zoneout,
            self.weight_drop,
        )

    def reset_parameters(self) -> None:
        """Draws new values as `init=` says."""
        for weights in chain.from_iterable(self._weights()):
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
        self,
        input: Tensor,
        hx: States | None = None,
        *,
        lengths: Any = None,
        extra: Any = None,
        reset: Tensor | None = None,
    ) -> tuple[Tensor, States]: ...
    @overload
    def forward(
        self,
        input: Tensor,
        hx: States | None = None,
        *,
        lengths: Any = None,
        extra: Any = None,
        reset: Tensor | None = None,
        return_states: Literal[True],
    ) -> tuple[Tensor, States, States]: ...
    @overload
    def forward(
        self, input: PackedSequence, hx: States | None = None, *, lengths: None = None
    ) -> tuple[PackedSequence, States]: ...
    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: States | None = None,
        *,
        lengths: Any = None,
        extra: Any = None,
        reset: Tensor | None = None,
        return_states: bool = False,
    ) -> tuple[Tensor | PackedSequence, States] | tuple[Tensor, States, States]:
        """Runs the layers over whole sequences; shapes are those of the class."""
        if isinstance(input, PackedSequence):
            if lengths is not None:
                raise ValueError("lengths= is for padded tensors; a PackedSequence has its own")
            if extra is not None or reset is not None or return_states:
                raise ValueError(
                    "extra=, reset= and return_states= are for padded tensors with lengths=; "
                    "unpack the sequence with torch.nn.utils.rnn.pad_packed_sequence"
                )
            return self._forward_packed(input, hx)
        if type(input) is not Tensor and arguments.is_wrapper(input):
            more = {"lengths": lengths, "extra": extra, "reset": reset}
            more["return_states"] = return_states
            return arguments.by_wrapper(Recurrent.forward, self, input, hx, **more)
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
        states: tuple[Tensor, ...] = ()
        if hx is not None:
            states = self._checked(hx, x.shape[1] if batched else None)
        further, axes = NOTHING, self._axes if batched else "T"
        parameters = self._parameters_now()
        if extra is not None or reset is not None or return_states or self._extra_sizes:
            further = self._further(x, extra, reset, flag("return_states", return_states), axes)
        elif not torch.compiler.is_compiling():
            found = self._run_directly(input, axes, states, lengths, parameters)
            if found is not None:
                return found
        if not batched:
            states = tuple(state.unsqueeze(1) for state in states)
        out, last, every = self._run(x, states, lengths, further, parameters)
        if not batched:
            out, last = out.squeeze(1), tuple(state.squeeze(1) for state in last)
            every = tuple(state.squeeze(2) for state in every)
        elif self.batch_first:
            out, every = out.transpose(0, 1), tuple(state.transpose(1, 2) for state in every)
        if return_states:
            return out, _one_or_all(last), _one_or_all(every)
        return out, last[0] if len(last) == 1 else last

    def _further(
        self, x: Tensor, extra: Any, reset: Any, return_states: bool, axes: str
    ) -> Further:
        """What a call has beside x, checked. axes: of the input as it came."""
        extras: tuple[Tensor, ...] = ()
        if extra is not None or self._extra_sizes:
            like = self._weights()[0][0].example()
            extras = arguments.extras(extra, self._extra_sizes, x, axes, like)
        if reset is not None:
            if self.bidirectional:
                raise ValueError(
                    "reset= is for one direction: backward in time a sequence would have to be cut "
                    "after the step; cut the sequences, or use two layers"
                )
            reset = arguments.reset(reset, x, axes)
        return Further(extras, reset, (), return_states, self.recompute)

    def _forward_packed(
        self, packed: PackedSequence, hx: States | None
    ) -> tuple[PackedSequence, States]:
        """Runs a padded batch, longest row first; states come and go in the rows' own order."""
        arguments.check_input(packed.data, self.input_size, "T")
        x, lengths = pad_packed_sequence(PackedSequence(packed.data, packed.batch_sizes))
        states: tuple[Tensor, ...] = ()
        if hx is not None:
            states = self._checked(hx, x.shape[1])
            states = _reordered(states, packed.sorted_indices)
        further = self._further(x, None, None, False, "TB") if self._extra_sizes else NOTHING
        parameters = self._parameters_now()
        out, last, _ = self._run(x, states, lengths.to(x.device), further, parameters)
        last = _reordered(last, packed.unsorted_indices)
        data = pack_padded_sequence(out, lengths).data
        repacked = PackedSequence(
            data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices
        )
        return repacked, last[0] if len(last) == 1 else last

    def _run(
        self,
        x: Tensor,
        states: tuple[Tensor, ...],
        lengths: Tensor | None,
        further: Further,
        parameters: Parameters,
    ) -> tuple[Tensor, tuple[Tensor, ...], tuple[Tensor, ...]]:
        """x: (T, B, d). states, and the last ones returned: each (D * num_layers, B, size).

        Third come the states of all steps, (D * num_layers, T, B, size), if they are asked for.
        """
        starts = self._starts(x, states)
        lasts: list[tuple[Tensor, ...]] = []
        every: list[tuple[Tensor, ...]] = []
        further = replace(further, recompute=True) if self.recompute else further
        for layer, weights in enumerate(self._weights()):
            graph = weights[0].graph
            directions = [Direction(next(starts), each) for each in parameters[layer]]
            if layer == 0:
                arguments.check_alike("input", x, weights[0].example())
                if self._stand_in is None:
                    choice = choose(self.engine, graph, x, directions)
                    run = runner(choice)
                else:
                    choice, run = self._choice, self._stand_in
            elif self.dropout:
                x = F.dropout(x, self.dropout, self.training)
            if further is NOTHING and not self._inside:
                x, last = run(graph, x, directions, lengths)
            else:
                given, beside = further, self._inside
                if given.reset is not None:
                    given = replace(given, initial=weights[0].initial_states())
                if beside:
                    training, graph = self.training, beside.graph(graph, self.training)
                    x = beside.of_input(x, training)
                    if graph.masks:
                        masks = beside.masks(graph, x, training)
                        given = replace(given, extras=(*given.extras, *masks))
                    if beside.weights and training:
                        directions = [
                            replace(d, parameters=beside.of_weights(d.parameters))
                            for d in directions
                        ]
                x, last = run(graph, x, directions, lengths, given)
                if given.all_states:
                    x, each_step = self._told_apart(x, len(weights))
                    every += each_step
            lasts += last
        if choice is not self._choice and not torch.compiler.is_compiling():
            self._choice = choice
        over_time = tuple([torch.stack(each) for each in zip(*every, strict=True)])
        # Copies, not views: a state may be changed in place, and is contiguous.
        return x, tuple([torch.stack(each) for each in zip(*lasts, strict=True)]), over_time

    def _run_directly(
        self,
        x: Tensor,
        axes: str,
        states: tuple[Tensor, ...],
        lengths: Tensor | None,
        parameters: Parameters,
    ) -> tuple[Tensor, States] | None:
        """The results of `forward`, where little was asked for, by the fused engine's shortest way.

        A single step then takes little more than the native code. None where somebody else has to
        see the call, or a check has something to say. axes: of x and the outputs.
        """
        if self._inside or self.recompute or self._stand_in is not None:
            return None
        if (self.learn_initial_state and not states) or not fused_alone(self.engine):
            return None
        count, ways = self.num_layers, len(parameters[0])
        turned = axes == "BT" and count > 1  # dropout is drawn in the order of time
        order = "tbd" if turned else _ORDERS[axes]
        others = states
        if lengths is not None:
            others, lengths = (*states, lengths), lengths.contiguous()
        runs = []
        for (weights, *_), own in zip(self._weights(), parameters, strict=True):
            stacks = stacked.whole(weights.graph)
            tensors = [t for each in own for t in each.values()]
            kinds = stacked.fits(stacks, x, others, tensors)
            if kinds is None:
                return None
            runs.append((StackedRun(stacks, ways, order, *kinds, kinds[1], lengths), tensors))
        choice = fused_taken(self.engine, x)
        if choice is not self._choice:
            self._choice = choice
        if count == 1:
            out, *last = stacked.run(runs[0][0], x, states, runs[0][1])
            return out, last[0] if len(last) == 1 else tuple(last)
        starts = zip(*[s.split(ways) for s in states], strict=True) if states else repeat(())
        out = x.transpose(0, 1) if turned else x
        lasts: list[list[Tensor]] = []
        for (how, tensors), start in zip(runs, starts, strict=False):
            if lasts and self.dropout:
                out = F.dropout(out, self.dropout, self.training)
            out, *last = stacked.run(how, out, start, tensors)
            lasts.append(last)
        joined = tuple([torch.cat(each) for each in zip(*lasts, strict=True)])
        return out.transpose(0, 1) if turned else out, _one_or_all(joined)

    def _told_apart(
        self, every: Tensor, directions: int
    ) -> tuple[Tensor, list[tuple[Tensor, ...]]]:
        """All states side by side (T, B, D * S) as the outputs, and by direction each state."""
        parts = [each.split(list(self._sizes.values()), -1) for each in every.chunk(directions, -1)]
        outputs = [states[0] for states in parts]
        return outputs[0] if directions == 1 else torch.cat(outputs, -1), parts

    def _same_extras(self, graphs: list[Graph]) -> dict[str, int]:
        """The sizes of what the unit reads beside x, which all layers are given alike."""
        found = [{i.name: i.size or 0 for i in graph.inputs[1:]} for graph in graphs]
        for sizes in found[1:]:
            if sizes != found[0]:
                raise ValueError(
                    f"{self.unit.name}: layers above the first would read {sizes}, and the first "
                    f"{found[0]}, beside their inputs; make a module for each layer"
                )
        return found[0]

    def _starts(self, x: Tensor, states: tuple[Tensor, ...]) -> Iterator[tuple[Tensor, ...]]:
        """The states before the first step by layer and direction, each (B, size)."""
        if states:
            return zip(*(state.unbind(0) for state in states), strict=True)
        if self.learn_initial_state:
            return (
                tuple(state.expand(x.shape[1], -1) for state in each.initial_states())
                for weights in self._weights()
                for each in weights
            )
        zero = x.new_zeros(())
        zeros = tuple([zero.expand(x.shape[1], size) for size in self._sizes.values()])
        return repeat(zeros)

    def _checked(self, hx: States, batch: int | None) -> tuple[Tensor, ...]:
        weights = self._weights()
        rows = len(weights) * len(weights[0])
        like = weights[0][0].example()
        if batch is None:
            return arguments.states(hx, self._sizes, (arguments.ROWS,), (rows,), like)
        return arguments.states(hx, self._sizes, (arguments.ROWS, "B"), (rows, batch), like)

    def _parameters_now(self) -> Parameters:
        """By layer, direction and key, once for each call: some may be computed, even drawn."""
        return [[each.tensors() for each in weights] for weights in self._weights()]

    def _weights(self) -> list[list[Weights]]:
        """The parameters by layer and direction."""
        modules: dict[str, Any] = self._modules
        return [[modules[name] for name in names] for names in self._names]

    @property
    def mode(self) -> str:
        """torch's name for the unit, such as LSTM or RNN_TANH; else the unit's in capitals."""
        form = form_of(self.unit)
        return self.unit.name.upper() if form is None else form.mode

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """The parameters as they are now, a list for each layer and direction."""
        return [list(each.tensors().values()) for weights in self._weights() for each in weights]

    def __getstate__(self) -> dict[str, Any]:
        # What a call left, and what follows from the rest: two classes less to pickle.
        return {**self.__dict__, "_choice": None, "_inside": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        known = {**_SINCE_0_1, **state, "_choice": NOT_RUN}
        super().__setstate__(known)  # type: ignore[no-untyped-call]
        self._inside = self._dropouts()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *others: Any) -> None:
        if (problem := translate(state_dict, prefix, self.unit)) is not None:
            others[-1].append(problem)
        super()._load_from_state_dict(state_dict, prefix, *others)

    def extra_repr(self) -> str:
        shown = self._asked_for()  # proj_size is among the unit's options
        defaults = inspect.signature(Recurrent.__init__).parameters
        for name in _SHOWN:
            value = getattr(self, name)
            if value != defaults[name].default:
                shown.append(f"{name}={value!r}")
        return ", ".join(shown)


_ORDERS: Final = {"TB": "tbd", "BT": "btd", "T": "td"}
_SHOWN: Final = (
    "num_layers",
    "bias",
    "batch_first",
    "dropout",
    "bidirectional",
    "engine",
    "learn_initial_state",
    "init",
    "input_dropout",
    "recurrent_dropout",
    "candidate_dropout",
    "zoneout",
    "weight_drop",
    "recompute",
)


def _one_or_all(states: tuple[Tensor, ...]) -> States:
    return states[0] if len(states) == 1 else states


def _reordered(states: tuple[Tensor, ...], indices: Tensor | None) -> tuple[Tensor, ...]:
    if indices is None:
        return states
    return tuple(state.index_select(1, indices) for state in states)
