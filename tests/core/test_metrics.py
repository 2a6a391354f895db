"""What a decision measures: times, counts and GPU-hours, each once and none without its cause."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from gpu_recovery.core import events
from gpu_recovery.core.commands import NotifyOperator, PokeScheduler, PublishEvent
from gpu_recovery.core.fleet import Fleet, Pause, ReportingOutage
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.metrics import (
    METRICS,
    PHASES,
    MetricValue,
    Unit,
    of_decision,
    of_due_record,
    of_failed_gpu_sample,
    of_failed_placement,
    of_failed_snapshot,
    of_fleet,
    of_notification,
    of_queue,
    status_metric,
)
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.totals import PriorityTotals, Total, totals_by_priority
from gpu_recovery.core.state_machine import Decision, EventOutcome
from gpu_recovery.core.task import EndingKind

from tests.core.build import (
    ADAPTIVE,
    CLASSIC,
    IDS,
    NOW,
    SPEC,
    applied,
    checked,
    claimed,
    diagnosing,
    failure,
    later,
    observed,
    placed,
    queued,
    rebooting,
    results,
    running,
    stopped,
    stopping,
    tell,
    verdict_of,
    verifying,
)
from tests.core.move_rules import METRICS_OF_INSTANCES, METRICS_OF_JOBS

GPUS = SPEC.nnodes * SPEC.gpus_per_node
NOTICE = NotifyOperator("run-1--a01", "SEV3", "subject", "body")


def told(
    record: Any, event: Any, now: datetime = NOW, policy: Any = ADAPTIVE, fleet: Fleet | None = None
) -> tuple[Any, dict[str, float]]:
    """The record after `event`, and what that decision measures, summed by name."""
    decision = tell(record, event, policy, now, fleet)
    return decision.record, summed(of_decision(record, decision))


def summed(measures: list[MetricValue]) -> dict[str, float]:
    """Values by name; a name that comes twice in one decision would be two values, so it is added up."""
    total: dict[str, float] = {}
    for one in measures:
        total[one.name] = total.get(one.name, 0) + one.value
    return total


def rank_failed(record: Job, at: int = 0, kind: EndingKind = EndingKind.CRASHED) -> events.RankFailed:
    """Rank 0 failed `at` seconds after NOW."""
    return events.RankFailed(at=later(at), attempt=record.attempt, failure=replace(failure(kind), at=later(at)))


def recovery() -> list[tuple[JobStatus, dict[str, float]]]:
    """A whole recovery, each decision with what it measures: the failure at 0 s, every step at its own time."""
    job = running()
    told_at: list[tuple[int, Any]] = [
        (5, rank_failed),
        (35, lambda job: events.AllRanksStopped(at=NOW, attempt=job.attempt, failure=job.failure)),
        (
            335,
            lambda job: events.InstancesChecked(
                at=NOW, attempt=job.attempt, results=results(CheckOutcome.HEALTHY, CheckOutcome.REBOOT)
            ),
        ),
        (
            635,
            lambda job: events.RepairEnded(
                at=NOW, attempt=job.attempt, instance_id=IDS[1], healed=True, sentence="proved"
            ),
        ),
        (
            640,
            lambda job: events.JobPlaced(
                at=NOW, attempt=job.attempt, version=job.version, instances=IDS, epochs=(0, 1)
            ),
        ),
        (650, lambda job: events.AttemptLaunched(at=NOW, attempt=job.attempt)),
        (725, lambda job: events.AllRanksRunning(at=NOW, attempt=job.attempt)),
    ]
    steps = []
    for at, event in told_at:
        job, found = told(job, event(job), later(at))
        steps.append((job.status, found))
    return steps


def test_the_totals_of_the_queue_are_measured_where_there_are_any() -> None:
    """A number of 0 would be charged as well."""
    totals = totals_by_priority((), ADAPTIVE, NOW)
    assert of_queue(totals) == []
    some = replace(totals[2], queued=Total(2, 3, 24), running=Total(1, 0, 0))
    assert of_queue((*totals[:2], some)) == [
        MetricValue("RunningJobsHigh", 1),
        MetricValue("QueuedJobsHigh", 2),
        MetricValue("QueuedInstancesHigh", 3),
        MetricValue("QueuedGpusHigh", 24),
    ]


def test_a_recovery_is_measured_phase_by_phase() -> None:
    """Whoever asks where the time went finds every second of it, and no second twice."""
    steps = recovery()
    assert [(status, found) for status, found in steps if found] == [
        (
            JobStatus.STOPPING,
            {"JobStopping": 1, "DetectionSeconds": 5, "GpuHoursLost": GPUS * 5 / 3600, "RecoveriesStarted": 1},
        ),
        (JobStatus.DIAGNOSING, {"JobDiagnosing": 1, "StopSeconds": 30, "GpuHoursLost": GPUS * 30 / 3600}),
        (JobStatus.RECOVERING, {"JobRecovering": 1, "CheckSeconds": 300, "GpuHoursLost": GPUS * 300 / 3600}),
        (JobStatus.SUBMITTING, {"JobSubmitting": 1, "WaitSeconds": 305, "GpuHoursLost": GPUS * 305 / 3600}),
        (JobStatus.SUBMITTED, {"JobSubmitted": 1, "LaunchSeconds": 10, "GpuHoursLost": GPUS * 10 / 3600}),
        (
            JobStatus.RUNNING,
            {
                "JobRunning": 1,
                "StartSeconds": 75,
                "GpuHoursLost": GPUS * 75 / 3600,
                "RecoveriesSucceeded": 1,
                "RecoverySeconds": 720,
            },
        ),
    ]


def test_the_phases_and_the_detection_make_up_the_loss() -> None:
    """Detection and phases together are the time from the failure to running; the GPU-hours are that time's."""
    total = summed([MetricValue(name, value) for _, found in recovery() for name, value in found.items()])
    phases = sum(total[name] for name in set(PHASES.values()))
    assert phases == total["RecoverySeconds"] == 720
    assert total["GpuHoursLost"] == pytest.approx(GPUS * (total["DetectionSeconds"] + phases) / 3600)


def test_an_incident_is_one_however_many_attempts_it_takes() -> None:
    """A relaunch that fails again goes on with the same incident: its time counts from the first stop, once."""
    job = stopping(failure(EndingKind.CRASHED))
    job = placed(applied(checked(stopped(job, now=later(10)), {}, now=later(20))), now=later(30))
    job, found = told(job, rank_failed(job, 40), later(50))
    assert found == {"JobStopping": 1, "DetectionSeconds": 10, "LaunchSeconds": 20, "GpuHoursLost": GPUS * 20 / 3600}
    assert job.incident_at == NOW


@pytest.mark.parametrize(
    ("reach", "event", "outcome"),
    [
        (diagnosing, lambda job: events.CancelRequested(at=NOW, attempt=1, by="ada"), "RecoveriesCanceled"),
        (
            diagnosing,
            lambda job: events.JobDeadlineReached(at=job.deadline_at, attempt=1, deadline_at=job.deadline_at),
            "RecoveriesFailed",
        ),
    ],
)
def test_a_recovery_that_does_not_succeed_is_counted_by_how_it_ended(reach: Any, event: Any, outcome: str) -> None:
    """Given up and canceled are two things, and neither is a recovery time."""
    job = reach()
    _, found = told(job, event(job), later(60))
    assert found[outcome] == 1
    assert found["CheckSeconds"] == 60
    assert found["GpuHoursLost"] == pytest.approx(GPUS * 60 / 3600)
    assert not {"RecoverySeconds", "RecoveriesSucceeded", "RecoveriesStarted"} & set(found)


def test_a_gang_that_is_given_up_at_once_is_an_incident_that_failed() -> None:
    """`classic` fails a job whose ranks are all dead without checking anything: begun and failed in one decision."""
    job = running(CLASSIC)
    end = events.AllRanksStopped(at=NOW, attempt=1, failure=failure(EndingKind.CRASHED))
    _, found = told(job, end, later(7), CLASSIC)
    assert found == {
        "JobFailed": 1,
        "DetectionSeconds": 7,
        "GpuHoursLost": GPUS * 7 / 3600,
        "RecoveriesStarted": 1,
        "RecoveriesFailed": 1,
    }


@pytest.mark.parametrize(
    ("record", "event"),
    [
        (running(), rank_failed(running(), 0, EndingKind.STOPPED_BY_PERSON)),
        (running(), events.CancelRequested(at=NOW, attempt=1, by="ada")),
        (placed(queued()), events.LaunchRefused(at=NOW, attempt=1, sentence="RESOURCE:GPU")),
        (
            replace(running(), deadline_at=later(60)),
            events.JobDeadlineReached(at=later(60), attempt=1, deadline_at=later(60)),
        ),
    ],
)
def test_a_gang_that_stops_without_a_fault_is_no_incident(record: Job, event: Any) -> None:
    """A person's stop, a launch that found no place and a time limit are nobody's failure: no loss, no recovery."""
    job, found = told(record, event, later(60))
    assert found == {"JobStopping": 1}
    assert job.incident_at is None


def test_a_job_that_is_only_observed_is_not_recovered() -> None:
    """Its statuses are counted, and nothing is said of a recovery that nobody undertakes."""
    job = replace(running(), hands_off=True)
    _, found = told(job, events.AllRanksStopped(at=NOW, attempt=1, failure=failure(EndingKind.CRASHED)), later(9))
    assert found == {"JobFailed": 1}


def test_an_outdated_or_ignored_event_measures_nothing() -> None:
    """What moves nothing happened before: it was counted then."""
    job = running()
    assert told(job, replace(rank_failed(job), attempt=9))[1] == {}
    assert told(stopping(failure(EndingKind.CRASHED)), rank_failed(job, 1))[1] == {}


def test_a_clock_that_is_behind_makes_no_negative_time() -> None:
    """ECS dates a rank's end by its own clock."""
    job = running()
    _, found = told(job, rank_failed(job, 30), NOW)
    assert found["DetectionSeconds"] == 0


def test_a_new_record_counts_its_first_status() -> None:
    """Otherwise no job would ever be counted as QUEUED."""
    job = queued()
    decision = Decision(job, (), "submitted", EventOutcome.APPLIED)
    assert of_decision(None, decision) == [MetricValue("JobQueued")]


def test_a_reboot_is_counted_when_it_is_ordered() -> None:
    """Once per order, whatever becomes of it."""
    record = rebooting()
    assert record.status is InstanceStatus.REBOOTING
    before = about_to_be_blamed()
    _, found = told(before, verdict_of(before, CheckOutcome.REBOOT))
    assert found == {"InstanceRebooting": 1, "Reboots": 1}


def about_to_be_blamed() -> Instance:
    """An instance under the check that is about to blame it."""
    return applied(tell(claimed(), events.CheckRequested(at=NOW, job_id="sft-1", attempt=1, may_reboot=True), ADAPTIVE))


def test_a_reboot_that_was_never_heard_and_is_asked_for_again_is_one() -> None:
    """The machine went down once."""
    lost = applied(tell(rebooting(), events.RebootUncertain(at=NOW, epoch=1), ADAPTIVE, later(60)))
    again, found = told(lost, verdict_of(lost, CheckOutcome.HEALTHY, "boot-1", NOW), later(120))
    assert again.status is InstanceStatus.REBOOTING
    assert found == {"InstanceRebooting": 1}


def test_a_second_reboot_after_a_proved_one_is_another() -> None:
    """The first one cured nothing: the machine goes down once more."""
    record = verifying()
    again, found = told(record, verdict_of(record, CheckOutcome.REBOOT, "boot-2", later(90)), later(120))
    assert again.status is InstanceStatus.REBOOTING
    assert found["Reboots"] == 1


def unstoppable() -> Instance:
    """An instance whose reboot was asked for because a rank could not be stopped, under the check that follows."""
    asked = events.RepairRequested(at=NOW, job_id="sft-1", attempt=1, sentence="a rank cannot be stopped")
    record = applied(tell(claimed(), asked, ADAPTIVE))
    record = applied(tell(record, observed(2, agent_connected=False), ADAPTIVE))
    return applied(tell(record, observed(3), ADAPTIVE))


def restarted(record: Instance) -> Instance:
    """The same after a stop and a start."""
    assert record.reboot is not None
    return replace(record, reboot=replace(record.reboot, started=True))


@pytest.mark.parametrize(
    ("reach", "outcome", "false"),
    [
        (unstoppable, CheckOutcome.HEALTHY, 1),
        (unstoppable, CheckOutcome.REPLACE, 0),
        (verifying, CheckOutcome.HEALTHY, 0),
        (lambda: restarted(unstoppable()), CheckOutcome.HEALTHY, 0),
    ],
)
def test_a_false_reboot_is_one_without_a_finding_before_or_after(reach: Any, outcome: CheckOutcome, false: int) -> None:
    """One for a finding that passes afterwards has cured it; one that uncovers a fault was not in vain."""
    record = reach()
    _, found = told(record, verdict_of(record, outcome, "boot-2", later(90)), later(120))
    assert found.get("FalseReboots", 0) == false


def test_a_repair_that_is_held_back_is_counted_once() -> None:
    """The same need is held at every look."""
    before, paused = about_to_be_blamed(), Fleet(gpu_instances=8, pause=Pause("ada", "maintenance", NOW))
    held, found = told(before, verdict_of(before, CheckOutcome.REBOOT), fleet=paused)
    assert found == {"InstanceQuarantined": 1, "RepairsHeld": 1}
    assert held.look_at is not None
    again, found = told(held, events.InstanceLookDue(at=held.look_at, look_at=held.look_at), held.look_at, fleet=paused)
    assert again.held is not None and again != held
    assert found == {}


NEARLY_OPEN = Fleet(gpu_instances=4, blamed={"i-0x": NOW, "i-0y": NOW})
"""The brakes of a fleet in which one more instance that is blamed opens the breaker."""


def test_the_breaker_is_counted_by_the_decision_that_opens_it() -> None:
    """Later decisions write the same open breaker, and do not open it."""
    before = about_to_be_blamed()
    opening = tell(before, verdict_of(before, CheckOutcome.REBOOT), now=later(5), fleet=NEARLY_OPEN)
    assert opening.fleet is not None and opening.fleet.opened_at == later(5)
    assert MetricValue("BreakerOpened") in of_decision(before, opening)
    blamed = opening.record
    trying = replace(blamed, status=InstanceStatus.REBOOTING, status_at=later(900), held=None)
    probing = Decision(trying, (), "it tries", EventOutcome.APPLIED, replace(opening.fleet, probe=before.instance_id))
    assert MetricValue("BreakerOpened") not in of_decision(blamed, probing)
    reopened = replace(trying, status=InstanceStatus.QUARANTINED, status_at=later(1800))
    reopening = Decision(
        reopened, (), "not healed", EventOutcome.APPLIED, replace(opening.fleet, opened_at=later(1800))
    )
    assert MetricValue("BreakerOpened") in of_decision(trying, reopening)


def test_the_brakes_are_shown_while_they_hold_something() -> None:
    """Open circuit breaker, pause, and the number of instances that count against the repair budget."""
    assert of_fleet(Fleet(gpu_instances=8), NOW) == []
    held = Fleet(opened_at=NOW, pause=Pause("ada", "maintenance", later(-60)), repairing=frozenset({"i-1", "i-2"}))
    assert of_fleet(held, later(30)) == [
        MetricValue("BreakerOpenSeconds", 30),
        MetricValue("PausedSeconds", 90),
        MetricValue("UnderRepair", 2),
    ]


def test_a_record_that_is_opened_says_how_late_it_is_and_how_old_its_incident() -> None:
    """A recovery that is stuck is seen by its age, and one that the reconciler cannot move by its lateness."""
    job = stopping(failure(EndingKind.CRASHED))
    assert job.deadline_at is not None
    assert of_due_record(job, later(60)) == [MetricValue("RecoveryAgeSeconds", 60)]
    late = of_due_record(replace(job, deadline_at=later(10)), later(60))
    assert late == [MetricValue("OverdueSeconds", 50), MetricValue("RecoveryAgeSeconds", 60)]
    assert of_due_record(running(), later(60)) == []


def test_a_job_that_has_failed_is_no_recovery_under_way() -> None:
    """It is opened now and then while an end is not confirmed."""
    job = replace(stopping(failure(EndingKind.CRASHED)), status=JobStatus.FAILED, deadline_at=None)
    assert of_due_record(job, later(60)) == []


@pytest.mark.parametrize(
    ("command", "said", "names"),
    [
        (NOTICE, True, ["NoticesSent"]),
        (NOTICE, False, ["NoticesFailed"]),
        (PublishEvent("Job State Changed", {}), True, []),
        (PublishEvent("Job State Changed", {}), False, ["Unsaid"]),
        (PokeScheduler("sft-1/1"), False, ["Unsaid"]),
    ],
)
def test_words_are_counted_by_whom_they_did_not_reach(command: Any, said: bool, names: list[str]) -> None:
    """Operators who hear nothing are another matter than a program that does."""
    assert [one.name for one in of_notification(command, said)] == names


def test_the_table_holds_every_status_and_every_name_is_pascal_case() -> None:
    """Alarms and dashboard are searched for these names."""
    assert {status_metric(status) for status in (*JobStatus, *InstanceStatus)} <= set(METRICS)
    assert all(name[0].isupper() and name.isalnum() for name in METRICS)
    assert all(MetricValue(name).unit is kind.unit for name, kind in METRICS.items())
    assert all((kind.unit is Unit.SECONDS) == name.endswith("Seconds") for name, kind in METRICS.items())


def test_a_measure_that_is_not_in_the_table_is_refused() -> None:
    """A name written in one place only would be sent and never shown."""
    with pytest.raises(KeyError):
        _ = MetricValue("GpuHoursWon").unit


def test_everything_in_the_table_is_measured_by_something() -> None:
    """A metric that no decision, no look and no word can ever give is one that a dashboard shows in vain.

    `test_every_move.py` of jobs and of instances shows that their moves give theirs.
    """
    found = METRICS_OF_JOBS | METRICS_OF_INSTANCES | {status_metric(JobStatus.QUEUED)}  # which is of a new record
    record = about_to_be_blamed()
    for outcome, fleet in ((CheckOutcome.REBOOT, NEARLY_OPEN), (CheckOutcome.REPLACE, None)):
        blame = tell(record, verdict_of(record, outcome), replace(ADAPTIVE, replace=True), fleet=fleet)
        found |= {one.name for one in of_decision(record, blame)}
    for command in (NOTICE, PokeScheduler("")):
        found |= {one.name for said in (True, False) for one in of_notification(command, said)}
    found |= {one.name for one in (*of_failed_placement(), *of_failed_snapshot(), *of_failed_gpu_sample())}
    full = (PriorityTotals(each, Total(1, 1, 1), Total(1, 1, 1)) for each in Priority)
    found |= {one.name for one in of_queue(full)}
    found |= {
        one.name
        for one in of_fleet(
            Fleet(
                opened_at=NOW, pause=Pause("", "", NOW), repairing=frozenset("i"), deaf=ReportingOutage(NOW, 3, 9, "")
            ),
            NOW,
        )
    }
    assert found == set(METRICS)
