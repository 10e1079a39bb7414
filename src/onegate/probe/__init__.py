"""Looking inside a unit: its values over time, its memory and its gradients.

>>> onegate.probe.trace(layer, x)["l0"]["f"]  # every gate value, (T, B, n)
"""

from onegate.probe.derivatives import lyapunov_exponents, step_jacobians, through_time
from onegate.probe.memory import Keeping, keeping, measured_spans
from onegate.probe.traces import Pass, named_values, trace

__all__ = [
    "Keeping",
    "Pass",
    "keeping",
    "lyapunov_exponents",
    "measured_spans",
    "named_values",
    "step_jacobians",
    "through_time",
    "trace",
]
