"""Initial values: by name, per map, and by what a unit's gates keep."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import onegate
from onegate import chrono, forget_bias
from onegate.properties import retention
from onegate.tracing import trace
from onegate.units import UNITS

N = 64


def values(layer: torch.nn.Module) -> dict[str, Tensor]:
    return {key.removeprefix("l0."): tensor for key, tensor in layer.state_dict().items()}


def mgu(init: Any, **kwargs: Any) -> dict[str, Tensor]:
    return values(onegate.MGU(9, N, init=init, **kwargs))


def refused(message: str) -> Any:
    return pytest.raises(ValueError, match=re.escape(message))


def is_orthogonal(matrix: Tensor) -> bool:
    tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
    return torch.allclose(tall.T @ tall, torch.eye(tall.shape[1]), atol=1e-5)


class TestNames:
    def test_uniform_is_torchs_and_the_default(self) -> None:
        torchs = torch.nn.GRU(9, N).state_dict().values()
        for init in (None, "uniform"):
            for tensor in mgu(init).values():
                assert 0.9 / math.sqrt(N) < tensor.abs().max() <= 1 / math.sqrt(N)
        assert max(t.abs().max() for t in torchs) <= 1 / math.sqrt(N)

    def test_normal_is_the_authors(self) -> None:
        for key, tensor in mgu("normal").items():
            assert tensor.std().item() == pytest.approx(0.0 if key.endswith("b") else 0.1, rel=0.1)

    def test_orthogonal(self) -> None:
        for key, tensor in mgu("orthogonal").items():
            assert not tensor.any() if key.endswith("b") else is_orthogonal(tensor)

    def test_orthogonal_in_half_precision(self) -> None:
        u = mgu({"U": "orthogonal"}, dtype=torch.bfloat16)["f.U"].float()
        torch.testing.assert_close(u.T @ u, torch.eye(N), atol=0.05, rtol=0)

    def test_glorot(self) -> None:
        bound = math.sqrt(6 / (9 + N))
        w = mgu("glorot")["f.W"].abs().max()
        assert 0.9 * bound < w <= bound

    def test_zeros_and_numbers(self) -> None:
        assert not any(tensor.any() for tensor in mgu("zeros").values())
        assert all((tensor == 0.5).all() for tensor in mgu(0.5).values())

    def test_names_with_arguments(self) -> None:
        found = mgu({"U": ("normal", 0.5), "W": ["uniform", 0.25], "f.b": ("normal", 2.0)})
        assert found["h.U"].std().item() == pytest.approx(0.5, rel=0.1)
        assert 0.2 < found["h.W"].abs().max() <= 0.25
        assert found["f.b"].std().item() == pytest.approx(2.0, rel=0.3)
        assert torch.equal(mgu({"U": ("identity", 0.5)})["f.U"], 0.5 * torch.eye(N))

    def test_numbers_are_exact_in_float64(self) -> None:
        found = mgu({"U": ("identity", 0.1), "W": 0.1}, dtype=torch.float64)
        assert found["f.U"][0, 0] == found["f.W"][0, 0] == 0.1
        assert (mgu(forget_bias(0.1), dtype=torch.float64)["f.b"] == -0.1).all()

    def test_numbers_of_numpy(self) -> None:
        assert (mgu(np.float32(0.5))["f.U"] == 0.5).all()
        assert (mgu({"U": ("identity", np.int64(2))})["f.U"] == 2 * torch.eye(N)).all()
        assert (mgu(("forget_bias", np.float32(0.5)))["f.b"] == -0.5).all()

    def test_vectors(self) -> None:
        def peephole(init: Any) -> Tensor:
            return values(onegate.LSTMPeephole(9, N, init=init))["p_i"]

        assert peephole("normal").std().item() == pytest.approx(0.1, rel=0.3)
        assert not peephole("orthogonal").any()
        assert (peephole({"p": 3}) == 3).all()


class TestMappings:
    def test_the_most_specific_wins(self) -> None:
        found = mgu({"f.U": 1, "f": 2, "U": 3, "b": 4})
        assert 0 < found.pop("h.W").abs().max() <= 1 / math.sqrt(N)
        filled = {"f.U": 1, "f.W": 2, "f.b": 2, "h.U": 3, "h.b": 4}
        assert list(found) == list(filled)
        for key, number in filled.items():
            assert (found[key] == number).all()

    def test_a_name_for_a_map_leaves_its_bias_zero(self) -> None:
        found = mgu({"f": "normal"})
        assert not found["f.b"].any()
        assert found["h.b"].any()

    def test_operands_of_their_own_name_count_as_their_kind(self) -> None:
        found = values(onegate.LSTMFGR(3, 4, init={"U": 1, "U_f": 2, "i.U_f": 3}))
        assert [found[k].mean() for k in ("i.U", "i.U_o", "f.U_f", "i.U_f")] == [1, 1, 2, 3]

    def test_every_layer_and_direction(self) -> None:
        layer = onegate.MGU(3, 4, 2, bidirectional=True, init={"b": 7})
        biases = [v for k, v in layer.state_dict().items() if k.endswith("b")]
        assert len(biases) == 8
        assert all((bias == 7).all() for bias in biases)

    def test_a_map_that_only_the_first_layer_has(self) -> None:
        layer = onegate.MUT1(3, 4, 2, init={"x.W": 7})
        assert (layer.get_parameter("l0.x.W") == 7).all()
        assert "l1.x.W" not in layer.state_dict()


class TestDefaultsOfUnits:
    def test_irnn(self) -> None:
        found = values(onegate.IRNN(50, N))
        assert torch.equal(found["h.U"], torch.eye(N))
        assert not found["h.b"].any()
        assert found["h.W"].std().item() == pytest.approx(0.001, rel=0.1)

    def test_irnn_without_biases(self) -> None:
        assert torch.equal(values(onegate.IRNN(3, N, bias=False))["h.U"], torch.eye(N))

    def test_what_the_user_says_goes_first(self) -> None:
        found = values(onegate.IRNN(50, N, init={"W": 1}))
        assert (found["h.W"] == 1).all()
        assert torch.equal(found["h.U"], torch.eye(N))
        assert values(onegate.IRNN(50, N, init="normal"))["h.U"].std().item() == pytest.approx(
            0.1, rel=0.1
        )


# The bias that keeps the state, its sign, and that of a gate for writing, from the papers.
KEEPS = {
    "mgu": ("f.b", -1, None),
    "mgu_gate_after": ("f.b", -1, None),
    "mgu1": ("f.b", -1, None),
    "mgu3": ("b_f", -1, None),
    "gru": ("z.b", -1, None),
    "gru_cho": ("z.b", 1, None),
    "gru_reset_after": ("z.b", 1, None),
    "mut1": ("z.b", -1, None),
    "mut2": ("z.b", -1, None),
    "mut3": ("z.b", -1, None),
    "lstm": ("f.b", 1, "i.b"),
    "lstm_np": ("f.b", 1, "i.b"),
    "lstm_peephole": ("f.b", 1, "i.b"),
    "lstm_nog": ("f.b", 1, "i.b"),
    "lstm_niaf": ("f.b", 1, "i.b"),
    "lstm_noaf": ("f.b", 1, "i.b"),
    "lstm_fgr": ("f.b", 1, "i.b"),
    "lstm_nig": ("f.b", 1, None),
    "lstm_coupled": ("f.b", 1, None),
    "lstm_cifg": ("i.b", -1, None),
    "janet": ("f.b", 1, None),
    "ligru": ("z.b", 1, None),
    "mingru": ("z.b", -1, None),
    "ugrnn": ("g.b", 1, None),
    "lstm_layer_norm": ("N_f.shift", 1, "N_i.shift"),
    "gru_layer_norm": ("N_x.shift_1", -1, None),
    "gru_block": ("z.b", -1, None),
    "fastgrnn": ("b_z", 1, "nu"),
}


class TestGates:
    def test_every_unit_is_in_the_table_or_has_no_such_gate(self) -> None:
        without = {name for name in UNITS if name not in KEEPS}
        assert without == {
            "simple",
            "irnn",
            "scrn",
            "indrnn",
            "lstm_no_forget",
            "lstm_nfg",
            "slstm",
            "mgu2",
            "minlstm",
            "cfn",
            "cornn",
            "lem",
            "gru_d",
        }

    def test_lem_keeps_two_states(self) -> None:
        found = values(onegate.LEM(3, N, init=forget_bias(1.5, 0.25)))
        assert (found["f.b"] == -1.5).all()
        assert (found["g.b"] == -1.5).all()

    @pytest.mark.parametrize("name", KEEPS)
    def test_forget_bias(self, name: str) -> None:
        key, sign, _ = KEEPS[name]
        plain = values(onegate.Recurrent(name, 3, N, init=0.25))
        found = values(onegate.Recurrent(name, 3, N, init=forget_bias(1.5, 0.25)))
        assert (found.pop(key) == 1.5 * sign).all()
        del plain[key]
        torch.testing.assert_close(found, plain, rtol=0, atol=0)

    @pytest.mark.parametrize("name", KEEPS)
    def test_chrono(self, name: str) -> None:
        key, sign, writes = KEEPS[name]
        found = values(onegate.Recurrent(name, 3, 2000, init=chrono(101)))
        spans = (sign * found[key]).exp()
        assert 0.999 < spans.min() < 2 < 99 < spans.max() <= 100.001
        assert spans.mean().item() == pytest.approx(50.5, rel=0.05)
        if writes is not None:
            torch.testing.assert_close(found[writes], -found[key], rtol=0, atol=0)

    @pytest.mark.parametrize("name", KEEPS)
    def test_the_state_is_kept_longer(self, name: str) -> None:
        """With no input, a state fades less the larger the bias towards keeping it."""

        def kept(bias: float) -> Any:
            layer = onegate.Recurrent(
                name, 3, 8, init=forget_bias(bias, "zeros"), engine="reference"
            )
            states = layer.unit.state_sizes(8)
            hx = tuple(torch.full((1, 1, n), 0.3) for n in states.values())
            last = layer(torch.zeros(5, 1, 3), hx if len(hx) > 1 else hx[0])[1]
            by_name = dict(zip(states, last if isinstance(last, tuple) else (last,), strict=True))
            (kept, *_) = retention(trace(UNITS[name], 3, 8))
            return by_name[kept.state].mean()

        assert kept(-2.0) < kept(0.0) < kept(2.0)

    def test_as_data_with_the_rest(self) -> None:
        found = mgu(["forget_bias", 2.0, {"U": "orthogonal"}])
        assert (found["f.b"] == -2).all()
        assert is_orthogonal(found["f.U"])

    @pytest.mark.parametrize("name", ["simple", "scrn", "lstm_nfg", "mgu2"])
    def test_units_without_such_a_gate_refuse(self, name: str) -> None:
        with refused(f"init: {name} has no gate with a bias that keeps a state"):
            onegate.Recurrent(name, 3, 4, init=forget_bias(1))

    def test_layers_without_biases_refuse(self) -> None:
        with refused("mgu has no gate with a bias that keeps a state in a layer made with bias=Fa"):
            onegate.MGU(3, 4, bias=False, init=chrono(10))


class TestRefused:
    def test_unknown_names(self) -> None:
        with refused("f.U is to be filled by 'orthogonl', which is not known; did you mean 'ortho"):
            mgu("orthogonl")
        with refused(
            "which is not known; known: glorot, identity, normal, orthogonal, uniform, ze"
        ):
            mgu({"U": object()})

    def test_unknown_parameters(self) -> None:
        with refused("init: no parameter, map or kind is called 'f.u'; did you mean 'f.U'?"):
            mgu({"f.u": "zeros"})
        with refused("init: no parameter, map or kind is called 'z'; known: U, W, b, f, f.U"):
            mgu({"z": "zeros"})
        with refused("init: no parameter, map or kind is called 'z'"):
            onegate.MGUCell(2, 3, init={"z": "zeros"})
        with refused("init: no parameter, map or kind is called 'b'"):
            mgu({"b": 1}, bias=False)
        with refused("init: no parameter, map or kind is called 1; known: U, W, b, f, f.U"):
            mgu({1: "zeros"})

    def test_matrices_only(self) -> None:
        with refused("init: 'orthogonal' is for matrices, f.b is (64,)"):
            mgu({"b": "orthogonal"})
        with refused("init: 'identity' is for square matrices, f.W is (64, 9); name the square"):
            mgu("identity")

    def test_values_of_gates(self) -> None:
        with refused("init: chrono takes a number of steps, 2 or more, got 1"):
            mgu(chrono(1))
        with refused("init: forget_bias takes a number, got 'one'"):
            mgu(("forget_bias", "one"))
        with refused("init: forget_bias takes a number, got None"):
            mgu(["forget_bias"])
        with refused("init: chrono takes a number and the rest, got (9, None, 'zeros')"):
            mgu(("chrono", 9, None, "zeros"))

    def test_arguments(self) -> None:
        with refused("init: 'normal' takes one number at most, got (0, 1)"):
            mgu(("normal", 0, 1))
        with refused("init: 'zeros' takes no argument, got (1,)"):
            mgu(("zeros", 1))
        with refused("init: 'uniform' takes a width of 0 or more, got -0.1"):
            mgu(("uniform", -0.1))
        with refused("init: f.U is to be filled by [], which is not known"):
            mgu([])


def test_reset_parameters_draws_anew() -> None:
    for module in (onegate.MGU(3, 4, learn_initial_state=True), onegate.MGUCell(3, 4)):
        before = {key: value.clone() for key, value in module.state_dict().items()}
        for parameter in module.parameters():
            torch.nn.init.ones_(parameter)
        module.reset_parameters()
        for key, value in module.state_dict().items():
            assert not value.any() if key.endswith("_0") else not torch.equal(value, before[key])


def test_same_seed_same_values() -> None:
    torch.manual_seed(3)
    first = mgu("orthogonal")
    torch.manual_seed(3)
    torch.testing.assert_close(mgu("orthogonal"), first, rtol=0, atol=0)
