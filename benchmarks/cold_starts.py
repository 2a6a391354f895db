"""Benchmark of the cold starts of the functions, as processor time and as a ratio to a bare boto3 client.

    python -m benchmarks.cold_starts    measures only this, and writes it into results.json

Timings on a shared computer are noisy, so the baseline is measured in turns with the functions. The byte code of every
module is there before the first measurement, as in a deployment from a computer with Python 3.13. The Python is that of
the computer.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import results

PACKAGE = Path(__file__).parent.parent / "lambdas"
ROUNDS = 9
"""Runs of each program of the cold start benchmark."""
BASELINE = "boto3 and one client"
"""The program to which cold starts are compared."""
FIRST_USE = {
    "ecs_task_handler": "recovery",
    "dcgm_task_monitor": "recovery",
    "ecs_instance_monitor": "recovery",
    "scheduler": "recovery",
    "reconciler": "recovery",
    "event_recorder": "event_history",
    "command_executor": "recovery",
}
"""What each event function first takes from `gpu_recovery.aws.wiring`, the event recorder from a module of its own."""
MODULES = {"event_history": "event_history_wiring"}
SUBMISSION = (
    "from gpu_recovery.job_api.job_spec import parse_spec; "
    "parse_spec({'workload': 'sft', 'nnodes': 2, 'n_gpus_per_node': 8, 'task_definition': 'gpu-training'})"
)
PROGRAMS = (
    {BASELINE: "import boto3; boto3.client('dynamodb')"}
    | {
        name: f"import {name}; from gpu_recovery.aws.{MODULES.get(first, 'wiring')} import {first}; {first}()"
        for name, first in FIRST_USE.items()
    }
    | {"node_api": "import node_api; node_api.api()", "job_api": "import job_api; job_api.dependencies()"}
    | {"job_api with a submission": f"import job_api; job_api.dependencies(); {SUBMISSION}"}
)
"""The programs of the cold start benchmark: the import of a handler and the creation of its first clients.

The last program also validates the specification of a job, as `POST /api/v2/jobs` does.
"""
ENVIRONMENT = {
    "TRAINING_JOB_TABLE_NAME": "ecs-job-sub",
    "CONTAINER_INSTANCE_TABLE_NAME": "ecs_container_instance",
    "ECS_CLUSTER_NAME": "nwcd-gpu-testing",
    "SNS_TOPIC_ARN": "arn:aws:sns:us-east-1:000000000000:topic",
    "DCGM_HEALTH_CHECK_TASK": "arn:aws:ecs:us-east-1:000000000000:task-definition/check:1",
    "EVENT_BUS_NAME": "bus",
    "SCHEDULER_QUEUE_URL": "https://sqs.us-east-1.amazonaws.com/000000000000/q.fifo",
    "VERDICT_BUCKET": "verdicts",
    "POWERTOOLS_METRICS_NAMESPACE": "GpuRecovery",
    "POWERTOOLS_SERVICE_NAME": "gpu-recovery",
    "MANAGED_TAG_KEY": "gpu-recovery:managed",
    "EVENT_HISTORY_TABLE_NAME": "gpu-recovery-events",
    "COMMAND_EXECUTOR_FUNCTION": "gpu-recovery-command-executor",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "PYTHONPATH": str(PACKAGE),
    "PATH": os.environ["PATH"],
}


def run_s(code: str, environment: Mapping[str, str]) -> float:
    """Return the processor time in seconds that a new interpreter takes to run `code`.

    The process has only the variables of `environment`.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], env=dict(environment), check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def cold_starts() -> dict[str, Any]:
    """Measure the cold start of each function: import of the handler and creation of the first clients.

    Returns:
        For each program the least time in seconds, and its ratio to the least time of the baseline. Other processes of
        the computer only add to a time.
    """
    taken: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for code in PROGRAMS.values():
        run_s(code, ENVIRONMENT)  # fills the byte code caches, which a deployment package also has
    for _ in range(ROUNDS):
        for name, code in PROGRAMS.items():
            taken[name].append(run_s(code, ENVIRONMENT))
    base = min(taken[BASELINE])
    return {
        name: {"least_s": round(min(times), 4), "ratio": round(min(times) / base, 3)} for name, times in taken.items()
    }


if __name__ == "__main__":
    measured = cold_starts()
    results.update("cold_start", measured)
    print(json.dumps(measured, indent=2))
