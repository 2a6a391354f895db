"""A Ray cluster, asked and ordered through Ray's own clients.

Drivers go through `JobSubmissionClient`, which talks to the dashboard of the head (port 8265). Free GPUs come from the
head's global control store (port 6379), because that is what verl counts: the dashboard's own summary of the cluster
is put together every few seconds and was seen to show every GPU free while five of eight were held, and a driver that
only counts takes seconds and leaves a job behind each time.

Everything here was tried against Ray 2.60: what it answers is told beside each answer.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, TypeVar

import requests
from gpu_recovery.core.ray.driver import DriverState, DriverStatus
from gpu_recovery.core.ray.submission import DriverSubmission, local_path_field
from gpu_recovery.ports.errors import TryAgainSoon
from gpu_recovery.ports.values import Refusal
from ray._raylet import GcsClient
from ray.exceptions import RayError
from ray.job_submission import JobSubmissionClient

Answer = TypeVar("Answer")
ANSWER_S = 20
"""How long one answer may take: Ray's client itself would wait for ever."""
CONNECT_S = 3
LOG_BYTES_MAX = 64 * 2**20
"""Ray sends a log whole or not at all; a longer one than this is not read."""
REASON_CHARACTERS_MAX = 500
GPU = "GPU"


class LogTooLong(Exception):
    """A log that would not fit into the function's memory."""


class BoundedClient(JobSubmissionClient):  # type: ignore[misc]
    """Ray's client, whose answers have a limit in time and size."""

    def _do_request(self, method: str, endpoint: str, **given: Any) -> Any:
        answer = super()._do_request(method, endpoint, **{"timeout": ANSWER_S, "stream": True, **given})
        size = int(answer.headers.get("Content-Length", 0))
        if size > LOG_BYTES_MAX:
            answer.close()
            raise LogTooLong(f"{size} bytes")
        return answer


class RayCluster:
    """`execution.ray.RayPool` on a cluster of Ray 2.60.

    address:     of the head's dashboard, `http://<host>:8265`.
    gcs_address: of its global control store, `<host>:6379`.
    """

    def __init__(self, address: str, gcs_address: str) -> None:
        self._address, self._gcs_address = address, gcs_address
        self._client: JobSubmissionClient | None = None
        self._gcs: Any = None

    def submit(self, order: DriverSubmission) -> Refusal | None:
        field = local_path_field(order.runtime_env)
        if field:
            return Refusal(f"runtime_env.{field} must name what the cluster itself can fetch, by its URI", lasting=True)
        try:
            self._asked(
                lambda jobs: jobs.submit_job(
                    entrypoint=order.entrypoint,
                    submission_id=order.submission_id,
                    metadata=dict(order.metadata),
                    runtime_env=dict(order.runtime_env),
                    entrypoint_resources=dict(order.resources),
                )
            )
        except (TypeError, ValueError) as mistake:  # the client's own examination of the runtime_env
            return Refusal(str(mistake)[:REASON_CHARACTERS_MAX], lasting=True)
        except RuntimeError as refusal:
            # HTTP 500 with a traceback that ends so: an earlier submit, whose answer was lost, has done it.
            if f"submission_id {order.submission_id} already exists" in str(refusal):
                return None
            # What the head's agent calls a bad request comes as HTTP 500 around the agent's 400. Any other 500 is
            # Ray's own trouble, such as a head so young that it has no agent yet.
            if "status code 400" in str(refusal):
                return Refusal(_last_line(str(refusal)), lasting=True)
            raise TryAgainSoon(f"the Ray cluster cannot take drivers: {_last_line(str(refusal))}") from refusal
        return None

    def status(self, submission_id: str) -> DriverStatus:
        info = self._asked_of(lambda jobs: jobs.get_job_info(submission_id))
        if info is None:
            return DriverStatus(DriverState.GONE)
        return DriverStatus(
            state=DriverState(info.status.value),
            message=info.message or "",
            exit_code=info.driver_exit_code,
            error_type=info.error_type or "",
            started_at=_at(info.start_time),
            ended_at=_at(info.end_time),
        )

    def logs(self, submission_id: str, tail: int) -> str:
        try:
            text = self._asked_of(lambda jobs: jobs.get_job_logs(submission_id))
        except LogTooLong as too_long:
            return f"(the log is too long to be read here: {too_long})"
        return "".join((text or "").splitlines(keepends=True)[-tail:])

    def stop(self, submission_id: str) -> None:
        # SIGTERM, and SIGKILL after 3 s. True for a driver that lived; False for one that has ended, and 404 for one
        # that nobody knows: nothing is left to do. A driver that Ray cannot start says True and stays PENDING.
        self._asked_of(lambda jobs: jobs.stop_job(submission_id))

    def free_gpus_per_node(self) -> Mapping[str, float]:
        nodes = ((node.node_id.hex(), dict(node.resources_available)) for node in self._nodes())
        return {name: free[GPU] for name, free in nodes if free.get(GPU, 0) > 0}

    def total_gpus(self) -> float:
        return float(sum(dict(node.resources_total).get(GPU, 0.0) for node in self._nodes()))

    def _nodes(self) -> Iterable[Any]:
        """Every node that lives, with its resources: what `available_resources_per_node` is made of."""
        try:
            if self._gcs is None:
                # Ray's client tries for 40 s to reach a store that is not there: a socket knows at once.
                host, _, port = self._gcs_address.rpartition(":")
                with closing(socket.create_connection((host, int(port)), CONNECT_S)):
                    self._gcs = GcsClient(address=self._gcs_address)
            usage = self._gcs.get_all_resource_usage(timeout=ANSWER_S)
        except (OSError, RayError) as failure:
            self._gcs = None
            raise TryAgainSoon(f"the Ray cluster's control store does not answer: {failure}") from failure
        nodes: Iterable[Any] = usage.resource_usage_data.batch
        return nodes

    def _asked_of(self, question: Callable[[JobSubmissionClient], Answer]) -> Answer | None:
        """As _asked, about one driver: None if Ray knows none by its id, TryAgainSoon also for Ray's own trouble."""
        try:
            return self._asked(question)
        except RuntimeError as refusal:
            if "status code 404" in str(refusal):
                return None
            if "status code 5" in str(refusal):
                raise TryAgainSoon(f"the Ray cluster is in trouble: {_last_line(str(refusal))}") from refusal
            raise

    def _asked(self, question: Callable[[JobSubmissionClient], Answer]) -> Answer:
        """The client's answer; TryAgainSoon if the head cannot be reached, which every question survives."""
        try:
            if self._client is None:
                self._client = BoundedClient(self._address)
            return question(self._client)
        except (ConnectionError, requests.RequestException) as failure:
            raise TryAgainSoon(f"the Ray cluster does not answer: {failure}") from failure


def _at(milliseconds: int | None) -> datetime | None:
    return datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds else None


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip(" .\n")]
    return lines[-1][:REASON_CHARACTERS_MAX] if lines else "no reason given"
