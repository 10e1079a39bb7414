"""The backward step: what it takes from the forward one, and what it leaves out.

That its derivatives are right is shown in test_program, by running it.
"""

from __future__ import annotations

from typing import Any

from onegate.language import Affine, Graph, Unit, Value, Vector, in_order, relu, sigmoid, tanh
from onegate.lowering.differentiate import StepCode, step_code
from onegate.ops import is_norm
from onegate.tracing import trace
from onegate.units import UNITS
from tests.library.sample_unit import with_a_loop


def of(name: str) -> tuple[Graph, StepCode]:
    graph = trace(UNITS[name], 3, 4)
    return graph, step_code(graph)


def backward_terms(code: StepCode) -> list[Value]:
    roots = [t for t in (*code.grads, *code.grad_inputs) if t is not None]
    roots += [t for _, t in code.grad_vectors]
    for each in code.maps:
        roots += [each.output, *each.operands]
    return in_order(roots)


def test_outputs_of_sigmoid_and_tanh_are_kept_and_nothing_else() -> None:
    _, code = of("mgu")
    assert sorted(term.op for term in code.kept) == ["sigmoid", "tanh"]


def test_the_backward_step_computes_no_activation_again() -> None:
    for name in UNITS:
        graph, code = of(name)
        if any(is_norm(node.op) for node in graph.nodes):
            continue  # what follows from a norm is computed again in less time than it is read
        again = [t.op for t in backward_terms(code) if t.op in ("sigmoid", "tanh", "relu")]
        assert not again, name


def test_the_backward_step_has_leaves_of_its_own_only() -> None:
    """Everything of the forward step is at hand: inputs, old and new states, kept values."""
    known = {"input", "state", "vector", "constant", "next", "keep", "grad"}
    for name in UNITS:
        _, code = of(name)
        assert {t.op for t in backward_terms(code) if not t.operands} <= known, name


def test_each_map_has_its_weights_and_its_bias() -> None:
    for name in UNITS:
        graph, code = of(name)
        keys = [key for each in code.maps for key in (*each.weights, each.bias) if key]
        keys += [key for key, _ in code.grad_vectors]
        assert sorted(keys) == sorted(graph.parameters), name


def test_the_input_has_a_gradient_outside_the_maps_only_where_it_is_used_there() -> None:
    """MUT1 takes x as it is where the input is as wide as the state."""
    assert step_code(trace(UNITS["mut1"], 4, 4)).grad_inputs != (None,)
    assert step_code(trace(UNITS["mut1"], 3, 4)).grad_inputs == (None,)
    assert of("mgu")[1].grad_inputs == (None,)


class NoMemory(Unit):
    """Neither state nor constant has a gradient."""

    W = Affine()

    def step(self, x: Any, h: Any) -> Any:
        return tanh(2.0 * self.W[x] + 1)


def test_a_state_that_is_not_used_has_no_gradient() -> None:
    assert step_code(trace(NoMemory(), 3, 4)).grads == (None,)


class Relay(Unit):
    """The old first state becomes the second: a plain copy."""

    states = ("h", "before")
    W = Affine()

    def step(self, x: Any, h: Any, before: Any) -> Any:
        return relu(self.W[x, before]), h


def test_a_state_that_is_copied() -> None:
    code = step_code(trace(Relay(), 3, 4))
    assert code.results[1].op == "state"
    assert code.grads[0] is not None
    assert (code.grads[0].op, code.grads[0].name) == ("grad", "before")
    assert not code.kept  # relu's output is the new state itself


class VectorAlone(Unit):
    p = Vector()

    def step(self, x: Any, h: Any) -> Any:
        return h * sigmoid(self.p) + self.p


def test_a_vector_has_one_gradient_from_all_its_uses() -> None:
    code = step_code(trace(VectorAlone(), 3, 4))
    assert [key for key, _ in code.grad_vectors] == ["p"]


def test_gradients_through_several_maps_are_one_product() -> None:
    _, code = of("lstm")
    to_h = code.grads[0]
    assert to_h is not None
    assert to_h.op == "product"
    assert sorted(to_h.weights) == ["c.U", "f.U", "i.U", "o.U"]


def test_equations_may_be_deeper_than_python_s_stack() -> None:
    code = step_code(trace(with_a_loop(400), 2, 3))
    assert len(code.kept) >= 400  # what each tanh has given
