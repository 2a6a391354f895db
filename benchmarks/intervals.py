"""Confidence interval of a share that was counted in a benchmark."""

from __future__ import annotations

import math

Z_95 = 1.959964
"""Quantile of the normal distribution for intervals of 95 %."""


def wilson(part: int, whole: int) -> tuple[float, float]:
    """Return the 95 % interval of a share: E. B. Wilson, Journal of the American Statistical Association 22 (1927).

    Raises:
        ValueError: `whole` is not positive.
    """
    if whole <= 0:
        raise ValueError("the share of nothing has no interval")
    share, square = part / whole, Z_95**2 / whole
    middle = share + square / 2
    width = Z_95 * math.sqrt(share * (1 - share) / whole + square / (4 * whole))
    return max((middle - width) / (1 + square), 0.0), min((middle + width) / (1 + square), 1.0)
