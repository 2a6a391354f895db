"""Fault cases of calls to workers: a single worker, a whole node, a rack, or all workers."""

from __future__ import annotations

from gpu_recovery.core.diagnosis.observations import (
    RequestReport,
    RequestState,
    RpcReport,
    RpcStage,
    WorkerHealth,
)
from gpu_recovery.core.diagnosis.taxonomy import Cause

from benchmarks.fault_cases.case import ALL, FaultCase, case, late, lates, made

HANG = Cause.WORKER_HANG


def rpc_cases() -> list[FaultCase]:
    """Return the cases in which calls between the caller and one worker fail."""
    return [
        case("a worker cannot be reached", "rpc", Cause.NETWORK, ["n1"], [late(5, RpcStage.CONNECT)], [5]),
        case("a request cannot be sent", "rpc", Cause.NETWORK, ["n2"], [late(9, RpcStage.SEND)], [9]),
        case("a worker hangs", "rpc", HANG, ["n1"], [late(5, RpcStage.HEADER)], [5]),
        case("a body is stuck", "rpc", Cause.NETWORK, ["n3"], [late(12, RpcStage.BODY)], [12]),
        case(
            "a method raises",
            "rpc",
            (Cause.WORKER_ERROR, Cause.APPLICATION),
            ["n0"],
            [made(RpcReport, 2, status=500, server_phase="method", error="KeyError: 'reward'")],
            [2],
        ),
        case(
            "a request is garbled",
            "rpc",
            Cause.NETWORK,
            ["n0"],
            [made(RpcReport, 2, status=500, server_phase="deserialise", error="UnpicklingError")],
            [2],
        ),
        case(
            "a result does not fit",
            "rpc",
            Cause.HOST_MEMORY,
            ["n0"],
            [made(RpcReport, 2, status=500, server_phase="serialise", error="MemoryError")],
            [2],
        ),
        case(
            "nobody listens",
            "rpc",
            Cause.WORKER_CRASH,
            ["n2"],
            [
                made(RpcReport, 8, failed_at=RpcStage.CONNECT, connection_error=True),
                made(WorkerHealth, 8, 130.0, memory_free_gb=9.0, cpu_percent=30.0),
            ],
            [8],
        ),
    ]


def telemetry_cases() -> list[FaultCase]:
    """Return the cases in which only the observations of the worker show the cause of the failed call."""
    return [
        case(
            "a worker never started",
            "telemetry",
            Cause.WORKER_STARTUP,
            ["n3"],
            [made(RpcReport, 13, 10.0, timed_out=True)],
            [13],
        ),
        case(
            "a worker has used up its memory",
            "telemetry",
            Cause.GPU_MEMORY,
            ["n1"],
            [late(6, RpcStage.HEADER), made(WorkerHealth, 6, 5.0, memory_free_gb=0.04, cpu_percent=30.0)],
            [6],
        ),
        case(
            "a worker began and hangs",
            "telemetry",
            HANG,
            ["n1"],
            [
                late(6, RpcStage.HEADER, request_id="q"),
                made(WorkerHealth, 6, 5.0, memory_free_gb=9.0),
                made(RequestReport, 6, 60.0, request_id="q", state=RequestState.START),
            ],
            [6],
        ),
        case(
            "an answer is lost",
            "telemetry",
            Cause.NETWORK,
            ["n1"],
            [
                late(6, RpcStage.HEADER, request_id="q"),
                made(RequestReport, 6, 60.0, request_id="q", state=RequestState.START),
                made(RequestReport, 6, 30.0, request_id="q", state=RequestState.DONE),
            ],
            [6],
        ),
    ]


def pattern_cases() -> list[FaultCase]:
    """Return the cases in which calls fail on a whole node, on a rack, or on all workers."""
    return [
        case(
            "a node is cut off", "patterns", Cause.NETWORK, ["n2"], lates(range(8, 12), RpcStage.CONNECT), range(8, 12)
        ),
        case(
            "a node is cut off and silent",
            "patterns",
            (Cause.NETWORK, Cause.NODE_FAULT),
            ["n2"],
            [
                *lates(range(8, 12), RpcStage.CONNECT),
                *(made(WorkerHealth, n, 130.0, memory_free_gb=9.0, cpu_percent=30.0) for n in range(8, 12)),
            ],
            range(8, 12),
        ),
        case(
            "a rack is cut off",
            "patterns",
            Cause.NETWORK,
            ["n2", "n3"],
            lates(range(8, 16), RpcStage.CONNECT),
            range(8, 16),
        ),
        case("the caller is cut off", "patterns", Cause.CALLER, [], lates(sorted(ALL), RpcStage.CONNECT), ALL),
        case("everybody hangs", "patterns", HANG, [], lates(sorted(ALL), RpcStage.HEADER), ALL),
        case(
            "a node hangs",
            "patterns",
            (HANG, Cause.NODE_FAULT),
            ["n2"],
            lates(range(8, 12), RpcStage.HEADER),
            range(8, 12),
        ),
    ]
