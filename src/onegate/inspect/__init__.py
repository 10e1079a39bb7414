"""Looking inside a unit: its values over time, its memory and its gradients.

>>> onegate.inspect.trace(layer, x)["l0"]["f"]  # every gate value, (T, B, n)
"""

from onegate.inspect.traces import Pass, named_values, trace

__all__ = ["Pass", "named_values", "trace"]
