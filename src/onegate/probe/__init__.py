"""Looking inside a unit: its values over time, its memory and its gradients.

>>> onegate.probe.record(layer, x)["l0"]["f"]  # every gate value, (T, B, n)
"""

import warnings

from onegate.probe.derivatives import lyapunov_exponents, step_jacobians, through_time
from onegate.probe.memory import Keeping, keeping, measured_spans
from onegate.probe.traces import Pass, named_values, record

__all__ = [
    "Keeping",
    "Pass",
    "keeping",
    "lyapunov_exponents",
    "measured_spans",
    "named_values",
    "record",
    "step_jacobians",
    "through_time",
]


def __getattr__(name: str) -> object:
    if name == "trace":  # onegate.trace is another thing: the graph of a unit
        warnings.warn("onegate.probe.trace is now record", DeprecationWarning, stacklevel=2)
        return record
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
