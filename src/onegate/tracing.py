"""Tracing: `step`, called once on symbolic values, yields the graph of a unit."""

from __future__ import annotations

import cProfile
import linecache
import sys
import traceback
import weakref
from collections.abc import Iterable
from types import FrameType
from typing import Any

from onegate import language as expressions
from onegate.language import LANGUAGE, Affine, Fit, Graph, Map, Unit, UnitError, Value, Vector

# A graph lives as long as a layer, or anybody else, holds it.
_GRAPHS: weakref.WeakValueDictionary[tuple[Unit, int, int, bool], Graph] = (
    weakref.WeakValueDictionary()
)


def trace(unit: Unit, input_size: int, hidden_size: int, bias: bool = True) -> Graph:
    """The graph of one step of `unit`; a `UnitError` names the unit and the equation at fault."""
    key = unit, input_size, hidden_size, bias
    graph = _GRAPHS.get(key)
    if graph is None:
        graph = _GRAPHS[key] = _traced(*key)
    return graph


def _traced(unit: Unit, input_size: int, hidden_size: int, bias: bool) -> Graph:
    tracer = _Trace(unit, input_size, hidden_size, bias)
    with _local_names(unit) as locals_of:
        try:
            returned = unit.within(tracer).step(tracer.input, *tracer.states)
        except (UnitError, TypeError, AttributeError) as error:
            line = _equation(error)
            raise UnitError(f"{unit.name}: {error}" + (f"\n  in: {line}" if line else "")) from None
    return tracer.finish(returned, locals_of)


class _Trace:
    """Builds a graph while `step` runs on symbolic values."""

    def __init__(self, unit: Unit, input_size: int, hidden_size: int, bias: bool) -> None:
        self.unit, self.input_size, self.hidden_size = unit, input_size, hidden_size
        self.bias = bias
        self.made: dict[tuple[object, ...], Value] = {}
        self.used: dict[str, tuple[Value, Affine]] = {}
        self.input = self._make("input", (), input_size, "x")
        sizes = unit.state_sizes(hidden_size)
        if not unit.states or set(sizes) != set(unit.states):
            raise UnitError(f"{unit.name}: states are {unit.states}, sizes are for {tuple(sizes)}")
        self.states = tuple(self._make("state", (), sizes[s], s) for s in unit.states)

    def _make(
        self,
        op: str,
        args: tuple[Value, ...] = (),
        size: int | None = None,
        name: str = "",
        number: float = 0.0,
    ) -> Value:
        key = (op, *map(id, args), name, number)
        if key not in self.made:
            self.made[key] = Value(self, op, args, size, name, number)
        return self.made[key]

    def value(self, v: Any) -> Value:
        if isinstance(v, Value):
            if v.trace is not self:
                raise UnitError(f"{v!r} belongs to another unit's step")
            return v
        if isinstance(v, (int, float)) and not isinstance(v, bool):
            return self._make("constant", number=float(v))
        raise UnitError(f"{type(v).__name__} is not a value; the language has {LANGUAGE}")

    def pointwise(self, op: str, *operands: Any) -> Value:
        args = tuple(self.value(v) for v in operands)
        sizes = {a.size for a in args if a.size is not None}
        if len(sizes) > 1:
            shown = " and ".join(f"{a.size} ({_shown(a)})" for a in args)
            raise UnitError(f"'{op}' needs operands of one size, got {shown}")
        if op == "mul":  # a gate that is 1 leaves no trace: `i * candidate` with i = 1
            for factor, other in (args, args[::-1]):
                if factor.op == "constant" and factor.number == 1:
                    return other
        return self._make(op, args, sizes.pop() if sizes else None)

    def affine(self, declared: Affine, operands: tuple[Any, ...]) -> Value:
        name = declared.name
        args = tuple(self.value(v) for v in operands)
        for a in args:
            if a.size is None:
                raise UnitError(f"{name} maps vectors, got the number {a.number}")
        size = self.unit.size_of(declared.like, self.hidden_size)
        if isinstance(declared, Fit) and [a.size for a in args] == [size]:
            return args[0]
        node = self._make("affine", args, size, name)
        if self.used.setdefault(name, (node, declared))[0] is not node:
            raise UnitError(
                f"{name} is applied to two different sets of operands; declare two maps"
            )
        return node

    def vector(self, declared: Vector) -> Value:
        size = self.unit.size_of(declared.like, self.hidden_size)
        return self._make("vector", (), size, declared.name)

    def finish(self, returned: Any, local_names: dict[int, str]) -> Graph:
        results = returned if isinstance(returned, tuple) else (returned,)
        self._check(results)
        needed = set(_in_order(results))
        nodes = tuple(v for v in self.made.values() if v in needed)
        maps, parameters = self._parameters(nodes)
        names = {n: local_names[id(n)] for n in nodes if id(n) in local_names}
        return Graph(
            self.unit, self.input_size, self.hidden_size, self.bias, self.input, self.states,
            results, nodes, maps, names, parameters,
        )  # fmt: skip

    def _check(self, results: tuple[Any, ...]) -> None:
        """Refuses what `step` returned if it is not one value of its own for each state."""
        unit = self.unit
        if len(results) != len(self.states):
            raise UnitError(
                f"{unit.name}: step returns {len(results)} value(s) for the states "
                f"{unit.states}; return every state, in that order"
            )
        known = {self.input, *self.states}
        for name, state, result in zip(unit.states, self.states, results, strict=True):
            if not isinstance(result, Value) or result.trace is not self:
                raise UnitError(f"{unit.name}: the new {name} is {result!r}, not a value of step")
            if result.size != state.size:
                raise UnitError(
                    f"{unit.name}: the new {name} has size {result.size}, the state {state.size}"
                )
            if known.isdisjoint(_in_order((result,))):
                raise UnitError(f"{unit.name}: the new {name} depends on neither input nor state")

    def _parameters(
        self, nodes: tuple[Value, ...]
    ) -> tuple[dict[Value, Map], dict[str, tuple[int, ...]]]:
        maps: dict[Value, Map] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        for node in nodes:
            if node.op == "vector":
                shapes[node.name] = (_size(node),)
            if node.op != "affine":
                continue
            declared = self.used[node.name][1]
            prefix = declared.key()
            weights = tuple(f"{prefix}.{n}" for n in self._operand_names(node))
            bias = f"{prefix}.b" if declared.bias and self.bias else None
            maps[node] = Map(node.name, node.args, weights, bias)
            for key, operand in zip(weights, node.args, strict=True):
                shapes[key] = (_size(node), _size(operand))
            if bias:
                shapes[bias] = (_size(node),)
        return maps, shapes

    def _operand_names(self, node: Value) -> list[str]:
        """U for the recurrent operand, W for the input; further ones carry the state's name."""
        names: list[str] = []
        for position, operand in enumerate(node.args):
            recurrent = bool(set(self.states) & set(_in_order((operand,))))
            name = "U" if recurrent else "W"
            if name in names:
                own = f"{name}_{operand.name}"
                taken = operand.op != "state" or own in names
                name = f"{name}_{position + 1}" if taken else own
            names.append(name)
        return names


def _size(value: Value) -> int:
    assert value.size is not None
    return value.size


def _shown(value: Value) -> str:
    return value.name or value.op


def _in_order(results: Iterable[Value]) -> tuple[Value, ...]:
    """Everything that `results` are computed from, operands first, each once."""
    done: dict[Value, None] = {}

    def visit(node: Value) -> None:
        if node not in done:
            for a in node.args:
                visit(a)
            done[node] = None

    for result in results:
        visit(result)
    return tuple(done)


_LANGUAGE_FILES = (__file__, expressions.__file__)


def _equation(error: BaseException) -> str:
    """The source line of the unit's own code in which `error` arose."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename not in _LANGUAGE_FILES:
            return linecache.getline(frame.filename, frame.lineno or 0).strip()
    return ""


class _local_names:  # noqa: N801 - reads as a with-statement
    """Collects the local names of the unit's methods as they return: id(value) -> name."""

    def __init__(self, unit: Unit) -> None:
        self.kind = type(unit)
        self.names: dict[int, str] = {}

    def __enter__(self) -> dict[int, str]:
        self.before: Any = sys.getprofile()
        sys.setprofile(self._profile)
        return self.names

    def __exit__(self, *_: object) -> None:
        if isinstance(self.before, cProfile.Profile):  # not a function, and so not to be set
            sys.setprofile(None)
            self.before.enable()
        else:
            sys.setprofile(self.before)

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "return" or type(frame.f_locals.get("self")) is not self.kind:
            return
        for name, value in frame.f_locals.items():
            if isinstance(value, Value) and value.op not in ("input", "state", "constant"):
                self.names[id(value)] = name
