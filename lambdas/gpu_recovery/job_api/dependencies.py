"""What routes reach: the loop, the stores beside it, ECS and logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gpu_recovery.auth.authenticator import TokenAuthenticator
from gpu_recovery.auth.tokens import TokenStore
from gpu_recovery.core.attempt import AttemptProgress, Plan
from gpu_recovery.core.log_location import LogPage
from gpu_recovery.job_api.capacity import Capacity
from gpu_recovery.job_api.redrive import DeadLetters
from gpu_recovery.job_api.submission import Submissions
from gpu_recovery.recovery import Recovery


class Log(Protocol):
    """A structured log."""

    def info(self, msg: object, /, *, extra: Mapping[str, object]) -> None: ...

    def warning(self, msg: object, /, *, exc_info: BaseException) -> None: ...

    def error(self, msg: object, /, *, exc_info: BaseException) -> None: ...

    def exception(self, msg: object, /) -> None: ...


class AttemptHistory(Protocol):
    """What is kept of the attempts of a job."""

    def of(self, job_id: str, attempts: Sequence[int]) -> Mapping[int, tuple[Plan | None, AttemptProgress | None]]:
        """The plan and the progress of each of `attempts`, as far as they are kept."""


class JobLogs(Protocol):
    """The logs of containers."""

    def read(self, group: str, stream: str, region: str, most: int, place: str | None) -> LogPage | str:
        """The newest `most` lines, or those from `place` on; or why there are none, in a sentence."""


class RayLogs(Protocol):
    """The logs of drivers on Ray."""

    def read(self, submission_id: str, most: int, place: str | None, *, grows: bool) -> LogPage:
        """The newest `most` lines, or those from `place` on; `grows`: the driver lives. Raises RayUnreachable."""


@dataclass(frozen=True)
class Dependencies:
    """What a route may use.

    operator_token: the operator's secret, which is also what cursors are signed with.
    describe:       an ECS task definition by its name, None if there is none.
    check_family:   the ECS family of the health check, which no job may run.
    random:         four hexadecimal digits.
    ray_logs:       None where there is no Ray cluster.
    records:        where jobs are recorded, `s3://<bucket>`; "" where they are not.
    letters:        the dead-letter queues, reached only by those who ask for them.
    """

    recovery: Recovery
    submissions: Submissions
    attempts: AttemptHistory
    capacity: Capacity
    logs: JobLogs
    node_tokens: TokenStore
    user_tokens: TokenStore
    users: TokenAuthenticator
    dead_letters: Callable[[], DeadLetters]
    operator_token: Callable[[], str]
    describe: Callable[[str], Mapping[str, Any] | None]
    random: Callable[[], str]
    check_family: str
    job_id_prefix: str
    log: Log
    records: str = ""
    ray_logs: RayLogs | None = None
