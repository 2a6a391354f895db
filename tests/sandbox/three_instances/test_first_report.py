"""A GPU falls off the bus, and the node agent says so before the rank ends: the whole way, in a deployed sandbox."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sandbox import sandbox
from tests.sandbox.patience import wait_until
from tests.sandbox.time_sharing import ENDED, Shared, line_of, told

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="the agent reads /proc")]
TRAINER = """
import os, signal, sys, time
signal.signal(signal.SIGABRT, signal.SIG_IGN)
while os.environ["ATTEMPT"] == "1" and not os.path.exists(sys.argv[1]): time.sleep(0.05)
if os.environ["ATTEMPT"] == "1": os._exit(134)
"""
"""The first attempt outlives the fault until the test lets it end; the second succeeds."""
BEFORE_THE_BOOT = "found again after the boot, written before it"
AFTER_THE_BOOT = "written on the machine after the boot, because its agent heard of it only then"
"""How the machine got the line, which depends on how soon the function can save the order to the agent."""


def test_a_gpu_that_fell_off_the_bus_is_repaired_when_its_agent_speaks_first(shared: Shared, tmp_path: Path) -> None:
    """The report names it by its PCI address. The machine is rebooted, and no mail blames how the host is set up.

    The machine says who ordered the reboot, and `explain` prints the same line. The variable that only the shell of the
    rank sets is compared, too.
    """
    client, leave = shared.operator, tmp_path / "leave"
    spec = {
        "workload": "lost",
        "nnodes": 2,
        "n_gpus_per_node": 8,
        "task_definition": sandbox.TRAINING_FAMILY,
        "command": ["sh", "-c", 'NCCL_TIMEOUT=7200 exec gpu-recovery-run -- python -c "$0" "$1"', TRAINER, str(leave)],
        "user": "tests",
    }
    job_id = str(client.submit(spec)["job_id"])
    wait_until(lambda: client.job(job_id)["status"] == "RUNNING", lambda: client.job(job_id)["history"])
    sick = str(client.job(job_id)["instances"][1])
    assert client.job(job_id)["timeout_warnings"] == []
    wait_until(lambda: "NCCL_TIMEOUT is 7200 s" in str(client.explain(job_id)["timeout_warnings"]), "no warning")
    old_boot = str(shared.machine(sick)["boot_id"])
    sandbox.fault(shared.directory, sick, "xid79")
    # The suspicion itself ends with the repair, which may be quicker than the next look.
    wait_until(lambda: "XID 79 on 0000:10:00" in str(client.instance(sick)["history"]), lambda: client.instance(sick))
    leave.touch()
    wait_until(lambda: client.job(job_id)["status"] in ENDED, lambda: client.job(job_id)["history"])
    wait_until(
        lambda: all(one["status"] == "AVAILABLE" and not one["claims"] for one in client.instances()),
        lambda: list(client.instances()),
    )
    wait_until(lambda: not client.instance(sick)["suspicion"], lambda: client.instance(sick)["history"])
    history = client.instance(sick)["history"]
    assert (client.job(job_id)["status"], client.job(job_id)["attempt"]) == ("SUCCEEDED", 2), history
    assert {"REBOOTING", "VERIFYING"} <= {one["to"] for one in history}, history
    boot, line = line_of(shared, sick)
    assert f"gpu-recovery ordered the reboot of {sick}" in line
    assert "incident none" not in line and "XID_79" in line
    how = BEFORE_THE_BOOT if boot == old_boot else AFTER_THE_BOOT
    wait_until(lambda: f"{how}: {line}" in told(client.instance(sick)), lambda: told(client.instance(sick)))
    assert f"{how}: {line}" in shared.printed("explain", job_id)
    subjects = [mail["subject"] for mail in sandbox.read_mailbox(shared.directory)]
    assert not [one for one in subjects if "configuration" in one], subjects
