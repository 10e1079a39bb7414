"""Torch's layers on our engine against torch's kernel: the times behind `nn/drop_in_rule.json`."""

from __future__ import annotations

import copy
import itertools
import json
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final, TypeAlias
from unittest import mock

import torch
from torch import Tensor, nn

from onegate import files
from onegate.lab.bench.measure import ratios
from onegate.nn import drop_in
from onegate.nn.drop_in_rule import (
    ALWAYS,
    ANY,
    MAKER,
    NEVER,
    OTHERS,
    PRECISIONS,
    RULES,
    Rule,
    Rules,
    read,
)

# T, B, and both sizes: the shapes of the figures, and further ones for the rule.
SHAPES: Final = (
    (1, 1, 64), (1, 1, 512), (1, 64, 256), (10, 1, 64), (10, 32, 64), (20, 8, 128), (28, 100, 100),
    (35, 20, 500), (50, 16, 256), (100, 64, 128), (200, 1, 256), (100, 512, 512),
)  # fmt: skip
FURTHER: Final = ((2, 4, 256), (4, 64, 128), (20, 1, 1024))
OF_CELLS: Final = (
    (1, 1, 64), (1, 1, 512), (1, 8, 128), (1, 32, 1024), (1, 64, 256), (1, 512, 512),
)  # fmt: skip
Key: TypeAlias = tuple[str, bool, str]  # class, whether gradients are on, precision
LAYERS: Final = ("GRU", "LSTM", "RNN")
CELLS: Final = ("GRUCell", "LSTMCell", "RNNCell")
NEVER_ABOVE, GRU_MEDIAN = 1.05, 0.4  # of torch's time; the median in training
SECONDS: Final = 0.2  # for each contestant and shape
# torch's kernel against itself is a control: where it is further than this from 1, something else
# ran, and the row is measured again for so many times as long.
OFF: Final = 0.04
LONGER: Final = (1, 3, 9)
SURE: Final = 0.97  # a ratio from which torch's kernel is taken: never slower than before
_LEFT: Final = "left to torch"
_HALVES: Final = {"bfloat16": torch.bfloat16, "float16": torch.float16}
_FORCED: Final = {_LEFT: Rules.of({}), "fused": ALWAYS}


def accelerate(
    seconds: float = SECONDS, kept: Path | None = None, rule: Path | None = None
) -> dict[str, Any]:
    """Time of accelerated layers over torch's, with either kernel, and the rule between the two.

    kept: a file that is written after every row; a run that was broken off goes on from it.
    rule: a file for the rule that all such files ask for, those beside `kept` included.
    """
    rows = json.loads(kept.read_text())["rows"] if kept is not None and kept.is_file() else []
    known = {(r["kind"], r["learns"], r["precision"], *r["shape"]) for r in rows}
    for kind, learns, precision, shape in sorted(_cases(), key=lambda case: math.prod(case[3])):
        if (kind, learns, precision, *shape) not in known:
            rows.append(_row(kind, learns, precision, shape, seconds))
            if kept is not None:
                files.write_json(kept, {"maker": MAKER, "rows": rows})
    runs = [(MAKER, rows), *_beside(kept)]
    all_rows = [row for _, own in runs for row in own]
    others = rules(all_rows)  # of processors of which none was measured, or not in all precisions
    written = {
        maker: [_written(k, r) for k, r in {**others, **rules(own)}.items() if r != NEVER]
        for maker, own in [*_by_maker(runs), (OTHERS, all_rows)]
    }
    if rule is not None:
        files.write_json(rule, written)
    for line in verdicts(rows, read(written, MAKER)):
        print(line)
    for key, quotients in _low_over_full(rows).items():
        print(
            f"{_named(key)}, fused, over our own float32: median "
            f"{statistics.median(quotients):.2f}, largest {max(quotients):.2f}"
        )
    return {"maker": MAKER, "rows": rows}


def verdicts(rows: list[dict[str, Any]], rule: dict[str, Rules]) -> Iterator[str]:
    """What is asked of accelerated layers, with the kernel that the rule takes."""
    for key, own in _by_kind(rows):
        found = [(row, *taken(row, rule)) for row in own]
        known = [(row, ratio) for row, ratio, _ in found if ratio is not None]
        figures = [ratio for row, ratio in known if _is_figure(row)]
        middle, largest = statistics.median(figures), max(ratio for _, ratio in known)
        missed = [f"above {NEVER_ABOVE}"] if largest > NEVER_ABOVE else []
        if key[:2] == ("GRU", True) and middle > GRU_MEDIAN:
            missed.append(f"median above {GRU_MEDIAN}")
        yield (
            f"{_named(key)}: median {middle:.2f} of {len(figures)} shapes, largest {largest:.2f}, "
            f"{sum(fused for *_, fused in found)} of {len(own)} fused: {', '.join(missed) or 'met'}"
        )


def taken(row: Mapping[str, Any], rule: Mapping[str, Rules]) -> tuple[float | None, bool]:
    """The time of the accelerated layer over torch's, and whether the fused engine is taken.

    None if it was not measured: older files have not both kernels.
    """
    own = rule[row["kind"]].rules[row["learns"]][PRECISIONS.index(row["precision"])]
    left = own.leaves(row["shape"][0], _row_steps(row), row["shape"][2])
    return (row.get("left"), False) if left else (row["fused"], True)


def _is_figure(row: dict[str, Any]) -> bool:
    return tuple(row["shape"]) not in FURTHER


def _beside(kept: Path | None) -> list[tuple[str, list[dict[str, Any]]]]:
    """The runs of other machines, whose files have the same beginning of their names."""
    if kept is None:
        return []
    others = [p for p in sorted(kept.parent.glob("accelerate*.json")) if p != kept]
    made = [json.loads(path.read_text()) for path in others]
    return [(each["maker"], each["rows"]) for each in made]


def _by_maker(
    runs: list[tuple[str, list[dict[str, Any]]]],
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The rows of each maker's machines."""
    for maker in sorted({maker for maker, _ in runs}):
        yield maker, [row for made_by, rows in runs if made_by == maker for row in rows]


def _written(key: Key, rule: Rule) -> dict[str, Any]:
    row = dict(zip(("kind", "learns", "precision"), key, strict=True))
    row |= {"row_steps": rule.row_steps, "steps": rule.steps}
    return row if rule.hidden == ANY else {**row, "hidden": rule.hidden}


def _low_over_full(rows: list[dict[str, Any]]) -> dict[Key, list[float]]:
    """On the fused engine: the time in half precision over the time in float32, by kind."""

    def seconds(row: dict[str, Any]) -> float:
        return float(row["fused"] * row["seconds"])

    full = {
        (r["kind"], r["learns"], *r["shape"]): seconds(r)
        for r in rows
        if r["precision"] == "float32"
    }
    found: dict[Key, list[float]] = {}
    for row in rows:
        own = full.get((row["kind"], row["learns"], *row["shape"]))
        if row["precision"] != "float32" and own:
            key = row["kind"], row["learns"], row["precision"]
            found.setdefault(key, []).append(seconds(row) / own)
    return found


def _cases() -> Iterator[tuple[str, bool, str, tuple[int, int, int]]]:
    for learns, precision in itertools.product((True, False), PRECISIONS):
        # The largest would take torch minutes in half precision.
        shapes = (SHAPES[:-1] if precision in _HALVES else SHAPES) + FURTHER
        yield from itertools.product(LAYERS, (learns,), (precision,), shapes)
        yield from itertools.product(CELLS, (learns,), (precision,), OF_CELLS)


def _row(
    kind: str, learns: bool, precision: str, shape: tuple[int, int, int], seconds: float
) -> dict[str, Any]:
    steps, batch, size = shape
    dtype, low = _HALVES.get(precision, torch.float32), precision == "autocast"
    layer = getattr(nn, kind)(size, size, dtype=dtype)
    x = torch.randn(steps, batch, size) if kind in LAYERS else torch.randn(batch, size)
    x = x.to(dtype)
    calls = {"torch": _step(layer, x, learns, low)}
    with mock.patch.dict(RULES, _FORCED):
        for name in _FORCED:
            ours = drop_in.accelerate(copy.copy(layer))  # the same parameters
            ours._kind = name
            calls[name] = _step(ours, x, learns, low)
        for longer in LONGER:
            quotients, median = ratios(calls, "torch", longer * seconds, minimum=5)
            if abs(quotients[_LEFT] - 1) <= OFF:
                break
    left, fused = quotients[_LEFT], quotients["fused"]
    print(
        f"{_named((kind, learns, precision)):32} T {steps:3} B {batch:3} n {size:4}: torch "
        f"{median * 1e3:.3f} ms; over it: left to torch {left:.2f}, fused {fused:.2f}",
        flush=True,
    )
    return {
        "kind": kind,
        "learns": learns,
        "precision": precision,
        "shape": list(shape),
        "seconds": median,
        "left": left,
        "fused": fused,
    }


def rules(rows: Iterable[dict[str, Any]]) -> dict[Key, Rule]:
    """By kind, the rule that takes the fused engine most often and is never the slower one.

    Its bounds are at shapes where the fused engine was measured faster, not beyond those where it
    was not. rows: of several machines, too; the fused engine is then faster on each.
    """
    found = {}
    for key, own in _by_kind(rows):
        counts, steps = {_row_steps(row) for row in own}, {row["shape"][0] for row in own}
        sizes = {ANY, *(row["shape"][2] for row in own)}
        candidates = itertools.starmap(Rule, itertools.product(counts, sizes, steps))
        safe = [r for r in candidates if all(row["fused"] < SURE for row in _fused(r, own))]
        known = [r for r in safe if _fused(r, own)]
        best = max(
            known,
            key=lambda r: (len(_fused(r, own)), r.hidden, -r.steps, r.row_steps),
            default=NEVER,
        )
        found[key] = best
    return found


def _fused(rule: Rule, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [r for r in rows if not rule.leaves(r["shape"][0], _row_steps(r), r["shape"][2])]


def _row_steps(row: Mapping[str, Any]) -> int:
    steps, batch, _ = row["shape"]
    return int(steps * batch)


def _by_kind(
    rows: Iterable[dict[str, Any]],
) -> list[tuple[Key, list[dict[str, Any]]]]:
    groups: dict[Key, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["kind"], row["learns"], row["precision"]), []).append(row)
    return list(groups.items())


def _named(key: Key) -> str:
    kind, learns, precision = key
    return f"{kind}, {'training' if learns else 'inference'}, {precision}"


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
