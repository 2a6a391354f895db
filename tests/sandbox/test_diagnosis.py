"""Diagnosis as deployed: programs that tell what goes wrong through the SDK and the agents, and what follows of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from gpu_recovery_client.api import RecoveryClient

from sandbox import sandbox

from .sharing import ENDED, PATIENCE_S, Shared

pytestmark = pytest.mark.slow

POLICY = {"look_s": 5, "pending_retry_s": 5, "stalled_s": 12, "reboot_settle_s": 4, "reboot_timeout_s": 60}
SECOND_TIME = "import os, sys, time\nif os.environ['ATTEMPT'] != '1': sys.exit(0)\n"
RANK = (
    SECOND_TIME
    + """
from gpu_recovery_client import diagnosis
rank = int(os.environ['RANK'])
def ends(kind, error, trace):  # ECS takes seconds to tell of an end; here it is told at once, before any agent
    time.sleep(4)
    sys.__excepthook__(kind, error, trace)
sys.excepthook = ends
"""
)
NETWORK_IS_CUT = (
    RANK
    + """
if rank == 1:
    time.sleep(600)
with diagnosis.rpc_timing("1.0", "train_batch") as call:
    with call.phase("connect"):
        raise TimeoutError("timed out")
"""
)
HANGS_IN_A_STAGE = (
    RANK
    + """
diagnosis.progress(1)
if rank == 1:
    with diagnosis.stage("rollout", step=1):
        while True:
            diagnosis.progress(1)
            time.sleep(1)
try:
    with diagnosis.rpc_timing("1.0", "rollout") as call:
        with call.phase("response_header"):
            raise TimeoutError("timed out")
except TimeoutError:
    while True:
        diagnosis.progress(1)
        time.sleep(1)
"""
)
IS_NOT_ACKNOWLEDGED = (
    RANK
    + """
import http.server, threading
if rank == 1:
    time.sleep(600)
class Worker(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"{}")
    def do_GET(self):
        self.send_response(503); self.end_headers()
server = http.server.HTTPServer(("127.0.0.1", 0), Worker)
threading.Thread(target=server.serve_forever, daemon=True).start()
diagnosis.event_tracker(f"http://127.0.0.1:{server.server_port}", "1.0").send("rollout_start", step=7)
"""
)
GPU_LIES = (
    RANK
    + """
from gpu_recovery_client.diagnosis.telling import voice
if rank == 1:  # what the probe of a stage tells where the GPU's product is another than the known one
    voice().tell("stage", urgent=True, stage="rollout", gpu="3", probe="passed", synchronised=True, matches=False)
    print("told")
time.sleep(600)
"""
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """Three instances, each with its agent."""
    directory = tmp_path_factory.mktemp("diagnosis")
    try:
        state = sandbox.up(directory, instances=3, gpus=8, policy=POLICY, agents=True)
        with RecoveryClient(state["api_url"], state["operator_token"]) as operator:
            deadline = time.monotonic() + PATIENCE_S
            while len(list(operator.instances())) < 3:
                assert time.monotonic() < deadline
                time.sleep(0.2)
            yield Shared(directory, operator, {"ana": operator})
    finally:
        sandbox.down(directory)


def healed(shared: Shared, job_id: str) -> dict[str, Any]:
    """The job after its second attempt, which ends well, once every instance is free again."""
    job = shared.until(job_id, lambda job: job["status"] in ENDED)
    assert (job["status"], job["attempt"]) == ("SUCCEEDED", 2), [one["reason"] for one in job["history"]]
    deadline = time.monotonic() + PATIENCE_S
    while not all(one["status"] == "AVAILABLE" and not one["claims"] for one in shared.operator.instances()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return job


def went_through(job: dict[str, Any]) -> list[str]:
    return [one["to"] for one in job["history"] if one["from"] != one["to"]]


def mails(shared: Shared, job_id: str) -> str:
    return "\n".join(mail["body"] for mail in sandbox.read_mailbox(shared.directory) if job_id in mail["subject"])


def checks(shared: Shared) -> int:
    """How many health checks the cluster has run."""
    tasks = sandbox.cluster_state(shared.directory)["tasks"]
    return sum(task["started_by"].startswith("check/") for task in tasks)


def says(shared: Shared, job_id: str, cause: str) -> dict[str, Any]:
    """The diagnosis of the first attempt, made anew; its page and the mail name the cause."""
    found = shared.operator.diagnose(job_id, 1)
    assert found["cause"] == cause, found["page"]["en"]
    deadline = time.monotonic() + PATIENCE_S
    while f"diagnosis: {cause}" not in mails(shared, job_id):
        assert time.monotonic() < deadline, mails(shared, job_id)
        time.sleep(0.2)
    return found


def test_a_cut_network_blames_no_gpu(shared: Shared) -> None:
    """Rank 0 cannot reach rank 1: started again without a check, and nothing is rebooted."""
    before = checks(shared)
    job = healed(shared, shared.program("ana", "cut", NETWORK_IS_CUT))
    assert job["diagnosis"]["remedy"] in ("RESTART", "LEAVE_OUT") and job["diagnosis"]["decided"]
    says(shared, job["job_id"], "NETWORK")
    assert checks(shared) == before


def test_a_worker_that_hangs_in_a_stage_is_found_while_it_runs(shared: Shared) -> None:
    """Nobody gets on: the gang is stopped, and goes on without the instance of the worker that does not answer."""
    before = checks(shared)
    job_id = shared.program("ana", "hang", HANGS_IN_A_STAGE)
    first = shared.runs(job_id)["instances"]
    job = healed(shared, job_id)
    assert any("no rank has got on for" in one["reason"] for one in job["history"])
    assert job["diagnosis"]["instances"] == [first[1]] and job["diagnosis"]["remedy"] == "LEAVE_OUT"
    assert first[1] not in job["instances"]
    says(shared, job_id, "WORKER_HANG")
    assert checks(shared) == before


def test_a_notice_that_nobody_acknowledges_is_named(shared: Shared) -> None:
    """The worker took it and did not act: no machine is to blame, and the next attempt is sent its own."""
    before = checks(shared)
    job = healed(shared, shared.program("ana", "unheard", IS_NOT_ACKNOWLEDGED))
    found = says(shared, job["job_id"], "EVENT_UNPROCESSED")
    assert "delivered but not ACKed" in found["page"]["en"]
    assert checks(shared) == before


def test_a_gpu_that_lies_is_checked_and_its_machine_rebooted(shared: Shared) -> None:
    """The result of a known product was another: every instance is checked, the suspect's with its GPU named."""
    job_id = shared.program("ana", "lies", GPU_LIES)
    sick = shared.runs(job_id)["instances"][1]
    shared.works(job_id, 1, "told")
    time.sleep(4)  # until its agent has passed it on
    sandbox.fault(shared.directory, sick, "ecc")
    job = healed(shared, job_id)
    assert "DIAGNOSING" in went_through(job) and job["diagnosis"]["instances"] == [sick]
    found = says(shared, job_id, "GPU_FAULT")
    assert "3" in found["page"]["en"]
    assert went_through(shared.operator.instance(sick)).count("REBOOTING") == 1
