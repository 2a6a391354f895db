"""The container as ECS runs it: `python -m health_check`, a dcgmi on PATH, an S3 that takes the document."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import jsonschema
import pytest

from tests.health_check.diagnostics import dcgm4, output, result, warning
from tests.health_check.programs import install, install_dcgmi
from tests.health_check.test_document import SCHEMA, host_proc

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
WITHIN_S = 60.0


@dataclass
class Bucket:
    """An S3 of one operation on the loopback: takes PUT, or refuses every one of them with `refusal`."""

    url: str = ""
    refusal: int | None = None
    objects: dict[str, bytes] = field(default_factory=dict)


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    """The bucket, served until the test ends."""
    held = Bucket()

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
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
        "0c5d2f6e-1111-4222-8333-944455556666", "2026-03-01T09:00:00Z",
    )  # fmt: skip
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
    assert "the verdict was not written to s3://verdicts-bucket/verdicts/check/i-0abc/3.json" in err
    assert "AccessDenied" in err
    assert json.loads(out)["check_id"] == "check/i-0abc/3"


def test_a_missing_setting_is_a_configuration_error(environment: dict[str, str]) -> None:
    """Named in the log, with the code for configuration."""
    del environment["VERDICT_KEY"]
    code, out, err = finish(start(environment))
    assert (code, out, err) == (43, "", "health check: VERDICT_KEY is not set\n")


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


def test_a_hanging_diagnostic_asks_for_a_reboot(environment: dict[str, str], bucket: Bucket, tmp_path: Path) -> None:
    """Past CHECK_TIMEOUT_S."""
    install(tmp_path, "dcgmi", "import time\ntime.sleep(600)\n")
    assert finish(start(environment | {"CHECK_TIMEOUT_S": "1"}))[0] == 1
    written = json.loads(next(iter(bucket.objects.values())))
    assert (written["outcome"], written["findings"][0]["code"]) == ("REBOOT", "DIAGNOSTIC_HUNG")
