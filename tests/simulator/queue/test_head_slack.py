"""The slack of the head of a queue: what passes it delays it by a share of its wait at most, and none starves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.queue import backfill
from gpu_recovery.core.queue.backfill import HeadDelay, RunTimeBound, passing_window_s
from gpu_recovery.core.queue.release_forecast import NEVER
from hypothesis import given
from hypothesis import strategies as st

from simulator.queue.job_trace import TraceJob
from simulator.queue.replay import waits_of
from tests.simulator.queue.whole_passes import POLICY, WholePasses

MEDIAN, P90, LIMIT = RunTimeBound.MEDIAN, RunTimeBound.P90, RunTimeBound.LIMIT
GPUS = 4


@pytest.mark.parametrize(
    ("head", "bound", "window_s"),
    [
        (HeadDelay(100, 100, 40, 0), P90, 102),  # no job has passed it: its own start and the slack
        (HeadDelay(500, 100, 40, 0), P90, 102),  # what passed it does not move that time
        (HeadDelay(500, 100, 40, 0), LIMIT, 102),
        (HeadDelay(101, 100, 40, 0), LIMIT, 101),  # the slack is not lent any more
        (HeadDelay(NEVER, 100, 40, 0), MEDIAN, 102),
        (HeadDelay(NEVER, NEVER, 40, 0), MEDIAN, -1),
        (HeadDelay(500, 0, 200, 0), P90, 10),  # from now on it is delayed: all of its slack is left
        (HeadDelay(5, 0, 207, 7), P90, 5),  # before those that passed it
        (HeadDelay(1, 0, 207, 7), P90, 3),  # or within what is left of the slack
        (HeadDelay(500, 0, 207, 7), P90, 10),  # before those that passed it, and no longer than the slack
        (HeadDelay(NEVER, 0, 207, 7), P90, 3),
        (HeadDelay(NEVER, 0, 250, 50), P90, -1),
        (HeadDelay(1, 0, 207, 7), LIMIT, 1),
        (HeadDelay(NEVER, 0, 207, 7), LIMIT, -1),
    ],
)
def test_the_window_of_a_head(head: HeadDelay, bound: RunTimeBound, window_s: float) -> None:
    """Five percent of its wait until it could have started, from that time on."""
    assert passing_window_s(head, bound, 0.05) == pytest.approx(window_s)


def _late(jobs: Sequence[TraceJob], policy: RecoveryPolicy) -> list[int]:
    """The heads that start later than first promised, by more than their slack."""
    passes = WholePasses(jobs, GPUS, policy)
    waits = waits_of(jobs, passes)
    share = policy.backfill_slack_percent / 100
    late = []
    for number, at in passes.promised.items():
        job = jobs[number]
        assert at is not None
        if job.at + waits[number] > at + share * (at - job.at) + 1e-6:
            late.append(number)
    return late


ROWS = st.tuples(st.integers(0, 60), st.integers(1, 30), st.sampled_from([1, 1, 1, 2, 3, 4]))


@given(st.lists(ROWS, min_size=1, max_size=20), st.sampled_from([5, 20, 50, 100]))
def test_no_head_waits_longer_than_promised_by_more_than_its_slack(
    rows: list[tuple[int, int, int]], percent: int
) -> None:
    """With true run times: whatever passes a head, and however many, one after the other."""
    jobs = [TraceJob(n, at, runs_s, runs_s, size) for n, (at, runs_s, size) in enumerate(sorted(rows))]
    assert _late(jobs, replace(POLICY, backfill_slack_percent=percent)) == []


CHAIN = [
    TraceJob(0, 0, 1_000, 1_000, 2),
    TraceJob(1, 0, 10, 10, GPUS),
    *(TraceJob(2 + n, 50 * n, 300, 300, 1) for n in range(80)),
]
"""Two GPUs are busy until 1,000. The second job wants all four. A job of five minutes comes each 50 seconds."""
HALF = replace(POLICY, backfill_slack_percent=50)


def test_a_chain_of_short_jobs_delays_the_head_by_its_slack() -> None:
    """They pass for half of its wait, and then it starts."""
    waits = waits_of(CHAIN, WholePasses(CHAIN, GPUS, HALF))
    assert 1_000 < waits[1] <= 1_500
    assert _late(CHAIN, HALF) == []


def _slack_of_each(head: HeadDelay, bound: RunTimeBound, share: float) -> float:
    """Each job may delay the head by the slack."""
    return head.alone_in + share * head.waited_s


def _slack_from_the_passers(head: HeadDelay, bound: RunTimeBound, share: float) -> float:
    """The slack begins when those that passed end."""
    return head.starts_in + share * head.waited_s


@pytest.mark.parametrize("bug", [_slack_of_each, _slack_from_the_passers])
def test_a_slack_that_begins_anew_is_found(
    bug: Callable[[HeadDelay, RunTimeBound, float], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the chain delays the head as long as it lasts."""
    monkeypatch.setattr(backfill, "passing_window_s", bug)
    assert _late(CHAIN, HALF) == [1]


def test_a_forgotten_begin_of_the_delay_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a record that does not keep since when the head is delayed."""
    passes = WholePasses(CHAIN, GPUS, HALF)
    monkeypatch.setattr(passes, "keeps", False)
    assert waits_of(CHAIN, passes)[1] > 1_500


LIARS = [
    TraceJob(0, 0, 1_000, 1_000, 2),
    TraceJob(1, 0, 10, 10, GPUS),
    *(TraceJob(2 + n, 50 * n, 300, 300, 1, median_s=10, p90_s=20) for n in range(200)),
]
"""The same, and the jobs of the chain run until their limit although their kind usually ends after ten seconds."""
SOON = replace(POLICY, backfill_median_s=600, backfill_estimates_gpu_s=GPUS * 2_000)
"""From 2,000 seconds on only limits count for the head of four GPUs."""


def test_a_head_starts_however_wrong_the_estimates_are() -> None:
    """When only limits count, those that passed it end by theirs, and none follows."""
    assert waits_of(LIARS, WholePasses(LIARS, GPUS, SOON))[1] <= 2_000 + 300


def test_a_head_that_is_guarded_by_no_limit_starves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the median counts for ever."""
    monkeypatch.setattr(backfill, "bound_for", lambda *_: MEDIAN)
    assert waits_of(LIARS, WholePasses(LIARS, GPUS, SOON))[1] > 2_000 + 300
