"""A unit's step code as a program for the native engine: slots, pointwise runs and products.

A slot is where a vector lies (a state, a kept value, scratch). A step is a list of stages: runs of
pointwise instructions, which the engine works through block by block, and matrix products.
`Program.encode` gives the integers that csrc/program.h reads; `describe` prints it for people.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

from onegate.language import Graph
from onegate.lowering.code import OPCODES, Term, in_order
from onegate.lowering.differentiate import StepCode, step_code

FORMAT = 2  # must equal kFormat in csrc/program.h
SPACES = (
    "input", "prev", "next", "keep", "temp", "chunk", "vector", "constant", "grad_next",
    "grad_prev", "grad_input",
)  # fmt: skip


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
    """dst = op(args), element by element; for `reduce`, dst is the number of a parameter."""

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
    """One direction of the step."""

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
    """Forward and backward step of a graph, ready for the engine."""

    graph: Graph
    forward: Code
    backward: Code
    kept: tuple[int, ...]
    constants: tuple[float, ...]
    maps: tuple[MapSums, ...]

    def encode(self) -> list[int]:
        """The program as integers, in the order in which csrc/program.cpp reads them."""
        g = self.graph
        sizes = [s.size or 0 for s in g.states]
        shapes = [(shape[0], shape[1] if len(shape) > 1 else 0) for shape in g.parameters.values()]
        out = [FORMAT, g.input_size, len(sizes), *sizes]
        out += [len(shapes), *(n for shape in shapes for n in shape)]
        out += [len(self.kept), *self.kept, len(self.constants)]
        for code in (self.forward, self.backward):
            out += _encode(code)
        out.append(len(self.maps))
        for m in self.maps:
            out += [m.output, m.bias, len(m.operands), *(n for o in m.operands for n in o)]
        return out

    def describe(self) -> str:
        """The stage lists in plain text."""
        keys = list(self.graph.parameters)
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


@functools.lru_cache(maxsize=1024)
def program(graph: Graph) -> Program:
    """The program of `graph`."""
    code = step_code(graph)
    keys = {key: i for i, key in enumerate(graph.parameters)}
    states = {s.name: i for i, s in enumerate(graph.states)}
    constants: dict[float, int] = {}
    forward = _forward(code, keys, states, constants)
    backward, maps = _backward(graph, code, keys, states, constants)
    kept = tuple(t.size or 0 for t in code.kept)
    return Program(graph, forward, backward, kept, tuple(constants), maps)


def _forward(
    code: StepCode, keys: dict[str, int], states: dict[str, int], constants: dict[float, int]
) -> Code:
    out = _Assembler(keys, states, constants)
    for i, result in enumerate(code.results):
        out.deliver(result, "next", i)
    for i, term in enumerate(code.kept):
        out.deliver(term, "keep", i)
    return out.code()


def _backward(
    graph: Graph,
    code: StepCode,
    keys: dict[str, int],
    states: dict[str, int],
    constants: dict[float, int],
) -> tuple[Code, tuple[MapSums, ...]]:
    out = _Assembler(keys, states, constants)
    lasting = ("input", "state", "next", "keep")  # leaves that stay readable for a whole chunk
    for m in code.maps:
        out.deliver_chunk(m.output)
        for operand in m.operands:
            if operand.op not in lasting:
                out.deliver_chunk(operand)
    zero = Term("constant", (), None)
    for i, (state, grad) in enumerate(zip(graph.states, code.grads, strict=True)):
        out.deliver(zero if grad is None else grad, "grad_prev", i, state.size)
    if code.grad_input is not None:
        out.deliver(code.grad_input, "grad_input", 0, graph.input_size)
    for key, term in code.grad_vectors:
        out.reductions.append((keys[key], term, graph.parameters[key][0]))
    built = out.code()
    maps = tuple(
        MapSums(
            out.chunk_home[m.output],
            -1 if m.bias is None else keys[m.bias],
            tuple(
                (out.slot_of(o) if o.op in lasting else out.chunk_home[o], keys[w])
                for o, w in zip(m.operands, m.weights, strict=True)
            ),
        )
        for m in code.maps
    )
    return Code(tuple(out.slots), built.stages, built.temps, built.chunks), maps


@dataclass
class _Assembler:
    """Orders terms into stages and gives each a slot."""

    keys: dict[str, int]
    states: dict[str, int]
    constants: dict[float, int]
    slots: list[Slot] = field(default_factory=list)
    reductions: list[tuple[int, Term, int]] = field(default_factory=list)
    # What leaves the step: (term, space, number, size). The first delivery of a computed term is
    # where it is computed to; any other is a copy.
    deliveries: list[tuple[Term, str, int, int]] = field(default_factory=list)
    chunks: list[int] = field(default_factory=list)
    temps: list[int] = field(default_factory=list)
    home: dict[Term, int] = field(default_factory=dict)
    chunk_home: dict[Term, int] = field(default_factory=dict)

    def slot(self, space: str, index: int, size: int) -> int:
        made = Slot(space, index, size)
        if made not in self.slots:
            self.slots.append(made)
        return self.slots.index(made)

    def deliver(self, term: Term, space: str, index: int, size: int | None = None) -> None:
        self.deliveries.append((term, space, index, term.size or size or 0))

    def deliver_chunk(self, term: Term) -> None:
        if term not in self.chunk_home:
            self.chunks.append(term.size or 0)
            self.deliver(term, "chunk", len(self.chunks) - 1)
            self.chunk_home[term] = self.slot("chunk", len(self.chunks) - 1, term.size or 0)

    def slot_of(self, term: Term, size: int = 0) -> int:
        """Slot of a term that is a leaf or has been computed."""
        if term in self.home:
            return self.home[term]
        size = term.size or size
        match term.op:
            case "input":
                return self.slot("input", 0, size)
            case "state":
                return self.slot("prev", self.states[term.name], size)
            case "next":
                return self.slot("next", self.states[term.name], size)
            case "grad":
                return self.slot("grad_next", self.states[term.name], size)
            case "keep":
                return self.slot("keep", int(term.name), size)
            case "vector":
                return self.slot("vector", self.keys[term.name], size)
            case "constant":
                index = self.constants.setdefault(term.number, len(self.constants))
                return self.slot("constant", index, size)
        raise AssertionError(f"{term.op} has no slot yet")

    def code(self) -> Code:
        copies: list[tuple[int, Term, int]] = []
        for term, space, index, size in self.deliveries:
            slot = self.slot(space, index, size)
            if term.operands and term not in self.home:
                self.home[term] = slot
            elif self.home.get(term) != slot:
                copies.append((slot, term, size))
        roots = [t for t, *_ in self.deliveries] + [t for _, t, _ in self.reductions]
        order = _schedule(in_order(roots))
        self._place(order, {t for _, t, _ in copies} | {t for _, t, _ in self.reductions})
        stages = [self._stage(group) for group in order]
        last: list[Pointwise] = [
            Pointwise("copy", slot, (self.slot_of(t, size),)) for slot, t, size in copies
        ]
        last += [
            Pointwise("reduce", key, (self.slot_of(t, size),)) for key, t, size in self.reductions
        ]
        if last and stages and isinstance(stages[-1], tuple):
            stages[-1] += tuple(last)
        elif last:
            stages.append(tuple(last))
        return Code(tuple(self.slots), tuple(stages), tuple(self.temps), tuple(self.chunks))

    def _stage(self, group: list[Term]) -> tuple[Pointwise, ...] | Product:
        if group[0].op == "product":
            (term,) = group
            terms = zip(term.args, term.weights, strict=True)
            return Product(
                self.slot_of(term),
                -1 if term.init is None else self.slot_of(term.init),
                tuple((self.slot_of(a), self.keys[w]) for a, w in terms),
            )
        return tuple(
            Pointwise(t.op, self.slot_of(t), tuple(self.slot_of(a, t.size or 0) for a in t.args))
            for t in group
        )

    def _place(self, order: list[list[Term]], to_the_end: set[Term]) -> None:
        """Gives scratch slots to the terms that leave the step nowhere, reusing dead ones."""
        flat = [t for group in order for t in group]
        last_use = {o: i for i, t in enumerate(flat) for o in t.operands}
        last_use.update(dict.fromkeys(to_the_end, len(flat)))
        free: dict[int, list[int]] = {}
        temp_of: dict[Term, int] = {}

        def release(operands: tuple[Term, ...], now: int) -> None:
            for o in dict.fromkeys(operands):
                if o in temp_of and last_use[o] == now:
                    free.setdefault(o.size or 0, []).append(temp_of.pop(o))

        for now, term in enumerate(flat):
            # A pointwise result may overwrite an operand that dies here; a product's may only
            # overwrite its init, since all columns of its left-hand sides are read to the end.
            if term.op == "product":
                release((term.init,) if term.init is not None else (), now)
            else:
                release(term.operands, now)
            if term not in self.home:
                size = term.size or 0
                if not free.get(size):
                    self.temps.append(size)
                    free.setdefault(size, []).append(len(self.temps) - 1)
                temp_of[term] = free[size].pop()
                self.home[term] = self.slot("temp", temp_of[term], size)
            if term.op == "product":
                release(term.args, now)


def _schedule(terms: list[Term]) -> list[list[Term]]:
    """Stages: all pointwise terms that are ready, as one run; then each product that is ready."""
    waiting = [t for t in terms if t.operands]
    done = {t for t in terms if not t.operands}
    order: list[list[Term]] = []
    while waiting:
        run: list[Term] = []
        products: list[Term] = []
        later: list[Term] = []
        for term in waiting:
            ready = all(o in done for o in term.operands)
            if ready and term.op != "product":
                run.append(term)
                done.add(term)
            elif ready:
                products.append(term)
            else:
                later.append(term)
        done.update(products)
        order += [run] if run else []
        order += [[p] for p in products]
        waiting = later
    return order


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
                out += [OPCODES[i.op], i.dst, *i.args, *([-1] * (3 - len(i.args)))]
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
            dst = f"d {keys[step.dst]}" if step.op == "reduce" else str(code.slots[step.dst])
            lines.append(f"  {lead:<10} {dst} = {step.op}({args})")
    return lines
