"""Whether two means over seeds differ by more than chance: Welch's test.

Welch (1947), The generalization of "Student's" problem when several different population variances
are involved. Biometrika 34.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

# Of the continued fraction: it converges in some twenty steps.
_MOST_STEPS, _SMALLEST_CHANGE, _TINY = 500, 1e-15, 1e-300


def welch(one: Sequence[float], other: Sequence[float]) -> float | None:
    """The two-sided p value of Welch's t test for the difference of two means.

    None where it says nothing: a single value on a side, or no spread on both.

    >>> welch([98.9, 98.8, 98.9], [98.7, 98.6, 98.6])
    0.0077...
    """
    if min(len(one), len(other)) < 2:
        return None
    shares = [statistics.variance(values) / len(values) for values in (one, other)]
    if not sum(shares) > 0:
        return None
    t = (statistics.fmean(one) - statistics.fmean(other)) / math.sqrt(sum(shares))
    # Welch and Satterthwaite's degrees of freedom, in shares of the sum: nothing underflows.
    parts = [
        (share / sum(shares)) ** 2 / (len(values) - 1)
        for share, values in zip(shares, (one, other), strict=True)
    ]
    return two_sided(t, 1 / sum(parts))


def two_sided(t: float, degrees: float) -> float:
    """The probability that Student's t of these degrees of freedom is as far from 0 as `t`."""
    return incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t))


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by its continued fraction."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):  # where the fraction converges fast
        return 1 - incomplete_beta(b, a, 1 - x)
    logarithm = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    return math.exp(logarithm) / a / _fraction(a, b, x)


def _fraction(a: float, b: float, x: float) -> float:
    """1 + d1 / (1 + d2 / (1 + ...)), from the front (Lentz's method)."""
    value, c, d = 1.0, 1.0, 0.0
    for step in range(1, _MOST_STEPS):
        m = step // 2
        if step % 2:
            numerator = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            numerator = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / ((1 + numerator * d) or _TINY)
        c = (1 + numerator / c) or _TINY
        value *= c * d
        if abs(c * d - 1) < _SMALLEST_CHANGE:
            break
    return value
