"""What a job may expect: the rate of the fleet, the lengths of an incident, and what would meet a contract."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_recovery.core.recovery_expectation.expectation import (
    CHANGES,
    CHECKPOINTS_S,
    Contract,
    expectation,
    lengths_of,
    recovery_of,
)
from gpu_recovery.core.recovery_expectation.failure_rate import (
    OWN_INCIDENTS_MIN,
    PRIOR_INCIDENTS,
    FailureRate,
    RateSource,
)
from gpu_recovery.core.recovery_expectation.published_times import Recovery, Setup, published_recoveries
from gpu_recovery.core.recovery_expectation.sentences import CHANGE_SENTENCES
from hypothesis import given
from hypothesis import strategies as st

JOB = Setup(nnodes=16, gpus_per_node=8, checkpoint_s=600.0)
FREE = Contract(None, None)


@given(st.integers(1, 3_000), st.integers(1, 16), st.integers(0, 2), st.booleans(), st.booleans())
def test_the_weights_of_the_published_recoveries_add_up(
    nnodes: int, gpus: int, spares: int, in_place: bool, reports: bool
) -> None:
    """For any job."""
    found = published_recoveries(Setup(nnodes, gpus, spares=spares, in_place=in_place, reports_progress=reports))
    assert sum(each.weight for each in found) == pytest.approx(1.0)
    assert all(each.weight > 0 and each.down_s > 0 for each in found)


# -- the rate ----------------------------------------------------------------------------------------------------------


def test_a_fleet_without_figures_has_the_published_rate() -> None:
    """And a sentence that says so."""
    rate = FailureRate()
    assert rate.per_1000_instance_days(8) == pytest.approx(6.5)
    assert "no figures yet" in rate.sentence(8) and rate.source is RateSource.PUBLISHED


def test_a_fleet_with_many_incidents_has_its_own_rate() -> None:
    """1,000 incidents in 100,000 GPU-days."""
    rate = FailureRate(1_000, 100_000.0, 28)
    assert rate.per_gpu_day == pytest.approx(0.01, rel=0.04) and rate.own_share > 0.96
    assert rate.sentence(8).startswith("1000 incident(s) in 12500.0 instance-days (100000 GPU-days) of this fleet")
    assert rate.source is RateSource.FLEET


def test_few_incidents_move_the_rate_a_little_and_the_sentence_says_the_weights() -> None:
    """A quiet fleet has less than the published rate."""
    none = FailureRate(0, 1_000.0, 28)
    assert FailureRate().per_gpu_day > none.per_gpu_day > 0
    said = none.sentence(8)
    assert f"{round(100 * (1 - none.own_share))} % of the weight" in said and "too few" in said
    assert said.startswith("the published rate of 6.5") and none.source is RateSource.BLENDED


def test_a_rate_is_that_of_the_fleet_from_ten_incidents() -> None:
    """With nine it is called published, blended with that of the fleet."""
    few, enough = FailureRate(OWN_INCIDENTS_MIN - 1, 100.0, 28), FailureRate(OWN_INCIDENTS_MIN, 100.0, 28)
    assert (few.source, enough.source) == (RateSource.BLENDED, RateSource.FLEET)
    assert "too few for a rate of its own" in few.sentence(8) and "too few" not in enough.sentence(8)


@given(st.integers(0, 500), st.floats(0.0, 1e6))
def test_the_range_holds_the_mean(incidents: int, gpu_days: float) -> None:
    """For any number of incidents."""
    rate = FailureRate(incidents, gpu_days, 28)
    low, high = rate.range_per_gpu_day
    assert 0 <= low < rate.per_gpu_day < high


def test_the_range_is_that_of_the_gamma_distribution() -> None:
    """Quantiles of a gamma distribution of shape 3: 0.8177 and 6.2958 (tables of the chi-squared distribution)."""
    low, high = FailureRate().range_per_gpu_day
    mean = FailureRate().per_gpu_day
    assert low / mean * PRIOR_INCIDENTS == pytest.approx(0.8177, rel=0.02)
    assert high / mean * PRIOR_INCIDENTS == pytest.approx(6.2958, rel=0.01)


# -- the lengths -------------------------------------------------------------------------------------------------------


def test_the_work_that_is_done_again_is_even_between_two_checkpoints() -> None:
    """A recovery of no spread: the lost time is that of the checkpoints."""
    measured = [Recovery(1.0, notice=100.0)] * 100
    found = lengths_of(JOB, FREE, measured)
    assert found.down_p50_s == 100.0
    assert found.lost_p50_s == pytest.approx(100 + JOB.persist_s + JOB.checkpoint_s / 2, rel=0.1)


def test_measured_recoveries_outweigh_the_published_ones() -> None:
    """With a hundred of them the published recoveries have a weight of 10 in 110."""
    slow = recovery_of({"notice": 10, "repair": 5_000, "wait": 1_000, "suspended": 9_999})
    assert slow.down_s == 6_010
    assert lengths_of(JOB, FREE).down_p50_s < 1_000
    assert lengths_of(JOB, FREE, [slow] * 100).down_p50_s == 6_010


def test_a_job_that_checkpoints_seldom_loses_its_contract_to_the_checkpoints_alone() -> None:
    """More checkpoints are the only change."""
    found = expectation(replace(JOB, spares=1, checkpoint_s=3_600), Contract(3_600.0, 1_500.0), FailureRate())
    assert found.lengths.down_kept == pytest.approx(1.0) and not found.lengths.is_met
    first = found.alternatives[0]
    assert first.changes == () and first.checkpoint_every_s in CHECKPOINTS_S
    assert first.lengths.lost_kept >= 0.95
    longer_s = CHECKPOINTS_S[CHECKPOINTS_S.index(first.checkpoint_every_s) - 1]
    more = lengths_of(replace(JOB, spares=1, checkpoint_s=longer_s), Contract(None, 1_500.0))
    assert more.lost_kept < 0.95, "the longest time that meets the contract is proposed"


def test_the_least_change_that_meets_a_contract_comes_first() -> None:
    """Two minutes need the whole ladder; half an hour needs one spare."""
    loose = expectation(JOB, Contract(1_000.0, None), FailureRate())
    assert loose.alternatives[0].changes == ("spare",)
    tight = expectation(JOB, Contract(300.0, None), FailureRate())
    assert all(len(each.changes) > 1 for each in tight.alternatives) and tight.alternatives
    assert all(each.lengths.is_met for each in (*loose.alternatives, *tight.alternatives))


def test_a_contract_that_nothing_known_meets_says_the_best() -> None:
    """No recovery takes less than a minute."""
    found = expectation(JOB, Contract(60.0, None), FailureRate())
    assert found.alternatives == () and found.best is not None and found.best.down_p95_s > 60


def test_a_contract_that_is_met_needs_nothing() -> None:
    """A day is enough for every recovery."""
    found = expectation(JOB, Contract(86_400.0, 86_400.0), FailureRate(), days=10)
    assert found.lengths.is_met and found.alternatives == () and found.best is None
    assert found.incidents == pytest.approx(16 * 10 * 6.5 / 1_000)


@given(
    st.integers(1, 512),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from([60.0, 600.0, 3_600.0]),
    st.floats(60.0, 7_200.0),
)
def test_no_change_makes_a_recovery_longer(
    nnodes: int, spares: int, in_place: bool, checkpoint_s: float, limit: float
) -> None:
    """Each change is an improvement, so an alternative never keeps less than the job as it is."""
    setup = Setup(nnodes, 8, spares=spares, in_place=in_place, checkpoint_s=checkpoint_s)
    contract = Contract(limit, limit + 600)
    now = lengths_of(setup, contract)
    for name, change in CHANGES.items():
        if change.applies(setup):
            changed = lengths_of(change.to_setup(setup), contract, (), (name,))
            assert changed.down_kept >= now.down_kept - 0.12, name
            assert changed.lost_kept >= now.lost_kept - 0.12, name


def test_every_change_has_its_sentence() -> None:
    """Users read sentences."""
    assert set(CHANGES) == set(CHANGE_SENTENCES)
