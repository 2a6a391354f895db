"""Fault cases of a GPU that train and rollout share: events and locks."""

from __future__ import annotations

from gpu_recovery.core.diagnosis.observations import (
    Delivery,
    EventReport,
    LockReport,
    LockState,
    Occupant,
    StageReport,
)
from gpu_recovery.core.diagnosis.taxonomy import Cause

from benchmarks.fault_cases.case import FaultCase, case, log, made

OUT_OF_MEMORY = log(4, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 30 GiB", "cuda_oom")


def event_delivery_cases() -> list[FaultCase]:
    """Return the cases in which an event between train and rollout is not delivered or not acknowledged."""
    return [
        case(
            "an event is not delivered",
            "event_delivery",
            Cause.EVENT_UNDELIVERED,
            ["n1"],
            [
                made(
                    EventReport,
                    4,
                    700.0,
                    request_id="e",
                    event="rollout_start",
                    state=Delivery.FAILED,
                    last_state=Delivery.SENT,
                    error="timed out",
                ),
                OUT_OF_MEMORY,
            ],
        ),
        case(
            "an event is not acknowledged",
            "event_delivery",
            Cause.EVENT_UNPROCESSED,
            ["n1"],
            [
                made(
                    EventReport,
                    4,
                    700.0,
                    request_id="e",
                    event="rollout_start",
                    state=Delivery.DELIVERED,
                    last_state=Delivery.DELIVERED,
                )
            ],
        ),
    ]


def gpu_lock_cases() -> list[FaultCase]:
    """Return the cases in which a GPU or its lock is not released."""
    held = (Occupant(100, 40_000.0, "train"), Occupant(200, 500.0, "rollout"))
    return [
        case(
            "train holds the GPU",
            "locks",
            Cause.GPU_NOT_RELEASED,
            ["n1"],
            [
                made(StageReport, 4, 60.0, stage="weights_update", moment="after", gpu="0", occupants=held),
                made(StageReport, 4, 30.0, stage="rollout", moment="before", gpu="0", occupants=held),
                OUT_OF_MEMORY,
            ],
        ),
        case(
            "a dead holder keeps the lock",
            "locks",
            Cause.LOCK_HELD,
            ["n1"],
            [
                made(
                    LockReport,
                    4,
                    lock="gpu-0",
                    owner="rollout",
                    state=LockState.TIMED_OUT,
                    holder="train",
                    holder_heard_s=900.0,
                    waited_s=60.0,
                )
            ],
        ),
    ]
