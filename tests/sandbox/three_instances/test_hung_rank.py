"""A rank that hangs, as deployed: the flight records of the ranks say which, and only its machine is checked."""

from __future__ import annotations

import sys

import pytest

from sandbox import sandbox
from tests.sandbox.patience import wait_until
from tests.sandbox.time_sharing import ENDED, Shared, told

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="the agent reads /proc")]
UNDER_THE_WRAPPER = ["gpu-recovery-run", "--", "python", "-m", "tests.sandbox.recorded_training"]
RECORDER = {"TORCH_FR_DUMP_TEMP_FILE": "trace_rank_", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "fr_"}
"""Relative, because a container of the sandbox has no file system of its own but a working directory."""
ENDS = {
    "no rank gets on": ("0", "600", "no rank has made progress for"),
    "the collective times out": ("1", "2", "was ended by signal 6 (exit code 134)"),
}
"""The hung rank, the seconds until the collective times out, and what the history says, by the way it is found."""


def checked(shared: Shared) -> list[str]:
    """The instances of the health checks that the cluster has run, in order."""
    tasks = sandbox.cluster_state(shared.directory)["tasks"]
    return [task["started_by"].split("/")[1] for task in tasks if task["started_by"].startswith("check/")]


@pytest.mark.parametrize("found", ["the collective times out", pytest.param("no rank gets on", marks=pytest.mark.full)])
def test_a_hung_rank_is_found_by_its_flight_record_and_only_its_machine_is_checked(shared: Shared, found: str) -> None:
    """The job goes on with its next attempt. Nothing here waits for the evidence: the wrapper delivers it in time."""
    hung_rank, timeout_s, reason = ENDS[found]
    before = checked(shared)
    environment = {**RECORDER, "HUNG": hung_rank, "COLLECTIVE_TIMEOUT_S": timeout_s}
    job_id = shared.submit("ana", "recorded", 1, nnodes=3, command=UNDER_THE_WRAPPER, env=environment)
    hung = shared.runs(job_id)["instances"][int(hung_rank)]
    job = shared.until(job_id, lambda job: job["status"] in ENDED)
    assert (job["status"], job["attempt"]) == ("SUCCEEDED", 2), told(job)
    assert reason in told(job), told(job)
    diagnosis = job["diagnosis"]
    assert (diagnosis["cause"], diagnosis["instances"], diagnosis["remedy"]) == ("WORKER_HANG", [hung], "CHECK")
    assert diagnosis["decided"] and f"ranks {hung_rank} are missing in process group 0 (default_pg)" in told(job)
    wait_until(lambda: all(one["status"] == "AVAILABLE" and not one["claims"] for one in shared.operator.instances()))
    assert checked(shared)[len(before) :] == [hung]
