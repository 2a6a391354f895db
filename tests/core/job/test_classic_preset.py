"""Seed 001, its three flows row by row, kept to its letter except where the letter hangs or lies."""

from __future__ import annotations

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.task import EndingKind

from tests.core.build import (
    CLASSIC,
    IDS,
    NOW,
    applied,
    checked,
    checking,
    diagnosing,
    failure,
    observed,
    orders,
    placed,
    rebooting,
    results,
    running,
    stopped,
    stopping,
    tell,
    verdict_of,
    verifying,
)

HEALTHY, REBOOT, REPLACE = CheckOutcome.HEALTHY, CheckOutcome.REBOOT, CheckOutcome.REPLACE
EXIT_ONE = failure(EndingKind.FAILED, 1)


def _second_run(first: Job | None = None) -> Job:
    """The job on its second run, after a reboot of its second instance."""
    record = first or applied(checked(diagnosing(EXIT_ONE, CLASSIC), results(HEALTHY, REBOOT), CLASSIC))
    healed = events.RepairEnded(at=NOW, attempt=1, instance_id=IDS[1], healed=True, sentence="it is back")
    return running(CLASSIC, applied(tell(record, healed, CLASSIC)))


# -- 1: a task fails ---------------------------------------------------------------------------------------------------


def test_exit_one_stops_the_gang_then_checks_every_instance() -> None:
    """Seed: stop the related tasks, run DCGM, status STOPPED. The checks wait until every rank's end is confirmed."""
    stop = tell(running(CLASSIC), events.RankFailed(at=NOW, attempt=1, failure=EXIT_ONE), CLASSIC)
    assert stop.record.status is JobStatus.STOPPING
    assert orders(stop, commands.StopAttempt) == [commands.StopAttempt(1)]
    assert not orders(stop, commands.CheckInstances)
    checks = tell(stop.record, events.AllRanksStopped(at=NOW, attempt=1, failure=EXIT_ONE), CLASSIC)
    assert checks.record.status is JobStatus.DIAGNOSING
    assert [order.attempt for order in orders(checks, commands.CheckInstances)] == [1]


def test_exit_zero_of_all_ranks_is_success() -> None:
    """Seed: complete. One rank's exit 0 is not the job's: only the end of all is."""
    decision = tell(running(CLASSIC), events.AllRanksStopped(at=NOW, attempt=1), CLASSIC)
    assert decision.record.status is JobStatus.SUCCEEDED


def test_a_persons_stop_cancels() -> None:
    """Seed: the status Other."""
    record = stopping(failure(EndingKind.STOPPED_BY_PERSON), CLASSIC)
    assert stopped(record, CLASSIC).status is JobStatus.CANCELED


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (EndingKind.FAILED, 2),
        (EndingKind.CRASHED, 137),
        (EndingKind.CRASHED, None),
        (EndingKind.NEVER_STARTED, None),
        (EndingKind.HOST_FAULT, None),
        (EndingKind.INTERRUPTED, None),
    ],
)
def test_any_other_failure_stops_the_gang_and_fails(kind: EndingKind, code: int | None) -> None:
    """Seed: no action, which would leave the other ranks hanging; so the gang is stopped and the job fails."""
    record = stopping(failure(kind, code), CLASSIC)
    assert record.status is JobStatus.STOPPING
    decision = tell(record, events.AllRanksStopped(at=NOW, attempt=1, failure=record.failure), CLASSIC)
    assert decision.record.status is JobStatus.FAILED
    assert orders(decision, commands.NotifyOperator)
    assert not orders(decision, commands.CheckInstances)


# -- 2: the check ends -------------------------------------------------------------------------------------------------


def test_healthy_gpus_fail_the_job() -> None:
    """Seed: DCGM exits with 0, the job is FAILED; the fault is in the program."""
    decision = checked(diagnosing(EXIT_ONE, CLASSIC), results(HEALTHY, HEALTHY), CLASSIC)
    assert decision.record.status is JobStatus.FAILED
    assert "exited" in decision.reason or "ended as FAILED" in decision.reason


def test_faulty_gpus_on_the_first_run_reboot_the_instance() -> None:
    """Seed: DCGM exits with 1 at retry 0, the instance is REBOOTING and the job waits for it."""
    record = checking(CLASSIC)
    decision = tell(record, verdict_of(record, REBOOT), CLASSIC)
    assert decision.record.status is InstanceStatus.REBOOTING
    assert orders(decision, commands.RebootInstance) == [commands.RebootInstance(1)]
    waiting = checked(diagnosing(EXIT_ONE, CLASSIC), results(HEALTHY, REBOOT), CLASSIC).record
    assert (waiting.status, waiting.repairing) == (JobStatus.RECOVERING, (IDS[1],))


def test_the_first_runs_check_may_reboot_and_the_second_runs_may_not() -> None:
    """The seed's retry count travels with the wish to check."""
    for record, may_reboot in ((running(CLASSIC), True), (_second_run(), False)):
        halted = stopping(EXIT_ONE, CLASSIC, record)
        event = events.AllRanksStopped(at=NOW, attempt=halted.attempt, failure=EXIT_ONE)
        (order,) = orders(tell(halted, event, CLASSIC), commands.CheckInstances)
        assert order.request.may_reboot is may_reboot


@pytest.mark.parametrize("outcome", [HEALTHY, REBOOT, REPLACE, CheckOutcome.INCONCLUSIVE])
def test_after_the_second_run_the_job_fails_whatever_the_check_says(outcome: CheckOutcome) -> None:
    """Seed: DCGM exits with 1 but it is not the first run, the job is FAILED, and operators hear of it."""
    decision = checked(diagnosing(EXIT_ONE, CLASSIC, _second_run()), results(HEALTHY, outcome), CLASSIC)
    assert decision.record.status is JobStatus.FAILED
    assert "the last of 2" in decision.reason
    assert orders(decision, commands.NotifyOperator)


def test_an_instance_blamed_on_the_second_run_is_not_rebooted_again() -> None:
    """It goes to a person, and the job hears that nothing is being repaired."""
    record = checking(CLASSIC, may_reboot=False)
    decision = tell(record, verdict_of(record, REBOOT), CLASSIC)
    assert decision.record.status is InstanceStatus.QUARANTINED
    assert not orders(decision, commands.RebootInstance)
    assert [order.repairing for order in orders(decision, commands.ReportCheck)] == [False]


@pytest.mark.parametrize("outcome", [CheckOutcome.INCONCLUSIVE, CheckOutcome.CONFIGURATION])
def test_a_check_that_could_not_tell_fails_the_job_and_says_so(outcome: CheckOutcome) -> None:
    """The seed knows two codes; on any other it would hang."""
    decision = checked(diagnosing(EXIT_ONE, CLASSIC), results(HEALTHY, outcome), CLASSIC)
    assert decision.record.status is JobStatus.FAILED
    assert orders(decision, commands.NotifyOperator)


def test_an_instance_that_must_be_replaced_fails_the_job() -> None:
    """The job would wait for its own instance, and no reboot brings that one back."""
    decision = checked(diagnosing(EXIT_ONE, CLASSIC), results(HEALTHY, REPLACE), CLASSIC)
    assert decision.record.status is JobStatus.FAILED
    assert IDS[1] in decision.reason


# -- 3: the instance comes back ----------------------------------------------------------------------------------------


def test_active_is_no_return() -> None:
    """Seed: ACTIVE means available. ECS says ACTIVE at every placement, also while the reboot is still pending."""
    record = rebooting(CLASSIC)
    decision = tell(record, observed(2, ecs_status="ACTIVE"), CLASSIC)
    assert decision.record.status is InstanceStatus.REBOOTING


def test_a_proved_return_makes_it_available_and_tells_the_job() -> None:
    """Another boot id and a passing check: only then the instance works and the job may run again."""
    record = verifying(CLASSIC)
    decision = tell(record, verdict_of(record, HEALTHY, "boot-2"), CLASSIC)
    assert decision.record.status is InstanceStatus.AVAILABLE
    (told,) = orders(decision, commands.TellJob)
    assert (told.job_id, told.event.instance_id, told.event.healed) == ("sft-1", IDS[0], True)


def test_the_job_runs_again_as_run_two_on_the_same_instances() -> None:
    """Seed: run count 1 becomes 2; the checkpoint is the program's own business."""
    again = _second_run()
    assert (again.status, again.attempt, again.instances) == (JobStatus.RUNNING, 2, IDS)
    assert again.attempts_counted == 1


def test_a_return_that_fails_its_check_fails_the_job() -> None:
    """Seed: otherwise the job fails and a technician is told."""
    record = verifying(CLASSIC)
    decision = tell(record, verdict_of(record, REBOOT, "boot-2"), CLASSIC)
    assert decision.record.status is InstanceStatus.QUARANTINED
    (told,) = orders(decision, commands.TellJob)
    assert told.event.healed is False
    waiting = applied(checked(diagnosing(EXIT_ONE, CLASSIC), results(REBOOT, HEALTHY), CLASSIC))
    lost = tell(waiting, told.event, CLASSIC)
    assert lost.record.status is JobStatus.FAILED
    assert orders(lost, commands.NotifyOperator)


def test_a_return_that_never_comes_fails_the_job() -> None:
    """The seed would wait for ever."""
    waiting = applied(checked(diagnosing(EXIT_ONE, CLASSIC), results(REBOOT, HEALTHY), CLASSIC))
    assert waiting.deadline_at is not None
    event = events.JobDeadlineReached(at=waiting.deadline_at, attempt=1, deadline_at=waiting.deadline_at)
    decision = tell(waiting, event, CLASSIC, waiting.deadline_at)
    assert decision.record.status is JobStatus.FAILED
    assert orders(decision, commands.NotifyOperator)


def test_the_placed_job_keeps_its_rank_order() -> None:
    """Rank 0 of run two is where rank 0 of run one was."""
    waiting = applied(checked(diagnosing(EXIT_ONE, CLASSIC), results(HEALTHY, REBOOT), CLASSIC))
    assert placed(waiting, CLASSIC).instances == IDS
