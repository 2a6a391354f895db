"""Dependencies of the routes: the recovery loop, stores, ECS task definitions and logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

from gpu_recovery.auth.authenticator import TokenAuthenticator
from gpu_recovery.auth.roles import Role
from gpu_recovery.auth.tokens import TokenStore, UserDirectory
from gpu_recovery.core.attempt import AttemptProgress, Plan
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.log_location import LogPage
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.job_api.capacity import Capacity
from gpu_recovery.job_api.instance_listings import InstanceListings
from gpu_recovery.job_api.placement_preview import QueueViews
from gpu_recovery.job_api.redrive import DeadLetters
from gpu_recovery.job_api.snapshot_cache import SNAPSHOT_TTL, WEEK_TTL, DeadLetterCounts, SnapshotCache, TimedCache
from gpu_recovery.job_api.submission import Submissions
from gpu_recovery.job_api.task_definition import TaskDefinitionRules
from gpu_recovery.ports.event_history import HistoryReader
from gpu_recovery.ports.verdict_documents import VerdictDocuments
from gpu_recovery.recovery import Recovery


class Log(Protocol):
    """A structured log."""

    def info(self, msg: object, /, *, extra: Mapping[str, object]) -> None:
        """Log a message with the fields of `extra`."""

    def warning(self, msg: object, /, *, exc_info: BaseException) -> None:
        """Log a warning with the traceback of `exc_info`."""

    def error(self, msg: object, /, *, exc_info: BaseException) -> None:
        """Log an error with the traceback of `exc_info`."""

    def exception(self, msg: object, /) -> None:
        """Log an error with the traceback of the exception that is being handled."""


class AttemptHistory(Protocol):
    """Stored plans and progress of the attempts of a job."""

    def of(self, job_id: str, attempts: Sequence[int]) -> Mapping[int, tuple[Plan | None, AttemptProgress | None]]:
        """Return the plan and the progress of each attempt of `attempts`; None for a part that is not stored."""


class JobLogs(Protocol):
    """Logs of containers."""

    def read(self, group: str, stream: str, region: str, most: int, place: str | None) -> LogPage | str:
        """Return a page of a log, or a sentence that says why no log can be read.

        Args:
            group: log group.
            stream: log stream.
            region: AWS region of the log, "" for the region of the deployment.
            most: upper bound of the lines.
            place: position from which lines are read; None for the newest lines.
        """


class RayLogs(Protocol):
    """Logs of drivers on Ray."""

    def read(self, submission_id: str, most: int, place: str | None, *, grows: bool) -> LogPage:
        """Return a page of a driver's log.

        Args:
            submission_id: id of the driver in Ray.
            most: upper bound of the lines.
            place: position from which lines are read; None for the newest lines.
            grows: whether the driver is alive. An unfinished last line is then left for the next page.

        Raises:
            RayUnreachable: the Ray cluster, or the function that reaches the cluster, did not answer.
        """


@frozen_dataclass()
class Deployment:
    """The deployment that the API belongs to.

    cluster: name of the ECS cluster.
    region:  AWS region.
    adopt:   whether tasks that users start themselves are adopted: off, observe or recover.
    gpu_history: whether the gauges of GPUs are kept, and their utilisation is shown in the fleet map.
    """

    cluster: str
    region: str
    adopt: str
    gpu_history: bool = False


@frozen_dataclass()
class Dependencies:
    """Everything that a route may use.

    user_directory: names of the users that tokens were issued to.
    verdicts:       verdict documents of health checks.
    dead_letters:   returns the dead-letter queues. Only the routes of dead letters call it.
    node_token_key: returns the issuer key of node tokens.
    user_token_key: returns the issuer key of user tokens.
    cursor_key:     returns the key that signs cursors.
    session_key:    returns the key that signs sessions.
    operator_token: returns the operator token.
    describe:       returns an ECS task definition by its name, None if there is none.
    random:         returns four hexadecimal digits.
    rules:          what the deployment demands of the task definitions of jobs.
    priority_max:   highest priority that a user may ask for without a quota of this priority.
    deployment:     the deployment that the API belongs to.
    history:        the event history.
    job_id_prefix:  first characters of each new job id.
    records:        location of the job archive, `s3://<bucket>`; "" if jobs are not archived.
    ray_logs:       None if the deployment has no Ray cluster.
    principals:     role by IAM principal, if callers sign their requests; None if callers send tokens.
    queue_views:    the view of the queue that further pages are taken from.
    instance_listings: the listing that filtered pages of instances are taken from.
    snapshots:      the console snapshots.
    dead_letter_counts: the numbers of dead letters that the overview shows.
    history_cache:  what the overview shows of the event history.
    week_cache:     the figures of the last days that the overview shows.
    """

    recovery: Recovery
    submissions: Submissions
    attempts: AttemptHistory
    capacity: Capacity
    logs: JobLogs
    node_tokens: TokenStore
    user_tokens: TokenStore
    user_directory: UserDirectory
    verdicts: VerdictDocuments
    users: TokenAuthenticator
    node_token_key: Callable[[], bytes]
    user_token_key: Callable[[], bytes]
    cursor_key: Callable[[], bytes]
    session_key: Callable[[], bytes]
    dead_letters: Callable[[], DeadLetters]
    operator_token: Callable[[], str]
    describe: Callable[[str], Mapping[str, Any] | None]
    random: Callable[[], str]
    rules: TaskDefinitionRules
    priority_max: Priority
    job_id_prefix: str
    deployment: Deployment
    log: Log
    history: HistoryReader
    records: str = ""
    ray_logs: RayLogs | None = None
    principals: Mapping[str, Role] | None = None
    queue_views: QueueViews = field(default_factory=QueueViews)
    instance_listings: InstanceListings = field(default_factory=InstanceListings)
    snapshots: SnapshotCache = field(default_factory=SnapshotCache)
    dead_letter_counts: DeadLetterCounts = field(default_factory=DeadLetterCounts)
    history_cache: TimedCache[list[dict[str, Any]]] = field(default_factory=lambda: TimedCache(SNAPSHOT_TTL))
    week_cache: TimedCache[dict[str, Any] | None] = field(default_factory=lambda: TimedCache(WEEK_TTL))
