"""Malformed programs are refused, in the same words by the specification and the native engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from onegate.engines.cpu.native import NativeError, NativeProgram
from onegate.lowering.program import program
from onegate.lowering.spec import Code, MapSums, Pointwise, Product, Program, ProgramError, Slot
from onegate.ops import SUMS
from onegate.tracing import trace
from onegate.units import UNITS
from tests.library.comparing import X_ALONE

D, N = 3, 4
MGU = program(trace(UNITS["mgu"], D, N))
PEEPHOLE = program(trace(UNITS["lstm_peephole"], D, N))


def refusal(code: Sequence[int], constants: Sequence[float]) -> str:
    """The message, empty if the program is taken; both checkers must agree on it."""
    said = ""
    try:
        NativeProgram(code, constants)
    except NativeError as error:
        said = str(error).removeprefix("the native engine refuses the program: ")
        assert said
    specified = ""
    try:
        taken = Program.decode(code, constants)
        assert taken.encode() == list(code)
    except ProgramError as error:
        specified = str(error)
    assert said == specified
    return said


@pytest.mark.parametrize("name", X_ALONE)
def test_every_unit_is_taken(name: str) -> None:
    made = program(trace(UNITS[name], D, N))
    assert refusal(made.encode(), made.constants) == ""


def slot(code: Code, space: str, index: int | None = None) -> int:
    """The slot of a space, by default the first one."""
    return next(
        i
        for i, slot in enumerate(code.slots)
        if slot.space == space and index in (None, slot.index)
    )


def with_slot(code: Code, place: int, new: Slot) -> Code:
    return replace(code, slots=(*code.slots[:place], new, *code.slots[place + 1 :]))


def with_stages(code: Code, change: Callable[[Any], Any]) -> Code:
    """change(instruction or product) -> the same or another."""
    return replace(
        code,
        stages=tuple(
            tuple(map(change, stage)) if isinstance(stage, tuple) else change(stage)
            for stage in code.stages
        ),
    )


def forward_slot(space: str, new: Slot) -> Program:
    return replace(MGU, forward=with_slot(MGU.forward, slot(MGU.forward, space), new))


def forward(change: Callable[[Any], Any]) -> Program:
    return replace(MGU, forward=with_stages(MGU.forward, change))


def backward(change: Callable[[Any], Any], of: Program = MGU) -> Program:
    return replace(of, backward=with_stages(of.backward, change))


def first_map(change: Callable[[MapSums], MapSums]) -> Program:
    return replace(MGU, maps=(change(MGU.maps[0]), *MGU.maps[1:]))


def sigmoid_to(**fields: Any) -> Callable[[Any], Any]:
    return lambda i: replace(i, **fields) if isinstance(i, Pointwise) and i.op == "sigmoid" else i


def products(**fields: Any) -> Callable[[Any], Any]:
    return lambda p: replace(p, **fields) if isinstance(p, Product) else p


F, K = MGU.forward, MGU.backward
MALFORMED: dict[str, tuple[Program, str]] = {
    "an input that does not exist": (
        forward_slot("input", Slot("input", 1, D)),
        "there is no input 1",
    ),
    "a slot wider than its state": (
        forward_slot("prev", Slot("prev", 0, N + 1)),
        "state 0 has width 4, the slot says 5",
    ),
    "a state that does not exist": (
        forward_slot("prev", Slot("prev", 1, N)),
        "there is no state 1",
    ),
    "a kept value that does not exist": (
        forward_slot("keep", Slot("keep", 7, N)),
        "there is no kept value 7",
    ),
    "scratch that does not exist": (
        forward_slot("temp", Slot("temp", 9, N)),
        "there is no scratch vector 9",
    ),
    "scratch of another width": (
        replace(MGU, forward=replace(F, temps=(N + 3, *F.temps[1:]))),
        "scratch vector 0 has width 7, the slot says 4",
    ),
    "a matrix as a vector": (
        forward_slot("vector", Slot("vector", 0, N)),
        "parameter 0 is not a vector of 4",
    ),
    "a constant that does not exist": (
        forward_slot("vector", Slot("constant", 0, N)),
        "there is no constant 0",
    ),
    "a gradient in the forward step": (
        forward_slot("prev", Slot("grad_next", 0, N)),
        "a state gradient stands in the forward step",
    ),
    "a chunk in the forward step": (
        forward_slot("prev", Slot("chunk", 0, N)),
        "a chunk vector stands in the forward step",
    ),
    "an input gradient in the forward step": (
        forward_slot("input", Slot("grad_input", 0, D)),
        "an input gradient stands in the forward step",
    ),
    "reading what nothing wrote": (
        forward(sigmoid_to(args=(slot(F, "next"),))),
        "is read before it is written",
    ),
    "writing the old state": (
        forward(sigmoid_to(dst=slot(F, "prev"))),
        "may not be written",
    ),
    "writing a parameter": (
        forward(products(dst=slot(F, "vector", 2))),
        "may not be written",
    ),
    "operands of another width": (
        forward(sigmoid_to(args=(slot(F, "input"),))),
        "an operand has width 3, its result 4",
    ),
    "a matrix that does not fit": (
        forward(products(terms=((slot(F, "prev"), 1),))),
        "matrix 1 does not fit its operand or result",
    ),
    "a vector as a matrix": (
        forward(products(terms=((slot(F, "prev"), 2),))),
        "matrix 2 does not fit its operand or result",
    ),
    "a matrix that does not exist": (
        forward(products(terms=((slot(F, "prev"), 6),))),
        "a product's matrix is 6, expected 0 to 5",
    ),
    "a product of nothing": (
        forward(products(terms=())),
        "a product's number of terms is 0, expected 1 to",
    ),
    "a product onto its own operand": (
        backward(products(dst=slot(K, "chunk", 1), terms=((slot(K, "chunk", 1), 0),), init=-1)),
        "a product overwrites its own operand",
    ),
    "an init of another width": (
        forward(products(init=slot(F, "input"))),
        "a product's init does not fit its result",
    ),
    "an init that nothing wrote": (
        forward(products(init=slot(F, "next"))),
        "a product's init is read before it is written",
    ),
    "a slot that does not exist": (
        forward(sigmoid_to(args=(len(F.slots),))),
        f"an operand is {len(F.slots)}, expected 0 to {len(F.slots) - 1}",
    ),
    "a negative slot": (forward(sigmoid_to(dst=-1)), "a result is -1, expected 0 to"),
    "too few operands": (forward(sigmoid_to(op="add")), "an operand is -1, expected 0 to"),
    "too many operands": (
        forward(sigmoid_to(args=(slot(F, "prev"), slot(F, "prev")))),
        "an unused operand is",
    ),
    "a reduction in the forward step": (
        forward(sigmoid_to(op="reduce", dst=2)),
        "a reduction stands in the forward step",
    ),
    "a reduction to a matrix": (
        backward(lambda i: replace(i, dst=0) if getattr(i, "op", "") in SUMS else i, PEEPHOLE),
        "an operand has width 4, its result 4",
    ),
    "a state that is not written": (
        forward(lambda i: replace(i, dst=slot(F, "temp")) if getattr(i, "op", "") == "lerp" else i),
        "state 0 is not written by the step",
    ),
    "a kept value that is not written": (
        replace(MGU, kept=(*MGU.kept, N)),
        "kept value 2 is not written by the step",
    ),
    "a gradient that is not written": (
        replace(MGU, backward=replace(K, stages=K.stages[:-1])),
        "state 0 is not written by the step",
    ),
    "an empty step": (
        replace(MGU, forward=replace(F, stages=())),
        "state 0 is not written by the step",
    ),
    "an empty run": (
        replace(MGU, forward=replace(F, stages=((), *F.stages))),
        "a run's length is 0, expected 1 to",
    ),
    "weight gradients from scratch": (
        first_map(lambda m: replace(m, output=slot(K, "temp"))),
        "does not last until the weights' gradients are summed",
    ),
    "weight gradients from no chunk": (
        first_map(lambda m: replace(m, output=slot(K, "prev"))),
        "a map's gradient is not a chunk vector",
    ),
    "a matrix as a bias": (
        first_map(lambda m: replace(m, bias=0)),
        "a map's bias does not fit its result",
    ),
    "one bias of two maps": (
        first_map(lambda m: replace(m, bias=MGU.maps[1].bias)),
        "has two gradients",
    ),
    "one matrix of two operands": (
        first_map(lambda m: replace(m, operands=(m.operands[0], m.operands[0]))),
        "has two gradients",
    ),
    "a matrix that does not fit its map": (
        first_map(lambda m: replace(m, operands=((m.operands[0][0], 1),))),
        "a map's matrix does not fit its operand or result",
    ),
    "a map of nothing": (
        first_map(lambda m: replace(m, operands=())),
        "a map's number of operands is 0, expected 1 to",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_programs_are_refused(case: str) -> None:
    malformed, reason = MALFORMED[case]
    assert reason in refusal(malformed.encode(), malformed.constants)


WIDEST = 1 << 24


def many_products(width: int) -> Program:
    """MGU whose products have as many terms as a program may."""
    made = program(trace(UNITS["mgu"], 1, width))

    def repeat(item: Any) -> Any:
        return replace(item, terms=item.terms * 32_768) if isinstance(item, Product) else item

    return replace(made, forward=with_stages(made.forward, repeat))


def test_programs_whose_sizes_overflow_are_refused() -> None:
    """Each size is within its bounds; sums and products of them are not."""
    wide = program(trace(UNITS["mgu"], WIDEST, WIDEST)).encode()
    assert "too large: 1125899940397056 numbers in its parameters, at most" in refusal(wide, [])
    long = many_products(1 << 18)
    assert "multiplications for each row, at most 1099511627776" in refusal(long.encode(), [])
    room = (WIDEST,) * 65_000
    forward, backward = replace(F, temps=F.temps + room), replace(K, chunks=K.chunks + room)
    roomy = replace(MGU, forward=forward, backward=backward)
    assert "numbers for each row, at most 1099511627776" in refusal(roomy.encode(), [])


def test_another_format_is_refused() -> None:
    code = MGU.encode()
    assert "has format 7, this engine reads" in refusal([7, *code[1:]], MGU.constants)


def test_truncated_and_longer_programs_are_refused() -> None:
    for made in (MGU, PEEPHOLE):
        code = made.encode()
        for end in range(len(code)):
            assert "the program ends before" in refusal(code[:end], made.constants)
        assert "1 integers are left over" in refusal([*code, 0], made.constants)


def test_constants_must_be_as_many_as_listed() -> None:
    assert "has 0 constants, 1 came" in refusal(MGU.encode(), [0.5])


EXTREMES = (-(1 << 63), -(1 << 31), -2, -1, 0, 1, 1 << 16, (1 << 24) + 1, 1 << 31, (1 << 63) - 1)
CODES = [program(trace(unit, D, N)) for unit in UNITS.values()]


@hypothesis.settings(max_examples=300, derandomize=True, deadline=None)
@hypothesis.given(
    st.sampled_from(CODES),
    st.integers(0, 10_000),
    st.sampled_from(EXTREMES) | st.integers(-20, 20),
)
def test_one_wrong_integer_is_refused_or_harmless(made: Program, place: int, value: int) -> None:
    """Those that are taken run in `make sanitize`, which would see what they touch."""
    code = made.encode()
    code[place % len(code)] = value
    refusal(code, made.constants)


@hypothesis.settings(max_examples=200, derandomize=True, deadline=None)
@hypothesis.given(st.lists(st.integers(-2, 20) | st.integers(-(1 << 63), (1 << 63) - 1)))
def test_noise_is_refused(code: list[int]) -> None:
    assert refusal(code, [])
    assert refusal([MGU.encode()[0], *code], [])
