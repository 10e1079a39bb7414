"""What masks, resets, norms and recomputing cost a training step, and how new units do."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onegate.lab.bench.contestants import FUSED, REFERENCE, ours
from onegate.lab.bench.measure import Call, race
from onegate.lab.bench.shapes import PAPER, LayerShape
from onegate.nn.layers import Recurrent

# In one direction: where a sequence may be cut.
SHAPES: Final = tuple(replace(shape, bidirectional=False) for shape in PAPER.values())
SMALL: Final = tuple(shape for shape in PAPER.values() if shape.layers == 1)
UNITS: Final = ("mgu", "lstm")
NORMED: Final = {"lstm": "lstm_layer_norm", "gru_reset_after": "gru_layer_norm"}
NEW_UNITS: Final = (
    "slstm", "minlstm", "gru_block", "lem", "cornn", "fastgrnn", "indrnn", "ugrnn", "cfn", "gru_d",
    "lstm_layer_norm", "gru_layer_norm", "ligru",
)  # fmt: skip
# Shapes: to compile takes a minute for each, and many for the large one.
COMPILED: Final = frozenset(shape.name for shape in SMALL)
COMPILED_STEPS: Final = 16  # more are several calls: the time to compile explodes with the steps

RESET, NORM, OVER_COMPILED = "reset mask", "layer norm", "layer norm, over torch.compile"
MEMORY, FUSED_SHARE = "recompute, memory", "fused / reference"
# Largest time over the plain layer's, unless another one's is named; memory over the plain layer's.
LIMITS: Final = {
    RESET: 1.05, "zoneout": 1.10, "variational dropout": 1.10, "recompute, time": 1.40,
    MEMORY: 1 / 3, NORM: 1.25, OVER_COMPILED: 0.30, FUSED_SHARE: 0.40,
}  # fmt: skip


def inside(shapes: Sequence[LayerShape] = SHAPES, seconds: float = 0.4) -> dict[str, Any]:
    """Time of a training step with a reset mask, dropout inside and recomputing."""
    rows: list[dict[str, Any]] = []
    for shape in shapes:
        for unit in UNITS:
            times = _times(_with_masks(unit, shape), seconds)
            for what in [what for what in LIMITS if what in times]:
                rows.append(_row(unit, shape, what, times[what] / times["plain"]))
            rows.append(_row(unit, shape, MEMORY, _held(unit, shape)))
    return {"rows": rows}


def norms(
    shapes: Sequence[LayerShape] = SHAPES, seconds: float = 0.4, compiled: bool = True
) -> dict[str, Any]:
    """Time of a training step with layer norm, over the plain unit's and over torch.compile's."""
    rows = []
    for shape in shapes:
        for unit, normed in NORMED.items():
            calls = {"plain": _call(unit, shape), NORM: _call(normed, shape)}
            if compiled and unit == "lstm" and shape.name in COMPILED:
                calls["compiled"] = _compiled(shape)
            times = _times(calls, seconds)
            rows.append(_row(normed, shape, NORM, times[NORM] / times["plain"]))
            if "compiled" in times:
                rows.append(_row(normed, shape, OVER_COMPILED, times[NORM] / times["compiled"]))
    return {"rows": rows}


def new_units(shapes: Sequence[LayerShape] = SMALL, seconds: float = 0.2) -> dict[str, Any]:
    """Training step of the units with norms, heads and further inputs, fused and reference."""
    rows = []
    for shape in shapes:
        x = torch.randn(shape.steps, shape.batch, shape.inputs)
        grad = torch.randn(shape.steps, shape.batch, shape.outputs)
        for unit in NEW_UNITS:
            calls = {e: ours(unit, e).enter(shape, x, grad).train for e in (FUSED, REFERENCE)}
            times = _times(calls, seconds)
            row = _row(unit, shape, FUSED_SHARE, times[FUSED] / times[REFERENCE])
            rows.append({**row, "seconds": times[FUSED]})
    return {"rows": rows}


def _times(calls: Mapping[str, Call], seconds: float) -> dict[str, float]:
    """Medians; on one thread of the processor's time, which other programs disturb least."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    return {name: taken.median for name, taken in race(calls, seconds, clock).items()}


def _row(unit: str, shape: LayerShape, what: str, ratio: float) -> dict[str, Any]:
    verdict = "met" if ratio <= LIMITS[what] else "not met"
    print(
        f"{unit:15} {shape.name:13} {what}: {ratio:.3f} (at most {LIMITS[what]:.2f}: {verdict})",
        flush=True,
    )
    return {
        "unit": unit, "shape": shape.name, "what": what, "ratio": ratio, "limit": LIMITS[what],
    }  # fmt: skip


def _with_masks(unit: str, shape: LayerShape) -> dict[str, Call]:
    reset = torch.rand(shape.steps, shape.batch) < 0.02
    return {
        "plain": _call(unit, shape),
        RESET: _call(unit, shape, {"reset": reset}),
        "zoneout": _call(unit, shape, zoneout=0.1),
        "variational dropout": _call(unit, shape, recurrent_dropout=0.2, input_dropout=0.2),
        "recompute, time": _call(unit, shape, recompute=True),
    }


def _call(
    unit: str, shape: LayerShape, given: dict[str, Any] | None = None, **options: Any
) -> Call:
    return _step(_layer(unit, shape, **options), shape, given or {})


def _layer(unit: str, shape: LayerShape, **options: Any) -> Recurrent:
    return Recurrent(unit, shape.inputs, shape.hidden, shape.layers, engine=FUSED, **options)


def _step(module: nn.Module, shape: LayerShape, given: dict[str, Any]) -> Callable[[], None]:
    x = torch.randn(shape.steps, shape.batch, shape.inputs, requires_grad=shape.input_gradient)
    grad = torch.randn(shape.steps, shape.batch, shape.hidden)
    leaves = [x, *module.parameters()]

    def train() -> None:
        for leaf in leaves:
            leaf.grad = None
        module(x, **given)[0].backward(grad)

    return train


def _held(unit: str, shape: LayerShape) -> float:
    """What autograd keeps when the rest is computed anew, over what it keeps else."""
    x = torch.randn(shape.steps, shape.batch, shape.inputs)
    kept, less = (_kept_bytes(_layer(unit, shape, recompute=r), x) for r in (False, True))
    return less / kept


def _kept_bytes(layer: Recurrent, x: Tensor) -> int:
    """Bytes that the graph of `layer(x)` keeps beside the input and the parameters.

    Read from the graph: hooks for saved tensors (`held_bytes`) would have outputs copied, and the
    input of a second layer, which is the first one's output, counted twice.
    """
    out, _ = layer(x)
    others = {t.untyped_storage().data_ptr() for t in (x, *layer.parameters())}
    storages: dict[int, int] = {}
    nodes = [out.grad_fn]
    while nodes:
        node: Any = nodes.pop()
        # Outputs that the backward pass compares with what the caller made of them are attributes.
        for tensor in (
            *getattr(node, "saved_tensors", ()),
            *getattr(node, "__dict__", {}).values(),
        ):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                storages[storage.data_ptr()] = storage.nbytes()
        nodes += [each for each, _ in node.next_functions if each is not None]
    return sum(size for place, size in storages.items() if place not in others)


class _PlainLSTM(nn.Module):
    """`lstm_layer_norm` in torch's own operations, as one would write it for torch.compile."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.W = nn.Linear(inputs, 4 * hidden, bias=False)
        self.U = nn.Linear(hidden, 4 * hidden, bias=False)
        self.gain = nn.Parameter(torch.ones(4, hidden))
        self.shift = nn.Parameter(torch.zeros(4, hidden))
        self.norm = nn.LayerNorm(hidden)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """All outputs of some steps, and the last states."""
        outputs = []
        for each in self.W(x).unbind(0):
            gates = (each + self.U(h)).unflatten(-1, (4, -1))
            gates = F.layer_norm(gates, gates.shape[-1:]) * self.gain + self.shift
            i, f, o, g = gates.unbind(-2)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * self.norm(c).tanh()
            outputs.append(h)
        return torch.stack(outputs), h, c


class _InPieces(nn.Module):
    """Its steps in calls of at most COMPILED_STEPS, all of one length."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.plain = _PlainLSTM(shape.inputs, shape.hidden)
        self.compiled: Any = torch.compile(self.plain, dynamic=False)
        self.hidden = shape.hidden
        self.steps = max(n for n in range(1, COMPILED_STEPS + 1) if shape.steps % n == 0)

    def forward(self, x: Tensor) -> tuple[Tensor]:
        h = c = x.new_zeros(x.shape[1], self.hidden)
        found = []
        for piece in x.split(self.steps):
            out, h, c = self.compiled(piece, h, c)
            found.append(out)
        return (torch.cat(found),)


def _compiled(shape: LayerShape) -> Call:
    return _step(_InPieces(shape), shape, {})
