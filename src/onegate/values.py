"""The values that a step computes with: symbolic vectors, each made once by a builder."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch

from onegate import ops

_FUNCTIONS = ", ".join(sorted(ops.__all__))
LANGUAGE = f"+ - * /, unary minus, {_FUNCTIONS}, affine maps, vectors, norms and numbers"
_IT_HAS = f"the language has {LANGUAGE}"


class UnitError(ValueError):
    """A unit's equations do not fit together."""


class SizeError(UnitError):
    """They do not fit together at these sizes."""


def flag(name: str, value: Any) -> bool:
    """`value`, if it is True or False, also NumPy's; 0 and 1 are not, as in torch.nn.GRU."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise TypeError(
        f"{name} should be of type bool, got: {type(value).__name__}; it is {value!r}, expected "
        "True or False"
    )


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


def _not_in_the_language(what: str, instead: str) -> Callable[..., NoReturn]:
    """A method that refuses an operator, and says what to write instead."""

    def refuse(*_: object) -> NoReturn:
        raise UnitError(f"{what} is not in the language; {instead}")

    return refuse


@dataclass(eq=False, repr=False, slots=True)
class Value:
    """A vector in a step: an input, a state, a parameter, a number or the result of an operation.

    Values are compared by identity; equal expressions of one `Builder` are the same object.
    size is None for a plain number, which fits any size.

    A graph holds affine maps ("affine", by the name of the map), which the lowering turns into
    products: "product" is init plus each of args times its matrix, whose keys are `weights`.
    """

    builder: Builder
    op: str
    args: tuple[Value, ...] = ()
    size: int | None = None
    name: str = ""
    number: float = 0.0
    weights: tuple[str, ...] = ()
    init: Value | None = None

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

    def __truediv__(self, other: Value | float) -> Value:
        return self.builder.pointwise("div", self, other)

    def __rtruediv__(self, other: float) -> Value:
        return self.builder.pointwise("div", other, self)

    def __abs__(self) -> Value:
        return self.builder.pointwise("abs", self)

    __floordiv__ = __rfloordiv__ = _not_in_the_language("a rounded division", "write h / 2")
    __mod__ = __rmod__ = _not_in_the_language("a remainder", f"it has {LANGUAGE}")
    __pow__ = __rpow__ = _not_in_the_language(
        "a power", "write a product, such as f * f, or onegate.square(f)"
    )
    __matmul__ = __rmatmul__ = _not_in_the_language(
        "a matrix product", "declare a map in the class, W = Affine(), and write self.W[h]"
    )
    __lt__ = __gt__ = __le__ = __ge__ = __bool__ = _not_in_the_language(
        "a branch on values",
        "step is called once, for all steps; mix by a gate, such as (1 - f) * h + f * candidate, "
        "or take onegate.maximum(f, h)",
    )
    __float__ = __int__ = _not_in_the_language(
        "a function of Python's math, or a value as a plain number,",
        "use onegate's functions, such as onegate.exp(h)",
    )
    __iter__ = __len__ = _part = _not_in_the_language(
        "a part of a vector",
        "equations are of whole vectors; declare a state or a map of the size that you need",
    )

    def __getitem__(self, key: object) -> NoReturn:
        if isinstance(key, Value):
            raise UnitError("a map takes all that it reads at once: write self.W[h, x]")
        self._part()

    if not TYPE_CHECKING:  # which would take it for every name

        def __getattr__(self, name: str) -> NoReturn:
            if name in ops.__all__:
                raise UnitError(f"values have no methods: write onegate.{name}(h), not h.{name}()")
            raise AttributeError(f"a value has no {name}: it is a whole vector; {_IT_HAS}")

    def __array_ufunc__(self, function: Any, _: str, *operands: Any, **__: Any) -> Value:
        """NumPy's numbers are numbers; its functions are not those of the language."""
        arithmetic = {"add": "add", "subtract": "sub", "multiply": "mul", "divide": "div"}
        if function.__name__ not in arithmetic:
            _refuse_function("numpy", function.__name__)
        return self.builder.pointwise(arithmetic[function.__name__], *operands)

    @classmethod
    def __torch_function__(
        cls, function: Any, _: object, operands: tuple[Any, ...] = (), *__: object
    ) -> NoReturn:
        for operand in operands:
            if isinstance(operand, torch.Tensor):
                refuse(operand)
        _refuse_function("torch", getattr(function, "__name__", str(function)))


def _refuse_function(package: str, name: str) -> NoReturn:
    if name in ops.__all__:
        raise UnitError(f"{package}'s {name} cannot be derived from: use onegate.{name}")
    if name in ("cat", "concat", "concatenate", "hstack"):
        raise UnitError(f"{package}'s {name} is not needed: a map takes all it reads, self.W[h, x]")
    raise UnitError(f"unknown operation {package} '{name}'; {_IT_HAS}")


def refuse(operand: object) -> NoReturn:
    """Says why something in an equation is no value, and what to write instead."""
    if isinstance(operand, bool):
        raise UnitError("True, False and comparisons are not in the language; mix by a gate")
    if isinstance(operand, (torch.Tensor, np.ndarray)):
        kind = type(operand).__name__
        raise UnitError(f"{kind} is not a value: write a number, or declare p = Vector()")
    what = repr(operand) if isinstance(operand, numbers.Real) else type(operand).__name__
    raise UnitError(f"{what} is not a value; {_IT_HAS}")


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
