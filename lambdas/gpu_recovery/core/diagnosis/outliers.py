"""Outliers among numbers: the 2σ rule as specified, and the guard that decides.

Row 16 of the fault catalogue, docs/diagnosis.md.

A z-score of a population is at most the root of n - 1, so "more than 2σ" is never true for five workers or fewer.
Among 64 equal workers with ordinary noise, a worker exceeds 2σ in nine windows of ten.

The guard asks for a distance in robust standard deviations, which a single outlier does not stretch. It also asks for
a difference that matters.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from gpu_recovery.core.diagnosis.thresholds import Thresholds

MAD_TO_SIGMA = 1.4826
"""Ratio of the standard deviation to the median absolute deviation, for normally distributed numbers."""
GUARD_MIN = 3
"""Fewest numbers that the guard compares. Of two numbers either may be the outlier."""


def mean(numbers: Collection[float]) -> float:
    """Arithmetic mean of at least one number."""
    return sum(numbers) / len(numbers)


def median(numbers: Collection[float]) -> float:
    """Middle of at least one number; the mean of the two middle numbers of an even count."""
    ordered = sorted(numbers)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def deviation(numbers: Collection[float]) -> float:
    """Population standard deviation of at least one number."""
    middle = mean(numbers)
    return float(mean([(number - middle) ** 2 for number in numbers]) ** 0.5)


def robust_sigma(numbers: Collection[float], floor_ratio: float) -> float:
    """1.4826 times the median absolute deviation, and at least `floor_ratio` of the median."""
    middle = median(numbers)
    return max(MAD_TO_SIGMA * median([abs(number - middle) for number in numbers]), floor_ratio * middle)


def sigma_decides(count: int, sigma: float) -> bool:
    """Whether any of `count` numbers can be more than `sigma` deviations from the mean."""
    return count - 1 > sigma**2


def beyond_sigma(values: Mapping[str, float], sigma: float) -> list[str]:
    """Names of values that exceed the mean by more than `sigma` deviations: the rule as specified."""
    if not values:
        return []
    numbers = list(values.values())
    limit = mean(numbers) + sigma * deviation(numbers)
    return sorted(name for name, value in values.items() if value > limit)


def beyond_guard(values: Mapping[str, float], by: Thresholds) -> list[str]:
    """Names of outliers that are slower by a ratio that matters. Empty for fewer than 3 values."""
    if len(values) < GUARD_MIN:
        return []
    limit = guard_limit(list(values.values()), by)
    return sorted(name for name, value in values.items() if value > limit)


def guard_limit(numbers: Sequence[float], by: Thresholds) -> float:
    """Limit above which a number is an outlier among these numbers."""
    middle = median(numbers)
    return max(middle + by.guard_sigma * robust_sigma(numbers, by.guard_floor_ratio), by.guard_slowness * middle)
