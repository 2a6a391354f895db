"""What a training tells for a diagnosis, should it fail: stages, calls, weight updates, notices, locks, health.

    from gpu_recovery_client import diagnosis

    diagnosis.health_reporter()                       # once, in every process
    for step in range(first, last):
        with diagnosis.stage("rollout", step=step):   # ECC, probe, memory and occupants, before and after
            rollout()
        diagnosis.progress(step)

Only the standard library; NVML and torch where they are. What is told goes to the agent of the instance over a local
socket, in a thread, and is dropped where nobody listens: a training never waits for it. docs/training.md says more.

    telling.py   who tells               sending.py   the queue, the thread, the socket
    stages.py    probe.py   gpus.py      timings.py   health.py   nccl.py   events.py   locks.py   errors.py
"""

from __future__ import annotations

from .errors import GPUHealthError
from .events import EventTracker, event_tracker
from .health import health_reporter, processing
from .locks import GpuLock
from .nccl import nccl_log_monitor
from .stages import operation, stage
from .telling import configure
from .timings import progress, rpc_timing, weight_sync_timing

__all__ = [
    "EventTracker", "GPUHealthError", "GpuLock", "configure", "event_tracker", "health_reporter", "nccl_log_monitor",
    "operation", "processing", "progress", "rpc_timing", "stage", "weight_sync_timing",
]  # fmt: skip
