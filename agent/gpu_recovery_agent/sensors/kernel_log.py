"""Reads XIDs and SXids from the kernel log: all since the boot, then new lines.

The parsers are those of the health check. Times count from the boot, as in the kernel log. The time of an XID
identifies it. The agent stores the time of the last reported XID, so that after a restart it does not report the
earlier XIDs again.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from gpu_recovery_agent import clock
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.parsers.kernel_log import RECORD_BYTES_MAX, KernelMessage, drain, open_log, parse
from gpu_recovery_agent.parsers.recovery_action import number_changed_to
from gpu_recovery_agent.parsers.xid import LoggedErrors, SxidEvent, XidEvent, find, named_cause

DAY_S = 86_400.0
REMEMBERED_MAX = 1_000
"""Largest number of times that are stored per error number and GPU."""
BURST_GAP_S = 180.0
"""Longest gap in seconds between errors of one number on one GPU that count as one occurrence. A crash writes a line
for each of its channels, and a broken link fills the log for hours. The server's rules on repetition count
occurrences.
"""
GPUS_MAX = 256
"""Largest number of GPUs; with eight error numbers each it bounds what is stored."""
OVERLAP = 5
"""Number of messages that are parsed again with the next messages: a lost GPU may be reported in several lines."""
RECOVERY_ACTION_CHANGED = 154
_BOOT = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Xid:
    """One XID on one GPU at its last occurrence.

    `at_s` is its time in seconds of the kernel log, `count` the number in the 24 hours before. `gpu` is `dddd:bb:dd`,
    or "" if the log hides it. `action` is NVML's number of a recovery action; only XID 154 has it. `bursts` is the
    number of occurrences in `count`, 0 if unknown. `boot_id` is the earlier boot it was logged under, "" for the
    current boot. `fatal` is set only for an error of an NVSwitch (SXid); it is None for an XID. `early` says that it
    was logged before this agent started. `source` is "" for the kernel log.
    """

    xid: int
    gpu: str
    count: int
    at_s: float
    action: int | None
    bursts: int = 0
    boot_id: str = ""
    fatal: bool | None = None
    early: bool = False
    source: str = ""

    @property
    def key(self) -> tuple[int, str, str, bool | None, str]:
        """Return what identifies the error: its number, GPU, boot, kind and source."""
        return self.xid, self.gpu, self.boot_id, self.fatal, self.source


@dataclass
class _XidHistory:
    """The times of the errors of one number on one GPU, and the last time of each occurrence."""

    times: deque[float]
    bursts: deque[float]

    def add(self, at_s: float) -> None:
        """Count one more error, and drop errors older than a day."""
        if self.bursts and at_s - self.bursts[-1] <= BURST_GAP_S:
            self.bursts[-1] = at_s
        else:
            self.bursts.append(at_s)
        self.times.append(at_s)
        for times in (self.times, self.bursts):
            while times[0] < at_s - DAY_S:
                times.popleft()


class KernelLogSensor:
    """Follows the kernel log. `unread` says why the log cannot be read; None if it can."""

    def __init__(self, path: Path | None, log: AgentLog) -> None:
        self._path, self._log = path, log
        self._started_s = clock.kernel_log_s()
        self._descriptor: int | None = None
        self._tail: list[KernelMessage] = []
        self._rest = b""
        self._newest_s = -1.0
        self._times: dict[tuple[int, str, bool | None], _XidHistory] = {}
        self.unread: str | None = None if path else "it is switched off"

    def poll(self) -> list[Xid]:
        """Return the XIDs added since the last poll, one entry for each."""
        raw = self._added()
        if not raw:
            return []
        whole, _, rest = (self._rest + raw).rpartition(b"\n")
        self._rest = rest[-RECORD_BYTES_MAX:]
        added = parse(whole.decode("utf-8", errors="replace"), _BOOT)
        before, messages = find(self._tail), [*self._tail, *added]
        events_found: LoggedErrors = find(messages)
        self._tail = messages[-OVERLAP:]
        events: list[XidEvent | SxidEvent] = [
            *events_found.xids[len(before.xids) :],
            *events_found.sxids[len(before.sxids) :],
        ]
        return [seen for event in sorted(events, key=_time) for seen in self._with_cause(event)]

    @property
    def logged(self) -> set[int]:
        """Return the numbers of the XIDs that the log has."""
        return {code for code, _, fatal in self._times if fatal is None}

    def close(self) -> None:
        """Close the log."""
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
            self._log.once("kernel log", f"{self.unread}; XIDs are not reported")
            return b""
        self.unread = None
        self._log.over("kernel log", f"{self._path} can be read")
        return raw

    def _with_cause(self, event: XidEvent | SxidEvent) -> Iterator[Xid]:
        """Yield the error, and before an XID 45 the cause that it names if that has no record on its GPU."""
        cause = named_cause(event) if isinstance(event, XidEvent) else None
        if isinstance(event, XidEvent) and cause and (cause, event.pci_bus_id or "", None) not in self._times:
            yield from filter(None, [self._to_xid(replace(event, code=cause))])
        yield from filter(None, [self._to_xid(event)])

    def _to_xid(self, event: XidEvent | SxidEvent) -> Xid | None:
        if event.code < 1:
            return None  # not a valid error number
        fatal = event.is_fatal if isinstance(event, SxidEvent) else None
        gpu = event.pci_bus_id or "" if isinstance(event, XidEvent) else ""
        at_s = (event.at - _BOOT).total_seconds() if event.at else clock.kernel_log_s()
        key = (event.code, gpu, fatal)
        if at_s <= self._newest_s and event.at and key in self._times and at_s in self._times[key].times:
            return None  # the log was opened again and starts at the boot
        self._newest_s = max(self._newest_s, at_s)
        if key not in self._times and len(self._times) >= GPUS_MAX * 8:
            self._times.clear()  # no instance has so many: the log is not the kernel's
        past = self._times.setdefault(key, _XidHistory(deque(maxlen=REMEMBERED_MAX), deque(maxlen=REMEMBERED_MAX)))
        past.add(at_s)
        has_action = fatal is None and event.code == RECOVERY_ACTION_CHANGED
        action = number_changed_to(event.text) if has_action else None
        early = event.at is not None and at_s < self._started_s
        return Xid(event.code, gpu, len(past.times), at_s, action, len(past.bursts), fatal=fatal, early=early)


def _time(event: XidEvent | SxidEvent) -> datetime:
    """Return the sort key of an event. An event without a time is the newest, and is sorted last."""
    return event.at or datetime.max.replace(tzinfo=UTC)
