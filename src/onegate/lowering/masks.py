"""Masks inside a step: a graph with dropout or zoneout in it, as equations over further inputs.

Kinds of masks, each drawn by who runs the graph:

    recurrent   what maps read of the states is multiplied by it (Gal and Ghahramani 2016): one
                mask for each size, shared by all maps of a step
    candidate   the value called `candidate` in the equations is multiplied by it, and so the old
                state is left alone (Semeniuta, Severyn and Barth 2016)
    zoneout_h   where it is 1 the new h is the old one (Krueger et al. 2017); likewise for any state
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from onegate.language import Builder, Graph, Map, UnitError, Value
from onegate.lowering.stages import recurrent_nodes
from onegate.notation import CANDIDATE


def masked(graph: Graph, kinds: tuple[str, ...]) -> Graph:
    """`graph` with masks of these kinds: leaves "mask" among its inputs, after its own."""
    if not kinds:
        return graph
    made: Graph | None = graph.derived.get((masked, kinds))
    if made is None:
        made = graph.derived[masked, kinds] = _Masked(graph, kinds).graph()
    return made


def evaluated(graph: Graph, zoneout: Mapping[str, float]) -> Graph:
    """`graph` as it is in evaluation: with the mean of zoneout's masks, by state, as a number."""
    kinds = tuple(f"zoneout_{name}" for name in zoneout)
    return _Masked(graph, kinds, dict(zip(kinds, zoneout.values(), strict=True))).graph()


class _Masked(Builder):
    """means: kind -> the number that stands for its masks."""

    def __init__(
        self, graph: Graph, kinds: tuple[str, ...], means: Mapping[str, float] | None = None
    ) -> None:
        super().__init__()
        self.old, self.kinds, self.means = graph, kinds, means or {}
        self.masks: dict[str, Value] = {}
        self.of: dict[Value, Value] = {}  # old value -> new value
        self.maps: dict[Value, Map] = {}

    def graph(self) -> Graph:
        old = self.old
        recurrent = recurrent_nodes(old)
        for leaf in (*old.inputs, *old.states):
            self._copy(leaf)
        for node in old.nodes:
            if node.op == "affine":
                self._copy_map(node, recurrent)
            elif node not in self.of:
                self._copy(node)
            if "candidate" in self.kinds and old.names.get(node) == CANDIDATE:
                self.of[node] = self.of[node] * self._mask("candidate", node)
        results = tuple(
            self._zoned_out(state, result)
            for state, result in zip(old.states, old.results, strict=True)
        )
        self._check()
        return replace(
            old,
            inputs=(*(self.of[i] for i in old.inputs), *self.masks.values()),
            states=tuple(self.of[s] for s in old.states),
            results=results,
            nodes=tuple(self.made.values()),
            maps=self.maps,
            names={self.of[node]: name for node, name in old.names.items()},
            masks=() if self.means else self.kinds,
        )

    def _copy(self, node: Value) -> None:
        args = tuple(self.of[a] for a in node.args)
        self.of[node] = self.make(node.op, args, node.size, node.name, node.number)

    def _copy_map(self, node: Value, recurrent: set[Value]) -> None:
        used, operands = self.old.maps[node], []
        for operand in node.args:
            new = self.of[operand]
            # The inner map of one of low rank has masked its own operand.
            if "recurrent" in self.kinds and operand in recurrent and operand.op != "affine":
                new = new * self._mask("recurrent", operand, by_size=True)
            operands.append(new)
        new = self.make("affine", tuple(operands), node.size, node.name)
        self.of[node] = new
        self.maps[new] = replace(used, operands=tuple(operands))

    def _zoned_out(self, state: Value, result: Value) -> Value:
        kind, new = f"zoneout_{state.name}", self.of[result]
        if kind not in self.kinds:
            return new
        mean = self.means.get(kind)
        mask = self._mask(kind, state) if mean is None else mean
        return (1 - mask) * new + mask * self.of[state]

    def _mask(self, kind: str, like: Value, by_size: bool = False) -> Value:
        name = f"{kind}_{like.size}" if by_size else kind
        if name not in self.masks:
            self.masks[name] = self.make("mask", (), like.size, name)
        return self.masks[name]

    def _check(self) -> None:
        unit = self.old.unit.name
        for kind in () if self.means else self.kinds:
            if not any(name.startswith(kind) for name in self.masks):
                why = {
                    "recurrent": "no map of it reads a state",
                    "candidate": f"no value of its equations is called {CANDIDATE}",
                }.get(kind, f"it has no such state, only {self.old.unit.states}")
                raise UnitError(f"{unit} cannot have {kind} masks: {why}")
