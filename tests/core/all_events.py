"""Every event that could be told to a record, in every variant that matters: what the exploring tests draw from.

`anything_for_job` and `anything_for_instance` name (time, event) pairs that pass the record's own fences, so that a row
is met by events it must answer and not only by ones it may refuse.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from gpu_recovery.core import events
from gpu_recovery.core.commands import RunCheck
from gpu_recovery.core.diagnosis import taxonomy
from gpu_recovery.core.gpu_events import GpuEvent
from gpu_recovery.core.health_check import CheckOutcome, Verdict
from gpu_recovery.core.health_signals import DepartureKind, Ec2InstanceState, HealthKind, HealthStatus
from gpu_recovery.core.instance import state_machine
from gpu_recovery.core.instance.record import Claim, Instance, InstanceStatus
from gpu_recovery.core.job import state_machine as job_state_machine
from gpu_recovery.core.job.assessment import CURED_BY_RESTART
from gpu_recovery.core.job.diagnosis_result import DiagnosisResult
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.job.suspected_hang import ACT_AFTER
from gpu_recovery.core.passive_evidence import PassiveEvidence
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.task import Ending, EndingKind

from tests.core.build import IDS, NOW, SPEC, failure, observed, results

ENDS = tuple(kind for kind in EndingKind if kind is not EndingKind.SUCCEEDED)
HEALTHY, REBOOT, REPLACE = CheckOutcome.HEALTHY, CheckOutcome.REBOOT, CheckOutcome.REPLACE
FINDINGS = (
    results(HEALTHY, HEALTHY),
    results(HEALTHY, REBOOT),
    results(REBOOT, REBOOT),
    results(HEALTHY, REPLACE),
    results(REBOOT, HEALTHY, repairing=False),
    results(CheckOutcome.INCONCLUSIVE, CheckOutcome.CONFIGURATION),
    {},
    {**results(HEALTHY, HEALTHY), IDS[0]: events.Checked(CheckOutcome.SUSPECTED, "it ended first", repairing=True)},
)
PASSIVE = (
    PassiveEvidence(),
    PassiveEvidence(silent=1, example=IDS[0]),
    PassiveEvidence(faulty={IDS[0]: "XID 79"}),
    PassiveEvidence(faulty={IDS[0]: "XID 79", IDS[1]: "XID 48"}),
)
LEFT = replace(failure(EndingKind.FAILED), ending=Ending(EndingKind.FAILED, 75, "exited with code 75"))
"""A rank that asks for its own suspension."""
SILENCE = timedelta(milliseconds=1)
"""How long before it is told a silence begins here: after whatever was told before."""
AGES = timedelta(days=8)
"""Longer than a job may wait in line."""
Telling = tuple[datetime, Any]


def first_jobs(policy: RecoveryPolicy) -> list[Job]:
    """A job of every way in: of an older release, submitted (with a time limit), adopted to recover or to observe."""
    limited = replace(SPEC, max_runtime_s=3600)
    of_older_release = replace(job_state_machine.created("old-1", limited, policy, NOW).record, look_at=NOW)
    return [
        of_older_release,
        replace(of_older_release, status=JobStatus.RECOVERING, attempt=1, instances=IDS, incident_at=NOW),
        replace(of_older_release, status=JobStatus.PENDING_RESOURCES, deadline_at=NOW + timedelta(seconds=60)),
        job_state_machine.created("sft-1", limited, policy, NOW).record,
        job_state_machine.adopted("run-1", SPEC, False, policy, NOW).record,
        job_state_machine.adopted("run-1", SPEC, True, policy, NOW).record,
    ]


CONCLUSIONS = (
    DiagnosisResult(
        1, taxonomy.Cause.APPLICATION, "job", (), taxonomy.Remedy.FAIL, 90, True, "ImportError: no such module"
    ),
    DiagnosisResult(
        1, taxonomy.Cause.NETWORK, "job", (), taxonomy.Remedy.RESTART, 80, True, "the connection timed out"
    ),
    DiagnosisResult(
        1, taxonomy.Cause.WORKER_HANG, "instance", IDS[:1], taxonomy.Remedy.LEAVE_OUT, 80, True, "no answer"
    ),
    DiagnosisResult(
        1, taxonomy.Cause.GPU_FAULT, "gpu", IDS[:1], taxonomy.Remedy.CHECK, 90, True, "ECC errors", (f"{IDS[0]}/3",)
    ),
    DiagnosisResult(1, taxonomy.Cause.NETWORK, "job", (), taxonomy.Remedy.RESTART, 40, False, "perhaps the network"),
)
"""One of each kind that a diagnosis comes to."""


def first_instances(policy: RecoveryPolicy) -> list[Instance]:
    """An instance seen for the first time: working, and on its way out."""
    return [
        state_machine.registered(IDS[0], observed(), policy, NOW).record,
        state_machine.registered(IDS[0], observed(ecs_status="DEREGISTERING"), policy, NOW).record,
    ]


def anything_for_job(record: Job, now: datetime) -> list[Telling]:
    """What may be told to `record` as it stands, at the time at which it would be."""
    about: dict[str, Any] = {"at": now, "attempt": record.attempt}
    told: list[Any] = [
        events.JobPlaced(**about, version=record.version, instances=IDS, epochs=(0, 0)),
        events.ResourcesShort(**about, version=record.version, sentence="needs 2; 1 is free"),
        events.AttemptLaunched(**about),
        events.LaunchRefused(**about, sentence="ECS refused rank 0", instances=record.instances[:1]),
        events.LaunchRefused(**about, sentence="ECS refused rank 0 for good", lasting=True),
        events.AllRanksRunning(**about),
        events.AllRanksStopped(**about),
        events.CancelRequested(**about, by="ada"),
        events.SuspendRequested(**about, by="ada", because="the demo"),
        events.SuspendRequested(**about, by="the scheduler", for_job="big-1", version=record.version),
        events.ResumeRequested(**about, by="ada"),
        events.RankFailed(**about, failure=LEFT),
        events.AllRanksStopped(**about, failure=LEFT),
        events.NewerTaskSeen(**about, created_at=now),
        *(
            kind(**about, instance_id=one, sentence=f"{one} is about to go")
            for kind in (events.InstanceNeedsRepair, events.InstanceLeaving)
            for one in IDS
        ),
        events.CancelRequested(**about, by="ada", force=True),
        *(event for one in IDS for event in silences(about, one, now)),
        *(events.RankFailed(**about, failure=failure(kind)) for kind in ENDS),
        *(events.AllRanksStopped(**about, failure=failure(kind)) for kind in ENDS),
        *(events.AllRanksStopped(**about, failure=failure(kind), own_ends=1) for kind in sorted(CURED_BY_RESTART)),
        events.AllRanksHeld(**about, failure=failure(EndingKind.CRASHED), own_ends=1),
        events.AllRanksHeld(**about, failure=failure(EndingKind.FAILED), without_evidence=True),
        *(events.InstancesChecked(**about, results=found) for found in FINDINGS),
        *(events.Diagnosed(**about, conclusion=replace(one, attempt=record.attempt)) for one in CONCLUSIONS),
        *(events.PassiveEvidenceCollected(**about, evidence=seen) for seen in PASSIVE),
        events.SparesOffered(**about, instances=("i-9",), epochs=(0,)),
        events.SparesRecalled(**about, sentence="big-1 waits for GPUs"),
        events.SpareSeen(**about, number=2, task_id="t-9", runs=True),
        events.SpareEnded(**about, number=2, sentence="its container has ended"),
        events.ProgressStopped(**about, sentence="no rank has made progress for 900 s"),
        events.TrainingContinued(**about, sentence="its ranks report progress"),
        *(
            events.RepairEnded(**about, instance_id=one, healed=healed, sentence="its repair has ended")
            for one in IDS
            for healed in (True, False)
        ),
        events.RepairEnded(**about, instance_id=IDS[0], healed=False, sentence="an operator took it", by_operator=True),
        events.NamedInstancePassed(**about, instance_id=IDS[0], sentence="HEALTHY: no error found"),
    ]
    tellings = [(now, event) for event in told]
    tellings += suspected_hangs(record, now)
    if record.look_at is not None:
        at = max(now, record.look_at)
        tellings.append((at, events.JobLookDue(at=at, attempt=record.attempt, look_at=record.look_at)))
    if record.deadline_at is not None:
        due = max(now, record.deadline_at)
        for at, found in ((due, FINDINGS[0]), (due, FINDINGS[1]), (due, FINDINGS[3]), (due + AGES, FINDINGS[6])):
            event = events.JobDeadlineReached(
                at=at, attempt=record.attempt, deadline_at=record.deadline_at, unconfirmed=IDS[:1], results=found
            )
            tellings.append((at, event))
        dead = dict.fromkeys(record.silent, "EC2 shows it terminated")
        for said in (
            {"under_way": IDS},
            {"dead": dead},
            {"dead": dead, "deaf": "9 of 10 instances do not report"},
        ):
            about |= {"at": due, "deadline_at": record.deadline_at, **said}
            tellings.append((due, events.JobDeadlineReached(**about)))
    return tellings


def silences(about: dict[str, Any], instance_id: str, now: datetime) -> list[events.JobEvent]:
    """What an agent's heartbeats, or their absence, may say of the rank on this instance."""
    return [
        events.RankSilent(**about, instance_id=instance_id, seen_at=now - SILENCE, sentence="it is silent"),
        events.RankHeard(**about, instance_id=instance_id),
        events.RankExited(**about, instance_id=instance_id, sentence="it has ended with code 1"),
        events.StallReported(**about, instance_id=instance_id, unchanged_s=75.0),
    ]


def suspected_hangs(record: Job, now: datetime) -> list[Telling]:
    """A hang that nobody knows of, and the hang that operators know of, when it is time to stop the gang."""
    times = [(now, now - timedelta(seconds=90))]
    if record.hang_told_at is not None:
        times.append((max(now, record.hang_told_at + ACT_AFTER), record.hang_told_at - timedelta(seconds=90)))
    return [
        (at, events.HangSuspected(at=at, attempt=record.attempt, sentence="every rank is idle", since=since))
        for at, since in times
    ]


def repair_records(record: Instance, now: datetime) -> list[events.InstanceEvent]:
    """Where the line about a repair is: asked for, tagged, written, and found again after a boot."""
    line = "the reboot was ordered"
    return [
        events.RepairAnnounced(at=now, epoch=record.epoch, line=line, asked=True, tag="written"),
        events.RepairAnnounced(at=now, epoch=record.epoch, line=line, asked=False),
        events.RepairRecordFound(at=now, epoch=record.epoch, line=line, written="boot-1", boot_id="boot-1"),
        events.RepairRecordFound(at=now, epoch=record.epoch, line=line, written="boot-1", boot_id="boot-2"),
    ]


def gpu_event_reports(now: datetime) -> list[events.InstanceEvent]:
    """GPU Operational Events that would decide a reboot, and that would decide nothing."""
    lost = GpuEvent("GPU-0", "GPU-BUS", 3, 3, 40, attributes=32, xid=79)
    echo = GpuEvent("GPU-0", "GPU-RAS", 23, 2, 20, attributes=4)
    return [events.GpuEventsReported(at=now, events=found) for found in ((lost,), (echo,), (lost, echo), ())]


IDLE_PERIOD = timedelta(hours=1)
"""The period of idle checks in the explored policies."""


def anything_for_instance(record: Instance, now: datetime) -> list[Telling]:
    """What may be told to `record` as it stands, at the time at which it would be."""
    newer = record.ecs_version + 1
    told: list[Any] = [
        *(
            observed(newer, at=now, ecs_status=status, agent_connected=connected, container_instance_id=registration)
            for status in ("ACTIVE", "DRAINING", "INACTIVE")
            for connected in (True, False)
            for registration in (record.container_instance_id, f"{record.container_instance_id}x")
        ),
        observed(record.ecs_version, at=now, looked=True, container_instance_id=record.container_instance_id),
        *(
            observed(newer, at=now, looked=True, container_instance_id=registration, ranks={"sft-1": 1})
            for registration in (record.container_instance_id, f"{record.container_instance_id}x")
        ),
        *(
            events.CheckRequested(at=now, job_id=job_id, attempt=attempt, may_reboot=may_reboot)
            for job_id in ("sft-1", "sft-2")
            for attempt in (1, 2)
            for may_reboot in (True, False)
        ),
        *(
            events.CheckRequested(
                at=now,
                job_id="sft-1",
                attempt=1,
                may_reboot=True,
                suspect=record.instance_id,
                because="it ended first",
                again=again,
            )
            for again in (False, True)
        ),
        events.RepairRequested(at=now, job_id="sft-1", attempt=1, sentence="a rank cannot be stopped"),
        events.RepairRequested(at=now, job_id="sft-1", attempt=2, sentence="a rank cannot be stopped"),
        events.RebootUncertain(at=now, epoch=record.epoch),
        *(events.ResetEnded(at=now, epoch=record.epoch, done=done, sentence="it says so") for done in (True, False)),
        events.RepairRefused(at=now, epoch=record.epoch, sentence="EC2 refused the reboot"),
        events.RepairHeld(at=now, epoch=record.epoch, sentence="a person keeps it back"),
        *repair_records(record, now),
        *gpu_event_reports(now),
        events.QuarantineRequested(at=now, by="ada", because="it is loud"),
        events.ReleaseRequested(at=now, by="ada"),
        *(events.MachineSeen(at=now, state=state) for state in Ec2InstanceState),
        *warnings(now),
        events.InstanceSilent(at=now, seen_at=now - SILENCE, heard={"sft-1": 1}),
        events.InstanceHeard(at=now, heard={"sft-1": 1}),
        *(
            events.InstanceBooted(at=now, boot_id=f"boot-{now:%H%M%S}", booted_at=booted_at, ended={"sft-1": 1})
            for booted_at in (now, record.reboot.asked_at if record.reboot is not None else now - SILENCE)
        ),
    ]
    told += ended_checks(record, now)
    tellings = [(now, event) for event in told]
    tellings += idle_checks(record, now)
    if record.look_at is not None:
        due = max(now, record.look_at)
        stale = (due + timedelta(hours=1),) if record.held is not None else ()
        tellings += [(at, events.InstanceLookDue(at=at, look_at=record.look_at)) for at in (due, *stale)]
    if record.deadline_at is not None:
        at = max(now, record.deadline_at)
        tellings.append((at, events.InstanceDeadlineReached(at=at, deadline_at=record.deadline_at)))
    return tellings


def ended_checks(record: Instance, now: datetime) -> list[events.InstanceEvent]:
    """Every verdict of the check of the record, and of the check that it replaced."""
    if record.check is None:
        return []
    told: list[events.InstanceEvent] = [
        events.CheckEnded(at=now, check_id=record.check.check_id, verdict=Verdict(outcome, "said", boot, booted))
        for outcome in CheckOutcome
        for boot, booted in (("boot-1", NOW), (f"boot-{record.epoch + 1}", now), (None, None))
    ]
    resets = Verdict(CheckOutcome.REBOOT, "said", "boot-1", NOW, reset=True)
    told.append(events.CheckEnded(at=now, check_id=record.check.check_id, verdict=resets))
    if record.check.superseded:
        told += [
            events.CheckEnded(at=now, check_id=record.check.superseded, verdict=Verdict(outcome, "said late"))
            for outcome in (CheckOutcome.HEALTHY, CheckOutcome.REBOOT)
        ]
    return told


def idle_checks(record: Instance, now: datetime) -> list[Telling]:
    """The period of idle checks is over; a job wants the instance during its check."""
    at = max(now, record.status_at + IDLE_PERIOD)
    told: list[Telling] = [(at, events.IdleCheckDue(at=at))]
    if record.check is not None:
        told.append((now, events.IdleCheckPreempted(at=now, check_id=record.check.check_id, job_id="sft-3")))
    return told


def warnings(now: datetime) -> list[events.InstanceEvent]:
    """What watchers may say, and announcements: due at once, due later, and called off."""
    health = [
        events.HealthReported(at=now, kind=kind, status=word, since=now, sentence=sentence)
        for kind, word, sentence in WORDS
    ]
    harmless = events.HealthReported(
        at=now, kind=HealthKind.ACCELERATED_COMPUTE, status=HealthStatus.IMPAIRED, since=now, xid=31
    )
    departures = [
        events.DepartureAnnounced(
            at=now,
            kind=kind,
            source=f"{kind}-{age.days}",
            leaves_at=now + age,
            sentence=f"{kind} is announced",
            called_off=called_off,
        )
        for kind, age, called_off in ANNOUNCEMENTS
    ]
    return [*health, harmless, *departures]


IMPAIRED, OK = HealthStatus.IMPAIRED, HealthStatus.OK
WORDS = (
    (HealthKind.SYSTEM_STATUS, IMPAIRED, ""),
    (HealthKind.SYSTEM_STATUS, OK, ""),
    (HealthKind.INSTANCE_STATUS, IMPAIRED, ""),
    (HealthKind.INSTANCE_STATUS, OK, ""),
    (HealthKind.ACCELERATED_COMPUTE, IMPAIRED, "XID_79"),
    (HealthKind.DAEMON, IMPAIRED, ""),
    (HealthKind.ACCELERATED_COMPUTE, HealthStatus.INSUFFICIENT_DATA, ""),
)
SOON, LATER = timedelta(seconds=60), timedelta(days=7)
ANNOUNCEMENTS = (
    (DepartureKind.REBALANCE, SOON, False),
    (DepartureKind.MAINTENANCE, LATER, False),
    (DepartureKind.RETIREMENT, SOON, False),
    (DepartureKind.RETIREMENT, LATER, False),
    (DepartureKind.RETIREMENT, SOON, True),
    (DepartureKind.INTERRUPTION, SOON, False),
    (DepartureKind.INTERRUPTION, SOON, True),
)


def written_by_a_store(record: Instance) -> list[Instance]:
    """The record after each write that no event makes: a launch's or a person's claim, a claim that
    is given back, a check that ECS refused, a check that ECS started, perhaps although the record says DRAINING."""
    if record.status is InstanceStatus.GONE:
        return []
    new = [("sft-1", 1), ("sft-1", 2), ("sft-2", 1)]
    claims = [{**record.claims, job_id: Claim(attempt, 4)} for job_id, attempt in new if job_id not in record.claims]
    refused = tuple(replace(one, refusals=1) if isinstance(one.command, RunCheck) else one for one in record.commands)
    left = [{**record.claims}] if record.claims else []
    for some in left:
        some.popitem()
    grown = [*(replace(record, claims=some) for some in (*claims, *left)), replace(record, commands=refused)]
    if record.check is not None:
        grown.append(replace(record, check=replace(record.check, task_id="task-1")))
    return grown
