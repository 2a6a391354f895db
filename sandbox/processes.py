"""Processes of a sandbox: start in a clean environment, identify, stop, and find the processes that remain.

Two facts identify a process: its pid and its start time. The system reuses pids, so no process is signalled by its pid
alone. Every process, tasks and Lambda workers included, has a HOME inside the sandbox's folder. By this HOME the
sandbox finds the processes that a killed server has left. The search needs /proc, so it works on Linux only.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

POLL_S = 0.02
GRACE_S = 5.0
READY_WITHIN_S = 300.0
"""Limit of each wait for a server, in seconds: minutes more than the wait takes on two cores beside busy processes."""
LOG_TAIL_LINES = 25
KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "SYSTEMROOT")


class SandboxError(RuntimeError):
    """An operation of the sandbox failed. The message names the operation and shows the end of its log."""


@dataclass(frozen=True)
class ServerProcess:
    """A server process of the sandbox: `pid`, `started` (start time as the system prints it), and its log file."""

    name: str
    pid: int
    started: str
    log: str

    @property
    def is_running(self) -> bool:
        """Whether the process still runs. False if another process has the pid now."""
        return started_at(self.pid) == self.started


def free_port() -> int:
    """Return a TCP port of the loopback interface that is free at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def clean_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child: `extra` and `KEPT_VARIABLES`, without credentials, profiles and proxies."""
    return {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ} | dict(extra)


def own_folders(run: Path) -> dict[str, str]:
    """Return the variables that put a child's files into `run`, and by which `sweep` finds the child."""
    return {"HOME": str(run / "home"), "TMPDIR": str(run / "tmp")}


def started_at(pid: int) -> str | None:
    """Return the start time of a process as the system prints it; None if the process is gone or a zombie."""
    _reap(pid)
    if sys.platform == "linux":
        try:
            # The second field, the program's name, may hold spaces and brackets. No other field may.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if fields[0] == "Z" else fields[19]
    shown = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()
    return None if not shown or shown.startswith("Z") else shown.partition(" ")[2].strip()


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def start(name: str, command: Sequence[str], environment: Mapping[str, str], cwd: Path, log: Path) -> ServerProcess:
    """Start a server in its own session, so that Ctrl-C at the terminal does not reach the server.

    Raises:
        SandboxError: The server ended at once.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        child = subprocess.Popen(
            command,
            env=dict(environment),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    child.returncode = 0  # the server outlives this object: this prevents the warning about a running child
    started = started_at(child.pid)
    if started is None:
        raise SandboxError(f"{name} ended as soon as it started\n{log_tail(log)}")
    return ServerProcess(name, child.pid, started, str(log))


def wait_until(ready: Callable[[], bool], server: ServerProcess, within_s: float = READY_WITHIN_S) -> None:
    """Wait until `ready()` is true.

    Raises:
        SandboxError: The server ended, or was not ready within `within_s` seconds; with the end of its log.
    """
    deadline = time.monotonic() + within_s
    while not ready():
        if not server.is_running:
            raise SandboxError(f"{server.name} ended while starting\n{log_tail(Path(server.log))}")
        if time.monotonic() > deadline:
            raise SandboxError(f"{server.name} is not ready after {within_s:g} s\n{log_tail(Path(server.log))}")
        time.sleep(POLL_S)


def stop(servers: Iterable[ServerProcess], grace_s: float = GRACE_S) -> None:
    """Send SIGTERM to each server, then SIGKILL to its process group. Returns when all servers have ended.

    `grace_s` is the time, in seconds, that all servers together have between SIGTERM and SIGKILL.
    """
    running = [server for server in servers if server.is_running]
    for server in running:
        os.kill(server.pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    for server in running:
        while server.is_running and time.monotonic() < deadline:
            time.sleep(POLL_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)  # also ends children that outlived the server
        while server.is_running:
            time.sleep(POLL_S)


def processes_in(folder: Path) -> list[int]:
    """Return the pids of the processes with a HOME in `folder`. Empty on systems other than Linux."""
    prefix = f"HOME={folder.resolve()}/".encode()
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process ended meanwhile, or belongs to another user
            if any(variable.startswith(prefix) for variable in (entry / "environ").read_bytes().split(b"\0")):
                pids.append(int(entry.name))
    return pids


def sweep(folder: Path) -> None:
    """Kill every process with a HOME in `folder`, and repeat until none is left: a dying parent may still fork."""
    while pids := [pid for pid in processes_in(folder) if started_at(pid)]:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_S)


@contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str], cwd: Path, log: Path
) -> Iterator[Callable[[], None]]:
    """Run a command in parallel to the block, with its output in `log`. The end of the block kills its process group.

    Yields a function that waits for the command. It raises SandboxError with the end of the log if the command failed.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        child = subprocess.Popen(
            command,
            env=dict(environment),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )

    def wait() -> None:
        if code := child.wait():
            raise SandboxError(f"{' '.join(command[:2])} ended with {code}\n{log_tail(log)}")

    try:
        yield wait
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def log_tail(log: Path) -> str:
    """Return the last `LOG_TAIL_LINES` lines of a log, for an error message."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]) if log.exists() else ""


def write_private(path: Path, value: object) -> None:
    """Write a JSON file that only its owner can read, in one step: a reader sees the whole old or new file."""
    draft = path.with_suffix(".new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as out:
        json.dump(value, out, indent=1)
    draft.replace(path)


def remember(path: Path, servers: Sequence[ServerProcess]) -> None:
    """Save the running servers in `path`, so that another process can stop them."""
    write_private(path, [asdict(server) for server in servers])


def recall(path: Path) -> list[ServerProcess]:
    """Return the servers saved in `path`; an empty list if there is no such file."""
    return [ServerProcess(**server) for server in json.loads(path.read_text())] if path.exists() else []
