"""What of a model runs one step at a time: embedding, recurrent layers, dense head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from onegate.language import Graph, Value
from onegate.lowering.masks import evaluated
from onegate.nn.cells import Cell, Weights
from onegate.nn.layers import Recurrent
from onegate.ops import OPERATIONS, is_norm

# Parts that do nothing when a model is used, and so may stand anywhere in it.
_IDLE = (nn.Dropout, nn.Identity)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class ExportError(ValueError):
    """A model, or a part of it, cannot be exported; the message names it."""


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer: its step, its parameters by key, the states before the first step (size,)."""

    graph: Graph
    parameters: Mapping[str, Tensor]
    start: tuple[Tensor, ...]

    @property
    def output_size(self) -> int:
        """Width of what the next layer reads."""
        return self.graph.states[0].size or 0


@dataclass(frozen=True, eq=False)
class Dense:
    """`weight` (outputs, inputs) times the last layer's output, plus `bias` if there is one."""

    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True, eq=False)
class Deployable:
    """A model that reads numbers (inputs,), or one word where there is an embedding (words, d).

    Where its unit reads more than x, that follows x: a step of GRU-D is given x, mask and gap, one
    after another. Layers above the first are given it, too.
    """

    embedding: Tensor | None
    layers: tuple[Layer, ...]
    dense: tuple[Dense, ...]

    @property
    def widths(self) -> dict[str, int]:
        """Of what the first layer reads, by name, x first."""
        return {value.name: value.size or 0 for value in self.layers[0].graph.inputs}

    @property
    def inputs(self) -> int:
        """How many numbers a step reads."""
        return sum(self.widths.values())

    @property
    def outputs(self) -> int:
        """Width of what is read out."""
        return len(self.dense[-1].weight) if self.dense else self.layers[-1].output_size

    def parameter_count(self) -> int:
        """How many learned numbers the exported model holds."""
        return sum(tensor.numel() for tensor in self.tensors())

    def tensors(self) -> Iterator[Tensor]:
        """Every learned tensor."""
        if self.embedding is not None:
            yield self.embedding
        for layer in self.layers:
            yield from layer.parameters.values()
        for dense in self.dense:
            yield dense.weight
            if dense.bias is not None:
                yield dense.bias

    @torch.no_grad()
    def run(self, x: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
        """The reference: (T, B, inputs), or (T, B) words -> (T, B, outputs) at every step."""
        states = [[s.to(dtype) for s in layer.start] for layer in self.layers]
        return torch.stack([self._step(each, states, dtype) for each in x])

    def told_apart(self, x: Tensor) -> tuple[Tensor, ...]:
        """(..., inputs), or (...) words -> what the first layer reads: x, and what is beside it."""
        if self.embedding is not None:
            return (self.embedding[x],)
        return tuple(torch.split(x, list(self.widths.values()), -1))

    def _step(self, x: Tensor, states: list[list[Tensor]], dtype: torch.dtype) -> Tensor:
        v, *further = (part.to(dtype) for part in self.told_apart(x))
        for layer, before in zip(self.layers, states, strict=True):
            values = evaluate(layer, (v, *further), before, dtype)
            before[:] = [_wide(values[r], len(v), r) for r in layer.graph.results]
            v = before[0]
        for dense in self.dense:
            v = v @ dense.weight.to(dtype).mT
            v = v if dense.bias is None else v + dense.bias.to(dtype)
        return v


def evaluate(
    layer: Layer, inputs: Sequence[Tensor], states: list[Tensor], dtype: torch.dtype
) -> dict[Value, Tensor]:
    """Every value of one step; inputs: each (B, its size)."""
    graph = layer.graph
    values: dict[Value, Tensor] = {
        **dict(zip(graph.inputs, inputs, strict=True)),
        **dict(zip(graph.states, states, strict=True)),
    }
    for node in graph.nodes:
        if node.op == "constant":
            values[node] = torch.tensor(node.number, dtype=dtype)
        elif node.op == "vector":
            values[node] = layer.parameters[node.name].to(dtype)
        elif node.op == "affine":
            values[node] = _affine(layer, node, values, dtype)
        elif is_norm(node.op):
            a, eps, *others = node.args
            given = (values[a], eps.number, *(values[v] for v in others))
            values[node] = OPERATIONS[node.op].compute(*given)
        elif node not in values:
            values[node] = OPERATIONS[node.op].compute(*[values[a] for a in node.args])
    return values


def _affine(layer: Layer, node: Value, values: dict[Value, Tensor], dtype: torch.dtype) -> Tensor:
    used = layer.graph.maps[node]
    total = torch.zeros(node.size or 0, dtype=dtype)
    if used.bias is not None:
        total = layer.parameters[used.bias].to(dtype)
    for key, operand in zip(used.weights, used.operands, strict=True):
        total = total + values[operand] @ layer.parameters[key].to(dtype).mT
    return total


def _wide(value: Tensor, batch: int, node: Value) -> Tensor:
    return value.expand(batch, node.size or value.shape[-1])


@torch.no_grad()
def deployable(model: nn.Module) -> Deployable:
    """The parts of a model, which is a `Recurrent`, a `Cell`, or has them under these names.

    recurrent: the layers. embedding: an nn.Embedding before them, or None. head: an nn.Linear that
    reads the last layer's output, and between, another one before it. readout: "last". So are the
    models of `onegate.lab`.
    """
    refuse_modules(model)
    if isinstance(model, Cell):
        found = Deployable(None, (_layer(model),), ())
    elif isinstance(model, Recurrent):
        found = Deployable(None, _layers(model), ())
    else:
        found = _of_parts(model)
    for tensor in found.tensors():
        if not torch.isfinite(tensor).all():
            raise ExportError(f"{type(model).__name__} has weights that are infinite or NaN")
    return found


def _of_parts(model: nn.Module) -> Deployable:
    name = type(model).__name__
    recurrent = getattr(model, "recurrent", None)
    if not isinstance(recurrent, Recurrent):
        of_torch = any(isinstance(m, (nn.RNNBase, nn.RNNCellBase)) for m in model.modules())
        raise ExportError(
            f"{name} has no layer `recurrent` of onegate.Recurrent: give a Recurrent, a Cell, or a "
            "module with parts called recurrent, and if need be embedding, between and head"
            + ("; onegate.from_torch(model) makes them of torch's layers" if of_torch else "")
        )
    known = {"recurrent", "embedding", "between", "head"}
    for part, module in model.named_children():
        if part not in known and not isinstance(module, _IDLE):
            raise ExportError(f"{name}.{part} ({type(module).__name__}) cannot be exported")
    if loose := [key for key, _ in model.named_parameters(recurse=False)]:
        raise ExportError(f"{name} has parameters of its own, {loose}: what they do is not known")
    readout = getattr(model, "readout", "last")
    if readout != "last":
        raise ExportError(
            f"readout {readout!r} sees the whole sequence, which a step by step model does not "
            "have: train with readout 'last'"
        )
    gain = float(getattr(model, "gain", 1.0))  # of tied words: see onegate.lab.train.models
    embedding = _kind(model, "embedding", nn.Embedding)
    dense = [_kind(model, "between", nn.Linear), _kind(model, "head", nn.Linear)]
    found = [Dense(_float(d.weight), _bias(d)) for d in dense if d is not None]
    if found:
        found[0] = Dense(found[0].weight / gain, found[0].bias)
    table = None if embedding is None else _float(embedding.weight) * gain
    layers = _layers(recurrent)
    if table is not None and len(layers[0].graph.inputs) > 1:
        beside = ", ".join(value.name for value in layers[0].graph.inputs[1:])
        raise ExportError(
            f"{name} reads words, and its unit {beside} beside them: one or the other"
        )
    _refuse_widths(name, table, layers, found)
    return Deployable(table, layers, tuple(found))


def _refuse_widths(
    name: str, table: Tensor | None, layers: Sequence[Layer], dense: Sequence[Dense]
) -> None:
    """Parts that do not fit to one another."""
    width = layers[0].graph.input_size
    if table is not None and table.shape[1] != width:
        raise ExportError(
            f"{name}: the embedding gives {table.shape[1]} numbers, and the layer reads {width}"
        )
    gives = layers[-1].output_size
    for part in dense:
        rows, columns = part.weight.shape
        if columns != gives:
            raise ExportError(f"{name}: a dense part reads {columns} numbers, and is given {gives}")
        gives = rows


def _kind(model: nn.Module, part: str, kind: type[nn.Module]) -> nn.Module | None:
    module = getattr(model, part, None)
    if module is None or isinstance(module, _IDLE):
        return None
    if not isinstance(module, kind):
        name = type(module).__name__
        raise ExportError(f"{part} is a {name}, expected {kind.__name__} or None")
    return module


def _bias(linear: nn.Module) -> Tensor | None:
    bias = cast(nn.Linear, linear).bias
    return None if bias is None else _float(bias)


def _layers(recurrent: Recurrent) -> tuple[Layer, ...]:
    if recurrent.bidirectional:
        raise ExportError(
            "a bidirectional layer reads the sequence from its end, too, and has no single step: "
            "train with bidirectional=False"
        )
    zoneout = zoneout_of(recurrent)
    return tuple(_layer(weights, zoneout) for (weights,) in recurrent._weights())


def zoneout_of(layer: nn.Module) -> dict[str, float]:
    """The probabilities of a layer by state; nothing for a cell."""
    return dict(layer._inside.zoneout) if isinstance(layer, Recurrent) else {}


def _layer(weights: Weights, zoneout: Mapping[str, float] | None = None) -> Layer:
    graph, tensors = plain(weights, zoneout or {})
    parameters = {key: _float(tensor) for key, tensor in tensors.items()}
    zeros = tuple(torch.zeros(state.size or 0) for state in graph.states)
    learned = tuple(_float(state) for state in weights.initial_states())
    return Layer(graph, parameters, learned or zeros)


def plain(weights: Weights, zoneout: Mapping[str, float]) -> tuple[Graph, dict[str, Tensor]]:
    """A step as in evaluation, and its parameters: maps with heads are matrices with zeros."""
    graph, tensors = weights.graph, dict(weights.tensors())
    graph = evaluated(graph, zoneout) if zoneout else graph
    blocks = [key for key, shape in graph.parameters.items() if len(shape) > 2]
    for key in blocks:
        tensors[key] = torch.block_diag(*tensors[key])
    shapes = {key: tuple(tensors[key].shape) for key in graph.parameters}
    return (replace(graph, parameters=shapes) if blocks else graph), tensors


def _float(tensor: object) -> Tensor:
    if cast(Tensor, tensor).is_meta:
        raise ExportError("the model has no values: it is on the device 'meta'")
    return cast(Tensor, tensor).detach().to("cpu", torch.float32, copy=True)


def refuse_modules(model: nn.Module) -> None:
    """What a file cannot carry, by the name of the part that has it."""
    for name, module in model.named_modules():
        where = name or type(model).__name__
        if parametrize.is_parametrized(module):
            raise ExportError(
                f"{where} has parametrizations: make them plain weights first, with "
                "torch.nn.utils.parametrize.remove_parametrizations"
            )
        if any(getattr(module, hooks) for hooks in _HOOKS):
            raise ExportError(f"{where} has hooks, which no export can carry: remove them first")
