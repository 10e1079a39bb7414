"""Sweeps: many training runs as one piece of work, on this machine or on a Ray cluster.

>>> from onegate import sweep
>>> grid = sweep.Grid(("adding",), "tuned", units=("mgu", "gru"), hidden=(50, 100), seeds=(0, 1))
>>> plan = sweep.make(grid.recipes(), sweep.place("runs"))
>>> sweep.run(plan).failed
{}
"""

from __future__ import annotations

from onegate.lab.sweep.grid import Grid, GridError, read_toml
from onegate.lab.sweep.places import Place, PlaceError, place
from onegate.lab.sweep.plan import Plan, PlanError, make, threads_of, usual_threads
from onegate.lab.sweep.running import Outcome, run

__all__ = [
    "Grid",
    "GridError",
    "Outcome",
    "Place",
    "PlaceError",
    "Plan",
    "PlanError",
    "make",
    "place",
    "read_toml",
    "run",
    "threads_of",
    "usual_threads",
]
