"""XIDs and SXids out of the kernel's log, read by the health check's parsers: all since the boot, then what is added.

The log counts from the boot, and so does everything here. An XID is known again by its time: that is what is kept of
it when it has been told, so that an agent that starts anew does not tell all of them again.
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gpu_recovery_agent import clock
from gpu_recovery_agent.log import AgentLog
from health_check.kernel_log import RECORD_BYTES_MAX, Message, drain, open_log, parse
from health_check.recovery_action import number_changed_to
from health_check.xid import Events, SxidEvent, XidEvent, find

DAY_S = 86_400.0
REMEMBERED_MAX = 1_000
BURST_GAP_S = 180.0
"""Errors of one number on one GPU that are no further apart are one occurrence: one crash writes a line for each of its
channels, and a broken link floods the log for hours. The server's rules of repetition count occurrences."""
GPUS_MAX = 256
OVERLAP = 5
"""Messages that are looked at again with the next ones: a loss may be told in several."""
RECOVERY_ACTION_CHANGED = 154
_BOOT = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Xid:
    """One XID on one GPU, as it was last: `at_s` in seconds of the kernel's log, `count` in 24 hours up to then.

    `gpu` is `dddd:bb:dd`, or "" where the log hides it; `action` is NVML's number, of an XID 154 alone. `bursts` is how
    many occurrences `count` is, 0 where that is not known. `boot_id` is the earlier boot that it was logged under, ""
    for the present one. An error of an NVSwitch (SXid) says whether it is `fatal`; of an XID that is None.
    """

    xid: int
    gpu: str
    count: int
    at_s: float
    action: int | None
    bursts: int = 0
    boot_id: str = ""
    fatal: bool | None = None

    @property
    def key(self) -> tuple[int, str, str, bool | None]:
        return self.xid, self.gpu, self.boot_id, self.fatal


@dataclass
class _XidHistory:
    """What was seen of one number on one GPU: the times of its errors, and of the last of each occurrence."""

    times: deque[float]
    bursts: deque[float]

    def add(self, at_s: float) -> None:
        """Counts one more, and forgets what is older than a day."""
        if self.bursts and at_s - self.bursts[-1] <= BURST_GAP_S:
            self.bursts[-1] = at_s
        else:
            self.bursts.append(at_s)
        self.times.append(at_s)
        for kept in (self.times, self.bursts):
            while kept[0] < at_s - DAY_S:
                kept.popleft()


class KernelLogSensor:
    """Follows the log. `unread` says why there is nothing to follow, None when there is."""

    def __init__(self, path: Path | None, journal: AgentLog) -> None:
        self._path, self._log = path, journal
        self._descriptor: int | None = None
        self._tail: list[Message] = []
        self._rest = b""
        self._newest_s = -1.0
        self._times: dict[tuple[int, str, bool | None], _XidHistory] = {}
        self.unread: str | None = None if path else "it is switched off"

    def poll(self) -> list[Xid]:
        """The XIDs that were added since the last look, one entry for each."""
        raw = self._added()
        if not raw:
            return []
        whole, _, rest = (self._rest + raw).rpartition(b"\n")
        self._rest = rest[-RECORD_BYTES_MAX:]
        added = parse(whole.decode("utf-8", errors="replace"), _BOOT)
        before, messages = find(self._tail), [*self._tail, *added]
        found: Events = find(messages)
        self._tail = messages[-OVERLAP:]
        events: list[XidEvent | SxidEvent] = [*found.xids[len(before.xids) :], *found.sxids[len(before.sxids) :]]
        return [seen for event in sorted(events, key=_time) if (seen := self._seen(event))]

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _added(self) -> bytes:
        if self._path is None:
            return b""
        try:
            if self._descriptor is None:
                self._descriptor = open_log(self._path)
                self._tail, self._rest = [], b""
            raw = drain(self._descriptor)
        except OSError as error:
            self.close()
            self.unread = f"{self._path} cannot be read: {error.strerror or error}"
            self._log.once("kernel log", f"{self.unread}; XIDs go unseen")
            return b""
        self.unread = None
        self._log.over("kernel log", f"{self._path} can be read")
        return raw

    def _seen(self, event: XidEvent | SxidEvent) -> Xid | None:
        if event.code < 1:
            return None  # no error has this number
        fatal = event.is_fatal if isinstance(event, SxidEvent) else None
        gpu = event.pci_bus_id or "" if isinstance(event, XidEvent) else ""
        at_s = (event.at - _BOOT).total_seconds() if event.at else clock.kernel_log_s()
        key = (event.code, gpu, fatal)
        if at_s <= self._newest_s and event.at and key in self._times and at_s in self._times[key].times:
            return None  # the log was opened again, and begins where it always began
        self._newest_s = max(self._newest_s, at_s)
        if key not in self._times and len(self._times) >= GPUS_MAX * 8:
            self._times.clear()  # nobody has so many: a log that somebody else writes
        past = self._times.setdefault(key, _XidHistory(deque(maxlen=REMEMBERED_MAX), deque(maxlen=REMEMBERED_MAX)))
        past.add(at_s)
        told = fatal is None and event.code == RECOVERY_ACTION_CHANGED
        action = number_changed_to(event.text) if told else None
        return Xid(event.code, gpu, len(past.times), at_s, action, len(past.bursts), fatal=fatal)


def _time(event: XidEvent | SxidEvent) -> datetime:
    """What orders events of both kinds; one without a time comes after those that have one, being the newest."""
    return event.at or datetime.max.replace(tzinfo=UTC)
