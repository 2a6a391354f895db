"""A weaker verdict never takes back a stronger one of the same incident: named faults, and verdicts that come late."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.health_check import CheckOutcome, Verdict
from gpu_recovery.core.health_signals import HealthKind, HealthStatus
from gpu_recovery.core.instance.record import Claim, Instance, InstanceStatus, RepairLevel
from gpu_recovery.core.state_machine import Decision, EventOutcome
from gpu_recovery.core.xid import XidClass, class_of

from tests.core.build import (
    ADAPTIVE,
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

S = InstanceStatus
AGENT, ECS = HealthKind.NODE_AGENT, HealthKind.ACCELERATED_COMPUTE
COULD_NOT_TELL = (CheckOutcome.CONFIGURATION, CheckOutcome.INCONCLUSIVE)
ON = replace(ADAPTIVE, replace=True)


def said(
    sentence: str, at_s: int = 10, kind: HealthKind = AGENT, status: HealthStatus = HealthStatus.IMPAIRED
) -> events.HealthReported:
    """A watcher's word, `at_s` after NOW."""
    at = later(at_s)
    return events.HealthReported(at=at, kind=kind, status=status, since=at, sentence=sentence)


def heard(record: Instance, *words: events.HealthReported, policy: Any = ADAPTIVE) -> Instance:
    for word in words:
        record = applied(tell(record, word, policy, word.at))
    return record


def ends(record: Instance, outcome: CheckOutcome, at_s: int = 60, policy: Any = ADAPTIVE) -> Decision[Instance]:
    """What is decided when the check under way ends."""
    return tell(record, verdict_of(record, outcome), policy, later(at_s))


def mails(decision: Decision[Instance]) -> list[str]:
    return [f"{one.subject}\n{one.body}" for one in orders(decision, commands.NotifyOperator)]


@pytest.mark.parametrize(
    ("sentence", "status"),
    [
        ("XID 79 on 0000:10:00", S.REBOOTING),
        ("XID 48 on GPU-1; GPU 0: 2 uncorrectable errors", S.REBOOTING),
        ("XID 54 on GPU-1", S.REPLACING),
        ("XID 79 on GPU-1; XID 54 on GPU-2", S.REPLACING),
        ("fatal SXid 24007 of an NVSwitch", S.REBOOTING),
        ("it has XID_79", S.REBOOTING),
        ("XID 159 on GPU-1, the driver asks for recovery action 1", S.REBOOTING),
        ("XID 154 on GPU-1, the driver asks for recovery action 2", S.REBOOTING),
        ("XID 154 on GPU-1, the driver asks for recovery action 3", S.AVAILABLE),
        ("XID 154 on GPU-1, the driver asks for recovery action 4 (a drain and a reset)", S.REBOOTING),
        ("XID 154 on GPU-1, the driver asks for recovery action 5 (a recovery of the IMEX domain)", S.AVAILABLE),
        ("XID 154 on GPU-1, the driver asks for recovery action 6 (a reset of the GPU's bus)", S.REBOOTING),
        ("XID 154 on GPU-1, the driver asks for recovery action 7 (a reboot of the system)", S.REBOOTING),
        ("XID 154 on GPU-1, the driver asks for recovery action 43 (not known here)", S.AVAILABLE),
        ("XID 159 on GPU-1", S.AVAILABLE),
        ("XID 31 on GPU-1, 2 times within a day", S.AVAILABLE),
        ("SXid 12020 of an NVSwitch", S.AVAILABLE),
        ("GPU 0: it is hot", S.AVAILABLE),
        ("", S.AVAILABLE),
    ],
)
@pytest.mark.parametrize("outcome", COULD_NOT_TELL)
@pytest.mark.parametrize("kind", [AGENT, ECS])
def test_a_check_that_could_not_tell_takes_no_sure_word_back(
    kind: HealthKind, outcome: CheckOutcome, sentence: str, status: InstanceStatus
) -> None:
    """What asks for a repair by its number is met; what asks for a look has had it."""
    record = heard(checking(ON), said(sentence, kind=kind), policy=ON)
    decision = ends(record, outcome, policy=ON)
    assert decision.record.status is status
    (report,) = orders(decision, commands.ReportCheck)
    repaired = status is not S.AVAILABLE
    assert report.repairing is repaired and (CheckOutcome(report.outcome) is outcome) is not repaired
    if repaired:
        assert sentence.split(";", maxsplit=1)[0] in decision.reason and str(outcome) in decision.reason
        assert decision.record.blamed_at == later(60) and not mails(decision)


@pytest.mark.parametrize("code", [*range(1, 175)])
def test_an_xid_is_sure_where_its_class_asks_for_a_repair(code: int) -> None:
    """By the list of the policy's profile, as everywhere."""
    decision = ends(heard(checking(ON), said(f"XID {code} on GPU-1"), policy=ON), CheckOutcome.INCONCLUSIVE, policy=ON)
    rungs = {XidClass.REBOOT: S.REBOOTING, XidClass.REPLACE: S.REPLACING}
    assert decision.record.status is rungs.get(class_of(code), S.AVAILABLE)


@pytest.mark.parametrize("outcome", [CheckOutcome.HEALTHY, CheckOutcome.REBOOT, CheckOutcome.REPLACE])
def test_a_check_that_could_tell_is_the_judge(outcome: CheckOutcome) -> None:
    """Healthy is in use again; what it blames the machine for is what is repaired."""
    decision = ends(heard(checking(ON), said("XID 79 on GPU-1"), policy=ON), outcome, policy=ON)
    expected = {CheckOutcome.REBOOT: S.REBOOTING, CheckOutcome.REPLACE: S.REPLACING}
    assert decision.record.status is expected.get(outcome, S.AVAILABLE)
    assert "could not tell" not in decision.reason


def test_a_later_word_that_names_no_error_takes_none_back() -> None:
    """The agent names an XID once, and then goes on to say that the GPU is lost."""
    record = heard(checking(), said("XID 79 on GPU-1", 10), said("GPU 0: it is lost", 25))
    assert ends(record, CheckOutcome.CONFIGURATION).record.status is S.REBOOTING
    graver = heard(checking(ON), said("XID 54 on GPU-1", 10), said("XID 79 on GPU-1", 25), policy=ON)
    assert ends(graver, CheckOutcome.INCONCLUSIVE, policy=ON).record.status is S.REPLACING
    unsure = heard(
        checking(), said("XID 79 on GPU-1", 10), said("NVML is off", 25, status=HealthStatus.INSUFFICIENT_DATA)
    )
    assert ends(unsure, CheckOutcome.INCONCLUSIVE).record.status is S.REBOOTING


def test_the_watcher_itself_takes_its_word_back() -> None:
    """Well again, and so does a proved repair: what was said before is over."""
    record = heard(checking(), said("XID 79 on GPU-1", 10), said("", 25, status=HealthStatus.OK))
    assert ends(record, CheckOutcome.INCONCLUSIVE).record.status is S.AVAILABLE
    healed = verifying(health=heard(available(), said("XID 79 on GPU-1", 1)).health)
    after = applied(tell(healed, verdict_of(healed, CheckOutcome.HEALTHY, "boot-2", later(5))))
    assert after.status is S.AVAILABLE and after.health[AGENT].fault is None


def test_what_was_said_before_the_attempt_is_of_another_incident() -> None:
    """A check that the attempt did not ask for goes by when it began itself."""
    old = heard(available(), said("XID 79 on GPU-1", 10)).health
    request = replace(check_request(), since=later(20), at=later(30))
    record = applied(tell(claimed(health=old), request, now=later(30)))
    assert ends(record, CheckOutcome.INCONCLUSIVE).record.status is S.AVAILABLE
    record = heard(record, said("XID 79 on GPU-1", 40))
    assert ends(record, CheckOutcome.INCONCLUSIVE).record.status is S.REBOOTING
    own = heard(available(), said("XID 79 on GPU-1", 10))
    assert own.status is S.CHECKING and ends(own, CheckOutcome.INCONCLUSIVE).record.status is S.REBOOTING
    stale = replace(own, status_at=later(10 + ADAPTIVE.evidence_stale_s + 1))
    assert ends(stale, CheckOutcome.INCONCLUSIVE, 9_000).record.status is S.AVAILABLE


def test_a_machine_that_has_booted_since_starts_anew() -> None:
    """Whoever rebooted it: the error was logged under another boot."""
    record = heard(checking(), said("XID 79 on GPU-1", 10))
    booted = events.InstanceBooted(at=later(30), boot_id="boot-9", booted_at=later(25))
    assert ends(applied(tell(record, booted, now=later(30))), CheckOutcome.INCONCLUSIVE).record.status is S.AVAILABLE


def test_beside_the_work_of_others_a_number_alone_decides_nothing() -> None:
    """The passive check has read the log and the driver, and waits for a diagnostic."""
    record = heard(claimed(), said("XID 48 on GPU-1", 10))
    assert record.check is not None and record.check.passive
    assert ends(record, CheckOutcome.INCONCLUSIVE).record.status is S.AVAILABLE
    assert ends(record, CheckOutcome.REBOOT).record.status is S.QUARANTINED  # held until the job has left


@pytest.mark.parametrize("outcome", COULD_NOT_TELL)
def test_for_a_job_whose_repairs_are_used_up_a_person_decides(outcome: CheckOutcome) -> None:
    """As where its check itself blames the machine."""
    record = heard(checking(may_reboot=False), said("XID 79 on GPU-1"))
    decision = ends(record, outcome)
    assert decision.record.needs_operator and "nothing more is repaired for sft-1" in decision.reason


def test_a_check_that_ecs_never_started_leaves_a_sure_word_to_a_person() -> None:
    """Somebody else holds the GPUs: nothing is rebooted under them, and the machine is not taken for a healthy one."""
    waiting = checking()
    assert waiting.check is not None
    refused = tuple(
        replace(one, refusals=1) if one.command == commands.RunCheck(waiting.check.check_id) else one
        for one in waiting.commands
    )
    waiting = replace(waiting, commands=refused)
    assert overdue(waiting).record.status is S.AVAILABLE
    decision = overdue(heard(waiting, said("XID 79 on GPU-1")))
    assert decision.record.needs_operator and "XID 79 on GPU-1" in decision.reason


@pytest.mark.parametrize("sentence", ["XID 159 on GPU-1", "GPU 0: it is lost"])
def test_no_two_mails_of_one_moment_contradict_each_other(sentence: str) -> None:
    """In use for what is set up wrongly, and not in use for what a watcher says: both are told, and why."""
    decision = ends(heard(checking(), said(sentence)), CheckOutcome.CONFIGURATION)
    assert decision.record.status is S.AVAILABLE and decision.record.avoid_reason
    told = mails(decision)
    assert len(told) == 2 and not any("stays in use" in one or "not to blame" in one for one in told)
    assert all("No new work is placed on it" in one and sentence in one for one in told)
    (alone,) = mails(ends(checking(), CheckOutcome.CONFIGURATION))
    assert "The instance stays in use" in alone


# -- the verdict of a check that another has superseded ----------------------------------------------------------------


def superseded() -> tuple[str, Instance]:
    """A machine whose own check has given way to that of the job whose rank has ended; and that check's id."""
    own = heard(claimed(), said("it is impaired", 1))
    assert own.check is not None
    own = replace(own, check=replace(own.check, task_id="task-1"))
    return own.check.check_id, applied(tell(own, check_request(), now=later(5)))


def late(check_id: str, outcome: CheckOutcome) -> events.CheckEnded:
    return events.CheckEnded(at=later(4), check_id=check_id, verdict=Verdict(outcome, f"it is {outcome}", "boot-1"))


@pytest.mark.parametrize(("outcome", "may_reboot"), list(product(CheckOutcome, [True, False])))
def test_a_verdict_against_the_machine_counts_also_when_another_check_has_begun(
    outcome: CheckOutcome, may_reboot: bool
) -> None:
    """Told in time it would have been acted on before the job asked; told late, it leads to the same."""
    own, record = superseded()
    assert record.check is not None and record.check.superseded_task_id == "task-1"
    record = replace(record, check=replace(record.check, may_reboot=may_reboot))
    decision = tell(record, late(own, outcome), ON, later(9))
    if not outcome.blames_hardware:
        assert decision.outcome is EventOutcome.OUTDATED and decision.record == record
        return
    expected = S.REPLACING if outcome is CheckOutcome.REPLACE else S.REBOOTING
    assert (decision.outcome, decision.record.status) == (EventOutcome.APPLIED, expected)
    assert orders(decision, commands.StopCheck) == [commands.StopCheck(record.check.check_id, signed=True)]
    (report,) = orders(decision, commands.ReportCheck)
    assert (report.job_id, report.outcome, report.repairing) == ("sft-1", outcome, True)
    assert tell(decision.record, late(own, outcome), ON, later(10)).outcome is not EventOutcome.APPLIED
    assert tell(decision.record, verdict_of(record, CheckOutcome.HEALTHY), ON).outcome is not EventOutcome.APPLIED


def test_only_the_check_that_was_superseded_is_heard() -> None:
    """None of another machine or of long ago, and none once the check that superseded it has ended."""
    own, record = superseded()
    for other in ("check/i-0a1/99", "check/i-0b2/1", ""):
        assert tell(record, late(other, CheckOutcome.REBOOT)).outcome is EventOutcome.OUTDATED
    assert tell(checking(), late("", CheckOutcome.REBOOT)).outcome is EventOutcome.OUTDATED
    after = applied(ends(record, CheckOutcome.HEALTHY))
    assert tell(after, late(own, CheckOutcome.REBOOT)).outcome is not EventOutcome.APPLIED


def test_a_late_verdict_waits_for_those_who_work_there() -> None:
    """Another job shares the machine: the repair is held until it has left, as it would have been."""
    own, record = superseded()
    record = replace(record, claims={"other": Claim(3, 4)})
    decision = tell(record, late(own, CheckOutcome.REBOOT), now=later(9))
    assert decision.record.status is S.QUARANTINED and decision.record.need is not None
    assert decision.record.need.rung is RepairLevel.REBOOT
    (told,) = orders(decision, commands.TellJob)
    assert told.job_id == "other" and decision.record.check is None
