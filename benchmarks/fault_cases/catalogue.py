"""Catalogue of all fault cases."""

from __future__ import annotations

from benchmarks.fault_cases.calls import pattern_cases, rpc_cases, telemetry_cases
from benchmarks.fault_cases.case import FaultCase
from benchmarks.fault_cases.instances import gpu_stage_cases, instance_cases, log_line_cases
from benchmarks.fault_cases.progress import collective_cases, straggler_cases, weight_sync_cases
from benchmarks.fault_cases.shared_gpus import event_delivery_cases, gpu_lock_cases

FAMILIES = (
    rpc_cases,
    telemetry_cases,
    pattern_cases,
    straggler_cases,
    weight_sync_cases,
    collective_cases,
    instance_cases,
    gpu_stage_cases,
    log_line_cases,
    event_delivery_cases,
    gpu_lock_cases,
)
"""The functions that return the cases of a family, in the order of the results."""


def fault_cases() -> tuple[FaultCase, ...]:
    """Return every case, in the order of FAMILIES."""
    return tuple(case for cases in FAMILIES for case in cases())
