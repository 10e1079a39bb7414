"""What a run of the benchmark leaves: tables for people, JSON for programs."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import torch
from rich import box
from rich.table import Table

from onegate.engines.cpu.native import library
from onegate.lab.bench.contestants import TORCH_GRU
from onegate.lab.bench.outcomes import KINDS, FittedLine, Kind, Sweep, Timings
from onegate.lab.bench.verdicts import Verdict
from onegate.lab.train import machine

FORMAT: Final = 1  # of the JSON
_QUIET: Final = 0.2  # load for each core, above which times are not to be trusted


@dataclass(frozen=True)
class Record:
    """Everything that was measured in one run."""

    seconds: float
    outcomes: Sequence[Timings]
    sweeps: Sequence[Sweep]
    verdicts: Sequence[Verdict]
    busy: float  # processes that wanted a core when the run began, beside it

    def to_json(self) -> dict[str, Any]:
        """Times in seconds, memory in bytes, peaks in operations per second."""
        native = library()
        engine = native.problem or f"fused, {native.instruction_set}"
        return {
            "format": FORMAT,
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "machine": {**machine.describe(engine), "load": self.busy},
            "dtype": "float32",
            "seconds": self.seconds,
            "shapes": [_outcome(outcome) for outcome in self.outcomes],
            "sweeps": [_sweep(sweep) for sweep in self.sweeps],
            "figures": [{**asdict(verdict), "state": verdict.state} for verdict in self.verdicts],
        }

    def tables(self) -> Iterable[Table]:
        """A table for every shape and sweep, and that of the figures."""
        for outcome in self.outcomes:
            title = f"{outcome.shape.name}: {outcome.shape.describe()}"
            yield _table(title, [outcome], caption=_caption(outcome))
        for sweep in self.sweeps:
            first = sweep.outcomes[0].shape.describe()
            title = f"sweep over {sweep.field}: {first}, up to {sweep.sizes()[-1]}"
            yield _table(title, sweep.outcomes, named=True)
            yield _sweep_table(sweep)
        if self.verdicts:
            yield _verdict_table(self.verdicts)

    def notes(self) -> list[str]:
        """What a reader of the tables has to know."""
        outcomes = [*self.outcomes, *(o for sweep in self.sweeps for o in sweep.outcomes)]
        places: dict[str, list[str]] = {}
        for outcome in outcomes:
            for name, reason in outcome.skipped.items():
                places.setdefault(f"{name}: skipped, {reason}", []).append(outcome.shape.name)
        found = [f"{text} ({', '.join(names)})" for text, names in places.items()]
        found += dict.fromkeys(note for outcome in outcomes for note in outcome.notes)
        if self.busy > _QUIET * (os.cpu_count() or 1):
            found.append(
                f"{self.busy:.1f} processes wanted a core when this began: medians of a busy "
                "machine say little; run again when it is quiet"
            )
        return found


def load() -> float:
    """The mean number of processes that wanted a core in the last minute; 0 where unknown."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def _outcome(outcome: Timings) -> dict[str, Any]:
    return {
        "shape": asdict(outcome.shape),
        "peaks": dict(outcome.peaks),
        "results": [
            {
                "kind": kind,
                "contestant": name,
                **asdict(result.timing),
                "operations": result.operations,
                "share_of_peak": result.share,
                "ratio_to_torch_gru": outcome.ratio(kind, name, TORCH_GRU),
            }
            for kind in KINDS
            for name, result in outcome.results[kind].items()
        ],
        "held_bytes": dict(outcome.held),
        "skipped": dict(outcome.skipped),
        "notes": list(outcome.notes),
    }


def _sweep(sweep: Sweep) -> dict[str, Any]:
    names = sweep.outcomes[0].results["train"]
    return {
        "field": sweep.field,
        "shapes": [_outcome(outcome) for outcome in sweep.outcomes],
        "lines": [
            {"kind": kind, "contestant": name, **asdict(line)}
            for kind, lines in sweep.lines().items()
            for name, line in lines.items()
        ],
        "worst": [
            {"contestant": name, **asdict(worst)}
            for name in names
            if name != TORCH_GRU and (worst := sweep.worst(name)) is not None
        ],
    }


def _table(
    title: str, outcomes: Sequence[Timings], *, named: bool = False, caption: str = ""
) -> Table:
    """Rows of contestants; `named` puts the shape's name first."""
    memory = any(outcome.held for outcome in outcomes)
    table = Table(title=title, caption=caption or None, box=box.SIMPLE, title_justify="left")
    if named:
        table.add_column("shape", no_wrap=True)
    table.add_column("contestant", no_wrap=True)
    for kind in KINDS:
        for heading in (f"{kind} ms", "quartiles", "/ GRU", "peak"):
            table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("held MB", "/ GRU") if memory else ():
        table.add_column(heading, justify="right", no_wrap=True)
    for outcome in outcomes:
        for name in outcome.results["train"]:
            cells = [cell for kind in KINDS for cell in _time_cells(outcome, kind, name)]
            cells += _memory_cells(outcome, name) if memory else []
            table.add_row(*([outcome.shape.name] if named else []), name, *cells)
    return table


def _time_cells(outcome: Timings, kind: Kind, name: str) -> list[str]:
    result = outcome.results[kind][name]
    timing = result.timing
    return [
        _milliseconds(timing.median),
        f"{_milliseconds(timing.lower)} .. {_milliseconds(timing.upper)}",
        _number(outcome.ratio(kind, name, TORCH_GRU)),
        f"{100 * result.share:.0f} %",
    ]


def _memory_cells(outcome: Timings, name: str) -> list[str]:
    return [f"{outcome.held[name] / 1e6:.3g}", _number(outcome.held_ratio(name, TORCH_GRU))]


def _caption(outcome: Timings) -> str:
    rounds = [
        f"{KINDS[kind]} {max(r.timing.rounds for r in results.values())} rounds, "
        f"sgemm peak {outcome.peaks[kind] / 1e9:.0f} GFLOPS"
        for kind, results in outcome.results.items()
        if results
    ]
    return "; ".join([*rounds, f"{torch.get_num_threads()} threads"])


def _sweep_table(sweep: Sweep) -> Table:
    """What the sweep shows of each contestant: its worst point, and whether time is linear."""
    table = Table(box=box.SIMPLE)
    table.add_column("contestant", no_wrap=True)
    table.add_column(f"largest ratio to {TORCH_GRU}")
    lines = sweep.lines()
    for kind in lines:
        table.add_column(f"{kind}: straight line, r2")
    for name in sweep.outcomes[0].results["train"]:
        worst = None if name == TORCH_GRU else sweep.worst(name)
        place = f"{worst.ratio:.3f} at {worst.shape}, {KINDS[worst.kind]}" if worst else ""
        table.add_row(name, place, *(_line_text(each[name]) for each in lines.values()))
    return table


def _line_text(line: FittedLine) -> str:
    return f"{1e3 * line.fixed:.3g} ms + {1e6 * line.each:.3g} µs each, {line.r2:.4f}"


def _verdict_table(verdicts: Sequence[Verdict]) -> Table:
    table = Table(title="figures", box=box.SIMPLE, title_justify="left")
    table.add_column("figure")
    for heading in ("to reach", "measured"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    styles = {True: "green", False: "red", None: "dim"}
    for verdict in verdicts:
        table.add_row(
            verdict.figure,
            f"{'>=' if verdict.at_least else '<='} {verdict.limit:g}",
            _number(verdict.value),
            verdict.state + (f" ({verdict.reason})" if verdict.reason else ""),
            style=styles[verdict.met],
        )
    return table


def _milliseconds(seconds: float) -> str:
    """Three or four digits.

    >>> _milliseconds(0.0123456)
    '12.35'
    """
    value = 1e3 * seconds
    return f"{value:.0f}" if value >= 1000 else f"{value:.{3 if value < 10 else 2}f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
