"""Idle checks of an instance: when they begin, how they give way, and what their ends prove."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.health_check import CheckOutcome, Verdict
from gpu_recovery.core.health_signals import HealthKind, HealthStatus
from gpu_recovery.core.instance.fault_signs import SENTENCE_MAX, with_idle_check
from gpu_recovery.core.instance.idle_check import gpus_after_idle_check, has_passed, passed_before
from gpu_recovery.core.instance.lemons import LemonSignal, Signal
from gpu_recovery.core.instance.record import Claim, Instance, InstanceStatus
from gpu_recovery.core.state_machine import EventOutcome

from tests.core.build import ADAPTIVE, NOW, applied, available, check_request, later, orders, overdue, tell

HOUR_S = 3_600
POLICY = replace(ADAPTIVE, idle_check_every_s=HOUR_S)
DUE = events.IdleCheckDue(at=later(HOUR_S))


def begun(task_id: str = "task-1", **fields: Any) -> Instance:
    """An instance under its idle check."""
    record = applied(tell(available(**fields), DUE, POLICY, DUE.at))
    return replace(record, check=replace(record.check, task_id=task_id), commands=())


def preempt(record: Instance, seconds: int = HOUR_S + 60) -> Any:
    """What the instance decides when the scheduler wants it for sft-9."""
    assert record.check is not None
    event = events.IdleCheckPreempted(at=later(seconds), check_id=record.check.check_id, job_id="sft-9")
    return tell(record, event, POLICY, event.at)


def end(record: Instance, outcome: CheckOutcome, seconds: int = HOUR_S + 90) -> Any:
    """What the instance decides when its check ends."""
    assert record.check is not None
    verdict = Verdict(outcome, "so it is", "boot-1")
    event = events.CheckEnded(at=later(seconds), check_id=record.check.check_id, verdict=verdict)
    return tell(record, event, POLICY, event.at)


# -- beginning ---------------------------------------------------------------------------------------------------------


def test_an_idle_check_begins_after_the_period_and_has_the_time_of_its_level() -> None:
    """Level 3 takes 45 minutes, more than the timeout of the checks of the deployment."""
    assert tell(available(), events.IdleCheckDue(at=later(HOUR_S - 1)), POLICY, later(HOUR_S - 1)).outcome == "IGNORED"
    decision = tell(available(), DUE, POLICY, DUE.at)
    record = applied(decision)
    assert record.status is InstanceStatus.CHECKING and record.check.level == 3 and record.check.idle is not None
    assert orders(decision, commands.RunCheck) and record.check.since == NOW
    assert record.deadline_at == DUE.at + timedelta(seconds=2_700 + 180)


@pytest.mark.parametrize(
    ("policy", "fields"),
    [
        (ADAPTIVE, {}),
        (replace(POLICY, observe_only=True), {}),
        (POLICY, {"claims": {"sft-1": Claim(1, 4)}}),
        (POLICY, {"reserved_for": "sft-1"}),
        (POLICY, {"gpus_free": 7}),
        (POLICY, {"gpus": 0}),
        (POLICY, {"agent_connected": False}),
        (POLICY, {"ecs_status": "DRAINING"}),
        (POLICY, {"silent_since": NOW}),
    ],
    ids=["off", "observe-only", "claimed", "reserved", "a task", "no GPUs", "disconnected", "drained", "silent"],
)
def test_no_idle_check_begins_on_an_instance_that_is_not_idle(policy: Any, fields: dict[str, Any]) -> None:
    """It is checked again on the record itself: the listing of the reconciler may be late."""
    decision = tell(available(**fields), DUE, policy, DUE.at)
    assert decision.outcome is EventOutcome.IGNORED and not decision.commands


def test_the_same_event_begins_no_second_check() -> None:
    """After the check has ended, a repeated event comes less than a period after it."""
    record = applied(end(begun(), CheckOutcome.HEALTHY))
    assert record.status is InstanceStatus.AVAILABLE
    assert tell(record, DUE, POLICY, later(HOUR_S + 100)).outcome is EventOutcome.IGNORED


# -- giving way --------------------------------------------------------------------------------------------------------


def test_a_check_that_gives_way_holds_its_instance_until_its_end_is_confirmed() -> None:
    """The task is stopped at once, and the instance stays CHECKING. A second order changes nothing."""
    decision = preempt(begun())
    record = applied(decision)
    assert orders(decision, commands.StopCheck) == [commands.StopCheck(record.check.check_id, "task-1", True)]
    assert record.status is InstanceStatus.CHECKING and record.check.idle.preempted_by == "sft-9"
    assert preempt(record).outcome is EventOutcome.IGNORED
    other = events.IdleCheckPreempted(at=DUE.at, check_id="check/i-0a1/99", job_id="sft-9")
    assert tell(begun(), other, POLICY, DUE.at).outcome is EventOutcome.OUTDATED


@pytest.mark.parametrize("failed_before", [False, True])
def test_a_stopped_check_proves_nothing(failed_before: bool) -> None:
    """Neither a pass nor a fault: no signal, no blame, no message, and earlier results stay."""
    record = begun()
    if failed_before:
        record = applied(end(record, CheckOutcome.HEALTHY))
        again = events.IdleCheckDue(at=later(3 * HOUR_S))
        record = replace(applied(tell(record, again, POLICY, again.at)), commands=())
    before = record.idle_check
    decision = end(applied(preempt(record)), CheckOutcome.INCONCLUSIVE)
    after = applied(decision)
    assert after.status is InstanceStatus.AVAILABLE and "proves nothing" in after.reason
    assert after.blamed_at is None and not after.past and not orders(decision, commands.NotifyOperator)
    assert after.idle_check is not None and after.idle_check.outcome == "" and after.idle_check.failed_level == 0
    assert (before.passed_at if before else None) == after.idle_check.passed_at


def test_a_report_about_the_gpus_during_a_stopped_check_is_handled_later() -> None:
    """No check has examined the GPUs, so the report leads to a check of its own."""
    report = events.HealthReported(
        at=later(HOUR_S + 30),
        kind=HealthKind.NODE_AGENT,
        status=HealthStatus.IMPAIRED,
        since=later(HOUR_S + 30),
        sentence="XID 79",
    )
    record = applied(preempt(applied(tell(begun(), report, POLICY, report.at))))
    record = applied(end(record, CheckOutcome.INCONCLUSIVE))
    assert record.status is InstanceStatus.AVAILABLE and record.deadline_at is not None
    assert applied(overdue(record, POLICY)).status is InstanceStatus.CHECKING


@pytest.mark.parametrize("outcome", [CheckOutcome.HEALTHY, CheckOutcome.REBOOT])
def test_a_verdict_from_before_the_stop_counts(outcome: CheckOutcome) -> None:
    """The check had reached its end when the order came."""
    after = applied(end(applied(preempt(begun())), outcome))
    expected = InstanceStatus.AVAILABLE if outcome is CheckOutcome.HEALTHY else InstanceStatus.REBOOTING
    assert after.status is expected and after.idle_check.outcome == outcome


def test_a_poll_of_a_stopping_check_repeats_the_stop_while_the_task_runs() -> None:
    """The task may have started after the first order; else ECS is asked for the end."""
    record = replace(applied(preempt(begun())), commands=())
    for runs, kind in ((True, commands.StopCheck), (False, commands.ObserveCheck)):
        look = events.InstanceLookDue(at=record.look_at, look_at=record.look_at, check_runs=runs)
        decision = tell(record, look, POLICY, record.look_at)
        assert [type(one.command) for one in decision.commands] == [kind]
        assert decision.record.look_at == record.look_at + timedelta(seconds=30)


def test_a_job_that_failed_there_replaces_the_idle_check() -> None:
    """The check of the job stops the idle check, and decides for the job."""
    decision = tell(begun(), check_request(), POLICY, later(HOUR_S + 60))
    record = applied(decision)
    assert record.check.idle is None and record.check.job_id == "sft-1" and orders(decision, commands.StopCheck)


# -- results -----------------------------------------------------------------------------------------------------------


def test_a_fault_takes_the_way_of_every_repair_and_its_cure_is_proved_at_the_same_level() -> None:
    """The evidence names the idle check; the check after the reboot has its level, and a pass there ends it."""
    record = applied(end(begun(), CheckOutcome.REBOOT))
    assert record.status is InstanceStatus.REBOOTING and record.failed_level == 3
    assert "found by the idle check at level 3" in record.need.evidence and record.blamed_at is not None
    record = replace(record, commands=())
    boot = events.InstanceBooted(
        at=later(HOUR_S + 600), boot_id="boot-2", booted_at=later(HOUR_S + 500), ended={}, sentence=""
    )
    record = applied(tell(record, boot, POLICY, boot.at))
    assert record.status is InstanceStatus.VERIFYING and record.check.level == 3
    verdict = Verdict(CheckOutcome.HEALTHY, "well", "boot-2", later(HOUR_S + 500))
    passed = events.CheckEnded(at=later(HOUR_S + 4_000), check_id=record.check.check_id, verdict=verdict)
    record = applied(tell(record, passed, POLICY, passed.at))
    assert record.status is InstanceStatus.AVAILABLE and record.failed_level == 0


def test_a_passed_check_counts_for_a_day_and_until_later_evidence() -> None:
    """A failed job, a fault or another host ends it at once."""
    record = applied(end(begun(), CheckOutcome.HEALTHY))
    at = later(HOUR_S + 90)
    assert record.idle_check.level == 3 and record.idle_check.passed_at == at
    assert has_passed(record, at + timedelta(hours=23)) and not has_passed(record, at + timedelta(hours=24))
    soon = at + timedelta(minutes=5)
    failed = Signal(LemonSignal.GANG_FAILED, soon.timestamp())
    for later_evidence in ({"blamed_at": soon}, {"replaced_at": soon}, {"past": (failed,)}):
        assert not has_passed(replace(record, **later_evidence), soon)
    assert not has_passed(available(), soon)


def passed() -> tuple[Instance, datetime]:
    """An instance that has passed its idle check, and when."""
    return applied(end(begun(), CheckOutcome.HEALTHY)), later(HOUR_S + 90)


def test_a_pass_before_an_attempt_is_known_after_the_fault_that_ended_the_attempt() -> None:
    """What happened between the pass and the attempt ends it; what happened in the attempt does not."""
    record, at = passed()
    began = at + timedelta(hours=1)
    for seconds, known in ((-60, None), (60, at)):
        fault = began + timedelta(seconds=seconds)
        failed = Signal(LemonSignal.GANG_FAILED, fault.timestamp())
        for evidence in ({"blamed_at": fault}, {"replaced_at": fault}, {"healed_at": fault}, {"past": (failed,)}):
            assert passed_before(replace(record, **evidence), began) == known, evidence
            assert not has_passed(replace(record, **evidence), fault)


def test_a_pass_of_another_day_or_after_the_attempt_began_is_not_known() -> None:
    """The check of an idle instance after its job has left is no pass before the failure."""
    record, at = passed()
    assert passed_before(record, at) == at
    assert passed_before(record, at - timedelta(seconds=1)) is None
    assert passed_before(record, at + timedelta(hours=24)) is None
    assert passed_before(applied(end(begun(), CheckOutcome.INCONCLUSIVE)), at) is None


def test_a_stop_for_a_job_leaves_the_pass_before_it_known() -> None:
    """The stopped check proves nothing, for or against."""
    record, at = passed()
    again = events.IdleCheckDue(at=later(3 * HOUR_S))
    record = replace(applied(tell(record, again, POLICY, again.at)), commands=())
    record = applied(end(applied(preempt(record, 3 * HOUR_S + 60)), CheckOutcome.INCONCLUSIVE, 3 * HOUR_S + 90))
    assert record.idle_check.outcome == ""
    assert passed_before(record, later(4 * HOUR_S)) == at


def test_the_sign_of_a_fault_is_told_with_the_idle_check_before_it() -> None:
    """No sign is made of it, and a long sentence leaves it room."""
    record, at = passed()
    began = at + timedelta(minutes=90)
    note = "; it had passed an idle check at level 3, 1.5 h before the attempt"
    assert with_idle_check("XID 79", record, began) == f"XID 79{note}"
    assert with_idle_check("", record, began) == ""
    assert with_idle_check("XID 79", available(), began) == "XID 79"
    long = with_idle_check("x" * SENTENCE_MAX, record, began)
    assert long.endswith(note) and len(long) == SENTENCE_MAX


def test_a_wrong_configuration_is_told_once() -> None:
    """Each period finds it again; operators hear of it once."""
    first = end(begun(), CheckOutcome.CONFIGURATION)
    assert len(orders(first, commands.NotifyOperator)) == 1
    again = events.IdleCheckDue(at=later(3 * HOUR_S))
    record = replace(applied(tell(first.record, again, POLICY, again.at)), commands=())
    assert not orders(end(record, CheckOutcome.CONFIGURATION, 3 * HOUR_S + 60), commands.NotifyOperator)


# -- what the scheduler sees -------------------------------------------------------------------------------------------


def test_the_scheduler_counts_the_gpus_of_a_check_while_its_stop_is_expected() -> None:
    """Two minutes after the order the job gets other instances. After the end the GPUs show within a minute."""
    record = replace(begun(), gpus_free=0)
    assert gpus_after_idle_check(record, DUE.at) == (8, record.check.check_id)
    stopping = applied(preempt(record))
    assert gpus_after_idle_check(stopping, later(HOUR_S + 170)) == (8, "")
    assert gpus_after_idle_check(stopping, later(HOUR_S + 180)) == (0, "")
    ended = applied(end(stopping, CheckOutcome.INCONCLUSIVE, HOUR_S + 70))
    assert gpus_after_idle_check(ended, later(HOUR_S + 100)) == (8, "")
    assert gpus_after_idle_check(ended, later(HOUR_S + 130)) == (0, "")
    assert gpus_after_idle_check(replace(ended, gpus_free=8), later(HOUR_S + 100)) == (0, "")
    assert gpus_after_idle_check(replace(record, silent_since=NOW), DUE.at) == (0, "")
    assert gpus_after_idle_check(available(gpus_free=0), DUE.at) == (0, "")
