"""What trainings on this instance tell for a diagnosis: datagrams on a socket in the folder of the ranks.

Everybody may write to it, so nothing of it is believed: what is no object of plain values is dropped and counted, what
is too much goes, and nobody who sends is ever waited for. The server says what it can read; here it is only passed on.
"""

from __future__ import annotations

import json
import os
import socket
import stat
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
KEPT_MAX, KEPT_BYTES_MAX = 256, 65_536
"""What waits here, while the API is away or much is told."""
BATCH_MAX, BATCH_BYTES_MAX = 64, 16_384
"""What one report takes along (docs/protocol.md)."""
AGE_BYTES = len(',"age_s":') + len("31536000.00")
LOST_MAX = 1_000_000
BUFFER_BYTES = 1_048_576


@dataclass(frozen=True)
class QueuedObservation:
    """One report: its number here, when it was observed by the clock of the boot, what it says, and its bytes."""

    number: int
    made_s: float
    values: dict[str, Any]
    size: int

    def to_json(self, uptime_s: float) -> dict[str, Any]:
        """As it travels."""
        return {**self.values, "age_s": round(max(uptime_s - self.made_s, 0.0), 2)}


class TrainingSocket:
    """Owns the socket at `path`, None for none, and what came through it and is not told yet.

    lost: how many reports were dropped, here or by who should have sent them, since the last that were heard.
    """

    def __init__(self, path: Path | None, journal: AgentLog) -> None:
        self._path, self._log = path, journal
        self._socket: socket.socket | None = None
        self._inode: tuple[int, int] | None = None
        self._waiting: list[QueuedObservation] = []
        self._number = 0
        self.lost = 0
        self._urgent = False

    def poll(self, uptime_s: float) -> bool:
        """Takes what has come; whether any of it is urgent. Never waits, nor raises for what is done to the socket."""
        if self._path is None or not self._is_there(self._path):
            return False
        assert self._socket is not None
        self._urgent = False
        for _ in range(DATAGRAMS_AT_ONCE):
            try:
                raw = self._socket.recv(DATAGRAM_BYTES_MAX + 1)
            except BlockingIOError:
                break
            except OSError as error:
                self._log.once("diagnosis", f"{self._path} cannot be read: {error.strerror}")
                self._leave()
                break
            self._take(raw, uptime_s)
        self._bound()
        return self._urgent

    def batch(self) -> tuple[QueuedObservation, ...]:
        """What the next report takes along, the oldest first; it waits here until it was heard."""
        found: list[QueuedObservation] = []
        room = BATCH_BYTES_MAX
        for one in self._waiting[:BATCH_MAX]:
            room -= one.size
            if room < 0:
                break
            found.append(one)
        return tuple(found)

    def acknowledge(self, told: Sequence[QueuedObservation], lost: int) -> None:
        """Forgets what was told, and how many losses were."""
        gone = {one.number for one in told}
        self._waiting = [one for one in self._waiting if one.number not in gone]
        self.lost -= min(lost, self.lost)

    def reject(self, told: Sequence[QueuedObservation]) -> None:
        """After a report that the server cannot read: what it took along is not sent again."""
        self.acknowledge(told, 0)
        self.lost += len(told)

    def close(self) -> None:
        """Removes the socket."""
        if self._path is not None and self._socket is not None:
            with suppress(OSError):
                self._path.unlink()
        self._leave()

    # -- what has come ---------------------------------------------------------------------------------------------

    def _take(self, raw: bytes, uptime_s: float) -> None:
        if len(raw) > DATAGRAM_BYTES_MAX:
            self._lose(1, "a datagram is too long")
            return
        for line in raw.split(b"\n"):
            if not line.strip():
                continue
            found = read(line)
            if found is None:
                self._lose(1, "a line is no report")
            elif found.get("type") == "lost":
                count = found.get("count")
                self._lose(count if type(count) is int and 0 < count <= LOST_MAX else 1, "a process had too many")
            else:
                self._keep(found, uptime_s)

    def _keep(self, found: dict[str, Any], uptime_s: float) -> None:
        self._urgent |= found.pop("urgent", False) is True
        age_s = found.pop("age_s", 0.0)
        is_age = type(age_s) in (int, float) and age_s >= 0
        size = len(json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")) + AGE_BYTES
        self._number += 1
        self._waiting.append(QueuedObservation(self._number, uptime_s - (age_s if is_age else 0.0), found, size))

    def _bound(self) -> None:
        """Of too much, the oldest of the type that there is most of: the rare ones say most."""
        left = sum(one.size for one in self._waiting)
        if len(self._waiting) <= KEPT_MAX and left <= KEPT_BYTES_MAX:
            return
        types = Counter(str(one.values.get("type")) for one in self._waiting)
        while len(self._waiting) > KEPT_MAX or left > KEPT_BYTES_MAX:
            most = max(types, key=lambda name: (types[name], name))
            place = next(n for n, one in enumerate(self._waiting) if str(one.values.get("type")) == most)
            left -= self._waiting.pop(place).size
            types[most] -= 1
            self._lose(1, "too much is told")

    def _lose(self, count: int, why: str) -> None:
        self.lost = min(self.lost + count, LOST_MAX)
        self._log.once("diagnosis lost", f"reports of trainings are dropped: {why}")

    # -- the socket ------------------------------------------------------------------------------------------------

    def _is_there(self, path: Path) -> bool:
        """Whether the socket is bound, and is the one that lies at the path; binds it, once there is a folder."""
        if self._socket is not None and _inode(path) != self._inode:
            self._leave()  # somebody has removed it, or put another in its place
        if self._socket is None and path.parent.is_dir():
            try:
                self._bind(path)
            except OSError as error:
                self._log.once("diagnosis", f"{path} cannot be made, so no training is heard: {error}")
                self._leave()
        return self._socket is not None

    def _bind(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            if stat.S_ISDIR(path.lstat().st_mode):
                raise OSError("there is a folder in its place")
            path.unlink()  # of an agent before this one
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        self._socket = made
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        before = os.umask(0o111)  # whatever the agent's own: ranks are other users, and all of them may write
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


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
