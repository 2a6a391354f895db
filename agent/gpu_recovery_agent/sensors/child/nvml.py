"""The child process that reads NVML: a line comes in, a reading goes out as a line of JSON.

It is a process of its own because an NVML call on a GPU that fell off the bus may never return, and no signal ends it
then. It lives on between readings, because the initialisation of NVML costs more than all other calls together.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
from pathlib import Path
from typing import Any

from gpu_recovery_agent.sensors.child.gpu_events import GpuEventReader
from gpu_recovery_agent.sensors.child.serve import answer_each
from gpu_recovery_agent.sensors.nvml_reading import UNKNOWN_ERROR, read

LOST_CONTACT = {1, 9, 999}
"""Error numbers after which NVML is initialised again: uninitialised, driver not loaded, unknown. The driver may be
loaded again by then.
"""
LIBRARY = "libnvidia-ml.so.1"
LIBRARY_FOLDERS = ("usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib")
"""The library of the driver, and where it lies on Amazon Linux, on Debian and on Ubuntu."""
LINKS_MAX = 8
GPU_EVENTS = "GPU_RECOVERY_GPU_EVENTS"
"""Variable that switches the preview of GPU Operational Events on."""


def main() -> None:
    """Answer until the input ends. The child ends with the agent, also if the agent is killed."""
    asked = _NvmlBinding(reads_events=os.environ.get(GPU_EVENTS) == "on")
    answer_each(lambda _: asked.reading())


class _NvmlBinding:
    """The NVML binding, initialised at the first question, and again after a loss of contact."""

    def __init__(self, *, reads_events: bool) -> None:
        self._nvml: Any = None
        self._reads_events = reads_events
        self._events: GpuEventReader | None = None

    def reading(self) -> dict[str, Any]:
        if self._nvml is None and (trouble := self._begin()) is not None:
            return trouble
        try:
            reading = read(self._nvml)
            return reading | ({"gpu_events": self._events.read()} if self._events is not None else {})
        except self._nvml.NVMLError as error:
            code = int(getattr(error, "value", UNKNOWN_ERROR))
            if code in LOST_CONTACT:
                with contextlib.suppress(self._nvml.NVMLError):
                    self._nvml.nvmlShutdown()
                self._nvml = None
            return _error(code, f"NVML gives no list of GPUs: {error}")

    def _begin(self) -> dict[str, Any] | None:
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            return _error(None, "nvidia-ml-py is not installed")
        _load_the_hosts_library(os.environ.get("HOST_ROOT", ""))
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            return _error(int(getattr(error, "value", UNKNOWN_ERROR)), f"NVML cannot be initialized: {error}")
        except OSError as error:
            return _error(None, f"NVML cannot be loaded: {error}")
        self._nvml = nvml
        self._events = GpuEventReader(nvml) if self._reads_events else None
        return None


def _load_the_hosts_library(root: str) -> None:
    """Load the driver's library from the file system of the host, if this container has none.

    The binding then finds it by its name, because the dynamic linker opens no library of the same name a second time.
    The container runtime of NVIDIA mounts the library into a container; without that runtime the container has none.

    Args:
        root: the root of the host's file system; "" outside of a container.
    """
    if not root:
        return
    with contextlib.suppress(OSError):
        ctypes.CDLL(LIBRARY)
        return
    for folder in LIBRARY_FOLDERS:
        path = _on_the_host(Path(root), Path(root, folder, LIBRARY))
        with contextlib.suppress(OSError):
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
            return


def _on_the_host(root: Path, path: Path) -> Path:
    """Follow the links of a file. An absolute link begins at the root of the host, not at that of this container."""
    for _ in range(LINKS_MAX):
        try:
            target = os.readlink(path)
        except OSError:
            break
        path = root / target.lstrip("/") if target.startswith("/") else path.parent / target
    return path


def _error(code: int | None, text: str) -> dict[str, Any]:
    return {"error": {"code": code, "text": text[:200]}}


if __name__ == "__main__":
    main()
