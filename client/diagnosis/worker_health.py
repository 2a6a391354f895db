"""How a worker is, every ten seconds, and how far it is with its requests (rows 36 and 38)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gpu_recovery_client.diagnosis.gpu_probe import memory_of_torch, torch_in_use, uuid_of_torch
from gpu_recovery_client.diagnosis.gpu_state import Nvml, own
from gpu_recovery_client.diagnosis.reporter import ObservationReporter, reporter, sentence

INTERVAL_S = 10.0
PROC = Path("/proc")


class Requests:
    """How many requests this process works on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.active = 0
        self.any = False

    def count(self, change: int) -> None:
        """One more, or one less."""
        with self._lock:
            self.active += change
            self.any = True


_requests = Requests()


@contextmanager
def processing(request_id: str, *, now: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Tell that this worker has begun with a request, and how it ended; what it raises goes on."""
    me, began = reporter(), now()
    _requests.count(1)
    me.send("request", request_id=request_id, state="processing_start", urgent=True)
    try:
        yield
    except Exception as error:
        me.send(
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
        me.send("request", request_id=request_id, state="processing_done", duration_s=round(now() - began, 3))
    finally:
        _requests.count(-1)


class WorkerHealthMonitor:
    """Looks at this worker: GPU memory by NVML, or of this process by torch; the machine's CPU and network."""

    def __init__(
        self, of: ObservationReporter, nvml: Nvml, active: Callable[[], int] | None = None, proc: Path = PROC
    ) -> None:
        self._of, self._nvml, self._active, self._proc = of, nvml, active, proc
        self._busy: tuple[int, int] | None = None

    def report_once(self) -> None:
        """One report."""
        used, free = self._memory()
        sent, received = self._network()
        self._of.send(
            "health",
            memory_used_gb=_rounded(used),
            memory_free_gb=_rounded(free),
            cpu_percent=self._cpu(),
            network_sent=sent,
            network_received=received,
            active_requests=self._requests(),
        )

    def _memory(self) -> tuple[float | None, float | None]:
        found = self._nvml.read()
        mine = own(found, uuid_of_torch()) if found else ()
        if mine:
            free = [one.free_gb for one in mine if one.free_gb is not None]
            used = [one.used_gb for one in mine if one.used_gb is not None]
            return (max(used) if used else None, min(free) if free else None)  # of several, the one that is fullest
        of_torch, torch = memory_of_torch(), torch_in_use()
        if of_torch is None or torch is None:
            return None, None
        total = float(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory) / 1e9
        return of_torch[0], total - of_torch[0]

    def _cpu(self) -> float | None:
        """Percent of all CPUs since the last look; None at the first."""
        try:
            first = (self._proc / "stat").read_text(encoding="ascii").splitlines()[0].split()[1:9]
        except (OSError, IndexError, ValueError):
            return None
        ticks = [int(one) for one in first]
        before, self._busy = self._busy, (sum(ticks) - ticks[3] - ticks[4], sum(ticks))
        if before is None or self._busy[1] <= before[1]:
            return None
        return round(100.0 * (self._busy[0] - before[0]) / (self._busy[1] - before[1]), 1)

    def _network(self) -> tuple[int | None, int | None]:
        """Bytes sent and received over every interface but the loopback, since the machine began."""
        try:
            lines = (self._proc / "net" / "dev").read_text(encoding="ascii").splitlines()[2:]
            rows = [(name.strip(), rest.split()) for name, _, rest in (line.partition(":") for line in lines)]
            ours = [numbers for name, numbers in rows if name != "lo"]
            return sum(int(one[8]) for one in ours), sum(int(one[0]) for one in ours)
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
    """Tell how this worker is, every so often from now on; what is returned ends it.

    active_requests: how many it works on; without, those of `processing`.
    """
    of = reporter()
    return of.sender.every(interval_s, WorkerHealthMonitor(of, Nvml(), active_requests).report_once)
