"""The registry: names, options, docstrings, and units defined outside the package."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
import torch

import onegate
from onegate.export.latex import equations, latex
from onegate.language import Affine, Unit, UnitError, identity, is_ours, sigmoid, tanh
from onegate.properties import gates, retention
from onegate.tracing import check, trace
from onegate.units import UNITS, get, register
from onegate.units.mgu import MGU
from onegate.units.simple import SCRN

PUBLISHED = (
    "simple", "irnn", "scrn", "indrnn",
    "lstm", "lstm_no_forget", "lstm_peephole", "lstm_coupled", "lstm_nig", "lstm_nfg", "lstm_nog",
    "lstm_niaf", "lstm_noaf", "lstm_cifg", "lstm_np", "lstm_fgr",
    "lstm_layer_norm", "slstm",
    "gru", "gru_cho", "gru_reset_after", "gru_layer_norm", "gru_block", "mut1", "mut2", "mut3",
    "mgu", "mgu_gate_after", "mgu1", "mgu2", "mgu3",
    "janet", "ligru", "mingru", "minlstm", "ugrnn", "cfn", "fastgrnn",
    "cornn", "lem", "gru_d",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _registry_as_it_was() -> Iterator[None]:
    before = dict(UNITS)
    yield
    UNITS.clear()
    UNITS.update(before)


def test_holds_the_published_units() -> None:
    assert tuple(UNITS) == PUBLISHED
    assert onegate.UNITS is UNITS


@pytest.mark.parametrize("name", PUBLISHED)
def test_docstring_cites_the_paper_and_ends_with_the_equations(name: str) -> None:
    unit = UNITS[name]
    doc = type(unit).__doc__ or ""
    year = next(word for word in unit.citation.replace(",", "").split() if word.isdecimal())
    assert year in doc
    assert doc.endswith(latex(trace(unit, 2, 2)) + "\n")
    assert doc.count("\\begin{align}") == 1
    assert unit.title
    assert unit.name == name


@pytest.mark.parametrize("name", PUBLISHED)
def test_our_units_are_what_a_unit_of_ones_own_has_to_be(name: str) -> None:
    """An import of the package does not ask: this is where they are checked."""
    kind = type(UNITS[name])
    assert is_ours(kind)
    check(kind)
    trace(kind(), 3, 2)


def test_units_are_equal_by_class_and_options() -> None:
    assert MGU() == MGU()
    assert UNITS["lstm"] != UNITS["lstm_np"]
    assert SCRN(alpha=0.5) == get("scrn", alpha=0.5) != SCRN()
    assert hash(SCRN(alpha=0.5)) == hash(get("scrn", alpha=0.5))
    with pytest.raises(FrozenInstanceError):
        SCRN().alpha = 0.5  # type: ignore[misc]


def test_get_takes_a_name_a_unit_or_a_class() -> None:
    assert get("mgu") is UNITS["mgu"]
    assert get(MGU) == get(MGU()) == UNITS["mgu"]
    assert get(SCRN, context_size=7) == SCRN(context_size=7)


def test_get_says_what_is_wrong() -> None:
    with pytest.raises(UnitError, match="no unit is called 'mguu'; did you mean 'mgu'"):
        get("mguu")
    with pytest.raises(UnitError, match="no unit is called 'zzz'; known: simple, irnn"):
        get("zzz")
    with pytest.raises(UnitError, match="mgu has no option 'alpha'; it has none"):
        get("mgu", alpha=1)
    with pytest.raises(UnitError, match=r"scrn has no option 'beta'; .* context_size, alpha"):
        get("scrn", beta=1)


def test_a_name_is_an_identifier_and_free() -> None:
    with pytest.raises(UnitError, match="identifier such as 'mgu', got 'my unit'"):
        register("my unit")(MGU)
    with pytest.raises(UnitError, match="the name 'gru' is taken by GRU"):
        register("gru")(MGU)
    assert UNITS["mgu"].name == "mgu"


def test_registering_again_changes_nothing() -> None:
    doc = MGU.__doc__
    assert register("mgu")(MGU) is MGU
    assert MGU.__doc__ == doc


def test_a_wrong_unit_is_refused_when_it_is_registered() -> None:
    with pytest.raises(UnitError, match="mixed: 'add' needs operands of one size"):

        @register("mixed")
        class Mixed(Unit):
            def step(self, x: Any, h: Any) -> Any:
                return tanh(x + h)

    assert "mixed" not in UNITS


def test_a_subclass_that_is_not_registered_has_its_own_name() -> None:
    class Other(MGU):
        pass

    assert Other().name == "Other"


def test_a_unit_from_outside_is_used_like_a_built_in() -> None:
    @register("flax_mgu")
    class FlaxMGU(Unit):
        """Gate after the matrix, f keeps."""

        W_f = Affine()
        W_h = Affine()
        U_h = Affine()

        def step(self, x: Any, h: Any) -> Any:
            f = sigmoid(self.W_f[h, x])
            candidate = tanh(self.W_h[x] + f * self.U_h[h])
            return (1 - f) * candidate + f * h

    graph = trace(get("flax_mgu"), 3, 4)
    assert equations(graph)[-1] == "hₜ = (1 - fₜ) ⊙ h\N{COMBINING TILDE}ₜ + fₜ ⊙ hₜ₋₁"
    assert (FlaxMGU.__doc__ or "").startswith("Gate after the matrix, f keeps.\n\n\\begin{align}")
    assert len(gates(graph)) == 1
    assert retention(graph)[0].keeps.sign == 1
    layer = onegate.Recurrent("flax_mgu", 3, 4)
    assert sum(p.numel() for p in layer.parameters()) == graph.parameter_count() == 68
    x = torch.randn(6, 2, 3)
    out, last = layer(x)
    h = torch.zeros(2, 4)
    parameters = {key.removeprefix("l0."): p for key, p in layer.named_parameters()}
    for t in range(6):
        h = graph.unit.bind(graph, parameters).step(x[t], h)
    torch.testing.assert_close(out[-1], h)
    torch.testing.assert_close(last[0], h)


def test_a_unit_with_states_and_options_of_its_own() -> None:
    @register("slow_and_fast")
    class SlowAndFast(Unit):
        states = ("h", "m")
        memory: int = 6
        W_m = Affine(like="memory")
        W_h = Affine()

        def state_sizes(self, hidden_size: int) -> dict[str, int]:
            return {"h": hidden_size, "m": self.memory}

        def step(self, x: Any, h: Any, m: Any) -> Any:
            m = 0.9 * m + 0.1 * identity(self.W_m[h, x])
            return tanh(self.W_h[m, x]), m

    graph = trace(get("slow_and_fast", memory=5), 3, 2)
    assert graph.parameters["m.U"] == (5, 2)
    assert graph.parameters["h.U"] == (2, 5)
    assert [state.size for state in graph.states] == [2, 5]
    assert equations(graph)[0] == "mₜ = 0.9 mₜ₋₁ + 0.1 (W_m [hₜ₋₁, xₜ] + b_m)"
