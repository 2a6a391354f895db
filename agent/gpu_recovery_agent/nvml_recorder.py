"""`gpu-recovery-record`: asks NVML everything once that the agent asks, and writes down what came and how long it took.

For a machine with GPUs, so that what a real driver answers can be kept as a fixture of the tests and the cost of each
question told. What identifies a machine is left out: UUIDs are numbered, processes are counted. It has no deadline: a
GPU that hangs makes it hang, and Ctrl-C ends it, if the driver lets it.
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
"""The first of a life is slower than the others; the median of each question is told."""
NO_NVML = 69
"""EX_UNAVAILABLE of sysexits.h."""


class Timed:
    """The binding, with the time of each call of one of its functions: `calls` by name, in microseconds."""

    def __init__(self, nvml: Any, now_s: Callable[[], float] = clock.monotonic_s) -> None:
        self._nvml, self._now_s = nvml, now_s
        self.calls: dict[str, list[float]] = {}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._nvml, name)
        if not name.startswith("nvml") or isinstance(found, type) or not callable(found):
            return found

        def timed(*given: Any) -> Any:
            begun = self._now_s()
            try:
                return found(*given)
            finally:
                self.calls.setdefault(name, []).append((self._now_s() - begun) * 1e6)

        return timed


def record(nvml: Any, now_s: Callable[[], float] = clock.monotonic_s) -> dict[str, Any]:
    """One recorded run: the reading, and of each question how often it is asked in a reading and what it costs, in
    microseconds. `nvml` is the binding, initialised. Raises its NVMLError where there is no list of GPUs."""
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


def main() -> None:
    """Writes the record to stdout as JSON; ends with 69 and the reason where there is no NVML."""
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        _no_nvml("nvidia-ml-py is not installed")
    try:
        nvml.nvmlInit()
        found = record(nvml)
        nvml.nvmlShutdown()
    except (nvml.NVMLError, OSError) as error:
        _no_nvml(f"NVML cannot be asked: {error}")
    sys.stdout.write(json.dumps(found, indent=1) + "\n")


def _no_nvml(why: str) -> None:
    sys.stderr.write(f"gpu-recovery-record: {why}\n")
    sys.exit(NO_NVML)


def _median(taken: list[float]) -> int:
    return round(sorted(taken)[len(taken) // 2])


def _anonymous(reading: dict[str, Any]) -> dict[str, Any]:
    """A reading that names no machine and nobody's process."""
    gpus = [
        {**gpu, "uuid": gpu.get("uuid") and f"GPU-{gpu['index']}", "processes": len(gpu.get("processes") or [])}
        for gpu in reading["gpus"]
    ]
    return {**reading, "gpus": gpus}


if __name__ == "__main__":
    main()
