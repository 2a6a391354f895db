"""Fault cases of instances and their GPUs, and fault cases with a cause that a log names."""

from __future__ import annotations

from gpu_recovery.core.diagnosis.observations import (
    Check,
    ExitReport,
    RpcStage,
    SilenceReport,
    StageReport,
    XidReport,
)
from gpu_recovery.core.diagnosis.taxonomy import Cause

from benchmarks.fault_cases.case import ALL, AT_S, FaultCase, case, lates, log, made

TIMEOUT = "Watchdog caught collective operation timeout"
WAITS = [log(n, TIMEOUT, "collective_timeout", "cascade") for n in sorted(ALL - {6})]


def instance_cases() -> list[FaultCase]:
    """Return the cases in which a GPU, an instance or a program fails completely."""
    return [
        case(
            "a GPU falls off the bus",
            "nodes",
            Cause.GPU_FAULT,
            ["n1"],
            [made(XidReport, 6, xid=79, asks="REBOOT", gpu="2"), *lates(sorted(ALL), RpcStage.HEADER)],
            ALL,
        ),
        case(
            "a GPU falls off the bus, and ranks wait",
            "nodes",
            Cause.GPU_FAULT,
            ["n1"],
            [made(XidReport, 6, xid=79, asks="REBOOT", gpu="2"), *WAITS],
        ),
        case(
            "a machine falls silent",
            "nodes",
            (Cause.NODE_FAULT, Cause.NETWORK),
            ["n3"],
            [
                SilenceReport(report_id="", at_s=AT_S, instance_id="n3", silent_s=400.0),
                *lates(range(12, 16), RpcStage.CONNECT),
            ],
            range(12, 16),
        ),
        case(
            "a program crashes",
            "nodes",
            (Cause.WORKER_CRASH, Cause.APPLICATION),
            ["n0"],
            [made(ExitReport, 3, signal=11), *(made(ExitReport, n, signal=15, by_us=True) for n in ALL - {3})],
        ),
    ]


def gpu_stage_cases() -> list[FaultCase]:
    """Return the cases in which a GPU shows errors at the boundary between two stages."""
    return [
        case(
            "uncorrected errors grow",
            "gpu_stages",
            Cause.GPU_FAULT,
            ["n2"],
            [
                made(
                    StageReport,
                    10,
                    60.0,
                    stage="rollout",
                    gpu="1",
                    boot_id="b",
                    corrected=0,
                    uncorrected=0,
                    probe=Check.PASSED,
                    synchronised=True,
                ),
                made(
                    StageReport,
                    10,
                    10.0,
                    stage="weights_update",
                    gpu="1",
                    boot_id="b",
                    corrected=0,
                    uncorrected=3,
                    error="CUDA error: uncorrectable ECC error encountered",
                ),
            ],
        ),
        case(
            "a GPU computes wrongly",
            "gpu_stages",
            (Cause.GPU_FAULT, Cause.NUMERICAL),
            ["n2"],
            [made(StageReport, 10, stage="rollout", gpu="1", probe=Check.PASSED, synchronised=True, matches=False)],
        ),
        case(
            "a CUDA error without a cause",
            "gpu_stages",
            Cause.GPU_CONTEXT,
            ["n2"],
            [made(StageReport, 10, stage="weights_update", gpu="1", error="CUDA error: launch failure")],
        ),
    ]


def log_line_cases() -> list[FaultCase]:
    """Return the cases in which the log of one worker names the fault."""
    return [
        case(
            "an uncorrectable error in a log",
            "log_lines",
            Cause.GPU_FAULT,
            ["n1"],
            [log(6, "CUDA error: uncorrectable ECC error encountered", "hardware_gpu_ecc"), *WAITS],
        ),
        case(
            "a program asks too much memory",
            "log_lines",
            Cause.GPU_MEMORY,
            ["n1"],
            [log(6, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 30 GiB", "cuda_oom"), *WAITS],
        ),
        case(
            "a mistake in a configuration",
            "log_lines",
            (Cause.CONFIGURATION, Cause.APPLICATION),
            ["n1"],
            [log(6, "ConfigAttributeError: Key 'launch' is not in struct", "user_error_config"), *WAITS],
        ),
        case(
            "a disk is full",
            "log_lines",
            Cause.STORAGE,
            ["n1"],
            [log(6, "OSError: [Errno 28] No space left on device", "storage_full"), *WAITS],
        ),
        case(
            "a loss is no number",
            "log_lines",
            Cause.NUMERICAL,
            ["n1"],
            [log(6, "AssertionError: Rank 6: found NaN in local grad norm", "numerical_nan"), *WAITS],
        ),
        case(
            "too few GPUs",
            "log_lines",
            Cause.RESOURCES,
            [],
            [log(0, "Total available GPUs 8 is less than total desired GPUs 16", "insufficient_resources")],
        ),
    ]
