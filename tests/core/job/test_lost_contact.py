"""LOST, row by row: what makes a job LOST, what brings it back, what ends it, and what a late heartbeat cannot do."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.job import state_machine
from gpu_recovery.core.job.record import TERMINAL, Job, JobStatus, StopPurpose
from gpu_recovery.core.metrics import of_decision
from gpu_recovery.core.notifications.template import Phase
from gpu_recovery.core.policy import policy_from
from gpu_recovery.core.state_machine import EventOutcome
from gpu_recovery.core.task import EndingKind
from hypothesis import given
from hypothesis import strategies as st

from tests.core.build import (
    ADAPTIVE,
    IDS,
    NOW,
    POLICIES,
    SPEC,
    applied,
    failure,
    later,
    lost,
    orders,
    placed,
    queued,
    rank_heard,
    rank_silent,
    running,
    tell,
)
from tests.core.job.test_recovering import MAKE

S = JobStatus
OBSERVING = policy_from({"observe_only": True})
DEAD = {IDS[0]: "EC2 shows it stopped"}
LOST_S = ADAPTIVE.lost_timeout_s
TAKING = (commands.StopAttempt, commands.ReleaseInstances, commands.EndUnconfirmed, commands.EndRanks)
"""Orders that end a rank or give GPUs back."""
POLICY = pytest.mark.parametrize("policy", POLICIES, ids=["classic", "adaptive"])


def overdue(record: Job, policy: Any = ADAPTIVE, **said: Any) -> Any:
    """What is decided when the job has been LOST for its time, with what ECS and EC2 said."""
    assert record.deadline_at is not None
    at = record.deadline_at
    event = events.JobDeadlineReached(at=at, attempt=record.attempt, deadline_at=at, **said)
    return tell(record, event, policy, at)


def notices(decision: Any) -> list[tuple[str, str]]:
    """(phase, incident) of what operators are told."""
    return [(one.phase, one.incident_id) for one in orders(decision, commands.NotifyOperator)]


def takes_nothing(decision: Any) -> bool:
    return not any(orders(decision, kind) for kind in TAKING)


# -- into it -----------------------------------------------------------------------------------------------------------


@POLICY
def test_a_silent_rank_makes_a_running_job_lost_and_takes_nothing(policy: Any) -> None:
    """LOST is not FAILED: no rank is stopped, no GPU given back, no attempt counted, no incident of a recovery."""
    before = running(policy)
    decision = tell(before, rank_silent(before), policy, later(200))
    after = decision.record
    assert (after.status, after.silent, after.deadline_at) == (S.LOST, (IDS[0],), later(200 + policy.lost_timeout_s))
    assert takes_nothing(decision)
    assert (after.instances, after.attempts_counted, after.incident_at) == (before.instances, 0, None)
    assert notices(decision) == [(Phase.OPENED, after.incident_id)]
    assert [one.name for one in of_decision(before, decision)] == ["JobLost"]


@pytest.mark.parametrize("status", [one for one in S if one not in (S.RUNNING, S.LOST)])
def test_no_other_status_becomes_lost(status: JobStatus) -> None:
    """Before it runs its own deadline watches it; afterwards there is no rank to be heard of."""
    record = MAKE[status]()
    assert record.status is status
    assert tell(record, rank_silent(record)).outcome is EventOutcome.IGNORED


def test_a_second_silent_instance_joins_and_the_deadline_stays() -> None:
    """A gang that falls silent bit by bit is decided about at the time that was told."""
    record = lost()
    decision = tell(record, rank_silent(record, 1, later(60)), now=later(400))
    after = decision.record
    assert (after.silent, after.deadline_at) == (IDS, record.deadline_at)
    assert all(one in after.reason for one in IDS) and takes_nothing(decision) and not notices(decision)


def test_a_silence_where_the_job_has_no_rank_says_nothing() -> None:
    """Neither does a heartbeat from there."""
    for event in (rank_silent(running()), rank_heard(running())):
        assert tell(running(), replace(event, instance_id="i-other")).outcome is EventOutcome.IGNORED


@pytest.mark.parametrize("attempt", [0, 2])
@pytest.mark.parametrize("make", [rank_silent, rank_heard])
def test_another_attempt_is_fenced_off(make: Any, attempt: int) -> None:
    """A silence of attempt N does not make attempt N+1 LOST, and its heartbeat does not bring it back."""
    for record in (running(), lost()):
        assert tell(record, replace(make(record, at=later(900)), attempt=attempt)).outcome is EventOutcome.OUTDATED


# -- back to RUNNING ---------------------------------------------------------------------------------------------------


def test_a_heartbeat_of_the_attempt_brings_the_job_back_and_closes_the_thread() -> None:
    """As if nothing had been: no recovery is measured, none is announced."""
    record = lost()
    decision = tell(record, rank_heard(record), now=later(300))
    after = decision.record
    assert (after.status, after.silent, after.incident_id) == (S.RUNNING, (), None)
    assert notices(decision) == [(Phase.RESOLVED, record.incident_id)] and takes_nothing(decision)
    assert [(one.name, one.value) for one in of_decision(record, decision)] == [("JobRunning", 1), ("LostSeconds", 100)]
    assert [one.data["after"] for one in orders(decision, commands.PublishEvent)] == ["RUNNING"]


def test_a_job_is_lost_until_every_rank_is_heard_again() -> None:
    """One of two is not enough."""
    record = lost()
    record = applied(tell(record, rank_silent(record, 1, later(60)), now=later(400)))
    first = tell(record, rank_heard(record, 1, later(500)), now=later(500))
    assert (first.record.status, first.record.silent) == (S.LOST, (IDS[0],)) and not notices(first)
    assert tell(first.record, rank_heard(record, 0, later(501)), now=later(501)).record.status is S.RUNNING


def test_a_silence_within_a_recovery_stays_in_its_thread() -> None:
    """The recovery is not over yet, so a heartbeat that comes back does not say that it is."""
    recovering = replace(running(), incident_id="sft-1--a01", recovery_since=NOW)
    decision = tell(recovering, rank_silent(recovering, seen_at=NOW), now=later(200))
    assert notices(decision) == [(Phase.ESCALATED, "sft-1--a01")]
    record = applied(decision)
    heard = tell(record, rank_heard(record), now=later(300))
    assert notices(heard) == [] and heard.record.incident_id == "sft-1--a01"
    alive = overdue(record)
    assert notices(alive) == [(Phase.ESCALATED, "sft-1--a01")] and alive.record.incident_id == "sft-1--a01"


def test_a_second_silence_of_the_attempt_opens_another_thread() -> None:
    """A thread that was closed is not opened again."""
    first = lost()
    back = applied(tell(first, rank_heard(first), now=later(300)))
    again = applied(tell(back, rank_silent(back, 0, later(300)), now=later(500)))
    assert again.status is S.LOST and again.incident_id not in (None, first.incident_id)


def test_a_silence_that_is_told_after_the_heartbeat_that_ended_it_is_over() -> None:
    """Orders travel at their own speed: whoever carries one out late must find it outdated."""
    record = running()
    heard = applied(tell(record, rank_heard(record, 0, later(300)), now=later(300)))
    assert (heard.status, heard.reason) == (S.RUNNING, record.reason)
    assert tell(heard, rank_silent(record, 0, NOW), now=later(310)).outcome is EventOutcome.OUTDATED
    assert tell(heard, rank_silent(record, 0, later(300)), now=later(500)).record.status is S.LOST


def test_a_heartbeat_from_before_the_silence_brings_nobody_back() -> None:
    """The same heartbeat, delivered twice, is one heartbeat."""
    first = lost()
    heard = rank_heard(first, 0, later(300))
    back = applied(tell(first, heard, now=later(300)))
    again = applied(tell(back, rank_silent(back, 0, later(300)), now=later(500)))
    assert tell(again, heard, now=later(501)).outcome is EventOutcome.OUTDATED
    assert tell(again, rank_heard(again, 0, later(301)), now=later(501)).record.status is S.RUNNING


def test_a_new_attempt_knows_nothing_of_the_silences_of_the_last() -> None:
    """Its ranks have not been heard of yet."""
    record = replace(lost(), status=S.RECOVERING)
    after = placed(record)
    assert (after.attempt, after.silent, after.heard) == (2, (), {})


@pytest.mark.parametrize("elapsed", [0, 3_000])
def test_the_runtime_limit_survives_lost(elapsed: int) -> None:
    """It counts from when the attempt began to run, not from when it was heard of again."""
    record = running(record=queued(spec=replace(SPEC, max_runtime_s=3_600)))
    limit = record.deadline_at
    silent = lost(record=record, seen_at=later(elapsed))
    assert limit == later(3_600) != silent.deadline_at
    back = applied(tell(silent, rank_heard(silent, 0, later(elapsed + 300)), now=later(elapsed + 300)))
    assert back.deadline_at == limit
    if elapsed:
        assert overdue(back).record.stop_purpose is StopPurpose.FAIL


# -- what ECS and EC2 decide -------------------------------------------------------------------------------------------


@POLICY
def test_where_ecs_and_ec2_know_of_no_life_either_the_gang_is_stopped_and_the_machine_repaired(policy: Any) -> None:
    """GPUs come back only by the repair's proof; the stop alone gives nothing back."""
    record = lost(policy)
    decision = overdue(record, policy, dead=DEAD)
    after = decision.record
    assert (after.status, after.stop_purpose) == (S.STOPPING, StopPurpose.DIAGNOSE)
    assert orders(decision, commands.StopAttempt) == [commands.StopAttempt(1)]
    (order,) = orders(decision, commands.EndUnconfirmed)
    assert (order.attempt, order.ranks) == (1, {DEAD[IDS[0]]: (0,)})
    assert not orders(decision, commands.ReleaseInstances)
    assert notices(decision) == [(Phase.ESCALATED, record.incident_id)] and after.incident_id == record.incident_id


def test_an_agent_of_ecs_that_is_not_connected_is_asked_for_twice() -> None:
    """It disconnects several times an hour by itself: found so at one look, and connected at the next, all is well."""
    record = lost()
    doubt = {"dead": {IDS[0]: "the agent of ECS is not connected"}, "unsure": (IDS[0],)}
    first = overdue(record, **doubt)
    assert first.record.status is S.LOST and takes_nothing(first) and not notices(first)
    assert first.record.deadline_at == record.deadline_at + timedelta(seconds=ADAPTIVE.poll_interval_s)
    assert overdue(first.record).record.status is S.RUNNING
    again = overdue(first.record, **doubt)
    assert again.record.status is S.STOPPING
    assert [one.ranks for one in orders(again, commands.EndUnconfirmed)] == [{doubt["dead"][IDS[0]]: (0,)}]
    back = applied(tell(first.record, rank_heard(first.record, 0, later(9_000)), now=later(9_000)))
    assert (back.status, back.found_dead) == (S.RUNNING, ())


def test_where_the_machine_lives_its_job_runs_on() -> None:
    """The agent is dead, not the machine: nobody kills a healthy job for a dead agent."""
    record = lost()
    decision = overdue(record)
    after = decision.record
    assert (after.status, after.silent, after.incident_id) == (S.RUNNING, (), None)
    assert takes_nothing(decision) and notices(decision) == [(Phase.RESOLVED, record.incident_id)]
    assert tell(after, rank_silent(after), now=later(900)).outcome is EventOutcome.OUTDATED
    assert tell(after, rank_silent(after, 0, later(2_000)), now=later(2_200)).record.status is S.LOST


def test_only_the_dead_of_several_silent_instances_are_repaired() -> None:
    """And what ECS says of an instance that is not silent is no reason."""
    record = lost()
    record = applied(tell(record, rank_silent(record, 1, later(60)), now=later(400)))
    decision = overdue(record, dead={IDS[1]: "it has left the cluster", "i-other": "EC2 shows it stopped"})
    assert decision.record.status is S.STOPPING
    assert [one.ranks for one in orders(decision, commands.EndUnconfirmed)] == [{"it has left the cluster": (1,)}]
    other = overdue(lost(), dead={IDS[1]: "EC2 shows it stopped"})
    assert other.record.status is S.RUNNING and takes_nothing(other)


@pytest.mark.parametrize("dead", [DEAD, {}])
def test_while_the_fleet_is_deaf_nothing_is_decided(dead: dict[str, str]) -> None:
    """Neither that it is dead nor that it lives; it is asked again after as long."""
    record = lost()
    decision = overdue(record, dead=dead, deaf="7 of 10 instances do not report")
    after = decision.record
    assert (after.status, after.silent, after.incident_id) == (S.LOST, record.silent, record.incident_id)
    assert after.deadline_at == record.deadline_at + (later(LOST_S) - NOW) if record.deadline_at else False
    assert takes_nothing(decision) and not notices(decision)


@pytest.mark.parametrize("hands_off", [False, True])
def test_a_job_that_is_only_observed_stays_lost_and_that_is_said_once(hands_off: bool) -> None:
    """However long it lasts: nothing is touched, and operators are not told every ten minutes."""
    policy = ADAPTIVE if hands_off else OBSERVING
    record = lost(policy, replace(running(policy), hands_off=hands_off))
    first = overdue(record, policy, dead=DEAD)
    assert (
        first.record.status is S.LOST and takes_nothing(first) and [one[0] for one in notices(first)] == [Phase.NOTED]
    )
    second = overdue(first.record, policy, dead=DEAD)
    assert second.record.status is S.LOST and second.commands == ()
    assert second.record.deadline_at > first.record.deadline_at
    assert tell(second.record, rank_heard(record, 0, later(9_999)), policy).record.status is S.RUNNING


# -- other ways out ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [EndingKind.FAILED, EndingKind.CRASHED, EndingKind.STOPPED_BY_PERSON])
def test_an_end_that_ecs_confirms_acts_as_in_running(kind: EndingKind) -> None:
    """The silence is no excuse: the gang is stopped for the purpose that its end has."""
    event = events.RankFailed(at=NOW, attempt=1, failure=failure(kind))
    silent, heard = tell(lost(), event), tell(running(), event)
    assert (silent.record.status, silent.record.stop_purpose) == (heard.record.status, heard.record.stop_purpose)
    assert orders(silent, commands.StopAttempt) == orders(heard, commands.StopAttempt)


def test_a_lost_job_that_has_succeeded_is_no_recovery() -> None:
    """Its thread is closed; programs are not told of a recovery that never began."""
    record = lost()
    decision = tell(record, events.AllRanksStopped(at=later(300), attempt=1), now=later(300))
    assert decision.record.status is S.SUCCEEDED and notices(decision) == [(Phase.RESOLVED, record.incident_id)]
    assert [one.detail_type for one in orders(decision, commands.PublishEvent)] == ["Job State Changed"]
    assert {one.name for one in of_decision(record, decision)} == {"JobSucceeded", "LostSeconds"}


def test_a_lost_job_that_succeeds_within_a_recovery_has_recovered() -> None:
    """Programs were told of the recovery that began before the silence."""
    record = lost(record=replace(running(), incident_id="sft-1--a01", recovery_since=NOW))
    decision = tell(record, events.AllRanksStopped(at=later(300), attempt=1), now=later(300))
    assert decision.record.status is S.SUCCEEDED and notices(decision) == [(Phase.RESOLVED, "sft-1--a01")]
    published = [one.detail_type for one in orders(decision, commands.PublishEvent)]
    assert published == ["Recovery Succeeded", "Job State Changed"]


def test_a_lost_job_whose_ranks_have_all_failed_is_diagnosed_as_any_other() -> None:
    """The thread of the silence goes on as that of the failure."""
    record = lost()
    event = events.AllRanksStopped(at=NOW, attempt=1, failure=failure(EndingKind.CRASHED))
    decision = tell(record, event)
    assert decision.record.status is S.DIAGNOSING and decision.record.incident_id == record.incident_id
    assert [phase for phase, _ in notices(decision)] == [Phase.ESCALATED]


@pytest.mark.parametrize("status", [S.SUBMITTED, S.RUNNING, S.LOST])
def test_an_exit_that_an_agent_tells_of_is_a_reason_to_ask_ecs_and_nothing_more(status: JobStatus) -> None:
    """It says neither who ended the rank nor that its GPUs are free: the next look is soon, however many ranks end."""
    record = MAKE[status]()
    event = events.RankExited(at=NOW, attempt=1, instance_id=IDS[0], sentence="it has ended with code 1")
    decision = tell(replace(record, commands=()), event)
    soon = decision.record
    assert soon.status is status and takes_nothing(decision) and not decision.commands
    assert record.look_at is not None and soon.look_at is not None and soon.look_at < record.look_at
    assert tell(soon, event).outcome is EventOutcome.IGNORED
    look = events.JobLookDue(at=soon.look_at, attempt=1, look_at=soon.look_at)
    assert orders(tell(soon, look, now=soon.look_at), commands.ObserveAttempt) == [commands.ObserveAttempt(1)]


@pytest.mark.parametrize("status", [one for one in S if one not in (S.SUBMITTED, S.RUNNING, S.LOST)])
def test_an_exit_is_no_news_where_no_attempt_runs(status: JobStatus) -> None:
    """The end of each rank is awaited, or over."""
    record = MAKE[status]()
    event = events.RankExited(at=NOW, attempt=record.attempt, instance_id=IDS[0], sentence="it has ended")
    assert tell(record, event).outcome is EventOutcome.IGNORED


# -- the gaps of seed 000's server -------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [one for one in S if one not in (S.RUNNING, S.LOST)])
def test_gap_1_a_heartbeat_in_flight_revives_nothing_that_has_ended(status: JobStatus) -> None:
    """Neither what has finished or failed, nor what is being stopped, checked or relaunched."""
    record = MAKE[status]()
    decision = tell(record, rank_heard(record, 0, later(900)), now=later(900))
    assert decision.record is record and decision.outcome is EventOutcome.IGNORED


def test_gap_2_a_late_exit_of_one_attempt_does_not_touch_the_next() -> None:
    """Attempt and epoch fence every fact."""
    second = applied(
        tell(
            applied(tell(placed(replace(running(), status=S.RECOVERING)), events.AttemptLaunched(at=NOW, attempt=2))),
            events.AllRanksRunning(at=NOW, attempt=2),
        )
    )
    for event in (
        events.RankExited(at=NOW, attempt=1, instance_id=IDS[0], sentence="it has ended with code 1"),
        events.RankFailed(at=NOW, attempt=1, failure=failure(EndingKind.FAILED)),
        events.AllRanksStopped(at=NOW, attempt=1),
    ):
        assert tell(second, event).outcome is EventOutcome.OUTDATED


@POLICY
@pytest.mark.parametrize("dead", [DEAD, {}], ids=["dead", "alive"])
def test_gap_3_a_lost_job_never_waits_for_an_administrator(policy: Any, dead: dict[str, str]) -> None:
    """It has a deadline and a look from the first moment, and the deadline leads out of it."""
    record = lost(policy)
    assert record.deadline_at is not None and record.look_at is not None
    assert overdue(record, policy, dead=dead).record.status in (S.RUNNING, S.STOPPING)


def test_gap_4_a_silence_gives_no_gpu_back() -> None:
    """Whatever the silence comes to, the claims go only when every end is confirmed."""
    record = lost()
    decision = overdue(record, dead=DEAD)
    assert not orders(decision, commands.ReleaseInstances)
    forced = tell(decision.record, events.CancelRequested(at=later(1_000), attempt=1, by="ada", force=True))
    assert not orders(forced, commands.ReleaseInstances)


BEATS = st.lists(
    st.tuples(st.sampled_from(("silent", "heard", "again")), st.integers(0, 1), st.integers(0, 99)), max_size=30
)


# -- whatever the order ------------------------------------------------------------------------------------------------


@given(beats=BEATS, policy=st.sampled_from((*POLICIES, OBSERVING)))
def test_a_job_whose_every_rank_is_heard_ends_up_running(beats: list[tuple[str, int, int]], policy: Any) -> None:
    """Silences and heartbeats in any order, delivered late and twice: the last heartbeat of each rank decides."""
    record, told, second = running(policy), [], 0
    for kind, which, pick in beats:
        second += 10
        if kind == "again":
            event = told[pick % len(told)] if told else rank_silent(record, which)
        elif kind == "silent":
            event = rank_silent(record, which, later(max(0, second - pick % 30)), later(second))
        else:
            event = rank_heard(record, which, later(max(1, second - pick % 30)))
        told.append(event)
        decision = tell(record, event, policy, later(second))
        assert takes_nothing(decision)
        record = decision.record
        assert (record.status is S.LOST) == bool(record.silent)
        assert record.status in (S.RUNNING, S.LOST) and (record.incident_id is None) == (record.status is S.RUNNING)
    for which in (0, 1):
        second += 10
        record = tell(record, rank_heard(record, which, later(second)), policy, later(second)).record
    assert record.status is S.RUNNING and record.silent == ()
    for event in told:
        assert tell(record, event, policy, later(second + 1)).record is record


@pytest.mark.parametrize("event", [events.RankSilent, events.RankHeard, events.RankExited])
def test_no_heartbeat_leads_out_of_an_end(event: type) -> None:
    """By the table: whatever the function behind a row would say."""
    for status in (*TERMINAL, S.STOPPING, S.DIAGNOSING, S.RECOVERING):
        assert (status, event) not in state_machine.TRANSITIONS
