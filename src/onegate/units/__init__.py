"""The registry of recurrent units: name -> unit, each exactly as its paper publishes it."""

from __future__ import annotations

from onegate.units.registry import UNITS, get, register

# Importing a family registers its units, in the order in which tables list them.
from onegate.units import simple, lstm, gru, mgu, minimal  # isort: skip

__all__ = ["UNITS", "get", "gru", "lstm", "mgu", "minimal", "register", "simple"]
