"""Quantiles against published tables and against the distributions themselves."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest
from gpu_recovery.core.diagnosis.quantiles import normal_quantile, skewness_factor, student_quantile

STUDENT = [
    (1, 0.05, 6.314),
    (2, 0.01, 6.965),
    (3, 0.005, 5.841),
    (4, 0.001, 7.173),
    (5, 0.0005, 6.869),
    (10, 0.05, 1.812),
    (10, 0.0005, 4.587),
    (30, 0.001, 3.385),
    (120, 0.0005, 3.373),
]
"""Degrees of freedom, tail and quantile, as tables of Student's t print them."""


@pytest.mark.parametrize(("dof", "tail", "quantile"), STUDENT)
def test_students_quantiles_are_those_of_the_tables(dof: int, tail: float, quantile: float) -> None:
    """To three digits after the point."""
    assert student_quantile(tail, dof) == pytest.approx(quantile, abs=6e-4)


@pytest.mark.parametrize("tail", [0.4, 0.05, 1e-3, 4e-6, 1e-9])
def test_the_normal_quantile_is_that_of_the_standard_library(tail: float) -> None:
    """And Student's t with very many degrees of freedom is close to it."""
    assert normal_quantile(tail) == pytest.approx(-NormalDist().inv_cdf(tail), rel=1e-9)
    if tail <= 0.05:
        assert student_quantile(tail, 100_000) == pytest.approx(normal_quantile(tail), rel=1e-3)


@pytest.mark.parametrize("tail", [1e-2, 1e-3, 1e-4])
def test_the_skewness_factor_is_that_of_an_exponential_distribution(tail: float) -> None:
    """Its skewness is 2, and its quantiles are known: the error is below 6 %."""
    exact = -math.log(tail) - 1
    assert normal_quantile(tail) * skewness_factor(normal_quantile(tail), 2.0) == pytest.approx(exact, rel=0.06)
    assert skewness_factor(normal_quantile(tail), 0.0) == 1.0
