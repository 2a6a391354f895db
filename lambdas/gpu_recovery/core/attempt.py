"""One attempt of a job: its plan, written when it is launched, and its progress, gathered rank by rank.

A rank's fact is one idempotent addition to the progress. Only two additions concern the job itself: the first
failure, and the one that completes a set. `news` says which event, if any, an addition makes; the same function finds
what was never told because somebody died in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from gpu_recovery.core import commands, events
from gpu_recovery.core.events import AllRanksRunning, AllRanksStopped, Checked, InstancesChecked, JobEvent, RankFailed
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.record import TERMINAL, Job, JobStatus
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.task import RankFailure


@dataclass(frozen=True, slots=True)
class Plan:
    """Which rank runs where; instances and ECS task ids by rank, "" where none is known."""

    job_id: str
    attempt: int
    instances: tuple[str, ...]
    epochs: tuple[int, ...] = ()
    port_offset: int = 0
    task_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AttemptProgress:
    """What is known of an attempt's ranks; `checked` is by rank number. A set never shrinks.

    own_ends: how many of those that have ended did not succeed, without having been stopped.
    """

    job_id: str
    attempt: int
    world: int
    running: frozenset[int] = frozenset()
    stopped: frozenset[int] = frozenset()
    failure: RankFailure | None = None
    checked: Mapping[int, Checked] = field(default_factory=dict)
    own_ends: int = 0

    @property
    def all_running(self) -> bool:
        """Whether every rank runs, or ran."""
        if len(self.running) + len(self.stopped) < self.world:
            return False  # asked at each rank's start: the sets of a large gang are joined only when it may matter
        return len(self.running | self.stopped) >= self.world

    @property
    def all_stopped(self) -> bool:
        """Whether every rank's end is confirmed."""
        return len(self.stopped) >= self.world

    @property
    def all_checked(self) -> bool:
        """Whether every rank's instance has its check's result."""
        return len(self.checked) >= self.world

    def results(self, plan: Plan) -> dict[str, Checked]:
        """The checks that are in, by instance id."""
        return {plan.instances[rank]: result for rank, result in sorted(self.checked.items())}

    def unconfirmed(self, plan: Plan) -> tuple[str, ...]:
        """The instances whose rank is not known to have ended."""
        if not self.stopped:
            return plan.instances  # as at nearly every look at a gang of weeks
        return tuple(instance for rank, instance in enumerate(plan.instances) if rank not in self.stopped)

    def unconfirmed_tasks(self, plan: Plan) -> tuple[str, ...]:
        """The tasks of the ranks that are not known to have ended, where the plan names one."""
        task_ids = plan.task_ids[: self.world]
        if self.stopped:
            task_ids = tuple(task_id for rank, task_id in enumerate(task_ids) if rank not in self.stopped)
        return tuple(filter(None, task_ids))


def running_event(after: AttemptProgress, at: datetime) -> JobEvent | None:
    """The event that a rank's start makes: the completing one says that all run."""
    if after.all_running and not after.all_stopped and after.failure is None:
        return AllRanksRunning(at=at, attempt=after.attempt)
    return None


def stopped_event(after: AttemptProgress, first_failure: bool, at: datetime) -> JobEvent | None:
    """The event that a rank's end makes: the completing one, else the first failure, else none."""
    if after.all_stopped:
        return AllRanksStopped(at=at, attempt=after.attempt, failure=after.failure, own_ends=after.own_ends)
    if first_failure and after.failure is not None:
        return RankFailed(at=at, attempt=after.attempt, failure=after.failure)
    return None


def missed_event(
    status: JobStatus, progress: AttemptProgress, plan: Plan, at: datetime, contact_restored: bool = False
) -> JobEvent | None:
    """What the progress holds and a job in `status` has not heard: the loss of whoever died between the two.

    heard_again: its witnesses were to be heard a second time.
    """
    if status is JobStatus.DIAGNOSING:
        if not progress.all_checked:
            return None
        results = progress.results(plan)
        return InstancesChecked(at=at, attempt=plan.attempt, results=results, heard_again=contact_restored)
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
    """The event that the attempt's progress holds and `job` has not received; None if there is none.

    A failure that an observed job has recorded counts as received. While a command collects evidence again there is
    none: the function that carries out the command delivers what follows, or has died of it.
    """
    hears = any(isinstance(one.command, commands.GatherEvidence) for one in job.commands)
    if hears and job.heard_again == job.attempt:
        return None
    news = missed_event(job.status, progress, plan, now, contact_restored=job.heard_again == job.attempt)
    heard = job.is_observed(policy) and job.failure is not None and isinstance(news, events.RankFailed)
    return None if heard else news


def with_awaited_flag(record: Job | Instance, event: events.InstanceEvent) -> events.InstanceEvent:
    """Return the event to deliver. If the job has moved on since it asked, mark the event as `awaited=False`.

    A check is awaited while the job diagnoses or recovers, a repair until the job has ended.
    """
    if not isinstance(record, Job) or not isinstance(event, events.CheckRequested | events.RepairRequested):
        return event
    checked = (JobStatus.DIAGNOSING, JobStatus.RECOVERING)
    waits = record.status in checked if isinstance(event, events.CheckRequested) else record.status not in TERMINAL
    return event if waits and record.attempt == event.attempt else replace(event, awaited=False)
