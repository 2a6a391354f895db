"""The check on a slow host: each process that it starts is late, alone and all together, with and without evidence.

The program is the real one, with real processes. A process is late because it waits for what comes after its limit, so
no result depends on the speed of this machine.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from health_check import driver
from health_check import examine as examining
from health_check import run as running
from health_check.examine import examine, judge
from health_check.remedies import HealthOutcome
from health_check.settings import TIMEOUT_S_BY_LEVEL, CheckSettings
from tests.health_check.diagnostics import dcgm4, output, result, warning
from tests.health_check.examinations import SETTINGS, gpu_xml, smi, xid
from tests.health_check.stub_programs import HOST_ENGINE, install, install_nvidia_smi
from tests.health_check.test_container import (
    HEALTHY,
    ROOT,
    WITHIN_S,
    Bucket,
    bucket,
    environment,
    finish,
    kernel_says,
    only_document,
)
from tests.health_check.test_document import host_proc

__all__ = ["bucket", "environment"]

pytestmark = pytest.mark.slow

# The limits of the program, shortened; that of the whole check is CHECK_TIMEOUT_S.
PROGRAM = """
import random, sys
random.random = lambda: 0.0  # botocore pauses a random time between two attempts
from health_check import driver, publish, run
driver.ANSWERS_WITHIN_S, run.ENGINE_READY_WITHIN_S, publish.READ_TIMEOUT_S = 0.5, 0.5, 0.5
run.diagnose.__kwdefaults__["pause_s"] = 0.1
from health_check.__main__ import main
sys.exit(main())
"""
CHECK_S = "6"
FAULTY = dcgm4([result(3, "Fail", [warning(52, 2)])], gpus=8)
NO_CONNECTION = output("dcgm_4_runtime_error_no_connection.json")

NOTE = "import os, socket, sys, time\nopen(os.path.join(HERE, 'arguments'), 'a').write('called\\n')\n"
# A client as dcgmi is: without a host engine it says so, by its exit code or, since DCGM 4, by a sentence.
CLIENT = (
    NOTE
    + """
host = sys.argv[sys.argv.index("--host") + 1] if "--host" in sys.argv else "unix:///nowhere"
with socket.socket(socket.AF_UNIX) as connection:
    if connection.connect_ex(host.removeprefix("unix://")) != 0:
        sys.stdout.write({refused!r})
        sys.exit({refusal})
sys.stdout.write({text!r})
sys.exit({code})
"""
)
# The engine listens after dcgmi has been called, hence after its limit.
LATE_ENGINE = """
import os, socket, sys, time
address = sys.argv[sys.argv.index("--domain-socket") + 1]
while {never} or not os.path.exists(os.path.join(HERE, "arguments")):
    time.sleep(0.05)
listener = socket.socket(socket.AF_UNIX)
listener.bind(address)
listener.listen()
while True:
    listener.accept()[0].close()
"""
HANGS = "import time\ntime.sleep(600)\n"
KILLS_ITSELF = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
# Another diagnostic holds the GPUs until two thirds of the time are over; then this one does not end.
BUSY_THEN_HANGS = (
    NOTE
    + """
begun = os.path.getctime(os.path.join(HERE, "begun")) if os.path.exists(os.path.join(HERE, "begun")) else None
if begun is None:
    open(os.path.join(HERE, "begun"), "w").close()
if begun is None or time.time() - begun < 4:
    sys.exit(217)
time.sleep(600)
"""
)


def client(folder: Path, text: str, code: int, refused: str = "", refusal: int = 235) -> None:
    """A dcgmi that needs its host engine."""
    install(folder, "dcgmi", CLIENT.format(text=text, code=code, refused=refused, refusal=refusal))


def late_engine(folder: Path, *, never: bool = False) -> None:
    """A host engine that listens after its limit, or never."""
    install(folder, "nv-hostengine", LATE_ENGINE.format(never=never))


def late_driver(folder: Path) -> None:
    """An nvidia-smi that gives no answer."""
    install(folder, "nvidia-smi", HANGS)


def everything(folder: Path) -> None:
    """All of them."""
    late_driver(folder)
    late_engine(folder)


def start_slow(environment: dict[str, str], **changes: str) -> subprocess.Popen[str]:
    """The program with its limits shortened."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=environment | changes,
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


LATE: dict[str, Callable[[Path], None]] = {"driver": late_driver, "engine": late_engine, "all": everything}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The programs of a healthy instance, all in time, except for the engine that each test chooses."""
    install_nvidia_smi(tmp_path, smi([gpu_xml(gpu, None) for gpu in range(8)]))
    install(tmp_path, "nv-hostengine", LATE_ENGINE.format(never=False))
    kernel_says(tmp_path, "the kernel boots")
    return tmp_path


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize(("refused", "refusal"), [("", 235), (NO_CONNECTION, 226)], ids=["exit code", "sentence"])
def test_a_healthy_instance_is_healthy_although_a_process_is_late(
    environment: dict[str, str], bucket: Bucket, folder: Path, late: str, refused: str, refusal: int
) -> None:
    """Also an engine that listens only after dcgmi was refused: the diagnostic is repeated."""
    LATE[late](folder)
    client(folder, HEALTHY, 0, refused, refusal)
    code, _, err = finish(start_slow(environment))
    assert code == 0, err
    assert only_document(bucket)["outcome"] == "HEALTHY"


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("evidence", ["kernel log", "diagnostic"])
def test_evidence_decides_although_a_process_is_late(
    environment: dict[str, str], bucket: Bucket, folder: Path, late: str, evidence: str
) -> None:
    """An XID, or a test that fails once the engine listens."""
    LATE[late](folder)
    client(folder, *((FAULTY, 205) if evidence == "diagnostic" else (HEALTHY, 0)))
    if evidence == "kernel log":
        kernel_says(folder, xid(79, 3))
    code, _, err = finish(start_slow(environment))
    assert code == 1, err
    assert only_document(bucket)["outcome"] == "REBOOT"


@pytest.mark.parametrize("evidence", [False, True])
@pytest.mark.parametrize(("refused", "refusal"), [("", 235), (NO_CONNECTION, 226)], ids=["exit code", "sentence"])
def test_an_engine_that_listens_too_late_is_no_configuration(
    environment: dict[str, str], bucket: Bucket, folder: Path, refused: str, refusal: int, evidence: bool
) -> None:
    """The engine is that of the check's own image and runs, so no setting of the host is wrong."""
    late_engine(folder, never=True)
    client(folder, HEALTHY, 0, refused, refusal)
    if evidence:
        kernel_says(folder, xid(79, 3))
    code, _, err = finish(start_slow(environment, CHECK_TIMEOUT_S="2"))
    assert code == (1 if evidence else 44), err
    worst = only_document(bucket)["findings"][0]["code"]
    assert worst == ("XID_79" if evidence else "HOST_ENGINE_LATE")


def test_a_dcgmi_that_waits_for_a_late_engine_is_no_gpu_that_hangs(
    environment: dict[str, str], bucket: Bucket, folder: Path
) -> None:
    """It is killed at the deadline, while the engine does not listen yet."""
    late_engine(folder, never=True)
    install(folder, "dcgmi", HANGS)
    assert finish(start_slow(environment, CHECK_TIMEOUT_S="2"))[0] == 44
    assert only_document(bucket)["findings"][0]["code"] == "HOST_ENGINE_LATE"


@pytest.mark.parametrize("evidence", [False, True])
def test_a_diagnostic_that_began_late_and_is_cut_short_could_not_tell(
    environment: dict[str, str], bucket: Bucket, folder: Path, evidence: bool
) -> None:
    """It had a third of the time. With all of the time, a diagnostic that does not end asks for a reboot."""
    (folder / "nv-hostengine").unlink()
    install(folder, "dcgmi", BUSY_THEN_HANGS)
    if evidence:
        kernel_says(folder, xid(79, 3))
    code, _, err = finish(start_slow(environment, CHECK_TIMEOUT_S=CHECK_S))
    assert code == (1 if evidence else 44), err
    assert only_document(bucket)["outcome"] == ("REBOOT" if evidence else "INCONCLUSIVE")


@pytest.mark.parametrize("evidence", [False, True])
def test_a_check_that_is_stopped_while_the_driver_is_late_keeps_its_evidence(
    environment: dict[str, str], bucket: Bucket, folder: Path, evidence: bool
) -> None:
    """ECS stops the task; the kernel log was read before the driver was asked."""
    body = "import os, time\nopen(os.path.join(HERE, 'asked'), 'w').close()\ntime.sleep(600)\n"
    install(folder, "nvidia-smi", body)
    client(folder, HEALTHY, 0)
    if evidence:
        kernel_says(folder, xid(79, 3))
    process = subprocess.Popen(
        [sys.executable, "-m", "health_check"],
        env=environment,
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + WITHIN_S
    while not (folder / "asked").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == (1 if evidence else 44)
    assert only_document(bucket)["outcome"] == ("REBOOT" if evidence else "INCONCLUSIVE")


@pytest.mark.parametrize("evidence", [False, True])
def test_an_engine_that_the_host_kills_is_no_configuration(
    environment: dict[str, str], bucket: Bucket, folder: Path, evidence: bool
) -> None:
    """A host out of memory ends it at its start. dcgmi is not started, and the kernel log decides."""
    install(folder, "nv-hostengine", KILLS_ITSELF)
    client(folder, HEALTHY, 0)
    if evidence:
        kernel_says(folder, xid(79, 3))
    code, _, err = finish(start_slow(environment))
    assert code == (1 if evidence else 44), err
    assert only_document(bucket)["findings"][0]["code"] == ("XID_79" if evidence else "HOST_ENGINE_LATE")
    assert not (folder / "arguments").exists()


@pytest.mark.parametrize("evidence", [False, True])
@pytest.mark.parametrize("body", [HANGS, KILLS_ITSELF], ids=["hangs", "killed"])
def test_a_driver_that_is_late_and_shows_no_gpu_is_no_configuration(
    environment: dict[str, str], bucket: Bucket, folder: Path, body: str, evidence: bool
) -> None:
    """DCGM sees neither a GPU nor a driver, as in a container without driver libraries; nvidia-smi gave no answer."""
    install(folder, "nvidia-smi", body)
    client(folder, dcgm4([], gpus=0, driver=None), 0)
    if evidence:
        kernel_says(folder, xid(79, 3))
    code, _, err = finish(start_slow(environment))
    assert code == (1 if evidence else 44), err
    assert ("XID_79" if evidence else "NO_GPU_VISIBLE") == only_document(bucket)["findings"][0]["code"]


@pytest.mark.parametrize(("refused", "refusal"), [("", 235), (NO_CONNECTION, 226)], ids=["exit code", "sentence"])
def test_an_engine_of_the_host_may_come_late(
    environment: dict[str, str], bucket: Bucket, folder: Path, refused: str, refusal: int
) -> None:
    """The image has no engine of its own, and that of the host answers at the third call."""
    (folder / "nv-hostengine").unlink()
    calls = "calls = open(os.path.join(HERE, 'arguments')).read().count('called')\n"
    refuse = f"if calls < 3:\n    sys.stdout.write({refused!r})\n    sys.exit({refusal})\n"
    install(folder, "dcgmi", f"{NOTE}{calls}{refuse}sys.stdout.write({HEALTHY!r})\n")
    code, _, err = finish(start_slow(environment))
    assert code == 0, err
    assert only_document(bucket)["outcome"] == "HEALTHY"
    assert (folder / "arguments").read_text().split() == ["called"] * 3


def test_evidence_reaches_a_bucket_that_is_late(environment: dict[str, str], bucket: Bucket, folder: Path) -> None:
    """Two PUTs are answered after the read timeout. Without the document the evidence of the check would be lost."""
    bucket.late = 2
    client(folder, FAULTY, 205)
    code, _, err = finish(start_slow(environment))
    assert code == 1, err
    assert only_document(bucket)["outcome"] == "REBOOT" and bucket.puts > bucket.late


# -- every process ten times slower -----------------------------------------------------------------------------------

SLOWER = 10
CHECK_LIMIT_S = 2_220
"""Seconds that the control plane gives a check by default."""
DIVISOR = 740
"""Divides every duration and every limit below: the check has 3 s."""
DRIVER_S = {"driver answers": 2.0, "driver hangs": 30.0}
DIAGNOSTIC_S = {"diagnostic ends": 120.0, "diagnostic exceeds its limit": 630.0}
ENGINE_S, REFUSAL_S = 5.0, 1.0
"""The normal duration of each process that the check starts, in seconds.

nvidia-smi: 30 while the driver is not kept loaded (health_check/driver.py), so ten times that reaches its limit. dcgmi:
about two minutes at level 2 (NVIDIA, manual page of dcgmi diag), and up to 10.5 as measured (health_check/settings.py).
The others are assumed: nvidia-smi with a loaded driver, the start of the host engine, and a dcgmi that it refuses.
"""
LIMITS: list[tuple[Any, str]] = [
    (driver, "ANSWERS_WITHIN_S"),
    (examining, "ANSWERS_AFTER_A_HANG_S"),
    (running, "ENGINE_READY_WITHIN_S"),
    (running, "CONNECTS_WITHIN_S"),
]
"""The limits on processes. Those on sockets, pipes and kills stay: no process of the check uses them up."""
SLOW_DRIVER = "import sys, time\ntime.sleep({s})\nsys.stdout.write({text!r})\n"
SLOW_ENGINE = "import time\ntime.sleep({s})\n" + HOST_ENGINE
# It notes when it begins to work and when it has ended.
SLOW_CLIENT = """
import os, socket, sys, time
with socket.socket(socket.AF_UNIX) as connection:
    if connection.connect_ex(sys.argv[sys.argv.index("--host") + 1].removeprefix("unix://")) != 0:
        time.sleep({refusal_s})
        sys.exit(235)
open(os.path.join(HERE, "began"), "w").close()
time.sleep({s})
sys.stdout.write({text!r})
sys.stdout.flush()
open(os.path.join(HERE, "ended"), "w").close()
sys.exit({code})
"""


@pytest.fixture
def shortened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CheckSettings:
    """A check in this process, with all of its limits divided, and no other program on PATH."""
    for module, name in LIMITS:
        monkeypatch.setattr(module, name, getattr(module, name) / DIVISOR)
    for level, seconds in TIMEOUT_S_BY_LEVEL.items():
        monkeypatch.setitem(TIMEOUT_S_BY_LEVEL, level, seconds / DIVISOR)
    monkeypatch.setitem(running.diagnose.__kwdefaults__, "pause_s", running.PAUSE_S / DIVISOR)
    monkeypatch.setenv("PATH", str(tmp_path))
    proc = host_proc(tmp_path / "proc", boot_id="0c5d\n", stat="btime 1772355600\n")
    kernel_says(tmp_path, "the kernel boots")
    return replace(SETTINGS, host_proc=proc, host_kmsg=tmp_path / "kmsg", timeout_s=CHECK_LIMIT_S // DIVISOR)


@pytest.mark.parametrize("evidence", ["kernel log", "diagnostic", "none"])
@pytest.mark.parametrize("diagnostic_s", DIAGNOSTIC_S.values(), ids=DIAGNOSTIC_S)
@pytest.mark.parametrize("driver_s", DRIVER_S.values(), ids=DRIVER_S)
def test_a_host_on_which_every_process_is_ten_times_slower(
    shortened: CheckSettings, tmp_path: Path, driver_s: float, diagnostic_s: float, evidence: str
) -> None:
    """Evidence that was seen decides, no verdict is CONFIGURATION, and nothing blames but one documented case.

    That case is a diagnostic that worked until the end of its limit, whether the driver answered before or not:
    health_check/README.md says why.
    """
    slower = SLOWER / DIVISOR
    text, code = (FAULTY, 205) if evidence == "diagnostic" else (HEALTHY, 0)
    answer = smi([gpu_xml(gpu, None) for gpu in range(8)])
    install(tmp_path, "nvidia-smi", SLOW_DRIVER.format(s=driver_s * slower, text=answer))
    install(tmp_path, "nv-hostengine", SLOW_ENGINE.format(s=ENGINE_S * slower))
    work = SLOW_CLIENT.format(s=diagnostic_s * slower, refusal_s=REFUSAL_S * slower, text=text, code=code)
    install(tmp_path, "dcgmi", work)
    if evidence == "kernel log":
        kernel_says(tmp_path, xid(79, 3))
    verdict = judge(examine(shortened), level=shortened.level, expected_gpus=8)
    blame = [finding.code for finding in verdict.findings if finding.blames_hardware]
    began, ended = tmp_path / "began", tmp_path / "ended"
    # What is expected depends on what the processes have done, so a busy machine changes no result.
    expected: tuple[HealthOutcome, list[str]]
    if evidence == "kernel log":
        expected = HealthOutcome.REBOOT, ["XID_79"]
    elif ended.exists() and evidence == "diagnostic":
        expected = HealthOutcome.REBOOT, ["DCGM_FR_FAULTY_MEMORY"]
    elif ended.exists():
        expected = HealthOutcome.HEALTHY, []
    elif began.exists():
        had_its_time = time.time() - began.stat().st_mtime > diagnostic_s * slower
        assert had_its_time or diagnostic_s * SLOWER > CHECK_LIMIT_S
        expected = HealthOutcome.REBOOT, ["DIAGNOSTIC_HUNG"]
    else:
        expected = HealthOutcome.INCONCLUSIVE, []  # no connection to the host engine
    assert (verdict.outcome, blame) == expected
