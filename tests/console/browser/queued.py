"""Jobs that wait as long as a test needs them: another job of their user takes the whole quota."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sandbox import sandbox
from tests.console.browser.conftest import ENDED, Deployment
from tests.sandbox.patience import wait_until

USER = "hal"
SPEC: dict[str, Any] = {
    "workload": "waits",
    "nnodes": 1,
    "n_gpus_per_node": 8,
    "task_definition": sandbox.TRAINING_FAMILY,
    "command": ["sleep", "600"],
    "user": USER,
}


@contextmanager
def full_quota(deployment: Deployment) -> Iterator[None]:
    """Let the user have one instance, which a job takes. At the end there are neither jobs nor limits."""
    operator = deployment.operator
    limit(deployment)
    try:
        taker = operator.submit(SPEC | {"workload": "takes"})["job_id"]
        wait_until(lambda: operator.job(taker)["status"] not in ("QUEUED", "PENDING_RESOURCES"))
        yield
    finally:
        for job in operator.jobs(user=USER):
            if job["status"] not in ENDED:
                operator.cancel(job["job_id"])
        operator.put_quotas({}, operator.quotas()["revision"])


def limit(deployment: Deployment) -> None:
    """Set the quota of the user, which the job has taken, and no other limit."""
    operator = deployment.operator
    operator.put_quotas({"instances": {f"{USER}/*/*": 1}}, operator.quotas()["revision"])


def begin_again(deployment: Deployment) -> None:
    """Cancel the jobs that wait, and set the limit as it was."""
    for job in jobs_of(deployment):
        deployment.operator.cancel(job["job_id"])
    limit(deployment)


def jobs_of(deployment: Deployment) -> list[dict[str, Any]]:
    """The user's jobs that wait, or were made to."""
    return [
        one for one in deployment.operator.jobs(user=USER) if one["workload"] == "waits" and one["status"] not in ENDED
    ]


def submitted(deployment: Deployment, number: int) -> list[str]:
    """The ids of `number` new jobs that wait."""
    return [str(deployment.operator.submit(SPEC)["job_id"]) for _ in range(number)]
