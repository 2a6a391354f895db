"""Reads NVML field by field: for each field of a GPU a value, or null and the reason.

Drivers, GPUs and releases of the binding support different fields. A missing field must not cost the
others. Error numbers are NVML's: 14 corrupted InfoROM, 15 GPU lost, 16 reset required, 999 unknown.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

CORRUPTED_INFOROM, GPU_LOST, RESET_REQUIRED, UNKNOWN_ERROR = 14, 15, 16, 999
RECOVERY_ACTION = 230
"""NVML's field of the recovery action that the driver asks for."""
GPUS_MAX, PROCESSES_MAX = 32, 256
TEXT_MAX = 100
LINK_TOTALS = {38: "crc_flit", 45: "crc_data", 52: "replay", 59: "recovery"}
"""Fields that count over all links of a GPU, up to NVLink 4."""
LINK_FIELDS = {208: "receive", 211: "integrity", 213: "recovered", 214: "recovery_failed", 215: "recovery_events"}
"""Fields that count for one link, since NVLink 5."""
_VALUES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of NVML's value union, by the type of the value."""
_STRANGE = (AttributeError, TypeError, ValueError, OSError, ctypes.ArgumentError)
"""Errors of a binding of another release, which lacks a function, a structure or a text."""


def read(nvml: Any) -> dict[str, Any]:
    """Return a reading of all GPUs: `driver`, `count`, `gpus`.

    Raises NVMLError of the binding if it cannot list the GPUs.

    Args:
        nvml: the NVML binding, initialised.
    """
    count = min(int(nvml.nvmlDeviceGetCount()), GPUS_MAX)
    driver = nvml.nvmlSystemGetDriverVersion()
    return {
        "driver": str(driver)[:TEXT_MAX],
        "count": count,
        "gpus": [_Gpu(nvml, index).read() for index in range(count)],
    }


class _Gpu:
    """One GPU. Once the GPU is lost, no further call is made: every call may block for ever."""

    def __init__(self, nvml: Any, index: int) -> None:
        self._nvml, self._index = nvml, index
        self._found: dict[str, Any] = {"index": index}
        self._handle: Any = None
        self._missing: dict[str, list[str]] = {}
        self._lost = False

    def read(self) -> dict[str, Any]:
        """Return the fields of the GPU, with `missing`: the reasons, each with the fields it concerns."""
        self._handle = self._asked("handle", lambda: self._nvml.nvmlDeviceGetHandleByIndex(self._index))
        if self._handle is not None:
            for name, ask in self._questions().items():
                self._found[name] = self._asked(name, ask)
        if self._missing:
            self._found["missing"] = self._missing
        return self._found

    def _asked(self, name: str, ask: Callable[[], Any]) -> Any:
        if self._lost:
            self._missing.setdefault("the GPU is lost", []).append(name)
            return None
        try:
            return ask()
        except self._nvml.NVMLError as error:
            code = int(getattr(error, "value", UNKNOWN_ERROR))
            if code in (CORRUPTED_INFOROM, GPU_LOST, RESET_REQUIRED):
                self._found.setdefault("error", code)
            if code == GPU_LOST:
                self._found["error"], self._lost = code, True
            self._missing.setdefault(f"{error} ({code})"[:80], []).append(name)
        except _STRANGE as error:
            self._missing.setdefault(f"{type(error).__name__}: {error}"[:80], []).append(name)
        return None

    def _questions(self) -> dict[str, Callable[[], Any]]:
        """Return the calls in their order.

        Identity and recovery action come first, in case the GPU is lost in between.
        """
        nvml, handle = self._nvml, self._handle
        return {
            "uuid": lambda: str(nvml.nvmlDeviceGetUUID(handle)),
            "pci": lambda: str(nvml.nvmlDeviceGetPciInfo_v3(handle).busId),
            "name": lambda: str(nvml.nvmlDeviceGetName(handle)),
            "recovery_action": lambda: self._field(RECOVERY_ACTION),
            "remapped": self._remapped,
            "retirement_pending": lambda: bool(nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle)),
            "ecc": self._ecc,
            "sram_threshold_exceeded": self._sram,
            "memory": self._memory,
            "clocks_event_reasons": lambda: int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)),
            "temperature": lambda: int(nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU)),
            "memory_temperature": lambda: self._field(nvml.NVML_FI_DEV_MEMORY_TEMP),
            "power_mw": lambda: int(nvml.nvmlDeviceGetPowerUsage(handle)),
            "energy_mj": lambda: int(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)),
            "utilization": lambda: int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
            "pcie_width": lambda: int(nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)),
            "pcie_width_max": lambda: int(nvml.nvmlDeviceGetMaxPcieLinkWidth(handle)),
            "pcie_replays": lambda: int(nvml.nvmlDeviceGetPcieReplayCounter(handle)),
            "mig": lambda: bool(nvml.nvmlDeviceGetMigMode(handle)[0]),
            "links": self._links,
            "link_errors": self._link_errors,
            "processes": self._processes,
        }

    def _field(self, number: int) -> int:
        return self._fields([number])[0]

    def _fields(self, numbers: list[Any]) -> list[int]:
        """Return the values of several fields, read in one call.

        Raises NVMLError for the first field without a value.
        """
        values = []
        for value in self._nvml.nvmlDeviceGetFieldValues(self._handle, numbers):
            if value.nvmlReturn != 0:
                raise self._nvml.NVMLError(value.nvmlReturn)
            if not 0 <= value.valueType < len(_VALUES):
                raise ValueError(f"field {value.fieldId} has a value of type {value.valueType}")
            values.append(int(getattr(value.value, _VALUES[value.valueType])))
        return values

    def _sum(self, asked: list[Any]) -> int:
        return sum(self._fields(asked))

    def _ecc(self) -> dict[str, Any]:
        """Return the ECC counters.

        Volatile counters begin when the driver is loaded, aggregate counters with the life of the GPU.
        """
        total = self._nvml.nvmlDeviceGetTotalEccErrors
        counters = {}
        for error, kind in (("corrected", 0), ("uncorrected", 1)):
            for life, counter in (("volatile", 0), ("aggregate", 1)):
                name = f"{error}_{life}"
                counters[name] = self._asked(f"ecc.{name}", partial(total, self._handle, kind, counter))
        return counters

    def _sram(self) -> bool:
        status = self._nvml.c_nvmlEccSramErrorStatus_v1_t()
        status.version = self._nvml.nvmlEccSramErrorStatus_v1
        # The binding passes its argument on, and the library expects a pointer.
        self._nvml.nvmlDeviceGetSramEccErrorStatus(self._handle, ctypes.byref(status))
        return bool(status.bThresholdExceeded)

    def _remapped(self) -> dict[str, Any]:
        corrected, uncorrected, pending, failure = self._nvml.nvmlDeviceGetRemappedRows(self._handle)
        return {
            "corrected": int(corrected),
            "uncorrected": int(uncorrected),
            "pending": bool(pending),
            "failure": bool(failure),
        }

    def _memory(self) -> dict[str, int]:
        memory = self._nvml.nvmlDeviceGetMemoryInfo(self._handle)
        return {"total": int(memory.total), "used": int(memory.used)}

    def _links(self) -> str:
        """Return one digit for each link: 1 for a link that is up."""
        states = ""
        for link in range(int(self._nvml.NVML_NVLINK_MAX_LINKS)):
            try:
                states += str(int(self._nvml.nvmlDeviceGetNvLinkState(self._handle, link)))
            except self._nvml.NVMLError as error:
                if not states or error.value == GPU_LOST:
                    raise
                break  # the GPU has no further links
        return states

    def _link_errors(self) -> dict[str, int | None]:
        errors: dict[str, int | None] = {}
        for number, name in LINK_TOTALS.items():
            errors[name] = self._asked(f"link_errors.{name}", partial(self._field, number))
        up = [link for link, state in enumerate(self._found.get("links") or "") if state == "1"]
        if up and None in errors.values():  # NVLink 5 has no totals: each link counts for itself
            for number, name in LINK_FIELDS.items():
                asked = [(number, link) for link in up]
                errors[name] = self._asked(f"link_errors.{name}", partial(self._sum, asked))
        return {name: count for name, count in errors.items() if count is not None}

    def _processes(self) -> list[dict[str, int | None]]:
        """Return the compute processes.

        Their pids belong to the host's PID namespace; in another namespace the agent cannot use them.
        """
        running = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)[:PROCESSES_MAX]
        return [
            {"pid": int(process.pid), "memory": None if process.usedGpuMemory is None else int(process.usedGpuMemory)}
            for process in running
        ]
