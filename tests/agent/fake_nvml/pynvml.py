"""NVML as a test wants it, under the binding's own name: the real binding's errors and structures, other answers.

The file that FAKE_NVML names is read at every question, so that a GPU can break while it is watched: `gpus` with what
differs from a healthy one, `init` an error to begin with, `hang` the name of a function that never returns.
Values, their types and errors are those of a real library; tests/recorded_gpu compares them with its records.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def _real() -> Any:
    """The installed binding, found behind this file."""
    own = Path(__file__).parent
    for folder in sys.path:
        path = Path(folder, "pynvml.py")
        if folder and Path(folder).resolve() != own and path.is_file():
            spec = importlib.util.spec_from_file_location("real_pynvml", path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules["real_pynvml"] = module
            spec.loader.exec_module(module)
            return module
    raise ImportError("nvidia-ml-py is not installed")


real = _real()
globals().update({name: value for name, value in vars(real).items() if not name.startswith("__")})
LINK_FIELDS = frozenset({38, 45, 52, 59, 208, 211, 213, 214, 215})
"""Fields of NVLink, without a value where NVLink is switched off (`links` "")."""
"""`mig` None: this GPU knows none. `link_fields`: counters by field and link, "208/1", from NVLink 5 on."""
HEALTHY: dict[str, Any] = {
    "ecc": [0, 0, 0, 0],
    "remapped": [0, 0, 0, 0],
    "action": 0,
    "links": "11",
    "link_errors": 0,
    "processes": [],
    "sram": 0,
    "temperature": 40,
    "power": 90_000,
    "energy": 4_248_954,
    "utilization": 0,
    "reasons": 1,
    "raises": {},
    "mig": False,
    "link_fields": {},
}


def _behaviour() -> dict[str, Any]:
    return json.loads(Path(os.environ["FAKE_NVML"]).read_text())


def _asked(function: str, index: int | None = None) -> dict[str, Any]:
    """The GPU that is asked, unless the question hangs or has an error for an answer."""
    behaviour = _behaviour()
    if behaviour.get("hang") == function:
        threading.Event().wait()
    if index is not None and not 0 <= index < len(behaviour["gpus"]):
        raise real.NVMLError(real.NVML_ERROR_INVALID_ARGUMENT)
    gpu = {**HEALTHY, **(behaviour["gpus"][index] if index is not None else {})}
    code = {**behaviour.get("raises", {}), **gpu["raises"]}.get(function, gpu["raises"].get("*"))
    if code is not None:
        raise real.NVMLError(code)
    return gpu


def nvmlInit() -> None:
    if (code := _behaviour().get("init")) is not None:
        raise real.NVMLError(code)


def nvmlShutdown() -> None:
    return


def nvmlSystemGetDriverVersion() -> str:
    return str(_behaviour().get("driver", "580.82.07"))


def nvmlDeviceGetCount() -> int:
    _asked("nvmlDeviceGetCount")
    return len(_behaviour()["gpus"])


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    _asked("nvmlDeviceGetHandleByIndex", index)
    return index


def nvmlDeviceGetUUID(handle: int) -> str:
    _asked("nvmlDeviceGetUUID", handle)
    return f"GPU-{handle}"


def nvmlDeviceGetPciInfo_v3(handle: int) -> Any:
    _asked("nvmlDeviceGetPciInfo_v3", handle)
    return SimpleNamespace(busId=f"00000000:{0x10 + handle:02X}:00.0")


def nvmlDeviceGetName(handle: int) -> str:
    _asked("nvmlDeviceGetName", handle)
    return "NVIDIA H100 80GB HBM3"


def nvmlDeviceGetFieldValues(handle: int, fields: list[Any]) -> list[Any]:
    gpu = _asked("nvmlDeviceGetFieldValues", handle)
    known = {230: gpu["action"], real.NVML_FI_DEV_MEMORY_TEMP: 50, **dict.fromkeys(LINK_FIELDS, gpu["link_errors"])}
    values = []
    for field in fields:
        number, link = field if isinstance(field, tuple) else (field, 0)
        value = real.c_nvmlFieldValue_t()
        value.fieldId, value.valueType = number, real.NVML_VALUE_TYPE_UNSIGNED_INT
        value.nvmlReturn = gpu["raises"].get(str(number), 0)
        if number not in known:
            value.nvmlReturn = real.NVML_ERROR_INVALID_ARGUMENT
        elif number in LINK_FIELDS and not gpu["links"]:
            value.nvmlReturn = real.NVML_ERROR_NOT_SUPPORTED
        if value.nvmlReturn:
            value.valueType = 0
        else:
            value.value.uiVal = gpu["link_fields"].get(f"{number}/{link}", known[number])
        values.append(value)
    return values


def nvmlDeviceGetTotalEccErrors(handle: int, kind: int, counter: int) -> int:
    return _asked("nvmlDeviceGetTotalEccErrors", handle)["ecc"][2 * kind + counter]


def nvmlDeviceGetRemappedRows(handle: int) -> tuple[int, ...]:
    return tuple(_asked("nvmlDeviceGetRemappedRows", handle)["remapped"])


def nvmlDeviceGetRetiredPagesPendingStatus(handle: int) -> int:
    _asked("nvmlDeviceGetRetiredPagesPendingStatus", handle)
    raise real.NVMLError(real.NVML_ERROR_NOT_SUPPORTED)


def nvmlDeviceGetSramEccErrorStatus(handle: int, status: Any) -> None:
    """`status` is a pointer, as the library has it: the real binding does not make one of a structure."""
    exceeded = _asked("nvmlDeviceGetSramEccErrorStatus", handle)["sram"]
    if not hasattr(status, "_obj"):
        raise real.NVMLError(real.NVML_ERROR_INVALID_ARGUMENT)
    status._obj.bThresholdExceeded = exceeded


def nvmlDeviceGetMemoryInfo(handle: int) -> Any:
    _asked("nvmlDeviceGetMemoryInfo", handle)
    return SimpleNamespace(total=80 * 2**30, used=2**30, free=79 * 2**30)


def nvmlDeviceGetCurrentClocksEventReasons(handle: int) -> int:
    return _asked("nvmlDeviceGetCurrentClocksEventReasons", handle)["reasons"]


def nvmlDeviceGetTemperatureV(handle: int, sensor: int) -> int:
    return _asked("nvmlDeviceGetTemperatureV", handle)["temperature"] + 0 * sensor


def nvmlDeviceGetPowerUsage(handle: int) -> int:
    return _asked("nvmlDeviceGetPowerUsage", handle)["power"]


def nvmlDeviceGetTotalEnergyConsumption(handle: int) -> int:
    return _asked("nvmlDeviceGetTotalEnergyConsumption", handle)["energy"]


def nvmlDeviceGetUtilizationRates(handle: int) -> Any:
    gpu = _asked("nvmlDeviceGetUtilizationRates", handle)
    if gpu["mig"]:  # as the real library: a GPU that is divided has no utilization of its own
        raise real.NVMLError(real.NVML_ERROR_NOT_SUPPORTED)
    return SimpleNamespace(gpu=gpu["utilization"])


def nvmlDeviceGetCurrPcieLinkWidth(handle: int) -> int:
    _asked("nvmlDeviceGetCurrPcieLinkWidth", handle)
    return 16


def nvmlDeviceGetMaxPcieLinkWidth(handle: int) -> int:
    _asked("nvmlDeviceGetMaxPcieLinkWidth", handle)
    return 16


def nvmlDeviceGetPcieReplayCounter(handle: int) -> int:
    _asked("nvmlDeviceGetPcieReplayCounter", handle)
    return 0


def nvmlDeviceGetMigMode(handle: int) -> list[int]:
    mig = _asked("nvmlDeviceGetMigMode", handle)["mig"]
    if mig is not None:
        return [int(mig), int(mig)]
    raise real.NVMLError(real.NVML_ERROR_NOT_SUPPORTED)


def nvmlDeviceGetNvLinkState(handle: int, link: int) -> int:
    links = _asked("nvmlDeviceGetNvLinkState", handle)["links"]
    if link >= len(links):
        raise real.NVMLError(real.NVML_ERROR_NOT_SUPPORTED if not links else real.NVML_ERROR_INVALID_ARGUMENT)
    return int(links[link])


def nvmlDeviceGetComputeRunningProcesses(handle: int) -> list[Any]:
    """`processes` are pids, or pairs of a pid and its megabytes."""
    on_it = _asked("nvmlDeviceGetComputeRunningProcesses", handle)["processes"]
    pairs = [one if isinstance(one, list) else [one, None] for one in on_it]
    return [SimpleNamespace(pid=pid, usedGpuMemory=None if mb is None else mb << 20) for pid, mb in pairs]


# GPU Operational Events: `goe` lists them, with the names of the structure's fields, and `xid`. Each is given once.

_given = 0
_current: dict[str, Any] = {}


def nvmlEventSetCreate() -> str:
    _asked("nvmlEventSetCreate")
    return "events"


def nvmlEventSetRegisterGpuOperationalEvents_v1(event_set: str, config: Any) -> int:
    _asked("nvmlEventSetRegisterGpuOperationalEvents_v1")
    if event_set != "events" or not str(config.uuid).startswith("GPU-") or "goe" not in _behaviour():
        raise real.NVMLError(real.NVML_ERROR_NOT_SUPPORTED)
    return 0


def nvmlEventSetWait_v3(event_set: str, event: Any) -> int:
    global _given, _current
    assert event_set == "events" and event.timeoutMs == 0
    events = _behaviour()["goe"]
    if _given >= len(events):
        raise real.NVMLError(real.NVML_ERROR_TIMEOUT)
    _current, _given = events[_given], _given + 1
    event.dataType = real.NVML_EVENT_DATA_TYPE_GPU_OPERATIONAL_EVENT
    for name, value in _current.items():
        if name != "xid":
            setattr(event, name, value.encode() if isinstance(value, str) else value)
    return 0


def nvmlEventSetGetContextCount_v1(event_set: str, found: Any) -> int:
    found.count = 2 if "xid" in _current else 0
    return 0


def nvmlEventSetGetContextInfo_v1(event_set: str, found: Any) -> int:
    found.nvmlGpuOperationalEventContextType = found.index  # the second context is that of the XID
    return 0


def nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1(event_set: str, found: Any) -> int:
    if found.index != 1:
        raise real.NVMLError(real.NVML_ERROR_INVALID_ARGUMENT)
    found.xidCode = _current["xid"]
    return 0
