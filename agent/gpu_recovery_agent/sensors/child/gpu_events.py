"""Reads GPU Operational Events through NVML: a preview of drivers since R615, off by default.

Functions, structures and numbers are those of nvidia-ml-py 13.615.71. They were not tried on a driver that has them.
The agent reports the events beside the XIDs; no decision reads them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

EVENTS_MAX = 32
"""Largest number of events in one reading. Further events wait for the next reading."""
CONTEXTS_MAX = 16
TEXT_MAX = 16
NUMBER_MAX = 2**32 - 1
ERROR_TIMEOUT = 10
"""NVML's error number of a wait that found no event."""
_STRANGE = (AttributeError, TypeError, ValueError, OSError, ctypes.ArgumentError)
"""Errors of a binding without the functions or structures, or with others."""


class GpuEventReader:
    """Subscribes to the events of all GPUs at the first reading."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._set: Any = None
        self._trouble: str | None = None

    def read(self) -> dict[str, Any]:
        """Return `events`, or `trouble`: why there are none. The trouble lasts until NVML is initialised again."""
        if self._trouble is not None:
            return {"events": [], "trouble": self._trouble}
        try:
            if self._set is None:
                self._set = self._subscribed()
            return {"events": list(self._waiting())}
        except self._nvml.NVMLError as error:
            self._trouble = f"this driver gives no GPU Operational Events: {error}"[:200]
        except _STRANGE as error:
            self._trouble = f"this NVML binding has no GPU Operational Events: {type(error).__name__}: {error}"[:200]
        return {"events": [], "trouble": self._trouble}

    def _subscribed(self) -> Any:
        nvml = self._nvml
        event_set = nvml.nvmlEventSetCreate()
        for index in range(nvml.nvmlDeviceGetCount()):
            uuid = nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(index))
            level, severity = nvml.NVML_GPU_OPERATIONAL_EVENT_LOG_LEVEL_NOTICE, nvml.NVML_OPERATIONAL_EVENT_SEVERITY_ALL
            config = nvml.c_nvmlGpuOperationalEventConfig_v1_t(uuid, level, severity)
            nvml.nvmlEventSetRegisterGpuOperationalEvents_v1(event_set, config)
        return event_set

    def _waiting(self) -> Iterator[dict[str, Any]]:
        """Yield the events that wait. The wait of NVML takes no time."""
        for _ in range(EVENTS_MAX):
            event = self._nvml.c_nvmlEventSetWait_v3_t()
            event.timeoutMs = 0
            try:
                self._nvml.nvmlEventSetWait_v3(self._set, event)
            except self._nvml.NVMLError as error:
                if int(getattr(error, "value", 0)) == ERROR_TIMEOUT:
                    return
                raise
            if event.dataType == self._nvml.NVML_EVENT_DATA_TYPE_GPU_OPERATIONAL_EVENT:
                yield self._as_json(event)

    def _as_json(self, event: Any) -> dict[str, Any]:
        numbers = {
            "code": event.moduleEventCode,
            "category": event.categoryId,
            "severity": event.severity,
            "attributes": event.attributes,
            "group_attributes": event.groupAttributes,
        }
        found: dict[str, Any] = {name: min(int(value), NUMBER_MAX) for name, value in numbers.items()}
        found |= {"gpu": _text(event.uuid, 96), "module": _text(event.sourceModule, TEXT_MAX) or "?"}
        xid = self._legacy_xid()
        return found if xid is None else {**found, "xid": xid}

    def _legacy_xid(self) -> int | None:
        """Return the XID that the driver logs for the event that was read last; None if it has none."""
        nvml = self._nvml
        try:
            count = nvml.c_nvmlEventSetGetContextCount_v1_t()
            nvml.nvmlEventSetGetContextCount_v1(self._set, count)
            for index in range(min(int(count.count), CONTEXTS_MAX)):
                info = nvml.c_nvmlEventSetGetContextInfo_v1_t()
                info.index = index
                nvml.nvmlEventSetGetContextInfo_v1(self._set, info)
                kind = info.nvmlGpuOperationalEventContextType
                if kind == nvml.NVML_GPU_OPERATIONAL_EVENT_CONTEXT_TYPE_LEGACY_XID:
                    context = nvml.c_nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1_t()
                    context.index = index
                    nvml.nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1(self._set, context)
                    return int(context.xidCode) or None
        except nvml.NVMLError:
            return None  # the event has no such context, or the driver does not give it
        return None


def _text(value: Any, most: int) -> str:
    text = value.decode("ascii", errors="replace") if isinstance(value, bytes) else str(value)
    return "".join(character for character in text if character.isprintable())[:most]
