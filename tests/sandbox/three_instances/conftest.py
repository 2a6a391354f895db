"""One deployment for all tests of this folder: a sandbox with three instances, each with its agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import sandbox
from tests.sandbox.time_sharing import ENDED, Shared, shared_by_users

POLICY = {
    "poll_interval_s": 5,
    "pending_retry_s": 5,
    "hold_retry_interval_s": 2,  # a repair waits until the ranks have left
    "recovered_after_s": 5,  # a job that has not recovered does not grow
    "suspect_s": 15,  # the agents report three times as often: proof of a repair comes with a report
    "progress_timeout_min_s": 12,
    "reboot_settle_s": 4,
    "reboot_timeout_s": 60,
    "reboots_max": 6,  # five tests break a GPU, and each of them may choose the same instance
    "record_repairs": True,
    "gpu_reset": True,
    "relapse_window_s": 1,  # one test after the other breaks the GPU of an instance
    "preemption_protect_s": 1,
    "demote_after_s": 5,
    "elastic_wait_s": 5,
    "elastic_grow_every_s": 5,
}
PERMITTED = {"ana/ABOVE_NORMAL/*": 9, "bob/ABOVE_NORMAL/*": 9, "bob/HIGH/*": 9}
"""Quotas that let users ask for more than NORMAL, for more instances than there are."""


@pytest.fixture(scope="package")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the sandbox."""
    return tmp_path_factory.mktemp("three-instances")


@pytest.fixture(scope="package")
def state(directory: Path) -> Iterator[dict[str, Any]]:
    """The state of the sandbox."""
    try:
        yield sandbox.up(directory, instances=3, gpus=8, policy=POLICY, agents=True)
    finally:
        sandbox.down(directory)


@pytest.fixture(scope="package")
def shared(directory: Path, state: dict[str, Any]) -> Iterator[Shared]:
    """The sandbox, once its instances are known."""
    with shared_by_users(directory, state, 3, PERMITTED) as sandbox_of_all:
        yield sandbox_of_all


@pytest.fixture(autouse=True)
def _nothing_is_left(shared: Shared) -> Iterator[None]:
    """Cancel the jobs that a failed test left. The next test would wait for their GPUs until it fails, too."""
    yield
    for job in shared.operator.jobs():
        if job["status"] not in ENDED:
            shared.operator.cancel(job["job_id"])
