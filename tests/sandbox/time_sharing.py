"""Jobs of several users on one sandbox: submitted, waited for, and what their ranks wrote."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_recovery_client.api import RecoveryClient

from sandbox import sandbox
from tests.sandbox.patience import wait_until

UNDER_THE_WRAPPER = ["gpu-recovery-run", "--", "python", "-m", "sandbox.trainers.plain_python"]
ENDED = ("SUCCEEDED", "FAILED", "CANCELED")
PROGRAM = Path(sys.executable).parent / "gpu-recovery"


def told(record: dict[str, Any]) -> str:
    """The reasons of the history of a job or an instance, for the message of a failed test."""
    return "\n".join(one["reason"] for one in record["history"])


@dataclass
class Shared:
    """A cluster, its operator, and two users with tokens of their own."""

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

    def machine(self, instance_id: str) -> dict[str, Any]:
        """The truth about an instance, from the cluster itself."""
        found = sandbox.cluster_state(self.directory)["instances"]
        return next(one for one in found if one["instance_id"] == instance_id)

    def printed(self, *words: str) -> str:
        """What `gpu-recovery` prints for an operator, in a process of its own."""
        reach = sandbox.status(self.directory)["sandbox"]
        settings = {"GPU_RECOVERY_API_URL": reach["api_url"], "GPU_RECOVERY_TOKEN": reach["operator_token"]}
        done = subprocess.run([PROGRAM, *words], env=os.environ | settings, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

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


@contextmanager
def shared_by_users(
    directory: Path, state: dict[str, Any], instances: int, permitted: Mapping[str, int]
) -> Iterator[Shared]:
    """A sandbox with its users, once all instances are known. `permitted` are the quotas of instances."""
    with RecoveryClient(state["api_url"], state["operator_token"]) as operator:
        wait_until(lambda: len(list(operator.instances())) == instances)
        operator.put_quotas({"instances": dict(permitted)}, operator.quotas()["revision"])
        with ExitStack() as clients:
            users = {}
            for user in ("ana", "bob"):
                token = operator.issue_user_token(user, "user")["token"]
                users[user] = clients.enter_context(RecoveryClient(state["api_url"], token))
            yield Shared(directory, operator, users)


def line_of(shared: Shared, instance_id: str) -> tuple[str, str]:
    """The last line on a machine that says who ordered its repair, and the boot under which its agent wrote it."""
    file = Path(shared.machine(instance_id)["folder"]) / "var/log/gpu-recovery/repairs.log"
    wait_until(file.exists, lambda: told(shared.operator.instance(instance_id)))
    boot, _, line = file.read_text().splitlines()[-1].removeprefix("boot=").split(" ", 2)
    return boot, line
