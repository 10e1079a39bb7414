"""Random units of the language, for Hypothesis: equations that nobody would think of writing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import hypothesis.strategies as st

from onegate.language import Affine, Graph, Unit, Vector, relu, sigmoid, tanh
from onegate.tracing import trace

CONSTANTS: Final = (1.0, -1.0, 0.5, 2.0, 0.0, 0.3)

UNARY: Final[dict[str, Callable[..., Any]]] = {
    "sigmoid": sigmoid,
    "tanh": tanh,
    "neg": lambda a: -a,
    "square": lambda a: a * a,
    "one minus": lambda a: 1 - a,
    "twice": lambda a: a + a,
}
BINARY: Final[dict[str, Callable[..., Any]]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "rest": lambda a, b: (1 - a) * b,
}
TERNARY: Final[dict[str, Callable[..., Any]]] = {
    "keep and write": lambda g, a, b: (1 - g) * a + g * b,
    "write and keep": lambda g, a, b: g * b + a * (1 - g),
    "muladd": lambda a, b, c: a * b + c,
    "addmul": lambda a, b, c: a + b * c,
    "mulsub": lambda a, b, c: a * b - c,
    "submul": lambda a, b, c: a - b * c,
}
WITH_CONSTANT: Final[dict[str, Callable[..., Any]]] = {
    "add": lambda a, c: a + c,
    "from": lambda a, c: c - a,
    "sub": lambda a, c: a - c,
    "scale": lambda a, c: c * a,
}

POINTWISE: Final = {"unary": (UNARY, 1), "binary": (BINARY, 2), "ternary": (TERNARY, 3)}
KINDS: Final = (*POINTWISE, *3 * ("affine",), "constant", "vector", "relu")

Step = Callable[[Any, list[Any]], Any]  # (unit, values so far) -> the next value


@dataclass(frozen=True)
class Made:
    """A value of a unit under construction."""

    size: int
    reached: bool  # from the input or a state


@dataclass(frozen=True)
class Sketch:
    """A unit and the sizes that it is meant for."""

    unit: Unit
    input_size: int
    hidden_size: int

    def graph(self, bias: bool = True) -> Graph:
        return trace(self.unit, self.input_size, self.hidden_size, bias)


class _Random(Unit):
    """Works through `steps`; `results` are positions among the values."""

    sizes: ClassVar[dict[str, int]]
    steps: ClassVar[list[Step]]
    results: ClassVar[list[int]]

    def state_sizes(self, hidden_size: int) -> dict[str, int]:
        return self.sizes

    def step(self, x: Any, *states: Any) -> Any:
        values = [x, *states]
        for make in self.steps:
            values.append(make(self, values))
        return tuple(values[i] for i in self.results)


class _Draft:
    """A unit being drawn: values so far, how they are made, and which of them nothing uses yet."""

    def __init__(self, draw: st.DrawFn, largest: int) -> None:
        self.draw: Callable[[st.SearchStrategy[Any]], Any] = draw
        pool = draw(st.lists(st.integers(1, largest), min_size=1, max_size=3))
        size = st.sampled_from(pool)
        self.input_size = draw(size)
        self.sizes = {name: draw(size) for name in "hsu"[: draw(st.integers(1, 3))]}
        self.width = draw(size)  # of maps and vectors that have no state's size
        self.likes = {**self.sizes, "width": self.width}
        self.values = [Made(n, True) for n in (self.input_size, *self.sizes.values())]
        self.unused = dict.fromkeys(range(len(self.values)))
        self.steps: list[Step] = []
        self.declared: dict[str, Any] = {}

    def place(self, size: int | None = None) -> int:
        """A value of the size, rather one that nothing uses yet."""
        fitting = [i for i, v in enumerate(self.values) if size in (None, v.size)]
        fresh = [i for i in fitting if i in self.unused]
        chosen = fresh if fresh and self.draw(st.integers(0, 3)) else fitting
        taken: int = self.draw(st.sampled_from(chosen[::-1]))
        return taken

    def append(self, step: Step, size: int, places: list[int]) -> int:
        self.steps.append(step)
        self.values.append(Made(size, any(self.values[i].reached for i in places)))
        for i in places:
            self.unused.pop(i, None)
        self.unused[len(self.values) - 1] = None
        return len(self.values) - 1

    def declare(self, prefix: str, kind: Callable[..., Any], like: str, **options: Any) -> str:
        name = f"{prefix}{len(self.declared)}"
        self.declared[name] = kind(like=like, **options)
        return name

    def affine(self, places: list[int], like: str) -> int:
        name = self.declare("W_", Affine, like, bias=self.draw(st.booleans()))
        return self.append(
            lambda unit, v: getattr(unit, name)[tuple(v[i] for i in places)],
            self.likes[like],
            places,
        )

    def pointwise(self, f: Callable[..., Any], count: int, *more: Any) -> int:
        first = self.place()
        size = self.values[first].size
        places = [first, *(self.place(size) for _ in range(count - 1))]
        return self.append(lambda _, v: f(*(v[i] for i in places), *more), size, places)

    def add(self, a: int, b: int) -> int:
        return self.append(lambda _, v: v[a] + v[b], self.values[a].size, [a, b])

    def operation(self) -> None:
        """Draws one more value."""
        draw, likes = self.draw, st.sampled_from(list(self.likes))
        kind = draw(st.sampled_from(KINDS))
        if kind == "affine":
            places = [self.place() for _ in range(draw(st.integers(1, 3)))]
            self.affine(places, draw(likes))
        elif kind == "vector":
            like = draw(likes)
            name = self.declare("p", Vector, like)
            self.append(lambda unit, _: getattr(unit, name), self.likes[like], [])
        elif kind == "relu":
            # Of a sum with a vector of its own: at exactly 0, where the slope jumps, rounding
            # would decide.
            like = draw(likes)
            name = self.declare("p", Vector, like)
            if any(v.size == self.likes[like] for v in self.values):
                i = self.place(self.likes[like])
                step = lambda unit, v: relu(v[i] + getattr(unit, name))  # noqa: E731
                self.append(step, self.likes[like], [i])
        elif kind == "constant":
            f = WITH_CONSTANT[draw(st.sampled_from(list(WITH_CONSTANT)))]
            self.pointwise(f, 1, draw(st.sampled_from(CONSTANTS)))
        else:
            table, count = POINTWISE[kind]
            self.pointwise(table[draw(st.sampled_from(list(table)))], count)

    def result(self, state: str) -> int:
        """The new state: what nothing uses yet added up, or any value that fits."""
        size = self.sizes[state]
        if self.draw(st.booleans()):
            strange = [i for i in self.unused if self.values[i].size not in self.sizes.values()]
            if strange:
                self.affine(strange, state)
            while True:
                left = [i for i in self.unused if self.values[i].size == size]
                if len(left) < 2:
                    break
                self.add(left[0], left[1])
        fitting = [i for i, v in enumerate(self.values) if v.size == size and v.reached]
        fresh = [i for i in fitting if i in self.unused]
        chosen: int = self.draw(st.sampled_from((fresh or fitting)[::-1]))
        self.unused.pop(chosen, None)
        if self.draw(st.booleans()):  # mostly, so that few units grow without bound
            return self.append(lambda _, v: tanh(v[chosen]), size, [chosen])
        return chosen


@st.composite
def sketches(draw: st.DrawFn, largest: int = 9, most: int = 16) -> Sketch:
    """Units of one to three states of sizes up to `largest`, of up to `most` operations."""
    draft = _Draft(draw, largest)
    for _ in range(draw(st.integers(0, most)) or most // 2):
        draft.operation()
    results = [draft.result(state) for state in draft.sizes]
    body = {
        "sizes": draft.sizes,
        "steps": draft.steps,
        "results": results,
        "states": tuple(draft.sizes),
        **draft.declared,
    }
    option = {"__annotations__": {"width": int}, "width": draft.width}
    unit: type[Unit] = type("Random", (_Random,), body | option)
    return Sketch(unit(), draft.input_size, draft.sizes["h"])
