"""Torch's layers on our engine against torch's kernel: the times behind `nn/drop_in_rule.py`."""

from __future__ import annotations

import copy
import itertools
import json
import math
import statistics
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final
from unittest import mock

import torch
from torch import Tensor, nn

from onegate import files
from onegate.lab.bench.measure import race
from onegate.nn import drop_in
from onegate.nn.drop_in_rule import ANY, DEFAULT, Rule

# T, B, and both sizes.
SHAPES: Final = (
    (1, 1, 64), (1, 1, 512), (1, 64, 256), (10, 1, 64), (10, 32, 64), (20, 8, 128), (28, 100, 100),
    (35, 20, 500), (50, 16, 256), (100, 64, 128), (200, 1, 256), (100, 512, 512),
)  # fmt: skip
OF_CELLS: Final = ((1, 1, 64), (1, 1, 512), (1, 8, 128), (1, 64, 256), (1, 512, 512))
LAYERS: Final = ("GRU", "LSTM", "RNN")
CELLS: Final = ("GRUCell", "LSTMCell", "RNNCell")
NEVER_ABOVE, GRU_MEDIAN = 1.05, 0.4  # of torch's time; the median in training
SECONDS: Final = 0.2  # for each contestant and shape
SURE: Final = 0.97  # a ratio from which torch's kernel is taken: never slower than before


def accelerate(seconds: float = SECONDS, kept: Path | None = None) -> dict[str, Any]:
    """Time of accelerated layers over torch's, by the rule and always on the fused engine.

    kept: a file that is written after every row; a run that was broken off goes on from it.
    """
    rows = json.loads(kept.read_text())["rows"] if kept is not None and kept.is_file() else []
    known = {(r["kind"], r["learns"], r["autocast"], *r["shape"]) for r in rows}
    for kind, learns, low, shape in sorted(_cases(), key=lambda case: math.prod(case[3])):
        if (kind, learns, low, *shape) not in known:
            rows.append(_row(kind, learns, low, shape, seconds))
            if kept is not None:
                files.write_json(kept, {"rows": rows})
    for key, own in _by_kind(rows):
        ratios = [row["rule"] for row in own]
        middle, largest = statistics.median(ratios), max(ratios)
        missed = [f"above {NEVER_ABOVE}"] if largest > NEVER_ABOVE else []
        if key[:2] == ("GRU", True) and middle > GRU_MEDIAN:
            missed.append(f"median above {GRU_MEDIAN}")
        print(
            f"{_named(key)}: median {middle:.2f}, largest {largest:.2f}, of {len(own)} shapes: "
            + (", ".join(missed) or "met")
        )
    for key, ratios in _low_over_full(rows).items():
        print(
            f"{_named(key)}, over our own float32: median {statistics.median(ratios):.2f}, "
            f"largest {max(ratios):.2f}"
        )
    print("The rule that these times ask for (RULES of onegate/nn/drop_in_rule.py):")
    for key, rule in rules(rows).items():
        least, below = ("ANY" if n == ANY else n for n in rule[:2])
        print(f"    {key}: Rule({least}, {below}, {rule.steps}),")
    return {"rows": rows}


def _low_over_full(rows: list[dict[str, Any]]) -> dict[tuple[str, bool, bool], list[float]]:
    """Of accelerated layers: the time under autocast over the time in float32, by kind."""
    full = {(r["kind"], r["learns"], *r["shape"]): r["seconds"] for r in rows if not r["autocast"]}
    found: dict[tuple[str, bool, bool], list[float]] = {}
    for row in rows:
        own = full.get((row["kind"], row["learns"], *row["shape"]))
        if row["autocast"] and own and row["taken"] == "fused":
            key = row["kind"], row["learns"], True
            found.setdefault(key, []).append(row["seconds"] / own)
    return found


def _cases() -> Iterator[tuple[str, bool, bool, tuple[int, int, int]]]:
    for learns, low in itertools.product((True, False), (False, True)):
        yield from itertools.product(LAYERS, (learns,), (low,), SHAPES)
        yield from itertools.product(CELLS, (learns,), (low,), OF_CELLS)


def _row(
    kind: str, learns: bool, low: bool, shape: tuple[int, int, int], seconds: float
) -> dict[str, Any]:
    steps, batch, size = shape
    theirs = getattr(nn, kind)(size, size)
    x = torch.randn(steps, batch, size) if kind in LAYERS else torch.randn(batch, size)
    ours, always = (drop_in.accelerate(copy.deepcopy(theirs)) for _ in range(2))
    calls = {"torch": _step(theirs, x, learns, low), "rule": _step(ours, x, learns, low)}
    calls["rule"]()
    taken = drop_in.engine_report(ours)[0].engine
    if taken == "torch":
        calls["fused"] = _always(_step(always, x, learns, low))
    times = race(calls, seconds, minimum=3)
    times.setdefault("fused", times["rule"])
    ratios = {name: times[name].median / times["torch"].median for name in ("rule", "fused")}
    print(
        f"{_named((kind, learns, low)):32} T {steps:3} B {batch:3} n {size:3}: accelerated / torch "
        f"{ratios['rule']:.2f} ({taken}), fused / torch {ratios['fused']:.2f}",
        flush=True,
    )
    return {
        "kind": kind,
        "learns": learns,
        "autocast": low,
        "shape": list(shape),
        "taken": taken,
        "seconds": times["rule"].median,
        **ratios,
    }


def rules(rows: Iterable[dict[str, Any]]) -> dict[tuple[str, bool, bool], Rule]:
    """By kind, the rule that takes the fused engine most often and is never the slower one."""
    found = {}
    for key, own in _by_kind(rows):
        known = sorted(map(_row_steps, own))
        counts = sorted({1, DEFAULT.row_steps, *(n + 1 for n in known if n < known[-1]), ANY})
        sizes = sorted({ANY, *(row["shape"][2] for row in own)})
        steps = sorted({1, *(row["shape"][0] for row in own)})
        candidates = list(itertools.starmap(Rule, itertools.product(counts, sizes, steps)))
        safe = [rule for rule in candidates if all(r["fused"] < SURE for r in _taken(rule, own))]
        # Few row-steps tell nothing of sizes between those measured: the default is the least.
        safe = [rule for rule in safe if rule.row_steps >= DEFAULT.row_steps]
        best = max(
            safe, key=lambda r: (len(_taken(r, own)), r.hidden, -r.steps, -r.row_steps)
        )  # fmt: skip
        if best != DEFAULT:
            found[key] = best
    return found


def _taken(rule: Rule, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [r for r in rows if not rule.leaves(r["shape"][0], _row_steps(r), r["shape"][2])]


def _row_steps(row: dict[str, Any]) -> int:
    steps, batch, _ = row["shape"]
    return int(steps * batch)


def _by_kind(
    rows: Iterable[dict[str, Any]],
) -> list[tuple[tuple[str, bool, bool], list[dict[str, Any]]]]:
    groups: dict[tuple[str, bool, bool], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["kind"], row["learns"], row["autocast"]), []).append(row)
    return list(groups.items())


def _named(key: tuple[str, bool, bool]) -> str:
    kind, learns, low = key
    return f"{kind}, {'training' if learns else 'inference'}{', autocast' if low else ''}"


def _step(layer: nn.Module, x: Tensor, learns: bool, low: bool) -> Callable[[], object]:
    parameters = list(layer.parameters())

    def forward() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16) if low else nullcontext():
            out = layer(x)
        while isinstance(out, tuple):
            out = out[0]
        first: Tensor = out
        return first

    def train() -> None:
        for parameter in parameters:
            parameter.grad = None
        out = forward()
        out.backward(torch.ones_like(out))

    def infer() -> None:
        with torch.no_grad():
            forward()

    return train if learns else infer


def _always(call: Callable[[], object]) -> Callable[[], object]:
    """The call without the rule. Entering the patch takes some microseconds, too."""

    def run() -> object:
        with mock.patch.object(drop_in, "torch_is_faster", return_value=None):
            return call()

    return run
