"""A host engine of the instance beside the check's own: the check neither uses it nor blames a GPU for a conflict."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from health_check import examine as examining
from health_check import host_engines
from health_check import run as running
from health_check.driver import DriverReport, parse
from health_check.examine import examine, judge
from health_check.host_engines import other_host_engine
from health_check.remedies import HealthOutcome
from health_check.run import ProcessRun, StopRequested
from health_check.settings import CheckSettings
from tests.health_check.diagnostics import dcgm4, result, warning
from tests.health_check.examinations import SETTINGS, answer, gpu_xml, judged, xid
from tests.health_check.stub_programs import ENGINE_OF_THE_HOST, HOST_ENGINE, install, install_dcgmi
from tests.health_check.test_document import host_proc

pytestmark = pytest.mark.slow

WITHIN_S = 60.0
HEALTHY = dcgm4([result(gpu) for gpu in range(8)], gpus=8)
ANSWERS = answer(*(gpu_xml(gpu) for gpu in range(8)))
SILENT = parse("", "", 124)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CheckSettings:
    """A check with the programs of `tmp_path`, a quiet kernel log, a driver that answers, and the host's sockets."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(examining.driver, "ask", lambda timeout_s: ANSWERS)
    proc = host_proc(tmp_path / "proc", boot_id="0c5d\n", stat="btime 1772355600\n")
    (proc / "net").symlink_to("/proc/net")
    (tmp_path / "kmsg").write_text("4,1,100000000,-;quiet\n")
    return replace(SETTINGS, host_proc=proc, host_kmsg=tmp_path / "kmsg", timeout_s=30)


@pytest.fixture
def engine_of_the_host(tmp_path: Path) -> Iterator[Path]:
    """The folder of a running host engine of the instance; `client` in it says that somebody has connected."""
    folder = tmp_path / "host"
    folder.mkdir()
    process = subprocess.Popen([str(install(tmp_path, "engine-of-the-host", ENGINE_OF_THE_HOST))])
    deadline = time.monotonic() + WITHIN_S
    while not (folder / "ready").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert (folder / "ready").exists()
    yield folder
    process.kill()
    process.wait()


def verdict_on(settings: CheckSettings) -> tuple[HealthOutcome, list[tuple[str, int | None]]]:
    """The outcome, and the code and GPU of each finding."""
    verdict = judge(examine(settings), level=settings.level, expected_gpus=8)
    return verdict.outcome, [(finding.code, finding.gpu_index) for finding in verdict.findings]


def test_the_check_starts_its_own_engine_beside_that_of_the_host(
    settings: CheckSettings, engine_of_the_host: Path, tmp_path: Path
) -> None:
    """On a socket of its own, although the default port and socket are taken; nobody connects to the host's."""
    install(tmp_path, "nv-hostengine", HOST_ENGINE)
    install_dcgmi(tmp_path, HEALTHY, 0)
    assert verdict_on(settings) == (HealthOutcome.HEALTHY, [])
    (call,) = (tmp_path / "arguments").read_text().splitlines()
    assert "--host unix:///" in call and str(engine_of_the_host) not in call
    assert not (engine_of_the_host / "client").exists()


def test_a_check_whose_engine_does_not_start_never_judges_by_that_of_the_host(
    settings: CheckSettings, engine_of_the_host: Path, tmp_path: Path
) -> None:
    """dcgmi would reach the host's engine by itself, so dcgmi is not started; no instance is repaired for this."""
    install(tmp_path, "nv-hostengine", "import sys\nsys.exit('Failed to start DCGM Server: -7')\n")
    install_dcgmi(tmp_path, HEALTHY, 0)
    assert verdict_on(settings) == (HealthOutcome.CONFIGURATION, [("DCGM_ST_CONNECTION_NOT_VALID", None)])
    assert not (tmp_path / "arguments").exists() and not (engine_of_the_host / "client").exists()


def hangs(monkeypatch: pytest.MonkeyPatch, settings: CheckSettings, *, driver: DriverReport, line: str = "") -> None:
    """The diagnostic does not end, and meanwhile the driver changes and the kernel logs a line."""

    def diagnose(*_: object, **__: object) -> ProcessRun:
        monkeypatch.setattr(examining.driver, "ask", lambda timeout_s: driver)
        with settings.host_kmsg.open("a") as log:
            log.write(f"4,2,200000000,-;{line}\n")
        return ProcessRun("", "", 124)

    monkeypatch.setattr(examining, "diagnose", diagnose)


@pytest.mark.usefixtures("engine_of_the_host")
def test_a_hang_beside_the_engine_of_the_host_blames_no_gpu(
    settings: CheckSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engines may have blocked each other. The driver answers, so the check could not tell."""
    hangs(monkeypatch, settings, driver=ANSWERS)
    assert verdict_on(settings) == (HealthOutcome.INCONCLUSIVE, [("OTHER_HOST_ENGINE", None)])


def test_a_hang_without_another_engine_asks_for_a_reboot(
    settings: CheckSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing else can have blocked the diagnostic. The sockets of the host are those of a quiet instance here."""
    (settings.host_proc / "net").unlink()
    hangs(monkeypatch, settings, driver=ANSWERS)
    assert verdict_on(settings) == (HealthOutcome.REBOOT, [("DIAGNOSTIC_HUNG", None)])


@pytest.mark.usefixtures("engine_of_the_host")
def test_a_hang_of_the_driver_too_asks_for_a_reboot(settings: CheckSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two engines cannot make nvidia-smi hang without a driver that only a reboot cures."""
    hangs(monkeypatch, settings, driver=SILENT)
    outcome, findings = verdict_on(settings)
    assert outcome is HealthOutcome.REBOOT and ("DIAGNOSTIC_HUNG", None) in findings


@pytest.mark.usefixtures("engine_of_the_host")
def test_an_error_that_the_kernel_logs_during_the_hang_counts(
    settings: CheckSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The evidence is collected again: GPU 3 has fallen off the bus. The driver is too old to name an action itself."""
    old_driver = answer(*(gpu_xml(gpu, None) for gpu in range(8)))
    hangs(monkeypatch, settings, driver=old_driver, line=xid(79, 3))
    outcome, findings = verdict_on(settings)
    assert outcome is HealthOutcome.REBOOT and 3 in {gpu for _, gpu in findings}


@pytest.mark.usefixtures("engine_of_the_host")
def test_a_check_that_is_stopped_after_a_hang_has_no_verdict_of_the_hang(
    settings: CheckSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task is stopped while the driver is asked for the second time: nobody knows yet what blocked the hang."""
    answers = [ANSWERS]

    def ask(timeout_s: float) -> DriverReport:
        if answers:
            return answers.pop()
        raise StopRequested

    monkeypatch.setattr(examining.driver, "ask", ask)
    monkeypatch.setattr(examining, "diagnose", lambda *_, **__: ProcessRun("", "", 124))
    assert verdict_on(settings) == (HealthOutcome.INCONCLUSIVE, [("DIAGNOSTIC_SIGNALLED", None)])


def test_an_engine_that_accepts_no_connection_does_not_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Once the backlog of its socket is full, a connection waits for ever. The probe does not."""
    monkeypatch.setattr(host_engines, "CONNECTS_AT_ONCE_S", 0.05)
    found: list[bool] = []
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process,
    ):
        listener.bind(str(tmp_path / "engine.sock"))
        listener.listen(0)
        engine = running._HostEngine(process, tmp_path / "engine.sock")

        def probe() -> None:
            answers = [engine.accepts_connection()]
            while answers[-1]:  # each probe stays in the backlog
                answers.append(engine.accepts_connection())
            found.extend(answers)

        thread = threading.Thread(target=probe, daemon=True)
        thread.start()
        thread.join(WITHIN_S)
        process.communicate()
    assert found[0] is True and found[-1] is False


def test_a_lock_that_the_engine_of_the_host_holds_blames_no_gpu() -> None:
    """Profiling takes a lock of the whole system. A test that fails for it fails inside DCGM, which is inconclusive."""
    held = warning(67, 4, "The third-party Profiling module returned an unrecoverable error")
    verdict = judged(dcgm4([result(3, "Fail", [held])], gpus=8), 226)
    assert verdict.outcome is HealthOutcome.INCONCLUSIVE
    assert judged(HEALTHY, 217).outcome is HealthOutcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("table", "text", "found"),
    [
        ("unix", "0000000000000000: 00000002 00000000 00010000 0001 01 4711 /run/nvidia-dcgm/nv-hostengine", "/run/"),
        ("unix", "0000000000000000: 00000003 00000000 00000000 0001 03 4712 /run/nvidia-dcgm/nv-hostengine", ""),
        ("unix", "0000000000000000: 00000002 00000000 00010000 0001 01 4713 /tmp/health-check-x/engine.sock", ""),
        (
            "tcp",
            "   0: 0100007F:15B3 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1",
            "port 5555",
        ),
        ("tcp", "   0: 0100007F:15B3 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 1", ""),
        (
            "tcp6",
            f"   0: {'0' * 32}:15B3 {'0' * 32}:0000 0A 00000000:00000000 00:00000000 00000000  0  0 1",
            "port 5555",
        ),
    ],
)
def test_an_engine_is_one_that_listens(tmp_path: Path, table: str, text: str, found: str) -> None:
    """The socket of Amazon's AMI, and the default port; neither a connection nor the check's own engine."""
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / table).write_text(f"header\n{text}\n")
    assert other_host_engine(tmp_path).startswith(found) and bool(other_host_engine(tmp_path)) is bool(found)
