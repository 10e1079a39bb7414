"""Which engine is taken, and the reason given."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.func import grad, vmap

import onegate
from onegate import engines
from onegate.engines import Choice, EngineError, reference
from onegate.engines.base import NOTHING, Run
from onegate.engines.cpu import operator


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fused engine that takes everything, whatever is built here."""
    monkeypatch.setattr(operator, "_problem", lambda: None)
    monkeypatch.setattr(type(operator.ENGINE), "run", staticmethod(reference.run))


def report(call: Any, x: torch.Tensor, **kwargs: Any) -> Choice:
    layer = onegate.MGU(3, 4, dtype=x.dtype, device=x.device, **kwargs)
    call(layer)(x)
    return layer.engine_report()


X = torch.zeros(5, 2, 3)


def test_auto_takes_the_fused_engine(fused: None) -> None:
    assert str(report(lambda layer: layer, X)) == "fused: float32 on the CPU"
    assert str(report(lambda layer: layer, X.double())) == "fused: float64 on the CPU"


def test_reference_is_taken_when_asked_for(fused: None) -> None:
    assert str(report(lambda layer: layer, X, engine="reference")) == (
        "reference: engine='reference' was asked for"
    )


def test_fused_is_taken_when_asked_for(fused: None) -> None:
    assert report(lambda layer: layer, X, engine="fused").name == "fused"


def dual(layer: Any) -> Any:
    def call(x: torch.Tensor) -> None:
        with torch.autograd.forward_ad.dual_level():
            layer(x)

    return call


CASES: dict[str, tuple[Any, torch.Tensor, str]] = {
    "complex": (
        lambda layer: layer,
        X.to(torch.complex64),
        "float32 and float64, the input is torch.complex",
    ),
    "empty": (lambda layer: layer, X[:, :0], "an empty batch"),
    "device": (lambda layer: layer, X.to("meta"), "runs on the CPU, the input is on meta"),
    "vmap": (
        lambda layer: vmap(lambda x: layer(x)[0]),
        torch.zeros(2, 5, 2, 3),
        "torch.func transform",
    ),
    "grad": (lambda layer: grad(lambda x: layer(x)[0].sum()), X, "torch.func transform"),
    "forward mode": (dual, X, "forward-mode differentiation is active"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_it_cannot_run_goes_to_the_reference_with_the_reason(case: str, fused: None) -> None:
    call, x, reason = CASES[case]
    taken = report(call, x)
    assert taken.name == "reference"
    assert reason in taken.reason


@pytest.mark.parametrize("case", CASES)
def test_fused_on_demand_raises_the_reason(case: str, fused: None) -> None:
    call, x, reason = CASES[case]
    with pytest.raises(EngineError) as raised:
        report(call, x, engine="fused")
    assert "engine='fused' cannot run this" in str(raised.value)
    assert reason in str(raised.value)


def test_the_engines_own_reason_is_passed_on(fused: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator, "_problem", lambda: "the native engine is not built")
    assert report(lambda layer: layer, X) == Choice("reference", "the native engine is not built")
    with pytest.raises(EngineError, match="the native engine is not built; engine='auto'"):
        report(lambda layer: layer, X, engine="fused")


def test_before_the_first_call() -> None:
    assert str(onegate.MGU(3, 4).engine_report()) == "none: the layer has not run yet"


def test_cells_report_too(fused: None) -> None:
    cell = onegate.MGUCell(3, 4)
    cell(X[0])
    assert cell.engine_report().name == "fused"


def test_a_transform_inside_a_compiled_function_is_seen(
    fused: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = onegate.MGU(3, 4)
    taken = []

    def runner(chosen: Choice) -> Run:
        taken.append(chosen.name)
        return reference.run

    monkeypatch.setattr("onegate.nn.layers.runner", runner)
    xs = torch.zeros(2, 2, 2, 3)
    torch.compile(vmap(lambda x: layer(x)[0]), fullgraph=True, backend="eager")(xs)
    assert taken == ["reference"]


class Doubling:
    """An engine from outside: everything twice, for sequences of more than one step."""

    name = "doubling"

    def missing(self) -> None:
        return None

    def problem(self, graph: Any, x: torch.Tensor, directions: Any) -> str | None:
        return "one step is too short for it" if len(x) == 1 else None

    def run(self, graph: Any, x: Any, directions: Any, lengths: Any, further: Any = NOTHING) -> Any:
        out, last = reference.run(graph, x, directions, lengths, further)
        return 2 * out, last


def test_an_engine_from_outside(fused: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "ENGINES", list(engines.ENGINES))
    engines.register(Doubling())
    assert engines.names() == ["auto", "doubling", "fused", "reference"]
    layer = onegate.MGU(3, 4)
    expected, _ = reference_layer(layer)(X)
    assert torch.equal(layer(X)[0], 2 * expected)
    assert str(layer.engine_report()) == "doubling: float32 on the CPU"
    layer(X[:1])
    assert str(layer.engine_report()) == "fused: one step is too short for it"
    with pytest.raises(EngineError, match="engine='doubling' cannot run this: one step is too"):
        report(lambda layer: layer, X[:1], engine="doubling")


def reference_layer(layer: onegate.Recurrent) -> onegate.Recurrent:
    same = onegate.MGU(3, 4, engine="reference")
    same.load_state_dict(layer.state_dict())
    return same
