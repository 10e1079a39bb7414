"""Initial weights that several recipes share."""

from __future__ import annotations

from typing import Any

from onegate import units
from onegate.properties import retention
from onegate.tracing import trace


def as_released(unit: str) -> dict[str, Any]:
    """N(0, 0.1) as in the released code; a unit with initial weights of its own keeps them."""
    return {} if units.get(unit).init else {"init": "normal", "init_value": 0.1}


def remembering(unit: str, steps: int) -> dict[str, Any]:
    """Memories of up to `steps` steps, for units with a gate that keeps a state."""
    kept = retention(trace(units.get(unit), 1, 1))
    gated = any(state.keeps.key for state in kept)
    return {"init": "chrono", "init_value": float(steps)} if gated else {}
