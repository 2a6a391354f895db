"""The container as ECS runs it: `python -m health_check`, a dcgmi on PATH, an S3 that takes the document."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.health_check.diagnostics import dcgm4, output, result, warning
from tests.health_check.examinations import SCHEMA, gpu_xml, smi, xid
from tests.health_check.stub_programs import (
    DCGMI_OF_THE_HOST,
    install,
    install_dcgmi,
    install_nvidia_smi,
    is_running,
)
from tests.health_check.test_document import host_proc

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
WITHIN_S = 60.0


@dataclass
class Bucket:
    """An S3 of one operation on the loopback: takes PUT, or refuses every one of them with `refusal`.

    The first `late` PUTs get no answer before their client gives up.
    """

    url: str = ""
    refusal: int | None = None
    late: int = 0
    objects: dict[str, bytes] = field(default_factory=dict)
    puts: int = 0


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    """The bucket, served until the test ends."""
    held = Bucket()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # with 1.0 botocore waits a second for "100 Continue"

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            held.puts += 1
            if held.puts <= held.late:
                self.rfile.read(1)  # returns when the client has closed the connection
                return
            if held.refusal is None:
                held.objects[self.path] = body
            answer = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
            self.send_response(held.refusal or 200)
            self.send_header("Content-Length", str(len(answer) if held.refusal else 0))
            self.end_headers()
            self.wfile.write(answer if held.refusal else b"")

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the output of the tests is not the server's log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        held.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield held
        server.shutdown()
        thread.join()


@pytest.fixture
def environment(tmp_path: Path, bucket: Bucket) -> dict[str, str]:
    """The whole environment of the container."""
    proc = tmp_path / "proc"
    proc.mkdir()
    host_proc(proc, boot_id="0c5d2f6e-1111-4222-8333-944455556666\n", stat="btime 1772355600\n")
    return {
        "PATH": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "CHECK_ID": "check/i-0abc/3",
        "INSTANCE_ID": "i-0abc",
        "VERDICT_BUCKET": "verdicts-bucket",
        "VERDICT_KEY": "verdicts/check/i-0abc/3.json",
        "CHECK_LEVEL": "2",
        "EXPECTED_GPUS": "8",
        "HOST_PROC": str(proc),
        "HOST_KMSG": str(tmp_path / "kmsg"),
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_ENDPOINT_URL_S3": bucket.url,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def start(environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "health_check"],
        env=environment,
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """(exit code, stdout, stderr)"""
    out, err = process.communicate(timeout=WITHIN_S)
    return process.returncode, out, err


VERDICTS = {
    "HEALTHY": (dcgm4([result(gpu) for gpu in range(8)], gpus=8), 0, 0),
    "REBOOT": (dcgm4([result(3, "Fail", [warning(52, 2)])], gpus=8), 205, 1),
    "REPLACE": (dcgm4([result(3, "Fail", [warning(80, 6)])], gpus=8), 226, 42),
    "CONFIGURATION": (dcgm4([result(3, "Fail", [warning(29, 5)])], gpus=8), 226, 43),
    "INCONCLUSIVE": (output("dcgm_4.2.3_gb10_real.json")[:-20], 226, 44),
}


@pytest.mark.parametrize("outcome", VERDICTS)
def test_the_container_writes_its_verdict_and_exits_with_its_code(
    environment: dict[str, str], bucket: Bucket, tmp_path: Path, outcome: str
) -> None:
    """The document in S3 is the line of the log, has the committed shape, and names the boot of HOST_PROC."""
    text, dcgmi_code, exit_code = VERDICTS[outcome]
    install_dcgmi(tmp_path, text, dcgmi_code)
    code, out, err = finish(start(environment))
    assert code == exit_code, err
    (path, body) = next(iter(bucket.objects.items()))
    assert path == "/verdicts-bucket/verdicts/check/i-0abc/3.json"
    written = json.loads(body)
    jsonschema.Draft202012Validator(SCHEMA).validate(written)
    assert (written["outcome"], written["exit_code"]) == (outcome, exit_code)
    assert (written["boot_id"], written["booted_at"]) == (
        "0c5d2f6e-1111-4222-8333-944455556666",
        "2026-03-01T09:00:00Z",
    )
    assert written["started_at"] <= written["ended_at"]
    assert [json.loads(line) for line in out.splitlines()] == [written]


@pytest.mark.parametrize(
    ("errors", "exit_code"),
    [([warning(52, 2)], 44), ([], 44), ([warning(29, 5)], 43)],
    ids=["reboot", "healthy", "configuration"],
)
def test_a_verdict_that_cannot_be_written_costs_no_machine(
    environment: dict[str, str], bucket: Bucket, tmp_path: Path, errors: list[dict[str, object]], exit_code: int
) -> None:
    """Neither a reboot nor a clean bill without its document; the reason is in the log."""
    bucket.refusal = 403
    results = [result(gpu) for gpu in range(7)] + [result(7, "Fail" if errors else "Pass", errors)]
    install_dcgmi(tmp_path, dcgm4(results, gpus=8), 226 if errors else 0)
    code, out, err = finish(start(environment))
    assert code == exit_code
    assert "the verdict was not written to s3://verdicts-bucket: " in err and environment["VERDICT_KEY"] not in err
    assert "AccessDenied" in err
    assert json.loads(out)["check_id"] == "check/i-0abc/3"


def test_without_a_place_for_its_verdict_a_check_could_not_tell(environment: dict[str, str]) -> None:
    """Named in the log. The control plane sends the place, so the host is not set up wrongly."""
    del environment["VERDICT_KEY"]
    code, out, err = finish(start(environment))
    assert (code, out, err) == (44, "", "health check: VERDICT_KEY is not set\n")


@pytest.mark.parametrize("focus", ["0000:13:00", "00000000:13:00.0", "cuda:3"])
def test_an_address_in_focus_is_a_suspect_and_never_a_configuration_error(
    environment: dict[str, str], bucket: Bucket, tmp_path: Path, focus: str
) -> None:
    """As the node agent names a GPU that tells no UUID any more; what is no name at all is left out."""
    install_dcgmi(tmp_path, HEALTHY, 0)
    install_nvidia_smi(tmp_path, smi([gpu_xml(gpu, None) for gpu in range(8)]))
    kernel_says(tmp_path, xid(79, 3))
    assert finish(start(environment | {"FOCUS": focus}))[0] == 1
    written = only_document(bucket)
    is_known = focus != "cuda:3"
    assert (written["outcome"], written["focus"]) == ("REBOOT", ["0000:13:00"] if is_known else [])
    assert ("FOCUS_UNREAD" in {one["code"] for one in written["findings"]}) is not is_known


def test_an_image_without_dcgmi_is_a_configuration_error(environment: dict[str, str], bucket: Bucket) -> None:
    """Nothing on PATH."""
    assert finish(start(environment))[0] == 43
    written = json.loads(next(iter(bucket.objects.values())))
    assert written["findings"][0]["code"] == "DCGMI_NOT_INSTALLED"


def test_an_error_of_the_program_itself_never_reads_as_a_reboot(
    environment: dict[str, str], bucket: Bucket, tmp_path: Path
) -> None:
    """Python ends with 1 when an import fails; the container does not."""
    (tmp_path / "boto3.py").write_text("raise ImportError('broken image')\n")
    install_dcgmi(tmp_path, dcgm4([result(0)], gpus=8), 0)
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), str(ROOT)])
    code, _, err = finish(start(environment))
    assert code == 44
    assert "broken image" in err
    assert bucket.objects == {}


def test_a_check_that_is_stopped_could_not_tell(environment: dict[str, str], bucket: Bucket, tmp_path: Path) -> None:
    """StopTask sends SIGTERM; the verdict is written within the grace, and accuses nobody."""
    install(
        tmp_path,
        "dcgmi",
        "import os, time\nopen(os.path.join(HERE, 'begun'), 'w').close()\ntime.sleep(600)\n",
    )
    process = start(environment)
    deadline = time.monotonic() + WITHIN_S
    while not (tmp_path / "begun").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == 44
    written = json.loads(next(iter(bucket.objects.values())))
    assert (written["outcome"], written["findings"][0]["code"]) == ("INCONCLUSIVE", "DIAGNOSTIC_SIGNALLED")


def test_a_check_that_is_stopped_before_its_diagnostic_could_not_tell(
    environment: dict[str, str], bucket: Bucket, tmp_path: Path
) -> None:
    """While the driver is asked; nothing is started after that."""
    install_dcgmi(tmp_path, HEALTHY, 0)
    body = "import os, time\nopen(os.path.join(HERE, 'begun'), 'w').close()\ntime.sleep(600)\n"
    install(tmp_path, "nvidia-smi", body)
    process = start(environment)
    deadline = time.monotonic() + WITHIN_S
    while not (tmp_path / "begun").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == 44
    assert calls(tmp_path) == []
    assert only_document(bucket)["findings"][0]["code"] == "DIAGNOSTIC_SIGNALLED"


def test_a_hanging_diagnostic_asks_for_a_reboot(environment: dict[str, str], bucket: Bucket, tmp_path: Path) -> None:
    """Past CHECK_TIMEOUT_S."""
    install(tmp_path, "dcgmi", "import time\ntime.sleep(600)\n")
    assert finish(start(environment | {"CHECK_TIMEOUT_S": "1"}))[0] == 1
    written = json.loads(next(iter(bucket.objects.values())))
    assert (written["outcome"], written["findings"][0]["code"]) == ("REBOOT", "DIAGNOSTIC_HUNG")


@pytest.fixture
def pid_of_test(environment: dict[str, str], tmp_path: Path) -> Iterator[Path]:
    """The file with the pid of a test that the engine of the host runs for the check."""
    address, pid = tmp_path / "host.sock", tmp_path / "test.pid"
    environment |= {"HOST_ENGINE": "host", "HOST_ENGINE_SOCKET": str(address)}
    install(tmp_path, "dcgmi", DCGMI_OF_THE_HOST)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen()
        yield pid
    with suppress(OSError, ValueError):
        os.kill(int(pid.read_text()), signal.SIGKILL)


def test_a_check_that_is_stopped_ends_its_test_in_the_engine_of_the_host(
    environment: dict[str, str], bucket: Bucket, pid_of_test: Path
) -> None:
    """The engine lives on after the check. Its test must not hold the GPUs when the next task has them."""
    process = start(environment)
    deadline = time.monotonic() + WITHIN_S
    while not pid_of_test.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == 44
    assert not is_running(int(pid_of_test.read_text()))
    codes = {one["code"] for one in only_document(bucket)["findings"]}
    assert {"DIAGNOSTIC_SIGNALLED", "HOST_ENGINE_USED"} <= codes


def test_a_hanging_diagnostic_ends_its_test_in_the_engine_of_the_host(
    environment: dict[str, str], bucket: Bucket, pid_of_test: Path
) -> None:
    """The last part of CHECK_TIMEOUT_S is for that. The hang counts as without that engine."""
    assert finish(start(environment | {"CHECK_TIMEOUT_S": "10"}))[0] == 1
    assert not is_running(int(pid_of_test.read_text()))
    codes = {one["code"] for one in only_document(bucket)["findings"]}
    assert {"DIAGNOSTIC_HUNG", "HOST_ENGINE_USED"} <= codes


def test_a_diagnostic_that_somebody_else_kills_could_not_tell(
    environment: dict[str, str], bucket: Bucket, tmp_path: Path
) -> None:
    """A host out of memory ends what it likes: no reason to reboot a healthy machine."""
    install(tmp_path, "dcgmi", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    assert finish(start(environment))[0] == 44
    written = json.loads(next(iter(bucket.objects.values())))
    assert (written["outcome"], written["findings"][0]["code"]) == ("INCONCLUSIVE", "DIAGNOSTIC_KILLED")
    assert "out of memory" in written["findings"][0]["message"]


# -- before the diagnostic --------------------------------------------------------------------------------------------

HEALTHY = dcgm4([result(gpu) for gpu in range(8)], gpus=8)


def kernel_says(folder: Path, *lines: str) -> None:
    """The kernel's log: each line an hour after the boot."""
    (folder / "kmsg").write_text("".join(f"4,{n},3600000000,-;{line}\n" for n, line in enumerate(lines)))


def calls(folder: Path) -> list[str]:
    """What dcgmi was called with."""
    noted = folder / "arguments"
    return noted.read_text().splitlines() if noted.exists() else []


def only_document(bucket: Bucket) -> dict[str, Any]:
    """The verdict, of the committed shape."""
    (body,) = bucket.objects.values()
    written = dict(json.loads(body))
    jsonschema.Draft202012Validator(SCHEMA).validate(written)
    return written


@pytest.mark.parametrize(("line", "code"), [(xid(79, 3), 1), (xid(48, 3), 1), (xid(54, 3), 42)])
def test_an_error_in_the_kernels_log_decides_without_a_diagnostic(
    environment: dict[str, str], bucket: Bucket, tmp_path: Path, line: str, code: int
) -> None:
    """dcgmi would pass, and is not even called."""
    install_dcgmi(tmp_path, HEALTHY, 0)
    kernel_says(tmp_path, line)
    assert finish(start(environment))[0] == code
    written = only_document(bucket)
    assert calls(tmp_path) == []
    assert (written["diagnostics"], written["findings"][0]["source"]) == ([], "kernel_log")
    assert written["xids"][0]["first_at"] == "2026-03-01T10:00:00Z"


def test_the_drivers_own_word_decides_without_a_diagnostic(
    environment: dict[str, str], bucket: Bucket, tmp_path: Path
) -> None:
    """It asks for a reboot of the node; the kernel's log cannot be read, and that is told."""
    install_dcgmi(tmp_path, HEALTHY, 0)
    install_nvidia_smi(tmp_path, smi([gpu_xml(gpu, "Reboot" if gpu == 3 else "None") for gpu in range(8)]))
    assert finish(start(environment))[0] == 1
    written = only_document(bucket)
    assert calls(tmp_path) == []
    assert (written["driver"]["recovery_action"], written["findings"][0]["gpu_index"]) == ("NODE_REBOOT", 3)
    assert "No such file" in written["kernel_log"]["unread"]


def test_a_suspect_is_examined_first_and_deeper(environment: dict[str, str], bucket: Bucket, tmp_path: Path) -> None:
    """Then all as ordered; the suspicion is told, and is over."""
    install_dcgmi(tmp_path, HEALTHY, 0)
    install_nvidia_smi(tmp_path, smi([gpu_xml(gpu) for gpu in range(8)]))
    kernel_says(tmp_path, xid(159, 3))
    assert finish(start(environment | {"CHECK_TIMEOUT_S": "4000"}))[0] == 0
    assert calls(tmp_path) == ["diag -r 3 -j -i 3", "diag -r 2 -j"]
    written = only_document(bucket)
    assert written["suspects"] == [3]
    assert written["diagnostics"] == [
        {"level": 3, "gpus": [3], "exit_code": 0},
        {"level": 2, "gpus": None, "exit_code": 0},
    ]


def test_a_suspect_that_is_found_guilty_ends_the_check(
    environment: dict[str, str], bucket: Bucket, tmp_path: Path
) -> None:
    """A second diagnostic would only take more time."""
    install_dcgmi(tmp_path, dcgm4([result(3, "Fail", [warning(52, 2)])], gpus=1), 205)
    install_nvidia_smi(tmp_path, smi([gpu_xml(gpu) for gpu in range(8)]))
    assert finish(start(environment | {"CHECK_TIMEOUT_S": "4000", "FOCUS": "GPU-3"}))[0] == 1
    assert calls(tmp_path) == ["diag -r 3 -j -i 3"]
    assert {one["code"] for one in only_document(bucket)["findings"]} == {"DCGM_FR_FAULTY_MEMORY", "KERNEL_LOG_UNREAD"}


def test_a_diagnostic_of_one_suspect_loses_no_gpu(environment: dict[str, str], bucket: Bucket, tmp_path: Path) -> None:
    """It lists the one that it was to examine; the seven others are counted by the one of all."""
    one, all_of_them = dcgm4([result(3)], gpus=1), HEALTHY
    install(
        tmp_path,
        "dcgmi",
        f"import sys\nsys.stdout.write({one!r} if '-i' in sys.argv else {all_of_them!r})\n",
    )
    assert finish(start(environment | {"CHECK_TIMEOUT_S": "4000", "FOCUS": "3"}))[0] == 0
    assert len(only_document(bucket)["diagnostics"]) == 2


def test_an_error_before_the_attempt_is_no_verdict(environment: dict[str, str], bucket: Bucket, tmp_path: Path) -> None:
    """It was an hour after the boot; the attempt began two hours after it."""
    install_dcgmi(tmp_path, HEALTHY, 0)
    kernel_says(tmp_path, xid(79, 3))
    assert finish(start(environment | {"SINCE": "2026-03-01T11:00:00Z"}))[0] == 0
    assert calls(tmp_path) == ["diag -r 2 -j"]
    assert only_document(bucket)["xids"][0]["class"] == "DIAG"


def test_a_passive_check_asks_no_gpu_to_work(environment: dict[str, str], bucket: Bucket, tmp_path: Path) -> None:
    """Others use it."""
    install_dcgmi(tmp_path, dcgm4([result(3, "Fail", [warning(25, 6)])], gpus=8), 226)
    install_nvidia_smi(tmp_path, smi([gpu_xml(gpu) for gpu in range(8)]))
    kernel_says(tmp_path, xid(13))
    assert finish(start(environment | {"CHECK_LEVEL": "0"}))[0] == 0
    assert calls(tmp_path) == []
    written = only_document(bucket)
    assert (written["level"], written["outcome"], written["driver_version"]) == (0, "HEALTHY", "580.82.09")
