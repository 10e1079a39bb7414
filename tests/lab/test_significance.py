"""Welch's test against values of tables and of papers."""

from __future__ import annotations

import math

import pytest

from onegate.lab.significance import incomplete_beta, two_sided, welch


@pytest.mark.parametrize(
    ("t", "degrees", "p"),
    [
        # Two-sided critical values of Student's t, as every table has them.
        (12.7062, 1, 0.05), (4.3027, 2, 0.05), (2.7764, 4, 0.05), (2.2281, 10, 0.05),
        (63.657, 1, 0.01), (3.1693, 10, 0.01), (1.9600, 1e7, 0.05), (1.3722, 10, 0.2),
        (0.0, 3, 1.0), (1.0, 1, 0.5),
    ],
)  # fmt: skip
def test_student(t: float, degrees: float, p: float) -> None:
    assert two_sided(t, degrees) == pytest.approx(p, rel=1e-4)
    assert two_sided(-t, degrees) == two_sided(t, degrees)


def test_student_of_two_degrees_has_a_closed_form() -> None:
    for t in (0.01, 0.3, 1.0, 7.0, 100.0, 1e5):
        expected = 2 / (math.sqrt(t * t + 2) * (math.sqrt(t * t + 2) + t))
        assert two_sided(t, 2) == pytest.approx(expected, rel=1e-9)


def test_the_beta_function_of_whole_numbers_is_a_binomial_sum() -> None:
    for a, b, x in ((2, 3, 0.5), (1, 1, 0.3), (7, 2, 0.9), (2, 9, 0.01), (20, 30, 0.4)):
        n = a + b - 1
        expected = sum(math.comb(n, k) * x**k * (1 - x) ** (n - k) for k in range(a, n + 1))
        assert incomplete_beta(a, b, x) == pytest.approx(expected, rel=1e-10)
    assert (incomplete_beta(2, 3, 0.0), incomplete_beta(2, 3, 1.0)) == (0.0, 1.0)


def test_welch_by_hand() -> None:
    """Means 2 and 6, variances 1 and 4, three values each: t = -4 / sqrt(5 / 3)."""
    t = 4 / math.sqrt(5 / 3)
    degrees = (5 / 3) ** 2 / ((1 / 3) ** 2 / 2 + (4 / 3) ** 2 / 2)
    found = welch([1, 2, 3], [4, 6, 8])
    assert found == pytest.approx(two_sided(t, degrees))
    assert found == welch([4, 6, 8], [1, 2, 3])
    small = welch([1e-9, 2e-9, 3e-9], [4e-9, 6e-9, 8e-9])
    assert small == pytest.approx(found)


def test_equal_spreads_and_sizes_give_students_test() -> None:
    """Two samples of five, t = 2.306 at eight degrees of freedom is the bound of 5 %."""
    values = [-2.0, -1.0, 0.0, 1.0, 2.0]  # variance 2.5, of the mean 0.5
    assert welch(values, [v + 2.306004135 for v in values]) == pytest.approx(0.05, rel=1e-6)


def test_where_nothing_can_be_said() -> None:
    assert welch([1.0], [2.0, 3.0]) is None
    assert welch([1.0, 1.0], [2.0, 2.0]) is None
    assert welch([1.0, 1.0], [2.0, 2.5]) is not None
