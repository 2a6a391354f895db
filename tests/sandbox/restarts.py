"""Jobs that train again after the crash of a rank, in containers that wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sandbox import sandbox
from tests.sandbox.patience import wait_until
from tests.sandbox.tables import tables
from tests.sandbox.time_sharing import Shared, told

COMMAND = ["gpu-recovery-run", "--", "python", "-m", "tests.sandbox.in_place_program"]
UNAVAILABLE = "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://models"
RESET = "NET/OFI Request completed with error. RC: 104. Error: Connection reset by peer"
ECC = "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"


def tasks_of(shared: Shared, job_id: str) -> dict[str, dict[str, Any]]:
    """The tasks that ECS has run for the job, by task id."""
    tasks = sandbox.cluster_state(shared.directory)["tasks"]
    return {task["task_id"]: task for task in tasks if task["started_by"].startswith(f"{job_id}--")}


def can_be_held(state: dict[str, Any], job_id: str, ranks: int) -> bool:
    """Whether the agents have reported all ranks as ranks that can be held. ECS stops a rank that is not."""
    return sum(b'"holds"' in item and job_id.encode() in item for item in tables(state).values()) == ranks


def is_warm(shared: Shared, job_id: str, ranks: int) -> bool:
    """Whether a warm spare of the job waits beside its ranks."""
    running = [one for one in tasks_of(shared, job_id).values() if one["last_status"] == "RUNNING"]
    return len(shared.operator.job(job_id)["warm_spares"]) == 1 and len(running) == ranks + 1


def recovered(
    state: dict[str, Any],
    shared: Shared,
    name: str,
    error: str,
    is_ready: Callable[[str], bool] = lambda job_id: True,
    command: Sequence[str] = COMMAND,
    **fields: Any,
) -> tuple[dict[str, Any], Path]:
    """The job after the crash of its rank 1, once its second attempt trains; and the folder of its ranks."""
    folder = shared.directory / name
    environment = {"STEP_SECONDS": "0.1", "CHECKPOINT_EVERY": "1", "COLLECTIVE_TIMEOUT_S": "120"}
    job_id = shared.submit("ana", name, 1, command=[*command], env={**environment, "ERROR": error}, **fields)
    shared.runs(job_id)
    wait_until(lambda: "step" in shared.written(job_id, 1), lambda: shared.written(job_id, 1))
    wait_until(lambda: can_be_held(state, job_id, fields.get("nnodes", 2)) and is_ready(job_id))
    (folder / "go").touch()
    wait_until((folder / "trains").exists, lambda: told(shared.operator.job(job_id)))
    return shared.runs(job_id), folder


def seconds(folder: Path) -> float:
    """The real time from the crash to the first finished step of the next attempt."""
    return float((folder / "trains").read_text()) - float((folder / "crashed").read_text())
