"""Receives observations of training processes for a diagnosis, as datagrams on a socket.

The socket is in the folder of the rank files, and any process may write to it. So the agent trusts no line. A line
that is no object of plain values is dropped and counted. Excess observations are dropped, and no sender ever waits.
The server decides which observations it can read; the agent forwards them.

The kernel tells the pid of the sender in the agent's own namespace, which is that of the host for the daemon. A process
in a container knows only its own number, and NVML names processes by those of the host. So the agent adds the pid to
each observation of a process about itself.

A sender may pass the write end of a pipe. The agent closes it once the server has the observations, and the sender then
knows that they have arrived. Nothing is ever written to a descriptor of a sender.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_recovery_agent.files import socket_address
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.sensors.training_message import read

DATAGRAM_BYTES_MAX = 32_768
DATAGRAMS_AT_ONCE = 64
QUEUE_MAX, QUEUE_BYTES_MAX = 256, 65_536
"""Largest number and size of stored observations, while the API is unreachable or there are many."""
BATCH_MAX, BATCH_BYTES_MAX = 64, 16_384
"""Largest number and size of the observations in one report (docs/protocol.md)."""
AGE_BYTES = len(',"age_s":') + len("31536000.00")
"""Bytes that the age adds to an observation."""
LOST_MAX = 1_000_000
BUFFER_BYTES = 1_048_576
PIPES_MAX = 64
"""Largest number of senders that can wait at the same time. Any further sender is not kept waiting."""
CREDENTIALS = struct.Struct("3i")
"""The sender of a datagram as Linux tells it: pid, uid, gid. The pid is 0 outside of the receiver's namespace."""
DESCRIPTOR = struct.Struct("i")
ANCILLARY_BYTES = socket.CMSG_SPACE(CREDENTIALS.size) + socket.CMSG_SPACE(DESCRIPTOR.size)
"""Room for the sender and for a descriptor. The kernel closes the descriptors that find no room."""


@dataclass(frozen=True)
class QueuedObservation:
    """One observation: its local number, its time in seconds since the boot, its fields, and its size in bytes."""

    number: int
    made_s: float
    values: dict[str, Any]
    size: int

    def to_json(self, uptime_s: float) -> dict[str, Any]:
        """Return the observation as the report contains it, with its age."""
        return {**self.values, "age_s": round(max(uptime_s - self.made_s, 0.0), 2)}


class TrainingSocket:
    """Owns the socket at `path` (None for no socket), and the observations that the server has not acknowledged yet.

    `lost` is the number of observations dropped since the last acknowledged report, by the agent or by their senders.
    """

    def __init__(self, path: Path | None, log: AgentLog) -> None:
        self._path, self._log = path, log
        self._socket: socket.socket | None = None
        self._inode: tuple[int, int] | None = None
        self._waiting: list[QueuedObservation] = []
        self._number = self._last_urgent = 0
        self._pipes: list[tuple[int, int]] = []
        self.lost = 0
        self._urgent = False

    def poll(self, uptime_s: float) -> bool:
        """Read what has arrived.

        Return whether any of it is urgent. Never waits, and never raises for an error of the socket.
        """
        if self._path is None or not self._ensure_bound(self._path):
            return False
        assert self._socket is not None
        self._urgent = False
        for _ in range(DATAGRAMS_AT_ONCE):
            try:
                raw, ancillary, *_ = self._socket.recvmsg(
                    DATAGRAM_BYTES_MAX + 1, ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                break
            except OSError as error:
                self._log.once("diagnosis", f"{self._path} cannot be read: {error.strerror}")
                self._leave()
                break
            self._take(raw, uptime_s, _sender_of(ancillary))
            self._pipes += [(self._number, descriptor) for descriptor in _descriptors_in(ancillary)]
        self._bound()
        self._close_pipes()
        return self._urgent

    def batch(self) -> tuple[QueuedObservation, ...]:
        """Return the observations of the next report, the oldest first.

        They stay here until the server acknowledges them.
        """
        taken: list[QueuedObservation] = []
        room = BATCH_BYTES_MAX
        for observation in self._waiting[:BATCH_MAX]:
            room -= observation.size
            if room < 0:
                break
            taken.append(observation)
        return tuple(taken)

    @property
    def has_urgent(self) -> bool:
        """Whether urgent observations, or older ones, still wait: one report does not hold all of them."""
        return any(waiting.number <= self._last_urgent for waiting in self._waiting)

    def acknowledge(self, sent: Sequence[QueuedObservation], lost: int) -> None:
        """Remove what the server received, and subtract the losses that it received."""
        gone = {observation.number for observation in sent}
        self._waiting = [waiting for waiting in self._waiting if waiting.number not in gone]
        self.lost -= min(lost, self.lost)
        self._close_pipes()

    def reject(self, sent: Sequence[QueuedObservation]) -> None:
        """Drop the observations of a report that the server cannot read."""
        self.acknowledge(sent, 0)
        self.lost += len(sent)

    def close(self) -> None:
        """Remove the socket."""
        if self._path is not None and self._socket is not None:
            with suppress(OSError):
                self._path.unlink()
        self._leave()
        self._waiting.clear()
        self._close_pipes()

    # -- received observations -------------------------------------------------------------------------------------

    def _take(self, raw: bytes, uptime_s: float, pid: int | None) -> None:
        if len(raw) > DATAGRAM_BYTES_MAX:
            self._lose(1, "a datagram is too long")
            return
        for line in raw.split(b"\n"):
            if not line.strip():
                continue
            fields = read(line)
            if fields is None:
                self._lose(1, "a line is not a report")
            elif fields.get("type") == "lost":
                count = fields.get("count")
                self._lose(count if type(count) is int and 0 < count <= LOST_MAX else 1, "a process sent too many")
            else:
                self._enqueue(fields, uptime_s, pid)

    def _enqueue(self, fields: dict[str, Any], uptime_s: float, pid: int | None) -> None:
        fields.pop("pid", None)  # only the kernel says who a sender is
        if pid is not None and fields.get("elsewhere") is not True:
            fields["pid"] = pid
        urgent = fields.pop("urgent", False) is True
        self._urgent |= urgent
        age_s = fields.pop("age_s", 0.0)
        is_age = type(age_s) in (int, float) and age_s >= 0
        size = len(json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")) + AGE_BYTES
        self._number += 1
        self._last_urgent = self._number if urgent else self._last_urgent
        self._waiting.append(QueuedObservation(self._number, uptime_s - (age_s if is_age else 0.0), fields, size))

    def _bound(self) -> None:
        """Drop excess observations: the oldest of the most frequent type, because rare types say most."""
        left = sum(waiting.size for waiting in self._waiting)
        if len(self._waiting) <= QUEUE_MAX and left <= QUEUE_BYTES_MAX:
            return
        types = Counter(str(waiting.values.get("type")) for waiting in self._waiting)
        while len(self._waiting) > QUEUE_MAX or left > QUEUE_BYTES_MAX:
            most = max(types, key=lambda name: (types[name], name))
            place = next(n for n, waiting in enumerate(self._waiting) if str(waiting.values.get("type")) == most)
            left -= self._waiting.pop(place).size
            types[most] -= 1
            self._lose(1, "there are too many reports")

    def _close_pipes(self) -> None:
        """Close the pipe of each sender whose observations, and the older ones, wait no longer. Close excess pipes."""
        oldest = self._waiting[0].number if self._waiting else self._number + 1
        kept = [pipe for pipe in self._pipes if pipe[0] >= oldest][:PIPES_MAX]
        for pipe in self._pipes:
            if pipe not in kept:
                with suppress(OSError):
                    os.close(pipe[1])
        self._pipes = kept

    def _lose(self, count: int, why: str) -> None:
        self.lost = min(self.lost + count, LOST_MAX)
        self._log.once("diagnosis lost", f"reports of trainings are dropped: {why}")

    # -- the socket ------------------------------------------------------------------------------------------------

    def _ensure_bound(self, path: Path) -> bool:
        """Return whether the socket at the path is bound and unchanged. Binds it once the folder exists."""
        if self._socket is not None and _inode(path) != self._inode:
            self._leave()  # it was removed or replaced
        if self._socket is None and path.parent.is_dir():
            try:
                self._bind(path)
            except OSError as error:
                self._log.once(
                    "diagnosis", f"{path} cannot be created, so reports of trainings are not received: {error}"
                )
                self._leave()
        return self._socket is not None

    def _bind(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            if stat.S_ISDIR(path.lstat().st_mode):
                raise OSError("there is a folder in its place")
            path.unlink()  # left by an earlier agent
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        self._socket = made
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        before = os.umask(0o111)  # ignore the agent's umask: ranks are other users, and all of them may write
        try:
            with socket_address(path) as address:
                made.bind(address)
        finally:
            os.umask(before)
        self._inode = _inode(path)
        self._log.over("diagnosis", f"{path} is there again")

    def _leave(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._inode = None, None


def _sender_of(ancillary: Sequence[tuple[int, int, bytes]]) -> int | None:
    """Return the pid of a datagram's sender; None if the kernel cannot name it in this namespace."""
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and len(content) >= CREDENTIALS.size:
            pid: int = CREDENTIALS.unpack_from(content)[0]
            return pid or None
    return None


def _descriptors_in(ancillary: Sequence[tuple[int, int, bytes]]) -> list[int]:
    """Return the descriptors that came with a datagram."""
    size = DESCRIPTOR.size
    return [
        DESCRIPTOR.unpack_from(content, place)[0]
        for level, kind, content in ancillary
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
        for place in range(0, len(content) - size + 1, size)
    ]


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
