"""Tracing: `step`, called once on symbolic values, yields the graph of a unit."""

from __future__ import annotations

import contextlib
import cProfile
import inspect
import linecache
import sys
import traceback
import weakref
from dataclasses import MISSING, fields
from types import FrameType
from typing import Any

from onegate import language, ops, values
from onegate.language import (
    Affine,
    Builder,
    Fit,
    Graph,
    Map,
    Norm,
    SizeError,
    Unit,
    UnitError,
    Value,
    Vector,
    in_order,
    norm_keys,
)
from onegate.values import is_number, whole

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
            returned = unit.within(tracer).step(*tracer.inputs, *tracer.states)
        except (UnitError, TypeError, AttributeError, NameError) as error:
            line = _equation(error)
            kind = type(error) if isinstance(error, UnitError) else UnitError
            told = f"{unit.name}: {error}{_hint(unit, error)}"
            raise kind(told + (f"\n  in: {line}" if line else "")) from None
    return tracer.finish(returned, locals_of)


def _hint(unit: Unit, error: Exception) -> str:
    """What to write instead of a name that is not known."""
    name = str(getattr(error, "name", ""))
    if isinstance(error, NameError) and hasattr(type(unit), name):
        return f"; write self.{name}"
    if isinstance(error, AttributeError) and type(getattr(error, "obj", None)) is type(unit):
        return f"; the class declares what it has: a map as {name} = Affine()"
    return ""


def check(kind: type[Unit]) -> None:
    """Refuses a class whose equations make no unit, when it is defined."""
    name, inputs, states = kind.__name__, kind.inputs, kind.states
    for what, names, such in (("states", states, ("h",)), ("inputs", inputs, ("x", "dt"))):
        if not isinstance(names, tuple) or not all(isinstance(n, str) for n in names) or not names:
            raise UnitError(
                f"{name}: {what} is {names!r}, expected a tuple of names, such as {such}"
            )
    if "x" in states or len({*inputs, *states}) < len(inputs) + len(states):
        raise UnitError(f"{name}: states are {states}; x is the input, and each has its own name")
    expected = f"step(self, {', '.join((*inputs, *states))})"
    if kind.step is Unit.step:
        raise UnitError(
            f"{name} has no equations: write {expected}, or define the "
            "class with abstract=True if it is a base of units"
        )
    try:
        inspect.signature(kind.step).bind(None, *[None] * (len(inputs) + len(states)))
    except TypeError:
        written = inspect.signature(kind.step)
        taken = tuple(written.parameters)[1 + len(inputs) :]
        more = f"; other states are named in the class: states = {taken}"
        raise UnitError(
            f"{name}: step is written as step{written}, expected {expected}, one argument for each "
            f"state of {states}{more if len(taken) > len(states) else ''}"
        ) from None
    first = list(inspect.signature(kind.step).parameters)[1:2]
    if {*first} & {*states}:
        raise UnitError(
            f"{name}: step takes the input first, and {first[0]} is a state; write {expected}"
        )
    if any(f.default is MISSING and f.default_factory is MISSING for f in fields(kind)):
        return  # without values for its options it cannot be tried
    unit = kind()
    graph = None
    for input_size in (3, 2):  # it may be meant for one size, or for others
        with contextlib.suppress(SizeError):
            graph = graph or trace(unit, input_size, 2)
    if graph is None:
        return
    kind._fits_sizes = graph.input_size != graph.hidden_size
    declared = [
        n
        for n, v in vars(kind).items()
        if isinstance(v, (Affine, Vector, Norm)) and not isinstance(v, Fit)  # which may be no map
    ]
    used = {m.name for m in graph.maps.values()} | {n.name for n in graph.nodes}
    for each in declared:
        if each not in used and not unit.options():  # an option may be what it waits for
            raise UnitError(
                f"{name}: {each} is declared and the new states do not depend on it; use it in "
                "step, or remove it"
            )


language.CHECKS.append(check)


class _Trace(Builder):
    """Builds a graph while `step` runs on symbolic values."""

    def __init__(self, unit: Unit, input_size: int, hidden_size: int, bias: bool) -> None:
        super().__init__()
        self.unit, self.input_size, self.hidden_size = unit, input_size, hidden_size
        self.bias = bias
        self.used: dict[str, Value] = {}  # by the name of a map or norm
        self.maps: dict[Value, Map] = {}
        self.heads: dict[Value, int] = {}
        widths = unit.input_sizes(input_size, hidden_size)
        self.inputs = self._leaves("input", unit.inputs, widths)
        self.states = self._leaves("state", unit.states, unit.state_sizes(hidden_size))

    def _leaves(self, op: str, names: tuple[str, ...], sizes: dict[str, int]) -> tuple[Value, ...]:
        unit = self.unit.name
        if not names or set(sizes) != set(names):
            raise UnitError(f"{unit}: {op}s are {names}, sizes are for {tuple(sizes)}")
        for name, size in sizes.items():
            if whole(f"{unit}: the size of {name}", size) < 1:
                raise UnitError(f"{unit}: the size of {name} is {size}, expected 1 or more")
        if op == "input" and sizes[names[0]] != self.input_size:
            raise UnitError(
                f"{unit}: the size of {names[0]} is {sizes[names[0]]}, expected {self.input_size}"
            )
        return tuple(self.make(op, (), sizes[name], name) for name in names)

    def value(self, v: Any) -> Value:
        if isinstance(v, Value):
            if v.builder is not self:
                raise UnitError(f"{v!r} belongs to another unit's step")
            return v
        if is_number(v):
            return self.constant(float(v))
        return values.refuse(v)

    def pointwise(self, op: str, *operands: Any) -> Value:
        args = tuple(self.value(v) for v in operands)
        if len(args) != (takes := ops.OPERATIONS[op].arity):
            raise UnitError(f"{op} takes {takes} operand{'s' * (takes > 1)}, got {len(args)}")
        sizes = {a.size for a in args if a.size is not None}
        if len(sizes) > 1:
            shown = " and ".join(f"{a.size} ({_shown(a)})" for a in args)
            raise SizeError(
                f"'{op}' needs operands of one size, got {shown}; a map W = Affine() makes one of "
                "the other's size"
            )
        if op == "div" and args[1].op == "constant" and not args[1].number:
            raise UnitError("a division by 0")
        if op == "mul":  # a gate that is 1 leaves no trace: `i * candidate` with i = 1
            for factor, other in (args, args[::-1]):
                if factor.op == "constant" and factor.number == 1:
                    return other
        return self.make(op, args, sizes.pop() if sizes else None)

    def affine(self, declared: Affine, operands: tuple[Any, ...]) -> Value:
        name = declared.name
        if len(operands) == 1 and isinstance(operands[0], list):
            raise UnitError(f"{name} takes vectors, not a list of them: write self.{name}[h, x]")
        args = tuple(self.value(v) for v in operands)
        if not args:
            raise UnitError(f"{name}[()] reads nothing: a bias alone is a Vector")
        for a in args:
            if a.size is None:
                raise UnitError(f"{name} maps vectors, got the number {a.number}")
        size = self.unit.size_of(declared.like, self.hidden_size)
        if isinstance(declared, Fit) and [a.size for a in args] == [size]:
            return args[0]
        heads = self._heads(declared, size, args)
        if declared.rank is not None:
            args = self._of_low_rank(declared, args)
        node = self.make("affine", args, size, name)
        prefix = declared.key()
        weights = tuple(f"{prefix}.{n}" for n in self._operand_names(args))
        bias = f"{prefix}.b" if declared.bias and self.bias else None
        self._use(node, Map(name, args, weights, bias), heads)
        return node

    def _use(self, node: Value, used: Map, heads: int = 1) -> None:
        known = self.used.setdefault(node.name, node)
        if known is not node:
            raise UnitError(
                f"{node.name} is applied to two different sets of operands; declare two"
                f" {'maps' if node.op == 'affine' else 'norms'}"
            )
        if node.op == "affine":
            self.maps[node], self.heads[node] = used, heads

    def _heads(self, declared: Affine, size: int, args: tuple[Value, ...]) -> int:
        heads = self.unit.count_of("heads", declared.heads)
        for n in (size, *map(_size, args)):
            if n % heads:
                raise SizeError(f"{declared.name} has {heads} heads, which {n} is no multiple of")
        return heads

    def _of_low_rank(self, declared: Affine, args: tuple[Value, ...]) -> tuple[Value, ...]:
        """Each operand as a vector of `rank` numbers, by a map of its own."""
        assert declared.rank is not None
        rank, key = self.unit.count_of("rank", declared.rank), declared.key()
        low = []
        for place, (operand, kind) in enumerate(zip(args, self._operand_names(args), strict=True)):
            number = f"_{place + 1}" if len(args) > 1 else ""
            inner = self.make("affine", (operand,), rank, f"V_{key}{number}")
            self._use(inner, Map(inner.name, (operand,), (f"{key}.{kind}_low",), None))
            low.append(inner)
        return tuple(low)

    def vector(self, declared: Vector) -> Value:
        size = self.unit.size_of(declared.like, self.hidden_size)
        return self.make("vector", (), size, declared.name)

    def norm(self, declared: Norm, operands: tuple[Any, ...]) -> tuple[Value, ...]:
        args = tuple(self.value(v) for v in operands)
        for a in args:
            if a.size is None:
                raise UnitError(f"{declared.name} normalises vectors, got the number {a.number}")
        if len({a.size for a in args}) > 1:
            shown = " and ".join(f"{a.size} ({_shown(a)})" for a in args)
            raise SizeError(f"{declared.name} normalises vectors of one size together, got {shown}")
        eps, results = self.constant(declared.eps), []
        for place, a in enumerate(args):
            others = args[:place] + args[place + 1 :]
            node = self.make(declared.operation, (a, eps, *others), a.size, declared.name)
            if place == 0:
                self._use(node, Map(declared.name, args, (), None))
            gain, shift = norm_keys(declared, args, place)
            result = node
            if declared.gain:
                result = self.make("vector", (), a.size, gain) * result
            if declared.shift and self.bias:
                result = result + self.make("vector", (), a.size, shift)
            results.append(result)
        return tuple(results)

    def finish(self, returned: Any, local_names: dict[int, str]) -> Graph:
        if isinstance(returned, list):
            raise UnitError(f"{self.unit.name}: step returns a list; return the states as a tuple")
        results = returned if isinstance(returned, tuple) else (returned,)
        self._check(results)
        needed = set(in_order(results))
        nodes = tuple(v for v in self.made.values() if v in needed)
        maps, parameters = self._parameters(nodes)
        names = {n: local_names[id(n)] for n in nodes if id(n) in local_names}
        return Graph(
            self.unit, self.input_size, self.hidden_size, self.bias, self.inputs, self.states,
            results, nodes, maps, names, parameters,
        )  # fmt: skip

    def _check(self, results: tuple[Any, ...]) -> None:
        """Refuses what `step` returned if it is not one value of its own for each state."""
        unit = self.unit
        if results == (None,):
            raise UnitError(
                f"{unit.name}: step returns nothing; end it with `return`, and the new states in "
                f"the order of {unit.states}"
            )
        if len(results) != len(self.states):
            raise UnitError(
                f"{unit.name}: step returns {len(results)} value(s) for the states "
                f"{unit.states}; return every state, in that order"
            )
        known = {*self.inputs, *self.states}
        for name, state, result in zip(unit.states, self.states, results, strict=True):
            if not isinstance(result, Value) or result.builder is not self:
                raise UnitError(f"{unit.name}: the new {name} is {result!r}, not a value of step")
            if result.size != state.size:
                raise SizeError(
                    f"{unit.name}: the new {name} has size {result.size}, the state {state.size}"
                )
            if known.isdisjoint(in_order((result,))):
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
            used = maps[node] = self.maps[node]
            heads = self.heads[node]
            for key, operand in zip(used.weights, node.args, strict=True):
                shape = _size(node), _size(operand)
                shapes[key] = shape if heads == 1 else (heads, *(n // heads for n in shape))
            if used.bias:
                shapes[used.bias] = (_size(node),)
        return maps, shapes

    def _operand_names(self, operands: tuple[Value, ...]) -> list[str]:
        """U for the recurrent operand, W for the input; further ones carry the state's name."""
        names: list[str] = []
        for position, operand in enumerate(operands):
            recurrent = bool(set(self.states) & set(in_order((operand,))))
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


_LANGUAGE_FILES = (__file__, language.__file__, ops.__file__, values.__file__)


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
