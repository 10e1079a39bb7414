"""The registry of recurrent units: name -> unit, each exactly as its paper publishes it."""

from __future__ import annotations

from onegate.units.registry import UNITS, get, register

# Importing a family registers its units, in the order in which tables list them.
from onegate.units import simple, lstm, gru, mgu, minimal, continuous  # isort: skip

__all__ = ["UNITS", "continuous", "get", "gru", "lstm", "mgu", "minimal", "register", "simple"]
