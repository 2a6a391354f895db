"""Instrumentation of a training process: sends observations to the node agent, for a diagnosis after a failure.

The observations are stages, calls, weight synchronisations, events, locks, progress and health.

    from gpu_recovery_client import diagnosis

    diagnosis.health_reporter()                       # once, in every process
    for step in range(first, last):
        with diagnosis.stage("rollout", step=step):   # ECC, probe, memory and occupants, before and after
            rollout()
        diagnosis.progress(step)

It needs only the standard library, and uses NVML and torch where they exist. A thread sends observations over a local
socket to the agent of the instance. If no agent listens, they are dropped: a training never waits for them.
docs/training.md is the guide.

- reporter.py       identity of this process, and its reporter
- sender.py         the queue, the thread, the socket
- stages.py         GPU checks before and after a stage
- gpu_probe.py      a computation with a known result
- gpu_state.py      what NVML reports: ECC errors, memory, processes
- timings.py        calls of workers, weight synchronisations, progress
- step_times.py     intervals between two changes of the progress
- worker_health.py  memory, CPU, network and requests of a worker
- nccl_log.py       lines of NCCL's log
- event_tracker.py  events between train and rollout
- worker_endpoint.py  the worker's side of these events, and of heartbeats
- call_heartbeat.py   heartbeats to a worker during a call
- partial_results.py  the results of most workers, without the slowest
- gpu_locks.py      GPU locks of an instance; leases.py: of a job
- errors.py         the error that a stage may raise
"""

from __future__ import annotations

from .call_heartbeat import call_heartbeat
from .errors import GPUHealthError
from .event_tracker import EventTracker, event_tracker
from .gpu_locks import GpuLock
from .nccl_log import nccl_log_monitor
from .partial_results import most_results
from .reporter import configure
from .stages import operation, stage
from .timings import pause, progress, rpc_timing, weight_sync_timing
from .worker_endpoint import ReceivedEvent, WorkerEndpoint, worker_endpoint
from .worker_health import health_reporter, processing

__all__ = [
    "EventTracker",
    "GPUHealthError",
    "GpuLock",
    "ReceivedEvent",
    "WorkerEndpoint",
    "call_heartbeat",
    "configure",
    "event_tracker",
    "health_reporter",
    "most_results",
    "nccl_log_monitor",
    "operation",
    "pause",
    "processing",
    "progress",
    "rpc_timing",
    "stage",
    "weight_sync_timing",
    "worker_endpoint",
]
