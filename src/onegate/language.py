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
import math
import numbers
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NoReturn, Protocol, Self, TypeVar, dataclass_transform

import numpy as np
import torch

from onegate import ops
from onegate.ops import POINTWISE, identity, relu, sigmoid, tanh

__all__ = [
    "LANGUAGE",
    "POINTWISE",
    "Affine",
    "Builder",
    "Fit",
    "Graph",
    "Map",
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
LANGUAGE = f"+ - *, unary minus, {', '.join(sorted(ops.__all__))}, affine maps, vectors and numbers"


class UnitError(ValueError):
    """A unit's equations do not fit together."""


class SizeError(UnitError):
    """They do not fit together at these sizes."""


def flag(name: str, value: Any) -> bool:
    """`value`, if it is True or False, also NumPy's; 0 and 1 are not, as in torch.nn.GRU."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise TypeError(f"{name} is {value!r}, expected True or False")


def whole(name: str, value: Any) -> int:
    """`value` as an int, if it is a whole number, also NumPy's."""
    if not isinstance(value, bool) and getattr(value, "dtype", None) != torch.bool:
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise TypeError(f"{name} is {value!r}, expected a whole number")


def is_number(value: Any) -> bool:
    """Whether `value` is a finite real number, also NumPy's; True and False are not."""
    is_real = not isinstance(value, bool) and isinstance(value, numbers.Real)
    return is_real and math.isfinite(value)


def number(name: str, value: Any) -> float:
    """`value` as a float, or as the int that it is, if it is a finite number, also NumPy's."""
    if is_number(value):
        return value if isinstance(value, int) else float(value)
    raise TypeError(f"{name} is {value!r}, expected a number")


def _not_in_the_language(what: str = "", instead: str = "") -> Callable[..., NoReturn]:
    """A method that refuses an operator, and says what to write instead."""

    def refuse(*_: object) -> NoReturn:
        if what:
            raise UnitError(f"{what} is not in the language; {instead}")
        raise UnitError(f"unknown operation; the language has {LANGUAGE}")

    return refuse


class Value:
    """A vector in a step: an input, a state, a parameter, a number or the result of an operation.

    Values are compared by identity; equal expressions of one `Builder` are the same object.
    size is None for a plain number, which fits any size.

    A graph holds affine maps ("affine", by the name of the map), which the lowering turns into
    products: "product" is init plus each of args times its matrix, whose keys are `weights`.
    """

    __slots__ = ("args", "builder", "init", "name", "number", "op", "size", "weights")

    def __init__(
        self,
        builder: Builder,
        op: str,
        args: tuple[Value, ...] = (),
        size: int | None = None,
        name: str = "",
        number: float = 0.0,
        weights: tuple[str, ...] = (),
        init: Value | None = None,
    ) -> None:
        self.builder, self.op, self.args = builder, op, args
        self.size, self.name, self.number = size, name, number
        self.weights, self.init = weights, init

    @property
    def operands(self) -> tuple[Value, ...]:
        """Everything that must be computed before this."""
        return self.args if self.init is None else (*self.args, self.init)

    def __repr__(self) -> str:
        inner = ", ".join(a.name or a.op for a in self.args)
        text = self.name or (repr(self.number) if self.op == "constant" else f"{self.op}({inner})")
        return f"<{text}: {self.size}>"

    def __add__(self, other: Value | float) -> Value:
        return self.builder.pointwise("add", self, other)

    def __radd__(self, other: float) -> Value:
        return self.builder.pointwise("add", other, self)

    def __sub__(self, other: Value | float) -> Value:
        return self.builder.pointwise("sub", self, other)

    def __rsub__(self, other: float) -> Value:
        return self.builder.pointwise("sub", other, self)

    def __mul__(self, other: Value | float) -> Value:
        return self.builder.pointwise("mul", self, other)

    def __rmul__(self, other: float) -> Value:
        return self.builder.pointwise("mul", other, self)

    def __neg__(self) -> Value:
        return self.builder.pointwise("neg", self)

    __truediv__ = __rtruediv__ = __floordiv__ = __mod__ = _not_in_the_language(
        "division", "multiply by a number instead, such as 0.5 * h"
    )
    __pow__ = __rpow__ = _not_in_the_language("a power", "write a product instead, such as f * f")
    __matmul__ = __rmatmul__ = _not_in_the_language(
        "a matrix product", "declare a map in the class, W = Affine(), and write self.W[h]"
    )
    __lt__ = __gt__ = __le__ = __ge__ = __bool__ = _not_in_the_language(
        "a branch on values",
        "step is called once, for all steps; mix by a gate, such as (1 - f) * h + f * candidate",
    )
    __getitem__ = __iter__ = __len__ = __abs__ = __float__ = _not_in_the_language()

    def __array_ufunc__(self, function: Any, _: str, *operands: Any, **__: Any) -> Value:
        """NumPy's numbers are numbers; its functions are not those of the language."""
        arithmetic = {"add": "add", "subtract": "sub", "multiply": "mul"}
        if function.__name__ not in arithmetic:
            _refuse_function("numpy", function.__name__)
        return self.builder.pointwise(arithmetic[function.__name__], *operands)

    @classmethod
    def __torch_function__(cls, function: Any, *_: object) -> NoReturn:
        _refuse_function("torch", getattr(function, "__name__", str(function)))


def _refuse_function(package: str, name: str) -> NoReturn:
    if name in ops.__all__:
        raise UnitError(f"{package}'s {name} cannot be derived from: use onegate.{name}")
    raise UnitError(f"unknown operation {package} '{name}'; the language has {LANGUAGE}")


class Builder:
    """Makes values, each once."""

    def __init__(self) -> None:
        self.made: dict[tuple[object, ...], Value] = {}

    def make(
        self,
        op: str,
        args: tuple[Value, ...] = (),
        size: int | None = None,
        name: str = "",
        number: float = 0.0,
        weights: tuple[str, ...] = (),
        init: Value | None = None,
    ) -> Value:
        """A value, or the one that was made of the same things."""
        key = (op, args, name, repr(number), weights, init)  # 0.0 == -0.0, but they are not alike
        if key not in self.made:
            self.made[key] = Value(self, op, args, size, name, number, weights, init)
        return self.made[key]

    def constant(self, number: float) -> Value:
        """A number."""
        return self.make("constant", number=float(number))

    def value(self, v: Any) -> Value:
        """`v` itself, or the constant that a number is."""
        return v if isinstance(v, Value) else self.constant(v)

    def pointwise(self, op: str, *operands: Any) -> Value:
        """The result of an operation of the table."""
        args = tuple(self.value(v) for v in operands)
        return self.make(op, args, next((a.size for a in args if a.size is not None), None))


def in_order(results: Iterable[Value]) -> list[Value]:
    """Everything that `results` are computed from, operands first, each once."""
    done: dict[Value, None] = {}
    stack = [(result, False) for result in reversed(list(results))]
    while stack:
        value, ready = stack.pop()
        if value in done:
            continue
        if ready:
            done[value] = None
        else:
            stack.append((value, True))
            stack.extend((operand, False) for operand in reversed(value.operands))
    return list(done)


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
        self.bias = flag("Affine: bias", bias)

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


# Called with every unit's class when it is defined; tracing has its own check here.
CHECKS: list[Callable[[type[Unit]], None]] = []


def _is_known(cls: type, name: str) -> bool:
    """Whether an attribute is an annotated option, or means something for every unit."""
    annotated = {key for base in cls.__mro__ for key in inspect.get_annotations(base)}
    return name.startswith("_") or name in annotated


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

    def __init_subclass__(cls, abstract: bool = False) -> None:
        """Checks the class; abstract: it is a base of units and has no equations of its own."""
        for name, value in list(vars(cls).items()):
            if isinstance(value, (int, float, str)) and not _is_known(cls, name):
                kind = type(value).__name__
                raise UnitError(
                    f"{cls.__name__}: {name} = {value!r} is no option without its type; write "
                    f"{name}: {kind} = {value!r}, or _{name} for what is none"
                )
        dataclass(frozen=True)(cls)
        if not abstract:
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
        total = None if used.bias is None else self.parameters[used.bias]
        for key, operand in zip(used.weights, operands, strict=True):
            product = operand @ self.parameters[key].mT
            total = product if total is None else total + product
        assert total is not None
        return total

    def vector(self, declared: Vector) -> torch.Tensor:
        return self.parameters[declared.name]
