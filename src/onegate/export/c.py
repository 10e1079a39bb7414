"""A model as C99: one step at a time, no allocation, no library, the same bits everywhere."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from onegate.export.deployable import Deployable, ExportError, Layer, deployable
from onegate.export.latex import equations
from onegate.export.schedule import (
    CallStage,
    Loop,
    MapStage,
    StepSchedule,
    schedule,
    state_names,
)
from onegate.language import Graph, Value
from onegate.ops import OPERATIONS, is_gate, is_norm

_ABOUT: Final = {
    "linear": "y is what the last layer gives.",
    "softmax": "y holds probabilities.",
    "argmax": "y holds scores, and `{stem}_argmax(y)` is the place of the largest.",
}
OUTPUTS: Final = tuple(_ABOUT)
_RUNTIME: Final = Path(__file__).parent / "runtime"
PANEL: Final = 16
_INCLUDED: Final = ("stddef", "stdint", "stdio", "string")  # headers that a stem would hide
_GOLDEN_STEPS: Final = 12
_LONG: Final = ("sigmoid", "tanh", "exp", "softplus", "log", "sqrt", "silu")
_FLAGS: Final = "-std=c99 -O2 -ffp-contract=off"


def writer_of(model: nn.Module, stem: str, output: str, gates: bool) -> Writer:
    """The writer of a model in float; refuses what it cannot write."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", str(stem)) or stem in _INCLUDED:
        raise ExportError(f"stem is {stem!r}, expected the name of a C function, such as 'model'")
    if output not in OUTPUTS:
        raise ExportError(f"output is {output!r}, expected one of {', '.join(OUTPUTS)}")
    found = deployable(model)
    if output != "linear" and not found.dense:
        raise ExportError(f"output={output!r} is for models with a dense head; this one has none")
    return Writer(found, stem, output, gates)


def texts(writer: Writer, card: Mapping[str, Any]) -> dict[str, str]:
    """The files' contents by name."""
    stem, source, header = writer.stem, writer.source(), writer.header()
    _refuse_clashes(writer.model, source, header)
    facts = _card(writer.model, source, header, card)
    try:
        shown = json.dumps(facts, indent=2, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise ExportError(f"card: {error}; expected text and finite numbers by name") from None
    return {
        f"{stem}.h": header,
        f"{stem}.c": source,
        f"{stem}_test.c": _self_test(writer),
        "Makefile": _MAKEFILE.replace("@stem@", stem).replace("@flags@", _FLAGS),
        "README.md": _readme(writer, facts),
        "card.json": shown,
    }


@dataclass(frozen=True)
class Writer:
    """Writes the files of a model; what another arithmetic does otherwise has a method."""

    model: Deployable
    stem: str
    output: str
    gates: bool

    @property
    def number(self) -> str:
        """The type of inputs and states."""
        return "float"

    @property
    def result(self) -> str:
        """The type of outputs."""
        return "float"

    @property
    def functions(self) -> str:
        """The file of runtime/ with what equations are made of."""
        return "functions"

    @property
    def shared(self) -> frozenset[str]:
        """Operations that stand several times in the model, and are many instructions."""
        if self.gates:  # they are kept by the loop that has them
            return frozenset()
        uses = Counter(n.op for layer in self.model.layers for n in layer.graph.nodes)
        return frozenset(op for op in _LONG if uses[op] > 1)

    def macros(self) -> str:
        return ""

    def runtimes(self) -> list[str]:
        """What products are made of, where there is one."""
        stages = [stage for layer in self.model.layers for stage in schedule(layer.graph).stages]
        multiplies = self.model.dense or any(isinstance(stage, MapStage) for stage in stages)
        return self.products() if multiplies else []

    def products(self) -> list[str]:
        return [runtime("product_float")]

    def tables(self) -> str:
        return ""

    def layer(self, place: int) -> str:
        plan = schedule(self.model.layers[place].graph, self.shared)
        return _layer(place, self.model.layers[place], plan, self.stem, self.gates)

    def _each(self) -> list[str]:
        unit = self.model.layers[0].graph.unit.name
        return [
            _EACH.format(op=op, value=_spelled(op, ["y[i]"], unit)) for op in sorted(self.shared)
        ]

    def dense(self, place: int) -> str:
        dense = self.model.dense[place]
        text = array(f"d{place}_w", _panels(dense.weight))
        return text if dense.bias is None else text + array(f"d{place}_b", _vector(dense.bias))

    def words(self, vectors: Tensor) -> str:
        return array("words", vectors.flatten())

    def start(self, name: str, place: int, state: int) -> str:
        return array(name, self.model.layers[place].start[state])

    def golden(self) -> tuple[Tensor, Tensor, float]:
        """Inputs (T, 1, ...), the outputs (T, n) that the C file gives, and how far it may err."""
        return golden(self.model, self.output)

    def header(self) -> str:
        stem, macro = self.stem, self.stem.upper()
        fields = "".join(
            f"  {self.number} l{place}_{name}[{padded(state.size or 0)}];\n"
            for place, layer in enumerate(self.model.layers)
            for name, state in zip(state_names(layer.graph), layer.graph.states, strict=True)
        )
        fields += "".join(
            f"  {self.number} l{place}_{name}[{padded(gate.size or 0)}]; /* of the last step */\n"
            for place, layer in enumerate(self.model.layers if self.gates else ())
            for name, gate in gates_of(layer.graph).items()
        )
        table = self.model.embedding
        words = "" if table is None else f"#define {macro}_WORDS {len(table)}\n"
        argmax = (
            "\n/* The place of the largest score. */\n"
            f"int32_t {stem}_argmax(const {self.result} *y);\n"
            if self.output == "argmax"
            else ""
        )
        return _HEADER.format(
            macro=macro,
            stem=stem,
            fields=fields,
            inputs=self.model.inputs,
            outputs=self.model.outputs,
            words=self._widths() + words + self.macros(),
            result=self.result,
            argmax=argmax,
            argument=self.argument,
            about=self._about(),
        )

    def _widths(self) -> str:
        """What a step reads, where it is more than x."""
        widths, macro = self.model.widths, self.stem.upper()
        if len(widths) == 1:
            return ""
        lines = [f"#define {macro}_{ident(k).upper()}_INPUTS {n}\n" for k, n in widths.items()]
        return f"/* These follow one another: {', '.join(widths)}. */\n{''.join(lines)}"

    @property
    def argument(self) -> str:
        return f"const {self.number} *x" if self.model.embedding is None else "int32_t word"

    def _about(self) -> str:
        if self.model.embedding is None:
            return "Always 0."
        return f"-1, and nothing is done, where word is none of 0 to {self.stem.upper()}_WORDS - 1."

    def source(self) -> str:
        parts = [*self.runtimes(), self.tables(), *self._each()]
        parts += [self.layer(place) for place in range(len(self.model.layers))]
        parts += [self.dense(place) for place in range(len(self.model.dense))]
        if self.model.embedding is not None:
            parts.append(self.words(self.model.embedding))
        body = "\n".join([*parts, self._reset(), self._step(), self._argmax()]).rstrip() + "\n"
        needed = _functions(body, runtime(self.functions))
        return "\n".join([_TOP.format(stem=self.stem), *needed, body])

    def _reset(self) -> str:
        lines = ["  memset(s, 0, sizeof *s);"]
        arrays = ""
        for place, layer in enumerate(self.model.layers):
            for k, name in enumerate(state_names(layer.graph)):
                if bool((layer.start[k] != 0).any()):
                    start = f"l{place}_start_{name}"
                    arrays += self.start(start, place, k)
                    lines.append(f"  memcpy(s->l{place}_{name}, {start}, sizeof {start});")
        body = "\n".join(lines)
        return f"{arrays}void {self.stem}_reset({self.stem}_state *s) {{\n{body}\n}}\n"

    def _step(self) -> str:
        lines, first = [], "x"
        if (table := self.model.embedding) is not None:
            lines.append(f"  if (word < 0 || word >= {len(table)}) return -1;")
            first = f"words + {table.shape[1]}u * (uint32_t)word"
        outputs = [first]
        more = f", x + {self.model.layers[0].graph.input_size}u"
        for place, layer in enumerate(self.model.layers):
            beside = more if len(layer.graph.inputs) > 1 else ""
            lines.append(f"  layer{place}(s, {outputs[-1]}{beside});")
            outputs.append(f"s->l{place}_{state_names(layer.graph)[0]}")
        lines += ["  if (y) {", *self.readout(outputs[-1]), "  }", "  return 0;"]
        body = "\n".join(lines)
        head = f"int {self.stem}_step({self.stem}_state *s, {self.argument}, {self.result} *y)"
        return f"{head} {{\n{body}\n}}\n"

    def readout(self, last: str) -> list[str]:
        lines = []
        for place, dense in enumerate(self.model.dense):
            rows, columns = dense.weight.shape
            start = " = {0}" if dense.bias is None else ""
            lines.append(f"    float d{place}[{padded(rows)}]{start};")
            before = f"d{place}" if dense.bias is None else f"d{place}_b"
            sizes = f"{padded(rows) // PANEL}u, {columns}u"
            lines.append(f"    product(d{place}, {before}, d{place}_w, {last}, {sizes});")
            last = f"d{place}"
        return [*lines, *self.ending(last)]

    def ending(self, last: str) -> list[str]:
        """From the last vector to y."""
        n = self.model.outputs
        if self.output != "softmax":
            return [f"    memcpy(y, {last}, {n}u * sizeof *y);"]
        return [_SOFTMAX.format(n=n, last=last).rstrip()]

    def _argmax(self) -> str:
        if self.output != "argmax":
            return ""
        return _ARGMAX.format(stem=self.stem, n=self.model.outputs, result=self.result)


def gates_of(graph: Graph) -> dict[str, Value]:
    """The gates of a step by the name of their field in the state."""
    found = [node for node in graph.nodes if is_gate(node.op)]
    names = [graph.names.get(node, "") for node in found]
    plain = len(set(names)) == len(names) and all(name.isidentifier() for name in names)
    return {
        f"gate_{ident(name) if plain else i}": node
        for i, (name, node) in enumerate(zip(names, found, strict=True))
    }


def _layer(place: int, layer: Layer, plan: StepSchedule, stem: str, gates: bool) -> str:
    """The constants and the function of one layer."""
    graph = layer.graph
    shown = gates_of(graph) if gates else {}
    for stage in plan.stages:
        if isinstance(stage, Loop):
            kept = [(f"state.{name}", g) for name, g in shown.items() if g in stage.nodes]
            stage.stores += kept
    arrays, prefix = "", f"l{place}"
    for node in graph.nodes:
        if node.op == "vector":
            arrays += array(f"{prefix}_v_{ident(node.name)}", _vector(layer.parameters[node.name]))
    for used in graph.maps.values():
        if used.bias is not None:
            arrays += array(f"{prefix}_b_{ident(used.name)}", _vector(layer.parameters[used.bias]))
        for i, key in enumerate(used.weights):
            name = f"{prefix}_w_{ident(used.name)}_{i}"
            arrays += array(name, _panels(layer.parameters[key]))
    about = "\n   ".join(equations(graph)).replace("*/", "* /")  # names are anything
    lines = [f"  float {b}[{padded(n)}];" for b, n in plan.buffers.items()]
    lines += padded_inputs(graph, plan, "float", prefix)
    for stage in plan.stages:
        if isinstance(stage, MapStage):
            lines += _product(stage, plan, prefix)
        elif isinstance(stage, CallStage):
            lines += call(stage, prefix)
        else:
            lines += loop(stage, prefix, graph.unit.name)
    return f"{arrays}/* {about} */\n{function(place, stem, graph, 'float', lines)}"


def function(place: int, stem: str, graph: Graph, kind: str, lines: list[str]) -> str:
    """The function of a layer; kind: of its inputs."""
    names = ["x", "more"][: len(graph.inputs)]
    unread = [n for n in names if not any(re.search(rf"\b{n}\b", line) for line in lines)]
    body = "\n".join(lines + [f"  (void){name};" for name in unread])
    given = "".join(f", const {kind} *{name}" for name in names)
    return f"static void layer{place}({stem}_state *s{given}) {{\n{body}\n}}\n"


def padded_inputs(graph: Graph, plan: StepSchedule, kind: str, prefix: str) -> list[str]:
    """Copies of those inputs that a loop or a norm reads, which goes over whole panels."""
    stages = [stage for stage in plan.stages if not isinstance(stage, MapStage)]
    read = {value for stage in stages for value in stage.loads}
    lines = []
    for value in graph.inputs:
        if value in read:
            name, n = access(plan.places[value], prefix), value.size or 0
            source = access(plan.places[value], prefix, from_x=True)
            lines.append(f"  {kind} {name}[{padded(n)}] = {{0}};")
            lines.append(f"  memcpy({name}, {source}, {n}u * sizeof *{name});")
    return lines


def call(stage: CallStage, prefix: str) -> list[str]:
    """A norm in float, or a function of a whole vector."""
    op, y = stage.node.op, stage.buffer
    if not is_norm(op):
        source = access(stage.loads[stage.node.args[0]], prefix)
        copied = [] if source == y else [f"  memcpy({y}, {source}, sizeof {y});"]
        return [*copied, f"  each_{op}({y}, {padded(stage.node.size or 0)}u);"]
    operands = ", ".join(access(stage.loads[v], prefix) for v in stage.operands)
    count, size, eps = len(stage.operands), stage.node.size, number(stage.node.args[1].number)
    return [  # a literal of an array would be no C++
        "  {",
        f"    const float *const of[] = {{{operands}}};",
        f"    norm({y}, of, {count}u, {size}u, {int(op == 'layer_norm')}, {eps});",
        "  }",
    ]


def _product(stage: MapStage, plan: StepSchedule, prefix: str) -> list[str]:
    buffer, used = stage.buffer, stage.map
    size, name = padded(stage.node.size or 0), f"{prefix}_b_{ident(used.name)}"
    lines = [] if used.bias else [f"  memset({buffer}, 0, sizeof {buffer});"]
    before = name if used.bias else buffer
    for i, operand in enumerate(used.operands):
        place = access(plan.places[operand], prefix, from_x=True)
        weight = f"{prefix}_w_{ident(used.name)}_{i}"
        sizes = f"{size // PANEL}u, {operand.size}u"
        lines.append(f"  product({buffer}, {before}, {weight}, {place}, {sizes});")
        before = buffer
    return lines


def loop(loop: Loop, prefix: str, unit: str) -> list[str]:
    """Pointwise operations in float."""
    names: dict[Value, str] = {}
    lines = [f"  for (unsigned i = 0u; i < {padded(loop.size)}u; i++) {{"]
    for value, place in loop.loads.items():
        names[value] = f"v{len(names)}"
        lines.append(f"    const float {names[value]} = {access(place, prefix)}[i];")
    for node in loop.nodes:
        operands = [names.get(a) or number(a.number) for a in node.args]
        names[node] = f"v{len(names)}"
        written = _spelled(node.op, operands, unit)
        lines.append(f"    const float {names[node]} = {written};")
    for place, value in loop.stores:
        source = names.get(value) or number(value.number)
        lines.append(f"    {access(place, prefix)}[i] = {source};")
    return [*lines, "  }"]


def _spelled(op: str, operands: list[str], unit: str) -> str:
    if not (spelling := OPERATIONS[op].c):
        raise ExportError(f"{unit}: C has no spelling of {op!r}: see onegate.ops")
    return spelling.format(*operands)


def access(place: str, prefix: str, from_x: bool = False) -> str:
    """How C reaches the place of a value."""
    kind, _, name = place.partition(".")
    if kind == "state":
        return f"s->{prefix}_{name}"
    if kind == "vector":
        return f"{prefix}_v_{ident(name)}"
    if kind == "more":
        return f"(more + {name}u)" if from_x else f"more{name}"
    return "xp" if place == "x" and not from_x else place


def ident(name: str) -> str:
    """A parameter's name in C: letters that C does not have become their numbers."""
    return re.sub(r"[^A-Za-z0-9_]", lambda found: f"u{ord(found[0])}", name)


def padded(size: int) -> int:
    """Up to whole panels."""
    return -(-size // PANEL) * PANEL


def _vector(tensor: Tensor) -> Tensor:
    """Padded with zeros to whole panels."""
    filled = torch.zeros(padded(len(tensor)))
    filled[: len(tensor)] = tensor
    return filled


def _panels(weight: Tensor) -> Tensor:
    """(rows, columns) -> panels of 16 rows, each column by column."""
    rows, columns = weight.shape
    filled = torch.zeros(padded(rows), columns)
    filled[:rows] = weight
    return filled.view(-1, PANEL, columns).transpose(1, 2).flatten()


def number(number: float) -> str:
    """A float's digits, exact."""
    text = f"{np.float32(number):.9g}"
    text = text if re.search(r"[.e]", text) else f"{text}.0"
    return f"({text}f)" if text.startswith("-") else f"{text}f"


def array(name: str, values: Tensor) -> str:
    """A constant array of floats."""
    numbers = [number(v).strip("()") for v in values.tolist()]
    rows = [", ".join(numbers[i : i + 8]) for i in range(0, len(numbers), 8)]
    inside = ",\n  ".join(rows)
    return f"static const float {name}[{len(numbers)}] = {{\n  {inside}}};\n"


def runtime(name: str) -> str:
    """The text of a file of runtime/."""
    return (_RUNTIME / f"{name}.c").read_text()


def _functions(body: str, known: str) -> list[str]:
    """Those of the `known` functions that are called, with those that they call."""
    found = known.split("\n\n")
    needed: list[str] = []
    for text in reversed(found):  # each calls those before it
        name = re.search(r"^static (?:inline|SHARED) \w+ (\w+)\(", text, re.MULTILINE)
        if name and re.search(rf"\b{name[1]}\(", "".join([body, *needed])):
            needed.insert(0, text.rstrip() + "\n")
    return needed


def golden(model: Deployable, output: str) -> tuple[Tensor, Tensor, float]:
    """Inputs (T, 1, ...), float64 outputs (T, n), and ten times the error of float32."""
    generator = torch.Generator().manual_seed(1)
    if model.embedding is not None:
        x = torch.randint(len(model.embedding), (_GOLDEN_STEPS, 1), generator=generator)
    else:
        x = torch.randn(_GOLDEN_STEPS, 1, model.inputs, generator=generator)
    exact, single = model.run(x), model.run(x, torch.float32)
    if output == "softmax":
        exact, single = exact.softmax(-1), single.softmax(-1)
    size = max(1.0, float(exact.abs().max()))
    return x, exact[:, 0], 10 * float((exact - single).abs().max()) + 2e-6 * size


def _self_test(writer: Writer) -> str:
    x, y, tolerance = writer.golden()
    stem, words = writer.stem, writer.model.embedding is not None
    kind = "int32_t" if words else writer.number
    return _TEST.format(
        stem=stem,
        macro=stem.upper(),
        given=_given("given", kind, x),
        wanted=_given("wanted", writer.result, y),
        result=writer.result,
        steps=len(x),
        argument="given[t]" if words else f"given + t * {stem.upper()}_INPUTS",
        tolerance=number(tolerance) if writer.result == "float" else str(int(tolerance)),
    )


def _given(name: str, kind: str, values: Tensor) -> str:
    if kind == "float":
        return array(name, values.flatten().float())
    inside = ", ".join(str(int(v)) for v in values.flatten().tolist())
    return f"static const {kind} {name}[] = {{{inside}}};\n"


# Of a constant array in the source, and of a field of the state in the header: type, name, length.
_CONSTANT: Final = re.compile(r"^static const (\w+) (\w+)\[(\d+)\]", re.MULTILINE)
_ON_SOME: Final = re.compile(r"^#ifdef TOTALS\n.*?#endif\n", re.MULTILINE | re.DOTALL)
_FIELD: Final = re.compile(r"^  (\w+) (\w+)\[(\d+)\];", re.MULTILINE)
_MACRO: Final = re.compile(r"^#define (\w+)", re.MULTILINE)
_BYTES: Final = {
    "float": 4, "int32_t": 4, "int16_t": 2, "uint16_t": 2, "int8_t": 1,
}  # fmt: skip


def _bytes(arrays: re.Pattern[str], text: str) -> int:
    return sum(_BYTES[kind] * int(length) for kind, _, length in arrays.findall(text))


def _refuse_clashes(model: Deployable, source: str, header: str) -> None:
    """Names of a unit that Python tells apart, and C does not."""
    declared = [name for _, name, _ in _CONSTANT.findall(source)]
    for names in (
        declared,
        [name for _, name, _ in _FIELD.findall(header)],
        _MACRO.findall(header),
    ):
        if twice := sorted(name for name, count in Counter(names).items() if count > 1):
            raise ExportError(
                f"{model.layers[0].graph.unit.name}: C would have {twice[0]} twice: rename the "
                "state, input or parameter that it is made of"
            )


def _card(model: Deployable, source: str, header: str, more: Mapping[str, Any]) -> dict[str, Any]:
    first = model.layers[0].graph
    return {
        "unit": first.unit.name,
        "layers": [layer.graph.hidden_size for layer in model.layers],
        "words": None if model.embedding is None else len(model.embedding),
        "inputs": model.inputs,
        "outputs": model.outputs,
        "parameters": model.parameter_count(),
        "bytes_of_constants": _bytes(_CONSTANT, _ON_SOME.sub("", source)),
        "bytes_of_state": _bytes(_FIELD, header),
        "sha256": hashlib.sha256(source.encode()).hexdigest(),
        **more,
    }


def _flat(facts: Mapping[str, Any], under: str = "") -> Iterator[tuple[str, str]]:
    """Names as a reader has them, and values as text; what is not known is left out."""
    for key, value in facts.items():
        name = f"{under}{key}".replace("_", " ")
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}: ")
        elif value is not None:
            listed = isinstance(value, (list, tuple))
            yield (
                name,
                ", ".join(map(str, value))
                if listed
                else f"{value:.6g}"
                if isinstance(value, float)
                else str(value),
            )


def _readme(writer: Writer, facts: Mapping[str, Any]) -> str:
    model, stem = writer.model, writer.stem
    rows = "\n".join(f"| {key} | {value} |" for key, value in _flat(facts))
    value = "0" if model.embedding is not None else "x"
    declared = f"{writer.number} x[{stem.upper()}_INPUTS];\n" if value == "x" else ""
    about = _ABOUT[writer.output].format(stem=stem)
    if value == "0":
        about += " A word is its number in the vocabulary."
    if len(model.widths) > 1:
        about += f" x holds {', '.join(model.widths)}, one after another."
    whole = writer.number != "float"
    if whole and len(model.widths) > 1:
        about += f" Each has an exponent of its own, see `{stem}.h`."
    return _README.format(
        stem=stem,
        macro=stem.upper(),
        rows=rows,
        flags=_FLAGS,
        value=value,
        declared=declared,
        result=writer.result,
        about=about,
        numbers=_WHOLE.format(macro=stem.upper()) if whole and value == "x" else "",
    )


_HEADER: Final = """\
#ifndef {macro}_H
#define {macro}_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

#define {macro}_INPUTS {inputs}
#define {macro}_OUTPUTS {outputs}
{words}
/* One stream; as many as are wanted. */
typedef struct {{
{fields}}} {stem}_state;

/* Before the first step, and wherever a new sequence begins. */
void {stem}_reset({stem}_state *s);

/* One step. y may be null: the states go on, and nothing is read out. {about} */
int {stem}_step({stem}_state *s, {argument}, {result} *y);
{argmax}
#ifdef __cplusplus
}}
#endif
#endif
"""
_TOP: Final = """\
/* Compile without fused multiply-adds (-ffp-contract=off) to have the same bits everywhere. */
#include "{stem}.h"

#include <stddef.h>

#ifdef __FAST_MATH__
#error "-ffast-math changes the results: compile this file without it"
#endif
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif

void *memcpy(void *, const void *, size_t); /* string.h is not everywhere */
void *memset(void *, int, size_t);
#ifdef __GNUC__
/* With -ffreestanding, too, four bytes are a move and not a call. */
#define memcpy __builtin_memcpy
#define memset __builtin_memset
#define SHARED __attribute__((noinline)) /* a large function, which stands in the code once */
#else
#define SHARED
#endif
"""
_EACH: Final = """\
static SHARED void each_{op}(float *y, unsigned n) {{ /* a multiple of 16 */
  for (; n > 0u; n -= 16u, y += 16) {{
#ifdef __clang__
#pragma clang loop unroll(disable)
#endif
    for (unsigned i = 0u; i < 16u; i++) y[i] = {value};
  }}
}}
"""
_SOFTMAX: Final = """\
    float most = {last}[0], sum = 0.0f;
    for (unsigned i = 1u; i < {n}u; i++) most = {last}[i] > most ? {last}[i] : most;
    for (unsigned i = 0u; i < {n}u; i++) sum += y[i] = expf_({last}[i] - most);
    for (unsigned i = 0u; i < {n}u; i++) y[i] /= sum;
"""
_ARGMAX: Final = """\
int32_t {stem}_argmax(const {result} *y) {{
  int32_t best = 0;
  for (int32_t i = 1; i < {n}; i++) best = y[i] > y[best] ? i : best;
  return best;
}}
"""
_MAKEFILE: Final = """\
CC ?= cc
CFLAGS ?= @flags@

test: @stem@_test
\t./@stem@_test

@stem@_test: @stem@_test.c @stem@.c @stem@.h
\t$(CC) $(CFLAGS) -o $@ @stem@_test.c @stem@.c

clean:
\trm -f @stem@_test

.PHONY: test clean
"""
_TEST: Final = """\
/* Golden vectors: inputs, and what the reference in Python makes of them. */
#include "{stem}.h"

#include <stdio.h>
#include <string.h>

{given}{wanted}
int main(void) {{
  static {stem}_state s;
  static {result} y[{macro}_OUTPUTS];
  uint32_t hash = 2166136261u;
  int wrong = 0;
  for (int again = 0; again < 2; again++) {{
    {stem}_reset(&s);
    for (unsigned t = 0u; t < {steps}u; t++) {{
      wrong += {stem}_step(&s, {argument}, y) != 0;
      for (unsigned i = 0u; i < {macro}_OUTPUTS; i++) {{
        const {result} off = y[i] - wanted[t * {macro}_OUTPUTS + i];
        uint32_t bits;
        wrong += !(off <= {tolerance} && -off <= {tolerance});
        memcpy(&bits, &y[i], sizeof bits);
        for (int b = 0; b < 32; b += 8) hash = (hash ^ ((bits >> b) & 255u)) * 16777619u;
      }}
    }}
  }}
  printf("%s %08lx\\n", wrong ? "FAILED" : "ok", (unsigned long)hash);
  return wrong != 0;
}}
"""
_README: Final = """\
# {stem}

A recurrent model as C99, written by onegate: `{stem}.h` and `{stem}.c` are all that a program
needs. Nothing is allocated; of the C library `memcpy` and `memset` are used.

```c
#include "{stem}.h"

{stem}_state s; /* of one stream; as many as are wanted */
{declared}{result} y[{macro}_OUTPUTS];
{stem}_reset(&s); /* wherever a sequence begins */
{stem}_step(&s, {value}, y); /* at every step; y may be NULL where nothing is to be read out */
```

{about}
{numbers}
Compile with `{flags}`; `-march=native` adds the vectors of the machine
that compiles, and the bits stay the same. C++ may include `{stem}.h`, and compile `{stem}.c`, too.

`make test` compiles and runs the self-test, which prints a hash of all outputs. The hash is the
same on every machine: to try another one, compile `{stem}_test.c` and `{stem}.c` for it.

## Model card

sha256 is that of `{stem}.c`.

| | |
| --- | --- |
{rows}
"""
_WHOLE: Final = """
Numbers are whole. From floats and to floats, with `math.h`:

```c
long v = lroundf(ldexpf(number, {macro}_INPUT_EXPONENT)); /* of an input */
x[i] = (int16_t)(v > 32767 ? 32767 : v < -32768 ? -32768 : v);
float score = ldexpf((float)y[i], -{macro}_OUTPUT_EXPONENT);
```
"""
