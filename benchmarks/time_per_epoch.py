"""Seconds per epoch of MGU and GRU on the paper's tasks, measured in turns.

    python benchmarks/time_per_epoch.py
    python benchmarks/write_tables.py

For a machine that does nothing else; needs the data.
"""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from onegate.lab import compare, files
from onegate.lab.train import machine

TO = Path(__file__).parent.parent / "results" / "time_per_epoch.json"
TASKS = ("adding", "imdb", "mnist_rows", "mnist_pixels", "ptb")


def main() -> None:
    rows = [_measure(task) for task in TASKS]
    machine_facts = machine.describe("fused")
    files.write_json(
        TO, {"date": f"{datetime.now(UTC):%F}", "machine": machine_facts, "rows": rows}
    )


def _measure(task: str) -> dict[str, Any]:
    """One epoch of the recipe `paper`, from a few updates of each unit in turns."""
    with tempfile.TemporaryDirectory() as folder:
        contenders = compare.prepare(compare.Request(task, "paper"), Path(folder))
    row: dict[str, Any] = {"task": task, "hidden_size": contenders[0].recipe.model.hidden_size}
    row |= {contender.recipe.unit: contender.seconds_per_epoch for contender in contenders}
    print(f"{task}: MGU {row['mgu']:.2f} s, GRU {row['gru']:.2f} s, "
          f"ratio {row['mgu'] / row['gru']:.2f}", flush=True)  # fmt: skip
    return row


if __name__ == "__main__":
    main()
