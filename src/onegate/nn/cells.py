"""Modules for one step: the parameters of a unit, and the cell that applies them once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from onegate.display import DisplayedLayer
from onegate.engines import NOT_RUN, Choice, choose, fused_alone, fused_taken, runner
from onegate.engines.base import NOTHING, Direction, Further
from onegate.engines.cpu import stacked
from onegate.engines.cpu.stacked import StackedRun
from onegate.language import Graph, Unit, UnitError
from onegate.nn import arguments
from onegate.nn import init as initial
from onegate.nn.forms import translate
from onegate.tracing import trace
from onegate.units import get

States: TypeAlias = Tensor | tuple[Tensor, ...]
Device: TypeAlias = torch.device | str | int | None


def compute_weights(module: nn.Module) -> None:
    """Computes anew those weights that hooks of torch.nn.utils compute before each call."""
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, (WeightNorm, SpectralNorm, BasePruningMethod)):
            hook(module, ())


class Map(nn.Module):
    """The parameters of one affine map: a matrix per operand, and a bias."""

    def extra_repr(self) -> str:
        return ", ".join(f"{name} {tuple(p.shape)}" for name, p in self.named_parameters())


class Weights(nn.Module):
    """The parameters of one direction of one layer, under the keys of the unit's graph.

    f.U, f.W and f.b are in the submodule f; vectors such as p_i, and learned initial states such
    as h_0, are in the module itself.
    """

    def __init__(
        self,
        graph: Graph,
        device: Device = None,
        dtype: torch.dtype | None = None,
        learn_initial_state: bool = False,
    ) -> None:
        super().__init__()
        self.graph = graph
        self.learn_initial_state = learn_initial_state
        # (key, submodule or "", name in it)
        self._places: list[tuple[str, str, str]] = []
        for key, shape in graph.parameters.items():
            group, _, name = key.rpartition(".")
            if group and group not in self._modules:
                self._refuse_taken(group)
                self.add_module(group, Map())
            self._add(group, name, shape, device, dtype)
            self._places.append((key, group, name))
        if not self._places:  # dtype and device follow `.to(...)` all the same
            self.register_buffer("_like", torch.empty(0, device=device, dtype=dtype), False)
        if learn_initial_state:
            for state in graph.states:
                self._add("", f"{state.name}_0", (state.size or 0,), device, dtype)

    def _add(
        self,
        group: str,
        name: str,
        shape: tuple[int, ...],
        device: Device,
        dtype: torch.dtype | None,
    ) -> None:
        if not group:
            self._refuse_taken(name)
        value = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.get_submodule(group).register_parameter(name, value)

    def _refuse_taken(self, name: str) -> None:
        if hasattr(self, name):
            raise UnitError(
                f"{self.graph.unit.name}: a parameter cannot be called {name!r}, which is taken "
                "by another one or by torch's modules; rename the map or vector"
            )

    def initialise(self, init: Any) -> None:
        """Draws new values; initial states become zero."""
        tensors = self.tensors()
        for key, tensor in tensors.items():
            if not isinstance(tensor, nn.Parameter):
                raise ValueError(
                    f"{key} is computed from other parameters, as by parametrize, weight_norm or "
                    "prune of torch.nn.utils, and cannot be drawn anew; end that first"
                )
        initial.initialise(self.graph, tensors, init)
        with torch.no_grad():
            for state in self.initial_states():
                state.zero_()

    def tensors(self) -> dict[str, Tensor]:
        """The parameters as they are now, by the keys of the graph."""
        found, modules = {}, self._modules
        for key, group, name in self._places:
            owner = modules[group] if group else self
            # The plain case at a tenth of getattr's cost; a parametrised weight is a property.
            value = owner._parameters.get(name)  # type: ignore[union-attr]
            found[key] = self._tensor(group, name) if value is None else value
        return found

    def example(self) -> Tensor:
        """A tensor of the dtype and device of all parameters, also where there are none."""
        if not self._places:
            return cast(Tensor, self._like)
        _, group, name = self._places[0]
        return self._tensor(group, name)

    def _tensor(self, group: str, name: str) -> Tensor:
        owner = self._modules[group] if group else self
        assert owner is not None
        value = owner._parameters.get(name)
        if value is not None:
            return value
        compute_weights(owner)  # as a call of it would, but maps are not called
        return cast(Tensor, getattr(owner, name))

    def initial_states(self) -> tuple[Tensor, ...]:
        """The learned initial states, each (its size,); none if they are not learned."""
        if not self.learn_initial_state:
            return ()
        return tuple(getattr(self, f"{state.name}_0") for state in self.graph.states)

    def __getstate__(self) -> dict[str, Any]:
        # A graph is made of values that are compared by identity: it is traced anew, not copied.
        graph = self.graph
        traced = (graph.unit, graph.input_size, graph.hidden_size, graph.bias)
        return {**self.__dict__, "graph": traced}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "graph": trace(*state["graph"])})  # type: ignore[no-untyped-call]


def _named(extra: Any, sizes: Mapping[str, int]) -> Mapping[str, Tensor]:
    """`extra` by name, if it is tensors; `arguments.extras` refuses anything else."""
    if isinstance(extra, Tensor) and len(sizes) == 1:
        return dict.fromkeys(sizes, extra)
    is_named = isinstance(extra, Mapping) and all(isinstance(t, Tensor) for t in extra.values())
    return extra if is_named else {}


class Cell(DisplayedLayer, Weights):
    """One step of a recurrent unit, called as `torch.nn.GRUCell` (or LSTMCell).

    unit: a registered name, a unit, or its class; its options are further keywords.

    input: (B, input_size) or (input_size,). hx: the state before the step, (B, hidden_size), or a
    tuple of all states for a unit that has several; zeros by default. Returns the same after it.
    extra: what the unit reads beside x, as of a layer, without the axis of time.

    >>> cell = onegate.Cell("mgu", 28, 100)
    >>> h = cell(torch.randn(16, 28))
    """

    def __init__(
        self,
        unit: str | Unit | type[Unit],
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        engine: str = "auto",
        init: Any = None,
        **unit_options: Any,
    ) -> None:
        graph = trace(
            get(unit, **unit_options),
            arguments.positive("input_size", input_size),
            arguments.positive("hidden_size", hidden_size),
            arguments.cell_has_bias(bias),
        )
        super().__init__(graph, arguments.cell_device(device), arguments.dtype(dtype))
        self.engine = arguments.engine(engine)
        self.init = init
        self._sizes = {state.name: state.size or 0 for state in graph.states}
        self._choice = NOT_RUN
        initial.check(init, [graph])
        self.reset_parameters()

    @property
    def unit(self) -> Unit:
        """The unit, with its options."""
        return self.graph.unit

    @property
    def input_size(self) -> int:
        """Width of the input."""
        return self.graph.input_size

    @property
    def hidden_size(self) -> int:
        """Width of the output."""
        return self.graph.hidden_size

    @property
    def bias(self) -> bool:
        """Whether the maps have biases."""
        return self.graph.bias

    def reset_parameters(self) -> None:
        """Draws new values as `init=` says."""
        self.initialise(self.init)

    def engine_report(self) -> Choice:
        """The engine that the last call took, and why."""
        return self._choice

    def forward(self, input: Tensor, hx: States | None = None, *, extra: Any = None) -> States:
        """One step; shapes are those of the class."""
        if type(input) is not Tensor and arguments.is_wrapper(input):
            return arguments.by_wrapper(Cell.forward, self, input, hx, extra=extra)
        arguments.check_input(input, self.graph.input_size, "B")
        batched = input.dim() == 2
        parameters = self.tensors()
        like, sizes = self.example(), self._sizes
        states: tuple[Tensor, ...] = ()
        if hx is not None:
            axes, lead = (("B",), (input.shape[0],)) if batched else ((), ())
            states = arguments.states(hx, sizes, axes, lead, like)
        if extra is None and not torch.compiler.is_compiling():
            found = self._run_directly(input, states, list(parameters.values()))
            if found is not None:
                return found
        arguments.check_alike("input", input, like)  # after shapes, as in torch
        x = input.unsqueeze(0) if batched else input.view(1, 1, -1)
        if not states:
            start = tuple([x.new_zeros(x.shape[1], size) for size in sizes.values()])
        else:
            start = states if batched else tuple(state.unsqueeze(0) for state in states)
        further = NOTHING
        if extra is not None or len(self.graph.inputs) > 1:
            widths = {i.name: i.size or 0 for i in self.graph.inputs[1:]}
            extra = {name: t.unsqueeze(0) for name, t in _named(extra, widths).items()}
            further = Further(arguments.extras(extra, widths, x, "TB" if batched else "T", like))
        directions = (Direction(start, parameters),)
        choice = choose(self.engine, self.graph, x, directions)
        if choice is not self._choice and not torch.compiler.is_compiling():
            self._choice = choice
        given = () if further is NOTHING else (further,)
        _, (new,) = runner(choice)(self.graph, x, directions, None, *given)
        new = new if batched else tuple(state.squeeze(0) for state in new)
        # Copies, not views: a state may be changed in place, and is contiguous.
        new = tuple([state.clone(memory_format=torch.contiguous_format) for state in new])
        return new[0] if len(new) == 1 else new

    def _run_directly(
        self, x: Tensor, states: tuple[Tensor, ...], parameters: list[Tensor]
    ) -> States | None:
        """As a layer's: by the fused engine alone, None where that cannot be."""
        stacks = stacked.whole(self.graph)
        if len(self.graph.inputs) > 1 or not fused_alone(self.engine):
            return None
        kinds = stacked.fits(stacks, x, states, parameters)
        if kinds is None:
            return None
        choice = fused_taken(self.engine, x)
        if choice is not self._choice:
            self._choice = choice
        how = StackedRun(stacks, 1, "bd" if x.dim() == 2 else "d", *kinds, kinds[0])
        new = stacked.run(how, x, states, parameters)
        return new[0] if len(new) == 1 else new

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_choice": None}  # as in layers

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "_choice": NOT_RUN})

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *others: Any) -> None:
        if (problem := translate(state_dict, prefix, self.unit)) is not None:
            others[-1].append(problem)
        super()._load_from_state_dict(state_dict, prefix, *others)

    def extra_repr(self) -> str:
        return ", ".join([*self._asked_for(), *(["bias=False"] if not self.bias else [])])
