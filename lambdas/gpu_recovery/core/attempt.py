"""Attempt of a job: its plan, written at the launch, and its progress, collected rank by rank.

A fact about a rank is one idempotent addition to the progress. Only two additions concern the job itself: the first
failure, and the addition that completes a set. `running_event` and `stopped_event` return the event of an addition.
`missed_event` finds an event that was not delivered because a function died after the addition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime

from gpu_recovery.core import commands, events
from gpu_recovery.core.events import (
    AllRanksHeld,
    AllRanksRunning,
    AllRanksStopped,
    Checked,
    InstancesChecked,
    JobEvent,
    RankFailed,
)
from gpu_recovery.core.instance.record import IN_REPAIR, Instance, InstanceStatus
from gpu_recovery.core.job.record import TERMINAL, Job, JobStatus
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.task import RankFailure


@frozen_dataclass()
class Plan:
    """Plan of an attempt. The position in each tuple is the rank; "" stands for an unknown instance or ECS task id.

    signed: whether the tasks carry launch signatures. False: an older release began the attempt.
    hold_s: seconds for which the container of a failed rank waits for the next attempt; 0: it does not wait.
    preflight: whether each rank tests its container before the training starts.
    is_warm: the plan is that of a warm spare, whose container waits for a rank. Such a plan is not stored.
    """

    job_id: str
    attempt: int
    instances: tuple[str, ...]
    epochs: tuple[int, ...] = ()
    port_offset: int = 0
    task_ids: tuple[str, ...] = ()
    signed: bool = False
    hold_s: int = 0
    is_warm: bool = False
    preflight: bool = False


@frozen_dataclass()
class RankTask:
    """The ECS task of a rank and its instance; "" for an unknown task or instance.

    can_be_held: whether a later attempt may run in the container of the task.
    """

    task_id: str
    instance_id: str
    can_be_held: bool = False


def with_tasks(plan: Plan, tasks: Mapping[int, RankTask]) -> Plan:
    """Return the plan of a gang that a user started, with the tasks of ranks of which the plan has none."""
    seen = {rank: task for rank, task in tasks.items() if not plan.task_ids[rank]}
    if not seen:
        return plan
    instances = tuple(seen[rank].instance_id if rank in seen else name for rank, name in enumerate(plan.instances))
    task_ids = tuple(seen[rank].task_id if rank in seen else name for rank, name in enumerate(plan.task_ids))
    return replace(plan, instances=instances, task_ids=task_ids)


def with_seen_instances(job: Job, plan: Plan) -> Job:
    """Return an adopted job with the instances of the ranks that were seen since its record was written."""
    instances = tuple(known or seen for known, seen in zip(job.instances, plan.instances, strict=True))
    return job if instances == job.instances else replace(job, instances=instances)


@frozen_dataclass()
class AttemptProgress:
    """Progress of an attempt: which ranks started, ended and were checked. A set never shrinks.

    world:    number of ranks.
    failure:  the first rank that did not succeed.
    checked:  check results by rank.
    own_ends: number of ranks that failed without having been stopped.
    held:     ranks whose process ended while their container waited. The end of the container is in `stopped`.
    """

    job_id: str
    attempt: int
    world: int
    running: frozenset[int] = frozenset()
    stopped: frozenset[int] = frozenset()
    failure: RankFailure | None = None
    checked: Mapping[int, Checked] = field(default_factory=dict)
    own_ends: int = 0
    held: frozenset[int] = frozenset()

    @property
    def all_running(self) -> bool:
        """Whether every rank runs, or ran."""
        if len(self.running) + len(self.stopped) + len(self.held) < self.world:
            return False  # called at each rank's start: the sets of a large gang are joined only if needed
        return len(self.running | self.stopped | self.held) >= self.world

    @property
    def all_held(self) -> bool:
        """Whether every rank's process has ended, and at least one container waits."""
        return len(self.held | self.stopped) >= self.world > len(self.stopped)

    @property
    def all_stopped(self) -> bool:
        """Whether every rank's end is confirmed."""
        return len(self.stopped) >= self.world

    @property
    def all_checked(self) -> bool:
        """Whether the instance of every rank has a check result."""
        return len(self.checked) >= self.world

    def results(self, plan: Plan) -> dict[str, Checked]:
        """Return the available check results by instance id."""
        return {plan.instances[rank]: result for rank, result in sorted(self.checked.items())}

    def unconfirmed(self, plan: Plan) -> tuple[str, ...]:
        """Return the instances of the ranks that are not known to have ended."""
        if not self.stopped:
            return plan.instances  # the usual case: nearly every poll of a gang that runs for weeks
        return tuple(instance for rank, instance in enumerate(plan.instances) if rank not in self.stopped)

    def unconfirmed_tasks(self, plan: Plan) -> tuple[str, ...]:
        """Return the task ids of the ranks that are not known to have ended, as far as the plan has them."""
        task_ids = plan.task_ids[: self.world]
        if self.stopped:
            task_ids = tuple(task_id for rank, task_id in enumerate(task_ids) if rank not in self.stopped)
        return tuple(filter(None, task_ids))


def joined(parts: Sequence[AttemptProgress]) -> AttemptProgress:
    """Return the whole progress of an attempt whose ranks are recorded in parts.

    The first part holds the first failure of the attempt. If a function was killed before it wrote the failure there,
    the earliest failure of the other parts takes its place.
    """
    head, *others = parts
    failures = [part.failure for part in others if part.failure is not None]
    checked: dict[int, Checked] = {}
    for part in parts:
        checked |= part.checked
    return replace(
        head,
        running=frozenset().union(*(part.running for part in parts)),
        stopped=frozenset().union(*(part.stopped for part in parts)),
        held=frozenset().union(*(part.held for part in parts)),
        failure=head.failure or min(failures, key=lambda failure: (failure.at, failure.rank), default=None),
        checked=checked,
        own_ends=sum(part.own_ends for part in parts),
    )


def running_event(after: AttemptProgress, at: datetime) -> JobEvent | None:
    """Return the event of a rank's start: AllRanksRunning if every rank runs, None otherwise."""
    if after.all_running and not after.all_stopped and after.failure is None:
        return AllRanksRunning(at=at, attempt=after.attempt)
    return None


def stopped_event(after: AttemptProgress, first_failure: bool, at: datetime) -> JobEvent | None:
    """Return the event of a rank's end: AllRanksStopped if every rank ended, else RankFailed for the first failure.

    AllRanksHeld if every process has ended, and some containers wait for the next attempt.

    Args:
        after: the progress with the rank's end.
        first_failure: whether the addition set the first failure of the attempt.
        at: time of the event.
    """
    if after.all_stopped:
        return AllRanksStopped(at=at, attempt=after.attempt, failure=after.failure, own_ends=after.own_ends)
    if first_failure and after.failure is not None:
        return RankFailed(at=at, attempt=after.attempt, failure=after.failure)
    if after.all_held:
        return AllRanksHeld(at=at, attempt=after.attempt, failure=after.failure, own_ends=after.own_ends)
    return None


def missed_event(
    status: JobStatus, progress: AttemptProgress, plan: Plan, at: datetime, evidence_recollected: bool = False
) -> JobEvent | None:
    """Return the event that the progress holds and a job in `status` has not received. None if there is none.

    The event is missing if a function died after it wrote the progress and before it delivered the event.

    Args:
        status: the status of the job.
        progress: the progress of the attempt.
        plan: the plan of the attempt.
        at: time of the event.
        evidence_recollected: whether the evidence of the attempt is collected a second time.
    """
    if status is JobStatus.DIAGNOSING:
        if not progress.all_checked:
            return None
        results = progress.results(plan)
        return InstancesChecked(at=at, attempt=plan.attempt, results=results, heard_again=evidence_recollected)
    if status is JobStatus.STOPPING:
        return stopped_event(progress, False, at)
    if status in (JobStatus.SUBMITTING, JobStatus.SUBMITTED, JobStatus.RUNNING, JobStatus.LOST):
        ended = stopped_event(progress, True, at)
        if ended is None and status not in (JobStatus.RUNNING, JobStatus.LOST):
            return running_event(progress, at)
        return ended
    return None


def undelivered_event(
    job: Job, progress: AttemptProgress, plan: Plan, policy: RecoveryPolicy, now: datetime
) -> events.JobEvent | None:
    """Return the event that the attempt's progress holds and `job` has not received. None if there is none.

    A failure that an observed job has recorded counts as received. While a command collects evidence a second time
    the result is None, because the function that executes the command delivers the next event itself.
    """
    collecting = any(isinstance(pending.command, commands.GatherEvidence) for pending in job.commands)
    if collecting and job.heard_again == job.attempt:
        return None
    event = missed_event(job.status, progress, plan, now, evidence_recollected=job.heard_again == job.attempt)
    if isinstance(event, AllRanksHeld) and job.status is JobStatus.STOPPING:
        # The evidence is being collected, or ECS is stopping the containers.
        return event if job.holding and job.held_attempt != job.attempt else None
    received = job.is_observed(policy) and job.failure is not None and isinstance(event, events.RankFailed)
    return None if received else event


def with_awaited_flag(record: Job | Instance, event: events.InstanceEvent) -> events.InstanceEvent:
    """Return the event to deliver. If the job has moved on since its request, mark the event as `awaited=False`.

    A check is awaited while the job is DIAGNOSING or RECOVERING, a repair until the job has ended.
    """
    if not isinstance(record, Job) or not isinstance(event, events.CheckRequested | events.RepairRequested):
        return event
    checking = (JobStatus.DIAGNOSING, JobStatus.RECOVERING)
    waits = record.status in checking if isinstance(event, events.CheckRequested) else record.status not in TERMINAL
    return event if waits and record.attempt == event.attempt else replace(event, awaited=False)


def is_under_way(instance: Instance, job: Job, now: datetime) -> bool:
    """Return whether something goes on at the instance, or is blocked for now, that `job` waits for.

    A job waits in STOPPING for the end of a rank that a reboot will confirm, in DIAGNOSING for a health check within
    its time, in RECOVERING for a repair. All of these end by themselves: each instance has its own deadlines.
    """
    in_repair = instance.status in IN_REPAIR or instance.held is not None
    match job.status:
        case JobStatus.STOPPING:
            confirming = (pending.command for pending in instance.commands)
            confirms = any(isinstance(one, commands.ConfirmEnd) and one.job_id == job.job_id for one in confirming)
            return confirms or (in_repair and job.job_id in instance.claims)
        case JobStatus.DIAGNOSING:
            run, until = instance.check, instance.deadline_at
            is_awaited = run is not None and (run.job_id, run.attempt) == (job.job_id, job.attempt)
            return is_awaited and until is not None and until > now
        case JobStatus.RECOVERING:
            return in_repair or instance.status is InstanceStatus.CHECKING
        case _:
            return False


def why_not_rebooted(instance: Instance, job: Job) -> str:
    """Return why the instance is not rebooted although a rank of `job` may run on it; "" if nothing prevents that.

    A limit holds its repair back for now, or the instance needs an operator.
    """
    if job.status is not JobStatus.STOPPING or job.job_id not in instance.claims:
        return ""
    if instance.held is not None:
        return instance.reason
    if not instance.needs_operator:
        return ""
    orphans = f"{instance.avoid_reason}, and " if instance.orphaned_ranks else ""
    return f"{orphans}it needs an operator ({instance.reason}): reboot and release it, or terminate it"
