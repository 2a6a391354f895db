"""The servers of a sandbox as operating-system processes: started clean, and ended without a trace.

Two facts identify a process: its pid and the moment it started. A pid is used again sooner or later, so nothing is
ever signalled by its number alone. All of them, tasks and Lambda workers too, have a HOME inside the sandbox's own
folder; by it we find what a server that was killed left behind. That search needs /proc, so it is for Linux only.
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
READY_WITHIN_S = 30.0
LOG_TAIL_LINES = 25
KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "SYSTEMROOT")


class SandboxError(RuntimeError):
    """The sandbox could not do what was asked; the message says what and shows the end of the log concerned."""


@dataclass(frozen=True)
class ServerProcess:
    """A process we started: `pid`, `started` (the operating system's own words for when), and where it logs."""

    name: str
    pid: int
    started: str
    log: str

    @property
    def is_running(self) -> bool:
        return started_at(self.pid) == self.started


def free_port() -> int:
    """A TCP port of the loopback interface that nothing listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def clean_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """What a child may inherit: how to find programs and speak text, never credentials, profiles or proxies."""
    return {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ} | dict(extra)


def own_folders(run: Path) -> dict[str, str]:
    """The variables that keep a child's files in `run`, and by which `sweep` knows it."""
    return {"HOME": str(run / "home"), "TMPDIR": str(run / "tmp")}


def started_at(pid: int) -> str | None:
    """When the process started, as the operating system tells it; None if there is none (or only its zombie)."""
    _reap(pid)
    if sys.platform == "linux":
        try:
            # The second field, the program's name, may hold spaces and brackets; the others may not.
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
    """Start a server in a session of its own, so that Ctrl-C at the terminal reaches only whoever started it."""
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
    child.returncode = 0  # it outlives this object: silences the warning about a child still running
    moment = started_at(child.pid)
    if moment is None:
        raise SandboxError(f"{name} ended as soon as it started\n{log_tail(log)}")
    return ServerProcess(name, child.pid, moment, str(log))


def wait_until(ready: Callable[[], bool], server: ServerProcess, within_s: float = READY_WITHIN_S) -> None:
    """Wait for `ready()`; raises SandboxError with the end of the log if the server dies or stays silent."""
    deadline = time.monotonic() + within_s
    while not ready():
        if not server.is_running:
            raise SandboxError(f"{server.name} ended while starting\n{log_tail(Path(server.log))}")
        if time.monotonic() > deadline:
            raise SandboxError(f"{server.name} is not ready after {within_s:g} s\n{log_tail(Path(server.log))}")
        time.sleep(POLL_S)


def stop(servers: Iterable[ServerProcess], grace_s: float = GRACE_S) -> None:
    """SIGTERM, then SIGKILL to the whole session of what is still there; returns when all of them have ended."""
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
    """The processes whose HOME lies in `folder` (Linux; elsewhere none are found)."""
    needle = f"HOME={folder.resolve()}/".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended meanwhile, or somebody else's
            if any(variable.startswith(needle) for variable in (entry / "environ").read_bytes().split(b"\0")):
                found.append(int(entry.name))
    return found


def sweep(folder: Path) -> None:
    """End every process whose HOME lies in `folder`, until none is found: a dying parent may still fork."""
    while pids := [pid for pid in processes_in(folder) if started_at(pid)]:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_S)


@contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str], cwd: Path, log: Path
) -> Iterator[Callable[[], None]]:
    """Run a command beside the block, its output to `log`; what it started ends with the block, however that ends.

    Yields a function that waits for the command and raises SandboxError with the end of the log if it failed.
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
    """The last lines of a log, for a message about what went wrong."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]) if log.exists() else ""


def write_private(path: Path, value: object) -> None:
    """Write JSON that only its owner can read, in one step: a reader sees the old file or the new one."""
    draft = path.with_suffix(".new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as out:
        json.dump(value, out, indent=1)
    draft.replace(path)


def remember(path: Path, servers: Sequence[ServerProcess]) -> None:
    """Record what runs, so that another process can end it."""
    write_private(path, [asdict(server) for server in servers])


def recall(path: Path) -> list[ServerProcess]:
    """The servers recorded in `path`; none when there is no such file."""
    return [ServerProcess(**server) for server in json.loads(path.read_text())] if path.exists() else []
