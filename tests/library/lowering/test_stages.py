"""The schedule of a step: what is projected, what is grouped, in which order."""

from __future__ import annotations

from typing import Any

import pytest

from onegate.language import Affine, Unit, Value
from onegate.lowering.stages import MapProduct, Projection, Stages, stages
from onegate.tracing import trace
from onegate.units import UNITS
from tests.library.comparing import X_ALONE


def schedule(name: str, input_size: int = 3, hidden_size: int = 4) -> Stages:
    return stages(trace(UNITS[name], input_size, hidden_size))


def maps(stage: MapProduct | Projection | Value) -> list[list[str]]:
    """The names of a stage's maps, product by product."""
    if isinstance(stage, MapProduct):
        return [[node.name for node in stage.nodes]]
    assert isinstance(stage, Projection)
    return [[node.name for node in product.nodes] for product in stage.products]


def test_gru_projects_all_maps_of_x_and_groups_those_of_h() -> None:
    found = schedule("gru")
    (projection,) = found.before
    assert maps(projection) == [["W_z", "W_r"], ["W_h"]]
    assert isinstance(projection, Projection)
    assert projection.weights == (("z.W", "r.W", "h.W"),)
    assert projection.biases == ("z.b", "r.b", "h.b")
    assert [stage.op if isinstance(stage, Value) else maps(stage)[0] for stage in found.step] == [
        ["W_z", "W_r"], "sigmoid", "sigmoid", "mul", ["W_h"], "tanh", "sub", "mul", "mul", "add",
    ]  # fmt: skip
    assert [s.weights for s in found.step if isinstance(s, MapProduct)] == [
        (("z.U", "r.U"),),
        (("h.U",),),
    ]


def test_lstm_is_one_product_a_step() -> None:
    (product,) = (s for s in schedule("lstm").step if isinstance(s, MapProduct))
    assert product.sizes == [4, 4, 4, 4]
    assert [operand.name for operand in product.operands] == ["h"]


def test_gates_of_fgr_share_four_operands() -> None:
    gates, candidate = (s for s in schedule("lstm_fgr").step if isinstance(s, MapProduct))
    assert maps(gates) == [["W_i", "W_f", "W_o"]]
    assert [operand.name for operand in gates.operands] == ["h", "i", "f", "o"]
    assert gates.weights[2] == ("i.U_f", "f.U_f", "o.U_f")
    assert maps(candidate) == [["W_c"]]


def test_operands_in_another_order_are_grouped_too() -> None:
    class Two(Unit):
        W_a = Affine()
        W_b = Affine()
        states = ("h", "s")

        def step(self, x: Any, h: Any, s: Any) -> Any:
            return self.W_a[h, x, s], self.W_b[s, h, x]

    found = stages(trace(Two(), 3, 4))
    (product,) = found.step
    assert isinstance(product, MapProduct)
    assert product.weights == (("a.U", "b.U_h"), ("a.U_s", "b.U"))


def test_mingru_has_nothing_to_multiply_in_the_loop() -> None:
    found = schedule("mingru")
    assert not [stage for stage in found.step if isinstance(stage, MapProduct)]
    hoisted = [stage.op for stage in found.before if isinstance(stage, Value)]
    assert hoisted == ["sigmoid", "sub", "mul"]  # z, 1 - z, z * candidate
    assert [s.op for s in found.step if isinstance(s, Value)] == ["mul", "add"]


def test_a_gate_without_bias_or_input_has_no_projection_to_add_to() -> None:
    found = schedule("mgu2")
    by_map = {
        node.name: (stage.operands, stage.biases)
        for stage in found.before
        if isinstance(stage, Projection)
        for product in stage.products
        for node in product.nodes
    }
    assert by_map["W_f"] == ((), ())
    assert by_map["W_h"][1] == ("h.b",)


@pytest.mark.parametrize("name", X_ALONE)
@pytest.mark.parametrize("sizes", [(3, 4), (4, 4)], ids=str)
def test_every_operand_is_known_when_it_is_used(name: str, sizes: tuple[int, int]) -> None:
    graph = trace(UNITS[name], *sizes)
    found = stages(graph)
    leaves = {n for n in graph.nodes if n.op in ("input", "vector", "constant")}
    known, projected = set(leaves), set[Value]()
    for stage in found.before:
        if isinstance(stage, Value):
            assert known.issuperset(stage.args)
            known.add(stage)
            continue
        assert known.issuperset(stage.operands)
        for product in stage.products:
            (projected if product.operands else known).update(product.nodes)
    assert set(found.given) <= known
    known = set(found.given) | {n for n in leaves if n.op != "input"} | set(graph.states)
    for each in found.step:
        if isinstance(each, Value):
            assert known.issuperset(each.args)
            known.add(each)
        else:
            assert known.issuperset(each.operands)
            assert projected.issuperset(each.nodes)
            known.update(each.nodes)
    assert known.issuperset(graph.results)


@pytest.mark.parametrize("name", X_ALONE)
def test_every_parameter_is_used_once(name: str) -> None:
    graph = trace(UNITS[name], 3, 4)
    used = [n.name for n in graph.nodes if n.op == "vector"]
    for stage in (*stages(graph).before, *stages(graph).step):
        if not isinstance(stage, Value):
            used += [key for keys in stage.weights for key in keys]
        if isinstance(stage, Projection):
            used += stage.biases
    assert sorted(used) == sorted(graph.parameters)
