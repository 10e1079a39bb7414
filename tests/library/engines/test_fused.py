"""Values and every gradient of every unit against the reference engine in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from onegate import tracing
from onegate.engines import reference
from onegate.engines.base import Direction
from onegate.engines.cpu import operator as fused
from onegate.engines.cpu import programs
from onegate.engines.cpu.native import NativeProgram
from onegate.language import Affine, Graph, Unit, relu, tanh
from onegate.lowering import code
from onegate.lowering.program import program
from onegate.lowering.spec import Code, Pointwise, Program
from onegate.tracing import trace
from onegate.units import get
from tests.library.comparing import X_ALONE
from tests.library.engines.agreement import Problem, assert_agree, check, evaluate, problem
from tests.library.engines.poison import poison

DTYPES = {"float64": torch.float64, "float32": torch.float32}


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    poison(monkeypatch)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    yield
    torch.set_num_threads(1)


def graph_of(name: str, input_size: int, hidden_size: int, bias: bool = True) -> Graph:
    options = {"context_size": 5} if name == "scrn" else {}
    return trace(get(name, **options), input_size, hidden_size, bias)


@dataclass(frozen=True)
class Case:
    """Sizes of a run: d inputs, n units, T steps, B rows, D directions."""

    d: int
    n: int
    T: int
    B: int
    D: int = 1
    lengths: tuple[int, ...] | None = None
    bias: bool = True

    def __str__(self) -> str:
        sizes = f"d{self.d}-n{self.n}-T{self.T}-B{self.B}-D{self.D}"
        return sizes + "-lengths" * (self.lengths is not None) + "-nobias" * (not self.bias)

    def problem(self, name: str, dtype: torch.dtype = torch.float64) -> Problem:
        graph = graph_of(name, self.d, self.n, self.bias)
        return problem(graph, self.T, self.B, self.D, self.lengths, dtype)


# Panels of packed matrices are 16 wide in float32 and 8 in float64 (twice that with AVX-512); up to
# 8 row-steps (64 if matrices are large) nothing is packed; inputs wider than 48 are projected many
# steps at a time; a chunk of the backward pass has 192 rows, unless one step has more.
CASES = (
    Case(1, 1, 1, 1),
    Case(1, 2, 1, 1, 2),
    Case(3, 17, 2, 4, lengths=(1, 2, 2, 1)),
    Case(5, 9, 3, 3, 2, (3, 1, 2)),
    Case(17, 17, 5, 2),
    Case(48, 7, 4, 7, bias=False),
    Case(49, 33, 7, 5, 2, (2, 7, 1, 7, 5)),
    Case(97, 8, 67, 5),
    Case(2, 23, 3, 197, lengths=tuple(1 + i % 3 for i in range(197))),
    Case(1, 3, 211, 2, 2),
    Case(13, 16, 11, 13, lengths=tuple(11 - i % 11 for i in range(13)), bias=False),
)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("name", X_ALONE)
def test_float64(name: str, case: Case) -> None:
    check(case.problem(name))


@pytest.mark.parametrize("case", CASES[2:8], ids=str)
@pytest.mark.parametrize("name", X_ALONE)
def test_float32(name: str, case: Case) -> None:
    check(case.problem(name, torch.float32))


# Rows, columns and lengths that threads share unevenly. A split that is asked for is made, however
# small the work is.
SHARED = (Case(3, 41, 3, 7, 2), Case(53, 19, 5, 3, 2, (5, 1, 4)))


@pytest.mark.parametrize("split", ["rows", "columns"])
@pytest.mark.parametrize("case", SHARED, ids=str)
@pytest.mark.parametrize("name", X_ALONE)
def test_split_between_threads(
    name: str, case: Case, split: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = case.problem(name)
    truth = evaluate(reference.run, given)
    monkeypatch.setattr(fused, "_THREAD_SPLIT", fused.SPLIT[split])
    for count in (2, 3):
        torch.set_num_threads(count)
        assert_agree(evaluate(fused.run, given), truth)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 3, 17])
def test_the_split_is_chosen(rows: int, dtype: str) -> None:
    """At these sizes one row is split by columns, seventeen are not."""
    torch.set_num_threads(2)
    check(Case(211, 223, 7, rows).problem("mgu", DTYPES[dtype]))


# So few row-steps of matrices so large that these are read as they lie.
FEW = (Case(307, 223, 1, 1), Case(307, 223, 5, 6, 2, (5, 1, 2, 5, 4, 3)), Case(223, 311, 1, 61))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", FEW, ids=str)
@pytest.mark.parametrize("name", ["mgu", "gru_reset_after", "lstm_fgr", "scrn", "mut1", "janet"])
def test_few_rows(name: str, case: Case, dtype: str) -> None:
    given = case.problem(name, DTYPES[dtype])
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        check(given)


def test_more_threads_than_rows_and_panels() -> None:
    given = Case(5, 67, 3, 3).problem("mgu")
    truth = evaluate(reference.run, given)
    for split in fused.SPLIT.values():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fused, "_THREAD_SPLIT", split)
            torch.set_num_threads(11)
            assert_agree(evaluate(fused.run, given), truth)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_long_sequence(dtype: str) -> None:
    check(Case(3, 11, 1009, 3, lengths=(1009, 1, 1008)).problem("mgu", DTYPES[dtype]))


@pytest.mark.parametrize("used", ["out", "last"])
@pytest.mark.parametrize("name", X_ALONE)
def test_only_some_outputs_are_used(name: str, used: str) -> None:
    check(Case(3, 9, 4, 3, 2, (4, 2, 3)).problem(name), used=used)


NEEDED = {
    "x alone": lambda name: name == "x",
    "all but x": lambda name: name != "x",
    "states": lambda name: name.startswith("start"),
    "one matrix": lambda name: name.startswith("parameter 0") and name.endswith(".W"),
}


@pytest.mark.parametrize("needed", NEEDED)
@pytest.mark.parametrize("name", ["mgu", "lstm_peephole", "mut1", "mgu3"])
def test_only_some_gradients_are_needed(name: str, needed: str) -> None:
    given = Case(9, 9, 4, 3).problem(name)
    check(given, needed=[leaf for leaf in given.leaves if NEEDED[needed](leaf)])


def test_gradients_that_nobody_needs_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    given = Case(3, 5, 4, 3).problem("mgu")
    wanted = []

    def watched(self: NativeProgram, call: Any, run: Any = NativeProgram.backward) -> None:
        wanted.append(bool(call.grad_x))
        run(self, call)

    monkeypatch.setattr(NativeProgram, "backward", watched)
    evaluate(fused.run, given)
    evaluate(fused.run, given, needed=[n for n in given.leaves if n != "x"])
    assert wanted == [True, False]


def run_fused(given: Problem, x: Tensor, start: Tensor | None = None) -> tuple[Tensor, Tensor]:
    leaves, graph = given.leaves, given.graph
    parameters = {key: leaves[f"parameter 0 {key}"] for key in graph.parameters}
    direction = Direction((leaves["start 0 h"] if start is None else start,), parameters)
    out, ((last,),) = fused.run(graph, x, [direction], given.lengths)
    return out, last


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "every second feature": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "part of a wider array": lambda x: torch.cat([x, x, x], -1)[..., 5:10],
    "reversed axes": lambda x: x.permute(2, 1, 0).contiguous().permute(2, 1, 0),
    "not aligned": lambda x: torch.cat([x.new_zeros(1), x.flatten()])[1:].view_as(x),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("view", VIEWS)
def test_inputs_lie_anyhow(view: str, dtype: str) -> None:
    given = Case(5, 9, 4, 3).problem("mgu", DTYPES[dtype])
    x = given.leaves["x"]
    seen = VIEWS[view](x)
    if view == "part of a wider array":
        x = seen.contiguous()
    torch.testing.assert_close(run_fused(given, seen), run_fused(given, x), rtol=0, atol=0)


def test_inputs_that_are_expanded() -> None:
    given = Case(5, 9, 4, 3).problem("mgu")
    x, h = given.leaves["x"], given.leaves["start 0 h"]
    for view in (x[:1].expand_as(x), x[:, :1].expand_as(x), x[..., :1].expand_as(x)):
        start = h[:1].expand_as(h)
        expected = run_fused(given, view.contiguous(), start.contiguous())
        torch.testing.assert_close(run_fused(given, view, start), expected, rtol=0, atol=0)


def test_parameters_that_are_not_contiguous() -> None:
    given = Case(5, 9, 4, 3).problem("mgu")
    strided = {
        name: leaf.t().contiguous().t() if name.startswith("parameter") else leaf
        for name, leaf in given.leaves.items()
    }
    x = given.leaves["x"]
    expected = run_fused(given, x)
    torch.testing.assert_close(run_fused(replace(given, leaves=strided), x), expected)


@pytest.mark.parametrize("case", [Case(5, 9, 4, 3), Case(2, 1, 3, 2)], ids=str)
def test_gradients_that_are_expanded_or_strided(case: Case) -> None:
    """`sum` and `mean` send back one number for all; a transposed use, a transposed gradient."""
    given = case.problem("mgu")

    def gradients(run: Any, objective: Any) -> tuple[Tensor, ...]:
        leaves = {n: t.clone().requires_grad_() for n, t in given.leaves.items()}
        parameters = {key: leaves[f"parameter 0 {key}"] for key in given.graph.parameters}
        direction = Direction((leaves["start 0 h"],), parameters)
        out, ((last,),) = run(given.graph, leaves["x"], [direction], None)
        return torch.autograd.grad(objective(out, last), list(leaves.values()))

    weights = torch.randn(3, case.n, 4, dtype=torch.float64)
    for objective in (
        lambda out, last: out.sum(),
        lambda out, last: last.sum(),
        lambda out, last: (out.mean(0) ** 2).sum() + last.mean(),
        lambda out, last: (
            (out[: len(out) // 2].permute(1, 2, 0) * weights[..., : case.T // 2]).sum()
            if case.B == 3
            else (out[..., ::2].transpose(0, 1) ** 2).sum()
        ),
        lambda out, last: out[-1].sum() + (last.t() ** 3).sum(),
    ):
        torch.testing.assert_close(
            gradients(fused.run, objective), gradients(reference.run, objective)
        )


@pytest.mark.parametrize("name", X_ALONE)
def test_gradcheck(name: str) -> None:
    """The native derivatives against differences of the native values."""
    given = Case(2, 3, 3, 2, 2, (3, 2)).problem(name)
    graph, names = given.graph, list(given.leaves)

    def call(*leaves: Tensor) -> tuple[Tensor, ...]:
        by_name = dict(zip(names, leaves, strict=True))
        directions = [
            Direction(
                tuple(by_name[f"start {d} {s.name}"] for s in graph.states),
                {key: by_name[f"parameter {d} {key}"] for key in graph.parameters},
            )
            for d in range(2)
        ]
        out, lasts = fused.run(graph, by_name["x"], directions, given.lengths)
        return out, *(state for last in lasts for state in last)

    leaves = [leaf.requires_grad_() for leaf in given.leaves.values()]
    assert torch.autograd.gradcheck(call, leaves, fast_mode=True)
    if name in ("mgu", "lstm", "scrn"):
        assert torch.autograd.gradgradcheck(call, leaves, fast_mode=True)


@pytest.mark.parametrize("split", fused.SPLIT)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_same_bits_from_run_to_run(count: int, split: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "_THREAD_SPLIT", fused.SPLIT[split])
    torch.set_num_threads(count)
    for name in ("mgu", "lstm_peephole"):
        given = SHARED[0].problem(name, torch.float32)
        first = evaluate(fused.run, given)
        for _ in range(2):
            again = evaluate(fused.run, given)
            assert all(torch.equal(first[key], again[key]) for key in first)


def test_rows_do_not_depend_on_their_neighbours() -> None:
    """The bits of a row are the same alone and in a batch, whoever computes them."""
    given = Case(5, 19, 7, 13).problem("gru", torch.float32)
    x, h = given.leaves["x"], given.leaves["start 0 h"]
    out, last = run_fused(given, x)
    for first, end in ((0, 2), (3, 10), (11, 13)):
        alone, last_alone = run_fused(given, x[:, first:end].contiguous(), h[first:end])
        assert torch.equal(alone, out[:, first:end])
        assert torch.equal(last_alone, last[first:end])


class Kinks(Unit):
    """ReLU at exactly 0, where the slope is 0, and of itself."""

    W_h = Affine(bias=False)

    def step(self, x: Any, h: Any) -> Any:
        return relu(relu(h) + x) + relu(0 * h) + tanh(self.W_h[relu(relu(x))])


def test_the_slope_of_relu_at_zero() -> None:
    given = problem(trace(Kinks(), 7, 7), 4, 3)
    for leaf in ("x", "start 0 h"):
        given.leaves[leaf].round_().mul_(given.leaves[leaf] > 0)
    assert (given.leaves["x"] == 0).any()
    check(given)


def test_padding_may_hold_anything() -> None:
    case = Case(50, 9, 5, 3, 2, (3, 5, 1))
    given = case.problem("lstm")
    expected = evaluate(fused.run, given)
    for row, length in enumerate(case.lengths or ()):
        given.leaves["x"][length:, row] = torch.nan
    found = evaluate(fused.run, given)
    assert_agree(found, expected)
    for row, length in enumerate(case.lengths or ()):
        assert not found["out"][length:, row].any()
        assert not found["gradient of x"][length:, row].any()


def test_nan_and_infinity_pass_through() -> None:
    given = Case(3, 5, 4, 3).problem("mgu")
    given.leaves["x"][1, 0, 0] = torch.nan
    given.leaves["x"][2, 1, 0] = torch.inf
    out, last = run_fused(given, given.leaves["x"])
    assert out[1:, 0].isnan().all()
    assert out[0].isfinite().all()
    assert out[:, 1:].isfinite().all()
    assert last[0].isnan().all()


class TestTheComparisonBites:
    """Wrong programs, unwritten memory: each must be seen."""

    case = Case(3, 5, 4, 3)

    @pytest.fixture(autouse=True)
    def no_graphs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nor programs, which live in them."""
        monkeypatch.setattr(tracing, "_GRAPHS", {})
        monkeypatch.setattr(programs, "_ENTRIES", {})

    @pytest.mark.parametrize("name", ["mgu", "gru", "ligru"])
    def test_f_and_one_minus_f_swapped_in_the_program(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def swapped(graph: Graph, make: Any = program) -> Program:
            made: Program = make(graph)
            stages = tuple(
                tuple(map(swap, stage)) if isinstance(stage, tuple) else stage
                for stage in made.forward.stages
            )
            assert stages != made.forward.stages
            return replace(made, forward=replace(made.forward, stages=stages))

        def swap(i: Pointwise) -> Pointwise:
            if i.op != "lerp":
                return i
            gate, a, b = i.args
            return replace(i, args=(gate, b, a))

        monkeypatch.setattr(programs, "program", swapped)
        with pytest.raises(AssertionError, match="out is off by"):
            check(self.case.problem(name))

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_f_and_one_minus_f_swapped_in_the_step_code(
        self, dtype: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Forward and backward, consistently: a unit of its own, but not this one."""

        def swapped(self: Any, left: Any, right: Any, make: Any = code.StepBuilder._lerp) -> Any:
            mix = make(self, left, right)
            if mix is None:
                return None
            gate, a, b = mix.args
            return self.make("lerp", (gate, b, a), mix.size)

        monkeypatch.setattr(code.StepBuilder, "_lerp", swapped)
        monkeypatch.setattr(programs, "program", program.__wrapped__)
        with pytest.raises(AssertionError, match="out is off by"):
            check(self.case.problem("mgu", DTYPES[dtype]))

    @pytest.mark.parametrize("op", ["dsigmoid", "dtanh", "muladd"])
    def test_a_wrong_derivative(self, op: str, monkeypatch: pytest.MonkeyPatch) -> None:
        wrong = {"dsigmoid": "dtanh", "dtanh": "dsigmoid", "muladd": "mulsub"}

        def changed(graph: Graph, make: Any = program) -> Program:
            made: Program = make(graph)
            backward: Code = made.backward
            stages = tuple(
                tuple(replace(i, op=wrong[op]) if i.op == op else i for i in stage)
                if isinstance(stage, tuple)
                else stage
                for stage in backward.stages
            )
            assert stages != backward.stages
            return replace(made, backward=replace(backward, stages=stages))

        monkeypatch.setattr(programs, "program", changed)
        with pytest.raises(AssertionError, match=r"gradient of .* is off by"):
            check(self.case.problem("mgu"))

    def test_unwritten_outputs_and_gradients(self, monkeypatch: pytest.MonkeyPatch) -> None:
        given = self.case.problem("lstm")
        monkeypatch.setattr(NativeProgram, "backward", lambda *_: None)
        found = evaluate(fused.run, given)
        assert all(found[name].isnan().all() for name in found if name.startswith("gradient"))
        monkeypatch.setattr(NativeProgram, "forward", lambda *_: None)
        found = evaluate(fused.run, given)
        assert all(tensor.isnan().all() for tensor in found.values())
