"""Records, policies and facts for the tests of the core, each with as little in it as a test may leave unsaid."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.cluster_snapshot import snapshot_of
from gpu_recovery.core.events import Checked
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.health_check import CheckOutcome, Verdict
from gpu_recovery.core.instance import state_machine
from gpu_recovery.core.instance.record import Claim, Instance
from gpu_recovery.core.job import state_machine as job_state_machine
from gpu_recovery.core.job.queue_entry import entry_of
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.job.spec import JobSpec
from gpu_recovery.core.policy import PRESETS, Preset
from gpu_recovery.core.queue.place import place
from gpu_recovery.core.queue.quota import QuotaLimits
from gpu_recovery.core.queue.snapshot import Placement
from gpu_recovery.core.state_machine import Decision, EventOutcome
from gpu_recovery.core.task import Ending, EndingKind, RankFailure

NOW = datetime(2026, 11, 21, 3, 0, tzinfo=UTC)
CLASSIC, ADAPTIVE = PRESETS[Preset.CLASSIC], PRESETS[Preset.ADAPTIVE]
POLICIES = (CLASSIC, ADAPTIVE)
IDS = ("i-0a1", "i-0b2")
SPEC = JobSpec("sft", 2, 8, "gpu-training", container="train")
EXIT_CODES = {EndingKind.FAILED: 1, EndingKind.CRASHED: 134, EndingKind.STOPPED_BY_US: 143}


def later(seconds: int) -> datetime:
    """`seconds` after NOW."""
    return NOW + timedelta(seconds=seconds)


def applied(decision: Decision[Any]) -> Any:
    """The record after a decision that must have been applied."""
    assert decision.outcome is EventOutcome.APPLIED, decision.reason
    return decision.record


def orders(decision: Decision[Any], kind: type) -> list[Any]:
    """The commands of one kind that a decision gives."""
    return [one.command for one in decision.commands if isinstance(one.command, kind)]


def failure(kind: EndingKind, exit_code: int | None = None, rank: int = 0) -> RankFailure:
    """Rank `rank`'s end of `kind`, with the exit code that such an end usually has."""
    code = EXIT_CODES.get(kind) if exit_code is None else exit_code
    return RankFailure(rank, IDS[rank], NOW, Ending(kind, code, f"ended as {kind}"))


FLEET = Fleet(gpu_instances=100)
"""Brakes that let up to twenty instances be under repair."""
STUCK = events.RepairRequested(at=NOW, job_id="sft-1", attempt=1, sentence="a rank of sft-1--a01 cannot be stopped")
"""A rank of the job that `claimed` gives the instance to hears no signal."""


def tell(
    record: Any, event: Any, policy: Any = ADAPTIVE, now: datetime = NOW, fleet: Fleet | None = None
) -> Decision[Any]:
    """What the machine that `event` belongs to decides; an instance as the loop has it decide, with the brakes."""
    if isinstance(event, events.JobEvent):
        return job_state_machine.decide(record, event, policy, now)
    brakes = (fleet or FLEET) if state_machine.needs_fleet_limits(record, event) else None
    return state_machine.decide(record, event, policy, now, brakes)


def overdue(record: Instance, policy: Any = ADAPTIVE, fleet: Fleet = FLEET) -> Decision[Instance]:
    """What the instance decides when its deadline passes."""
    assert record.deadline_at is not None
    event = events.InstanceDeadlineReached(at=record.deadline_at, deadline_at=record.deadline_at)
    return tell(record, event, policy, record.deadline_at, fleet)


def queued(policy: Any = ADAPTIVE, job_id: str = "sft-1", spec: JobSpec = SPEC, now: datetime = NOW) -> Job:
    """A job that has just been submitted."""
    return job_state_machine.created(job_id, spec, policy, now).record


def placed(record: Job, policy: Any = ADAPTIVE, now: datetime = NOW, ids: tuple[str, ...] = IDS) -> Job:
    """The job after the scheduler gave it `ids`."""
    event = events.JobPlaced(
        at=now, attempt=record.attempt, version=record.version, instances=ids, epochs=(0,) * len(ids)
    )
    return applied(tell(record, event, policy, now))


@dataclass(frozen=True)
class Cluster:
    """Jobs and instances as they are kept, for the scheduler to look at."""

    jobs: tuple[Job, ...]
    instances: tuple[Instance, ...]


def place_records(cluster: Cluster, policy: Any = ADAPTIVE, now: datetime = NOW + timedelta(days=30)) -> Placement:
    """What a pass of the scheduler answers to these records, with no limits set."""
    entries = [entry for job in cluster.jobs if (entry := entry_of(job)) is not None]
    return place(snapshot_of(entries, cluster.instances, policy, now, {}, QuotaLimits()), policy, now)


def running(policy: Any = ADAPTIVE, record: Job | None = None, now: datetime = NOW) -> Job:
    """A job every rank of which runs."""
    record = placed(record or queued(policy), policy, now)
    record = applied(tell(record, events.AttemptLaunched(at=now, attempt=record.attempt), policy, now))
    return applied(tell(record, events.AllRanksRunning(at=now, attempt=record.attempt), policy, now))


def rank_silent(record: Job, which: int = 0, seen_at: datetime = NOW, at: datetime | None = None) -> events.RankSilent:
    """The rank on instance `which` was heard of until `seen_at`."""
    return events.RankSilent(
        at=at or seen_at + timedelta(seconds=200),
        attempt=record.attempt,
        instance_id=IDS[which],
        seen_at=seen_at,
        sentence=f"last heard of at {seen_at:%H:%M:%S} UTC",
    )


def rank_heard(record: Job, which: int = 0, at: datetime | None = None) -> events.RankHeard:
    """The rank on instance `which` is heard of again."""
    return events.RankHeard(at=at or NOW + timedelta(seconds=300), attempt=record.attempt, instance_id=IDS[which])


def lost(policy: Any = ADAPTIVE, record: Job | None = None, which: int = 0, seen_at: datetime = NOW) -> Job:
    """A job that is LOST, because the rank on instance `which` was last heard of at `seen_at`."""
    record = record or running(policy)
    event = rank_silent(record, which, seen_at)
    return applied(tell(record, event, policy, event.at))


def stopping(first: RankFailure, policy: Any = ADAPTIVE, record: Job | None = None, now: datetime = NOW) -> Job:
    """A job whose gang is being stopped because of `first`."""
    record = record or running(policy)
    return applied(tell(record, events.RankFailed(at=now, attempt=record.attempt, failure=first), policy, now))


def suspend_event(record: Job, for_job: str = "", now: datetime = NOW) -> events.SuspendRequested:
    """The job is to make room: for another, as the scheduler has it, or because a person wants it."""
    version = record.version if for_job else None
    by = "the scheduler" if for_job else "ada"
    return events.SuspendRequested(at=now, attempt=record.attempt, by=by, for_job=for_job, version=version)


def suspending(policy: Any = ADAPTIVE, record: Job | None = None, for_job: str = "big-1", now: datetime = NOW) -> Job:
    """A running job whose rank 0 has been told to leave."""
    record = record or running(policy, now=now)
    return applied(tell(record, suspend_event(record, for_job, now), policy, now))


def suspended(policy: Any = ADAPTIVE, for_job: str = "big-1", now: datetime = NOW) -> Job:
    """A job that has made room; held by a person where it was for no other job."""
    record = suspending(policy, for_job=for_job, now=now)
    ended = failure(EndingKind.STOPPED_BY_US)
    record = applied(tell(record, events.RankFailed(at=now, attempt=record.attempt, failure=ended), policy, now))
    return stopped(record, policy, now)


def stopped(record: Job, policy: Any = ADAPTIVE, now: datetime = NOW) -> Job:
    """The job after the end of every rank was confirmed."""
    event = events.AllRanksStopped(at=now, attempt=record.attempt, failure=record.failure)
    return applied(tell(record, event, policy, now))


def diagnosing(first: RankFailure | None = None, policy: Any = ADAPTIVE, record: Job | None = None) -> Job:
    """A job whose instances are being checked because of `first` (a plain exit code 1 if not said)."""
    return stopped(stopping(first or failure(EndingKind.FAILED), policy, record), policy)


def results(*outcomes: CheckOutcome, repairing: bool = True) -> dict[str, Checked]:
    """The checks of the job's instances in rank order; blamed ones are under repair if `repairing`."""
    return {
        instance_id: Checked(outcome, f"says {outcome}", repairing and outcome is CheckOutcome.REBOOT)
        for instance_id, outcome in zip(IDS, outcomes, strict=False)
    }


def checked(record: Job, found: dict[str, Checked], policy: Any = ADAPTIVE, now: datetime = NOW) -> Decision[Job]:
    """What the job decides when the barrier is down, and whoever may say more was heard again."""
    event = events.InstancesChecked(at=now, attempt=record.attempt, results=found)
    first = tell(record, event, policy, now)
    if not orders(first, commands.GatherEvidence):
        return first
    return tell(first.record, replace(event, heard_again=True), policy, now)


def observed(version: int = 1, **facts: Any) -> events.InstanceObserved:
    """What ECS says of an active, connected instance with 8 GPUs, but for `facts`."""
    usual = {"at": NOW, "ecs_status": "ACTIVE", "agent_connected": True, "container_instance_id": "ci-1", "gpus": 8}
    return events.InstanceObserved(ecs_version=version, **{**usual, **facts})


def available(instance_id: str = IDS[0], **fields: Any) -> Instance:
    """An instance that works, with `fields` changed."""
    return replace(state_machine.registered(instance_id, observed(), ADAPTIVE, NOW).record, **fields)


def claimed(job_id: str = "sft-1", attempt: int = 1, **fields: Any) -> Instance:
    """A working instance on which an attempt holds all GPUs."""
    return available(claims={job_id: Claim(attempt, 8)}, **fields)


def check_request(job_id: str = "sft-1", attempt: int = 1, may_reboot: bool = True) -> events.CheckRequested:
    """A job's wish to have the instance checked."""
    return events.CheckRequested(at=NOW, job_id=job_id, attempt=attempt, may_reboot=may_reboot)


def checking(policy: Any = ADAPTIVE, may_reboot: bool = True, **fields: Any) -> Instance:
    """An instance under its health check for attempt 1 of sft-1."""
    return applied(tell(claimed(**fields), check_request(may_reboot=may_reboot), policy))


def verdict_of(
    record: Instance, outcome: CheckOutcome, boot_id: str | None = "boot-1", booted_at: datetime | None = None
) -> events.CheckEnded:
    """The end of the check that the instance is under."""
    assert record.check is not None
    verdict = Verdict(outcome, f"it is {outcome}", boot_id, booted_at)
    return events.CheckEnded(at=NOW, check_id=record.check.check_id, verdict=verdict)


def rebooting(policy: Any = ADAPTIVE, now: datetime = NOW, **fields: Any) -> Instance:
    """An instance that is rebooted because its check blamed it; it showed boot id boot-1."""
    record = checking(policy, **fields)
    return applied(tell(record, verdict_of(record, CheckOutcome.REBOOT), policy, now))


def verifying(policy: Any = ADAPTIVE, now: datetime = NOW, **fields: Any) -> Instance:
    """That instance once its agent has gone and come back."""
    record = rebooting(policy, now, **fields)
    record = applied(tell(record, observed(2, agent_connected=False), policy, now))
    return applied(tell(record, observed(3), policy, now))
