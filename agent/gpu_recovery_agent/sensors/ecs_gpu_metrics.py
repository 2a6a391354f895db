"""Reads what the ECS agent's DCGM watch says about the GPUs: one more source beside the kernel log and NVML.

The program `dcgm-init` of the ECS agent rewrites `/var/run/ecs/gpu/gpu-metrics.json` every 60 s. The shape is that of
ecs-agent/gpu/types/types.go and dcgm-init/engine/engine.go in aws/amazon-ecs-agent. No release note up to 1.108.0 says
that it is switched on, so most instances have no file.

Three rules follow from its source:

- `healthy` stays true while the connection to DCGM is lost (`connection_lost`), and the list of GPUs is empty then or
  after a failed collection. Neither is a healthy GPU.
- `unhealthy_reason` (`XID_48`) stays until `dcgm-init` starts again. So the XID is an event, not a state: the agent
  reports it once for each boot, and only if the kernel log does not have it.
- A dead `dcgm-init` leaves its last file behind. The agent reads no wall clock, so the content counts only while the
  agent itself sees the timestamp change. The ECS agent calls a file stale after the same 120 s.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from gpu_recovery_agent import clock
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.sensors.gpu_health import IMPAIRED, OK, UNKNOWN, GpuHealthStatus, with_note
from gpu_recovery_agent.sensors.kernel_log import Xid

STALE_AFTER_S = 120.0
"""Seconds without a new timestamp after which the file says nothing (gpuStalenessThreshold of the ECS agent)."""
READ_EVERY_S = 1.0
FILE_BYTES_MAX = 256 * 1024
"""Largest file that is read. One GPU takes less than 400 bytes; unknown fields may use the rest."""
GPUS_MAX = 256
BY_DCGM = "dcgm"
"""`Xid.source` of an XID that only this file has."""
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[0-9.:Z+-]{0,30}")
_XID = re.compile(r"XID_(\d{1,4})")


class EcsGpuMetricsSensor:
    """Follows the file. `status` is `ok`, `impaired` or `unknown`, and `sentence` says why.

    Args:
        path: the file; None: it is not read.
        log: the log of the agent.
        now: monotonic time in seconds.
    """

    def __init__(self, path: Path | None, log: AgentLog, now: Callable[[], float] = clock.monotonic_s) -> None:
        self._path, self._log, self._now = path, log, now
        self._next_at = now()
        self._timestamp: str | None = None
        self._changed_at: float | None = None
        self._content: dict[str, Any] | None = None
        self._reported: set[int] = set()
        self.status, self.sentence = UNKNOWN, ""

    def poll(self, logged: Collection[int], reported: Collection[int]) -> list[Xid]:
        """Return the XID of the file if it is new to this boot.

        Args:
            logged: the XIDs that the kernel log has. The file confirms them and adds nothing.
            reported: the XIDs of the file that the server received since the boot.
        """
        if self._path is None or self._now() < self._next_at:
            return []
        self._next_at = self._now() + READ_EVERY_S
        self._read(self._path)
        self.status, self.sentence = self._judged()
        match = _XID.fullmatch(self._reason()) if self.status == IMPAIRED else None
        code = int(match[1]) if match else 0
        if not code or code in logged or code in reported or code in self._reported:
            return []
        self._reported.add(code)
        return [Xid(code, "", 1, clock.kernel_log_s(), None, source=BY_DCGM)]

    def with_dcgm_sentence(self, health: GpuHealthStatus) -> GpuHealthStatus:
        """Return the health by NVML with what the file adds. The file never changes the status."""
        if not self.sentence or (health.status == OK and self.status != IMPAIRED):
            return health
        return with_note(health, self.sentence)

    def _read(self, path: Path) -> None:
        """Read the file. A file that cannot be read is written to the log once."""
        try:
            with path.open("rb") as file:
                raw = file.read(FILE_BYTES_MAX + 1)
        except FileNotFoundError:
            self._forget()
            return
        except OSError as error:
            self._unreadable(path, error.strerror or str(error))
            return
        if not raw:
            self._forget()  # dcgm-init creates an empty file, and fills it a minute later
            return
        try:
            content = json.loads(raw) if len(raw) <= FILE_BYTES_MAX else None
        except (ValueError, RecursionError):
            content = None
        timestamp = content.get("timestamp") if isinstance(content, dict) else None
        if not isinstance(content, dict) or not isinstance(timestamp, str) or not _TIMESTAMP.fullmatch(timestamp):
            self._unreadable(path, "it is not the JSON of dcgm-init")
            return
        if type(content.get("healthy")) is not bool or type(content.get("connection_lost", False)) is not bool:
            self._unreadable(path, "healthy and connection_lost must be true or false")
            return
        self._log.over("gpu metrics", f"{path} can be read")
        if self._timestamp is not None and timestamp != self._timestamp:
            self._changed_at = self._now()
        self._timestamp, self._content = timestamp, content

    def _forget(self) -> None:
        self._content, self._timestamp, self._changed_at = None, None, None

    def _unreadable(self, path: Path, why: str) -> None:
        self._forget()
        self._log.once("gpu metrics", f"{path} cannot be read: {why}; it is no evidence about the GPUs")

    def _judged(self) -> tuple[str, str]:
        content = self._content
        if content is None:
            return UNKNOWN, ""
        if self._changed_at is None or self._now() - self._changed_at > STALE_AFTER_S:
            return UNKNOWN, "the file of the ECS agent's DCGM watch is not renewed"
        if content.get("connection_lost"):
            return UNKNOWN, "the ECS agent has lost its connection to DCGM"
        if not content["healthy"]:
            reason = self._reason()
            return IMPAIRED, f"DCGM of the ECS agent reports the GPUs as unhealthy{': ' + reason if reason else ''}"
        gpus = content.get("gpus")
        count = min(len(gpus), GPUS_MAX) if isinstance(gpus, list) else 0
        if not count:
            return UNKNOWN, "DCGM of the ECS agent lists no GPU"
        return OK, f"DCGM of the ECS agent reports no fault of {count} GPU(s)"

    def _reason(self) -> str:
        reason = (self._content or {}).get("unhealthy_reason")
        return " ".join(reason.split())[:80] if isinstance(reason, str) else ""
