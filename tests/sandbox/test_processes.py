"""Starting servers clean and ending them without a trace, on real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import processes
from sandbox.processes import SandboxError, ServerProcess
from tests.sandbox.patience import wait_until

pytestmark = pytest.mark.slow
SLEEP = "import time; time.sleep(600)"
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="finding strays needs /proc")


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is none of our business."""
    process = subprocess.Popen([sys.executable, "-c", SLEEP])
    yield process
    process.kill()
    process.wait()


def start(folder: Path, code: str, **environment: str) -> ServerProcess:
    env = processes.clean_environment(environment)
    return processes.start("server", [sys.executable, "-c", code], env, folder, folder / "log")


def test_a_recycled_pid_is_not_killed(bystander: subprocess.Popen[bytes]) -> None:
    """A record whose pid now belongs to a process that started at another moment ends nobody."""
    record = ServerProcess("old", bystander.pid, "12345", "/nowhere")
    assert not record.is_running
    processes.stop([record])
    assert bystander.poll() is None


def test_stopping_ends_a_server_that_ignores_sigterm_and_its_children(tmp_path: Path) -> None:
    """SIGTERM, the grace, then SIGKILL for the whole session."""
    code = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"child = subprocess.Popen([sys.executable, '-c', {SLEEP!r}])\n"
        "print(child.pid, flush=True); time.sleep(600)"
    )
    server = start(tmp_path, code)
    child = int(wait_until((tmp_path / "log").read_text))
    assert processes.started_at(child)
    processes.stop([server], grace_s=0.2)
    assert not server.is_running
    wait_until(lambda: processes.started_at(child) is None)


def test_a_server_that_dies_while_starting_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    """Waiting for it does not last until the deadline."""
    server = start(tmp_path, "import time; time.sleep(0.2); raise SystemExit('no such table')")
    with pytest.raises(SandboxError, match="no such table"):
        processes.wait_until(lambda: False, server, within_s=60)


@linux_only
def test_a_stray_is_found_by_its_home_and_nobody_else_is(tmp_path: Path, bystander: subprocess.Popen[bytes]) -> None:
    """A process in a session of its own, whose parent was killed, is ended with the sandbox."""
    folders = processes.own_folders(tmp_path)
    stray = start(tmp_path, SLEEP, **folders)
    neighbour = start(tmp_path, SLEEP, HOME=f"{tmp_path}-2/home")
    try:
        assert processes.processes_in(tmp_path) == [stray.pid]
        processes.sweep(tmp_path)
        assert not stray.is_running
        assert neighbour.is_running and bystander.poll() is None
    finally:
        processes.stop([neighbour], grace_s=0)


def test_a_child_inherits_no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither profiles nor keys nor proxies of the user reach a server."""
    for name in ("AWS_PROFILE", "AWS_SECRET_ACCESS_KEY", "HTTPS_PROXY", "PYTHONPATH"):
        monkeypatch.setenv(name, "mine")
    start(tmp_path, "import os; print(sorted(os.environ), flush=True)", GIVEN="1")
    seen = wait_until((tmp_path / "log").read_text)
    assert "GIVEN" in seen and "PATH" in seen
    assert not any(name in seen for name in ("AWS_", "PROXY", "PYTHONPATH"))


def test_a_command_ends_with_the_block_that_runs_it(tmp_path: Path) -> None:
    """An exception in the block leaves neither the command nor its children."""
    code = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {SLEEP!r}]); print(child.pid, flush=True); child.wait()"
    )
    log = tmp_path / "log"
    with (
        pytest.raises(KeyboardInterrupt),
        processes.running([sys.executable, "-c", code], processes.clean_environment({}), tmp_path, log),
    ):
        child = int(wait_until(log.read_text))
        raise KeyboardInterrupt
    wait_until(lambda: processes.started_at(child) is None)


def test_a_failed_command_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    """The end of its log is in the message."""
    command = [sys.executable, "-c", "raise SystemExit('stack is broken')"]
    with (
        pytest.raises(SandboxError, match="stack is broken"),
        processes.running(command, processes.clean_environment({}), tmp_path, tmp_path / "log") as wait,
    ):
        wait()


def test_what_runs_is_recorded_for_its_owner_only(tmp_path: Path) -> None:
    """Another process can read the record back; another user cannot."""
    path = tmp_path / "processes.json"
    servers = [ServerProcess("a", 1, "2", "/log"), ServerProcess("b", 3, "4", "/log")]
    processes.remember(path, servers)
    assert processes.recall(path) == servers
    assert path.stat().st_mode & 0o777 == 0o600
    assert processes.recall(tmp_path / "missing") == []


def test_a_zombie_does_not_count_as_running(tmp_path: Path) -> None:
    """Neither our own child's nor one that its parent never asks about."""
    server = start(tmp_path, SLEEP)
    os.kill(server.pid, signal.SIGKILL)
    wait_until(lambda: not server.is_running)
    code = "import os, time\nif pid := os.fork(): print(pid, flush=True); time.sleep(600)"
    parent = start(tmp_path, code)
    try:
        zombie = int(wait_until((tmp_path / "log").read_text))
        wait_until(lambda: processes.started_at(zombie) is None)
        os.kill(zombie, 0)  # it is still there, as a zombie
    finally:
        processes.stop([parent])
