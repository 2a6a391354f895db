"""Ray cluster behind Ray's own clients: drivers, their logs, and free GPUs.

Drivers are submitted with `JobSubmissionClient`, which calls the dashboard of the head node (port 8265).

Free GPUs are read from the global control store of the head (port 6379), because verl counts GPUs there. Two other
sources were rejected. The dashboard updates its summary of the cluster every few seconds, and was seen to show every
GPU as free while five of eight were in use. A driver that only counts GPUs takes seconds, and leaves a job in Ray each
time.

All calls were tested against Ray 2.60. Comments beside the calls describe its answers.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, TypeVar

import requests
from gpu_recovery.core.ray.driver import DriverState, DriverStatus
from gpu_recovery.core.ray.submission import DriverSubmission, refused_field
from gpu_recovery.ports.errors import TryAgainSoon
from gpu_recovery.ports.values import Refusal
from ray._raylet import GcsClient
from ray.exceptions import RayError
from ray.job_submission import JobSubmissionClient

Answer = TypeVar("Answer")
ANSWER_TIMEOUT_S = 20
"""Seconds that one answer may take. Ray's client itself has no timeout."""
CONNECT_TIMEOUT_S = 3
"""Seconds to connect to the global control store."""
LOG_BYTES_MAX = 64 * 2**20
"""Upper bound of a log in bytes. Ray sends a log only as a whole, so a longer log is not read."""
REASON_CHARACTERS_MAX = 500
"""Upper bound of the characters of a reason that Ray gives."""
GPU = "GPU"
"""Name of the GPU resource in Ray."""


class LogTooLong(Exception):
    """The log is too large for the memory of the function."""


class BoundedClient(JobSubmissionClient):  # type: ignore[misc]
    """Ray's client with a timeout and an upper bound of the size of an answer."""

    def _do_request(self, method: str, endpoint: str, **options: Any) -> Any:
        answer = super()._do_request(method, endpoint, **{"timeout": ANSWER_TIMEOUT_S, "stream": True, **options})
        size = int(answer.headers.get("Content-Length", 0))
        if size > LOG_BYTES_MAX:
            answer.close()
            raise LogTooLong(f"{size} bytes")
        return answer


class RayCluster:
    """`execution.ray.RayPool` on a cluster of Ray 2.60.

    Every method raises TryAgainSoon if the cluster does not answer, or answers with an internal error.

    Args:
        address: address of the head's dashboard, `http://<host>:8265`.
        gcs_address: address of the head's global control store, `<host>:6379`.
    """

    def __init__(self, address: str, gcs_address: str) -> None:
        self._address, self._gcs_address = address, gcs_address
        self._client: JobSubmissionClient | None = None
        self._gcs: Any = None

    def submit(self, submission: DriverSubmission) -> Refusal | None:
        """Start a driver, unless its submission id is known. Return a Refusal if Ray rejects the driver for good."""
        refused = refused_field(submission.runtime_env)
        if refused is not None:
            return Refusal(f"runtime_env.{refused.name} {refused.detail}", lasting=True)
        try:
            self._call(
                lambda jobs: jobs.submit_job(
                    entrypoint=submission.entrypoint,
                    submission_id=submission.submission_id,
                    metadata=dict(submission.metadata),
                    runtime_env=dict(submission.runtime_env),
                    entrypoint_resources=dict(submission.resources),
                )
            )
        except (TypeError, ValueError) as error:  # Ray's client itself validates the runtime_env
            return Refusal(str(error)[:REASON_CHARACTERS_MAX], lasting=True)
        except RuntimeError as error:
            # HTTP 500, and the traceback ends with this text: an earlier submit succeeded, but its answer was lost.
            if f"submission_id {submission.submission_id} already exists" in str(error):
                return None
            # A bad request is answered with HTTP 500 that contains the status 400 of the head's agent. Any other 500
            # is an internal error of Ray, for example of a new head without an agent.
            if "status code 400" in str(error):
                return Refusal(_last_line(str(error)), lasting=True)
            raise TryAgainSoon(f"the Ray cluster cannot take drivers: {_last_line(str(error))}") from error
        return None

    def status(self, submission_id: str) -> DriverStatus:
        """Return the status of a driver; its state is GONE if Ray does not know the id."""
        info = self._call_for_driver(lambda jobs: jobs.get_job_info(submission_id))
        if info is None:
            return DriverStatus(DriverState.GONE)
        return DriverStatus(
            state=DriverState(info.status.value),
            message=info.message or "",
            exit_code=info.driver_exit_code,
            error_type=info.error_type or "",
            started_at=_time(info.start_time),
            ended_at=_time(info.end_time),
        )

    def logs(self, submission_id: str, tail: int) -> str:
        """Return the last `tail` lines of the driver's log.

        The result is "" if Ray does not know the driver, and a sentence in parentheses if the log is too large.
        """
        try:
            text = self._call_for_driver(lambda jobs: jobs.get_job_logs(submission_id))
        except LogTooLong as too_long:
            return f"(the log is too long to be read here: {too_long})"
        return "".join((text or "").splitlines(keepends=True)[-tail:])

    def stop(self, submission_id: str) -> None:
        """Stop a driver with SIGTERM, and with SIGKILL after 3 s. An ended or unknown driver is ignored."""
        # Ray answers True for a live driver, False for an ended driver and 404 for an unknown driver. A driver that
        # Ray cannot start is answered with True and stays PENDING.
        self._call_for_driver(lambda jobs: jobs.stop_job(submission_id))

    def free_gpus_per_node(self) -> Mapping[str, float]:
        """Return the free GPUs by node id, for nodes that have any. verl counts free GPUs in the same way."""
        nodes = ((node.node_id.hex(), dict(node.resources_available)) for node in self._nodes())
        return {name: free[GPU] for name, free in nodes if free.get(GPU, 0) > 0}

    def total_gpus(self) -> float:
        """Return the number of GPUs of all live nodes, used or free."""
        return float(sum(dict(node.resources_total).get(GPU, 0.0) for node in self._nodes()))

    def _nodes(self) -> Iterable[Any]:
        """Return the live nodes with their resources. Ray's `available_resources_per_node` has the same source."""
        try:
            if self._gcs is None:
                # Ray's client tries to reach an absent store for 40 s. A socket fails at once.
                host, _, port = self._gcs_address.rpartition(":")
                with closing(socket.create_connection((host, int(port)), CONNECT_TIMEOUT_S)):
                    self._gcs = GcsClient(address=self._gcs_address)
            usage = self._gcs.get_all_resource_usage(timeout=ANSWER_TIMEOUT_S)
        except (OSError, RayError) as error:
            self._gcs = None
            raise TryAgainSoon(f"the Ray cluster's control store does not answer: {error}") from error
        nodes: Iterable[Any] = usage.resource_usage_data.batch
        return nodes

    def _call_for_driver(self, request: Callable[[JobSubmissionClient], Answer]) -> Answer | None:
        """Return the client's answer about one driver, None if Ray does not know the driver.

        Raises:
            TryAgainSoon: Ray does not answer, or answers with an internal error.
        """
        try:
            return self._call(request)
        except RuntimeError as error:
            if "status code 404" in str(error):
                return None
            if "status code 5" in str(error):
                raise TryAgainSoon(f"the Ray cluster is in trouble: {_last_line(str(error))}") from error
            raise

    def _call(self, request: Callable[[JobSubmissionClient], Answer]) -> Answer:
        """Return the client's answer.

        Raises:
            TryAgainSoon: Ray does not answer. Every request may be repeated.
        """
        try:
            if self._client is None:
                self._client = BoundedClient(self._address)
            return request(self._client)
        except (ConnectionError, requests.RequestException) as error:
            raise TryAgainSoon(f"the Ray cluster does not answer: {error}") from error


def _time(milliseconds: int | None) -> datetime | None:
    return datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds else None


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip(" .\n")]
    return lines[-1][:REASON_CHARACTERS_MAX] if lines else "no reason given"
