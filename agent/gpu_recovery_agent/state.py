"""State that outlives the agent process: its lock, and what must survive a restart.

The lock prevents a second agent. Apart from unreported errors, the state belongs to one boot. If the folder is not
writable or the disk is full, the agent logs that once and loses only this state. The heartbeat continues, and the
server's status 409 detects a second agent as well.
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
"""Largest number of executed commands that are stored; the oldest are dropped first."""
REPORTED_FROM_DCGM_MAX = 64
"""Largest number of XIDs from DCGM of the ECS agent that are stored as reported."""
UNREPORTED_MAX = 64
"""Largest number of unreported errors of the kernel log that are stored, the newest of them."""


class AlreadyRunning(RuntimeError):
    """Another agent holds the lock of this instance."""


class AgentState:
    """The stored state of the agent.

    `sequence` is the last sequence number used. `reported_s` is the time of the newest reported XID on the clock of
    the kernel log. `executed` holds the commands that were executed, and when, in seconds since the boot. `unreported`
    holds errors of the kernel log that the server has not received: a reboot empties that log, so the agent of the
    next boot reports them. `reset` is the last reset of the GPUs as reports tell of it, empty without one.
    `reported_from_dcgm` holds the XIDs from DCGM of the ECS agent that the server received in this boot.
    """

    def __init__(self, folder: Path, boot_id: str, log: AgentLog) -> None:
        self._folder, self._boot_id, self._log = folder, boot_id, log
        self._lock: int | None = None
        self.sequence = 0
        self.reported_s = -1.0
        self.executed: dict[str, float] = {}
        self.unreported: list[Xid] = []
        self.reset: dict[str, Any] = {}
        self.reported_from_dcgm: list[int] = []

    def open(self) -> None:
        """Take the lock and read the stored state.

        If the folder cannot be used, the agent continues without lock and stored state.

        Raises:
            AlreadyRunning: another agent holds the lock.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self._log.once("lock", f"{self._folder} cannot be used, so no state is stored: {error.strerror}")
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise AlreadyRunning(f"another agent holds {self._folder / 'lock'}") from None
        self._lock = lock
        self._read()

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def next_sequence(self) -> int:
        """Return a sequence number that no report of this boot had. It is saved before it is used."""
        self.sequence += 1
        self.save()
        return self.sequence

    def save(self) -> None:
        """Save the state. A write error is logged once and not raised."""
        while len(self.executed) > EXECUTED_MAX:
            del self.executed[next(iter(self.executed))]
        content = {
            "boot_id": self._boot_id,
            "sequence": self.sequence,
            "told_s": self.reported_s,
            "obeyed": self.executed,
            **({"reset": self.reset} if self.reset else {}),
            **({"witnessed": self.reported_from_dcgm} if self.reported_from_dcgm else {}),
            "untold": [asdict(xid) for xid in self.unreported[-UNREPORTED_MAX:]],
        }
        try:
            write_whole(self._folder / "state.json", content, 0o600)
        except OSError as error:
            reason = error.strerror or error
            self._log.once("state", f"{self._folder / 'state.json'} cannot be written: {reason}; the agent continues")
        else:
            self._log.over("state", f"{self._folder / 'state.json'} can be written again")

    def _read(self) -> None:
        try:
            content, _ = read_object(self._folder / "state.json")
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            self._log.write(f"{self._folder / 'state.json'} cannot be read and is created again: {error}")
            return
        boot_id = content.get("boot_id")
        unreported = content.get("untold")
        stored = [
            _unreported(entry, boot_id)
            for entry in (unreported if isinstance(unreported, list) else [])[-UNREPORTED_MAX:]
        ]
        # The XIDs of this boot are still in the kernel log, and are read from there.
        self.unreported = [xid for xid in stored if xid is not None and xid.boot_id != self._boot_id]
        if boot_id != self._boot_id:
            return  # the other values belong to an earlier boot
        self.sequence = whole(content.get("sequence")) or 0
        reported, executed = content.get("told_s"), content.get("obeyed")
        self.reported_s = (
            float(reported) if isinstance(reported, int | float) and not isinstance(reported, bool) else -1.0
        )
        if isinstance(content.get("reset"), dict):
            self.reset = content["reset"]
        from_dcgm = content.get("witnessed")
        newest = from_dcgm[-REPORTED_FROM_DCGM_MAX:] if isinstance(from_dcgm, list) else []
        self.reported_from_dcgm = [code for entry in newest if (code := whole(entry, least=1)) is not None]
        if isinstance(executed, dict):
            self.executed = {key: float(at) for key, at in executed.items() if isinstance(at, int | float)}


def _unreported(entry: Any, boot_id: Any) -> Xid | None:
    """Return a stored error with the boot that it was logged under; None if the entry is invalid."""
    if not isinstance(entry, dict):
        return None
    xid, count, bursts = whole(entry.get("xid"), least=1), whole(entry.get("count"), least=1), entry.get("bursts")
    gpu, at_s, fatal, action = entry.get("gpu"), entry.get("at_s"), entry.get("fatal"), entry.get("action")
    boot = name(entry.get("boot_id")) or name(boot_id)
    if xid is None or count is None or boot is None or not isinstance(gpu, str) or not isinstance(at_s, int | float):
        return None
    of_switch = fatal if isinstance(fatal, bool) else None
    source = name(entry.get("source")) or ""
    return Xid(xid, gpu, count, float(at_s), whole(action), whole(bursts) or 0, boot, of_switch, source=source)
