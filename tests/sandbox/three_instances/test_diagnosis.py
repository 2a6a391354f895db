"""Diagnosis as deployed: programs that tell what goes wrong through the SDK and the agents, and what follows of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sandbox import sandbox
from tests.sandbox.patience import wait_until
from tests.sandbox.time_sharing import ENDED, Shared, told

pytestmark = pytest.mark.slow

SECOND_TIME = "import os, sys, time\nif os.environ['ATTEMPT'] != '1': sys.exit(0)\n"
RANK = (
    SECOND_TIME
    + """
from gpu_recovery_client import diagnosis
rank = int(os.environ['RANK'])
def ends(kind, error, trace):  # ECS takes seconds to tell of an end; here it is told at once, before any agent
    await_word()
    sys.__excepthook__(kind, error, trace)
def had_word():
    return os.path.exists(os.environ['CHECKPOINT_DIR'] + '/told')
def await_word():
    while not had_word():
        time.sleep(0.1)
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
def hangs():
    step = 1
    while True:
        diagnosis.progress(step)  # gets on until the test has seen what was told
        step += not had_word()
        time.sleep(1)
if rank == 1:
    with diagnosis.stage("rollout", step=1):
        hangs()
try:
    with diagnosis.rpc_timing("1.0", "rollout") as call:
        with call.phase("response_header"):
            raise TimeoutError("timed out")
except TimeoutError:
    hangs()
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
GPU = """
import os, sys, time, types
def processes(handle):  # train holds 40 GB of the GPU, and rollout asks for 30 GB
    found = [(int(os.environ['TRAIN']), 40_000), (os.getpid(), 2_000)]
    return [types.SimpleNamespace(pid=pid, usedGpuMemory=megabytes << 20) for pid, megabytes in found]
sys.modules['pynvml'] = types.SimpleNamespace(
    nvmlInit=lambda: None, nvmlDeviceGetCount=lambda: 1, nvmlDeviceGetHandleByIndex=lambda index: index,
    nvmlDeviceGetUUID=lambda handle: 'GPU-0', nvmlDeviceGetTotalEccErrors=lambda *_: 0,
    nvmlDeviceGetMemoryInfo=lambda handle: types.SimpleNamespace(used=42e9, free=38e9),
    nvmlDeviceGetComputeRunningProcesses=processes)
from gpu_recovery_client import diagnosis
"""
ROLLOUT_ASKS_FOR_MORE = (
    GPU
    + """
diagnosis.configure(worker='rollout-1', role='rollout')
with diagnosis.stage('rollout', step=7):
    time.sleep(3)  # until the processes of the GPU have been read
    raise RuntimeError('CUDA out of memory. Tried to allocate 30.00 GiB. GPU 0 has a total capacity of 79.10 GiB')
"""
)
TRAIN_HOLDS_THE_GPU = (
    RANK
    + """
import subprocess
if rank == 0:
    time.sleep(600)
diagnosis.configure(worker='train-1', role='train')
with diagnosis.stage('weights_update', step=7):
    pass
child = subprocess.run([sys.executable, '-uc', os.environ['ROLLOUT']], env={**os.environ, 'TRAIN': str(os.getpid())})
await_word()
sys.exit(child.returncode)
"""
)
GPU_LIES = (
    RANK
    + """
from gpu_recovery_client.diagnosis.reporter import reporter
if rank == 1:  # what the probe of a stage tells where the GPU's product is another than the known one
    reporter().send("stage", urgent=True, stage="rollout", gpu="3", probe="passed", synchronised=True, matches=False)
time.sleep(600)
"""
)


def healed(shared: Shared, job_id: str) -> dict[str, Any]:
    """The job after its second attempt, which ends well, once every instance is free again."""
    job = shared.until(job_id, lambda job: job["status"] in ENDED)
    assert (job["status"], job["attempt"]) == ("SUCCEEDED", 2), told(job)
    wait_until(lambda: all(one["status"] == "AVAILABLE" and not one["claims"] for one in shared.operator.instances()))
    return job


def told_of(shared: Shared, job_id: str, cause: str, before_the_end: Callable[[], object] = bool) -> None:
    """Wait until the agents have passed on what names the cause, and let the ranks go on to their end.

    The first check may begin as soon as a rank ends. What it must find is done before, by `before_the_end`.
    """
    shared.runs(job_id)
    wait_until(
        lambda: shared.operator.diagnose(job_id, 1)["cause"] == cause,
        lambda: shared.operator.diagnose(job_id, 1)["page"]["en"],
    )
    before_the_end()
    word = shared.directory / shared.operator.job(job_id)["workload"] / "told"
    word.parent.mkdir(exist_ok=True)
    word.touch()


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
    wait_until(lambda: f"diagnosis: {cause}" in mails(shared, job_id), lambda: mails(shared, job_id))
    return found


def test_memory_that_train_holds_is_no_batch_that_is_too_large(shared: Shared) -> None:
    """Two processes of one rank, and the program is not to blame: the gang ends with the holder, and goes on."""
    before = checks(shared)
    job_id = shared.program("ana", "holds", TRAIN_HOLDS_THE_GPU, env={"ROLLOUT": ROLLOUT_ASKS_FOR_MORE})
    told_of(shared, job_id, "GPU_NOT_RELEASED")
    job = healed(shared, job_id)
    assert (job["diagnosis"]["remedy"], job["diagnosis"]["decided"]) == ("RELEASE", True)
    found = says(shared, job_id, "GPU_NOT_RELEASED")
    assert "The OOM is misleading: train still held 40000 MB of the GPU in rollout's turn" in found["page"]["en"]
    assert checks(shared) == before


@pytest.mark.full
def test_a_cut_network_blames_no_gpu(shared: Shared) -> None:
    """Rank 0 cannot reach rank 1: started again without a check, and nothing is rebooted."""
    before = checks(shared)
    job_id = shared.program("ana", "cut", NETWORK_IS_CUT)
    told_of(shared, job_id, "NETWORK")
    job = healed(shared, job_id)
    assert job["diagnosis"]["remedy"] in ("RESTART", "LEAVE_OUT") and job["diagnosis"]["decided"]
    says(shared, job["job_id"], "NETWORK")
    assert checks(shared) == before


@pytest.mark.full
def test_a_worker_that_hangs_in_a_stage_is_found_while_it_runs(shared: Shared) -> None:
    """Nobody gets on: the gang is stopped, and goes on without the instance of the worker that does not answer."""
    before = checks(shared)
    job_id = shared.program("ana", "hang", HANGS_IN_A_STAGE)
    first = shared.runs(job_id)["instances"]
    told_of(shared, job_id, "WORKER_HANG")
    job = healed(shared, job_id)
    assert any("no rank has made progress for" in one["reason"] for one in job["history"])
    assert job["diagnosis"]["instances"] == [first[1]] and job["diagnosis"]["remedy"] == "LEAVE_OUT"
    assert first[1] not in job["instances"]
    says(shared, job_id, "WORKER_HANG")
    assert checks(shared) == before


def test_a_notice_that_nobody_acknowledges_is_named(shared: Shared) -> None:
    """The worker took it and did not act: no instance is faulty, and the next attempt is sent its own."""
    before = checks(shared)
    job_id = shared.program("ana", "unheard", IS_NOT_ACKNOWLEDGED)
    told_of(shared, job_id, "EVENT_UNPROCESSED")
    job = healed(shared, job_id)
    found = says(shared, job["job_id"], "EVENT_UNPROCESSED")
    assert "delivered but not ACKed" in found["page"]["en"]
    assert checks(shared) == before


def test_a_gpu_that_lies_is_checked_and_its_machine_rebooted(shared: Shared) -> None:
    """The result of a known product was another: every instance is checked, the suspect's with its GPU named."""
    job_id = shared.program("ana", "lies", GPU_LIES)
    sick = shared.runs(job_id)["instances"][1]
    before = went_through(shared.operator.instance(sick)).count("REBOOTING")
    told_of(shared, job_id, "GPU_FAULT", before_the_end=lambda: sandbox.fault(shared.directory, sick, "ecc"))
    job = healed(shared, job_id)
    assert "DIAGNOSING" in went_through(job) and job["diagnosis"]["instances"] == [sick]
    found = says(shared, job_id, "GPU_FAULT")
    assert "3" in found["page"]["en"]
    assert went_through(shared.operator.instance(sick)).count("REBOOTING") == before + 1
