"""One row for every pointwise operation: all that any part of the package knows of it.

A row is callable: in a unit's `step` it makes a symbolic value, on tensors it computes. Its
derivative is written in the same language. So a new operation is a row here, a line in
csrc/operations.h with its vector function, and a test of its values.

A spelling is a template over the operands, `{0}` and `{1}`. What follows a colon is the place that
an operand stands in, and so what needs brackets there; `onegate.export.latex` knows the places.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

# The functions that equations are written with; `onegate` has them too.
__all__ = ["exp", "identity", "relu", "sigmoid", "softplus", "tanh"]

_V = TypeVar("_V")


@dataclass(frozen=True, eq=False)
class Operation:
    """An operation, element by element.

    opcode: its number in encoded programs. These outlive a version of the package, so a number
        is never given to another operation.
    compute: on tensors or numbers.
    derivative: (g, y, *operands) -> for each operand, what g gives it, the gradient at the result
        y; None for operations that stand in backward steps alone.
    kept: the backward step finds the result in the forward step's store. All else it computes
        again.
    role: a `gate` has values between 0 and 1; an `activation` is any other function; `arithmetic`
        is written with a sign; what is `fused` is made by the lowering and stands in no equation.
    latex, text: how it is written; binding: how tightly that holds together. sign: in the picture,
        as mathtext.
    """

    name: str
    opcode: int
    arity: int
    compute: Callable[..., Any]
    derivative: Callable[..., tuple[Any, ...]] | None
    role: Literal["gate", "activation", "arithmetic", "fused"] = "fused"
    kept: bool = False
    latex: str = ""
    text: str = ""  # where it differs from `latex`
    binding: Literal["sum", "product", "atom"] = "atom"
    sign: str = ""

    def __call__(self, *operands: Any) -> Any:
        """The operation on symbolic values (one is enough), tensors or numbers."""
        for operand in operands:
            if (builder := getattr(operand, "builder", None)) is not None:
                return builder.pointwise(self.name, *operands)
        return self.compute(*operands)

    def __repr__(self) -> str:
        return f"<operation {self.name}>"

    def __reduce__(self) -> tuple[Callable[[str], Operation], tuple[str]]:
        return _named, (self.name,)  # a unit may have one as an option, and be pickled


OPERATIONS: dict[str, Operation] = {}


def _named(name: str) -> Operation:
    return OPERATIONS[name]


def _row(
    name: str,
    opcode: int,
    arity: int,
    compute: Callable[..., Any],
    derivative: Callable[..., tuple[Any, ...]] | None = None,
    **more: Any,
) -> Operation:
    taken = [o.name for o in OPERATIONS.values() if opcode == o.opcode or name == o.name]
    assert not taken, f"{name}: the name or the opcode {opcode} is that of {taken[0]}"
    OPERATIONS[name] = Operation(name, opcode, arity, compute, derivative, **more)
    return OPERATIONS[name]


def _function(
    name: str,
    opcode: int,
    compute: Callable[[Tensor], Tensor],
    derivative: Callable[..., tuple[Any, ...]],
    latex: str,
    text: str = "",
    role: str = "activation",
    kept: bool = True,
) -> Operation:
    """A function of one vector; equations write its name before brackets."""
    template = latex.replace("{", "{{").replace("}", "}}") + "({0})"
    spelled = {"latex": template, "text": (text or name) + "({0})", "sign": latex}
    return _row(name, opcode, 1, compute, derivative, role=role, kept=kept, **spelled)


def identity(v: _V) -> _V:
    """The linear activation: `v` itself."""
    return v


# fmt: off
# What equations are made of. The derivative is over g, the result y and the operands.
_row("add", 1, 2, operator.add, lambda g, y, a, b: (g, g),
     role="arithmetic", latex="{0:sum} + {1:term}", binding="sum", sign="+")
_row("sub", 2, 2, operator.sub, lambda g, y, a, b: (g, -g),
     role="arithmetic", latex="{0:sum} - {1:product}", binding="sum", sign="-")
_row("mul", 3, 2, operator.mul, lambda g, y, a, b: (g * b, g * a),
     role="arithmetic", latex=r"{0:factor} \odot {1:factor}", text="{0:factor} ⊙ {1:factor}",
     binding="product", sign=r"\odot")
_row("neg", 4, 1, operator.neg, lambda g, y, a: (-g,),
     role="arithmetic", latex="-{0:product}", binding="sum", sign="-")
sigmoid = _function("sigmoid", 5, torch.sigmoid, lambda g, y, a: (dsigmoid(g, y),),
                    r"\sigma", "σ", role="gate")
tanh = _function("tanh", 6, torch.tanh, lambda g, y, a: (dtanh(g, y),), r"\tanh")
relu = _function("relu", 7, torch.relu, lambda g, y, a: (drelu(g, y),), r"\mathrm{ReLU}", "ReLU")
softplus = _function("softplus", 18, lambda a: F.softplus(a, threshold=50),  # beyond, it is a
                     lambda g, y, a: (g * sigmoid(a),), r"\mathrm{softplus}", kept=False)
exp = _function("exp", 17, torch.exp, lambda g, y, a: (g * y,), r"\exp")

# What the lowering makes of them. Each is computed as it is written here: a shorter form, such as
# a + g (b - a), would be infinite or not a number where the equations are not.
_row("copy", 0, 1, lambda a: a)
_row("lerp", 8, 3, lambda g, a, b: (1 - g) * a + g * b,
     lambda d, y, g, a, b: (d * b - d * a, rest(g, d), d * g))
_row("muladd", 9, 3, lambda a, b, c: a * b + c)
_row("mulsub", 10, 3, lambda a, b, c: a * b - c)
_row("negmuladd", 11, 3, lambda a, b, c: c - a * b)
rest: Operation = _row("rest", 12, 2, lambda g, a: (1 - g) * a)
dsigmoid: Operation = _row("dsigmoid", 13, 2, lambda g, y: g * (y - y * y))
dtanh: Operation = _row("dtanh", 14, 2, lambda g, y: g * (1 - y * y))
drelu: Operation = _row("drelu", 15, 2, lambda g, y: torch.where(y <= 0, 0.0, g))
_row("reduce", 16, 1, lambda a: a.sum(0))  # over rows and steps, to a parameter's gradient
# fmt: on

# What may stand in equations.
POINTWISE = tuple(name for name, row in OPERATIONS.items() if row.role != "fused")


def is_function(op: str) -> bool:
    """Whether `op` is a gate or another activation, and not a sum, a product or a leaf."""
    return op in OPERATIONS and OPERATIONS[op].role in ("gate", "activation")


def is_gate(op: str) -> bool:
    """Whether values of `op` lie between 0 and 1."""
    return op in OPERATIONS and OPERATIONS[op].role == "gate"
