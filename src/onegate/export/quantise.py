"""Models with eight-bit weights, simulated in torch with the bits that the C files give.

Weights are int8 with a scale for each row, operands of products int16 with a power of two. "int8"
computes all else in float32; "integer" has no float: values are int16 with a power of two of their
own, functions are tables of 513 entries with straight lines between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from onegate.export.deployable import Dense, Deployable, ExportError, Layer, deployable, evaluate
from onegate.language import Value
from onegate.ops import OPERATIONS, is_norm

Inputs: TypeAlias = Sequence[Tensor]  # x first, each (B, its size)

MODES: Final = ("int8", "integer")
# An int32 holds the sum of so many products of an int8 and an int16; wider maps are split.
COLUMNS: Final = 512
_LARGEST: Final = 32767
_TABLE: Final = 512
_MAGIC: Final = 12582912.0
_COARSEST: Final = -8  # exponent
# The least shift of a product's result: sums of several blocks stay within an int32.
_SHIFT: Final = 18
# Finer than this the sums of a map are not kept where a gate or tanh reads them: beyond
# 32767 / 2^11 = 16 they are flat.
_COARSEST_FUNCTION: Final = 11
# Functions that "integer" has as tables, and what it computes: quotients and roots digit by digit,
# as a Cortex-M0 has no instruction for them, and of a logarithm what the table does not have.
TABLED: Final = ("sigmoid", "tanh", "exp", "softplus", "silu", "hard_sigmoid", "hard_tanh", "log")
_COMPUTED: Final = (
    "add", "sub", "mul", "div", "neg", "relu", "maximum", "minimum", "abs", "square", "sqrt",
    "layer_norm", "rms_norm",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Matrix:
    """int8 `weight` (rows, columns) of one block of an operand's columns.

    scale: float32 (rows,), from a sum of products to the result. multiplier, shift: the same as
    whole numbers, (rows,) below 2^15: result = sum * multiplier / 2^(16 + shift).
    """

    weight: Tensor
    first: int
    scale: Tensor
    multiplier: Tensor
    shift: int


@dataclass(frozen=True, eq=False)
class QuantisedLayer:
    """exponents: value -> e, its whole number being round(value 2^e). blocks: by map, operand."""

    layer: Layer
    exponents: Mapping[Value, int]
    results: tuple[int, ...]  # exponents of the states that are kept
    blocks: Mapping[Value, list[list[Matrix]]]


@dataclass(frozen=True, eq=False)
class QuantisedDense:
    """The head, and the exponents of what it reads and gives."""

    dense: Dense
    operand: int
    exponent: int
    blocks: list[Matrix]


@dataclass(frozen=True, eq=False)
class Quantised:
    """A model with its exponents and matrices."""

    model: Deployable
    mode: str
    layers: tuple[QuantisedLayer, ...]
    dense: tuple[QuantisedDense, ...]

    @property
    def exponents(self) -> tuple[int, ...]:
        """Those of what the first layer reads, x first."""
        first = self.layers[0]
        return tuple(first.exponents[value] for value in first.layer.graph.inputs)

    @property
    def input_exponent(self) -> int:
        """That of x, or of the word vectors."""
        return self.exponents[0]

    def whole(self, x: Tensor) -> Tensor:
        """Inputs (..., inputs) as the C file reads them."""
        parts = zip(self.model.told_apart(x), self.exponents, strict=True)
        return torch.cat([whole(part, e) for part, e in parts], -1)

    @property
    def output_exponent(self) -> int:
        """That of the output."""
        return self.dense[-1].exponent if self.dense else self.layers[-1].results[0]


def exponent(most: float, bits: int = 15) -> int:
    """The largest power of two with which `most` fits in so many bits, from `_COARSEST` on."""
    if most == 0.0:
        return bits
    return max(_COARSEST, min(bits, math.floor(math.log2((2**bits - 1) / most))))


def quantised(model: nn.Module | Deployable, mode: str, calibration: Tensor) -> Quantised:
    """Eight-bit weights, and exponents from what `calibration` (T, B, inputs) or (T, B) gives."""
    if mode not in MODES:
        raise ExportError(f"quantise is {mode!r}, expected one of {', '.join(MODES)}")
    found = model if isinstance(model, Deployable) else deployable(model)
    check_sequences("calibration", found, calibration)
    if mode == "integer":
        _refuse_operations(found)
    ranges, heads = _ranges(found, calibration)
    layers = []
    before: int | None = None
    for layer, most in zip(found.layers, ranges, strict=True):
        layers.append(_layer(layer, most, before))
        before = layers[-1].results[0]
    return Quantised(found, mode, tuple(layers), _dense(found, heads, layers[-1].results[0]))


def check_sequences(name: str, model: Deployable, x: Any) -> None:
    """Refuses what is no batch of sequences that the model can read."""
    words = model.embedding is not None
    wanted = "(T, B) words" if words else f"(T, B, {model.inputs}) numbers"
    if not isinstance(x, Tensor):
        raise ExportError(f"{name} is {type(x).__name__}, expected a tensor of {wanted}")
    if (
        x.dim() != (2 if words else 3)
        or not x.numel()
        or (not words and x.shape[2] != model.inputs)
    ):
        raise ExportError(f"{name} is {tuple(x.shape)}, expected {wanted}")
    if not words and not torch.isfinite(x).all():
        raise ExportError(f"{name} has values that are infinite or NaN")
    if model.embedding is not None and (
        x.is_floating_point() or x.min() < 0 or x.max() >= len(model.embedding)
    ):
        raise ExportError(f"{name} is {x.dtype}, expected words below {len(model.embedding)}")


def _refuse_operations(model: Deployable) -> None:
    leaves = ("input", "state", "constant", "vector", "affine")
    for graph in (layer.graph for layer in model.layers):
        for node in graph.nodes:
            if node.op not in (*leaves, *TABLED, *_COMPUTED):
                raise ExportError(
                    f"{graph.unit.name}: integer C has no operation {node.op!r}: use "
                    "quantise='int8', which computes it in float"
                )


@torch.no_grad()
def _ranges(model: Deployable, x: Tensor) -> tuple[list[dict[Value, float]], list[float]]:
    """The largest size of every value of every layer, and of every dense part's result."""
    ranges: list[dict[Value, float]] = [{} for _ in model.layers]
    heads = [0.0 for _ in model.dense]
    states = [[s.double().expand(x.shape[1], -1) for s in layer.start] for layer in model.layers]
    for each in x:
        v, *further = (part.double() for part in model.told_apart(each))
        for layer, most, before in zip(model.layers, ranges, states, strict=True):
            values = evaluate(layer, (v, *further), before, torch.float64)
            for node, value in values.items():
                most[node] = max(most.get(node, 0.0), _largest(layer, node, value))
            before[:] = [
                values[r].expand(x.shape[1], s.size or 0)
                for r, s in zip(layer.graph.results, layer.graph.states, strict=True)
            ]
            v = before[0]
        for place, dense in enumerate(model.dense):
            v = v @ dense.weight.double().mT
            v = v if dense.bias is None else v + dense.bias.double()
            heads[place] = max(heads[place], float(v.abs().max()))
    for layer, most in zip(model.layers, ranges, strict=True):
        operands = {value for used in layer.graph.maps.values() for value in used.operands}
        for read in (*layer.graph.inputs, *operands):
            if most[read] > _LARGEST * 2.0**-_COARSEST:
                raise ExportError(
                    f"{_called(layer, read)} becomes {most[read]:.3g} with the calibration data, "
                    f"and int16 operands hold {_LARGEST * 2.0**-_COARSEST:.0f}: scale the inputs"
                )
    return ranges, heads


def _largest(layer: Layer, node: Value, value: Tensor) -> float:
    found = float(value.abs().max())
    if math.isfinite(found):
        return found
    raise ExportError(
        f"{_called(layer, node)} becomes infinite or NaN with the calibration data, which no "
        "eight-bit form can hold: give sequences that the model can read"
    )


def _called(layer: Layer, node: Value) -> str:
    graph = layer.graph
    return f"{graph.unit.name}: {graph.names.get(node) or node.name or node.op}"


def _layer(layer: Layer, most: Mapping[Value, float], before: int | None) -> QuantisedLayer:
    graph = layer.graph
    users: dict[Value, set[str]] = {}
    for node in graph.nodes:
        for operand in node.args:
            users.setdefault(operand, set()).add(node.op)
    results = tuple(
        exponent(max(most[s], most[r], float(start.abs().max())))
        for s, r, start in zip(graph.states, graph.results, layer.start, strict=True)
    )
    found: dict[Value, int] = dict(zip(graph.states, results, strict=True))
    found |= {value: exponent(most[value]) for value in graph.inputs}
    if before is not None:
        found[graph.input] = before
    for node in graph.nodes:
        if node not in found:
            found[node] = _exponent(node, most[node], found, users.get(node, set()))
        if node.op == "affine":
            used = zip(graph.maps[node].weights, graph.maps[node].operands, strict=True)
            steps = [finest(layer.parameters[key], found[operand]) for key, operand in used]
            found[node] = min(found[node], *steps)
    blocks = {
        node: [
            split(layer.parameters[key], found[operand], found[node])
            for key, operand in zip(used.weights, used.operands, strict=True)
        ]
        for node, used in graph.maps.items()
    }
    return QuantisedLayer(layer, found, results, blocks)


def _exponent(node: Value, most: float, found: Mapping[Value, int], users: set[str]) -> int:
    """Such that no shift leaves an int32."""
    own = exponent(most)
    if node.op == "constant":
        return min(own, 14)
    if node.op == "affine":
        flat = users <= {"sigmoid", "tanh"} and users
        return min(14, max(own, _COARSEST_FUNCTION) if flat else own)
    operands = [found[a] for a in node.args]
    if node.op in ("relu", "neg", "abs"):
        return operands[0]
    if node.op in ("mul", "square"):
        both = sum(operands) if node.op == "mul" else 2 * operands[0]
        return max(min(own, both), both - 30)
    if node.op == "div":
        return min(own, operands[0] - operands[1] + 15)
    if node.op == "sqrt":
        return min(own, (operands[0] + 32) // 2)
    if node.op in ("add", "sub", "maximum", "minimum"):
        return max(min(own, min(operands) + 14), max(operands) - 30)
    return own


def finest(weight: Tensor, operand: int) -> int:
    """The largest exponent of a product's result whose multipliers stay below 2^15."""
    largest = float(weight.abs().max())
    if largest == 0.0:
        return 30
    return math.floor(math.log2(_LARGEST / 2**_SHIFT / (largest / 127 * 2.0**-operand)))


def split(weight: Tensor, operand: int, result: int) -> list[Matrix]:
    """A matrix in blocks of at most `COLUMNS` columns, whose sums fit an int32."""
    largest = weight.abs().amax(1).double()
    step = torch.where(largest > 0, largest / 127, 1.0)
    whole = torch.round(weight.double() / step[:, None]).to(torch.int8)
    scale = step * 2.0**-operand
    exact = scale * 2.0**result
    shift = math.floor(math.log2(_LARGEST / float(exact.max())))
    shift = max(_SHIFT, min(46, shift))
    multiplier = torch.round(exact * 2.0**shift).clamp(0, _LARGEST).long()
    return [
        Matrix(whole[:, at : at + COLUMNS], at, scale.float(), multiplier, shift - 16)
        for at in range(0, weight.shape[1], COLUMNS)
    ]


def _dense(model: Deployable, most: list[float], operand: int) -> tuple[QuantisedDense, ...]:
    found = []
    for place, dense in enumerate(model.dense):
        last = place == len(model.dense) - 1
        e = min(exponent(most[place], 23 if last else 15), finest(dense.weight, operand))
        found.append(QuantisedDense(dense, operand, e, split(dense.weight, operand, e)))
        operand = e
    return tuple(found)


class Simulated(nn.Module):
    """The quantised model in torch: (T, B, inputs) or (T, B) words -> (T, B, outputs), same bits.

    Outputs of "integer" are whole numbers times 2^-e, as float64.

    >>> simulated = onegate.export.quantise.Simulated(quantised(model, "int8", x))
    """

    def __init__(self, quantised: Quantised) -> None:
        super().__init__()
        self.quantised = quantised

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Every step's output."""
        found, integer = self.quantised, self.quantised.mode == "integer"
        run = _integer_step if integer else _int8_step
        states = [
            [
                whole(s, e) if integer else s.expand(x.shape[1], -1)
                for s, e in zip(q.layer.start, q.results, strict=True)
            ]
            for q in found.layers
        ]
        outputs = []
        for each in x:
            parts = zip(found.model.told_apart(each), found.exponents, strict=True)
            v, *further = (whole(part, e) if integer else part.float() for part, e in parts)
            for q, before in zip(found.layers, states, strict=True):
                values = run(q, (v, *further), before)
                before[:] = [value.expand(x.shape[1], -1) for value in values]
                v = before[0]
            for dense in found.dense:
                v = _integer_dense(dense, v) if integer else _int8_dense(dense, v)
            outputs.append(v.double() * 2.0**-found.output_exponent if integer else v)
        return torch.stack(outputs)


class HeldOut(NamedTuple):
    """Sequences (T, B, ...), what is wanted at their ends (B,), and their lengths (B,)."""

    x: Tensor
    wanted: Tensor | None = None
    lengths: Tensor | None = None


def cost(quantised: Quantised, batches: Iterable[HeldOut]) -> dict[str, float]:
    """What eight bits cost on held-out sequences.

    relative_error: root mean square of the outputs' change, over that of the outputs, all steps.
    Of several outputs, after the last step: the share of equal decisions, and where classes are
    wanted the accuracy before and after; of one output the mean squared errors.
    """
    sums: dict[str, float] = {}
    count, mode, simulated = 0, quantised.mode, Simulated(quantised)
    decides = quantised.model.outputs > 1

    def add(name: str, value: Tensor) -> None:
        sums[name] = sums.get(name, 0.0) + float(value.double().sum())

    for x, wanted, lengths in batches:
        check_sequences("held_out", quantised.model, x)
        steps, rows = x.shape[:2]
        ends_at = torch.full((rows,), steps) if lengths is None else lengths
        whole_numbers = ends_at.shape == (rows,) and not ends_at.is_floating_point()
        if not whole_numbers or ends_at.min() < 1 or ends_at.max() > steps:
            raise ExportError(f"held_out: lengths are {rows} whole numbers from 1 to {steps}")
        inside = torch.arange(steps)[:, None] < ends_at
        before, after = quantised.model.run(x), simulated(x).double()
        count += rows
        add("error", (after - before)[inside].square())
        add("size", before[inside].square())
        last = ends_at - 1, torch.arange(rows)
        ends = {"float": before[last], mode: after[last]}
        if decides:
            chosen = {name: end.argmax(1) for name, end in ends.items()}
            add("same_decisions", chosen["float"] == chosen[mode])
        if wanted is None:
            continue
        _check_wanted(wanted, rows, decides)
        for name, end in ends.items():
            if decides:
                add(f"{name}_accuracy", end.argmax(1) == wanted)
            else:
                add(f"{name}_squared_error", (end[:, 0] - wanted.double().flatten()).square())
    error, size = sums.pop("error"), sums.pop("size")
    found = {"sequences": count, "relative_error": math.sqrt(error / max(size, 1e-30))}
    return found | {name: total / count for name, total in sums.items()}


def _check_wanted(wanted: Any, rows: int, classes: bool) -> None:
    kind = "classes" if classes else "numbers"
    if not isinstance(wanted, Tensor) or wanted.numel() != rows:
        shown = tuple(wanted.shape) if isinstance(wanted, Tensor) else type(wanted).__name__
        raise ExportError(f"held_out wants {shown} after {rows} sequences, expected {rows} {kind}")


def told(found: Mapping[str, float]) -> str:
    """What `cost` found, in a line."""
    return ", ".join(f"{name.replace('_', ' ')} {value:.6g}" for name, value in found.items())


def whole(v: Tensor, e: int) -> Tensor:
    """Rounded to int16 with the exponent e, as C does it: ties to even, ends kept."""
    scaled = (v.float() * 2.0**e).clamp(-_LARGEST, _LARGEST)
    return ((scaled + _MAGIC) - _MAGIC).long()


def _sums(q: Tensor, block: Matrix) -> Tensor:
    """Exact: below 2^53."""
    part = q[..., block.first : block.first + block.weight.shape[1]].double()
    return (part @ block.weight.double().mT).long()


def _given(q: QuantisedLayer, inputs: Inputs, states: list[Tensor]) -> dict[Value, Tensor]:
    graph = q.layer.graph
    return dict(zip((*graph.inputs, *graph.states), (*inputs, *states), strict=True))


def _int8_step(q: QuantisedLayer, inputs: Inputs, states: list[Tensor]) -> list[Tensor]:
    graph, values = q.layer.graph, _given(q, inputs, states)
    for node in graph.nodes:
        if node.op == "constant":
            values[node] = torch.tensor(node.number)
        elif node.op == "vector":
            values[node] = q.layer.parameters[node.name]
        elif node.op == "affine":
            used = graph.maps[node]
            bias = None if used.bias is None else q.layer.parameters[used.bias]
            total = torch.zeros(node.size or 0) if bias is None else bias
            for operand, blocks in zip(used.operands, q.blocks[node], strict=True):
                total = _add_float(total, whole(values[operand], q.exponents[operand]), blocks)
            values[node] = total
        elif is_norm(node.op):
            a, eps, *others = node.args
            together = [values[v] for v in (a, *others)]
            values[node] = _norm(together, eps.number, node.op == "layer_norm")
        elif node not in values:
            values[node] = FLOAT[node.op](*[values[a] for a in node.args])
    return [values[r] for r in graph.results]


def _add_float(total: Tensor, q: Tensor, blocks: list[Matrix]) -> Tensor:
    for block in blocks:
        total = total + _sums(q, block).float() * block.scale
    return total


def _int8_dense(q: QuantisedDense, v: Tensor) -> Tensor:
    bias = torch.zeros(len(q.dense.weight)) if q.dense.bias is None else q.dense.bias
    return _add_float(bias, whole(v, q.operand), q.blocks)


def scaled(v: Tensor, shift: int, down: bool = False) -> Tensor:
    """v / 2^shift, rounded half up, or down."""
    half = 0 if down or shift <= 0 else 2 ** (shift - 1)
    result: Tensor = v * 2**-shift if shift <= 0 else (v + half) >> shift
    return result


def saturated(v: Tensor) -> Tensor:
    """Within int16."""
    return v.clamp(-32768, _LARGEST)


def _add_integer(total: Tensor, q: Tensor, blocks: list[Matrix]) -> Tensor:
    for block in blocks:
        total = total + scaled((_sums(q, block) * block.multiplier) >> 16, block.shift)
    return total


def table(op: str, operand: int, result: int) -> Tensor:
    """The function at 513 places of an int16 operand, whole numbers with the result's exponent."""
    x = torch.arange(-_TABLE // 2, _TABLE // 2 + 1, dtype=torch.float64) * 128 * 2.0**-operand
    y = OPERATIONS[op].compute(x) * 2.0**result
    return torch.round(y.nan_to_num(posinf=_LARGEST).clamp(-32768, _LARGEST)).long()


def bias_of(bias: Tensor | None, size: int, e: int) -> Tensor:
    """A map's bias as whole numbers."""
    if bias is None:
        return torch.zeros(size, dtype=torch.long)
    return torch.round(bias.double() * 2.0**e).clamp(-(2**30), 2**30).long()


def _integer_step(q: QuantisedLayer, inputs: Inputs, states: list[Tensor]) -> list[Tensor]:
    graph, e, values = q.layer.graph, q.exponents, _given(q, inputs, states)
    for node in graph.nodes:
        if node.op == "constant":
            values[node] = constant(node.number, e[node])
        elif node.op == "vector":
            values[node] = whole(q.layer.parameters[node.name], e[node])
        elif node.op == "affine":
            used = graph.maps[node]
            bias = None if used.bias is None else q.layer.parameters[used.bias]
            total = bias_of(bias, node.size or 0, e[node])
            for operand, blocks in zip(used.operands, q.blocks[node], strict=True):
                total = _add_integer(total, values[operand], blocks)
            values[node] = saturated(total)
        elif node not in values:
            values[node] = _integer_op(node, [values[a] for a in node.args], e)
    return [
        saturated(scaled(values[r], e[r] - kept))
        for r, kept in zip(graph.results, q.results, strict=True)
    ]


def constant(number: float, e: int) -> Tensor:
    """A number of the equations as a whole one."""
    return torch.tensor(max(-32768, min(_LARGEST, round(number * 2.0**e))))


def _integer_op(node: Value, v: list[Tensor], e: Mapping[Value, int]) -> Tensor:
    own, of = e[node], [e[a] for a in node.args]
    if node.op == "mul":
        return saturated(scaled(v[0] * v[1], of[0] + of[1] - own))
    if node.op == "square":
        return saturated(scaled(v[0] * v[0], 2 * of[0] - own))
    if node.op in _PAIRED:
        a, b = (scaled(each, e - own) for each, e in zip(v, of, strict=True))
        return saturated(_PAIRED[node.op](a, b))
    if node.op == "neg":
        return saturated(-v[0])
    if node.op == "abs":
        return saturated(v[0].abs())
    if node.op == "relu":
        return v[0].clamp(min=0)
    if node.op == "div":
        return _divided(v[0], v[1], own - of[0] + of[1])
    if node.op == "sqrt":
        return saturated(_root(scaled(v[0].clamp(min=0), of[0] - 2 * own, down=True)))
    if is_norm(node.op):
        return _integer_norm(node, [v[0], *v[2:]], [of[0], *of[2:]], own)
    entries = table(node.op, table_of(node, e), own)
    if node.op == "log":
        return _logarithm(entries, v[0], of[0], own)
    return _look(entries, v[0])


def _look(entries: Tensor, v: Tensor) -> Tensor:
    place, between = (v + 32768) >> 7, (v + 32768) & 127
    low = entries[place]
    return low + (((entries[place + 1] - low) * between + 64) >> 7)


def table_of(node: Value, e: Mapping[Value, int]) -> int:
    """The exponent of a table's operand: that of a logarithm lies between 1/2 and 1."""
    return 15 if node.op == "log" else e[node.args[0]]


def _divided(a: Tensor, b: Tensor, up: int) -> Tensor:
    """a / b 2^up, rounded; of 0 / 0 it is 0."""
    above = a.abs() << up if up >= 0 else a.abs() >> min(31, -up)
    below = b.abs()
    found = (above + (below >> 1)) // below.clamp(min=1)
    found = torch.where((below == 0) & (above > 0), _LARGEST, found).clamp(max=_LARGEST)
    return torch.where((a < 0) ^ (b < 0), -found, found)


def _root(v: Tensor) -> Tensor:
    """Of whole numbers below 2^52, rounded down."""
    return v.double().sqrt().floor().long()


def log_2(e: int) -> int:
    """log(2) with eight digits more than those of the exponent."""
    return round(math.log(2) * 2.0 ** (e + 8))


def _logarithm(entries: Tensor, v: Tensor, e: int, own: int) -> Tensor:
    up = 14 - torch.log2(v.clamp(min=1).double()).floor().long()
    found = _look(entries, v.clamp(min=1) << up) + ((((15 - e) - up) * log_2(own) + 128) >> 8)
    return torch.where(v > 0, saturated(found), -32768)


class Numbers(NamedTuple):
    """What C needs for a norm: count eps as a sum of squares, sqrt(count) as root 2^(k - 15)."""

    eps: int
    root: int
    shift: int


def norm_numbers(node: Value, count: int, operand: int, result: int) -> Numbers:
    """Of a norm over `count` elements in all."""
    k = math.frexp(math.sqrt(count))[1]
    root = min(_LARGEST, round(math.sqrt(count) * 2.0 ** (15 - k)))
    eps = round(count * node.args[1].number * 4.0**operand)
    return Numbers(eps, root, 38 - result - k)


def _integer_norm(node: Value, v: list[Tensor], e: list[int], own: int) -> Tensor:
    common = min(e)
    wide = torch.broadcast_tensors(*v)
    all_ = torch.cat([scaled(a, of - common) for a, of in zip(wide, e, strict=True)], -1)
    count, numbers = all_.shape[-1], norm_numbers(node, all_.shape[-1], common, own)
    if node.op == "layer_norm":
        total = all_.sum(-1, keepdim=True)
        all_ = all_ - total.sign() * ((total.abs() + count // 2) // count)
    squares = ((all_ * all_).sum(-1, keepdim=True) + numbers.eps).clamp(min=1)
    up = torch.zeros_like(squares)
    while (low := squares < 2**46).any():
        squares, up = torch.where(low, squares << 2, squares), up + low.long()
    while (high := squares >= 2**48).any():
        squares, up = torch.where(high, squares >> 2, squares), up - high.long()
    multiplier = ((((1 << 38) // _root(squares)).clamp(max=_LARGEST)) * numbers.root) >> 15
    product, shift = all_[..., : node.size] * multiplier, numbers.shift - up
    right = ((product >> (shift - 1).clamp(0, 30)) + 1) >> 1
    return saturated(torch.where(shift > 0, right, product << (-shift).clamp(min=0)))


_PAIRED: Final[dict[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "add": torch.add,
    "sub": torch.sub,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
}


def _integer_dense(q: QuantisedDense, v: Tensor) -> Tensor:
    total = bias_of(q.dense.bias, len(q.dense.weight), q.exponent)
    return _add_integer(total, saturated(v), q.blocks)


# The float32 functions of runtime/functions.c, operation by operation.
def _expm1_near_0(r: Tensor) -> Tensor:
    q = torch.tensor(1 / 5040)
    for number in (1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5):
        q = torch.tensor(number) + r * q
    return r + (r * r) * q


def _power(k: Tensor) -> Tensor:
    """2^k by the bits of a float."""
    return ((k + 127) << 23).to(torch.int32).view(torch.float32)


def _reduce(x: Tensor) -> tuple[Tensor, Tensor]:
    k = (x * torch.tensor(1.4426950408889634) + _MAGIC) - _MAGIC
    high, low = float.fromhex("0x1.62e400p-1"), float.fromhex("0x1.7f7d1cp-20")
    return k.to(torch.int64), (x - k * high) - k * low


def _exp(x: Tensor) -> Tensor:
    k, r = _reduce(x.clamp(-105, 89))
    half = ((k + 256) >> 1) - 128
    return ((1.0 + _expm1_near_0(r)) * _power(half)) * _power(k - half)


def _tanh(x: Tensor) -> Tensor:
    near = x.clamp(-10, 10)
    k, r = _reduce(near + near)
    s = _power(k)
    m = s * _expm1_near_0(r) + (s - 1.0)
    return m / (m + 2.0)


def _softplus(x: Tensor) -> Tensor:
    u = _exp(-x.abs())
    s = u / (2.0 + u)
    q = s * s
    series = torch.tensor(1 / 15)
    for odd in (13, 11, 9, 7, 5, 3, 1):
        series = torch.tensor(1 / odd) + q * series
    return torch.relu(x) + (s + s) * series


def _log(x: Tensor) -> Tensor:
    small = x < 2.0**-126
    u = torch.where(small, x * 2.0**24, x).view(torch.int32).long() - 0x3F3504F3
    m = ((u & 0x007FFFFF) + 0x3F3504F3).to(torch.int32).view(torch.float32)
    k = ((u >> 23) - 24 * small).float()
    s = (m - 1.0) / (m + 1.0)
    q = s * s
    series = torch.tensor(1 / 9)
    for odd in (7, 5, 3):
        series = torch.tensor(1 / odd) + q * series
    high, low = float.fromhex("0x1.62e400p-1"), float.fromhex("0x1.7f7d1cp-20")
    found = k * high + ((s + s) + ((s + s) * (q * series) + k * low))
    special = ~(x > 0) | torch.isinf(x)
    return torch.where(special, torch.log(x), found)


def _sqrt(x: Tensor) -> Tensor:
    small = x < 2.0**-126
    v = torch.where(small, x * 2.0**24, x)
    y = ((v.view(torch.int32) >> 1) + 0x1FC00000).view(torch.float32)
    for _ in range(3):
        y = 0.5 * (y + v / y)
    special = ~(x > 0) | torch.isinf(x)
    return torch.where(special, torch.sqrt(x), torch.where(small, y * 2.0**-12, y))


def _norm(v: list[Tensor], eps: float, centred: bool) -> Tensor:
    wide = torch.broadcast_tensors(*v)
    all_ = torch.tensor(float(len(wide) * wide[0].shape[-1]))
    centre = torch.zeros(())
    if centred:
        centre = _total(wide) / all_
    d = [each - centre for each in wide]
    squares = _total([each * each for each in d]) / all_
    scale = 1.0 / _sqrt(squares + torch.tensor(eps))
    normed: Tensor = d[0] * scale
    return normed


def _total(vectors: Sequence[Tensor]) -> Tensor:
    """Over the last axis, which stays; four partial sums by place mod 4."""
    total: Tensor = torch.zeros(())
    for v in vectors:
        padded = torch.nn.functional.pad(v, (0, -v.shape[-1] % 4))
        part = torch.zeros(*v.shape[:-1], 4)
        for four in padded.unflatten(-1, (-1, 4)).unbind(-2):
            part = part + four
        total = total + ((part[..., :1] + part[..., 1:2]) + (part[..., 2:3] + part[..., 3:]))
    return total


# Each of these is one operation of IEEE 754, or a choice, and has the same bits everywhere.
_EXACT: Final = (
    "add", "sub", "mul", "div", "neg", "relu", "abs", "square", "maximum", "minimum",
    "hard_sigmoid", "hard_tanh",
)  # fmt: skip
FLOAT: Final[dict[str, Callable[..., Tensor]]] = {
    **{name: OPERATIONS[name].compute for name in _EXACT},
    "exp": _exp,
    "log": _log,
    "sqrt": _sqrt,
    "silu": lambda x: x / (1.0 + _exp(-x)),
    "sigmoid": lambda x: 1.0 / (1.0 + _exp(-x)),
    "tanh": _tanh,
    "softplus": _softplus,
}
