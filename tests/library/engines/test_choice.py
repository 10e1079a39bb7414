"""Which engine is taken, and the reason given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.func import grad, vmap

import onegate
from onegate.engines import Choice, EngineError, choice, reference


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A fused engine that takes everything, whatever is built here."""
    module = SimpleNamespace(run=reference.run, unavailable=lambda *_: None)
    monkeypatch.setattr(choice, "fused", module)
    return module


def report(call: Any, x: torch.Tensor, **kwargs: Any) -> Choice:
    layer = onegate.MGU(3, 4, dtype=x.dtype, device=x.device, **kwargs)
    call(layer)(x)
    return layer.engine_report()


X = torch.zeros(5, 2, 3)


def test_auto_takes_the_fused_engine(fused: SimpleNamespace) -> None:
    assert str(report(lambda layer: layer, X)) == "fused: float32 on the CPU"
    assert str(report(lambda layer: layer, X.double())) == "fused: float64 on the CPU"


def test_reference_is_taken_when_asked_for(fused: SimpleNamespace) -> None:
    assert str(report(lambda layer: layer, X, engine="reference")) == (
        "reference: engine='reference' was asked for"
    )


def test_fused_is_taken_when_asked_for(fused: SimpleNamespace) -> None:
    assert report(lambda layer: layer, X, engine="fused").name == "fused"


def autocast(layer: Any) -> Any:
    return torch.autocast("cpu", torch.bfloat16)(layer)


def dual(layer: Any) -> Any:
    def call(x: torch.Tensor) -> None:
        with torch.autograd.forward_ad.dual_level():
            layer(x)

    return call


CASES: dict[str, tuple[Any, torch.Tensor, str]] = {
    "bfloat16": (lambda layer: layer, X.bfloat16(), "float32 and float64, the input is torch.bfl"),
    "device": (lambda layer: layer, X.to("meta"), "runs on the CPU, the input is on meta"),
    "autocast": (autocast, X, "autocast is on"),
    "vmap": (
        lambda layer: vmap(lambda x: layer(x)[0]),
        torch.zeros(2, 5, 2, 3),
        "torch.func transform",
    ),
    "grad": (lambda layer: grad(lambda x: layer(x)[0].sum()), X, "torch.func transform"),
    "forward mode": (dual, X, "forward-mode differentiation is active"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_it_cannot_run_goes_to_the_reference_with_the_reason(
    case: str, fused: SimpleNamespace
) -> None:
    call, x, reason = CASES[case]
    taken = report(call, x)
    assert taken.name == "reference"
    assert reason in taken.reason


@pytest.mark.parametrize("case", CASES)
def test_fused_on_demand_raises_the_reason(case: str, fused: SimpleNamespace) -> None:
    call, x, reason = CASES[case]
    with pytest.raises(EngineError) as raised:
        report(call, x, engine="fused")
    assert "engine='fused' cannot run this" in str(raised.value)
    assert reason in str(raised.value)


def test_the_engines_own_reason_is_passed_on(fused: SimpleNamespace) -> None:
    fused.unavailable = lambda *_: "the native engine is not built"
    assert report(lambda layer: layer, X) == Choice("reference", "the native engine is not built")
    with pytest.raises(EngineError, match="the native engine is not built; engine='auto'"):
        report(lambda layer: layer, X, engine="fused")


def test_before_the_first_call() -> None:
    assert str(onegate.MGU(3, 4).engine_report()) == "none: the layer has not run yet"


def test_cells_report_too(fused: SimpleNamespace) -> None:
    cell = onegate.MGUCell(3, 4)
    cell(X[0])
    assert cell.engine_report().name == "fused"


def test_a_transform_inside_a_compiled_function_is_seen(
    fused: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = onegate.MGU(3, 4)
    taken = []

    def runner(chosen: Choice) -> choice.Run:
        taken.append(chosen.name)
        return reference.run

    monkeypatch.setattr("onegate.nn.layers.runner", runner)
    xs = torch.zeros(2, 2, 2, 3)
    torch.compile(vmap(lambda x: layer(x)[0]), fullgraph=True, backend="eager")(xs)
    assert taken == ["reference"]
