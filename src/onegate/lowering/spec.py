"""What a program is: the one form of a step between the equations and everything that runs them.

A `Program` holds a forward and a backward step. A step works on **slots**, places for one vector
(a row of a batch) each. The space of a slot says whose memory it is and how long its value lives:

    input       x at this step, and further inputs      given
    prev        the states before the step              given
    next        the states after it                     results; given to the backward step
    keep        what the forward step stores            results; given to the backward step
    temp        scratch; dead when the step ends, and reused within it
    chunk       scratch of the backward step that lives until weight gradients are summed
    vector      a learned vector, by its number among the parameters; given
    constant    a number, as wide as whoever reads it wants; given
    grad_next   the gradient at the new states          given to the backward step
    grad_prev   the gradient at the old states          results of the backward step
    grad_input  the gradient at an input outside of the maps, a result of the backward step, if any

What is given may not be written, and nothing is read before it is written. A step is a list of
**stages**, done in order:

- a run of pointwise instructions, dst = op(args), of the operations of `onegate.ops`, all operands
  as wide as the result, but for operations with numbers of a row, in slots of width 1. `reduce`
  adds its operand to the gradient of a parameter, a vector, `reduce_product` that of two;
- a product, dst = init + sum of slot times matrix. The forward step multiplies by matrices
  transposed, (rows x columns) from columns to rows; the backward step as they are. A matrix with
  heads is so many of these, each from its share of the slot to its share of dst. A product may
  overwrite its init but none of its left-hand sides, which are read to the end.

Every step writes all `next` (backward: all `grad_prev`, and `grad_input` if there is such a
slot); the forward step all `keep`. **Maps** say how weight gradients come of slots that last over
many steps (input, prev, next, keep, chunk): the gradient at a map's output, transposed, times
each operand; and its sum, for the bias. They are one large product over all steps of a chunk,
however an engine cuts time into chunks; so are the gradients of x through the maps, which the
backward step leaves out. Whether rows or columns are split among threads, and where slots lie, is
the engine's own business.

A program travels as integers (`encode`, `decode`); csrc/program.cpp reads the same and refuses the
same, with the same words. MGU with 3 inputs and 2 neurons, as `onegate units mgu --program` has it:

    forward, at every step:
      product    temp0 = vector2 + prev0 x f.U + input0 x f.W
      pointwise  keep1 = sigmoid(temp0)
                 temp0 = mul(keep1, prev0)
      product    temp1 = vector5 + temp0 x h.U + input0 x h.W
      pointwise  keep0 = tanh(temp1)
                 next0 = lerp(keep1, prev0, keep0)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn

from onegate.ops import OPERATIONS, SUMS

FORMAT: Final = 3  # equals kFormat in csrc/program.h
SPACES: Final = (
    "input", "prev", "next", "keep", "temp", "chunk", "vector", "constant", "grad_next",
    "grad_prev", "grad_input",
)  # fmt: skip
_GIVEN: Final = {"input", "prev", "vector", "constant"}
_GIVEN_BACKWARD: Final = {*_GIVEN, "next", "keep", "grad_next"}
_LASTING: Final = {"input", "prev", "next", "keep", "chunk"}
_BACKWARD_ONLY: Final = {
    "chunk": "a chunk vector",
    "grad_next": "a state gradient",
    "grad_prev": "a state gradient",
    "grad_input": "an input gradient",
}
_MAX_WIDTH, _MAX_COUNT, _MAX_NUMBERS, _PADDING = 1 << 24, 1 << 16, 1 << 40, 31
_NAMES: Final = {row.opcode: name for name, row in OPERATIONS.items() if row.opcode is not None}


class ProgramError(ValueError):
    """A program that no engine may run."""


@dataclass(frozen=True)
class Slot:
    """A place for one vector: `space` and number tell where, `size` how long it is."""

    space: str
    index: int
    size: int

    def __str__(self) -> str:
        return f"{self.space}{self.index}"


@dataclass(frozen=True)
class Pointwise:
    """dst = op(args), element by element; for sums over rows, dst is the number of a parameter."""

    op: str
    dst: int
    args: tuple[int, ...]


@dataclass(frozen=True)
class Product:
    """dst = init + sum of slot times matrix; terms are (slot, parameter), init -1 for zero."""

    dst: int
    init: int
    terms: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Code:
    """One direction of the step; temps and chunks: the widths of its scratch vectors."""

    slots: tuple[Slot, ...]
    stages: tuple[tuple[Pointwise, ...] | Product, ...]
    temps: tuple[int, ...]
    chunks: tuple[int, ...]


@dataclass(frozen=True)
class MapSums:
    """Weight gradients of one map.

    output: slot of the gradient at the map's output. bias: a parameter, or -1. operands: (slot,
    parameter) each.
    """

    output: int
    bias: int
    operands: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Program:
    """Forward and backward step.

    inputs: their sizes, of x first. states: their sizes; the first is the output. parameters:
    shapes, (size,), (rows, columns), or with heads (heads, rows of a head, columns of a head).
    kept: the sizes of what the forward step stores. keys: the parameters' names, for people.
    """

    inputs: tuple[int, ...]
    states: tuple[int, ...]
    parameters: tuple[tuple[int, ...], ...]
    kept: tuple[int, ...]
    constants: tuple[float, ...]
    forward: Code
    backward: Code
    maps: tuple[MapSums, ...]
    keys: tuple[str, ...] = field(default=(), compare=False)

    def encode(self) -> list[int]:
        """The program as integers, in the order in which csrc/program.cpp reads them."""
        shapes = [
            (*shape[1:], shape[0]) if len(shape) == 3 else (*(*shape, 0)[:2], 1)
            for shape in self.parameters
        ]
        out = [FORMAT, len(self.inputs), *self.inputs, len(self.states), *self.states]
        out += [len(shapes), *(n for shape in shapes for n in shape)]
        out += [len(self.kept), *self.kept, len(self.constants)]
        for code in (self.forward, self.backward):
            out += _encode(code)
        out.append(len(self.maps))
        for m in self.maps:
            out += [m.output, m.bias, len(m.operands), *(n for o in m.operands for n in o)]
        return out

    @classmethod
    def decode(cls, code: Sequence[int], constants: Sequence[float] = ()) -> Program:
        """The program that `encode` wrote; a `ProgramError` says what is wrong with it."""
        return _Reader(code, tuple(constants)).program()

    def describe(self) -> str:
        """The stage lists in plain text."""
        keys = list(self.keys) or [f"p{i}" for i in range(len(self.parameters))]
        lines = []
        for title, code in (("forward", self.forward), ("backward", self.backward)):
            lines.append(f"{title}, at every step:")
            lines += _describe(code, keys)
        lines.append("weight gradients, over many steps at once:")
        for m in self.maps:
            d = self.backward.slots[m.output]
            for slot, key in m.operands:
                lines.append(f"  d {keys[key]} += {d}' {self.backward.slots[slot]}")
            if m.bias >= 0:
                lines.append(f"  d {keys[m.bias]} += {d}' 1")
        return "\n".join(lines)


def _encode(code: Code) -> list[int]:
    out = [len(code.slots)]
    for slot in code.slots:
        out += [SPACES.index(slot.space), slot.index, slot.size]
    out += [len(code.temps), *code.temps, len(code.chunks), *code.chunks, len(code.stages)]
    for stage in code.stages:
        if isinstance(stage, Product):
            out += [1, stage.dst, stage.init, len(stage.terms)]
            out += [n for term in stage.terms for n in term]
        else:
            out += [0, len(stage)]
            for i in stage:
                opcode = OPERATIONS[i.op].opcode
                assert opcode is not None, f"{i.op} stands in no program"
                out += [opcode, i.dst, *i.args, *([-1] * (3 - len(i.args)))]
    return out


def _describe(code: Code, keys: list[str]) -> list[str]:
    lines = []
    for stage in code.stages:
        if isinstance(stage, Product):
            init = "" if stage.init < 0 else f"{code.slots[stage.init]} + "
            terms = " + ".join(f"{code.slots[s]} x {keys[k]}" for s, k in stage.terms)
            lines.append(f"  product    {code.slots[stage.dst]} = {init}{terms}")
            continue
        for i, step in enumerate(stage):
            lead = "pointwise" if i == 0 else ""
            args = ", ".join(str(code.slots[a]) for a in step.args)
            dst = f"d {keys[step.dst]}" if step.op in SUMS else str(code.slots[step.dst])
            lines.append(f"  {lead:<10} {dst} = {step.op}({args})")
    return lines


def _refuse(what: str) -> NoReturn:
    raise ProgramError(what)


class _Reader:
    """Reads integers into a program and checks it, as csrc/program.cpp does."""

    def __init__(self, code: Sequence[int], constants: tuple[float, ...]) -> None:
        self.code, self.constants, self.at = code, constants, 0

    def next(self, what: str, low: int, high: int) -> int:
        if self.at >= len(self.code):
            _refuse(f"the program ends before {what}")
        value = self.code[self.at]
        self.at += 1
        if not low <= value <= high:
            _refuse(f"{what} is {value}, expected {low} to {high}")
        return value

    def count(self, what: str) -> int:
        return self.next(what, 0, _MAX_COUNT)

    def width(self, what: str) -> int:
        return self.next(what, 1, _MAX_WIDTH)

    def program(self) -> Program:
        form = self.next("the format", 0, (1 << 31) - 1)
        if form != FORMAT:
            _refuse(f"the program has format {form}, this engine reads {FORMAT}")
        inputs = self.next("the number of inputs", 1, _MAX_COUNT)
        self.inputs = tuple(self.width("an input's width") for _ in range(inputs))
        states = self.next("the number of states", 1, _MAX_COUNT)
        self.states = tuple(self.width("a state's width") for _ in range(states))
        shapes = []
        for _ in range(self.count("the number of parameters")):
            rows = self.width("a parameter's rows")
            columns = self.next("a parameter's columns", 0, _MAX_WIDTH)
            heads = self.next("a parameter's heads", 1, _MAX_COUNT if columns else 1)
            shape = (rows, columns) if columns else (rows,)
            shapes.append((heads, *shape) if heads > 1 else shape)
        self.shapes = tuple(shapes)
        kept = self.count("the number of kept values")
        self.kept = tuple(self.width("a kept value's width") for _ in range(kept))
        listed = self.count("the number of constants")
        if listed != len(self.constants):
            _refuse(f"the program has {listed} constants, {len(self.constants)} came")
        forward = _StepReader(self, backward=False).read()
        step = _StepReader(self, backward=True)
        backward = step.read()
        maps = self._maps(step)
        if self.at != len(self.code):
            left = len(self.code) - self.at
            _refuse(f"{left} integers are left over after the end of the program")
        made = Program(
            self.inputs,
            self.states,
            self.shapes,
            self.kept,
            self.constants,
            forward,
            backward,
            maps,
        )
        _measure(made)
        return made

    def parameter(self, what: str, low: int = 0) -> int:
        return self.next(what, low, len(self.shapes) - 1)

    def _maps(self, step: _StepReader) -> tuple[MapSums, ...]:
        summed: set[int] = set()

        def once(parameter: int) -> None:
            if parameter in summed:
                _refuse(f"parameter {parameter} has two gradients")
            summed.add(parameter)

        maps = []
        for _ in range(self.count("the number of maps")):
            output = step.lasting("a map's gradient")
            width = step.slots[output].size
            if step.slots[output].space != "chunk":
                _refuse("a map's gradient is not a chunk vector")
            bias = self.parameter("a map's bias", -1)
            if bias >= 0:
                if self.shapes[bias] != (width,):
                    _refuse("a map's bias does not fit its result")
                once(bias)
            operands = []
            heads = 0
            for _ in range(self.next("a map's number of operands", 1, _MAX_COUNT)):
                slot = step.lasting("a map's operand")
                matrix = self.parameter("a map's matrix")
                if _outer(self.shapes[matrix]) != (width, step.slots[slot].size):
                    _refuse("a map's matrix does not fit its operand or result")
                own = self.shapes[matrix][0] if len(self.shapes[matrix]) == 3 else 1
                if heads not in (0, own):
                    _refuse("a map's matrices differ in their heads")
                heads = own
                once(matrix)
                operands.append((slot, matrix))
            maps.append(MapSums(output, bias, tuple(operands)))
        return tuple(maps)


class _StepReader:
    """Reads one direction of a program."""

    def __init__(self, reader: _Reader, backward: bool) -> None:
        self.reader, self.backward = reader, backward
        self.given = _GIVEN_BACKWARD if backward else _GIVEN
        self.slots: list[Slot] = []
        self.written: set[int] = set()

    def read(self) -> Code:
        r = self.reader
        for _ in range(r.count("the number of slots")):
            space = SPACES[r.next("a slot's space", 0, len(SPACES) - 1)]
            number = r.count("a slot's number")
            self.slots.append(Slot(space, number, r.width("a slot's width")))
        temps, chunks = (
            tuple(
                r.width("a scratch vector's width")
                for _ in range(r.count("the number of scratch vectors"))
            )
            for _ in range(2)
        )
        for slot in self.slots:
            self._check(slot, temps, chunks)
        stages = tuple(
            self._run() if r.next("a stage's kind", 0, 1) == 0 else self._product()
            for _ in range(r.count("the number of stages"))
        )
        self._check_results()
        return Code(tuple(self.slots), stages, temps, chunks)

    def _check(self, slot: Slot, temps: tuple[int, ...], chunks: tuple[int, ...]) -> None:
        r = self.reader
        if not self.backward and slot.space in _BACKWARD_ONLY:
            _refuse(f"{_BACKWARD_ONLY[slot.space]} stands in the forward step")
        if slot.space == "vector":
            if slot.index >= len(r.shapes) or r.shapes[slot.index] != (slot.size,):
                _refuse(f"parameter {slot.index} is not a vector of {slot.size}")
            return
        if slot.space == "constant":
            if slot.index >= len(r.constants):
                _refuse(f"there is no constant {slot.index}")
            return
        what, widths = {
            "input": ("input", r.inputs),
            "grad_input": ("input gradient", r.inputs),
            "grad_next": ("state gradient", r.states),
            "grad_prev": ("state gradient", r.states),
            "prev": ("state", r.states),
            "next": ("state", r.states),
            "keep": ("kept value", r.kept),
            "temp": ("scratch vector", temps),
            "chunk": ("chunk vector", chunks),
        }[slot.space]
        if slot.index >= len(widths):
            _refuse(f"there is no {what} {slot.index}")
        if widths[slot.index] != slot.size:
            _refuse(
                f"{what} {slot.index} has width {widths[slot.index]}, the slot says {slot.size}"
            )

    def _slot(self, what: str) -> int:
        return self.reader.next(what, 0, len(self.slots) - 1)

    def _is_readable(self, slot: int) -> bool:
        return self.slots[slot].space in self.given or slot in self.written

    def readable(self, what: str) -> int:
        slot = self._slot(what)
        if not self._is_readable(slot):
            _refuse(f"{what} (slot {slot}) is read before it is written")
        return slot

    def lasting(self, what: str) -> int:
        """A slot that weight gradients read after the last step of a chunk."""
        slot = self.readable(what)
        if self.slots[slot].space not in _LASTING:
            _refuse(f"{what} does not last until the weights' gradients are summed")
        return slot

    def _writable(self, what: str) -> int:
        slot = self._slot(what)
        if self.slots[slot].space in self.given:
            _refuse(f"{what} (slot {slot}) may not be written")
        return slot

    def _run(self) -> tuple[Pointwise, ...]:
        length = self.reader.next("a run's length", 1, _MAX_COUNT)
        return tuple(self._instruction() for _ in range(length))

    def _instruction(self) -> Pointwise:
        r = self.reader
        op = _NAMES[r.next("an opcode", 0, len(_NAMES) - 1)]
        if op in SUMS:
            if not self.backward:
                _refuse("a reduction stands in the forward step")
            dst = r.parameter("a reduction's parameter")
            target = r.shapes[dst]
        else:
            dst = self._writable("a result")
            target = (self.slots[dst].size,)
        used, narrow = OPERATIONS[op].arity, OPERATIONS[op].narrow
        args = tuple(self.readable("an operand") for _ in range(used))
        for _ in range(3 - used):
            r.next("an unused operand", -1, -1)
        if -1 in narrow:
            if target != (1,):
                _refuse(f"a number of the row has width {target[0]}")
            target = (self.slots[args[0]].size,)
        for place, a in enumerate(args):
            size = self.slots[a].size
            if place in narrow and size != 1:
                _refuse(f"a number of the row has width {size}")
            if place not in narrow and (size,) != target:
                _refuse(f"an operand has width {size}, its result {target[0]}")
        if op not in SUMS:
            self.written.add(dst)
        return Pointwise(op, dst, args)

    def _product(self) -> Product:
        r = self.reader
        dst = self._writable("a product's result")
        result = self.slots[dst]
        init = r.next("a product's init", -1, len(self.slots) - 1)
        if init >= 0:
            if not self._is_readable(init):
                _refuse("a product's init is read before it is written")
            if self.slots[init].size != result.size or self.slots[init].space == "constant":
                _refuse("a product's init does not fit its result")
        terms = []
        for _ in range(r.next("a product's number of terms", 1, _MAX_COUNT)):
            slot = self.readable("a product's operand")
            matrix = r.parameter("a product's matrix")
            operand, shape = self.slots[slot], _outer(r.shapes[matrix])
            needed = (result.size, operand.size)
            if shape != (needed[::-1] if self.backward else needed) or operand.space == "constant":
                _refuse(f"matrix {matrix} does not fit its operand or result")
            if (operand.space, operand.index) == (result.space, result.index):
                _refuse("a product overwrites its own operand")
            terms.append((slot, matrix))
        self.written.add(dst)
        return Product(dst, init, tuple(terms))

    def _check_results(self) -> None:
        written = {(self.slots[i].space, self.slots[i].index) for i in self.written}
        for i in range(len(self.reader.states)):
            if ("grad_prev" if self.backward else "next", i) not in written:
                _refuse(f"state {i} is not written by the step")
        for slot in self.slots:
            if slot.space == "grad_input" and ("grad_input", slot.index) not in written:
                _refuse("the input gradient is not written by the step")
        for i in range(0 if self.backward else len(self.reader.kept)):
            if ("keep", i) not in written:
                _refuse(f"kept value {i} is not written by the step")


def _outer(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the whole matrix that a shape with heads stands for."""
    return (shape[0] * shape[1], shape[0] * shape[2]) if len(shape) == 3 else shape


def upgraded(code: Sequence[int]) -> list[int]:
    """What an earlier version encoded, in today's format; anything else as it is."""
    code = list(code)
    if code[:1] != [2]:  # which had one input and no heads
        return code
    states = code[2] if len(code) > 2 else 0
    at = 3 + states
    count = code[at] if len(code) > at else 0
    shapes = code[at + 1 : at + 1 + 2 * count]
    with_heads = [n for i in range(0, len(shapes), 2) for n in (*shapes[i : i + 2], 1)]
    return [3, 1, *code[1 : at + 1], *with_heads, *code[at + 1 + 2 * count :]]


def _measure(p: Program) -> None:
    """Refuses a program whose sizes an engine could not add up."""
    widths = [*p.inputs, *p.states, *p.kept]
    for code in (p.forward, p.backward):
        widths += [*(slot.size for slot in code.slots), *code.temps, *code.chunks]
    widths += [p.backward.slots[slot].size for m in p.maps for slot, _ in m.operands]
    counts = [math.prod(shape) for shape in p.parameters]
    products = [stage for stage in p.forward.stages if isinstance(stage, Product)]
    work = sum(counts[matrix] for stage in products for _, matrix in stage.terms)
    for amount, what in (
        (sum(width + _PADDING for width in widths), "numbers for each row"),
        (sum(counts), "numbers in its parameters"),
        (work, "multiplications for each row"),
    ):
        if amount > _MAX_NUMBERS:
            _refuse(f"the program is too large: {amount} {what}, at most {_MAX_NUMBERS}")
