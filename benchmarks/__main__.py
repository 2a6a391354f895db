"""The command `make bench`: runs all benchmarks and writes benchmarks/results.json. It ends with the scoreboard.

Timings on a shared computer are noisy. So cold starts are given as ratios to a baseline, which is measured in turns
with them in the same run.
"""

from __future__ import annotations

import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.agent import agent_figures
from benchmarks.console import console_figures
from benchmarks.decisions import decision_figures
from benchmarks.diagnosis import diagnosis_figures
from benchmarks.fleet import fleet_figures
from benchmarks.goodput import goodput_figures
from benchmarks.heartbeats import heartbeat_figures
from benchmarks.log_kinds import kind_figures
from benchmarks.observation_overhead import observation_figures
from benchmarks.placement import placement_figures
from benchmarks.scoreboard.pages import table, write_pages
from benchmarks.scoreboard.sets import scoreboard_figures
from benchmarks.simulation import simulation_figures
from benchmarks.stragglers import straggler_figures
from benchmarks.submission import submission_figures

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "lambdas"
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
}
"""What each event function first takes from `gpu_recovery.aws.wiring`."""
PROGRAMS = (
    {BASELINE: "import boto3; boto3.client('dynamodb')"}
    | {
        name: f"import {name}; from gpu_recovery.aws.wiring import {first}; {first}()"
        for name, first in FIRST_USE.items()
    }
    | {"node_api": "import node_api; node_api.api()", "job_api": "import job_api; job_api.dependencies()"}
    | {"job_api with a body": "import job_api, gpu_recovery.job_api.models.jobs; job_api.dependencies()"}
)
"""The programs of the cold start benchmark: the import of a handler and the creation of its first clients."""
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
        For each program the median in seconds, and the median of its ratios to the baseline.
    """
    taken: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for code in PROGRAMS.values():
        run_s(code, ENVIRONMENT)  # fills the byte code caches, which a deployment package also has
    for _ in range(ROUNDS):
        for name, code in PROGRAMS.items():
            taken[name].append(run_s(code, ENVIRONMENT))
    base = taken[BASELINE]
    return {
        name: {
            "median_s": round(statistics.median(times), 4),
            "ratio": round(statistics.median([t / b for t, b in zip(times, base, strict=True)]), 3),
        }
        for name, times in taken.items()
    }


def package() -> dict[str, int]:
    """Return the size of the deployment package: files, bytes, and bytes of a zip archive."""
    files = [f for f in PACKAGE.rglob("*") if f.is_file() and "__pycache__" not in f.parts]
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "package.zip"
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as bundle:
            for file in files:
                bundle.write(file, file.relative_to(PACKAGE))
        zipped = archive.stat().st_size
    return {"files": len(files), "bytes": sum(f.stat().st_size for f in files), "zipped_bytes": zipped}


def main() -> None:
    """Run all benchmarks, print the results, and write them to results.json and the pages that quote them."""
    figures: dict[str, Any] = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "rounds": ROUNDS,
        "cold_start": cold_starts(),
        "package": package(),
        "decisions": decision_figures(),
        "placing": placement_figures(),
        "submitting": submission_figures(),
        "heartbeats": heartbeat_figures(),
        "agent": agent_figures(),
        "simulation": simulation_figures(),
        "goodput": goodput_figures(),
        "diagnosing": diagnosis_figures(),
        "stragglers": straggler_figures(),
        "log_kinds": kind_figures(),
        "scoreboard": scoreboard_figures(),
        "telling": observation_figures(),
        "fleet": fleet_figures(),
        "console": console_figures(),
    }
    print(results.write(figures | results.kept()))
    write_pages(figures["scoreboard"])
    print(table(figures["scoreboard"]), end="")


if __name__ == "__main__":
    main()
