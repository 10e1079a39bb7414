"""Contestants compute what they say, and those that cannot run say why."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from onegate import engines
from onegate.engines.cpu import native, operator
from onegate.lab.bench import contestants
from onegate.lab.bench.contestants import (
    FLAX,
    TORCHRECURRENT,
    Contestant,
    module_entry,
    ours,
    peers,
)
from onegate.lab.bench.shapes import LayerShape, Unavailable, parse
from onegate.nn.layers import Recurrent

SHAPE = parse("4,3,2,5")


def enter(contestant: Contestant, shape: LayerShape = SHAPE) -> contestants.Entrant:
    x = torch.randn(shape.steps, shape.batch, shape.inputs)
    return contestant.enter(shape, x, torch.randn(shape.steps, shape.batch, shape.outputs))


def named(name: str) -> Contestant:
    return next(peer for peer in peers() if peer.name == name)


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a package look as if it were not installed."""
    find_spec = importlib.util.find_spec

    def hide(package: str) -> None:
        def found(name: str, *rest: Any) -> Any:
            return None if name == package else find_spec(name, *rest)

        monkeypatch.setattr(importlib.util, "find_spec", found)

    return hide


def test_training_starts_from_the_given_gradient_and_adds_up_nothing() -> None:
    layer = nn.GRU(2, 5)
    x, grad_out = torch.randn(4, 3, 2), torch.randn(4, 3, 5)
    entry = module_entry(layer, x, grad_out)
    entry.train()
    entry.train()
    found = [p.grad for p in layer.parameters()]
    expected = torch.autograd.grad(layer(x)[0], list(layer.parameters()), grad_out)
    for ours_, theirs in zip(found, expected, strict=True):
        assert ours_ is not None
        torch.testing.assert_close(ours_, theirs)


@pytest.mark.parametrize("wanted", [True, False])
def test_the_inputs_gradient_is_computed_only_where_wanted(wanted: bool) -> None:
    seen: list[bool] = []

    class Layer(nn.Linear):
        def forward(self, input: torch.Tensor) -> Any:
            seen.append(input.requires_grad)
            return (super().forward(input),)

    entry = module_entry(Layer(2, 5), torch.randn(4, 3, 2), torch.randn(4, 3, 5), wanted)
    entry.train()
    assert seen == [wanted]


def test_inference_keeps_no_graph_and_is_in_evaluation_mode() -> None:
    seen: list[tuple[bool, bool]] = []

    class Layer(nn.Linear):
        def forward(self, input: torch.Tensor) -> Any:
            seen.append((torch.is_grad_enabled(), self.training))
            return (super().forward(input),)

    entry = module_entry(Layer(2, 5), torch.randn(4, 3, 2), torch.randn(4, 3, 5))
    entry.infer()
    entry.train()
    assert seen == [(False, False), (True, True)]


@pytest.mark.parametrize("shape", ["4,3,2,5", "4,3,2,5,2,bi"])
@pytest.mark.parametrize("name", ["torch.nn.GRU", "torch.nn.LSTM", "torch.nn.RNN"])
def test_torch_layers_run(name: str, shape: str) -> None:
    entry = enter(named(name), parse(shape))
    entry.train()
    entry.infer()
    assert entry.held_bytes() > 0


@pytest.mark.parametrize("unit", ["mgu", "lstm", "scrn"])
def test_ours_run_on_the_engine_that_they_name(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engines: list[str] = []

    def spied(*args: Any, **kwargs: Any) -> Any:
        engines.append(kwargs["engine"])
        return Recurrent(*args, **kwargs)

    monkeypatch.setattr(contestants, "Recurrent", spied)
    for engine in ("reference", *(["fused"] if native.library().problem is None else [])):
        contestant = ours(unit, engine)
        assert contestant.name == f"{unit} {engine}"
        enter(contestant).train()
        assert engines[-1] == engine


def test_missing_peers_give_the_reason(without: Callable[[str], None]) -> None:
    without("torchrecurrent")
    with pytest.raises(Unavailable, match="torchrecurrent is not installed: pip install"):
        enter(named(TORCHRECURRENT))
    without("flax")
    with pytest.raises(Unavailable, match="flax is not installed"):
        enter(named(FLAX))


def test_torchrecurrent_has_no_bidirectional_layers() -> None:
    pytest.importorskip("torchrecurrent")
    enter(named(TORCHRECURRENT)).train()
    with pytest.raises(Unavailable, match="no bidirectional layers"):
        enter(named(TORCHRECURRENT), parse("4,3,2,5,1,bi"))


def test_a_missing_native_engine_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = native.Library(None, "the native engine is not built", None)
    monkeypatch.setattr(operator, "library", lambda: absent)
    with pytest.raises(Unavailable, match="the native engine is not built"):
        enter(ours("mgu", "fused"))
    enter(ours("mgu", "reference")).train()


class _Elsewhere:
    """An engine that this machine lacks something for, or that cannot run a layer."""

    name = "elsewhere"

    def __init__(self, lacks: str | None) -> None:
        self.lacks = lacks

    def missing(self) -> str | None:
        return self.lacks

    def problem(self, *_: object) -> str | None:
        return None if self.lacks else "it runs nothing"

    def run(self, *_: object) -> Any:
        raise AssertionError("it must not be asked to run")


@pytest.mark.parametrize("lacks", ["no such processor", None])
def test_an_engine_of_others_is_a_contestant_that_says_why_not(
    lacks: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "ENGINES", list(engines.ENGINES))
    engines.register(_Elsewhere(lacks))
    with pytest.raises(Unavailable, match=lacks or "it runs nothing"):
        enter(ours("mgu", "elsewhere"))
    enter(ours("mgu", contestants.REFERENCE)).infer()
