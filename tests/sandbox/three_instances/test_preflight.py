"""A preflight as deployed: the wrapper of a rank finds a fault that no agent saw, and the training starts elsewhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_agent.rank.preflight import PREFLIGHT_FAILED

from sandbox import sandbox
from tests.sandbox.patience import wait_until
from tests.sandbox.time_sharing import Shared, told

pytestmark = [pytest.mark.full, pytest.mark.skipif(sys.platform != "linux", reason="the agent reads /proc")]
WAITS_FOR_THE_FAULT = (
    'until [ -e "$CHECKPOINT_DIR/fault" ]; do sleep 0.1; done; exec gpu-recovery-run -- python -uc "$0"'
)
"""Shell command of a container whose wrapper starts after the test has broken a GPU. The scheduler saw no fault."""
TRAINING = """
import os, pathlib, time
attempt, rank = os.environ["ATTEMPT"], os.environ["RANK"]
started = pathlib.Path(os.environ["CHECKPOINT_DIR"])
(started / f"attempt-{attempt}-rank-{rank}").touch()
print(f"attempt {attempt}, rank {rank}: the training has started")
while not (started / f"attempt-{attempt}-rank-1").exists():  # as a collective waits for a rank
    time.sleep(0.1)
"""


def break_unseen(shared: Shared, instance_id: str) -> None:
    """Let the driver of an instance ask for a reboot. The kernel log has no line, so the agent reports no fault."""
    machines = sandbox.cluster_state(shared.directory)["instances"]
    (machine,) = [one for one in machines if one["instance_id"] == instance_id]
    facts, draft = Path(machine["folder"]) / "gpus.json", Path(machine["folder"]) / "gpus.json.test"
    draft.write_text(json.dumps({"gpus": machine["gpus"], "faults": {machine["gpus"][3]: "ecc"}}))
    draft.replace(facts)


def tasks(shared: Shared, started_by: str) -> list[dict[str, Any]]:
    """The tasks of an attempt or of the health checks, in order."""
    return [one for one in sandbox.cluster_state(shared.directory)["tasks"] if one["started_by"].startswith(started_by)]


def went_through(shared: Shared, instance_id: str) -> list[str]:
    """The statuses of an instance, in order."""
    return [one["to"] for one in shared.operator.instance(instance_id)["history"] if one["from"] != one["to"]]


def test_a_gpu_that_only_the_preflight_sees_keeps_the_training_from_starting_there(shared: Shared) -> None:
    """That rank ends with 76, its instance alone is checked, and the second attempt succeeds elsewhere."""
    client, folder = shared.operator, shared.directory / "preflight"
    checked_before = len(tasks(shared, "check/"))
    command = ["sh", "-c", WAITS_FOR_THE_FAULT, TRAINING]
    folder.mkdir()
    job_id = shared.submit("ana", "preflight", 1, command=command, preflight="quick")
    sick = str(shared.runs(job_id)["instances"][1])
    break_unseen(shared, sick)
    (folder / "fault").touch()

    job = shared.succeeds(job_id)
    assert (job["attempt"], job["attempts_counted"]) == (2, 1), told(job)
    assert sick not in job["instances"], told(job)
    assert "as after a failed preflight" in told(job)
    by_instance = {one["instance_id"]: one for one in tasks(shared, f"{job_id}--a01")}
    assert by_instance[sick]["exit_code"] == PREFLIGHT_FAILED == 76
    written = Path(by_instance[sick]["log"]).read_text()
    assert "preflight failed: recovery_action" in written and "the command is not started" in written
    # Rank 0 of the first attempt may have been stopped before or after its training started.
    started = {one.name for one in folder.glob("attempt-*")} - {"attempt-1-rank-0"}
    assert started == {"attempt-2-rank-0", "attempt-2-rank-1"}
    wait_until(lambda: went_through(shared, sick)[-1:] == ["AVAILABLE"], lambda: client.instance(sick)["history"])
    assert went_through(shared, sick)[-4:] == ["CHECKING", "REBOOTING", "VERIFYING", "AVAILABLE"]
    checks = tasks(shared, "check/")[checked_before:]
    found, *proofs = checks
    assert {one["instance_id"] for one in checks} == {sick}, checks
    # The proof of the repair is repeated if the agent reports the boot only after the proof has begun.
    assert (found["exit_code"], {one["exit_code"] for one in proofs}) == (1, {0}), checks
    wait_until(lambda: all(not one["claims"] for one in client.instances()))
