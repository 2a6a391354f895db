"""Reports the health of a worker and the state of its requests.

Rows 36 and 38 of the fault catalogue, docs/diagnosis.md.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .gpu_probe import memory_of_torch, torch_in_use, uuid_of_torch
from .gpu_state import Nvml, own
from .reporter import ObservationReporter, reporter, sentence

INTERVAL_S = 10.0
"""Seconds between two reports of health."""
PROC = Path("/proc")


class Requests:
    """Counts the requests that this process works on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.active = 0
        self.any = False

    def count(self, change: int) -> None:
        """Add `change`, one or minus one, to the number of active requests."""
        with self._lock:
            self.active += change
            self.any = True


_requests = Requests()


@contextmanager
def processing(request_id: str, *, now: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Report that this worker has begun a request, and how it ended. An exception is raised again."""
    current, began = reporter(), now()
    _requests.count(1)
    current.send("request", request_id=request_id, state="processing_start", urgent=True)
    try:
        yield
    except Exception as error:
        current.send(
            "request",
            request_id=request_id,
            state="processing_error",
            duration_s=round(now() - began, 3),
            error_type=type(error).__name__,
            error=sentence(error),
            urgent=True,
        )
        raise
    else:
        current.send("request", request_id=request_id, state="processing_done", duration_s=round(now() - began, 3))
    finally:
        _requests.count(-1)


class WorkerHealthMonitor:
    """Measures this worker: GPU memory of its GPUs by NVML or of this process by torch; CPU and network of the host."""

    def __init__(
        self,
        process_reporter: ObservationReporter,
        nvml: Nvml,
        active: Callable[[], int] | None = None,
        proc: Path = PROC,
    ) -> None:
        self._reporter, self._nvml, self._active, self._proc = process_reporter, nvml, active, proc
        self._busy: tuple[int, int] | None = None

    def report_once(self) -> None:
        """Send one report."""
        used, free = self._memory()
        sent, received = self._network()
        self._reporter.send(
            "health",
            memory_used_gb=_rounded(used),
            memory_free_gb=_rounded(free),
            cpu_percent=self._cpu(),
            network_sent=sent,
            network_received=received,
            active_requests=self._requests(),
        )

    def _memory(self) -> tuple[float | None, float | None]:
        every = self._nvml.read()
        mine = own(every, uuid_of_torch()) if every else ()
        if mine:
            free = [gpu.free_gb for gpu in mine if gpu.free_gb is not None]
            used = [gpu.used_gb for gpu in mine if gpu.used_gb is not None]
            return (max(used) if used else None, min(free) if free else None)  # of several GPUs, the fullest
        of_torch, torch = memory_of_torch(), torch_in_use()
        if of_torch is None or torch is None:
            return None, None
        total = float(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory) / 1e9
        return of_torch[0], total - of_torch[0]

    def _cpu(self) -> float | None:
        """Return the busy percentage of all CPUs since the last call; None at the first."""
        try:
            first = (self._proc / "stat").read_text(encoding="ascii").splitlines()[0].split()[1:9]
        except (OSError, IndexError, ValueError):
            return None
        ticks = [int(field) for field in first]
        before, self._busy = self._busy, (sum(ticks) - ticks[3] - ticks[4], sum(ticks))
        if before is None or self._busy[1] <= before[1]:
            return None
        return round(100.0 * (self._busy[0] - before[0]) / (self._busy[1] - before[1]), 1)

    def _network(self) -> tuple[int | None, int | None]:
        """Return bytes sent and received over all interfaces but the loopback, since the boot."""
        try:
            lines = (self._proc / "net" / "dev").read_text(encoding="ascii").splitlines()[2:]
            rows = [(name.strip(), rest.split()) for name, _, rest in (line.partition(":") for line in lines)]
            ours = [numbers for name, numbers in rows if name != "lo"]
            return sum(int(row[8]) for row in ours), sum(int(row[0]) for row in ours)
        except (OSError, IndexError, ValueError):
            return None, None

    def _requests(self) -> int | None:
        if self._active is not None:
            return int(self._active())
        return _requests.active if _requests.any else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def health_reporter(
    interval_s: float = INTERVAL_S, *, active_requests: Callable[[], int] | None = None
) -> Callable[[], None]:
    """Report the health of this worker every `interval_s` seconds. Return a function that ends it.

    `active_requests` returns the number of active requests; by default the requests of `processing` are counted.
    """
    current = reporter()
    return current.sender.every(interval_s, WorkerHealthMonitor(current, Nvml(), active_requests).report_once)
