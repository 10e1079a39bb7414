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

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

# The functions that equations are written with; `onegate` has them too.
__all__ = [
    "abs", "exp", "hard_sigmoid", "hard_tanh", "identity", "log", "maximum", "minimum", "relu",
    "sigmoid", "silu", "softplus", "sqrt", "square", "tanh",
]  # fmt: skip

_V = TypeVar("_V")


@dataclass(frozen=True, eq=False)
class Operation:
    """An operation, element by element but for those over a row.

    opcode: its number in encoded programs. These outlive a version of the package, so a number
        is never given to another operation. Norms have none: programs hold what they are made of.
    compute: on tensors or numbers.
    derivative: (g, y, *operands) -> for each operand, what g gives it, the gradient at the result
        y; None for operations that stand in backward steps alone.
    kept: the backward step finds the result in the forward step's store. All else it computes
        again.
    role: a `gate` has values between 0 and 1; an `activation` is any other function; `arithmetic`
        is written with a sign; a `norm` is over all elements of a row, and equations declare it;
        what is `fused` is made by the lowering and stands in no equation.
    narrow: the operands, by their places, that are one number for each row where the others are
        vectors; -1 among them: so is the result, a sum or mean over the row.
    latex, text: how it is written; binding: how tightly that holds together. sign: in the picture,
        as mathtext.
    c: over float32 operands, with the functions of export/runtime. onnx: the name of ONNX's
        operator, or (add, *operands) -> the value, where add(name, ...) adds an operator.
    """

    name: str
    opcode: int | None
    arity: int
    compute: Callable[..., Any]
    derivative: Callable[..., tuple[Any, ...]] | None
    role: Literal["gate", "activation", "arithmetic", "norm", "fused"] = "fused"
    kept: bool = False
    narrow: tuple[int, ...] = ()
    latex: str = ""
    text: str = ""  # where it differs from `latex`
    binding: Literal["sum", "product", "atom"] = "atom"
    sign: str = ""
    c: str = ""
    onnx: str | Callable[..., Any] = ""

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
    opcode: int | None,
    arity: int,
    compute: Callable[..., Any],
    derivative: Callable[..., tuple[Any, ...]] | None = None,
    **more: Any,
) -> Operation:
    same = [o for o in OPERATIONS.values() if name == o.name or o.opcode == opcode is not None]
    assert not same, f"{name}: the name or the opcode {opcode} is that of {same[0].name}"
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
    **spelled: Any,
) -> Operation:
    """A function of one vector; equations write its name before brackets."""
    template = latex.replace("{", "{{").replace("}", "}}") + "({0})"
    spelled = {"latex": template, "text": (text or name) + "({0})", "sign": latex, **spelled}
    return _row(name, opcode, 1, compute, derivative, role=role, kept=kept, **spelled)


def _of_two(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Any, Any], Tensor]:
    """A function of two tensors, of which one may be a number."""

    def compute(a: Any, b: Any) -> Tensor:
        if not isinstance(a, Tensor):
            a = b.new_full((), a)
        return function(a, b if isinstance(b, Tensor) else a.new_full((), b))

    return compute


def _layer_norm(a: Tensor, eps: float, *others: Tensor) -> Tensor:
    """`a` with mean 0 and variance 1 over the last axis, of `others` too if there are any."""
    if not others:
        return F.layer_norm(a, a.shape[-1:], eps=eps)
    centre = _mean(a, *others)
    squares = [torch.square(v - centre) for v in (a, *others)]
    return (a - centre) / torch.sqrt(_mean(*squares) + eps)


def _rms_norm(a: Tensor, eps: float, *others: Tensor) -> Tensor:
    return a / torch.sqrt(_mean(*map(torch.square, (a, *others))) + eps)


def _mean(*vectors: Tensor) -> Tensor:
    """Over the last axis, which stays."""
    return sum(v.mean(-1, keepdim=True) for v in vectors) / len(vectors)  # type: ignore[return-value]


def _dsilu(g: Tensor, s: Tensor, a: Tensor) -> Tensor:
    return g * s * (1 + a * (1 - s))


def _onnx_norm(add: Any, a: Any, eps: Any, others: tuple[Any, ...], centred: bool) -> Any:
    """`a` over the root of the mean square of a row, after its mean was taken from it or not."""

    def mean(values: list[Any]) -> Any:
        # Not of all side by side: a learned vector has no batch.
        total, *others = (add("ReduceMean", v, np.array([-1])) for v in values)
        for other in others:
            total = add("Add", total, other)
        return add("Div", total, float(len(values))) if others else total

    values = [a, *others]
    if centred:
        centre = mean(values)
        values = [add("Sub", v, centre) for v in values]
    square = mean([add("Mul", v, v) for v in values])
    return add("Div", values[0], add("Sqrt", add("Add", square, eps)))


def identity(v: _V) -> _V:
    """The linear activation: `v` itself."""
    return v


# fmt: off
# What equations are made of. The derivative is over g, the result y and the operands.
_row("add", 1, 2, operator.add, lambda g, y, a, b: (g, g),
     role="arithmetic", latex="{0:sum} + {1:term}", binding="sum", sign="+",
     c="{0} + {1}", onnx="Add")
_row("sub", 2, 2, operator.sub, lambda g, y, a, b: (g, -g),
     role="arithmetic", latex="{0:sum} - {1:product}", binding="sum", sign="-",
     c="{0} - {1}", onnx="Sub")
_row("mul", 3, 2, operator.mul, lambda g, y, a, b: (g * b, g * a),
     role="arithmetic", latex=r"{0:factor} \odot {1:factor}", text="{0:factor} ⊙ {1:factor}",
     binding="product", sign=r"\odot", c="{0} * {1}", onnx="Mul")
_row("div", 19, 2, operator.truediv, lambda g, y, a, b: (g / b, -g * (y / b)),
     role="arithmetic", latex=r"\frac{{{0}}}{{{1}}}", text="{0:factor} / {1:atom}",
     binding="product", sign=r"\div", c="{0} / {1}", onnx="Div")
# At a tie each of the two has half of the gradient, as in torch.
maximum = _row("maximum", 20, 2, _of_two(torch.maximum),
               lambda g, y, a, b: (dmaximum(g, a, b), dmaximum(g, b, a)),
               role="arithmetic", latex=r"\max({0}, {1})", text="max({0}, {1})", sign=r"\max",
               c="maximumf_({0}, {1})", onnx="Max")
minimum = _row("minimum", 21, 2, _of_two(torch.minimum),
               lambda g, y, a, b: (dmaximum(g, b, a), dmaximum(g, a, b)),
               role="arithmetic", latex=r"\min({0}, {1})", text="min({0}, {1})", sign=r"\min",
               c="minimumf_({0}, {1})", onnx="Min")
_row("neg", 4, 1, operator.neg, lambda g, y, a: (-g,),
     role="arithmetic", latex="-{0:product}", binding="sum", sign="-",
     c="-{0}", onnx="Neg")
sigmoid = _function("sigmoid", 5, torch.sigmoid, lambda g, y, a: (dsigmoid(g, y),),
                    r"\sigma", "σ", role="gate", c="sigmoidf_({0})", onnx="Sigmoid")
tanh = _function("tanh", 6, torch.tanh, lambda g, y, a: (dtanh(g, y),), r"\tanh",
                 c="tanhf_({0})", onnx="Tanh")
relu = _function("relu", 7, torch.relu, lambda g, y, a: (drelu(g, y),), r"\mathrm{ReLU}", "ReLU",
                 c="reluf_({0})", onnx="Relu")
softplus = _function("softplus", 18, lambda a: F.softplus(a, threshold=50),  # beyond, it is a
                     lambda g, y, a: (g * sigmoid(a),), r"\mathrm{softplus}", kept=False,
                     c="softplusf_({0})", onnx="Softplus")
exp = _function("exp", 17, torch.exp, lambda g, y, a: (g * y,), r"\exp",
                c="expf_({0})", onnx="Exp")
log = _function("log", 22, torch.log, lambda g, y, a: (g / a,), r"\log", kept=False,
                c="logf_({0})", onnx="Log")
abs = _row("abs", 23, 1, operator.abs, lambda g, y, a: (g * sign(a),),
           role="activation", latex=r"\lvert {0} \rvert", text="|{0}|", sign=r"|\cdot|",
           c="absf_({0})", onnx="Abs")
sqrt = _row("sqrt", 24, 1, torch.sqrt, lambda g, y, a: (g / (2 * y),),
            role="activation", kept=True, latex=r"\sqrt{{{0}}}", text="√({0})",
            sign=r"\sqrt{\cdot}", c="sqrtf_({0})", onnx="Sqrt")
square = _row("square", 25, 1, torch.square, lambda g, y, a: (g * (2 * a),),
              role="activation", latex="{0:atom}^2", text="{0:atom}²", binding="product",
              sign=r"(\cdot)^2", c="{0} * {0}", onnx=lambda add, a: add("Mul", a, a))
silu = _function("silu", 26, F.silu, lambda g, y, a: (dsilu(g, a),), r"\mathrm{SiLU}", "SiLU",
                 kept=False, c="{0} / (1.0f + expf_(-{0}))",
                 onnx=lambda add, a: add("Mul", a, add("Sigmoid", a)))
# As in torch: (a + 3) / 6 between 0 and 1; a between -1 and 1. At the corners the slope is 0. The
# slope of torch's own hardsigmoid is 1/6 in float32, also of float64.
hard_sigmoid = _function("hard_sigmoid", 27, lambda a: F.hardtanh(a + 3, 0.0, 6.0) / 6,
                         lambda g, y, a: (within(g, a, 3) / 6,),
                         r"\sigma_{\mathrm{hard}}", "σ_hard", role="gate", kept=False,
                         c="clampf_({0} + 3.0f, 0.0f, 6.0f) / 6.0f",
                         onnx=lambda add, a: add(
                             "Div", add("Clip", add("Add", a, 3.0), 0.0, 6.0), 6.0))
hard_tanh = _function("hard_tanh", 28, F.hardtanh, lambda g, y, a: (within(g, a, 1),),
                      r"\tanh_{\mathrm{hard}}", "tanh_hard", kept=False,
                      c="clampf_({0}, -1.0f, 1.0f)", onnx=lambda add, a: add("Clip", a, -1.0, 1.0))
# Over all elements of a row: a and eps, and in equations further vectors that share the statistics.
_row("layer_norm", None, 2, _layer_norm, role="norm",
     latex=r"\mathrm{{LN}}({0})", text="LN({0})", sign=r"\mathrm{LN}",
     onnx=lambda add, a, eps, *others: _onnx_norm(add, a, eps, others, centred=True))
_row("rms_norm", None, 2, _rms_norm, role="norm",
     latex=r"\mathrm{{RMS}}({0})", text="RMS({0})",
     sign=r"\mathrm{RMS}",
     onnx=lambda add, a, eps, *others: _onnx_norm(add, a, eps, others, centred=False))

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
dmaximum: Operation = _row("dmaximum", 29, 3, lambda g, a, b: torch.where(
    a == b, g / 2, torch.where(a < b, 0.0, g)))
sign: Operation = _row("sign", 30, 1, torch.sgn)
dsilu: Operation = _row("dsilu", 31, 2, lambda g, a: _dsilu(g, 1 / (1 + torch.exp(-a)), a))
within: Operation = _row("within", 32, 3, lambda g, a, b: torch.where((a < b) & (a > -b), g, 0.0))
# Norms, and what their gradients are: m, s and q are numbers of the row.
_row("mean", 33, 1, _mean, narrow=(-1,))
_row("variance", 34, 2, lambda a, m: _mean(torch.square(a - m)), narrow=(1, -1))
_row("mean_product", 35, 2, lambda a, b: _mean(a * b), narrow=(-1,))
_row("scaled", 36, 2, lambda a, s: a * s, narrow=(1,))
_row("normed", 37, 3, lambda a, m, s: (a - m) * s, narrow=(1, 2))
_row("minus_scaled", 38, 3, lambda a, b, q: a - b * q, narrow=(2,))
# Over rows and steps, to a parameter's gradient.
_row("reduce", 16, 1, lambda a: a.sum(0))
_row("reduce_product", 39, 2, lambda a, b: (a * b).sum(0))
# fmt: on

# What may stand in equations, element by element.
POINTWISE = tuple(name for name, row in OPERATIONS.items() if row.role not in ("norm", "fused"))


SUMS = ("reduce", "reduce_product")


def is_function(op: str) -> bool:
    """Whether `op` is a gate, another activation or a norm, and not a sum, a product or a leaf."""
    return op in OPERATIONS and OPERATIONS[op].role in ("gate", "activation", "norm")


def is_norm(op: str) -> bool:
    """Whether `op` is over all elements of a row."""
    return op in OPERATIONS and OPERATIONS[op].role == "norm"


def is_gate(op: str) -> bool:
    """Whether values of `op` lie between 0 and 1."""
    return op in OPERATIONS and OPERATIONS[op].role == "gate"
