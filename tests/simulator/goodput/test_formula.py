"""The simulation meets the published formula where the formula's assumptions hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.goodput.assumptions_file import read
from simulator.goodput.formula import best_checkpoint_s, expected_ettr, simulated_ettr

FACTS = read()
RSC1 = FACTS.profile("rsc1")


WAYS = ((300, 300, 1), (300, 900, 10), (600, 600, 5))
"""Seconds of a recovery, between checkpoints, and of a stall."""


@pytest.mark.parametrize(
    ("instances", "way"),
    [
        (64, WAYS[0]),
        (512, WAYS[0]),
        (2_000, WAYS[0]),
        (64, WAYS[1]),
        (1_024, WAYS[1]),
        (256, WAYS[2]),
        (1_024, WAYS[2]),
    ],
)
def test_simulated_ettr_is_within_a_point_of_the_formula(instances: int, way: tuple[int, int, int]) -> None:
    """Faults that a restart cures, each recovery equally long, losses of a tenth at most."""
    profile, (recovery_s, checkpoint_s, stall_s) = RSC1.resized(instances), way
    assert profile.failures_per_s * (recovery_s + checkpoint_s / 2) <= 0.1
    published = expected_ettr(profile.failures_per_s, recovery_s, checkpoint_s, stall_s)
    conditions = replace(FACTS.conditions, checkpoint_s=float(checkpoint_s), stall_s=float(stall_s))
    assert simulated_ettr(profile, conditions, recovery_s) == pytest.approx(published, abs=0.01)


def test_where_losses_are_large_the_formula_is_the_darker_of_the_two() -> None:
    """It counts failures that come while nothing trains; in the simulation they meet nothing."""
    published = expected_ettr(RSC1.failures_per_s, 1_200, 900, 10)
    conditions = replace(FACTS.conditions, checkpoint_s=900.0, stall_s=10.0)
    assert simulated_ettr(RSC1, conditions, 1_200) > published + 0.01


def test_the_formula_gives_what_its_paper_says() -> None:
    """A whole RSC-1 at 5 minutes between checkpoints and 5 minutes of recovery: 0.93 in the paper's own words."""
    assert expected_ettr(RSC1.failures_per_s, 300, 300, 0) == pytest.approx(0.93, abs=0.006)


def test_an_hour_between_checkpoints_is_too_long_for_a_whole_fleet() -> None:
    """Half of it is lost at each of 13 failures a day."""
    assert expected_ettr(RSC1.failures_per_s, 300, 3_600, 0) < 0.75


def test_the_best_interval_between_checkpoints_is_the_best() -> None:
    """Neither half of it nor twice as long is better."""
    best = best_checkpoint_s(RSC1.failures_per_s, 5.0)
    shares = [expected_ettr(RSC1.failures_per_s, 300, interval, 5.0) for interval in (best / 2, best, best * 2)]
    assert max(shares) == shares[1]
