"""Random units of the language: equations that nobody would think of writing.

`sketches` draws them for Hypothesis, `sketch` from any source of choices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol, TypeVar

import hypothesis.strategies as st

from onegate.language import (
    Affine,
    Diagonal,
    Fit,
    Graph,
    LayerNorm,
    RMSNorm,
    Unit,
    Vector,
    relu,
    sigmoid,
    tanh,
)
from onegate.ops import (
    abs,
    exp,
    hard_sigmoid,
    hard_tanh,
    log,
    maximum,
    minimum,
    silu,
    softplus,
    sqrt,
    square,
)
from onegate.tracing import trace

CONSTANTS: Final = (1.0, -1.0, 0.5, 2.0, 0.0, 0.3)

UNARY: Final[dict[str, Callable[..., Any]]] = {
    "sigmoid": sigmoid,
    "tanh": tanh,
    "neg": lambda a: -a,
    "square": lambda a: a * a,
    "one minus": lambda a: 1 - a,
    "twice": lambda a: a + a,
    "bell": lambda a: exp(-square(a)),
    "log": lambda a: log(1 + a * a),
    "sqrt": lambda a: sqrt(0.5 + square(a)),
    "silu": silu,
    "softplus": softplus,
}
# With corners, where the slope jumps.
CORNERED: Final[dict[str, Callable[..., Any]]] = {
    "abs": abs,
    "hard sigmoid": lambda a: hard_sigmoid(3 * a),
    "hard tanh": hard_tanh,
    "at least": lambda a: maximum(-0.4, a),
    "at most": lambda a: minimum(a, 0.7),
    "larger": lambda a: maximum(a, square(a)),
    "smaller": lambda a: minimum(2 * a, tanh(a)),
}
BINARY: Final[dict[str, Callable[..., Any]]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "rest": lambda a, b: (1 - a) * b,
    "ratio": lambda a, b: a / (1 + b * b),
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
KINDS: Final = (
    *POINTWISE, *3 * ("affine",), "constant", "vector", "relu", "fit", "norm", "heads", "rank",
    "cornered", "diagonal",
)  # fmt: skip

T = TypeVar("T")


class Choices(Protocol):
    """Where a draft's choices come from; smaller numbers make simpler units."""

    def integer(self, low: int, high: int) -> int: ...


def pick(choices: Choices, items: Sequence[T]) -> T:
    return items[choices.integer(0, len(items) - 1)]


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


class _Random(Unit, abstract=True):
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

    def __init__(self, choices: Choices, sizes: Sequence[int]) -> None:
        self.choices = choices
        pool = [self.pick(sizes) for _ in range(choices.integer(1, 3))]
        self.input_size = self.pick(pool)
        self.sizes = {name: self.pick(pool) for name in "hsu"[: choices.integer(1, 3)]}
        self.width = self.pick(pool)  # of maps and vectors that have no state's size
        self.likes = {**self.sizes, "width": self.width}
        self.values = [Made(n, True) for n in (self.input_size, *self.sizes.values())]
        self.unused = dict.fromkeys(range(len(self.values)))
        self.steps: list[Step] = []
        self.declared: dict[str, Any] = {}

    def pick(self, items: Sequence[T]) -> T:
        return pick(self.choices, items)

    def coin(self) -> bool:
        return self.choices.integer(0, 1) == 1

    def place(self, size: int | None = None) -> int:
        """A value of the size, rather one that nothing uses yet."""
        fitting = [i for i, v in enumerate(self.values) if size in (None, v.size)]
        fresh = [i for i in fitting if i in self.unused]
        chosen = fresh if fresh and self.choices.integer(0, 3) else fitting
        return self.pick(chosen[::-1])

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
        name = self.declare("W_", Affine, like, bias=self.coin())
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
        kind, likes = self.pick(KINDS), list(self.likes)
        if kind == "affine":
            places = [self.place() for _ in range(self.choices.integer(1, 3))]
            self.affine(places, self.pick(likes))
        elif kind == "vector":
            like = self.pick(likes)
            name = self.declare("p", Vector, like)
            self.append(lambda unit, _: getattr(unit, name), self.likes[like], [])
        elif kind == "fit":
            i, like = self.place(), self.pick(likes)
            name = self.declare("F", Fit, like)
            self.append(lambda unit, v: getattr(unit, name)[v[i]], self.likes[like], [i])
        elif kind in ("relu", "cornered"):
            # Of a sum with a vector of its own: at exactly 0, where the slope jumps, rounding
            # would decide.
            f = relu if kind == "relu" else CORNERED[self.pick(list(CORNERED))]
            like = self.pick(likes)
            name = self.declare("p", Vector, like)
            if any(v.size == self.likes[like] for v in self.values):
                i = self.place(self.likes[like])
                step = lambda unit, v: f(v[i] + getattr(unit, name))  # noqa: E731
                self.append(step, self.likes[like], [i])
        elif kind == "norm":
            name, count = f"N{len(self.declared)}", self.choices.integer(1, 2)
            # A vector of one element, or of equal ones, has no deviation but eps.
            self.declared[name] = self.pick((LayerNorm, RMSNorm))(eps=0.1)
            first = self.place()
            size = self.values[first].size
            both = [first, *(self.place(size) for _ in range(count - 1))]
            norm = lambda unit, v: getattr(unit, name)[tuple(v[i] for i in both)][0]  # noqa: E731
            self.append(norm, size, both)
        elif kind in ("heads", "rank"):
            place, like = self.place(), self.pick(likes)
            count = math.gcd(self.values[place].size, self.likes[like]) if kind == "heads" else 2
            name = self.declare("W_", Affine, like, bias=self.coin(), **{kind: count})
            step = lambda unit, v: getattr(unit, name)[v[place]]  # noqa: E731
            self.append(step, self.likes[like], [place])
        elif kind == "diagonal":
            place = self.place()
            like = self.pick(
                [name for name in likes if self.likes[name] == self.values[place].size] or likes
            )
            if self.likes[like] == self.values[place].size:
                name = self.declare("D", Diagonal, like)
                step = lambda unit, v: getattr(unit, name)[v[place]]  # noqa: E731
                self.append(step, self.likes[like], [place])
        elif kind == "constant":
            f = WITH_CONSTANT[self.pick(list(WITH_CONSTANT))]
            self.pointwise(f, 1, self.pick(CONSTANTS))
        else:
            table, count = POINTWISE[kind]
            self.pointwise(table[self.pick(list(table))], count)

    def result(self, state: str) -> int:
        """The new state: what nothing uses yet added up, or any value that fits."""
        size = self.sizes[state]
        if self.coin():
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
        chosen = self.pick((fresh or fitting)[::-1])
        self.unused.pop(chosen, None)
        if self.coin():  # mostly, so that few units grow without bound
            return self.append(lambda _, v: tanh(v[chosen]), size, [chosen])
        return chosen


def sketch(choices: Choices, sizes: Sequence[int], most: int = 16) -> Sketch:
    """A unit of one to three states of `sizes`, of up to `most` operations."""
    draft = _Draft(choices, sizes)
    for _ in range(choices.integer(0, most) or most // 2):
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
    unit: type[Unit] = type("Random", (_Random,), body | option, abstract=True)
    return Sketch(unit(), draft.input_size, draft.sizes["h"])


@dataclass(frozen=True)
class _Drawn:
    """Hypothesis as a source of choices."""

    draw: st.DrawFn

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))


@st.composite
def sketches(draw: st.DrawFn, largest: int = 9, most: int = 16) -> Sketch:
    """Units of one to three states of sizes up to `largest`, of up to `most` operations."""
    return sketch(_Drawn(draw), range(1, largest + 1), most)
