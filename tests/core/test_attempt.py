"""The progress of an attempt: which addition is news, and what a job has not heard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.attempt import (
    AttemptProgress,
    Plan,
    is_under_way,
    missed_event,
    running_event,
    stopped_event,
    with_awaited_flag,
)
from gpu_recovery.core.events import AllRanksRunning, AllRanksStopped, Checked, InstancesChecked, RankFailed
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.instance.record import Claim, Instance, InstanceStatus
from gpu_recovery.core.job.record import TERMINAL, Job, JobStatus
from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.core.task import EndingKind

from tests.core.build import (
    ADAPTIVE,
    IDS,
    NOW,
    STUCK,
    applied,
    available,
    checking,
    claimed,
    failure,
    later,
    rebooting,
    running,
    tell,
)
from tests.core.instance.escalation_cases import PAUSED

PLAN = Plan("sft-1", 1, IDS)
NOTHING = AttemptProgress("sft-1", 1, 2)
RUNS = replace(NOTHING, running=frozenset({0, 1}))
CRASH = failure(EndingKind.CRASHED)
ONE_FAILED = replace(RUNS, stopped=frozenset({0}), failure=CRASH)
ALL_FAILED = replace(ONE_FAILED, stopped=frozenset({0, 1}))
ALL_DONE = replace(RUNS, stopped=frozenset({0, 1}))
HEALTHY = Checked(CheckOutcome.HEALTHY, "ok")
CHECK_ASKED = events.CheckRequested(at=NOW, job_id="sft-1", attempt=1, may_reboot=True)
REPAIR_ASKED = events.RepairRequested(at=NOW, job_id="sft-1", attempt=1, sentence="a rank cannot be stopped")
CHECKS_AWAITED = (JobStatus.DIAGNOSING, JobStatus.RECOVERING)


def test_the_start_that_completes_the_gang_is_news() -> None:
    """A rank that has ended well already did run."""
    assert running_event(replace(NOTHING, running=frozenset({0})), NOW) is None
    assert running_event(RUNS, NOW) == AllRanksRunning(at=NOW, attempt=1)
    ended_early = replace(NOTHING, running=frozenset({0}), stopped=frozenset({1}))
    assert running_event(ended_early, NOW) == AllRanksRunning(at=NOW, attempt=1)


@pytest.mark.parametrize("progress", [ONE_FAILED, ALL_DONE])
def test_a_gang_that_has_failed_or_ended_is_not_said_to_run(progress: AttemptProgress) -> None:
    """The late start of a rank must not hide what came after it."""
    assert running_event(progress, NOW) is None


def test_the_end_that_completes_the_gang_is_news_before_the_first_failure() -> None:
    """One event says both: that all have ended, and how the first failed."""
    assert stopped_event(ALL_FAILED, True, NOW) == AllRanksStopped(at=NOW, attempt=1, failure=CRASH)
    assert stopped_event(ALL_DONE, False, NOW) == AllRanksStopped(at=NOW, attempt=1)


@pytest.mark.parametrize("status", [JobStatus.RUNNING, JobStatus.STOPPING])
def test_a_job_hears_how_many_ended_by_themselves(status: JobStatus) -> None:
    """From the last end, and from a look that finds it untold."""
    both = replace(ALL_FAILED, own_ends=2)
    told = AllRanksStopped(at=NOW, attempt=1, failure=CRASH, own_ends=2)
    assert stopped_event(both, False, NOW) == missed_event(status, both, PLAN, NOW) == told


def test_only_the_first_failure_is_news() -> None:
    """The rest of a gang follows it."""
    assert stopped_event(ONE_FAILED, True, NOW) == RankFailed(at=NOW, attempt=1, failure=CRASH)
    assert stopped_event(ONE_FAILED, False, NOW) is None


def test_a_rank_that_ends_well_before_the_others_is_no_news() -> None:
    """The gang goes on."""
    assert stopped_event(replace(RUNS, stopped=frozenset({1})), False, NOW) is None


@pytest.mark.parametrize("status", [JobStatus.SUBMITTING, JobStatus.SUBMITTED])
def test_a_starting_job_has_not_heard_that_all_run(status: JobStatus) -> None:
    """Whoever added the last start died before telling."""
    assert missed_event(status, RUNS, PLAN, NOW) == AllRanksRunning(at=NOW, attempt=1)
    assert missed_event(status, NOTHING, PLAN, NOW) is None


@pytest.mark.parametrize("status", [JobStatus.SUBMITTING, JobStatus.SUBMITTED, JobStatus.RUNNING])
def test_a_job_under_way_has_not_heard_of_a_failure_or_an_end(status: JobStatus) -> None:
    """The worst news goes first."""
    assert missed_event(status, ONE_FAILED, PLAN, NOW) == RankFailed(at=NOW, attempt=1, failure=CRASH)
    assert missed_event(status, ALL_FAILED, PLAN, NOW) == AllRanksStopped(at=NOW, attempt=1, failure=CRASH)


def test_a_running_job_is_not_told_that_it_runs() -> None:
    """It would be told at every look."""
    assert missed_event(JobStatus.RUNNING, RUNS, PLAN, NOW) is None


def test_a_stopping_job_waits_for_the_last_end_only() -> None:
    """Failures are expected while a gang is stopped."""
    assert missed_event(JobStatus.STOPPING, ONE_FAILED, PLAN, NOW) is None
    assert missed_event(JobStatus.STOPPING, ALL_FAILED, PLAN, NOW) == AllRanksStopped(at=NOW, attempt=1, failure=CRASH)


def test_a_job_under_check_waits_for_the_last_result_only() -> None:
    """The barrier is down when every rank's instance has answered."""
    half = replace(ALL_FAILED, checked={1: HEALTHY})
    assert missed_event(JobStatus.DIAGNOSING, half, PLAN, NOW) is None
    whole = replace(ALL_FAILED, checked={1: HEALTHY, 0: HEALTHY})
    results = {IDS[0]: HEALTHY, IDS[1]: HEALTHY}
    assert missed_event(JobStatus.DIAGNOSING, whole, PLAN, NOW) == InstancesChecked(at=NOW, attempt=1, results=results)


@pytest.mark.parametrize(
    "status", [JobStatus.QUEUED, JobStatus.PENDING_RESOURCES, JobStatus.RECOVERING, *sorted(TERMINAL)]
)
def test_a_job_without_ranks_has_nothing_to_hear_of_them(status: JobStatus) -> None:
    """Its attempt is over, or has not begun."""
    assert missed_event(status, ALL_FAILED, PLAN, NOW) is None


def test_what_is_not_confirmed_is_named_by_instance() -> None:
    """That is what a reboot can be asked for."""
    assert ONE_FAILED.unconfirmed(PLAN) == IDS[1:]
    assert ALL_DONE.unconfirmed(PLAN) == ()


def test_the_tasks_of_ranks_that_have_not_ended_are_those_that_the_plan_names() -> None:
    """Of a launch that was broken off it names some; a plan may name more ranks than there are any more."""
    named = replace(PLAN, task_ids=("task-0", "task-1"))
    assert RUNS.unconfirmed_tasks(named) == named.task_ids
    assert ONE_FAILED.unconfirmed_tasks(named) == ("task-1",)
    assert ALL_DONE.unconfirmed_tasks(named) == RUNS.unconfirmed_tasks(PLAN) == ()
    assert RUNS.unconfirmed_tasks(replace(PLAN, task_ids=("", "task-1", "task-2"))) == ("task-1",)


@pytest.mark.parametrize("status", list(JobStatus))
def test_who_waits_for_what_it_has_asked_for(status: JobStatus) -> None:
    """For a check, who looks into the attempt or goes on after it; for the end of a rank, who is not over."""
    job = replace(running(), status=status)
    assert with_awaited_flag(job, CHECK_ASKED) == replace(CHECK_ASKED, awaited=status in CHECKS_AWAITED)
    assert with_awaited_flag(job, REPAIR_ASKED) == replace(REPAIR_ASKED, awaited=status not in TERMINAL)


@pytest.mark.parametrize("asked", [CHECK_ASKED, REPAIR_ASKED])
def test_nobody_waits_for_what_another_attempt_has_asked_for(
    asked: events.CheckRequested | events.RepairRequested,
) -> None:
    """The attempt that wanted it has been left behind."""
    job = replace(running(), status=JobStatus.DIAGNOSING, attempt=2)
    assert with_awaited_flag(job, asked) == replace(asked, awaited=False)


# -- what a job waits for ----------------------------------------------------------------------------------------------

SOON, PAST = later(60), later(-60)
REPAIRED = (rebooting(), applied(tell(claimed(), STUCK, ADAPTIVE, NOW, PAUSED)))
"""An instance with a reboot under way, and an instance whose reboot is held back."""


@pytest.mark.parametrize("instance", REPAIRED, ids=["under way", "held back"])
def test_a_job_waits_for_a_repair_that_goes_on_or_is_held_back(instance: Instance) -> None:
    """In STOPPING only if the instance still holds its claim: the end of the rank is not confirmed."""
    with_claim = replace(instance, claims={"sft-1": Claim(1, 8)})
    assert is_under_way(with_claim, _in(JobStatus.STOPPING), NOW)
    assert not is_under_way(replace(instance, claims={}), _in(JobStatus.STOPPING), NOW)
    assert is_under_way(replace(instance, claims={}), _in(JobStatus.RECOVERING), NOW)
    assert not is_under_way(with_claim, _in(JobStatus.RUNNING), NOW)


def test_a_job_waits_for_an_end_that_is_about_to_be_confirmed() -> None:
    """The repair is over and its claim is gone, but the function that confirms the end has not come to it."""
    order = PendingCommand("i/2/1", commands.ConfirmEnd("sft-1", 1, "rebooted"), SOON)
    back = replace(available(), commands=(order,))
    assert is_under_way(back, _in(JobStatus.STOPPING), NOW)
    assert not is_under_way(back, replace(_in(JobStatus.STOPPING), job_id="sft-2"), NOW)


def test_nothing_goes_on_at_an_instance_that_waits_for_a_person_or_is_gone() -> None:
    """Such a repair has ended: an operator may take days."""
    for status in (InstanceStatus.QUARANTINED, InstanceStatus.GONE, InstanceStatus.AVAILABLE):
        record = replace(claimed(), status=status)
        for waiting in (JobStatus.STOPPING, JobStatus.RECOVERING, JobStatus.DIAGNOSING):
            assert not is_under_way(record, _in(waiting), NOW)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({}, True), ({"attempt": 2}, False), ({"job_id": "sft-2"}, False)],
    ids=["its check", "of another attempt", "of another job"],
)
def test_a_job_waits_for_its_own_check_within_its_time(changes: Mapping[str, Any], expected: bool) -> None:
    """Past its deadline the check reports by itself."""
    record, job = checking(), replace(_in(JobStatus.DIAGNOSING), **changes)
    assert record.check is not None and record.check.job_id == "sft-1"
    assert is_under_way(replace(record, deadline_at=SOON), job, NOW) is expected
    assert not is_under_way(replace(record, deadline_at=PAST), job, NOW)


def _in(status: JobStatus) -> Job:
    return replace(running(), status=status)
