"""An idle check as deployed: the deep check of an idle instance gives way to a job that needs the instance."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_client.api import RecoveryClient

from health_check.remedies import HealthOutcome
from sandbox import sandbox
from tests.sandbox.patience import wait_until

pytestmark = pytest.mark.full
GPUS = 8
POLICY = {"idle_check_every_s": 5, "pending_retry_s": 5, "poll_interval_s": 5}
ENDLESS_DIAGNOSTIC = """#!/bin/sh
case "$*" in
*diag*) echo "$*" > "{begun}"; exec sleep infinity ;;
esac
exec "{dcgmi}" "$@"
"""
"""A dcgmi whose diagnostic ends only by a signal. All other commands are those of the sandbox's dcgmi."""


@dataclass(frozen=True)
class Idle:
    """A sandbox that is up, with one instance that no job uses. `begun` appears when its deep check has begun."""

    directory: Path
    client: RecoveryClient
    instance_id: str
    begun: Path

    def instance(self) -> dict[str, Any]:
        return self.client.instance(self.instance_id)

    def tasks(self, started_by: str) -> list[dict[str, Any]]:
        """The tasks of a job or of the health checks, in order."""
        every = sandbox.cluster_state(self.directory)["tasks"]
        return [one for one in every if one["started_by"].startswith(started_by)]


@pytest.fixture
def idle(tmp_path: Path) -> Iterator[Idle]:
    directory = tmp_path / "sandbox"
    try:
        state = sandbox.up(directory, instances=1, gpus=GPUS, policy=POLICY)
        (machine,) = sandbox.cluster_state(directory)["instances"]
        dcgmi, begun = Path(machine["folder"]) / "bin/dcgmi", tmp_path / "begun"
        real, draft = dcgmi.with_name("dcgmi-of-the-sandbox"), dcgmi.with_name("dcgmi.new")
        shutil.copy(dcgmi, real)
        draft.write_text(ENDLESS_DIAGNOSTIC.format(begun=begun, dcgmi=real))
        draft.chmod(0o755)
        draft.replace(dcgmi)  # a check may already be under way
        with RecoveryClient(state["api_url"], state["operator_token"]) as client:
            yield Idle(directory, client, machine["instance_id"], begun)
    finally:
        sandbox.down(directory)


def test_a_deep_check_of_an_idle_instance_gives_way_to_a_job(idle: Idle) -> None:
    """The check would never end by itself. The job starts after its stop, and nobody is blamed for it."""
    wait_until(idle.begun.exists, idle.instance)
    assert "diag -r 3" in idle.begun.read_text()
    assert idle.instance()["status"] == "CHECKING"
    (begun,) = wait_until(lambda: [one["task_id"] for one in idle.tasks("check/") if one["last_status"] == "RUNNING"])
    leave = idle.directory / "leave"
    spec = {
        "workload": "needs-it",
        "nnodes": 1,
        "n_gpus_per_node": GPUS,
        "task_definition": sandbox.TRAINING_FAMILY,
        "command": ["sh", "-c", 'until [ -e "$0" ]; do sleep 0.1; done', str(leave)],
        "user": "tests",
    }
    job_id = str(idle.client.submit(spec)["job_id"])
    wait_until(lambda: idle.client.job(job_id)["status"] == "RUNNING", lambda: idle.client.job(job_id)["history"])

    instance = idle.instance()
    reasons = [one["reason"] for one in instance["history"]]
    assert any(f"its idle check was stopped for {job_id}, and proves nothing" in one for one in reasons), reasons
    (check,) = [one for one in idle.tasks("check/") if one["task_id"] == begun]
    assert check["exit_code"] == HealthOutcome.INCONCLUSIVE.exit_code, "the check obeyed SIGTERM and was not killed"
    (rank,) = idle.tasks(job_id)
    assert set(rank["gpu_ids"]) == set(check["gpu_ids"]) and len(rank["gpu_ids"]) == GPUS
    assert {one["to"] for one in instance["history"]} == {"AVAILABLE", "CHECKING"}, reasons
    assert (instance["suspicion"], instance["need"], instance["lemon"]["score"]) == (None, None, 0)
    assert (instance["idle_check"]["outcome"], instance["health"], instance["out_of_use"]) == (None, {}, [])

    leave.touch()
    wait_until(lambda: idle.client.job(job_id)["status"] == "SUCCEEDED", lambda: idle.client.job(job_id)["history"])
    assert idle.client.job(job_id)["attempt"] == 1
    assert not [mail["subject"] for mail in sandbox.read_mailbox(idle.directory) if idle.instance_id in mail["subject"]]
