"""Quantiles of the tests for outliers: normal distribution, Student's t, and a correction for skewed numbers. Pure.

The module `statistics` has the first of them, and loads the module of random numbers, which the core does not use.
"""

from __future__ import annotations

import math
from functools import lru_cache

NEWTON_STEPS = 4
"""Steps from an approximation with an error below 5e-4 to the precision of a float."""


@lru_cache(maxsize=4_096)
def normal_quantile(tail: float) -> float:
    """Number that a standard normal variable exceeds with probability `tail`, above 0 and below 0.5.

    The start is approximation 26.2.23 of M. Abramowitz and I. A. Stegun, Handbook of Mathematical Functions (1964).
    """
    t = math.sqrt(-2 * math.log(tail))
    quantile = t - (2.515517 + 0.802853 * t + 0.010328 * t**2) / (1 + 1.432788 * t + 0.189269 * t**2 + 0.001308 * t**3)
    for _ in range(NEWTON_STEPS):
        density = math.exp(-(quantile**2) / 2) / math.sqrt(2 * math.pi)
        quantile += (math.erfc(quantile / math.sqrt(2)) / 2 - tail) / density
    return quantile


@lru_cache(maxsize=4_096)
def student_quantile(tail: float, dof: int) -> float:
    """Number that Student's t with `dof` degrees of freedom exceeds with probability `tail`, below 0.5.

    G. W. Hill, Algorithm 396: Student's t-quantiles, Communications of the ACM 13 (1970). Exact for one and two degrees
    of freedom; from three on the relative error is below 1e-4 for tails of 1e-7 to 0.05.
    """
    both = 2 * tail
    if dof == 1:
        return 1 / math.tan(both * math.pi / 2)
    if dof == 2:
        return math.sqrt(2 / (both * (2 - both)) - 2)
    a = 1 / (dof - 0.5)
    b = 48 / a**2
    c = ((20_700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * math.sqrt(a * math.pi / 2) * dof
    y = (d * both) ** (2 / dof)
    if y > 0.05 + a:
        x = -normal_quantile(tail)
        y = x * x
        if dof < 5:
            c += 0.3 * (dof - 4.5) * (x + 0.6)
        c = (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b + c
        y = math.expm1(a * ((((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x) ** 2)
    else:
        y = 1 / (((dof + 6) / (dof * y) - 0.089 * d - 0.822) * (dof + 2) * 3)
        y = ((y + 0.5 / (dof + 4)) * (d * both) ** (2 / dof) - 1) * (dof + 1) / (dof + 2) + (d * both) ** (-2 / dof)
    return math.sqrt(dof * y)


def skewness_factor(quantile: float, skewness: float) -> float:
    """Factor by which the upper quantile of a gamma distribution exceeds `quantile` of the normal distribution.

    E. B. Wilson and M. M. Hilferty, The distribution of chi-square, PNAS 17 (1931).

    Args:
        quantile: positive quantile of the standard normal distribution.
        skewness: of the gamma distribution, at least 0.
    """
    if skewness < 1e-6:
        return 1.0
    return 2 / skewness * ((1 + skewness * quantile / 6 - skewness**2 / 36) ** 3 - 1) / quantile
