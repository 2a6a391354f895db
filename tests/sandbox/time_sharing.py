"""Jobs of several users on one sandbox: submitted, waited for, and what their ranks wrote."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_recovery_client.api import RecoveryClient

from sandbox import sandbox
from tests.sandbox.patience import wait_until

UNDER_THE_WRAPPER = ["gpu-recovery-run", "--", "python", "-m", "sandbox.trainers.plain_python"]
ENDED = ("SUCCEEDED", "FAILED", "CANCELED")


def told(job: dict[str, Any]) -> str:
    """The reasons of a job's history, for the message of a failed test."""
    return "\n".join(one["reason"] for one in job["history"])


@dataclass
class Shared:
    """A cluster of three instances, its operator, and two users with tokens of their own."""

    directory: Path
    operator: RecoveryClient
    users: dict[str, RecoveryClient]

    def submit(self, user: str, name: str, steps: int, **fields: Any) -> str:
        folder = self.directory / name
        environment = {
            "TOTAL_STEPS": str(steps),
            "STEP_SECONDS": "0.1",
            "CHECKPOINT_EVERY": "50",
            "COLLECTIVE_TIMEOUT_S": "120",
        }
        spec = {
            "workload": name,
            "nnodes": 2,
            "n_gpus_per_node": 8,
            "task_definition": sandbox.TRAINING_FAMILY,
            "command": UNDER_THE_WRAPPER,
            "env": environment,
            "checkpoint_dir": str(folder),
            **fields,
        }
        return str(self.users[user].submit(spec)["job_id"])

    def until(self, job_id: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        job: dict[str, Any] = {}

        def reached() -> bool:
            job.update(self.operator.job(job_id))
            return condition(job)

        wait_until(reached, lambda: told(job))
        return job

    def program(self, user: str, name: str, text: str, **fields: Any) -> str:
        """A job whose ranks run a Python program of a few lines under the wrapper; its id."""
        return self.submit(user, name, 1, command=["gpu-recovery-run", "--", "python", "-uc", text], **fields)

    def runs(self, job_id: str) -> dict[str, Any]:
        return self.until(job_id, lambda job: job["status"] == "RUNNING")

    def succeeds(self, job_id: str) -> dict[str, Any]:
        job = self.until(job_id, lambda job: job["status"] in ENDED)
        assert job["status"] == "SUCCEEDED", told(job)
        return job

    def written(self, job_id: str, attempt: int) -> str:
        """What the tasks of an attempt have printed. A task that has just been accepted has no log yet."""
        tasks = sandbox.cluster_state(self.directory)["tasks"]
        wanted = [task for task in tasks if task["started_by"] == f"{job_id}--a{attempt:02d}"]
        return "".join(Path(task["log"]).read_text() for task in wanted if Path(task["log"]).exists())

    def works(self, job_id: str, attempt: int, words: str = "step") -> None:
        """Until its ranks have begun to train: a notice before that finds nothing to save."""
        wait_until(lambda: words in self.written(job_id, attempt), lambda: self.written(job_id, attempt))
