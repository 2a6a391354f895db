"""Runs `dcgmi diag` as a process: with a deadline, in a group of its own, its output bounded.

`dcgmi` is only a client; the tests run inside a host engine. Where `nv-hostengine` is installed (the image)
one is started for this check alone, on a Unix socket: its release then equals the client's, port 5555 stays
free although the task shares the host's network, and an engine that the host runs for its metrics is left in
peace. Where it is not installed, dcgmi finds the engine that runs on the host by itself.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import IO

from health_check import remedies

OUTPUT_BYTES_MAX = 8 * 1024 * 1024
ERROR_BYTES_MAX = 64 * 1024
ENGINE_READY_WITHIN_S = 30.0
PIPES_CLOSE_WITHIN_S = 5.0
KILLED_WITHIN_S = 10.0
PAUSE_S = 20.0
POLL_S = 0.05


class StopRequested(Exception):
    """SIGTERM: the task is being stopped."""


@dataclass(frozen=True)
class ProcessRun:
    """`exit_code` as a shell has it: 128+n for signal n, 124 past the deadline, 126 or 127 without dcgmi."""

    output: str
    error: str
    exit_code: int


def diagnose(level: int, timeout_s: float, *, gpus: Set[int] | None = None, pause_s: float = PAUSE_S) -> ProcessRun:
    """`dcgmi diag -r <level> -j`, once more after a time-out inside DCGM, and again while another one runs.

    `gpus`: indices of the only ones to examine, None for all. All tries share `timeout_s`. A stop of the task ends it
    with 143, the code of SIGTERM. If the host engine that was started for it has died, the code is that of a lost
    connection: dcgmi may wait for an answer until the deadline, and that is no GPU that hangs.
    """
    deadline = time.monotonic() + timeout_s
    timed_out_before = False
    only = [] if gpus is None else ["-i", ",".join(map(str, sorted(gpus)))]
    try:
        with stop_raises(), _host_engine() as (engine_arguments, engine_lives):
            while True:
                command = ["dcgmi", "diag", "-r", str(level), "-j", *only, *engine_arguments]
                run = run_bounded(command, deadline - time.monotonic())
                if run.exit_code == remedies.DEADLINE_PASSED and not engine_lives():
                    return replace(run, exit_code=remedies.CONNECTION_NOT_VALID)
                busy = run.exit_code == remedies.ALREADY_RUNNING
                timed_out = run.exit_code == remedies.DIAG_TIMEOUT
                may_repeat = busy or (timed_out and not timed_out_before)
                if not may_repeat or deadline - time.monotonic() <= pause_s:
                    return run
                timed_out_before = timed_out_before or timed_out
                time.sleep(pause_s)
    except StopRequested:
        return ProcessRun("", "the task was stopped", 128 + signal.SIGTERM)


def run_bounded(command: Sequence[str], timeout_s: float) -> ProcessRun:
    """Runs a command to its end, or kills its whole process group when `timeout_s` is over.

    Output beyond OUTPUT_BYTES_MAX is read and dropped, which leaves its JSON incomplete, hence unreadable.
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
        return ProcessRun("", f"{command[0]} cannot be executed: {error}", remedies.NOT_EXECUTABLE)
    assert process.stdout and process.stderr
    output = _BoundedReader(process.stdout, OUTPUT_BYTES_MAX)
    error_output = _BoundedReader(process.stderr, ERROR_BYTES_MAX)
    try:
        code = process.wait(timeout=max(timeout_s, 0.0))
        exit_code = code if code >= 0 else 128 - code
    except subprocess.TimeoutExpired:
        exit_code = remedies.DEADLINE_PASSED
    finally:
        _kill_group(process)
    return ProcessRun(output.text(), error_output.text(), exit_code)


class _BoundedReader:
    """Drains a pipe in a thread and keeps its first bytes: a talkative process neither blocks nor fills us."""

    def __init__(self, pipe: IO[bytes], bytes_max: int) -> None:
        self._pipe = pipe
        self._bytes_max = bytes_max
        self._kept = bytearray()
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        with self._pipe:
            while chunk := self._pipe.read1(65_536):  # type: ignore[attr-defined]
                self._kept += chunk[: self._bytes_max - len(self._kept)]

    def text(self) -> str:
        """What came, after the pipe closed; or so far, where a process of another group holds it open."""
        self._thread.join(PIPES_CLOSE_WITHIN_S)
        return bytes(self._kept).decode(errors="replace")


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Ends a process that still runs, with its children. One that sleeps in the driver may survive even this."""
    if process.poll() is not None:
        return  # its number may belong to somebody else
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=KILLED_WITHIN_S)


@contextlib.contextmanager
def _host_engine() -> Iterator[tuple[list[str], Callable[[], bool]]]:
    """The arguments that lead dcgmi to its host engine, which lives as long as the context, and whether it still does.

    An engine that does not come up is no verdict: dcgmi is left to look on the host, and says 235 if there is
    none.
    """
    program = shutil.which("nv-hostengine")
    if program is None:
        yield [], lambda: True
        return
    with tempfile.TemporaryDirectory(prefix="health-check-") as folder:
        address, pid_file = Path(folder, "engine.sock"), Path(folder, "engine.pid")
        command = [program, "--no-daemon", "--domain-socket", str(address), "--pid", str(pid_file)]
        with Path(folder, "engine.log").open("wb") as log:
            engine = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        try:
            if _answers(engine, address):
                yield ["--host", f"unix://{address}"], lambda: engine.poll() is None
            else:
                yield [], lambda: True
        finally:
            _kill_group(engine)


def _answers(engine: subprocess.Popen[bytes], address: Path) -> bool:
    deadline = time.monotonic() + ENGINE_READY_WITHIN_S
    while engine.poll() is None and time.monotonic() < deadline:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            if probe.connect_ex(str(address)) == 0:
                return True
        time.sleep(POLL_S)
    return False


@contextlib.contextmanager
def stop_raises() -> Iterator[None]:
    """Turns SIGTERM into StopRequested. The first process of a container has no default action for it."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise StopRequested

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
