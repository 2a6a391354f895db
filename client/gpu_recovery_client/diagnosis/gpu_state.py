"""Reads the GPUs of this process through NVML: ECC errors, memory, and processes.

A separate thread calls NVML, with a deadline. On a lost GPU NVML may never answer, and neither the training nor other
observations may wait for it.
"""

from __future__ import annotations

import importlib
import os
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEADLINE_S = 2.0
"""Seconds until an answer of NVML is given up."""
OCCUPANTS_MAX = 32
MB = 1 << 20
CORRECTED, UNCORRECTED, VOLATILE = 0, 1, 0
"""NVML's numbers of the two kinds of ECC error, and of the counter that begins when the driver is loaded."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Gpu:
    """One GPU as NVML reports it; None for a missing value.

    Memory of processes is in MB (2^20), other memory in gigabytes.
    """

    uuid: str
    corrected: int | None = None
    uncorrected: int | None = None
    used_gb: float | None = None
    free_gb: float | None = None
    processes: tuple[tuple[int, float], ...] | None = None


class Nvml:
    """Calls NVML in a thread. `is_there` is False once it is known that NVML is missing.

    Args:
        load: returns the binding, or raises ImportError without it.
        deadline_s: seconds until an answer is given up.
    """

    def __init__(
        self, load: Callable[[], Any] = lambda: importlib.import_module("pynvml"), deadline_s: float = DEADLINE_S
    ) -> None:
        self._load, self._deadline_s = load, deadline_s
        self._questions: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[Gpu, ...] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_waiting = False
        self.is_there = True

    def read(self) -> tuple[Gpu, ...] | None:
        """Return every GPU that this process may see; None if NVML is missing or does not answer in time."""
        if not self.is_there:
            return None
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gpu-recovery-nvml", daemon=True)
            self._thread.start()
        if not self._is_waiting:  # otherwise the last question is still open
            self._questions.put(None)
        try:
            gpus = self._answers.get(timeout=0.0 if self._is_waiting else self._deadline_s)
        except queue.Empty:
            self._is_waiting = True
            return None
        stale, self._is_waiting = self._is_waiting, False
        if gpus is None:
            self.is_there = False
        return None if stale else gpus

    def _run(self) -> None:
        try:
            nvml = self._load()
            nvml.nvmlInit()
        except ImportError:
            self._questions.get()
            self._answers.put(None)
            return
        except OSError:
            nvml = None
        except Exception as error:
            if not _is_of_nvml(error):
                raise
            nvml = None
        while True:
            self._questions.get()
            self._answers.put(_every(nvml) if nvml is not None else None)


def _is_of_nvml(error: BaseException) -> bool:
    return type(error).__name__.startswith("NVMLError")


def _asked(call: Callable[..., Any], *arguments: Any) -> Any:
    """Return the answer of an NVML call; None if NVML has none."""
    try:
        return call(*arguments)
    except Exception as error:
        if not _is_of_nvml(error):
            raise
        return None


def _every(nvml: Any) -> tuple[Gpu, ...]:
    handles = [_asked(nvml.nvmlDeviceGetHandleByIndex, n) for n in range(_asked(nvml.nvmlDeviceGetCount) or 0)]
    return tuple(_gpu(nvml, handle) for handle in handles if handle is not None)


def _gpu(nvml: Any, handle: Any) -> Gpu:
    uuid = _asked(nvml.nvmlDeviceGetUUID, handle) or ""
    memory = _asked(nvml.nvmlDeviceGetMemoryInfo, handle)
    on_it = _asked(nvml.nvmlDeviceGetComputeRunningProcesses, handle)
    processes = (
        None
        if on_it is None
        else tuple((int(entry.pid), round((entry.usedGpuMemory or 0) / MB, 1)) for entry in on_it[:OCCUPANTS_MAX])
    )
    return Gpu(
        uuid.decode() if isinstance(uuid, bytes) else str(uuid),
        _asked(nvml.nvmlDeviceGetTotalEccErrors, handle, CORRECTED, VOLATILE),
        _asked(nvml.nvmlDeviceGetTotalEccErrors, handle, UNCORRECTED, VOLATILE),
        None if memory is None else memory.used / 1e9,
        None if memory is None else memory.free / 1e9,
        processes,
    )


def own(every: tuple[Gpu, ...], uuid: str, environment: Mapping[str, str] = os.environ) -> tuple[Gpu, ...]:
    """Return the GPUs of this process: by torch's UUID, otherwise by its local rank, otherwise all."""
    of_torch = tuple(gpu for gpu in every if uuid and gpu.uuid == uuid)
    visible = environment.get("CUDA_VISIBLE_DEVICES", "")
    named = tuple(gpu for gpu in every if gpu.uuid and gpu.uuid in visible.split(","))
    local = environment.get("LOCAL_RANK", "")
    by_rank = every[int(local) : int(local) + 1] if local.isascii() and local.isdigit() and not visible else ()
    return of_torch or named or by_rank or every


def boot_id() -> str:
    """Return the id of the current boot, with which the counters begin again; "" if it is unknown."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


class EccWatch:
    """Compares each reading with the last reading of the same GPU.

    The first reading, and a lower one, set a new base.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], int] = {}

    def increased(self, gpu: Gpu) -> list[tuple[str, int, int]]:
        """Return (kind, before, now) of each counter that has risen since the last reading."""
        risen = []
        for kind, value in (("corrected", gpu.corrected), ("uncorrected", gpu.uncorrected)):
            if value is not None:
                before = self._last.get((gpu.uuid, kind), value)
                self._last[gpu.uuid, kind] = value
                if value > before:
                    risen.append((kind, before, value))
        return risen
