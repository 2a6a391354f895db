"""Benchmark of a submission and a cancellation: time to the response, to the ECS task, and to its StopTask.

The measured code is the production code, deployed in a sandbox: API, table, queue, scheduler, RunTask, and
the command executor with StopTask. The sandbox has no network and its functions are warm after the first job. So the
figures show the time of the code and not the time of AWS.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from gpu_recovery_client.api import RecoveryClient

from sandbox import sandbox

ROUNDS = 10
"""Jobs that are measured, one after another."""
POLL_S = 0.005
"""Seconds between two polls for a condition."""
TIMEOUT_S = 120.0
"""Seconds after which the wait for a condition fails."""
SPEC = {
    "workload": "sft",
    "nnodes": 1,
    "n_gpus_per_node": 8,
    "task_definition": sandbox.TRAINING_FAMILY,
    "env": {"TOTAL_STEPS": "100000"},
    "checkpoint_dir": "/tmp/checkpoints",
}


def submission_figures() -> dict[str, Any]:
    """Return the seconds from the request to the response and to the task in ECS, and of a cancellation to StopTask.

    The time to StopTask begins with the response. Each figure is a median or the longest time.

    Raises:
        AssertionError: an expected state is not reached within `TIMEOUT_S`.
    """
    with tempfile.TemporaryDirectory(prefix="gpu-recovery-bench-") as folder:
        directory = Path(folder)
        try:
            state = sandbox.up(directory, instances=1)
            with RecoveryClient(state["api_url"], state["operator_token"]) as client:
                _until(lambda: bool(list(client.instances())))
                _measured(client, directory)  # after this job every function is warm
                taken = [_measured(client, directory) for _ in range(ROUNDS)]
        finally:
            sandbox.down(directory)
    answered, launched, stopped = zip(*taken, strict=True)
    return {
        "rounds": ROUNDS,
        "answer_median_s": round(statistics.median(answered), 3),
        "run_task_median_s": round(statistics.median(launched), 3),
        "run_task_longest_s": round(max(launched), 3),
        "stop_task_median_s": round(statistics.median(stopped), 3),
        "stop_task_longest_s": round(max(stopped), 3),
    }


def _measured(client: RecoveryClient, directory: Path) -> tuple[float, float, float]:
    """Submit and cancel a job.

    Returns:
        The seconds to the response, the seconds to the task, and the seconds from the response of the cancellation to
        StopTask.
    """
    began = time.perf_counter()
    job_id = client.submit(SPEC)["job_id"]
    answered = time.perf_counter() - began
    name = f"{job_id}--a01"
    _until(lambda: name in _desired_statuses(directory))
    launched = time.perf_counter() - began
    client.cancel(job_id)
    canceled = time.perf_counter()
    _until(lambda: _desired_statuses(directory)[name] == "STOPPED")
    stopped = time.perf_counter() - canceled
    _until(lambda: client.job(job_id)["status"] == "CANCELED")
    return answered, launched, stopped


def _desired_statuses(directory: Path) -> dict[str, str]:
    """Return the desired status of each task in the cluster, by its `startedBy`."""
    return {task["started_by"]: task["desired_status"] for task in sandbox.cluster_state(directory)["tasks"]}


def _until(condition: Any) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("it does not come to it")
        time.sleep(POLL_S)


if __name__ == "__main__":
    print(json.dumps(submission_figures(), indent=2))
