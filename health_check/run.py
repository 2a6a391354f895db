"""Runs `dcgmi diag` as a process: with a deadline, in its own group, with bounded output.

`dcgmi` is only a client; the tests run inside a host engine. If `nv-hostengine` is installed (in the image), one is
started for this check alone, on a Unix socket. Its release then equals the client's, port 5555 stays free although the
task shares the host's network, and the check does not judge by an engine that the host runs for metrics. With an
address of the host's engine (`host_engines.usable_engine`), that engine runs the tests, and none is started. In an
image without `nv-hostengine` dcgmi itself finds the engine that runs on the host.

An engine of the host lives on after the check, and so do its tests if dcgmi is killed. So dcgmi gets SIGTERM first.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import IO

from health_check import remedies
from health_check.host_engines import accepts_connection
from health_check.parse import parse

OUTPUT_BYTES_MAX = 8 * 1024 * 1024
ERROR_BYTES_MAX = 64 * 1024
ENGINE_LOG_BYTES = 2_000
"""Bytes of the engine's log that explain why the engine did not start."""
ENGINE_READY_WITHIN_S = 30.0
"""Seconds that the host engine of the check has to start before dcgmi is started."""
CONNECTS_WITHIN_S = 300.0
"""Seconds within which a lost connection is tried again. On a slow host, or after a boot, the host engine is late."""
PIPES_CLOSE_WITHIN_S = 5.0
KILLED_WITHIN_S = 10.0
TESTS_END_WITHIN_S, TESTS_END_SHARE = 25.0, 0.2
"""Seconds between SIGTERM and SIGKILL of a dcgmi whose tests run in an engine of the host, and the largest share of its
time. On SIGTERM dcgmi has the engine stop the tests (dcgmi/Diag.cpp of DCGM 4.6); SIGKILL leaves them running. The
`stopTimeout` of the task is 60 s: the kill and the verdict need the rest.
"""
PAUSE_S = 20.0
"""Seconds between two runs of dcgmi."""
POLL_S = 0.05
SHORTAGES = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
"""Errors of fork, exec and pipe (Linux man-pages, section 2) while processes, memory or open files are short."""


class StopRequested(Exception):
    """SIGTERM was received: the task is being stopped."""


class _EngineNotStarted(Exception):
    """The host engine of the check did not start. The message is the end of its log.

    `late` says that the host may be the cause: another process killed the engine, as the kernel does without memory.
    """

    def __init__(self, log: str, *, late: bool) -> None:
        super().__init__(log)
        self.late = late


@dataclass(frozen=True)
class ProcessRun:
    """The result of one run of a process.

    `exit_code` is as in a shell: 128+n for signal n, 124 after the deadline, 126 or 127 if the program cannot be
    executed or is missing. 122 is the check's own: the host had no room for another process, thread or open file.
    `diagnose` gives 235 if the host engine of the check has died or did not start, and 143 if the task was stopped. A
    process that sleeps in the driver may survive its kill.

    `late` says that the exit code may have no other cause than a slow host: the host engine of the check was started
    and gives no connection, another process killed it at its start, or less than half of the time was left when the
    diagnostic began.
    """

    output: str
    error: str
    exit_code: int
    late: bool = False


def diagnose(
    level: int,
    timeout_s: float,
    *,
    gpus: Set[int] | None = None,
    pause_s: float = PAUSE_S,
    host_engine: Path | None = None,
) -> ProcessRun:
    """Run `dcgmi diag -r <level> -j`; repeat it once after a timeout inside DCGM, and while another diagnostic runs.

    A lost connection is repeated for CONNECTS_WITHIN_S, because a host engine may start late. If the task is stopped,
    the exit code is 143, that of SIGTERM. If the host engine of this check does not answer at the deadline, the exit
    code is that of a lost connection: dcgmi may wait until the deadline then, and no GPU hangs.

    Args:
        level: the level of the diagnostic.
        timeout_s: seconds for all attempts together.
        gpus: indices of the GPUs to examine; None for all.
        pause_s: seconds between two attempts.
        host_engine: socket of the host's engine that runs the tests; None: the check starts its own engine.
    """
    begun = time.monotonic()
    deadline = begun + timeout_s
    timed_out_before = False
    only = [] if gpus is None else ["-i", ",".join(map(str, sorted(gpus)))]
    try:
        with stop_raises(), _host_engine(host_engine) as engine:
            while True:
                left_s = deadline - time.monotonic()
                command = ["dcgmi", "diag", "-r", str(level), "-j", *only, *(engine.arguments if engine else [])]
                in_own_engine = engine is not None and engine.process is not None
                run = run_bounded(command, left_s, ends_within_s=0.0 if in_own_engine else TESTS_END_WITHIN_S)
                if run.exit_code == remedies.DEADLINE_PASSED:
                    if engine and not engine.accepts_connection():
                        return replace(run, exit_code=remedies.CONNECTION_NOT_VALID, late=True)
                    return replace(run, late=left_s < timeout_s / 2)
                lost = run.exit_code == remedies.CONNECTION_NOT_VALID or parse(run.output).lost_connection
                run = replace(run, late=lost and engine is not None)
                may_come = (engine is None or engine.is_running()) and time.monotonic() - begun < CONNECTS_WITHIN_S
                busy = run.exit_code == remedies.ALREADY_RUNNING
                timed_out = run.exit_code == remedies.DIAG_TIMEOUT
                may_repeat = busy or (timed_out and not timed_out_before) or (lost and may_come)
                if not may_repeat or deadline - time.monotonic() <= pause_s:
                    return run
                timed_out_before = timed_out_before or timed_out
                time.sleep(pause_s)
    except StopRequested:
        return ProcessRun("", "the task was stopped", 128 + signal.SIGTERM)
    except _EngineNotStarted as error:
        text = f"the check's own host engine did not start: {error}"
        return ProcessRun("", text, remedies.CONNECTION_NOT_VALID, late=error.late)
    except OSError as error:
        if error.errno not in SHORTAGES:
            raise
        return ProcessRun("", f"the diagnostic cannot be started: {error}", remedies.HOST_SHORT)


def run_bounded(command: Sequence[str], timeout_s: float, *, ends_within_s: float = 0.0) -> ProcessRun:
    """Run a command to its end, or kill its whole process group after `timeout_s`.

    Output beyond OUTPUT_BYTES_MAX is read and dropped. Its JSON is then incomplete, hence unreadable.

    Args:
        command: the command line.
        timeout_s: seconds until SIGKILL.
        ends_within_s: seconds from SIGTERM to SIGKILL, at the timeout and if the check is stopped; 0 for SIGKILL alone.
            At the timeout they are a part of `timeout_s`, at most TESTS_END_SHARE of it.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError:
        return ProcessRun("", f"{command[0]} is not installed", remedies.NOT_INSTALLED)
    except OSError as error:
        exit_code = remedies.HOST_SHORT if error.errno in SHORTAGES else remedies.NOT_EXECUTABLE
        return ProcessRun("", f"{command[0]} cannot be executed: {error}", exit_code)
    assert process.stdout and process.stderr
    try:
        output = _BoundedReader(process.stdout, OUTPUT_BYTES_MAX)
        error_output = _BoundedReader(process.stderr, ERROR_BYTES_MAX)
        at_timeout_s = min(ends_within_s, max(timeout_s, 0.0) * TESTS_END_SHARE)
        code = process.wait(timeout=max(timeout_s - at_timeout_s, 0.0))
        exit_code = code if code >= 0 else 128 - code
    except subprocess.TimeoutExpired:
        exit_code, ends_within_s = remedies.DEADLINE_PASSED, at_timeout_s
    except RuntimeError as error:  # Python's error for a thread that cannot be started
        return ProcessRun("", f"the output of {command[0]} cannot be read: {error}", remedies.HOST_SHORT)
    finally:
        _end_group(process, ends_within_s)
    return ProcessRun(output.text(), error_output.text(), exit_code)


class _BoundedReader:
    """Drains a pipe in a thread and stores its first bytes: much output neither blocks the process nor fills the
    memory.
    """

    def __init__(self, pipe: IO[bytes], bytes_max: int) -> None:
        self._pipe = pipe
        self._bytes_max = bytes_max
        self._content = bytearray()
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        with self._pipe:
            while chunk := self._pipe.read1(65_536):  # type: ignore[attr-defined]
                self._content += chunk[: self._bytes_max - len(self._content)]

    def text(self) -> str:
        """Return the output once the pipe is closed, or so far if a process of another group holds the pipe open."""
        self._thread.join(PIPES_CLOSE_WITHIN_S)
        return bytes(self._content).decode(errors="replace")


def _end_group(process: subprocess.Popen[bytes], within_s: float = 0.0) -> None:
    """End a running process and its children. A process that sleeps in the driver may survive this.

    Args:
        process: the first process of its group.
        within_s: seconds from SIGTERM to SIGKILL; 0 for SIGKILL alone.
    """
    with _stop_raises_at_the_end():
        if process.poll() is not None:
            return  # the pid may belong to another process by now
        if within_s > 0:
            _signal_group(process, signal.SIGTERM)
            _wait_unreaped(process, within_s)
        _signal_group(process, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=KILLED_WITHIN_S)


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _wait_unreaped(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait for the end of the process without reaping it, so that no other process gets its pid before SIGKILL."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        time.sleep(POLL_S)


@contextlib.contextmanager
def _stop_raises_at_the_end() -> Iterator[None]:
    """Hold back a SIGTERM while a process is being ended, and raise StopRequested afterwards."""
    stops: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: stops.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
    if stops:
        raise StopRequested


@dataclass(frozen=True)
class _HostEngine:
    """The host engine that runs the tests: the Unix socket on which it listens once it has started, and its process.

    `process` is None for the engine of the host.
    """

    process: subprocess.Popen[bytes] | None
    address: Path

    @property
    def arguments(self) -> list[str]:
        """Return the arguments with which dcgmi finds the engine."""
        return ["--host", f"unix://{self.address}"]

    def is_running(self) -> bool:
        """Return whether the process runs, as far as the check can see it."""
        return self.process is None or self.process.poll() is None

    def accepts_connection(self) -> bool:
        """Return whether the engine accepts a connection."""
        return self.is_running() and accepts_connection(self.address)


@contextlib.contextmanager
def _host_engine(of_the_host: Path | None) -> Iterator[_HostEngine | None]:
    """Start a host engine that runs as long as the context. Yield None if the image has none.

    With `of_the_host`, the address of the host's engine, yield that engine and start none.

    An engine that is late is yielded before it listens: `diagnose` repeats a lost connection.

    Raises:
        OSError: the host is short of processes, memory or open files.
        _EngineNotStarted: the engine ended at its start. dcgmi may not fall back to an engine of the host: that engine
            has another release and other rights, and its tests would be judged as if they were the check's.
    """
    if of_the_host is not None:
        yield _HostEngine(None, of_the_host)
        return
    program = shutil.which("nv-hostengine")
    if program is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="health-check-") as folder:
        address, pid_file = Path(folder, "engine.sock"), Path(folder, "engine.pid")
        command = [program, "--no-daemon", "--domain-socket", str(address), "--pid", str(pid_file)]
        with Path(folder, "engine.log").open("wb") as log:
            try:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
            except OSError as error:
                if error.errno in SHORTAGES:
                    raise
                raise _EngineNotStarted(str(error), late=False) from error
        engine = _HostEngine(process, address)
        try:
            _wait_for(engine)
            if not engine.is_running():
                written = Path(folder, "engine.log").read_bytes()[-ENGINE_LOG_BYTES:]
                text = written.decode(errors="replace") or "it wrote nothing"
                raise _EngineNotStarted(text, late=process.returncode == -signal.SIGKILL)
            yield engine
        finally:
            _end_group(process)


def _wait_for(engine: _HostEngine) -> None:
    """Wait until the engine answers or has ended, at most ENGINE_READY_WITHIN_S."""
    deadline = time.monotonic() + ENGINE_READY_WITHIN_S
    while engine.is_running() and not engine.accepts_connection() and time.monotonic() < deadline:
        time.sleep(POLL_S)


@contextlib.contextmanager
def stop_raises() -> Iterator[None]:
    """Raise StopRequested on SIGTERM. The first process of a container has no default action for it."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise StopRequested

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
