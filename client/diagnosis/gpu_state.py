"""What NVML says of the GPUs of this process: ECC errors, memory, and who is on them.

It is asked in a thread of its own with a deadline: on a GPU that is lost NVML may never answer, and neither the
training nor what else is to be told may wait for it.
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
OCCUPANTS_MAX = 32
MB = 1 << 20
CORRECTED, UNCORRECTED, VOLATILE = 0, 1, 0
"""NVML's numbers for the two kinds of error, and for the counter that begins with the driver."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Gpu:
    """One GPU as NVML sees it; None for what it does not tell. Memory of processes in MB (2^20), else in gigabytes."""

    uuid: str
    corrected: int | None = None
    uncorrected: int | None = None
    used_gb: float | None = None
    free_gb: float | None = None
    processes: tuple[tuple[int, float], ...] | None = None


class Nvml:
    """Asks NVML. `load` gives its binding, or raises ImportError where there is none.

    is_there: False once it is known that there is nobody to ask.
    """

    def __init__(
        self, load: Callable[[], Any] = lambda: importlib.import_module("pynvml"), deadline_s: float = DEADLINE_S
    ) -> None:
        self._load, self._deadline_s = load, deadline_s
        self._questions: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[Gpu, ...] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._waits = False
        self.is_there = True

    def read(self) -> tuple[Gpu, ...] | None:
        """Every GPU that this process may see; None if NVML does not answer in time, or is not there."""
        if not self.is_there:
            return None
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gpu-recovery-nvml", daemon=True)
            self._thread.start()
        if not self._waits:  # else the last question is still open: it is not asked again behind it
            self._questions.put(None)
        try:
            answer = self._answers.get(timeout=0.0 if self._waits else self._deadline_s)
        except queue.Empty:
            self._waits = True
            return None
        stale, self._waits = self._waits, False
        if answer is None:
            self.is_there = False
        return None if stale else answer

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


def _asked(call: Callable[..., Any], *given: Any) -> Any:
    """The answer; None where NVML has none."""
    try:
        return call(*given)
    except Exception as error:
        if not _is_of_nvml(error):
            raise
        return None


def _every(nvml: Any) -> tuple[Gpu, ...]:
    handles = [_asked(nvml.nvmlDeviceGetHandleByIndex, n) for n in range(_asked(nvml.nvmlDeviceGetCount) or 0)]
    return tuple(_one(nvml, handle) for handle in handles if handle is not None)


def _one(nvml: Any, handle: Any) -> Gpu:
    uuid = _asked(nvml.nvmlDeviceGetUUID, handle) or ""
    memory = _asked(nvml.nvmlDeviceGetMemoryInfo, handle)
    on_it = _asked(nvml.nvmlDeviceGetComputeRunningProcesses, handle)
    processes = (
        None
        if on_it is None
        else tuple((int(one.pid), round((one.usedGpuMemory or 0) / MB, 1)) for one in on_it[:OCCUPANTS_MAX])
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
    """Of all that are seen, those of this process: by the UUID that torch tells, else by its local rank, else all."""
    of_torch = tuple(one for one in every if uuid and one.uuid == uuid)
    visible = environment.get("CUDA_VISIBLE_DEVICES", "")
    named = tuple(one for one in every if one.uuid and one.uuid in visible.split(","))
    local = environment.get("LOCAL_RANK", "")
    by_rank = every[int(local) : int(local) + 1] if local.isascii() and local.isdigit() and not visible else ()
    return of_torch or named or by_rank or every


def boot_id() -> str:
    """Which boot of the machine it is: its counters begin anew with it."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


class EccWatch:
    """Compares each reading with the last one of the same GPU. The first is where it begins; one that falls, too."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], int] = {}

    def increased(self, gpu: Gpu) -> list[tuple[str, int, int]]:
        """(kind, before, now) of each counter that has risen since the last reading."""
        found = []
        for kind, value in (("corrected", gpu.corrected), ("uncorrected", gpu.uncorrected)):
            if value is not None:
                before = self._last.get((gpu.uuid, kind), value)
                self._last[gpu.uuid, kind] = value
                if value > before:
                    found.append((kind, before, value))
        return found
