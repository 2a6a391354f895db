"""Models of jobs, their attempts, decisions and logs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, RootModel

from gpu_recovery.core.diagnosis.observations import StepResult
from gpu_recovery.core.diagnosis.taxonomy import Cause, Remedy
from gpu_recovery.core.job.downtime import DownPhase, LossCause
from gpu_recovery.core.job.record import JobStatus, Origin
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.policy import Preflight
from gpu_recovery.core.queue.snapshot import RejectionKind
from gpu_recovery.core.recovery_expectation.failure_rate import RateSource
from gpu_recovery.core.task import FailureKind
from gpu_recovery.job_api.models.base import Percent, PriorityName, ResponseModel, Time
from gpu_recovery.wire.attempts import AttemptStatus
from gpu_recovery.wire.event_types import EventType


class JobRow(ResponseModel):
    """A job in a list with `fields=list`."""

    job_id: str
    name: str | None
    status: JobStatus
    reason: str
    attempt: int
    attempts_counted: int
    attempts_max: int
    user: str
    group: str
    priority: PriorityName
    asked_priority: PriorityName
    backend: Backend
    nnodes: Annotated[int, Field(description="Number of instances; of an elastic job the largest number.")]
    nnodes_min: Annotated[int | None, Field(description="Smallest number of instances of an elastic job.")]
    width: Annotated[
        int | None, Field(description="Number of instances of the current or last attempt. null: there is none.")
    ]
    n_gpus_per_node: int
    origin: Origin
    queued_at: Time
    status_at: Time
    incident_id: str | None
    held: bool
    short_of: str | None


class JobSummary(JobRow):
    """A job in a list."""

    workload: str
    task_definition: str
    instances: list[str]
    repairing: list[str]
    deadline_at: Time | None
    next_run_at: Time | None


class Jobs(ResponseModel):
    """A page of jobs."""

    jobs: list[JobSummary | JobRow]
    next_cursor: str | None
    unreadable: list[str]


class Decision(ResponseModel):
    """A decision about a record, with its reason."""

    at: Time
    before: Annotated[str | None, Field(alias="from")]
    to: str
    event: str
    attempt: int
    reason: str


class JobDecision(Decision):
    """A decision about a job, with its reason."""

    event_type: EventType


class Attempt(ResponseModel):
    """An attempt of a job. An attempt on ECS has instances, an attempt on Ray has a submission id."""

    attempt: int
    attempt_id: str
    status: AttemptStatus
    started_at: Time | None
    ended_at: Time | None
    exit_code: int | None
    failure_kind: FailureKind | None
    message: str | None
    counted: bool | None
    instances: Annotated[list[str], Field(default_factory=list)]
    submission_id: Annotated[str, Field(default_factory=str)]


class DiagnosisResult(ResponseModel):
    """The diagnosis that led to the last decision about a failed attempt."""

    attempt: int
    cause: Cause
    where: str
    instances: list[str]
    remedy: Remedy
    remedy_sentence: str
    confidence: Percent
    decided: bool
    sentence: str


class JobFailure(ResponseModel):
    """The first rank that failed."""

    rank: int
    instance_id: str
    at: Time
    kind: str
    exit_code: int | None
    sentence: str


class TimeoutWarning(ResponseModel):
    """Two timeouts of a job that do not fit: the inner limit must be shorter than the outer limit."""

    inner: str
    inner_s: float
    outer: str
    outer_s: float
    sentence: str


class Bill(ResponseModel):
    """What a downtime has cost, in seconds. A suspension is a phase that does not count as downtime."""

    down_s: Annotated[int, Field(description="From the failure to the next training step.")]
    repeated_s: Annotated[int | None, Field(description="Work since the last checkpoint that is done again.")]
    lost_s: int
    phases: dict[str, int]
    cause: LossCause
    recovered: bool
    kept: Annotated[bool | None, Field(description="Whether the recovery contract is kept; null without a contract.")]


class Downtime(Bill):
    """The open or the last downtime of a job."""

    since: Time
    until: Time | None
    attempt: int
    phase: DownPhase | None
    sentences: list[str]


class RecoveryLengths(ResponseModel):
    """Quantiles of an incident in seconds, and the shares of the incidents within the limits of the contract."""

    down_p50_s: float
    down_p95_s: float
    lost_p50_s: float
    lost_p95_s: float
    down_kept: float
    lost_kept: float


class RecoveryAlternative(RecoveryLengths):
    """Changes that would meet a recovery contract, and the lengths with them."""

    changes: list[str]
    checkpoint_every_s: int | None
    sentence: str


class RecoveryExpectation(RecoveryLengths):
    """What a job with a recovery contract may expect of its failures."""

    days: float
    incidents: float
    incidents_low: Annotated[float, Field(description="The 5 % quantile, `incidents_high` is the 95 % quantile.")]
    incidents_high: float
    rate_per_1000_instance_days: float
    rate_source: Annotated[
        RateSource,
        Field(
            description="Whose rate it is: that of this `fleet`, `blended` of the published rate and fewer than 10 "
            "incidents of this fleet, or `published` alone. `unread`: published, because the history did not answer."
        ),
    ]
    own_incidents: Annotated[int, Field(description="Incidents of this fleet in the last 28 days.")]
    own_gpu_days: float
    own_recoveries: Annotated[int, Field(description="Recoveries of this fleet whose times are used.")]
    spares: int
    checkpoint_every_s: float
    reports_progress: Annotated[bool, Field(description="Whether a hang is taken to be noticed by progress reports.")]
    is_met: Annotated[bool, Field(description="Whether both limits are kept in 95 % of the incidents.")]
    alternatives: list[RecoveryAlternative]
    sentences: list[str]


class Job(JobSummary):
    """A job with its history and its attempts."""

    reason_at: Annotated[Time, Field(description="Time of the decision that gave `reason` and `short_of`.")]
    container: str
    command: list[str]
    entrypoint: str
    image: str | None
    max_runtime_s: int | None
    progress_timeout_s: int | None
    suspend_grace_s: int
    checkpoint_dir: str
    restart_in_place: bool
    ranks_in_place: int
    preflight: Preflight
    warm_spares: list[str]
    max_down_minutes: int | None
    max_lost_minutes: int | None
    checkpoint_every_s: int | None
    reports_progress: Annotated[bool | None, Field(description="As the job states it; null if it does not.")]
    recovery_limit_at: Annotated[Time | None, Field(description="Time at which a limit of the contract passes.")]
    downtime: Downtime | None
    lost_s: Annotated[dict[str, int], Field(description="Seconds of all downtimes that are over, by cause.")]
    suspended_for: str | None
    suspended_at: Time | None
    ran_s: int
    attempts_uncounted: dict[str, int]
    diagnosis: DiagnosisResult | None
    failure: JobFailure | None
    history: list[JobDecision]
    attempts: list[Attempt]
    records: str | None
    timeout_warnings: list[TimeoutWarning]
    recovery_expectation: Annotated[
        RecoveryExpectation | None, Field(description="Only in the answer to a submission with a recovery contract.")
    ]


class Foresight(ResponseModel):
    """Placement preview: where a job would run now, or what it waits for."""

    would_start: bool
    instances: list[str]
    short_of: RejectionKind | None
    sentence: str
    position: int | None
    blockers: list[str]
    earliest_at: Time | None
    would_suspend: list[str]
    as_of: Annotated[Time, Field(description="Time at which the sentence holds.")]


class DryRun(Foresight):
    """Placement preview of a job that was not stored, and the warnings of its submission."""

    timeout_warnings: list[TimeoutWarning]
    recovery_expectation: RecoveryExpectation | None


class JobOrForesight(RootModel[Job | DryRun]):
    """The job that already has this idempotency key, or with `dry_run=1` a placement preview."""


class PreflightResult(ResponseModel):
    """A step of the preflight of a rank that did not pass, or an instance that differs from the others."""

    rank: int
    instance_id: str
    step: str
    result: StepResult
    seconds: float
    sentence: str


class PreflightResults(ResponseModel):
    """Results of the preflight of the present attempt."""

    attempt: int
    ranks: Annotated[int, Field(description="Ranks whose results were read. Of a large gang the first ranks.")]
    reported: Annotated[int, Field(description="Ranks of these that have reported.")]
    passed: Annotated[dict[str, int], Field(description="Number of ranks on which each step passed.")]
    not_run: Annotated[dict[str, int], Field(description="Number of ranks on which each step was not run.")]
    others: list[PreflightResult]
    apart: Annotated[dict[str, str], Field(description="Instances that are checked first after a failure, and why.")]


class Explanation(ResponseModel):
    """Every decision about a job, and what the job waits for."""

    job_id: str
    status: JobStatus
    reason: str
    pending: Foresight | None
    timeout_warnings: list[TimeoutWarning]
    preflight: PreflightResults | None
    downtime: Downtime | None
    decisions: list[JobDecision]


class LogLine(ResponseModel):
    """A line of a rank's log."""

    at: Time | None
    text: str


class LogLines(ResponseModel):
    """A page of a rank's log."""

    job_id: str
    attempt: int
    rank: int
    lines: list[LogLine]
    next_cursor: str | None
