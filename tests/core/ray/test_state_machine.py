"""The ways of a job on Ray: fewer than those of a gang on instances, and only one failure is tried again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.policy import duration
from gpu_recovery.core.ray import state_machine
from gpu_recovery.core.state_machine import Decision, EventOutcome
from gpu_recovery.core.task import EndingKind

from tests.core.build import ADAPTIVE, NOW, POLICIES, later
from tests.core.ray.build import applied, canceled, ended, placed, queued, running, taken, tell

UNDER_WAY: tuple[Callable[[], Job], ...] = (placed, taken, running)
FINAL = [kind for kind in EndingKind if kind not in (EndingKind.SHORT_OF_RESOURCES, EndingKind.SUCCEEDED)]


def orders(decision: Decision[Job], kind: type) -> list[Any]:
    """The commands of one kind that a decision gives."""
    return [one.command for one in decision.commands if isinstance(one.command, kind)]


def overdue(record: Job) -> events.JobDeadlineReached:
    """The deadline of the status that the job is in."""
    assert record.deadline_at is not None
    return events.JobDeadlineReached(at=record.deadline_at, attempt=record.attempt, deadline_at=record.deadline_at)


@pytest.mark.parametrize(("status", "event"), list(product(state_machine.STATUSES, events.JOB_EVENTS)))
def test_every_pair_is_answered_on_purpose(status: JobStatus, event: type) -> None:
    """A status of a job on Ray and an event are a transition or are ignored for a stated reason."""
    assert ((status, event) in state_machine.TRANSITIONS) + ((status, event) in state_machine.IGNORED) == 1


def test_the_tables_speak_of_nothing_else_and_lead_nowhere_else() -> None:
    """There is no way into a status of instances: no diagnosis, no repair, no suspension."""
    assert {*state_machine.TRANSITIONS, *state_machine.IGNORED} == set(
        product(state_machine.STATUSES, events.JOB_EVENTS)
    )
    assert {target for row in state_machine.TRANSITIONS.values() for target in row.targets} <= set(
        state_machine.STATUSES
    )


def test_the_way_of_a_job_that_succeeds() -> None:
    """Seed 004, section 5: QUEUED, SUBMITTING, SUBMITTED, RUNNING, SUCCEEDED."""
    done = applied(tell(running(), ended(1, None)))
    assert [entry.after for entry in done.history] == [
        JobStatus.QUEUED,
        JobStatus.SUBMITTING,
        JobStatus.SUBMITTED,
        JobStatus.RUNNING,
        JobStatus.SUCCEEDED,
    ]
    assert done.quota_nodes == 0 and done.instances == ()


def test_a_job_that_goes_is_launched_and_takes_up_its_quota() -> None:
    """The order comes with the decision; its nodes count against the quota, although no instance of ours is taken."""
    record = queued(nnodes=2)
    event = events.JobPlaced(at=NOW, attempt=0, version=record.version, instances=(), epochs=())
    decision = tell(record, event)
    assert orders(decision, commands.LaunchAttempt) and decision.record.attempt == 1
    assert decision.record.instances == () and decision.record.quota_nodes == 2
    assert decision.quota is not None and (decision.quota.key, decision.quota.nodes) == ("ada/NORMAL/", 2)
    lost = tell(decision.record, ended(1, EndingKind.SHORT_OF_RESOURCES))
    assert lost.record.quota_nodes == 0 and lost.quota is not None and lost.quota.nodes == -2


def test_run_times_on_ray_are_no_estimates_for_instances() -> None:
    """A quota gives the nodes back; the usual run times are those of jobs on ECS."""
    done = tell(running(), ended(1, None), now=later(4_000))
    assert done.record.ran_s > 0 and done.quota is not None and (done.quota.nodes, done.quota.ran) == (-1, None)


@pytest.mark.parametrize("made", UNDER_WAY)
def test_too_few_gpus_put_it_in_line_again_after_a_pause_uncounted(made: Callable[[], Job]) -> None:
    """Seed 004, section 6.3: PENDING_RESOURCES, in 60 s, as the next attempt; it is no failure of the job."""
    back = applied(tell(made(), ended(1, EndingKind.SHORT_OF_RESOURCES, sentence="found 0 free GPUs")))
    assert back.status is JobStatus.PENDING_RESOURCES
    assert back.not_before == NOW + timedelta(seconds=60)
    assert back.attempts_counted == 0 and back.attempts_uncounted == {"INSUFFICIENT_RESOURCES": 1}
    assert "found 0 free GPUs" in back.reason
    again = placed(back, later(60))
    assert again.attempt == 2 and again.not_before is None


def test_lost_races_have_no_end_within_the_time_in_line() -> None:
    """Seed 004, 8.2 point 3: a user never submits by hand again because others were faster, however often they were.

    The pause before the next try doubles from 60 s up to ten minutes.
    """
    record, now = queued(), NOW
    for attempt in range(1, 3 * ADAPTIVE.uncounted_relaunches_max):
        record = applied(
            tell(placed(record, now), ended(attempt, EndingKind.SHORT_OF_RESOURCES), now=now + timedelta(seconds=30))
        )
        assert (record.status, record.attempts_counted) == (JobStatus.PENDING_RESOURCES, 0)
        now += timedelta(seconds=30 + min(60 * 2 ** (attempt - 1), 600))
        assert record.not_before == now
    assert record.attempts_uncounted == {"INSUFFICIENT_RESOURCES": attempt}


def test_a_run_that_lasts_resets_the_pause_between_lost_races() -> None:
    """The cluster had room again, so the next lost race is the first."""
    record = queued()
    for attempt in (1, 2, 3):
        record = applied(tell(placed(record), ended(attempt, EndingKind.SHORT_OF_RESOURCES)))
    assert record.not_before == later(240)
    at = later(ADAPTIVE.stable_run_s)
    record = running(taken(placed(record)))
    record = applied(tell(record, events.JobLookDue(at=at, attempt=4, look_at=record.look_at or at), now=at))
    lost = applied(tell(record, ended(4, EndingKind.SHORT_OF_RESOURCES), now=at))
    assert lost.not_before == at + timedelta(seconds=60)


def test_a_longer_pause_of_the_policy_is_kept() -> None:
    """An operator who sets ten minutes or more gets them from the first lost race on, and no more."""
    policy = replace(ADAPTIVE, pending_retry_s=900)
    record = queued()
    for attempt in (1, 2):
        record = applied(tell(placed(record), ended(attempt, EndingKind.SHORT_OF_RESOURCES), policy))
        assert record.not_before == later(900)


def test_the_time_in_line_ends_the_retries() -> None:
    """It counts from the submission: a lost race does not begin it anew. A program that always says so ends, too."""
    until = timedelta(seconds=ADAPTIVE.queue_timeout_s)
    lost = applied(tell(placed(), ended(1, EndingKind.SHORT_OF_RESOURCES), now=NOW + until / 2))
    assert lost.deadline_at == NOW + until
    given_up = applied(tell(lost, overdue(lost), now=NOW + until))
    assert given_up.status is JobStatus.FAILED and "found no place" in given_up.reason


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.preset)
@pytest.mark.parametrize(("made", "kind"), list(product(UNDER_WAY, FINAL)))
def test_nothing_else_is_tried_again(made: Callable[[], Job], kind: EndingKind, policy: Any) -> None:
    """Seed 004: other failures stay FAILED; who stopped it in Ray wanted it stopped."""
    decision = tell(made(), ended(1, kind), policy)
    by_person = kind is EndingKind.STOPPED_BY_PERSON
    assert decision.record.status is (JobStatus.CANCELED if by_person else JobStatus.FAILED)
    assert not orders(decision, commands.CheckInstances) and not orders(decision, commands.LaunchAttempt)
    assert bool(orders(decision, commands.NotifyOperator)) is not by_person


def test_a_refused_submission_fails_at_once() -> None:
    """Ray says no only to what is described wrongly."""
    refusal = events.LaunchRefused(at=NOW, attempt=1, sentence="runtime_env is wrong", lasting=True)
    decision = tell(placed(), refusal)
    assert decision.record.status is JobStatus.FAILED and decision.reason == "runtime_env is wrong"


@pytest.mark.parametrize("made", UNDER_WAY)
def test_a_cancel_stops_the_driver_and_waits_for_its_end(made: Callable[[], Job]) -> None:
    """CANCELED means that nothing runs any more."""
    decision = tell(made(), events.CancelRequested(at=NOW, attempt=1, by="ada"))
    assert decision.record.status is JobStatus.STOPPING and orders(decision, commands.StopAttempt)
    after = applied(tell(decision.record, ended(1, EndingKind.STOPPED_BY_PERSON)))
    assert after.status is JobStatus.CANCELED


@pytest.mark.parametrize("record", [queued(), applied(tell(placed(), ended(1, EndingKind.SHORT_OF_RESOURCES)))])
def test_a_job_in_line_is_canceled_at_once(record: Job) -> None:
    """It has no driver."""
    decision = tell(record, events.CancelRequested(at=NOW, attempt=record.attempt, by="ada"))
    assert decision.record.status is JobStatus.CANCELED and not orders(decision, commands.StopAttempt)


def test_a_canceled_job_is_not_put_in_line_again_by_a_lack_of_gpus() -> None:
    """Its end came while it was being stopped."""
    after = applied(tell(canceled(running()), ended(1, EndingKind.SHORT_OF_RESOURCES)))
    assert after.status is JobStatus.CANCELED


def test_a_driver_that_never_ends_is_told_again_and_then_given_up() -> None:
    """One that Ray cannot start ends with Ray's own start timeout of 900 s at the latest: we wait longer."""
    record, stops = canceled(taken()), 1
    began = NOW
    while record.status is JobStatus.STOPPING:
        deadline = record.deadline_at
        assert deadline is not None
        decision = tell(record, overdue(record), now=deadline)
        stops += len(orders(decision, commands.StopAttempt))
        assert not orders(decision, commands.TellInstance)
        record, end = decision.record, deadline
    assert record.status is JobStatus.FAILED and "never confirmed" in record.reason
    assert stops == state_machine.STOPS_MAX and end - began > timedelta(seconds=900)


@pytest.mark.parametrize("ended_as", [JobStatus.CANCELED, JobStatus.FAILED])
def test_a_driver_that_was_taken_after_the_end_is_stopped(ended_as: JobStatus) -> None:
    """Whatever order the answers come in: nothing may run for a job that has ended."""
    record = replace(placed(), status=ended_as, deadline_at=None)
    late = events.AttemptLaunched(at=NOW, attempt=1)
    decision = tell(record, late)
    assert decision.record.status is ended_as and orders(decision, commands.StopAttempt)
    assert tell(decision.record, late).outcome is EventOutcome.IGNORED


@pytest.mark.parametrize(("made", "limit"), [(placed, ADAPTIVE.launch_timeout_s), (taken, ADAPTIVE.start_timeout_s)])
def test_a_job_that_does_not_come_to_run_is_stopped_and_fails(made: Callable[[], Job], limit: int) -> None:
    """Nothing waits for ever; there is no instance to be checked for it."""
    record = made()
    assert record.deadline_at == NOW + duration(limit)
    stopping = applied(tell(record, overdue(record)))
    assert stopping.status is JobStatus.STOPPING
    after = tell(stopping, ended(1, EndingKind.STOPPED_BY_PERSON))
    assert after.record.status is JobStatus.FAILED and f"{limit} s" in after.reason


def test_a_job_that_runs_too_long_is_stopped_and_fails() -> None:
    """`max_runtime_s` holds on Ray as well."""
    record = running(taken(placed(queued(max_runtime_s=60))))
    stopping = applied(tell(record, overdue(record)))
    assert applied(tell(stopping, ended(1, EndingKind.STOPPED_BY_PERSON))).status is JobStatus.FAILED


@pytest.mark.parametrize("made", UNDER_WAY)
def test_each_look_asks_ray(made: Callable[[], Job]) -> None:
    """Ray sends no events: what it says is fetched."""
    record = made()
    assert record.look_at is not None
    look = events.JobLookDue(at=record.look_at, attempt=1, look_at=record.look_at)
    assert orders(tell(record, look, now=record.look_at), commands.ObserveAttempt)


def test_what_is_said_of_an_earlier_attempt_moves_nothing() -> None:
    """The attempt is the fence, on Ray as elsewhere."""
    back = applied(tell(running(), ended(1, EndingKind.SHORT_OF_RESOURCES)))
    second = running(taken(placed(back, later(60))))
    for event in (ended(1, None), ended(1, EndingKind.FAILED), events.AllRanksRunning(at=NOW, attempt=1)):
        assert tell(second, event).outcome is EventOutcome.OUTDATED


@pytest.mark.parametrize("made", [queued, *UNDER_WAY])
def test_a_job_on_ray_is_not_suspended(made: Callable[[], Job]) -> None:
    """Nobody hands a driver our notice; it says so and goes on."""
    record = made()
    wish = events.SuspendRequested(at=NOW, attempt=record.attempt, by="ada")
    assert tell(record, wish).outcome is EventOutcome.IGNORED
