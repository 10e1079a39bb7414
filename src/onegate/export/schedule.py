"""The order in which one step of a stream is computed: products, calls, loops between them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from onegate.language import Graph, Map, Value
from onegate.ops import is_norm


@dataclass(eq=False)
class MapStage:
    """A map into a buffer."""

    node: Value
    map: Map
    buffer: str = ""


@dataclass(eq=False)
class CallStage:
    """A norm, or a function of a whole vector, into a buffer; loads: operand -> where it lies."""

    node: Value
    buffer: str = ""
    loads: dict[Value, str] = field(default_factory=dict)

    @property
    def operands(self) -> tuple[Value, ...]:
        """What is normed, and the vectors that share its statistics; one may stand there twice."""
        first, _, *others = self.node.args
        return first, *others


@dataclass(eq=False)
class Loop:
    """Pointwise operations of one size.

    loads: value -> the buffer it is read from. stores: buffer or state -> value, after all
    loads of an element.
    """

    size: int
    nodes: list[Value]
    loads: dict[Value, str] = field(default_factory=dict)
    stores: list[tuple[str, Value]] = field(default_factory=list)


Stage: TypeAlias = MapStage | CallStage | Loop


@dataclass(frozen=True, eq=False)
class StepSchedule:
    """Stages in order; buffers: name -> size; states: the names of the state vectors."""

    stages: tuple[Stage, ...]
    buffers: dict[str, int]
    places: dict[Value, str]  # where each value that is kept lies


def state_names(graph: Graph) -> list[str]:
    """Names of the states as C knows them."""
    # gate_...: what the gates are called that `gates=True` keeps beside them.
    plain = all(re.fullmatch(r"(?!gate_)[A-Za-z0-9_]+", s.name) for s in graph.states)
    return [s.name if plain else f"s{i}" for i, s in enumerate(graph.states)]


def schedule(graph: Graph, shared: frozenset[str] = frozenset()) -> StepSchedule:
    """Products as soon as their operands are there, and few loops.

    shared: operations whose code is to stand once: they are called for whole vectors.
    A buffer is used again when nobody reads it any more. A new state is written when nobody reads
    the old one any more.
    """
    stages: list[Stage] = []
    leaves = ("input", "state", "vector", "constant")
    done = {node for node in graph.nodes if node.op in leaves} | {*graph.inputs, *graph.states}
    left = [node for node in graph.nodes if node not in done]

    def is_called(node: Value) -> bool:
        of_vector = node.op in shared and bool(node.size) and node.args[0].op != "constant"
        return is_norm(node.op) or of_vector

    while left:
        ready = [n for n in left if n.op == "affine" and done.issuperset(n.args)]
        stages += [MapStage(node, graph.maps[node]) for node in ready]
        called = [n for n in left if is_called(n) and done.issuperset(n.args)]
        stages += [CallStage(node) for node in called]
        done.update(ready, called)
        left = [node for node in left if node not in done]
        loop: list[Value] = []
        for node in left:
            same = not loop or node.size == loop[0].size
            if node.op != "affine" and not is_called(node) and same and done.issuperset(node.args):
                loop.append(node)
                done.add(node)
        if loop:
            stages.append(Loop(loop[0].size or 0, loop))
        left = [node for node in left if node not in done]
    return _placed(graph, stages)


def _reads(stage: Stage) -> set[Value]:
    """What a stage needs from outside it; constants are written out."""
    if isinstance(stage, MapStage):
        return set(stage.map.operands)
    nodes = [stage.node] if isinstance(stage, CallStage) else stage.nodes
    inner = set(nodes)
    return {a for n in nodes for a in n.args if a not in inner and a.op != "constant"}


def _placed(graph: Graph, stages: list[Stage]) -> StepSchedule:
    names = [f"state.{name}" for name in state_names(graph)]
    places: dict[Value, str] = {graph.input: "x", **dict(zip(graph.states, names, strict=True))}
    first = 0
    for value in graph.inputs[1:]:  # one after another
        places[value], first = f"more.{first}", first + (value.size or 0)
    places |= {n: f"vector.{n.name}" for n in graph.nodes if n.op == "vector"}
    last: dict[Value, int] = {}
    for at, stage in enumerate(stages):
        last.update(dict.fromkeys(_reads(stage), at))
    made = {n: at for at, s in enumerate(stages) for n in (s.nodes if isinstance(s, Loop) else [])}
    # A result that no loop can write to its state in time is copied by a last loop.
    late = [
        k
        for k, (state, result) in enumerate(zip(graph.states, graph.results, strict=True))
        if made.get(result, -1) < last.get(state, -1) or result not in made
    ]
    late = _with_read(graph, late)
    for k in late:
        last[graph.results[k]] = len(stages)
    buffers: dict[str, int] = {}
    free: list[str] = []

    def buffer(size: int) -> str:
        name = next((b for b in free if buffers[b] == size), None)
        if name is None:
            name = f"t{len(buffers)}"
            buffers[name] = size
        else:
            free.remove(name)
        return name

    for at, stage in enumerate(stages):
        reads = _reads(stage)
        gone = [places[v] for v in reads if last[v] == at and places[v].startswith("t")]
        if isinstance(stage, MapStage):
            stage.buffer = places[stage.node] = buffer(stage.node.size or 0)
            free += sorted(gone)
            continue
        if isinstance(stage, CallStage):
            stage.loads = {v: places[v] for v in stage.node.args if v in reads}
            if is_norm(stage.node.op) or buffers.get(gone[0] if gone else "") != stage.node.size:
                stage.buffer = buffer(stage.node.size or 0)
                free += sorted(gone)
            else:
                (stage.buffer,) = gone  # in place
            places[stage.node] = stage.buffer
            continue
        stage.loads = {v: places[v] for v in sorted(reads, key=lambda v: places[v])}
        free += sorted(gone)  # elements are read before they are written: in place is well
        for node in stage.nodes:
            if last.get(node, -1) > at:
                places[node] = buffer(stage.size)
                stage.stores.append((places[node], node))
        stage.stores += [
            (names[k], r) for k, r in enumerate(graph.results) if k not in late and made[r] == at
        ]
    stages += _copies(graph, late, names, places)
    return StepSchedule(tuple(stages), buffers, places)


def _with_read(graph: Graph, late: list[int]) -> list[int]:
    """A state that a late copy reads is written late, too."""
    found = set(late)
    while True:
        read = {graph.results[k] for k in found}
        more = {k for k, state in enumerate(graph.states) if state in read} - found
        if not more:
            return sorted(found)
        found |= more


def _copies(
    graph: Graph, late: Iterable[int], names: list[str], places: dict[Value, str]
) -> list[Loop]:
    loops: dict[int, Loop] = {}
    for k in late:
        result, size = graph.results[k], graph.states[k].size or 0
        loop = loops.setdefault(size, Loop(size, []))
        if result.op != "constant":
            loop.loads[result] = places[result]
        loop.stores.append((names[k], result))
    return list(loops.values())
