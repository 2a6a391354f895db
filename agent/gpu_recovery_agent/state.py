"""The folder that outlives the agent: one agent at a time, and what it must not forget within a boot.

A folder that cannot be written, or a disk that is full, is said once and costs only the memory: the heartbeat goes on,
and the server's 409 finds a second agent as well.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpu_recovery_agent.files import read_object, write_whole
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.rank.files import name, whole
from gpu_recovery_agent.sensors.kernel_log import Xid

EXECUTED_MAX = 64
UNREPORTED_MAX = 64
"""Errors of the kernel's log that are kept until they are told, the newest of them."""


class AlreadyRunning(RuntimeError):
    """Another agent holds the lock of this instance."""


class AgentState:
    """`sequence` is the last one used, `reported_s` the time of the newest XID that was told, by the kernel log's clock,
    `obeyed` the orders that were carried out and when, in seconds since the boot. `untold` are errors of the
    kernel's log that nobody has heard of: the log does not outlive the machine, and the next boot tells them."""

    def __init__(self, folder: Path, boot_id: str, journal: AgentLog) -> None:
        self._folder, self._boot_id, self._log = folder, boot_id, journal
        self._lock: int | None = None
        self.sequence = 0
        self.reported_s = -1.0
        self.executed: dict[str, float] = {}
        self.unreported: list[Xid] = []

    def open(self) -> None:
        """Takes the lock and reads what is kept. Raises AlreadyRunning."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self._log.once("lock", f"{self._folder} cannot be used, so nothing is kept there: {error.strerror}")
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise AlreadyRunning(f"another agent holds {self._folder / 'lock'}") from None
        self._lock = lock
        self._read()

    def close(self) -> None:
        """Lets go of the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def next_sequence(self) -> int:
        """A number that no report of this boot had, on the disk before it is used."""
        self.sequence += 1
        self.save()
        return self.sequence

    def save(self) -> None:
        """Keeps everything. A disk that takes nothing is said once."""
        while len(self.executed) > EXECUTED_MAX:
            del self.executed[next(iter(self.executed))]
        content = {
            "boot_id": self._boot_id,
            "sequence": self.sequence,
            "told_s": self.reported_s,
            "obeyed": self.executed,
            "untold": [asdict(one) for one in self.unreported[-UNREPORTED_MAX:]],
        }
        try:
            write_whole(self._folder / "state.json", content, 0o600)
        except OSError as error:
            said = error.strerror or error
            self._log.once("state", f"{self._folder / 'state.json'} cannot be written: {said}; the agent goes on")
        else:
            self._log.over("state", f"{self._folder / 'state.json'} can be written again")

    def _read(self) -> None:
        try:
            found: dict[str, Any] = read_object(self._folder / "state.json")
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            self._log.write(f"{self._folder / 'state.json'} cannot be read and is begun anew: {error}")
            return
        boot_id = found.get("boot_id")
        untold = found.get("untold")
        kept = [_unreported(one, boot_id) for one in (untold if isinstance(untold, list) else [])[-UNREPORTED_MAX:]]
        # Those of this boot are in the kernel's log still, and come from there.
        self.unreported = [one for one in kept if one is not None and one.boot_id != self._boot_id]
        if boot_id != self._boot_id:
            return  # of another boot: the rest of it counts from that one
        self.sequence = whole(found.get("sequence")) or 0
        told, obeyed = found.get("told_s"), found.get("obeyed")
        self.reported_s = float(told) if isinstance(told, int | float) and not isinstance(told, bool) else -1.0
        if isinstance(obeyed, dict):
            self.executed = {key: float(at) for key, at in obeyed.items() if isinstance(at, int | float)}


def _unreported(found: Any, boot_id: Any) -> Xid | None:
    """An error as it was kept, under the boot that it was logged in; None where it is none."""
    if not isinstance(found, dict):
        return None
    xid, count, bursts = whole(found.get("xid"), least=1), whole(found.get("count"), least=1), found.get("bursts")
    gpu, at_s, fatal, action = found.get("gpu"), found.get("at_s"), found.get("fatal"), found.get("action")
    boot = name(found.get("boot_id")) or name(boot_id)
    if xid is None or count is None or boot is None or not isinstance(gpu, str) or not isinstance(at_s, int | float):
        return None
    of_switch = fatal if isinstance(fatal, bool) else None
    return Xid(xid, gpu, count, float(at_s), whole(action), whole(bursts) or 0, boot, of_switch)
