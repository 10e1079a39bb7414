"""Random units in random layers: the fused engine against the reference in float64.

What is allowed comes of the reference itself: how far its results move when every number on the
way is rounded to the case's dtype at random, and how far it is off where it computes in float32.
Cases in which something is infinite or NaN are only counted, as engines may differ in what they
make of it; with `strict` a difference there is a finding as well.
"""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from random import Random
from typing import Any, Final, cast

import pytest
import torch
from torch import Tensor

from onegate import Recurrent
from onegate.engines import reference
from onegate.engines.cpu import operator as fused
from onegate.export.latex import equations
from onegate.language import Value
from onegate.lowering.program import program
from onegate.ops import OPERATIONS
from tests.library.engines.poison import poison
from tests.library.random_units import Choices, Sketch, pick, sketch

CORPUS: Final = Path(__file__).parent / "corpus" / "units.txt"
# 1, primes, and one below, at and above the widths of vectors and panels.
SIZES: Final = (1, 2, 3, 4, 5, 7, 8, 9, 11, 13, 15, 16, 17, 23, 31, 32, 33, 65)
STEPS: Final = (1, 2, 3, 4, 7, 20)
ROWS: Final = (1, 2, 3, 5, 6, 7, 13, 25)
SCALES: Final = (1.0, 1.0, 1.0, 1.0, 0.0, 1e-3, 1e-30, 10.0, 100.0, 1e5, 1e20)
SHRINK_SECONDS: Final = 60.0

Found = dict[str, Tensor]


class Recorded:
    """Choices that are kept: those `given` first, then random ones, or the simplest if none are."""

    def __init__(self, given: Iterable[int] = (), random: Random | None = None) -> None:
        self.given, self.random = list(given), random
        self.made: list[int] = []

    def integer(self, low: int, high: int) -> int:
        place, most = len(self.made), high - low
        if place < len(self.given):
            above = min(max(self.given[place], 0), most)
        else:
            above = self.random.randint(0, most) if self.random else 0
        self.made.append(above)
        return low + above


@dataclass(frozen=True)
class Case:
    """A unit, the layer it is in, and how that is called."""

    sketch: Sketch
    bias: bool
    bidirectional: bool
    batch_first: bool
    layers: int
    start: str  # "zero", "given" or "learned"
    steps: int
    rows: int
    lengths: tuple[int, ...] | None
    padding: float  # what x holds beyond the lengths
    dtype: torch.dtype
    needed: str  # "all", "some" or "none" of the gradients
    used: str  # of the outputs
    weighted: bool  # whether the outputs are weighted before they are added up
    threads: int
    split: str
    scales: tuple[float, float, float]  # of x, the start and the parameters
    seed: int

    def __str__(self) -> str:
        shown = {f.name: getattr(self, f.name) for f in fields(self)[1:]}
        shown = {"input": self.sketch.input_size, "hidden": self.sketch.hidden_size} | shown
        graph = self.sketch.graph(self.bias)
        lines = [*equations(graph), program(graph).describe()]
        return "\n".join([*lines, ", ".join(f"{name} {value}" for name, value in shown.items())])


def draw(choices: Choices) -> Case:
    """The unit first: a case with other choices after those still has the same unit."""

    def coin() -> bool:
        return choices.integer(0, 1) == 1

    unit = sketch(choices, SIZES)
    steps, rows = pick(choices, STEPS), pick(choices, ROWS)
    lengths = tuple(choices.integer(1, steps) for _ in range(rows)) if coin() else None
    bidirectional = coin()
    stackable = unit.input_size == unit.hidden_size * (1 + bidirectional)
    large = choices.integer(0, 2) == 2
    return Case(
        unit,
        not coin(),
        bidirectional,
        coin(),
        1 + (stackable and coin()),
        pick(choices, ("zero", "given", "learned")),
        steps,
        rows,
        lengths,
        pick(choices, (0.0, 1.0, torch.inf, torch.nan)),
        pick(choices, (torch.float64, torch.float32)),
        pick(choices, ("all", "all", "some", "none")),
        pick(choices, ("out last", "out", "last")),
        coin(),
        choices.integer(1, 3),
        pick(choices, tuple(fused.SPLIT)),
        (
            pick(choices, SCALES) if large else 1.0,
            pick(choices, SCALES) if large else 1.0,
            pick(choices, SCALES) if large else 1.0,
        ),
        choices.integer(0, 1 << 16),
    )


def made(case: Case, dtype: torch.dtype, engine: str = "reference") -> Recurrent:
    """The layer."""
    return Recurrent(
        case.sketch.unit,
        case.sketch.input_size,
        case.sketch.hidden_size,
        case.layers,
        case.bias,
        case.batch_first,
        bidirectional=case.bidirectional,
        dtype=dtype,
        engine=engine,
        learn_initial_state=case.start == "learned",
    )


def leaves_of(case: Case) -> Found:
    """Numbers for x, the start and all parameters, in the case's dtype."""
    generator = torch.Generator().manual_seed(case.seed)

    def normal(shape: Sequence[int], scale: float) -> Tensor:
        return scale * torch.randn(tuple(shape), generator=generator, dtype=case.dtype)

    for_x, for_start, for_parameters = case.scales
    x = normal((case.steps, case.rows, case.sketch.input_size), for_x)
    for row, length in enumerate(case.lengths or ()):
        x[length:, row] = case.padding
    leaves = {"x": x.transpose(0, 1).contiguous() if case.batch_first else x}
    layer = made(case, case.dtype)
    if case.start == "given":
        first = case.layers * (1 + case.bidirectional), case.rows
        for name, size in case.sketch.unit.state_sizes(case.sketch.hidden_size).items():
            leaves[f"start {name}"] = normal((*first, size), for_start)
    for name, parameter in layer.named_parameters():
        shape = parameter.shape
        own = shape[1] ** -0.5 if parameter.dim() == 2 else 0.5
        leaves[name] = normal(shape, own * for_parameters)
    return leaves


def evaluate(case: Case, leaves: Found, dtype: torch.dtype, engine: str = "reference") -> Found:
    """Outputs and gradients, by name."""
    layer = made(case, dtype, engine)
    some = Random(case.seed)
    needed = {
        name: {"all": True, "some": some.random() < 0.4, "none": False}[case.needed]
        for name in leaves
    }
    own = {
        name: leaf.to(dtype, copy=True).requires_grad_(needed[name])
        for name, leaf in leaves.items()
    }
    for name, parameter in layer.named_parameters():
        parameter.data = own[name].detach()
        own[name] = parameter.requires_grad_(needed[name])
    start = tuple(tensor for name, tensor in own.items() if name.startswith("start "))
    hx: Any = start[0] if len(start) == 1 else start or None
    out, last = layer(own["x"], hx, lengths=case.lengths and list(case.lengths))
    lasts = (last,) if isinstance(last, Tensor) else last
    outputs = {"out": out} | {f"last {i}": tensor for i, tensor in enumerate(lasts)}
    found = {name: tensor.detach() for name, tensor in outputs.items()}
    wanted = {name: leaf for name, leaf in own.items() if leaf.requires_grad}
    generator = torch.Generator().manual_seed(case.seed)
    chosen, weights = [], []
    for name, tensor in outputs.items():
        weight = torch.randn(tensor.shape, generator=generator, dtype=torch.float32).to(dtype)
        if tensor.requires_grad and name.split()[0] in case.used.split():
            chosen.append(tensor)
            weights.append(weight if case.weighted else weight.new_ones(()).expand(weight.shape))
    grads: Sequence[Tensor] = [torch.zeros_like(leaf) for leaf in wanted.values()]
    if chosen and wanted:
        grads = torch.autograd.grad(
            chosen, list(wanted.values()), weights, allow_unused=True, materialize_grads=True
        )
    return found | {f"gradient of {n}": g for n, g in zip(wanted, grads, strict=True)}


def peak(tensor: Tensor) -> float:
    """The largest magnitude; NaN is the largest of all."""
    return float(tensor.detach().abs().max().nan_to_num(torch.inf)) if tensor.numel() else 0.0


def watched(case: Case, leaves: Found, dtype: torch.dtype) -> tuple[Found, float]:
    """The reference, and the largest magnitude of any value on the way."""
    peaks = [0.0]

    def recorded(node: Value, values: Any, compute: Any = reference._pointwise) -> Tensor:
        result: Tensor = compute(node, values)
        peaks.append(peak(result))
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "_pointwise", recorded)
        found = evaluate(case, leaves, dtype)
    return found, max(*peaks, *map(peak, found.values()))


class _Rounded(torch.autograd.Function):
    """A sigmoid or tanh that is off by a rounding; its slope is that of the value it has."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, op: str, eps: float) -> Tensor:
        result: Tensor = OPERATIONS[op].compute(v)
        result = result * (1 + eps * torch.randn_like(result))
        ctx.op = op
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (y,) = ctx.saved_tensors
        return grads[0] * (y * (1 - y) if ctx.op == "sigmoid" else 1 - y * y), None, None


_rounded = cast("Callable[..., Tensor]", _Rounded.apply)


def rounded(case: Case, leaves: Found) -> Found:
    """The reference in float64, with all numbers off by a rounding of the case's dtype."""
    eps = torch.finfo(case.dtype).eps

    # Every use of a value is off in its own way, and so are the gradients that add up behind it.
    def used(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return value * (1 + eps * torch.randn_like(value))

    def off(node: Value, values: Any) -> Tensor:
        operands = [used(values[a]) for a in node.args]
        if node.op in ("sigmoid", "tanh") and isinstance(operands[0], Tensor):
            return _rounded(operands[0], node.op, eps)
        result: Tensor = OPERATIONS[node.op].compute(*operands)
        return result

    near = {
        name: (leaf := tensor.double()) * (1 + eps * torch.randn_like(leaf))
        for name, tensor in leaves.items()
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "_pointwise", off)
        return evaluate(case, near, torch.float64)


def ours(case: Case, leaves: Found) -> Found:
    """The fused engine, with memory that is handed out full of NaN."""
    before = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fused, "_THREAD_SPLIT", fused.SPLIT[case.split])
        poison(patch)
        torch.set_num_threads(case.threads)
        try:
            return evaluate(case, leaves, case.dtype, "fused")
        finally:
            torch.set_num_threads(before)


@dataclass(frozen=True)
class Outcome:
    """kind: how the case ended. share: the largest error as a share of what is allowed."""

    kind: str
    share: float = 0.0
    finding: str = ""


def compare(case: Case, strict: bool = False) -> Outcome:
    """One case."""
    leaves = leaves_of(case)
    truth, largest = watched(case, leaves, torch.float64)
    own = truth
    if case.dtype is torch.float32:
        own, own_largest = watched(case, leaves, torch.float32)
        largest = max(largest, own_largest)
    try:
        found = ours(case, leaves)
    except Exception:
        return Outcome("raised", finding=traceback.format_exc())
    # The product of any two values is finite as well, in whatever order they are taken.
    if largest > torch.finfo(case.dtype).max ** 0.5:
        return _not_finite(found, own, strict)
    torch.manual_seed(case.seed)
    noise = dict.fromkeys(truth, 0.0)
    for moved in (own, *(rounded(case, leaves) for _ in range(3))):
        noise = {n: max(noise[n], peak(moved[n].double() - truth[n])) for n in truth}
    # Of chaotic maps rounding decides: no two engines need agree.
    if any(not noise[n] < 1e-2 * max(1.0, peak(truth[n])) for n in truth):
        return Outcome("ill-conditioned")
    return _held_against(found, truth, noise)


def _held_against(found: Found, truth: Found, noise: dict[str, float]) -> Outcome:
    assert list(found) == list(truth)
    worst = 0.0
    for name, expected in truth.items():
        tensor = found[name]
        if tensor.shape != expected.shape:
            return Outcome("shape", finding=f"{name} is {tensor.shape}, not {expected.shape}")
        if not tensor.isfinite().all():
            count = int((~tensor.isfinite()).sum())
            return Outcome(
                "not written", finding=f"{name}: {count} of {tensor.numel()} are not finite"
            )
        allowed = 32 * torch.finfo(tensor.dtype).eps * peak(expected) + 8 * noise[name]
        # A saturated gate's slope is a denormal number in one engine and 0 in the other.
        allowed += torch.finfo(tensor.dtype).tiny ** 0.9
        error = peak(tensor.double() - expected)
        if error > allowed:
            return Outcome(
                "off",
                finding=f"{name} is off by {error:.2e} where its largest element is "
                f"{peak(expected):.2e}; {allowed:.2e} is allowed",
            )
        worst = max(worst, error / allowed)
    return Outcome("compared", worst)


def _not_finite(found: Found, own: Found, strict: bool) -> Outcome:
    def kinds(tensor: Tensor) -> Tensor:
        return torch.where(tensor.isfinite(), 0.0, tensor)

    for name, expected in own.items():
        if not torch.equal(*(kinds(t).nan_to_num(2, 1, -1) for t in (found[name], expected))):
            finding = f"{name} is infinite or NaN at other places than the reference's"
            return Outcome("not finite, differ", finding=finding if strict else "")
    return Outcome("not finite, the same way")


def shrunk(choices: list[int], fails: Callable[[list[int]], bool], seconds: float) -> list[int]:
    """Fewer and smaller choices that still fail."""
    end = time.monotonic() + seconds

    def taken(attempt: list[int]) -> bool:
        return time.monotonic() < end and fails(attempt)

    before: list[int] = []
    while before != choices:
        before = choices
        for size in (32, 8, 4, 2, 1):
            at = 0
            while at < len(choices):
                attempt = choices[:at] + choices[at + size :]
                if taken(attempt):
                    choices = attempt
                else:
                    at += size
        for at, value in enumerate(choices):
            for less in (0, value // 2, value - 1):
                attempt = [*choices[:at], less, *choices[at + 1 :]]
                if 0 <= less < value and taken(attempt):
                    choices = attempt
                    break
    return choices


def corpus() -> list[list[int]]:
    """The choices of cases that were findings once."""
    lines = (line.partition("#")[0].split() for line in CORPUS.read_text().splitlines())
    return [[int(word) for word in line] for line in lines if line]


def report(choices: list[int], outcome: Outcome) -> str:
    """What was found, and how to see it again."""
    written = " ".join(map(str, choices))
    return (
        f"{draw(Recorded(choices))}\n{outcome.kind}: {outcome.finding}\n"
        f"see it again:  python -m tests.library.fuzz units --case '{written}'\n"
        f"mended, its numbers become a line of {CORPUS.relative_to(Path.cwd())}"
    )


def run_one(choices: list[int], strict: bool) -> int:
    """One recorded case; 1 if it is a finding."""
    outcome = compare(draw(Recorded(choices)), strict)
    if outcome.finding:
        print(report(choices, outcome))
        return 1
    print(f"{outcome.kind}, error {outcome.share:.2f} of what is allowed")
    return 0


def run(seconds: float, seed: int, strict: bool) -> int:
    """Cases of `seed`, `seed` + 1, ... for `seconds`, at least one; 1 at the first finding."""
    torch.set_num_threads(1)
    begin = time.monotonic()
    counts: Counter[str] = Counter()
    worst, tried = 0.0, 0
    while tried == 0 or time.monotonic() - begin < seconds:
        choices = Recorded(random=Random(seed + tried))
        outcome = compare(draw(choices), strict)
        tried += 1
        if outcome.finding:
            print(f"units: after {tried}, --seed {seed + tried - 1} makes a finding; shrinking it")

            def fails(attempt: list[int], kind: str = outcome.kind) -> bool:
                return compare(draw(Recorded(attempt)), strict).kind == kind

            least = shrunk(choices.made, fails, SHRINK_SECONDS)
            print(report(least, compare(draw(Recorded(least)), strict)))
            return 1
        counts[outcome.kind] += 1
        worst = max(worst, outcome.share)
    took = time.monotonic() - begin
    kinds = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
    print(
        f"units: {tried} from --seed {seed} in {took:.0f} s ({tried / took:.1f} per second): "
        f"{kinds}; the largest error is {worst:.2f} of what is allowed"
    )
    return 0
