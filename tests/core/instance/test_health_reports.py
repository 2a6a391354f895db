"""Reports of health sources about an instance, and what each leads to."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.cluster_snapshot import is_usable
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.health_signals import HealthKind, HealthStatus
from gpu_recovery.core.instance.out_of_use import out_of_use
from gpu_recovery.core.instance.record import HealthReport, InstanceStatus
from gpu_recovery.core.state_machine import EventOutcome
from gpu_recovery.core.xid import XidClass, class_of

from tests.core.build import (
    ADAPTIVE,
    NOW,
    applied,
    available,
    check_request,
    checking,
    claimed,
    later,
    orders,
    overdue,
    tell,
    verdict_of,
    verifying,
)
from tests.core.instance.health_cases import IN_STATUS, PAUSED, health_report

S = InstanceStatus
IMPAIRED, OK, UNKNOWN = HealthStatus.IMPAIRED, HealthStatus.OK, HealthStatus.INSUFFICIENT_DATA
ON = replace(ADAPTIVE, replace=True)
LEADS_TO = {
    HealthKind.ACCELERATED_COMPUTE: S.CHECKING,
    HealthKind.SYSTEM_STATUS: S.REPLACING,
    HealthKind.INSTANCE_STATUS: S.REBOOTING,
    HealthKind.NODE_AGENT: S.CHECKING,
}


@pytest.mark.parametrize(("kind", "status", "where"), list(product(HealthKind, HealthStatus, InstanceStatus)))
def test_what_any_watcher_says_of_any_instance(kind: HealthKind, status: HealthStatus, where: InstanceStatus) -> None:
    """Only an impairment moves an instance, only one that works, and only to the rung that it asks for."""
    record = IN_STATUS[where]()
    decision = tell(record, health_report(kind, status), ON)
    if where is S.GONE:
        assert decision.outcome is EventOutcome.IGNORED
        return
    moves = where is S.AVAILABLE and status is IMPAIRED
    assert decision.record.status is (LEADS_TO.get(kind, where) if moves else where)
    assert (decision.record.health[kind].status, decision.record.health[kind].since) == (status, NOW)
    if not moves:
        assert decision.reason == record.reason
        assert not orders(decision, commands.TellJob) and not orders(decision, commands.RunCheck)


def test_a_watchers_words_are_ordered_by_when_they_were_said() -> None:
    """Events come in any order, and twice; watchers do not wait for each other."""
    record = applied(tell(available(), health_report(HealthKind.DAEMON, OK, later(10))))
    for since in (later(9), later(10)):
        assert tell(record, health_report(HealthKind.DAEMON, IMPAIRED, since)).outcome is EventOutcome.OUTDATED
    assert tell(record, health_report(HealthKind.CONTAINER_RUNTIME, IMPAIRED, NOW)).outcome is EventOutcome.APPLIED
    assert tell(record, health_report(HealthKind.DAEMON, IMPAIRED, later(11))).record.avoid_reason


@pytest.mark.parametrize("unsure", [UNKNOWN, HealthStatus.INITIALIZING])
def test_a_watcher_that_cannot_tell_takes_nothing_back(unsure: HealthStatus) -> None:
    """INSUFFICIENT_DATA is not OK: suspicion stays until somebody says that all is well."""
    record = applied(tell(available(), health_report(HealthKind.DAEMON)))
    vague = tell(record, health_report(HealthKind.DAEMON, unsure, later(1)))
    assert "DAEMON is IMPAIRED" in vague.record.avoid_reason and not orders(vague, commands.PokeScheduler)
    assert tell(vague.record, health_report(HealthKind.DAEMON, IMPAIRED, later(1))).outcome is EventOutcome.OUTDATED
    well = tell(vague.record, health_report(HealthKind.DAEMON, OK, later(2)))
    assert not well.record.avoid_reason and orders(well, commands.PokeScheduler)
    assert not tell(available(), health_report(HealthKind.DAEMON, unsure)).record.avoid_reason


@pytest.mark.parametrize(
    ("xid", "checked"),
    [(None, True), (79, True), (48, True), (54, True), (7, True), (31, False), (45, False), (43, False), (63, False)],
)
def test_an_xid_that_says_nothing_of_the_hardware_is_only_noted(xid: int | None, checked: bool) -> None:
    """An application's fault, one that follows another, one to watch: it stays in use, and nobody is told.

    What is unknown is looked at.
    """
    decision = tell(available(), health_report(HealthKind.ACCELERATED_COMPUTE, xid=xid))
    assert decision.record.status is (S.CHECKING if checked else S.AVAILABLE)
    harmless = (XidClass.APP, XidClass.IGNORE, XidClass.WATCH, XidClass.FOLLOW_OTHER)
    assert xid is None or (class_of(xid) in harmless) is not checked
    assert bool(decision.record.avoid_reason) is checked
    assert checked or not orders(decision, commands.NotifyOperator)
    assert checked or out_of_use(decision.record) is None


def test_a_grave_xid_behind_a_harmless_one_is_judged_by_what_it_says() -> None:
    """The status stays IMPAIRED, so its change has the old time; only the update is newer."""
    gpus = HealthKind.ACCELERATED_COMPUTE
    segfault = replace(health_report(gpus, xid=31), sentence="XID_31", updated_at=later(-30))
    lost = replace(segfault, sentence="XID_79", xid=79, updated_at=later(30))
    noted = applied(tell(available(), segfault))
    found = tell(noted, lost)
    assert (noted.status, found.record.status) == (S.AVAILABLE, S.CHECKING)
    assert tell(found.record, segfault).outcome is EventOutcome.OUTDATED
    assert tell(found.record, replace(lost, updated_at=later(60))).outcome is EventOutcome.OUTDATED
    both = replace(segfault, sentence="XID_31, XID_79")
    assert tell(available(), both).record.status is S.CHECKING


def test_a_passed_check_gives_the_instance_back_although_ecs_still_calls_its_gpus_impaired() -> None:
    """Described without a reason, or for a doubtful XID: our own check has examined the GPUs since."""
    asked = tell(available(), health_report(HealthKind.ACCELERATED_COMPUTE, xid=7)).record
    passed = tell(asked, verdict_of(asked, CheckOutcome.HEALTHY))
    assert passed.record.status is S.AVAILABLE and is_usable(passed.record)
    unsure = tell(asked, verdict_of(asked, CheckOutcome.INCONCLUSIVE))
    assert unsure.record.status is S.AVAILABLE and not is_usable(unsure.record)


def test_impaired_gpus_are_asked_beside_those_at_work() -> None:
    """The check reads what the machine has logged and takes no GPU; what it finds decides, not the watcher."""
    asked = tell(claimed(), health_report(HealthKind.ACCELERATED_COMPUTE))
    assert asked.record.status is S.CHECKING and asked.record.check.passive and orders(asked, commands.RunCheck)
    assert not orders(asked, commands.TellJob) and asked.record.claims == claimed().claims
    passed = tell(asked.record, verdict_of(asked.record, CheckOutcome.HEALTHY))
    assert passed.record.status is S.AVAILABLE and passed.record.avoid_reason and passed.record.claims
    blamed = tell(asked.record, verdict_of(asked.record, CheckOutcome.REBOOT))
    (told,) = orders(blamed, commands.TellJob)
    assert blamed.record.status is S.QUARANTINED and isinstance(told.event, events.InstanceNeedsRepair)
    assert not tell(available(), health_report(HealthKind.ACCELERATED_COMPUTE)).record.check.passive


@pytest.mark.parametrize("kind", [HealthKind.ACCELERATED_COMPUTE, HealthKind.NODE_AGENT])
@pytest.mark.parametrize("found", [CheckOutcome.HEALTHY, CheckOutcome.INCONCLUSIVE, CheckOutcome.CONFIGURATION])
def test_gpus_that_were_only_asked_beside_a_job_are_examined_when_the_job_has_ended(
    kind: HealthKind, found: CheckOutcome
) -> None:
    """A passive check cannot settle an impairment, such as a request to drain, and nothing new is placed meanwhile."""
    record = applied(tell(claimed(), health_report(kind)))
    record = applied(tell(record, verdict_of(record, found)))
    assert record.status is S.AVAILABLE and not is_usable(record) and record.deadline_at is not None
    waits = overdue(record)
    assert waits.record.status is S.AVAILABLE and not orders(waits, commands.RunCheck)
    assert waits.record.deadline_at is not None and waits.record.deadline_at > record.deadline_at
    examined = overdue(replace(waits.record, claims={}))
    assert examined.record.status is S.CHECKING and not examined.record.check.passive
    assert orders(examined, commands.RunCheck)
    record = applied(tell(examined.record, verdict_of(examined.record, CheckOutcome.INCONCLUSIVE)))
    assert record.status is S.AVAILABLE and not is_usable(record) and record.deadline_at is None  # once, not for ever
    blamed = tell(examined.record, verdict_of(examined.record, CheckOutcome.REBOOT))
    assert blamed.record.status is S.REBOOTING


def test_a_withdrawn_report_needs_no_examination() -> None:
    """The source says that all is well, so the instance works as before."""
    record = applied(tell(claimed(), health_report(HealthKind.NODE_AGENT)))
    record = applied(tell(record, verdict_of(record, CheckOutcome.INCONCLUSIVE)))
    record = applied(tell(record, health_report(HealthKind.NODE_AGENT, OK, later(60)), now=later(60)))
    record = applied(overdue(replace(record, claims={})))
    assert record.status is S.AVAILABLE and is_usable(record) and record.deadline_at is None


def test_a_check_beside_a_job_gives_way_to_the_jobs_own() -> None:
    """The job has failed meanwhile and wants the instance checked: by a whole check, and the other one is stopped."""
    record = applied(tell(claimed(), health_report(HealthKind.ACCELERATED_COMPUTE)))
    decision = tell(record, check_request())
    assert decision.record.status is S.CHECKING and decision.record.claims == {}
    assert not decision.record.check.passive and decision.record.check.job_id == "sft-1"
    assert orders(decision, commands.StopCheck) == [commands.StopCheck(record.check.check_id, signed=True)]


def test_a_check_beside_a_job_that_never_answers_blames_nobody() -> None:
    """It only reads logs, and the job goes on beside it."""
    record = applied(tell(claimed(), health_report(HealthKind.ACCELERATED_COMPUTE)))
    late = events.InstanceDeadlineReached(at=record.deadline_at, deadline_at=record.deadline_at)
    decision = tell(record, late, now=record.deadline_at)
    assert decision.record.status is S.AVAILABLE and decision.record.claims and orders(decision, commands.StopCheck)


@pytest.mark.parametrize("kind", [HealthKind.SYSTEM_STATUS, HealthKind.INSTANCE_STATUS])
def test_all_is_well_again_ends_the_hold_of_the_same_watcher_only(kind: HealthKind) -> None:
    """It must pass a check first; anybody else's word changes nothing."""
    record = applied(tell(available(), health_report(kind), ON, NOW, PAUSED))
    assert record.status is S.QUARANTINED
    for other in (one for one in HealthKind if one is not kind):
        assert tell(record, health_report(other, OK, later(1)), ON).record.status is S.QUARANTINED
    assert tell(record, health_report(kind, UNKNOWN, later(1)), ON).record.status is S.QUARANTINED
    well = tell(record, health_report(kind, OK, later(1)), ON)
    assert well.record.status is S.VERIFYING and not well.record.check.proof_needed
    assert tell(well.record, verdict_of(well.record, CheckOutcome.HEALTHY), ON).record.status is S.AVAILABLE
    sick = tell(well.record, verdict_of(well.record, CheckOutcome.REBOOT), ON)
    assert sick.record.status is S.QUARANTINED and sick.record.held is None


def test_a_word_taken_back_while_jobs_leave_is_not_acted_on_when_they_have_left() -> None:
    """Evidence that nobody stands by any more reboots nothing: the instance is only checked."""
    record = applied(tell(claimed(), health_report(HealthKind.INSTANCE_STATUS)))
    record = applied(tell(record, check_request("sft-9", 2)))
    record = applied(tell(record, health_report(HealthKind.INSTANCE_STATUS, OK, later(1))))
    look = events.InstanceLookDue(at=later(30), look_at=record.look_at)
    assert tell(record, look, now=later(30)).record.status is S.QUARANTINED
    decision = tell(replace(record, claims={}), look, now=later(30))
    assert decision.record.status is S.VERIFYING and not orders(decision, commands.RebootInstance)
    passed = tell(decision.record, verdict_of(decision.record, CheckOutcome.HEALTHY))
    assert [(one.job_id, one.event.healed) for one in orders(passed, commands.TellJob)] == [("sft-9", True)]


def test_a_machine_found_impaired_while_it_was_busy_is_thought_of_when_it_works_again() -> None:
    """No GPU check shows a failing host. The watcher has a while to take its word back, as after any reboot."""
    record = applied(tell(checking(), health_report(HealthKind.SYSTEM_STATUS)))
    works = applied(tell(record, verdict_of(record, CheckOutcome.HEALTHY)))
    assert works.status is S.AVAILABLE and works.deadline_at == later(ADAPTIVE.reboot_settle_s)
    assert overdue(works, ON).record.status is S.REPLACING
    well = applied(tell(works, health_report(HealthKind.SYSTEM_STATUS, OK, later(1))))
    calm = overdue(well, ON)
    assert calm.record.status is S.AVAILABLE


def test_a_proved_repair_forgets_what_watchers_on_the_machine_said_before_it() -> None:
    """They begin anew with its boot; if their OK is lost, a healed instance must not stay idle for ever."""
    impaired = {
        HealthKind.ACCELERATED_COMPUTE: HealthReport(IMPAIRED, NOW),
        HealthKind.SYSTEM_STATUS: HealthReport(IMPAIRED, NOW),
    }
    record = verifying(health=impaired)
    healed = applied(tell(record, verdict_of(record, CheckOutcome.HEALTHY, "boot-2")))
    assert healed.health[HealthKind.ACCELERATED_COMPUTE].status is UNKNOWN
    assert healed.health[HealthKind.SYSTEM_STATUS].status is IMPAIRED  # EC2 is asked each minute
    again = health_report(HealthKind.ACCELERATED_COMPUTE)
    assert tell(healed, again).outcome is EventOutcome.OUTDATED
