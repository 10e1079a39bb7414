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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NoReturn, Protocol, Self, TypeVar, dataclass_transform, overload

import torch

POINTWISE = ("add", "sub", "mul", "neg", "sigmoid", "tanh", "relu")
LANGUAGE = "+ - *, unary minus, sigmoid, tanh, relu, identity, affine maps, vectors and numbers"


class UnitError(ValueError):
    """A unit's equations do not fit together."""


class _Operations(Protocol):
    """What makes the result of an operation on symbolic values."""

    def pointwise(self, op: str, *operands: Value | float) -> Value: ...


class Value:
    """A vector in a unit's graph: an input, a state, a parameter, a number or a result.

    Values are compared by identity; equal expressions of one trace are the same object.
    `size` is None for a plain number, which fits any size.
    """

    __slots__ = ("args", "name", "number", "op", "size", "trace")
    __array_ufunc__ = None

    def __init__(
        self,
        trace: _Operations,
        op: str,
        args: tuple[Value, ...] = (),
        size: int | None = None,
        name: str = "",
        number: float = 0.0,
    ) -> None:
        self.trace, self.op, self.args = trace, op, args
        self.size, self.name, self.number = size, name, number

    def __repr__(self) -> str:
        inner = ", ".join(a.name or a.op for a in self.args)
        text = self.name or (repr(self.number) if self.op == "constant" else f"{self.op}({inner})")
        return f"<{text}: {self.size}>"

    def __add__(self, other: Value | float) -> Value:
        return self.trace.pointwise("add", self, other)

    def __radd__(self, other: float) -> Value:
        return self.trace.pointwise("add", other, self)

    def __sub__(self, other: Value | float) -> Value:
        return self.trace.pointwise("sub", self, other)

    def __rsub__(self, other: float) -> Value:
        return self.trace.pointwise("sub", other, self)

    def __mul__(self, other: Value | float) -> Value:
        return self.trace.pointwise("mul", self, other)

    def __rmul__(self, other: float) -> Value:
        return self.trace.pointwise("mul", other, self)

    def __neg__(self) -> Value:
        return self.trace.pointwise("neg", self)

    def _unknown(self, *_: object) -> NoReturn:
        raise UnitError(f"unknown operation; the language has {LANGUAGE}")

    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __matmul__ = __rmatmul__ = _unknown
    __mod__ = __floordiv__ = __lt__ = __gt__ = __le__ = __ge__ = __getitem__ = _unknown
    __abs__ = __bool__ = __iter__ = __len__ = __float__ = _unknown

    @classmethod
    def __torch_function__(cls, func: Any, *_: object) -> NoReturn:
        name = getattr(func, "__name__", func)
        raise UnitError(f"unknown operation torch '{name}'; the language has {LANGUAGE}")


@overload
def sigmoid(v: Value) -> Value: ...
@overload
def sigmoid(v: torch.Tensor) -> torch.Tensor: ...
def sigmoid(v: Value | torch.Tensor) -> Value | torch.Tensor:
    """1 / (1 + exp(-v)), element by element."""
    return v.trace.pointwise("sigmoid", v) if isinstance(v, Value) else torch.sigmoid(v)


@overload
def tanh(v: Value) -> Value: ...
@overload
def tanh(v: torch.Tensor) -> torch.Tensor: ...
def tanh(v: Value | torch.Tensor) -> Value | torch.Tensor:
    """Hyperbolic tangent, element by element."""
    return v.trace.pointwise("tanh", v) if isinstance(v, Value) else torch.tanh(v)


@overload
def relu(v: Value) -> Value: ...
@overload
def relu(v: torch.Tensor) -> torch.Tensor: ...
def relu(v: Value | torch.Tensor) -> Value | torch.Tensor:
    """max(v, 0), element by element; its slope at 0 is 0."""
    return v.trace.pointwise("relu", v) if isinstance(v, Value) else torch.relu(v)


_V = TypeVar("_V")


def identity(v: _V) -> _V:
    """V itself: the linear activation."""
    return v


class _Scope(Protocol):
    """What a unit's maps and vectors mean while `step` runs."""

    def affine(self, declared: Affine, operands: tuple[Any, ...]) -> Any: ...

    def vector(self, declared: Vector) -> Any: ...


class _Declared:
    """A parameter group of a unit, declared in the class body."""

    name: str

    def __init__(self, like: str | None = None) -> None:
        self.like = like

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def key(self) -> str:
        """The name in a state dict: `W_f` is `f`, any other name stays."""
        return self.name.removeprefix("W_") or self.name


class Affine(_Declared):
    """An affine map `W [a, b] + bias` of one or more vectors, written `self.W[a, b]`.

    like: the state, or the integer option of the unit, whose size the result has (default: the
        unit's first state).
    bias: whether there is a bias at all; a layer made with `bias=False` has none anywhere.
    """

    def __init__(self, like: str | None = None, bias: bool = True) -> None:
        super().__init__(like)
        self.bias = bias

    def __get__(self, unit: Unit | None, owner: type) -> Any:
        return self if unit is None else _AppliedMap(self, unit)


class Fit(Affine):
    """`self.W[v]` is `v` itself where `v` already has the size of the result.

    Where it has not, it is a map of `v` without a bias. For papers that add an input to a state as
    if the two always had one size.
    """

    def __init__(self, like: str | None = None) -> None:
        super().__init__(like, bias=False)


class _AppliedMap:
    def __init__(self, declared: Affine, unit: Unit) -> None:
        self.declared, self.unit = declared, unit

    def __getitem__(self, operands: Any) -> Any:
        operands = operands if isinstance(operands, tuple) else (operands,)
        return self.unit._scope_of(self.declared).affine(self.declared, operands)


class Vector(_Declared):
    """A learned vector, one number per element: a peephole `self.p * c`, a bare bias."""

    def __get__(self, unit: Unit | None, owner: type) -> Any:
        return self if unit is None else unit._scope_of(self).vector(self)


@dataclass_transform(frozen_default=True)
@dataclass(frozen=True)
class Unit:
    """A recurrent unit: its states, its parameters and its equations.

    Subclasses become frozen dataclasses: options are annotated fields, and equal units are equal.
    They declare `Affine` maps and `Vector` parameters in the class body, and write `step(self, x,
    *states)`, which returns the new states in the order of `states`. The first is the output.
    """

    states: ClassVar[tuple[str, ...]] = ("h",)
    title: ClassVar[str] = ""
    citation: ClassVar[str] = ""
    registered: ClassVar[str] = ""
    # Initialisers by parameter, see onegate.nn.init; what is not named takes the layer's default.
    init: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)

    def step(self, x: Any, *states: Any) -> Any:
        """One step: the input and the states before it -> the states after it."""
        raise NotImplementedError(f"{type(self).__name__} has no step(self, x, *states)")

    def state_sizes(self, hidden_size: int) -> dict[str, int]:
        """Size of each state for a layer of `hidden_size` units."""
        return dict.fromkeys(self.states, hidden_size)

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

    weights[i] is the key of the matrix (size, operands[i].size); bias is None where there is none.
    """

    name: str
    operands: tuple[Value, ...]
    weights: tuple[str, ...]
    bias: str | None


@dataclass(frozen=True, eq=False)
class Graph:
    """One step of a unit at given sizes.

    nodes: every value that the new states depend on, in the order in which `step` made them.
    maps: by affine node. names: the local names of `step`, for those nodes that have one.
    parameters: key -> shape, in the order of use. derived: what `of_graph` remembers.
    """

    unit: Unit
    input_size: int
    hidden_size: int
    bias: bool
    input: Value
    states: tuple[Value, ...]
    results: tuple[Value, ...]
    nodes: tuple[Value, ...]
    maps: Mapping[Value, Map]
    names: Mapping[Value, str]
    parameters: Mapping[str, tuple[int, ...]]
    derived: dict[object, Any] = field(default_factory=dict, init=False, repr=False)

    def parameter_count(self) -> int:
        """How many numbers are learned in one layer and direction."""
        return sum(functools.reduce(int.__mul__, shape) for shape in self.parameters.values())

    def depends_on(self, node: Value, leaves: Iterable[Value]) -> bool:
        """Whether `node` is, or is computed from, one of `leaves`."""
        leaves = set(leaves)
        return node in leaves or any(self.depends_on(a, leaves) for a in node.args)


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
        total = None if used.bias is None else self.parameters[used.bias]
        for key, operand in zip(used.weights, operands, strict=True):
            product = operand @ self.parameters[key].mT
            total = product if total is None else total + product
        assert total is not None
        return total

    def vector(self, declared: Vector) -> torch.Tensor:
        return self.parameters[declared.name]
