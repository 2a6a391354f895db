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

from gpu_recovery_client.diagnosis.errors import GPUHealthError
from gpu_recovery_client.diagnosis.event_tracker import EventTracker, event_tracker
from gpu_recovery_client.diagnosis.gpu_locks import GpuLock
from gpu_recovery_client.diagnosis.nccl_log import nccl_log_monitor
from gpu_recovery_client.diagnosis.reporter import configure
from gpu_recovery_client.diagnosis.stages import operation, stage
from gpu_recovery_client.diagnosis.timings import progress, rpc_timing, weight_sync_timing
from gpu_recovery_client.diagnosis.worker_health import health_reporter, processing

__all__ = [
    "EventTracker",
    "GPUHealthError",
    "GpuLock",
    "configure",
    "event_tracker",
    "health_reporter",
    "nccl_log_monitor",
    "operation",
    "processing",
    "progress",
    "rpc_timing",
    "stage",
    "weight_sync_timing",
]
