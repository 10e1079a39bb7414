"""Eight-bit models as C99: the arithmetic of `onegate.export.quantise`, to the bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from onegate.export import c
from onegate.export.deployable import ExportError
from onegate.export.quantise import (
    TABLED,
    Matrix,
    Quantised,
    QuantisedLayer,
    Simulated,
    bias_of,
    constant,
    log_2,
    norm_numbers,
    quantised,
    table,
    table_of,
    whole,
)
from onegate.export.schedule import (
    CallStage,
    Loop,
    MapStage,
    StepSchedule,
    schedule,
    state_names,
)
from onegate.language import Value

# C over two int32 operands of one exponent.
_PAIRED: Final = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "maximum": "larger({0}, {1})",
    "minimum": "smaller({0}, {1})",
}


def _array(kind: str, name: str, values: Tensor) -> str:
    numbers = [str(v) for v in values.tolist()]
    inside = ",\n  ".join(", ".join(numbers[i : i + 16]) for i in range(0, len(numbers), 16))
    return f"static const {kind} {name}[{len(numbers)}] = {{\n  {inside}}};\n"


def _up(size: int, to: int) -> int:
    return -(-size // to) * to


def _rows(values: Tensor) -> Tensor:
    """Padded with zeros to whole panels."""
    padded = values.new_zeros(c.padded(len(values)))
    padded[: len(values)] = values
    return padded


def _weights(matrix: Matrix) -> Tensor:
    """Panels of 16 rows; in each, columns in fours, row by row, whose middle two change places."""
    rows, columns = matrix.weight.shape
    padded = matrix.weight.new_zeros(c.padded(rows), _up(columns, 4))
    padded[:rows, :columns] = matrix.weight
    fours = padded.view(len(padded) // c.PANEL, c.PANEL, -1, 4)[..., [0, 2, 1, 3]]
    return fours.transpose(1, 2).flatten()


@dataclass(frozen=True)
class QuantisedWriter(c.Writer):
    """Writes the files of an eight-bit model."""

    quantised: Quantised

    @property
    def integer(self) -> bool:
        return self.quantised.mode == "integer"

    @property
    def number(self) -> str:
        return "int16_t" if self.integer else "float"

    @property
    def result(self) -> str:
        return "int32_t" if self.integer else "float"

    @property
    def functions(self) -> str:
        return "functions_integer" if self.integer else "functions"

    @property
    def shared(self) -> frozenset[str]:
        return frozenset() if self.integer else super().shared

    def macros(self) -> str:
        if not self.integer:
            return ""
        macro, found = self.stem.upper(), self.quantised
        return (
            f"/* Numbers are whole: x is round(number * 2^exponent), and so is y. */\n"
            f"#define {macro}_INPUT_EXPONENT {found.input_exponent}\n"
            f"{''.join(self._further())}"
            f"#define {macro}_OUTPUT_EXPONENT {found.output_exponent}\n"
        )

    def _further(self) -> list[str]:
        names, macro = [*self.model.widths][1:], self.stem.upper()
        exponents = zip(names, self.quantised.exponents[1:], strict=True)
        return [
            f"#define {macro}_{c.ident(name).upper()}_INPUT_EXPONENT {e}\n" for name, e in exponents
        ]

    def products(self) -> list[str]:
        return [c.runtime("panel"), c.runtime(f"product_{self.quantised.mode}")]

    def layer(self, place: int) -> str:
        q = self.quantised.layers[place]
        return _Emitted(self, q, f"l{place}", schedule(q.layer.graph, self.shared)).text(place)

    def tables(self) -> str:
        if not self.integer:
            return ""
        found = {
            _table_name(node, q): table(node.op, table_of(node, q.exponents), q.exponents[node])
            for q in self.quantised.layers
            for node in q.layer.graph.nodes
            if node.op in TABLED
        }
        return "".join(_array("int16_t", name, values) for name, values in found.items())

    def dense(self, place: int) -> str:
        q = self.quantised.dense[place]
        text = _constants(f"d{place}_w", q.blocks, self.integer)
        if self.integer:
            bias = bias_of(q.dense.bias, len(q.dense.weight), q.exponent)
            return text + _array("int32_t", f"d{place}_b", _rows(bias))
        bias = torch.zeros(len(q.dense.weight)) if q.dense.bias is None else q.dense.bias
        return text + c.array(f"d{place}_b", _rows(bias))

    def words(self, vectors: Tensor) -> str:
        if not self.integer:
            return super().words(vectors)
        return _array("int16_t", "words", whole(vectors, self.quantised.input_exponent).flatten())

    def start(self, name: str, place: int, state: int) -> str:
        q = self.quantised.layers[place]
        if not self.integer:
            return super().start(name, place, state)
        return _array("int16_t", name, whole(q.layer.start[state], q.results[state]))

    def readout(self, last: str) -> list[str]:
        lines: list[str] = []
        for place, q in enumerate(self.quantised.dense):
            rows, columns = q.dense.weight.shape
            kind = self.result
            lines += [f"    {kind} d{place}[{c.padded(rows)}];"]
            operand = last
            if (of := self._kind(place)) != "int16":  # a state is read as it lies
                operand = f"q{place}"
                lines += [f"    int16_t {operand}[{_up(columns, 4)}] = {{0}};"]
                lines += [f"    {_operand(operand, last, columns, q.operand, of)}"]
            made = _products(
                f"d{place}", f"d{place}_b", f"d{place}_w", operand, q.blocks, self.integer
            )
            lines += [f"  {line}" for line in made]
            last = f"d{place}"
        n = self.model.outputs
        if self.integer and not self.quantised.dense:
            return [f"    for (unsigned i = 0u; i < {n}u; i++) y[i] = {last}[i];"]
        return [*lines, *self.ending(last)]

    def golden(self) -> tuple[Tensor, Tensor, float]:
        x = super().golden()[0]
        y = _wanted(self.quantised, x, self.output)
        if self.integer and self.model.embedding is None:
            x = self.quantised.whole(x)
        return x, y, 1e-6 if self.output == "softmax" else 0.0

    def _kind(self, place: int) -> str:
        return "float" if not self.integer else "int16" if place == 0 else "int32"


def _operand(q: str, source: str, n: int, e: int, kind: str) -> str:
    """Fills an int16 buffer with an operand."""
    if kind == "float":
        factor = c.number(2.0**e)
        return f"rounded({q}, {source}, {n}u, {factor});"
    if kind == "int32":
        return f"narrow({q}, {source}, {n}u);"
    return f"memcpy({q}, {source}, {n}u * sizeof *{q});"


def _constants(name: str, blocks: list[Matrix], integer: bool) -> str:
    text = ""
    for at, block in enumerate(blocks):
        totals = _array("int32_t", f"{name}_{at}_t", _rows(block.weight.long().sum(1) * 32768))
        text += _array("int8_t", f"{name}_{at}", _weights(block))
        text += f"#ifdef TOTALS\n{totals}#endif\n"
    if integer:
        return text + _array("uint16_t", f"{name}_m", _rows(blocks[0].multiplier))
    return text + c.array(f"{name}_s", _rows(blocks[0].scale))


def _products(y: str, bias: str, w: str, q: str, blocks: list[Matrix], integer: bool) -> list[str]:
    """y = bias + W q; y itself may stand for the bias."""
    lines, before, rows = list[str](), bias, len(blocks[0].weight)
    if bias != y and _up(rows, 4) < c.padded(rows):  # a product does not fill the last panel
        lines.append(f"  memcpy({y}, {bias}, sizeof {y});")
        before = y
    for at, block in enumerate(blocks):
        columns = _up(block.weight.shape[1], 4)
        source = q if block.first == 0 else f"{q} + {block.first}"
        scale = f"{w}_m" if integer else f"{w}_s"
        sizes = f"{_up(rows, 4)}u, {columns}u" + (f", {block.shift}u" if integer else "")
        lines.append(f"  product({y}, {before}, MATRIX({w}_{at}), {source}, {scale}, {sizes});")
        before = y
    return lines


def _table_name(node: Value, q: QuantisedLayer) -> str:
    of, own = table_of(node, q.exponents), q.exponents[node]
    return f"{node.op}_{of}_{own}".replace("-", "m")


@dataclass(frozen=True)
class _Emitted:
    """One layer's constants and function."""

    writer: QuantisedWriter
    q: QuantisedLayer
    prefix: str
    plan: StepSchedule

    def text(self, place: int) -> str:
        graph, integer = self.q.layer.graph, self.writer.integer
        kind = "int32_t" if integer else "float"
        widest = max([_up(o.size or 0, 4) for m in graph.maps.values() for o in m.operands] or [4])
        lines = [f"  {kind} {b}[{c.padded(n)}];" for b, n in self.plan.buffers.items()]
        lines += c.padded_inputs(graph, self.plan, self.writer.number, self.prefix)
        for stage in self.plan.stages:
            if isinstance(stage, MapStage):
                lines += self._product(stage)
            elif isinstance(stage, CallStage):
                lines += self._norm(stage) if integer else c.call(stage, self.prefix)
            else:
                lines += self._loop(stage)
        if any(" q[i] = " in line or "(q, " in line for line in lines):
            lines.insert(0, f"  int16_t q[{widest}] = {{0}};")
        made = c.function(place, self.writer.stem, graph, self.writer.number, lines)
        return self._constants() + made

    def _constants(self) -> str:
        graph, text, integer = self.q.layer.graph, "", self.writer.integer
        parameters, e = self.q.layer.parameters, self.q.exponents
        for node in graph.nodes:
            if node.op == "vector":
                name, value = f"{self.prefix}_v_{c.ident(node.name)}", parameters[node.name]
                if integer:
                    text += _array("int16_t", name, _rows(whole(value, e[node])))
                else:
                    text += c.array(name, _rows(value))
        for node, used in graph.maps.items():
            name = c.ident(used.name)
            bias = None if used.bias is None else parameters[used.bias]
            if integer:
                shown = _rows(bias_of(bias, node.size or 0, e[node]))
                text += _array("int32_t", f"{self.prefix}_b_{name}", shown)
            else:
                given = torch.zeros(node.size or 0) if bias is None else bias
                text += c.array(f"{self.prefix}_b_{name}", _rows(given))
            for i, blocks in enumerate(self.q.blocks[node]):
                text += _constants(f"{self.prefix}_w_{name}_{i}", blocks, integer)
        return text

    def _product(self, stage: MapStage) -> list[str]:
        name, y, integer = c.ident(stage.map.name), stage.buffer, self.writer.integer
        lines, before = list[str](), f"{self.prefix}_b_{name}"
        for i, (operand, blocks) in enumerate(
            zip(stage.map.operands, self.q.blocks[stage.node], strict=True)
        ):
            place = self.plan.places[operand]
            source = c.access(place, self.prefix, from_x=True)
            kind = "float" if not integer else "int32" if place.startswith("t") else "int16"
            n, e = operand.size or 0, self.q.exponents[operand]
            q = "q"
            if kind == "int16" and (n % 4 == 0 or place.startswith(("state", "vector"))):
                q = source  # as it lies
            else:
                lines.append(f"  {_operand('q', source, n, e, kind)}")
            lines += _products(y, before, f"{self.prefix}_w_{name}_{i}", q, blocks, integer)
            before = y
        return lines

    def _norm(self, stage: CallStage) -> list[str]:
        """The operands side by side with one exponent, then the norm of the first."""
        node, n, e = stage.node, stage.node.size or 0, self.q.exponents
        common = min(e[value] for value in stage.loads)
        count = n * len(stage.operands)
        lines = ["  {", f"    int16_t v[{count}];"]
        for at, value in enumerate(stage.operands):
            read = f"{c.access(stage.loads[value], self.prefix)}[i]"
            read = f"saturated({read})" if value.op == "affine" else read
            to = f"v[i + {at * n}u]" if at else "v[i]"
            source = f"(int16_t){_scaled(f'({read})', e[value] - common)}"
            lines.append(f"    for (unsigned i = 0u; i < {n}u; i++) {to} = {source};")
        numbers = norm_numbers(node, count, common, e[node])
        given = f"{n}u, {count}u, {int(node.op == 'layer_norm')}"
        lines.append(
            f"    norm({stage.buffer}, v, {given}, {numbers.eps}u, {numbers.root}u, "
            f"{numbers.shift});"
        )
        return [*lines, "  }"]

    def _loop(self, loop: Loop) -> list[str]:
        if not self.writer.integer:
            return c.loop(loop, self.prefix, self.q.layer.graph.unit.name)
        e, names = self.q.exponents, dict[Value, str]()
        lines = [f"  for (unsigned i = 0u; i < {c.padded(loop.size)}u; i++) {{"]
        for value, place in loop.loads.items():
            names[value] = f"v{len(names)}"
            read = f"{c.access(place, self.prefix)}[i]"
            read = f"saturated({read})" if value.op == "affine" else read
            lines.append(f"    const int32_t {names[value]} = {read};")
        for node in loop.nodes:
            operands = [names.get(a) or _constant(a, e[a]) for a in node.args]
            names[node] = f"v{len(names)}"
            written = self._written(node, operands)
            lines.append(f"    const int32_t {names[node]} = {written};")
        kept = dict(zip(state_names(self.q.layer.graph), self.q.results, strict=True))
        for place, value in loop.stores:
            source, name = names.get(value) or _constant(value, e[value]), place.partition(".")[2]
            if name:
                source = f"(int16_t)saturated({_scaled(source, e[value] - kept[name])})"
            lines.append(f"    {c.access(place, self.prefix)}[i] = {source};")
        return [*lines, "  }"]

    def _written(self, node: Value, v: list[str]) -> str:
        e, own = [self.q.exponents[a] for a in node.args], self.q.exponents[node]
        if node.op == "mul":
            return f"saturated({_scaled(f'({v[0]} * {v[1]})', e[0] + e[1] - own)})"
        if node.op == "square":
            return f"saturated({_scaled(f'({v[0]} * {v[0]})', 2 * e[0] - own)})"
        if node.op in _PAIRED:
            pair = [_scaled(each, of - own) for each, of in zip(v, e, strict=True)]
            return f"saturated({_PAIRED[node.op].format(*pair)})"
        if node.op == "neg":
            return f"saturated(-{v[0]})"
        if node.op == "abs":
            return f"saturated(larger({v[0]}, -{v[0]}))"
        if node.op == "relu":
            return f"{v[0]} < 0 ? 0 : {v[0]}"
        if node.op == "div":
            return f"divided({v[0]}, {v[1]}, {own - e[0] + e[1]})"
        if node.op == "sqrt":
            return f"rooted({v[0]}, {2 * own - e[0]})"
        if node.op == "log":
            return f"logarithm({_table_name(node, self.q)}, {v[0]}, {e[0]}, {log_2(own)})"
        return f"look({_table_name(node, self.q)}, {v[0]})"


def _constant(node: Value, e: int) -> str:
    return f"({int(constant(node.number, e))})"


def _scaled(v: str, shift: int) -> str:
    """v / 2^shift, rounded half up."""
    if shift == 0:
        return v
    return f"{v} * {2**-shift}" if shift < 0 else f"(({v} + {2 ** (shift - 1)}) >> {shift})"


def quantised_writer(writer: c.Writer, mode: str, calibration: Tensor | None) -> QuantisedWriter:
    """The writer of the same model in eight bits."""
    if calibration is None:
        raise ExportError(
            f"quantise={mode!r} needs calibration=, sequences that show how large values become: "
            "some hundreds of those that the model was not tested with"
        )
    if mode == "integer" and writer.output == "softmax":
        raise ExportError("a softmax needs floats: use quantise='int8', or output='argmax'")
    if writer.gates:
        raise ExportError("gates=True is for models in float: leave quantise out")
    found = quantised(writer.model, mode, calibration)
    return QuantisedWriter(writer.model, writer.stem, writer.output, False, found)


def _wanted(quantised: Quantised, x: Tensor, output: str) -> Tensor:
    """(T, outputs) as the C file gives them: exact, but for a softmax."""
    y: Tensor = Simulated(quantised)(x)[:, 0]
    if quantised.mode == "integer":
        return y * 2.0**quantised.output_exponent
    return y.softmax(-1) if output == "softmax" else y
