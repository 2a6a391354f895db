"""`gpu-recovery-record`: prints one NVML reading and the time of each NVML call.

Run it on an instance with GPUs to save the answers of a real driver as a test fixture, and to measure each call. The
output does not identify the instance: UUIDs are numbered, processes are counted. There is no deadline: a GPU that
hangs blocks the program. Ctrl-C ends it if the driver allows that.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from typing import Any

from gpu_recovery_agent import VERSION, clock
from gpu_recovery_agent.sensors.nvml_reading import read

ROUNDS = 5
"""Number of readings. The first reading of a process is slower than the others; the median of each call is printed."""
NO_NVML = 69
"""Exit status without NVML: EX_UNAVAILABLE of sysexits.h."""


class Timed:
    """The NVML binding with measured calls. `calls` holds the times of each function in microseconds, by its name."""

    def __init__(self, nvml: Any, now_s: Callable[[], float] = clock.monotonic_s) -> None:
        self._nvml, self._now_s = nvml, now_s
        self.calls: dict[str, list[float]] = {}

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._nvml, name)
        if not name.startswith("nvml") or isinstance(call, type) or not callable(call):
            return call

        def timed(*arguments: Any) -> Any:
            begun = self._now_s()
            try:
                return call(*arguments)
            finally:
                self.calls.setdefault(name, []).append((self._now_s() - begun) * 1e6)

        return timed


def record(nvml: Any, now_s: Callable[[], float] = clock.monotonic_s) -> dict[str, Any]:
    """Return one recorded run: the reading, and for each NVML call its count per reading and its cost in microseconds.

    Args:
        nvml: the NVML binding, initialised.
        now_s: the clock in seconds.

    Raises:
        NVMLError: of the binding, if it cannot list the GPUs.
    """
    timed = Timed(nvml, now_s)
    rounds_us = []
    for _ in range(ROUNDS):
        begun = now_s()
        reading = read(timed)
        rounds_us.append((now_s() - begun) * 1e6)
    calls = {
        name: {"each_reading": round(len(taken) / ROUNDS, 1), "median_us": _median(taken), "most_us": round(max(taken))}
        for name, taken in sorted(timed.calls.items())
    }
    return {
        "agent": VERSION,
        "rounds": ROUNDS,
        "reading_us": {"median": _median(rounds_us), "most": round(max(rounds_us))},
        "calls": calls,
        "reading": _anonymous(reading),
    }


HELP = """usage: gpu-recovery-record [--help]

Ask NVML five times all that the node agent asks, and print one reading and the cost of each question as JSON.
Exit status: 69 if there is no NVML.
"""


def main() -> None:
    """Print the record as JSON. Exit with 69 and the reason if there is no NVML."""
    if sys.argv[1:] in (["--help"], ["-h"]):
        sys.stdout.write(HELP)
        return
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        _no_nvml("nvidia-ml-py is not installed")
    try:
        nvml.nvmlInit()
        recorded = record(nvml)
        nvml.nvmlShutdown()
    except (nvml.NVMLError, OSError) as error:
        _no_nvml(f"NVML cannot be read: {error}")
    sys.stdout.write(json.dumps(recorded, indent=1) + "\n")


def _no_nvml(why: str) -> None:
    sys.stderr.write(f"gpu-recovery-record: {why}\n")
    sys.exit(NO_NVML)


def _median(taken: list[float]) -> int:
    return round(sorted(taken)[len(taken) // 2])


def _anonymous(reading: dict[str, Any]) -> dict[str, Any]:
    """Return the reading without what identifies the instance or a process."""
    gpus = [
        {**gpu, "uuid": gpu.get("uuid") and f"GPU-{gpu['index']}", "processes": len(gpu.get("processes") or [])}
        for gpu in reading["gpus"]
    ]
    return {**reading, "gpus": gpus}


if __name__ == "__main__":
    main()
