"""What is remembered of an instance: each signal at its moment, for 28 days; and what the ladder makes of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.health_signals import Ec2InstanceState, HealthKind, HealthStatus
from gpu_recovery.core.instance.escalation import escalated
from gpu_recovery.core.instance.fault_history import EACH_MAX, HISTORY_MAX, percent, score_sentence, signal_at
from gpu_recovery.core.instance.lemons import LemonSignal, Signal
from gpu_recovery.core.instance.record import Instance, InstanceStatus, RepairLevel, RepairNeed
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.state_machine import DecisionContext
from gpu_recovery.core.task import EndingKind

from tests.core.build import (
    ADAPTIVE,
    CLASSIC,
    FLEET,
    IDS,
    NOW,
    SPEC,
    applied,
    available,
    check_request,
    checking,
    claimed,
    failure,
    later,
    observed,
    orders,
    placed,
    queued,
    rebooting,
    stopping,
    tell,
    verdict_of,
    verifying,
)

K, S = LemonSignal, InstanceStatus
HEALTHY, REBOOT, REPLACE = CheckOutcome.HEALTHY, CheckOutcome.REBOOT, CheckOutcome.REPLACE
REPLACING = replace(ADAPTIVE, replace=True)
DAY_S = 86_400


def kinds(record: Instance) -> list[LemonSignal]:
    """What is remembered, in order of time."""
    return [one.kind for one in record.past]


def xid(sentence: str = "XID 79 on GPU-a", at_s: int = 0, kind: HealthKind = HealthKind.NODE_AGENT, **more: Any) -> Any:
    """A watcher finds the GPUs impaired."""
    at = later(at_s)
    return events.HealthReported(at=at, kind=kind, status=HealthStatus.IMPAIRED, since=at, sentence=sentence, **more)


def past(kind: LemonSignal, *days: float) -> tuple[Signal, ...]:
    """That signal, so many days ago each."""
    return tuple(signal_at(NOW - timedelta(days=one), kind) for one in days)


# -- each at its moment ------------------------------------------------------------------------------------------------


def test_of_a_machine_that_only_works_nothing_is_remembered() -> None:
    """It registers, is checked for a job and passes: nothing of that speaks against it."""
    record = checking()
    assert kinds(applied(tell(record, verdict_of(record, HEALTHY)))) == []


def test_a_repair_is_remembered_when_it_begins_and_once_until_it_ends() -> None:
    """However often it is looked at; with the failure that the check has put down to the machine."""
    record = rebooting()
    assert kinds(record) == [K.GANG_FAILED, K.OUT]
    back = verifying()
    ended = applied(tell(back, verdict_of(back, HEALTHY, "boot-2", later(60)), now=later(600)))
    assert (ended.status, kinds(ended)) == (S.AVAILABLE, [K.GANG_FAILED, K.OUT])


def test_a_repair_that_is_held_back_is_none_yet() -> None:
    """The brakes have let nothing begin."""
    full = Fleet(gpu_instances=5, repairing=frozenset({"i-other"}))
    record = checking()
    held = applied(tell(record, verdict_of(record, REBOOT), fleet=full))
    assert held.held is not None
    assert kinds(held) == [K.GANG_FAILED]


def test_a_repair_that_never_began_is_taken_back() -> None:
    """Looked at once more before it was ordered, it might not begin after all."""
    record = rebooting()
    event = events.RepairHeld(at=later(5), epoch=record.epoch, sentence="it is paused")
    assert kinds(applied(tell(record, event, now=later(5)))) == [K.GANG_FAILED]


def test_a_reboot_that_does_not_bring_it_back_is_still_one_repair() -> None:
    """It goes on to another machine, for which somebody is asked."""
    record = rebooting(REPLACING)
    assert record.deadline_at is not None
    event = events.InstanceDeadlineReached(at=record.deadline_at, deadline_at=record.deadline_at)
    after = applied(tell(record, event, REPLACING, record.deadline_at))
    assert (after.status, kinds(after)) == (S.REPLACING, [K.GANG_FAILED, K.OUT, K.TICKET])


@pytest.mark.parametrize("policy", [ADAPTIVE, REPLACING])
def test_another_machine_or_a_person_is_asked_for_once(policy: RecoveryPolicy) -> None:
    """Whether we may replace it or a person must."""
    record = checking(policy)
    after = applied(tell(record, verdict_of(record, REPLACE), policy))
    assert kinds(after).count(K.TICKET) == 1
    if policy is REPLACING:
        refused = events.RepairRefused(at=later(9), epoch=after.epoch, sentence="EC2 will not")
        after = applied(tell(after, refused, policy, later(9)))
    assert (after.status, kinds(after).count(K.TICKET)) == (S.QUARANTINED, 1)


def test_a_person_who_takes_a_machine_out_may_only_guess() -> None:
    """Unless something is said against it."""
    order = events.QuarantineRequested(at=later(1), by="ada")
    assert kinds(applied(tell(available(), order, now=later(1)))) == [K.LEFT_OUT]
    impaired = replace(applied(tell(available(), xid("no answer"))), status_at=NOW)
    assert kinds(applied(tell(impaired, replace(order, at=later(2)), now=later(2)))) == [K.TICKET]


def test_an_xid_is_remembered_whoever_tells_of_it_first() -> None:
    """By its number, or in the words of the node's agent; and so is one that was logged before a boot."""
    for event in (xid(), xid("", kind=HealthKind.ACCELERATED_COMPUTE, xid=79)):
        assert kinds(applied(tell(available(), event))) == [K.XID]
    booted = events.InstanceBooted(
        at=NOW, boot_id="boot-9", booted_at=NOW, sentence="logged before this boot: XID 79 on GPU-a"
    )
    assert kinds(applied(tell(available(), booted))) == [K.XID]


@pytest.mark.parametrize("sentence", ["XID 13 on GPU-a", "SXid 79 of an NVSwitch", "a GPU does not answer", ""])
def test_what_is_no_xid_of_the_machines_is_not(sentence: str) -> None:
    """13 is the program's doing; other words are remembered by what is done about them."""
    assert kinds(applied(tell(available(), xid(sentence)))) == []


def test_what_a_fault_writes_within_an_hour_is_the_same_fault() -> None:
    """Two watchers tell of it, and the driver goes on writing."""
    record = applied(tell(available(), xid()))
    record = applied(tell(record, xid(kind=HealthKind.ACCELERATED_COMPUTE, at_s=60), now=later(60)))
    record = applied(tell(record, xid("XID 48 on GPU-b", at_s=3_599), now=later(3_599)))
    assert kinds(record) == [K.XID]
    assert kinds(applied(tell(record, xid(at_s=3_600), now=later(3_600)))) == [K.XID, K.XID]


def request_after(first: EndingKind, nodes: int = 2, own_ends: int = 1) -> events.CheckRequested:
    """The check that a job of so many instances wants, after rank 0 ended like that."""
    record = placed(queued(spec=replace(SPEC, nnodes=nodes)), ids=IDS[:nodes])
    for event in (events.AttemptLaunched(at=NOW, attempt=1), events.AllRanksRunning(at=NOW, attempt=1)):
        record = applied(tell(record, event))
    record = stopping(failure(first), record=record)
    ended = events.AllRanksStopped(at=NOW, attempt=1, failure=record.failure, own_ends=own_ends)
    (check,) = orders(tell(record, ended), commands.CheckInstances)
    request: events.CheckRequested = check.request
    return request


def test_where_a_gang_ends_first_that_is_remembered_at_once_and_elsewhere_not() -> None:
    """A crash of one rank, the others being stopped for it; the check of its machine adds nothing to that."""
    request = request_after(EndingKind.CRASHED)
    first = applied(tell(claimed(), request))
    assert kinds(first) == [K.GANG_FAILED]
    assert kinds(applied(tell(first, verdict_of(first, REBOOT)))) == [K.GANG_FAILED, K.OUT]
    other = applied(tell(replace(claimed(), instance_id=IDS[1]), request))
    assert kinds(other) == []
    assert kinds(applied(tell(other, verdict_of(other, REBOOT)))) == [K.GANG_FAILED, K.OUT]


def test_a_job_on_one_machine_alone_blames_that_alone() -> None:
    """Nobody else can have been it."""
    assert kinds(applied(tell(claimed(), request_after(EndingKind.CRASHED, nodes=1)))) == [K.ALONE_FAILED]
    record = applied(tell(claimed(), replace(check_request(), alone=True)))
    assert kinds(applied(tell(record, verdict_of(record, REBOOT)))) == [K.ALONE_FAILED, K.OUT]


@pytest.mark.parametrize(("ending", "own_ends"), [(EndingKind.FAILED, 1), (EndingKind.CRASHED, 2)])
def test_an_error_of_the_program_and_a_gang_that_ends_together_speak_against_nobody(
    ending: EndingKind, own_ends: int
) -> None:
    """An exit by itself would come again anywhere; after a time-out of a collective all end, and nobody first."""
    request = request_after(ending, own_ends=own_ends)
    assert request.first == ""
    assert kinds(applied(tell(claimed(), request))) == []


def test_a_failure_is_remembered_even_of_a_machine_that_cannot_be_checked_now() -> None:
    """It is being repaired for somebody else; asked twice, it is one failure."""
    request = replace(check_request(job_id="other"), first=IDS[0])
    asked = applied(tell(rebooting(), request))
    assert kinds(asked) == [K.GANG_FAILED, K.OUT, K.GANG_FAILED]
    assert tell(asked, request).record.past == asked.past


# -- how long, and how much --------------------------------------------------------------------------------------------


def test_what_is_older_than_28_days_is_forgotten_when_something_is_noted() -> None:
    """Nothing is written for forgetting alone."""
    record = available(past=(*past(K.OUT, 29, 28), *past(K.TICKET, 27.9)))
    assert applied(tell(record, observed(2))).past == record.past
    assert kinds(applied(tell(record, xid()))) == [K.TICKET, K.XID]


def test_of_each_signal_the_newest_are_kept_so_that_none_crowds_out_another() -> None:
    """A fault that writes XIDs for days leaves the repairs in the record."""
    record = available(past=(*past(K.OUT, 20), *past(K.XID, *range(19, 1, -1))))
    after = applied(tell(record, xid()))
    assert kinds(after) == [K.OUT, *[K.XID] * EACH_MAX]
    assert after.past[-1].at_s == NOW.timestamp()


def test_the_list_is_bounded_whoever_has_added_to_it() -> None:
    """Those who give claims back only add; the next decision shortens it."""
    record = available(past=past(K.LEFT_OUT, *[1.0] * (HISTORY_MAX + 1)))
    assert len(applied(tell(record, observed(2))).past) == EACH_MAX


def test_under_another_host_nothing_is_remembered() -> None:
    """Stopped and started, the machine has left the GPUs that all that was about."""
    record = checking(REPLACING, past=past(K.TICKET, 3, 2))
    record = applied(tell(record, verdict_of(record, REPLACE), REPLACING))
    off = events.MachineSeen(at=later(60), state=Ec2InstanceState.STOPPED)
    record = applied(tell(record, off, REPLACING, later(60)))
    record = applied(tell(record, observed(2, agent_connected=False), REPLACING, later(90)))
    record = applied(tell(record, observed(3), REPLACING, later(300)))
    back = applied(tell(record, verdict_of(record, HEALTHY, "boot-2", later(200)), REPLACING, later(600)))
    assert (back.status, back.replaced_at, back.past) == (S.AVAILABLE, later(600), ())


# -- what the ladder makes of it ---------------------------------------------------------------------------------------

LEMON = (*past(K.OUT, 9, 6, 3), *past(K.XID, 6, 3))


def blamed(policy: RecoveryPolicy, signals: tuple[Signal, ...] = LEMON) -> Instance:
    """An instance with that past whose check asks for a reboot."""
    record = checking(policy, past=signals)
    after: Instance = applied(tell(record, verdict_of(record, REBOOT), policy))
    return after


def test_two_repairs_within_a_week_are_about_half_a_lemon() -> None:
    """What the page about thresholds says; the score of one that is fresh, and of one that is fading."""
    assert percent(past(K.OUT, 0), NOW) == 33
    assert percent((*past(K.OUT, 6, 1), *past(K.GANG_FAILED, 6, 1), *past(K.XID, 6, 1)), NOW) == 51
    assert percent(past(K.OUT, 14), NOW) == 17


def test_a_lemon_is_replaced_instead_of_being_rebooted_once_more() -> None:
    """From the threshold on, and the reason says what the score is made of."""
    score = percent(LEMON, NOW)
    at, above = (blamed(replace(REPLACING, lemon_replace=one)) for one in (score, score + 1))
    assert (at.status, above.status) == (S.REPLACING, S.REBOOTING)
    assert f"its lemon score is {score} %: 3 times under repair and 2 XIDs in 28 days" in at.reason


def test_where_nothing_may_be_replaced_a_lemon_goes_to_a_person() -> None:
    """It is not rebooted either."""
    after = blamed(replace(ADAPTIVE, lemon_replace=30))
    assert after.status is S.QUARANTINED and after.needs_operator
    assert "3 times under repair and 2 XIDs in 28 days" in after.reason


def test_the_brakes_hold_back_the_replacement_of_a_lemon() -> None:
    """It goes through the one door."""
    policy = replace(REPLACING, lemon_replace=30)
    record = checking(policy, past=LEMON)
    full = replace(FLEET, gpu_instances=5, repairing=frozenset({"i-other"}))
    held = applied(tell(record, verdict_of(record, REBOOT), policy, NOW, full))
    assert (held.status, held.held is not None) == (S.QUARANTINED, True)


def test_a_reboot_that_is_to_end_a_rank_is_ordered_of_any_machine() -> None:
    """It is no cure."""
    policy = replace(REPLACING, lemon_replace=1)
    stuck = events.RepairRequested(at=NOW, job_id="sft-1", attempt=1, sentence="a rank cannot be stopped")
    assert applied(tell(claimed(past=LEMON), stuck, policy)).status is S.REBOOTING


@pytest.mark.parametrize("policy", [ADAPTIVE, CLASSIC], ids=["adaptive", "classic"])
def test_as_it_comes_no_past_keeps_a_machine_from_its_reboot(policy: RecoveryPolicy) -> None:
    """The threshold is off: no score is a hundred, whatever a machine has done."""
    worst = tuple(one for kind in LemonSignal for one in past(kind, *[0.0] * EACH_MAX))
    assert percent(worst, NOW) < policy.lemon_replace
    assert blamed(policy, worst).status is S.REBOOTING


def test_the_score_is_said_in_words() -> None:
    """One and many of each; what is too old is not told."""
    signals = (*past(K.OUT, 1), *past(K.XID, 40, 2, 1), *past(K.LEFT_OUT, 3))
    assert score_sentence(signals, NOW) == "1 time under repair, 2 XIDs and 1 time left out in 28 days"
    assert score_sentence((), NOW) == score_sentence(past(K.XID, 29), NOW) == ""


def test_times_under_repair_and_reboots_have_words_of_their_own() -> None:
    """A reboot that does not show, and the replacement after it: one time under repair, two requests to EC2."""
    record = applied(tell(checking(REPLACING), verdict_of(checking(REPLACING), REBOOT), REPLACING))
    due = events.InstanceDeadlineReached(at=record.deadline_at, deadline_at=record.deadline_at)
    record = applied(tell(record, due, REPLACING, record.deadline_at))
    assert record.status is S.REPLACING and len(record.reboots) == 2
    assert score_sentence(record.past, due.at).startswith("1 time under repair")
    evidence = escalated(record, RepairNeed(RepairLevel.REBOOT, "XID 79", due.at), DecisionContext(REPLACING, due.at))
    assert "it was rebooted or replaced 2 time(s)" in evidence.evidence
