"""The diagnostic is a process: it may fail to start, hang, talk without end, or be in need of another try."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from health_check import run as running
from health_check.judge import findings_of
from health_check.remedies import HealthOutcome
from health_check.report import DiagnosticReport
from health_check.run import diagnose, run_bounded
from tests.health_check.stub_programs import HOST_ENGINE, install, install_dcgmi, is_running

pytestmark = pytest.mark.slow  # real processes, with their real deadlines

WITHIN_S = 60.0
SHORT_S = 5.0
"""A deadline that passes. Until then two programs must start, also on a busy machine."""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def arguments(programs: Path) -> list[str]:
    return (programs / "arguments").read_text().splitlines()


def wait_until_ended(pid: int) -> bool:
    deadline = time.monotonic() + WITHIN_S
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_running(pid)


def test_the_diagnostic_runs_at_its_level_and_its_output_and_code_come_back(programs: Path) -> None:
    """Without nv-hostengine dcgmi finds the host's engine by itself."""
    install_dcgmi(programs, "text", 226)
    run = diagnose(3, 60)
    assert (run.output, run.exit_code) == ("text", 226)
    assert arguments(programs) == ["diag -r 3 -j"]


def test_a_dcgmi_that_is_missing_or_not_executable_has_the_shells_codes(programs: Path) -> None:
    """127 and 126, as a shell has them."""
    assert diagnose(1, 60).exit_code == 127
    install_dcgmi(programs, "", 0).write_text("no program at all")
    assert diagnose(1, 60).exit_code == 126


@pytest.mark.parametrize(
    ("on_sigterm", "child"),
    [
        ("trap - TERM", "/bin/sleep 600"),
        ("trap '' TERM", "/bin/sleep 600"),
        ("trap - TERM", "(trap '' TERM; exec /bin/sleep 600)"),
    ],
    ids=["ends", "ignores SIGTERM", "its child ignores SIGTERM"],
)
def test_a_hanging_diagnostic_is_killed_with_its_children(programs: Path, on_sigterm: str, child: str) -> None:
    """Past the deadline the whole group goes; what was printed until then is kept."""
    script = f"#!/bin/sh\n{on_sigterm}\n{child} &\necho $! > {programs}/child.pid\necho begun\nwait\n"
    install_dcgmi(programs, "", 0).write_text(script)
    run = diagnose(1, SHORT_S)
    assert (run.output, run.exit_code) == ("begun\n", 124)
    assert wait_until_ended(int((programs / "child.pid").read_text()))


def test_a_diagnostic_that_a_signal_ended_has_the_shells_code(programs: Path) -> None:
    """128 and the signal's number."""
    install(programs, "dcgmi", "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    assert diagnose(1, 60).exit_code == 139


def test_output_without_end_is_cut_and_does_not_block(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a pipe holds, on both streams."""
    monkeypatch.setattr(running, "OUTPUT_BYTES_MAX", 200_000)
    monkeypatch.setattr(running, "ERROR_BYTES_MAX", 1_000)
    command = install(programs, "talk", "import sys\nsys.stderr.write('e' * 10**6)\nsys.stdout.write('o' * 10**6)\n")
    run = run_bounded([str(command)], 60)
    assert (len(run.output), len(run.error), run.exit_code) == (200_000, 1_000, 0)


@pytest.mark.parametrize(("exit_code", "tries"), [(217, 4), (245, 2), (226, 1), (0, 1)])
def test_a_busy_diagnostic_is_waited_for_and_a_timed_out_one_tried_once_more(
    programs: Path, exit_code: int, tries: int
) -> None:
    """217 until it ends otherwise, 245 once, anything else not at all."""
    install(
        programs,
        "dcgmi",
        "import os, sys\n"
        "notes = open(os.path.join(HERE, 'arguments'), 'a+')\n"
        "notes.write('again\\n')\n"
        "notes.seek(0)\n"
        f"sys.exit({exit_code} if len(notes.readlines()) < 4 else 0)\n",
    )
    run = diagnose(1, 60, pause_s=0)
    assert len(arguments(programs)) == tries
    assert run.exit_code == (0 if tries == 4 else exit_code)


def test_a_busy_diagnostic_is_not_waited_for_past_the_deadline(programs: Path) -> None:
    """When a pause would not fit any more, the code stands as it is."""
    install_dcgmi(programs, "", 217)
    assert diagnose(1, 60, pause_s=61).exit_code == 217
    assert len(arguments(programs)) == 1


def test_the_images_host_engine_lives_as_long_as_the_check(programs: Path) -> None:
    """dcgmi is pointed at its socket, and it is gone afterwards."""
    install(programs, "nv-hostengine", HOST_ENGINE)
    install_dcgmi(programs, "", 0)
    assert diagnose(1, 60).exit_code == 0
    option, _, address = arguments(programs)[0].removeprefix("diag -r 1 -j ").partition(" ")
    assert (option, address.startswith("unix:///")) == ("--host", True)
    assert not Path(address.removeprefix("unix://")).exists()
    assert wait_until_ended(int((programs / "engine.pid").read_text()))


def test_only_the_suspects_are_examined_where_they_are_named(programs: Path) -> None:
    """By their indices, in order."""
    install_dcgmi(programs, "", 0)
    assert diagnose(3, 60, gpus={7, 0}).exit_code == 0
    assert arguments(programs) == ["diag -r 3 -j -i 0,7"]


def test_a_host_engine_that_died_is_a_lost_connection_not_a_gpu_that_hangs(programs: Path) -> None:
    """dcgmi waits until the deadline for an engine that is no more; 124 would cost the machine a reboot."""
    install(programs, "nv-hostengine", HOST_ENGINE)
    install(
        programs,
        "dcgmi",
        "import os, signal, time\n"
        "os.kill(int(open(os.path.join(HERE, 'engine.pid')).read()), signal.SIGKILL)\n"
        "time.sleep(600)\n",
    )
    run = diagnose(1, SHORT_S)
    assert (run.exit_code, run.late) == (235, True)


def test_without_its_own_engine_the_check_does_not_use_the_hosts(programs: Path) -> None:
    """dcgmi alone would find the engine of the host, of another release and with other rights. The log says why."""
    install(programs, "nv-hostengine", "import sys\nsys.exit('Failed to start DCGM Server: -7')\n")
    install_dcgmi(programs, "", 0)
    run = diagnose(1, 60, pause_s=61)
    assert (run.output, run.exit_code, run.late) == ("", 235, False)
    assert "did not start: Failed to start DCGM Server: -7" in run.error
    assert not (programs / "arguments").exists()


@pytest.mark.parametrize(("by", "late"), [("SIGKILL", True), ("SIGABRT", False), ("SIGSEGV", False)])
def test_an_engine_that_is_killed_at_its_start_is_late(programs: Path, by: str, late: bool) -> None:
    """As a host out of memory kills it. An engine that aborts does so at each start: the image is broken."""
    install(programs, "nv-hostengine", f"import os, signal\nos.kill(os.getpid(), signal.{by})\n")
    install_dcgmi(programs, "", 0)
    run = diagnose(1, 60, pause_s=61)
    assert (run.exit_code, run.late) == (235, late)
    assert not (programs / "arguments").exists()


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.ENOMEM, errno.EMFILE])
@pytest.mark.parametrize("own_engine", [False, True])
def test_a_process_for_which_the_host_has_no_room_is_no_configuration(
    programs: Path, monkeypatch: pytest.MonkeyPatch, code: int, own_engine: bool
) -> None:
    """Neither dcgmi nor the host engine can be started while processes, memory or open files are short."""

    def short(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    install_dcgmi(programs, "", 0)
    if own_engine:
        install(programs, "nv-hostengine", HOST_ENGINE)
    monkeypatch.setattr(running.subprocess, "Popen", short)
    run = diagnose(1, 60, pause_s=61)
    assert os.strerror(code) in run.error
    (found,) = findings_of(DiagnosticReport(), run.exit_code, level=1, expected_gpus=8, late=run.late)
    assert found.outcome is HealthOutcome.INCONCLUSIVE


@pytest.mark.parametrize("own_engine", [False, True])
def test_a_host_without_room_for_a_thread_or_a_file_is_no_configuration(
    programs: Path, monkeypatch: pytest.MonkeyPatch, own_engine: bool
) -> None:
    """dcgmi starts and its output cannot be read, or the log of the engine cannot be opened. dcgmi does not stay."""

    def no_thread(_: object) -> None:
        raise RuntimeError("can't start new thread")

    def no_file(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    install(
        programs,
        "dcgmi",
        "import os, time\nopen('" + str(programs / "pid") + "', 'w').write(str(os.getpid()))\ntime.sleep(600)\n",
    )
    if own_engine:
        install(programs, "nv-hostengine", HOST_ENGINE)
        monkeypatch.setattr(running.tempfile, "TemporaryDirectory", no_file)
    monkeypatch.setattr(running.threading.Thread, "start", no_thread)
    run = diagnose(1, 60, pause_s=61)
    (found,) = findings_of(DiagnosticReport(), run.exit_code, level=1, expected_gpus=8, late=run.late)
    assert (found.code, found.outcome) == ("HOST_SHORT_OF_RESOURCES", HealthOutcome.INCONCLUSIVE)
    assert not (programs / "pid").exists() or wait_until_ended(int((programs / "pid").read_text()))


def test_a_host_engine_that_cannot_be_executed_is_a_lost_connection(programs: Path) -> None:
    """A broken image."""
    install(programs, "nv-hostengine", "").write_text("no program at all")
    install_dcgmi(programs, "", 0)
    run = diagnose(1, 60, pause_s=61)
    assert (run.exit_code, run.late) == (235, False)
    assert "Exec format error" in run.error


def test_the_environment_of_the_tests_has_no_real_dcgmi() -> None:
    """These tests stand for nothing where a real one answers."""
    assert not any(Path(folder, "dcgmi").exists() for folder in os.environ["PATH"].split(os.pathsep))
