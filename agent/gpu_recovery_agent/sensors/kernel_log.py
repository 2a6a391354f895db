"""XIDs out of the kernel's log: everything since the boot, then whatever is added, read by the health check's parsers.

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
from gpu_recovery_agent.journal import Journal
from health_check.kernel_log import RECORD_BYTES_MAX, Message, drain, open_log, parse
from health_check.recovery_action import number_changed_to
from health_check.xid import XidEvent, find

DAY_S = 86_400.0
REMEMBERED_MAX = 1_000
GPUS_MAX = 256
OVERLAP = 5
"""Messages that are looked at again with the next ones: a loss may be told in several."""
RECOVERY_ACTION_CHANGED = 154
_BOOT = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Xid:
    """One XID on one GPU, as it was last: `at_s` in seconds of the kernel's log, `count` in 24 hours up to then.

    `gpu` is `dddd:bb:dd`, or "" where the log hides it; `action` is NVML's number, of an XID 154 alone.
    """

    xid: int
    gpu: str
    count: int
    at_s: float
    action: int | None

    @property
    def key(self) -> tuple[int, str]:
        return self.xid, self.gpu


class KernelLogSensor:
    """Follows the log. `unread` says why there is nothing to follow, None when there is."""

    def __init__(self, path: Path | None, journal: Journal) -> None:
        self._path, self._journal = path, journal
        self._descriptor: int | None = None
        self._tail: list[Message] = []
        self._rest = b""
        self._newest_s = -1.0
        self._times: dict[tuple[int, str], deque[float]] = {}
        self.unread: str | None = None if path else "it is switched off"

    def look(self) -> list[Xid]:
        """The XIDs that were added since the last look, one entry for each."""
        raw = self._added()
        if not raw:
            return []
        whole, _, rest = (self._rest + raw).rpartition(b"\n")
        self._rest = rest[-RECORD_BYTES_MAX:]
        added = parse(whole.decode("utf-8", errors="replace"), _BOOT)
        before = len(find(self._tail).xids)
        messages = [*self._tail, *added]
        self._tail = messages[-OVERLAP:]
        return [seen for event in find(messages).xids[before:] if (seen := self._seen(event))]

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
            self._journal.once("kernel log", f"{self.unread}; XIDs go unseen")
            return b""
        self.unread = None
        self._journal.over("kernel log", f"{self._path} can be read")
        return raw

    def _seen(self, event: XidEvent) -> Xid | None:
        if event.code < 1:
            return None  # no error has this number
        at_s = (event.at - _BOOT).total_seconds() if event.at else clock.kernel_log_s()
        if at_s <= self._newest_s and event.at and self._is_known(event, at_s):
            return None  # the log was opened again, and begins where it always began
        self._newest_s = max(self._newest_s, at_s)
        key = (event.code, event.pci_bus_id or "")
        if key not in self._times and len(self._times) >= GPUS_MAX * 8:
            self._times.clear()  # nobody has so many: a log that somebody else writes
        times = self._times.setdefault(key, deque(maxlen=REMEMBERED_MAX))
        times.append(at_s)
        while times[0] < at_s - DAY_S:
            times.popleft()
        action = number_changed_to(event.text) if event.code == RECOVERY_ACTION_CHANGED else None
        return Xid(*key, len(times), at_s, action)

    def _is_known(self, event: XidEvent, at_s: float) -> bool:
        return at_s in self._times.get((event.code, event.pci_bus_id or ""), ())
