"""The driver asks for a reset of a GPU, and the node agent resets it: the whole way, in a deployed sandbox."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from sandbox import sandbox
from tests.sandbox.patience import wait_until
from tests.sandbox.time_sharing import ENDED, Shared, told

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="the agent reads /proc")]
TRAINER = """
import os, time
while os.environ["ATTEMPT"] == "1": time.sleep(0.05)
"""
"""The first attempt runs until the fault ends it; the second succeeds."""


def machine(shared: Shared, instance_id: str) -> dict[str, Any]:
    """The truth about an instance, from the cluster itself."""
    found = sandbox.cluster_state(shared.directory)["instances"]
    return next(one for one in found if one["instance_id"] == instance_id)


def test_a_gpu_whose_driver_asks_for_a_reset_works_again_without_a_boot(shared: Shared) -> None:
    """Its agent resets the GPUs after every process has ended, a check proves that, and the job runs again."""
    client = shared.operator
    job_id = shared.program("ana", "resets", TRAINER)
    sick = str(shared.runs(job_id)["instances"][1])
    before, known = machine(shared, sick), client.instance(sick)["history"][-1]
    sandbox.fault(shared.directory, sick, "xid119")
    job = shared.until(job_id, lambda job: job["status"] in ENDED)
    assert (job["status"], job["attempt"]) == ("SUCCEEDED", 2), told(job)
    wait_until(lambda: all(one["status"] == "AVAILABLE" and not one["claims"] for one in client.instances()))
    record, after = client.instance(sick), machine(shared, sick)
    new = [entry for entry in record["history"] if entry["at"] > known["at"] and entry["from"] != entry["to"]]
    new = [entry for entry in new if entry["to"] != "QUARANTINED"]  # where the repair waits until the job has left
    entered = [entry["to"] for entry in new]
    assert entered == ["CHECKING", "RESETTING", "VERIFYING", "AVAILABLE"], told(record)
    assert (after["boot_id"], after["faults"]) == (before["boot_id"], {}) and record["boot_id"] == before["boot_id"]
    reasons = [entry["reason"] for entry in new]
    assert reasons[1].startswith("RESET: ") and reasons[1].endswith("; resetting its GPUs")
    assert reasons[2:] == [
        "the GPUs were reset: looking for proof of the repair",
        "the reset of its GPUs is proved and its check passed",
    ]
    wait_until(lambda: not client.instance(sick)["suspicion"], lambda: client.instance(sick)["history"])
