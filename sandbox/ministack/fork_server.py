"""Fork server for the processes that run Python functions: each is a copy of a process that has imported boto3.

A function's process that starts as a new interpreter spends more than half of its processor time on the import of
boto3 and on the parsing of botocore's data. The copies have both already. Each has the environment, the working
directory, the pipes and the script that MiniStack would have given to a new interpreter.

The server imports no package of this repository. Two things differ from new interpreters: all processes have one hash
seed, and they have the boto3, and the packages that it imports, of this environment.

`ForkServer` is for MiniStack's process. This file, run as a script, is the server. A request is one packet with a JSON
object and four file descriptors: the three standard streams, and a socket on which the server reports the pid, and the
exit code once the process has ended. The server ends when MiniStack does. Linux only.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

REQUEST_BYTES_MAX = 200_000
LOST = -int(signal.SIGKILL)
"""Exit code of a process whose server has ended before it."""
SERVICES = ("dynamodb", "ecs", "ec2", "s3", "sqs", "events", "sns")
"""Services whose description the server parses: most functions use several of them."""
AT_START = ("PYTHON", "LANG", "LC_", "LD_")
"""Beginnings of the variables that a process reads when it starts. A fork cannot obey another value."""


# -- in MiniStack's process --------------------------------------------------------------------------------------------


class ForkedProcess:
    """A process that the server has forked, with the part of the interface of `subprocess.Popen` that MiniStack uses.

    Attributes:
        stdin: pipe to the process.
        stdout: pipe from the process.
        stderr: pipe from the process.
        pid: its id.
        returncode: as in `subprocess.Popen`.
    """

    def __init__(self, server: socket.socket, packet: bytes) -> None:
        theirs, ours = [], []
        for reads in (True, False, False):
            read, write = os.pipe()
            theirs.append(read if reads else write)
            ours.append(write if reads else read)
        self._report, report = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._lines = self._report.makefile("r", encoding="ascii")
        self._lock = threading.Lock()
        self.stdin, self.stdout, self.stderr = map(os.fdopen, ours, ("w", "r", "r"), (1, 1, 1))
        self.returncode: int | None = None
        try:
            socket.send_fds(server, [packet], [*theirs, report.fileno()])
        except OSError:
            self._close()
            raise
        finally:
            report.close()
            for descriptor in theirs:
                os.close(descriptor)
        self.pid = int(self._lines.readline() or 0)
        if not self.pid:
            self._close()
            raise OSError("the fork server has forked no process")

    def _close(self) -> None:
        for each in (self.stdin, self.stdout, self.stderr, self._lines, self._report):
            each.close()

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once the process has ended.

        Raises:
            subprocess.TimeoutExpired: It runs on after `timeout` seconds.
        """
        ended = select.poll()
        ended.register(self._report, select.POLLIN)
        if self.returncode is None and not ended.poll(None if timeout is None else timeout * 1_000):
            raise subprocess.TimeoutExpired("a function's process", timeout or 0)
        with self._lock:
            if self.returncode is None:
                line = self._lines.readline()
                self.returncode = int(line) if line else LOST
            return self.returncode

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class ForkServer:
    """The server. It is started with the first process at the latest, and again if it has ended.

    Attributes:
        process: the process of the server; None before its start.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> socket.socket:
        """Start the server, unless it runs, and return the socket for requests."""
        with self._lock:
            if self._socket and self.process and self.process.poll() is not None:
                self.close()
            if self._socket is None:
                self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                with theirs:
                    command = [sys.executable, __file__, str(theirs.fileno())]
                    self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
            return self._socket

    def close(self) -> None:
        """End the server. Its processes go on."""
        if self._socket and self.process:
            self._socket.close()
            self.process.wait()
            self._socket = self.process = None

    def popen(self, command: Sequence[str], **how: Any) -> ForkedProcess | subprocess.Popen[str]:
        """Start a process: `subprocess.Popen(command, **how)`, forked if it is a Python script with piped streams.

        Args:
            command: the program and its arguments.
            how: further arguments of `subprocess.Popen`.
        """
        environment, folder = how.get("env"), how.get("cwd")
        piped = [how.get(name) for name in ("stdin", "stdout", "stderr")]
        packet = json.dumps({"script": command[-1], "cwd": str(folder), "environment": environment}).encode()
        is_forkable = (
            sys.platform == "linux"
            and environment is not None
            and folder is not None
            and len(packet) <= REQUEST_BYTES_MAX
            and piped == [subprocess.PIPE] * 3
            and command[0] == sys.executable
            and len(command) == 2  # the interpreter and a script
            and _at_start(environment) == _at_start(os.environ)
        )
        if not is_forkable:
            return subprocess.Popen(command, **how)
        return ForkedProcess(self.start(), packet)


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(AT_START)}


# -- in the server -----------------------------------------------------------------------------------------------------


def preload() -> None:
    """Import boto3, and keep the parsed data of botocore for the clients of the forked processes.

    The session that reads the data is given up: it would remember the credentials and the region of this process.
    """
    import boto3.session  # noqa: PLC0415  # only the server needs it
    import botocore.loaders  # noqa: PLC0415

    plain, kept = botocore.loaders.JSONFileLoader.load_file, {}

    def load_file(self: Any, file_path: str) -> Any:
        if file_path not in kept:
            kept[file_path] = plain(self, file_path)
        return kept[file_path]

    botocore.loaders.JSONFileLoader.load_file = load_file  # type: ignore[method-assign]
    session = boto3.session.Session("none", "none", region_name="us-east-1")
    for service in SERVICES:
        session.client(service)  # type: ignore[call-overload]


class Server:
    """Forks processes as they are asked for, and reports their ends."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._reports: dict[int, socket.socket] = {}
        self._woken, self._wake = socket.socketpair()
        self._wake.setblocking(False)  # as set_wakeup_fd demands
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake.fileno())

    def next_child(self) -> dict[str, Any]:
        """Serve. Returns in each forked process, with what it was asked to be. The server itself exits."""
        while True:
            ready, _, _ = select.select([self._requests, self._woken], [], [])
            if self._woken in ready:
                self._woken.recv(4096)
                self._report_ends()
            if self._requests in ready and (request := self._fork()) is not None:
                return request

    def _report_ends(self) -> None:
        while self._reports:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            with self._reports.pop(pid) as report, contextlib.suppress(OSError):
                report.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())

    def _fork(self) -> dict[str, Any] | None:
        packet, descriptors, _, _ = socket.recv_fds(self._requests, REQUEST_BYTES_MAX, 4)
        if not packet:
            os._exit(0)
        try:
            pid = os.fork()
        except OSError:  # too many processes: the request gets no pid, and the server goes on
            for descriptor in descriptors:
                os.close(descriptor)
            return None
        if not pid:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number, descriptor in enumerate(descriptors[:3]):
                os.dup2(descriptor, number)
            for descriptor in descriptors:
                os.close(descriptor)
            for each in (self._requests, self._woken, self._wake, *self._reports.values()):
                each.close()
            return dict(json.loads(packet))
        for descriptor in descriptors[:3]:
            os.close(descriptor)
        self._reports[pid] = socket.socket(fileno=descriptors[3])
        with contextlib.suppress(OSError):  # nobody waits for it any more
            self._reports[pid].sendall(f"{pid}\n".encode())
        return None


def become(request: Mapping[str, Any]) -> None:
    """Run the script of a request as a new interpreter would."""
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["cwd"])
    sys.argv[:] = [request["script"]]
    sys.path[0] = str(Path(request["script"]).parent)
    runpy.run_path(request["script"], run_name="__main__")


def main() -> None:
    """Serve, and become each process that is asked for."""
    preload()
    gc.collect()
    gc.freeze()
    server = Server(socket.socket(fileno=int(sys.argv[1])))
    become(server.next_child())


if __name__ == "__main__":
    main()
