"""The small language in which a recurrent unit is written.

A unit is a class with one method, `step`, which reads like the equations of its
paper. Called on tensors (see `Unit.bind`) it computes; called once on symbolic values (see
`onegate.tracing`) it yields a `Graph`, from which everything else is derived.

    class MGU(Unit):
        W_f = Affine()
        W_h = Affine()

        def step(self, x, h):
            f = sigmoid(self.W_f[h, x])
            candidate = tanh(self.W_h[f * h, x])
            return (1 - f) * h + f * candidate
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import FrozenInstanceError, dataclass, field, fields
from typing import Any, ClassVar, NoReturn, Protocol, Self, TypeVar, dataclass_transform

import torch

from onegate.ops import OPERATIONS, POINTWISE, identity, relu, sigmoid, tanh
from onegate.values import (
    LANGUAGE,
    Builder,
    SizeError,
    UnitError,
    Value,
    flag,
    in_order,
    number,
    whole,
)

__all__ = [
    "LANGUAGE",
    "POINTWISE",
    "Affine",
    "Builder",
    "Diagonal",
    "Fit",
    "Graph",
    "LayerNorm",
    "Map",
    "Norm",
    "RMSNorm",
    "SizeError",
    "Unit",
    "UnitError",
    "Value",
    "Vector",
    "identity",
    "in_order",
    "relu",
    "sigmoid",
    "tanh",
]

_V = TypeVar("_V")


class _Scope(Protocol):
    """What a unit's maps and vectors mean while `step` runs."""

    def affine(self, declared: Affine, operands: tuple[Any, ...]) -> Any: ...

    def vector(self, declared: Vector) -> Any: ...

    def norm(self, declared: Norm, operands: tuple[Any, ...]) -> Any: ...


class _Declared:
    """A parameter group of a unit, declared in the class body."""

    name: str

    def __init__(self, like: str | None = None) -> None:
        self.like = like

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __getitem__(self, _: object) -> NoReturn:
        kind = type(self).__name__
        raise UnitError(f"declare it in the class, W = {kind}(), and write self.W[...] in step")

    def key(self) -> str:
        """The name in a state dict: `W_f` is `f`, any other name stays."""
        return self.name.removeprefix("W_") or self.name


class Affine(_Declared):
    """An affine map `W [a, b] + bias` of one or more vectors, written `self.W[a, b]`.

    like: the state, or the integer option of the unit, whose size the result has (default: the
        unit's first state).
    bias: whether there is a bias at all; a layer made with `bias=False` has none anywhere.
    heads: so many blocks on the diagonal and zero elsewhere, each from its share of an operand to
        its share of the result. A matrix is then (heads, rows of a block, columns of a block).
    rank: each matrix is a product of two, (size, rank) and (rank, size of the operand).

    heads and rank are numbers, or the names of integer options of the unit.
    """

    def __init__(
        self,
        like: str | None = None,
        bias: bool = True,
        *,
        heads: int | str = 1,
        rank: int | str | None = None,
    ) -> None:
        super().__init__(like)
        self.bias = flag("Affine: bias", bias)
        self.heads, self.rank = heads, rank
        if rank is not None and heads != 1:
            raise UnitError("Affine: a map has heads or a rank, not both")

    def __get__(self, unit: Unit | None, owner: type) -> Any:
        return self if unit is None else _AppliedMap(self, unit)


class Fit(Affine):
    """`self.W[v]` is `v` itself where `v` already has the size of the result.

    Where it has not, it is a map of `v` without a bias. For papers that add an input to a state as
    if the two always had one size.
    """

    def __init__(self, like: str | None = None) -> None:
        super().__init__(like, bias=False)


# By annotation, which is a string where annotations are not evaluated.
_OF_TYPE: Mapping[object, Callable[[str, Any], Any]] = {
    "bool": flag,
    "int": whole,
    "float": number,
}


class _Applied:
    """A map, diagonal or norm of a unit, to be applied in brackets."""

    def __init__(self, declared: Any, unit: Unit) -> None:
        self.declared, self.unit = declared, unit

    def __call__(self, *_: object) -> NoReturn:
        name = self.declared.name
        raise UnitError(f"{name} is applied in brackets, {name}[h, x], not called")


class _AppliedMap(_Applied):
    def __getitem__(self, operands: Any) -> Any:
        operands = operands if isinstance(operands, tuple) else (operands,)
        return self.unit._scope_of(self.declared).affine(self.declared, operands)


class Vector(_Declared):
    """A learned vector, one number per element: a peephole `self.p * c`, a bare bias."""

    def __get__(self, unit: Unit | None, owner: type) -> Any:
        return self if unit is None else unit._scope_of(self).vector(self)


class Diagonal(Vector):
    """A map with a diagonal matrix, written `self.U[h]`: each element times its own number."""

    def __get__(self, unit: Unit | None, owner: type) -> Any:
        return self if unit is None else _AppliedDiagonal(self, unit)


class _AppliedDiagonal(_Applied):
    def __getitem__(self, operand: Any) -> Any:
        return self.unit._scope_of(self.declared).vector(self.declared) * operand


class Norm(_Declared):
    """A normalisation of vectors, written `self.N[a]`; see `LayerNorm` and `RMSNorm`.

    `self.N[a, b]` normalises vectors of one size with the statistics of all of them together, and
    returns as many.

    gain, shift: whether each element is then multiplied by, and added to, a learned number of its
        own (N.gain, N.shift). A layer made with `bias=False` has no shift.
    eps: is added to the variance.
    """

    operation: ClassVar[str]

    def __init__(self, gain: bool = True, shift: bool = True, eps: float = 1e-5) -> None:
        super().__init__()
        kind = type(self).__name__
        self.gain, self.shift = flag(f"{kind}: gain", gain), flag(f"{kind}: shift", shift)
        self.eps = number(f"{kind}: eps", eps)

    def __get__(self, unit: Unit | None, owner: type) -> Any:
        return self if unit is None else _AppliedNorm(self, unit)


class LayerNorm(Norm):
    """To mean 0 and variance 1 over the elements (Ba, Kiros and Hinton 2016)."""

    operation = "layer_norm"


class RMSNorm(Norm):
    """To a mean square of 1 over the elements (Zhang and Sennrich 2019)."""

    operation = "rms_norm"

    def __init__(self, gain: bool = True, shift: bool = False, eps: float = 1e-5) -> None:
        super().__init__(gain, shift, eps)


class _AppliedNorm(_Applied):
    def __getitem__(self, operands: Any) -> Any:
        together = operands if isinstance(operands, tuple) else (operands,)
        results = self.unit._scope_of(self.declared).norm(self.declared, together)
        return results if isinstance(operands, tuple) else results[0]


# Called with every unit's class when it is defined; tracing has its own check here.
CHECKS: list[Callable[[type[Unit]], None]] = []


def is_ours(kind: type[Unit]) -> bool:
    """Whether a unit comes with the package: the tests check these, not every import."""
    return kind.__module__.startswith("onegate.units.")


class _Frozen:
    """What a dataclass refuses for its own fields, refused for every attribute."""

    def __setattr__(self, name: str, value: object) -> NoReturn:
        if isinstance(value, _Declared):
            kind = f"{type(value).__name__}()"
            raise UnitError(
                f"{type(self).__name__}: declare {name} = {kind} in the class, not in a method"
            )
        raise FrozenInstanceError(f"cannot assign to {name}: a unit does not change")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete {name}: a unit does not change")


@dataclass_transform(frozen_default=True)
@dataclass(frozen=True)
class Unit(_Frozen):
    """A recurrent unit: its states, its parameters and its equations.

    Subclasses become frozen dataclasses: options are annotated fields, and equal units are equal.
    They declare `Affine` maps, `Vector` parameters and norms in the class body, and write
    `step(self, x, *states)`, which returns the new states in the order of `states`. The first is
    the output.

    A unit that reads more than x at each step (time gaps, what is missing) names it all in
    `inputs`, and `step` takes them in that order before the states; layers take what is not x as
    `extra=`.
    """

    inputs: ClassVar[tuple[str, ...]] = ("x",)
    states: ClassVar[tuple[str, ...]] = ("h",)
    title: ClassVar[str] = ""
    citation: ClassVar[str] = ""
    registered: ClassVar[str] = ""
    _fits_sizes: ClassVar[bool] = False  # traced with inputs and states of two sizes
    # Initialisers by parameter, see onegate.nn.init; what is not named takes the layer's default.
    init: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls, abstract: bool = False) -> None:
        """Checks the class; abstract: it is a base of units and has no equations of its own."""
        own = inspect.get_annotations(cls)
        # What means something for every unit has its type there; an option that a base has, and
        # that stands here with another value alone, would keep the value of the base.
        known = {key for base in cls.__mro__ for key in inspect.get_annotations(base)}
        known -= {option.name for option in fields(cls)} - own.keys()
        for name, value in list(vars(cls).items()):
            if isinstance(value, type) and issubclass(value, _Declared):
                kind = value.__name__
                raise UnitError(f"{cls.__name__}: write {name} = {kind}(), not {name} = {kind}")
            if (
                isinstance(value, (int, float, str))
                and not name.startswith("_")
                and name not in known
            ):
                kind = type(value).__name__
                raise UnitError(
                    f"{cls.__name__}: {name} = {value!r} is no option without its type; write "
                    f"{name}: {kind} = {value!r}, or _{name} for what is none"
                )
        if own:  # else all that makes a dataclass is inherited
            dataclass(frozen=True)(cls)
        if not (abstract or is_ours(cls)):
            for check in CHECKS:
                check(cls)

    def __post_init__(self) -> None:
        """Refuses options that are not of the type they are annotated with."""
        for option in fields(self):
            check = _OF_TYPE.get(getattr(option.type, "__name__", option.type))
            if check is None:
                continue
            try:
                value = check(f"{self.name}: {option.name}", getattr(self, option.name))
            except TypeError as error:
                raise UnitError(str(error)) from None
            object.__setattr__(self, option.name, value)

    def step(self, x: Any, *states: Any) -> Any:
        """One step: the input and the states before it -> the states after it."""
        raise NotImplementedError(f"{type(self).__name__} has no step(self, x, *states)")

    def state_sizes(self, hidden_size: int) -> dict[str, int]:
        """Size of each state for a layer of `hidden_size` neurons."""
        return dict.fromkeys(self.states, hidden_size)

    def input_sizes(self, input_size: int, hidden_size: int) -> dict[str, int]:  # noqa: ARG002
        """Size of each input of a layer; all are as wide as x where a unit does not say so."""
        return dict.fromkeys(self.inputs, input_size)

    @property
    def name(self) -> str:
        """The unit's name in messages; the registry's name for a registered unit."""
        kind = type(self)
        return vars(kind).get("registered") or kind.__name__

    def options(self) -> dict[str, Any]:
        """The unit's options and their values."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def size_of(self, like: str | None, hidden_size: int) -> int:
        """Size meant by a declaration's `like`."""
        sizes = self.state_sizes(hidden_size)
        if like is None:
            return sizes[self.states[0]]
        size = sizes.get(like, self.options().get(like))
        if not isinstance(size, int):
            raise UnitError(
                f"like={like!r} names neither a state {self.states} "
                f"nor an integer option {tuple(self.options())}"
            )
        return size

    def count_of(self, what: str, value: int | str) -> int:
        """A declaration's number of heads, or its rank: as it is, or an option's value."""
        found = self.options().get(value) if isinstance(value, str) else value
        if isinstance(found, bool) or not isinstance(found, int) or found < 1:
            raise UnitError(
                f"{what}={value!r}: expected a whole number of 1 or more, or the name of an option "
                f"that is one of {tuple(self.options())}"
            )
        return found

    def bind(self, graph: Graph, parameters: Mapping[str, torch.Tensor]) -> Self:
        """The same unit with values for its parameters: its `step` computes on tensors.

        >>> unit.bind(graph, parameters).step(x, h)
        """
        return self.within(_Bound(graph, parameters))

    def within(self, scope: _Scope) -> Self:
        """The same unit with maps and vectors that mean what `scope` says."""
        unit = copy.copy(self)
        object.__setattr__(unit, "_scope", scope)
        return unit

    def _scope_of(self, declared: _Declared) -> _Scope:
        scope: _Scope | None = getattr(self, "_scope", None)
        if scope is None:
            raise UnitError(
                f"{self.name}: {declared.name} has no values here; "
                "make a layer of the unit, or call unit.bind(graph, parameters)"
            )
        return scope


@dataclass(frozen=True)
class Map:
    """An affine map as used: its operands, and the keys of its parameters.

    weights[i] is the key of the matrix (size, operands[i].size), with several heads (heads, size /
    heads, operands[i].size / heads); bias is None where there is none.
    """

    name: str
    operands: tuple[Value, ...]
    weights: tuple[str, ...]
    bias: str | None


@dataclass(frozen=True, eq=False)
class Graph:
    """One step of a unit at given sizes.

    inputs: x first. nodes: every value that the new states depend on, in the order in which `step`
    made them.
    maps: by affine node. names: the local names of `step`, for those nodes that have one.
    parameters: key -> shape, in the order of use. masks: see `onegate.lowering.masks`.
    derived: what `of_graph` remembers.
    """

    unit: Unit
    input_size: int
    hidden_size: int
    bias: bool
    inputs: tuple[Value, ...]
    states: tuple[Value, ...]
    results: tuple[Value, ...]
    nodes: tuple[Value, ...]
    maps: Mapping[Value, Map]
    names: Mapping[Value, str]
    parameters: Mapping[str, tuple[int, ...]]
    masks: tuple[str, ...] = ()
    derived: dict[object, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def input(self) -> Value:
        return self.inputs[0]

    def parameter_count(self) -> int:
        """How many numbers are learned in one layer and direction."""
        return sum(functools.reduce(int.__mul__, shape) for shape in self.parameters.values())

    def depends_on(self, node: Value, leaves: Iterable[Value]) -> bool:
        """Whether `node` is, or is computed from, one of `leaves`."""
        return not set(leaves).isdisjoint(in_order([node]))


def of_graph(
    function: Callable[[Graph], _V],
) -> functools._Wrapped[[Graph], _V, [Graph], _V]:
    """Remembers what `function` makes of a graph, in the graph: the two are freed together."""

    @functools.wraps(function)
    def remembered(graph: Graph) -> _V:
        made: _V | None = graph.derived.get(function)
        if made is None:
            made = graph.derived[function] = function(graph)
        return made

    return remembered


class _Bound:
    """Tensors for a unit's parameters: maps compute."""

    def __init__(self, graph: Graph, parameters: Mapping[str, torch.Tensor]) -> None:
        self.maps = {m.name: m for m in graph.maps.values()}
        self.parameters = parameters

    def affine(self, declared: Affine, operands: tuple[torch.Tensor, ...]) -> torch.Tensor:
        if isinstance(declared, Fit) and declared.name not in self.maps:
            return operands[0]
        used = self.maps[declared.name]
        if declared.rank is not None:
            low = [self.maps[inner.name].weights[0] for inner in used.operands]
            operands = tuple(self._times(key, v) for key, v in zip(low, operands, strict=True))
        total = None if used.bias is None else self.parameters[used.bias]
        for key, operand in zip(used.weights, operands, strict=True):
            product = self._times(key, operand)
            total = product if total is None else total + product
        assert total is not None
        return total

    def _times(self, key: str, operand: torch.Tensor) -> torch.Tensor:
        matrix = self.parameters[key]
        if matrix.dim() < 3:
            return operand @ matrix.mT
        shares = operand.unflatten(-1, (matrix.shape[0], 1, -1))  # (..., heads, 1, columns)
        product: torch.Tensor = shares @ matrix.mT
        return product.flatten(-3)

    def vector(self, declared: Vector) -> torch.Tensor:
        return self.parameters[declared.name]

    def norm(self, declared: Norm, operands: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        results = []
        for place, operand in enumerate(operands):
            others = operands[:place] + operands[place + 1 :]
            result = OPERATIONS[declared.operation].compute(operand, declared.eps, *others)
            gain, shift = (self.parameters.get(key) for key in norm_keys(declared, operands, place))
            result = result if gain is None else gain * result
            results.append(result if shift is None else result + shift)
        return tuple(results)


def norm_keys(declared: Norm, operands: tuple[Any, ...], place: int) -> tuple[str, str]:
    """The keys of gain and shift; of several operands each has its own."""
    number = f"_{place + 1}" if len(operands) > 1 else ""
    return f"{declared.key()}.gain{number}", f"{declared.key()}.shift{number}"
