"""From step code to a program: an order of stages, and a slot for every value.

`onegate.lowering.spec` says what a program is.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from onegate.language import Builder, Graph, Value, in_order, of_graph
from onegate.lowering.differentiate import StepCode, step_code
from onegate.lowering.spec import Code, MapSums, Pointwise, Product, Program, Slot
from onegate.ops import SUMS


@of_graph
def program(graph: Graph) -> Program:
    """The program of `graph`."""
    code = step_code(graph)
    keys = {key: i for i, key in enumerate(graph.parameters)}
    inputs = {given.name: i for i, given in enumerate(graph.inputs)}
    states = {s.name: i for i, s in enumerate(graph.states)}
    constants: dict[float, int] = {}
    forward = _forward(code, _Assembler(keys, inputs, states, constants))
    backward, maps = _backward(graph, code, _Assembler(keys, inputs, states, constants))
    kept = tuple(t.size or 0 for t in code.kept)
    sizes = tuple(s.size or 0 for s in graph.states)
    shapes = tuple(graph.parameters.values())
    return Program(
        tuple(given.size or 0 for given in graph.inputs),
        sizes,
        shapes,
        kept,
        tuple(constants),
        forward,
        backward,
        maps,
        tuple(keys),
    )


def _forward(code: StepCode, out: _Assembler) -> Code:
    for i, result in enumerate(code.results):
        out.deliver(result, "next", i)
    for i, term in enumerate(code.kept):
        out.deliver(term, "keep", i)
    return out.code()


def _backward(graph: Graph, code: StepCode, out: _Assembler) -> tuple[Code, tuple[MapSums, ...]]:
    keys = out.keys
    # Leaves that stay readable for a whole chunk.
    lasting = ("input", "mask", "state", "next", "keep")
    for m in code.maps:
        out.deliver_chunk(m.output)
        for operand in m.operands:
            if operand.op not in lasting:
                out.deliver_chunk(operand)
    zero = Builder().constant(0.0)
    for i, (state, grad) in enumerate(zip(graph.states, code.grads, strict=True)):
        out.deliver(zero if grad is None else grad, "grad_prev", i, state.size)
    for i, (given, grad) in enumerate(zip(graph.inputs, code.grad_inputs, strict=True)):
        if grad is not None:
            out.deliver(grad, "grad_input", i, given.size)
    for key, term in code.grad_vectors:
        out.reductions.append((key, term, graph.parameters[key][0]))
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
    inputs: dict[str, int]
    states: dict[str, int]
    constants: dict[float, int]
    slots: list[Slot] = field(default_factory=list)
    reductions: list[tuple[str, Value, int]] = field(default_factory=list)
    # What leaves the step: (term, space, number, size). The first delivery of a computed term is
    # where it is computed to; any other is a copy.
    deliveries: list[tuple[Value, str, int, int]] = field(default_factory=list)
    chunks: list[int] = field(default_factory=list)
    temps: list[int] = field(default_factory=list)
    home: dict[Value, int] = field(default_factory=dict)
    chunk_home: dict[Value, int] = field(default_factory=dict)

    def slot(self, space: str, index: int, size: int) -> int:
        made = Slot(space, index, size)
        if made not in self.slots:
            self.slots.append(made)
        return self.slots.index(made)

    def deliver(self, term: Value, space: str, index: int, size: int | None = None) -> None:
        self.deliveries.append((term, space, index, term.size or size or 0))

    def deliver_chunk(self, term: Value) -> None:
        if term not in self.chunk_home:
            self.chunks.append(term.size or 0)
            self.deliver(term, "chunk", len(self.chunks) - 1)
            self.chunk_home[term] = self.slot("chunk", len(self.chunks) - 1, term.size or 0)

    def slot_of(self, term: Value, size: int = 0) -> int:
        """Slot of a term that is a leaf or has been computed."""
        if term in self.home:
            return self.home[term]
        size = term.size or size
        match term.op:
            case "input" | "mask":
                return self.slot("input", self.inputs[term.name], size)
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
        copies: list[tuple[int, Value, int]] = []
        for term, space, index, size in self.deliveries:
            slot = self.slot(space, index, size)
            if term.operands and term not in self.home:
                self.home[term] = slot
            elif self.home.get(term) != slot:
                copies.append((slot, term, size))
        order = _schedule(in_order([*self._sums(), *(t for t, *_ in self.deliveries)]))
        self._place(order, {t for _, t, _ in copies})
        stages = [self._stage(group) for group in order]
        last = [Pointwise("copy", slot, (self.slot_of(t, size),)) for slot, t, size in copies]
        if last and stages and isinstance(stages[-1], tuple):
            stages[-1] += tuple(last)
        elif last:
            stages.append(tuple(last))
        return Code(tuple(self.slots), tuple(stages), tuple(self.temps), tuple(self.chunks))

    def _sums(self) -> list[Value]:
        """The reductions as terms, of two operands where nothing else needs their product."""
        order = in_order([t for t, *_ in self.deliveries] + [t for _, t, _ in self.reductions])
        uses = Counter(operand for term in order for operand in term.operands)
        uses.update(t for t, *_ in self.deliveries)
        uses.update(t for _, t, _ in self.reductions)
        builder = Builder()
        return [
            builder.make("reduce_product", term.args, size, key)
            if term.op == "mul" and uses[term] == 1
            else builder.make("reduce", (term,), size, key)
            for key, term, size in self.reductions
        ]

    def _stage(self, group: list[Value]) -> tuple[Pointwise, ...] | Product:
        if group[0].op == "product":
            (term,) = group
            terms = zip(term.args, term.weights, strict=True)
            return Product(
                self.slot_of(term),
                -1 if term.init is None else self.slot_of(term.init),
                tuple((self.slot_of(a), self.keys[w]) for a, w in terms),
            )
        return tuple(
            Pointwise(
                t.op,
                self.keys[t.name] if t.op in SUMS else self.slot_of(t),
                tuple(self.slot_of(a, t.size or 0) for a in t.args),
            )
            for t in group
        )

    def _place(self, order: list[list[Value]], to_the_end: set[Value]) -> None:
        """Gives scratch slots to the terms that leave the step nowhere, reusing dead ones.

        What lives within a run alone has slots of its own, which an engine can keep in cache.
        """
        flat = [t for group in order for t in group]
        run = [number for number, group in enumerate(order) for _ in group]
        last_use = {o: i for i, t in enumerate(flat) for o in t.operands}
        last_use.update(dict.fromkeys(to_the_end, len(flat)))
        free: dict[tuple[int, bool], list[int]] = {}  # by size, and whether within a run
        temp_of: dict[Value, tuple[tuple[int, bool], int]] = {}

        def release(operands: tuple[Value, ...], now: int) -> None:
            for o in dict.fromkeys(operands):
                if o in temp_of and last_use[o] == now:
                    kind, temp = temp_of.pop(o)
                    free[kind].append(temp)

        for now, term in enumerate(flat):
            # A pointwise result may overwrite an operand that dies here; a product's may only
            # overwrite its init, since all columns of its left-hand sides are read to the end.
            if term.op == "product":
                release((term.init,) if term.init is not None else (), now)
            else:
                release(term.operands, now)
            if term not in self.home and term.op not in SUMS:
                size, last = term.size or 0, last_use[term]
                kind = size, term.op != "product" and last < len(run) and run[last] == run[now]
                if not free.setdefault(kind, []):
                    self.temps.append(size)
                    free[kind].append(len(self.temps) - 1)
                temp_of[term] = kind, free[kind].pop()
                self.home[term] = self.slot("temp", temp_of[term][1], size)
            if term.op == "product":
                release(term.args, now)


def _schedule(terms: list[Value]) -> list[list[Value]]:
    """Stages: all pointwise terms that are ready, as one run; then each product that is ready."""
    waiting = [t for t in terms if t.operands]
    done = {t for t in terms if not t.operands}
    order: list[list[Value]] = []
    while waiting:
        run: list[Value] = []
        products: list[Value] = []
        later: list[Value] = []
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
