"""The driver asks for a reset of a GPU, and the node agent resets it: the whole way, in a deployed sandbox."""

from __future__ import annotations

import sys

import pytest

from sandbox import sandbox
from tests.sandbox.patience import wait_until
from tests.sandbox.time_sharing import ENDED, Shared, line_of, told

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="the agent reads /proc")]
TRAINER = """
import os, time
while os.environ["ATTEMPT"] == "1": time.sleep(0.05)
"""
"""The first attempt runs until the fault ends it; the second succeeds."""


def test_a_gpu_whose_driver_asks_for_a_reset_works_again_without_a_boot(shared: Shared) -> None:
    """Its agent resets the GPUs after every process has ended, a check proves that, and the job runs again.

    The machine says who ordered the reset, and `explain` prints the same line.
    """
    client = shared.operator
    job_id = shared.program("ana", "resets", TRAINER)
    sick = str(shared.runs(job_id)["instances"][1])
    before, known = shared.machine(sick), client.instance(sick)["history"][-1]
    sandbox.fault(shared.directory, sick, "xid119")
    job = shared.until(job_id, lambda job: job["status"] in ENDED)
    assert (job["status"], job["attempt"]) == ("SUCCEEDED", 2), told(job)
    wait_until(lambda: all(one["status"] == "AVAILABLE" and not one["claims"] for one in client.instances()))
    record, after = client.instance(sick), shared.machine(sick)
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
    wait_until(lambda: "ordered the GPU reset" in line_of(shared, sick)[1], lambda: told(client.instance(sick)))
    boot, line = line_of(shared, sick)
    how = f"written by its agent under the boot that the repair began in: {line}"
    wait_until(lambda: how in told(client.instance(sick)), lambda: told(client.instance(sick)))
    assert boot == before["boot_id"] and f"gpu-recovery ordered the GPU reset of {sick}" in line
    assert "incident none" not in line and "Timeout after 6s" in line
    assert how in shared.printed("explain", job_id)
