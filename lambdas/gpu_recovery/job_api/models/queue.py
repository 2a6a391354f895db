"""Models of the queue and of quotas."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.quota import ANY
from gpu_recovery.job_api.models.base import Limit, OneOf, PriorityName, ResponseModel, Time


class Total(ResponseModel):
    """Numbers of jobs, instances and GPUs."""

    jobs: int
    instances: int
    gpus: int


class PriorityTotal(ResponseModel):
    """Totals of a priority."""

    priority: PriorityName
    running: Total
    queued: Total


class QuotaUse(ResponseModel):
    """Use and limit of a quota; no limit is null."""

    user: str
    priority: Annotated[str, OneOf(*Priority.__members__, ANY)]
    group: str
    used: int
    limit: int | None


class WaitingJob(ResponseModel):
    """A job that waits in the queue. Only the snapshot has `blockers` and `would_suspend`."""

    job_id: str
    name: str | None
    user: str
    priority: PriorityName
    asked_priority: PriorityName
    group: str
    nodes: Annotated[int, Field(description="Number of instances; of an elastic job the largest number.")]
    nodes_min: Annotated[int | None, Field(description="Smallest number of instances of an elastic job.")]
    gpus: int
    status: JobStatus | None
    queued_at: Time
    position: int | None
    short_of: str | None
    sentence: str
    earliest_at: Time | None
    backend: Backend
    blockers: Annotated[list[str], Field(default_factory=list)]
    would_suspend: Annotated[list[str], Field(default_factory=list)]


class RunningJob(ResponseModel):
    """A job that has GPUs."""

    job_id: str
    name: str | None
    status: JobStatus
    user: str
    priority: PriorityName
    group: str
    nodes: Annotated[int, Field(description="Number of instances that the job has.")]
    nodes_max: Annotated[int | None, Field(description="Largest number of instances of an elastic job.")]
    gpus: int
    since: Time
    ends_at: Time | None
    can_suspend: bool
    backend: Backend


class Reservation(ResponseModel):
    """Instances that are reserved for a waiting job."""

    job_id: str
    group: str
    hosts: list[str]
    at: Time | None


class Queue(ResponseModel):
    """The queue. Only the snapshot has the properties that are not required."""

    waiting: list[WaitingJob]
    running: list[RunningJob]
    totals: list[PriorityTotal]
    quotas: list[QuotaUse]
    reservations: list[Reservation]
    next_cursor: str | None
    unreadable: list[str]
    as_of: Annotated[Time | None, Field(default_factory=str)]
    groups: Annotated[list[str], Field(default_factory=list)]
    waiting_more: Annotated[int, Field(default_factory=int)]
    running_more: Annotated[int, Field(default_factory=int)]


class Limits(ResponseModel):
    """Limits of instances by `user/PRIORITY/group`, and of running jobs; no limit is null."""

    instances: dict[str, Annotated[int, Field(ge=0)]] | None
    max_running_jobs: Limit | None
    max_running_jobs_per_user: Limit | None


class Quotas(ResponseModel):
    """The limits and their revision. A request that changes the limits names the revision in `If-Match`."""

    limits: Limits
    revision: int
