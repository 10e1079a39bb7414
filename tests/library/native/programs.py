"""Writes programs for the sanitizers' driver: all units at several sizes, and random units.

    python -m tests.library.native.programs FILE

Three lines for each: its name, its integers, its constants.
"""

from __future__ import annotations

import sys
from pathlib import Path

import hypothesis

from onegate.language import Graph
from onegate.lowering.program import program
from onegate.tracing import trace
from onegate.units import UNITS, get
from tests.library.random_units import Sketch, sketches

SIZES = ((1, 1), (3, 17), (17, 17), (50, 33))
RANDOM_UNITS = 60


def graphs() -> dict[str, Graph]:
    """By name."""
    found = {}
    for name in UNITS:
        unit = get(name, **({"context_size": 5} if name == "scrn" else {}))
        for d, n in SIZES:
            found[f"{name}-{d}-{n}"] = trace(unit, d, n, bias=(d, n) != (17, 17))

    @hypothesis.settings(
        max_examples=RANDOM_UNITS,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(sketches(largest=33))
    def collect(sketch: Sketch) -> None:
        found[f"random-{len(found)}"] = sketch.graph()

    collect()
    return found


def write(path: Path) -> None:
    """All programs, to `path`."""
    lines = []
    for name, graph in graphs().items():
        made = program(graph)
        lines += [name, " ".join(map(str, made.encode())), " ".join(map(repr, made.constants))]
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
