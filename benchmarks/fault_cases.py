"""Injected faults: what each leaves behind in the reports of a run, and the truth.

Four instances n0-n3 with four workers each, two instances to a rack, ranks in order. Around every fault the workers
that it leaves alone report as healthy ones do, with five per cent of noise. The cases are made from the mechanisms, not
from what the rules say of them: one that is got wrong stays in the table.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpu_recovery.core.diagnosis.case import Topology, Worker
from gpu_recovery.core.diagnosis.observations import (
    CallTiming,
    Check,
    Delivery,
    EventReport,
    ExitReport,
    FlightReport,
    LockReport,
    LockState,
    LogFinding,
    NcclReport,
    Occupant,
    PairReport,
    Progress,
    Report,
    RequestReport,
    RequestState,
    RpcReport,
    RpcStage,
    SilenceReport,
    StageReport,
    WeightSync,
    WorkerHealth,
    XidReport,
)
from gpu_recovery.core.diagnosis.taxonomy import Cause

AT_S = 1_000_000.0
NODES, WORKERS = 4, 4
TOPOLOGY = Topology.of(Worker(f"w{n}", f"n{n // WORKERS}", f"r{n // WORKERS // 2}", n) for n in range(NODES * WORKERS))
ALL = frozenset(range(NODES * WORKERS))


@dataclass(frozen=True)
class FaultCase:
    """One fault. `causes`: what it may rightly be called; `instances`: where it is, none for the job as a whole."""

    name: str
    family: str
    causes: frozenset[Cause]
    instances: frozenset[str]
    reports: tuple[Report, ...]


def _made(of: Callable[..., Report], worker: int | None = None, age_s: float = 20.0, /, **given: Any) -> Report:
    name = {} if worker is None else {"worker": f"w{worker}", "rank": worker, "instance_id": f"n{worker // WORKERS}"}
    return of(report_id="", at_s=AT_S - age_s, **name, **given)


def healthy(alone: Iterable[int], seed: int) -> list[Report]:
    """What workers that nothing is wrong with report."""
    drawn = random.Random(seed)
    found = []
    for n in sorted(alone):
        noise = drawn.lognormvariate(0, 0.05)
        found += [
            _made(RpcReport, n, connect_s=0.02, send_s=0.1, header_s=2.0 * noise, body_s=0.3, status=200),
            _made(WorkerHealth, n, 5.0, memory_free_gb=20.0 * noise, cpu_percent=40.0 * noise, active_requests=1),
            _made(CallTiming, n, method="train", seconds=1.0 * noise),
            *(_made(Progress, n, 20.0 - 5 * k, value=float(100 + k)) for k in range(4)),
        ]
    return found


def _case(
    name: str,
    family: str,
    cause: Cause | Sequence[Cause],
    instances: Sequence[str],
    reports: Sequence[Report],
    touched: Iterable[int] = (),
) -> FaultCase:
    """With the healthy rest: everybody but those whose calls the fault touches."""
    causes = frozenset({cause} if isinstance(cause, Cause) else cause)
    whole = [*reports, *healthy(ALL - set(touched), seed=len(name))]
    named = tuple(replace(one, report_id=f"{name}-{n}") for n, one in enumerate(whole))
    return FaultCase(name, family, causes, frozenset(instances), named)


def _late(worker: int, stage: RpcStage, **more: Any) -> Report:
    return _made(RpcReport, worker, 10.0, failed_at=stage, timed_out=True, **more)


def _lates(workers: Iterable[int], stage: RpcStage) -> list[Report]:
    return [_late(n, stage) for n in workers]


def _log(worker: int, line: str, kind: str, role: str = "root") -> Report:
    return _made(LogFinding, worker, line=line, kind=kind, role=role)


def _hung(stuck: Iterable[int]) -> list[Report]:
    """All ranks wait in one collective, but for those that never came."""
    return [
        _made(
            FlightReport,
            n,
            group="world",
            members=tuple(sorted(ALL)),
            last_enqueued=9 if n in set(stuck) else 10,
            last_completed=9,
        )
        for n in sorted(ALL)
    ]


def _calls(cases: list[FaultCase]) -> None:
    """RPC, telemetry and places."""
    hang = Cause.WORKER_HANG
    cases += [
        _case("a worker cannot be reached", "rpc", Cause.NETWORK, ["n1"], [_late(5, RpcStage.CONNECT)], [5]),
        _case("a request cannot be sent", "rpc", Cause.NETWORK, ["n2"], [_late(9, RpcStage.SEND)], [9]),
        _case("a worker hangs", "rpc", hang, ["n1"], [_late(5, RpcStage.HEADER)], [5]),
        _case("a body is stuck", "rpc", Cause.NETWORK, ["n3"], [_late(12, RpcStage.BODY)], [12]),
        _case(
            "a method raises",
            "rpc",
            (Cause.WORKER_ERROR, Cause.APPLICATION),
            ["n0"],
            [_made(RpcReport, 2, status=500, server_phase="method", error="KeyError: 'reward'")],
            [2],
        ),
        _case(
            "a request is garbled",
            "rpc",
            Cause.NETWORK,
            ["n0"],
            [_made(RpcReport, 2, status=500, server_phase="deserialise", error="UnpicklingError")],
            [2],
        ),
        _case(
            "a result does not fit",
            "rpc",
            Cause.HOST_MEMORY,
            ["n0"],
            [_made(RpcReport, 2, status=500, server_phase="serialise", error="MemoryError")],
            [2],
        ),
        _case(
            "nobody listens",
            "rpc",
            Cause.WORKER_CRASH,
            ["n2"],
            [
                _made(RpcReport, 8, failed_at=RpcStage.CONNECT, connection_error=True),
                _made(WorkerHealth, 8, 130.0, memory_free_gb=9.0, cpu_percent=30.0),
            ],
            [8],
        ),
        _case(
            "a worker never started",
            "telemetry",
            Cause.WORKER_STARTUP,
            ["n3"],
            [_made(RpcReport, 13, 10.0, timed_out=True)],
            [13],
        ),
        _case(
            "a worker has used up its memory",
            "telemetry",
            Cause.GPU_MEMORY,
            ["n1"],
            [_late(6, RpcStage.HEADER), _made(WorkerHealth, 6, 5.0, memory_free_gb=0.04, cpu_percent=30.0)],
            [6],
        ),
        _case(
            "a worker began and hangs",
            "telemetry",
            hang,
            ["n1"],
            [
                _late(6, RpcStage.HEADER, request_id="q"),
                _made(WorkerHealth, 6, 5.0, memory_free_gb=9.0),
                _made(RequestReport, 6, 60.0, request_id="q", state=RequestState.START),
            ],
            [6],
        ),
        _case(
            "an answer is lost",
            "telemetry",
            Cause.NETWORK,
            ["n1"],
            [
                _late(6, RpcStage.HEADER, request_id="q"),
                _made(RequestReport, 6, 60.0, request_id="q", state=RequestState.START),
                _made(RequestReport, 6, 30.0, request_id="q", state=RequestState.DONE),
            ],
            [6],
        ),
        _case(
            "a node is cut off", "patterns", Cause.NETWORK, ["n2"], _lates(range(8, 12), RpcStage.CONNECT), range(8, 12)
        ),
        _case(
            "a node is cut off and silent",
            "patterns",
            (Cause.NETWORK, Cause.NODE_FAULT),
            ["n2"],
            [
                *_lates(range(8, 12), RpcStage.CONNECT),
                *(_made(WorkerHealth, n, 130.0, memory_free_gb=9.0, cpu_percent=30.0) for n in range(8, 12)),
            ],
            range(8, 12),
        ),
        _case(
            "a rack is cut off",
            "patterns",
            Cause.NETWORK,
            ["n2", "n3"],
            _lates(range(8, 16), RpcStage.CONNECT),
            range(8, 16),
        ),
        _case("the caller is cut off", "patterns", Cause.CALLER, [], _lates(sorted(ALL), RpcStage.CONNECT), ALL),
        _case("everybody hangs", "patterns", hang, [], _lates(sorted(ALL), RpcStage.HEADER), ALL),
        _case(
            "a node hangs",
            "patterns",
            (hang, Cause.NODE_FAULT),
            ["n2"],
            _lates(range(8, 12), RpcStage.HEADER),
            range(8, 12),
        ),
    ]


def _speeds(cases: list[FaultCase]) -> None:
    """Stragglers, stages, stalls and weights."""
    slow = {4: 1.6}
    stages = [
        _made(CallTiming, n, method="step", seconds=(1.5 if n // 2 % 4 == 3 else 1.0) + n / 500, stage=n // 2 % 4)
        for n in sorted(ALL)
    ]
    cases += [
        _case(
            "a straggler",
            "stragglers",
            Cause.STRAGGLER,
            ["n1"],
            [_made(CallTiming, n, method="step", seconds=slow.get(n, 1.0) + n / 500) for n in sorted(ALL)],
        ),
        _case(
            "a slow node",
            "stragglers",
            Cause.STRAGGLER,
            ["n3"],
            [_made(CallTiming, n, method="step", seconds=(1.6 if n > 11 else 1.0) + n / 500) for n in sorted(ALL)],
        ),
        _case("an uneven stage", "stragglers", Cause.UNEVEN_STAGE, [], stages),
        _case(
            "a worker stands still",
            "stragglers",
            Cause.WORKER_HANG,
            ["n0"],
            [_made(Progress, 1, 700.0 - 5.0 * k, value=7.0) for k in range(130)],
            [1],
        ),
        _case(
            "all stand still behind one",
            "stragglers",
            Cause.WORKER_HANG,
            ["n2"],
            [_made(Progress, n, 700.0 - 50.0 * k, value=6.0 if n == 10 else 7.0) for n in ALL for k in range(14)],
            ALL,
        ),
        _case(
            "all stand still",
            "stragglers",
            Cause.WORKER_HANG,
            [],
            [_made(Progress, n, 700.0 - 50.0 * k, value=7.0) for n in ALL for k in range(14)],
            ALL,
        ),
        _case(
            "a slow upload",
            "weight_sync",
            Cause.NETWORK_SLOW,
            ["n0"],
            [_made(WeightSync, 1, upload_s=95.0), _made(WeightSync, 9, download_s=4.0)],
        ),
        _case(
            "a slow download",
            "weight_sync",
            Cause.NETWORK_SLOW,
            ["n2"],
            [_made(WeightSync, 1, upload_s=4.0), _made(WeightSync, 9, download_s=95.0)],
        ),
        _case(
            "a slow metadata server",
            "weight_sync",
            Cause.METADATA_SERVER,
            [],
            [
                *(_made(WeightSync, n, upload_s=95.0 + n) for n in range(4)),
                *(_made(WeightSync, n, download_s=80.0 + n) for n in range(8, 12)),
            ],
        ),
        _case(
            "an adapter's port is down",
            "weight_sync",
            Cause.RDMA,
            ["n2"],
            [
                _made(NcclReport, 9, 40.0, line="NCCL WARN NET/IB : mlx5_1:1 Got async event : port error"),
                *(
                    _made(
                        NcclReport,
                        n,
                        10.0,
                        line="Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, "
                        "OpType=ALLREDUCE) ran for 600060 milliseconds before timing out.",
                    )
                    for n in sorted(ALL)
                ),
            ],
        ),
        _case("two ranks do not come", "collectives", Cause.WORKER_HANG, ["n3"], _hung({12, 14})),
        _case(
            "a rank does not come",
            "collectives",
            Cause.WORKER_HANG,
            ["n2"],
            [*_hung({9}), *_lates(sorted(ALL), RpcStage.HEADER)],
            ALL,
        ),
        _case(
            "a pairwise test convicts",
            "collectives",
            Cause.NETWORK,
            ["n1"],
            [
                _made(PairReport, round=at, instances=pair, passed="n1" not in pair, seconds=1.0)
                for at, pair in ((1, ("n0", "n1")), (1, ("n2", "n3")), (2, ("n0", "n2")), (2, ("n1", "n3")))
            ],
        ),
    ]


def _machines(cases: list[FaultCase]) -> None:
    """GPUs, logs and nodes."""
    timeout = "Watchdog caught collective operation timeout"
    waits = [_log(n, timeout, "collective_timeout", "cascade") for n in sorted(ALL - {6})]
    cases += [
        _case(
            "a GPU falls off the bus",
            "nodes",
            Cause.GPU_FAULT,
            ["n1"],
            [_made(XidReport, 6, xid=79, asks="REBOOT", gpu="2"), *_lates(sorted(ALL), RpcStage.HEADER)],
            ALL,
        ),
        _case(
            "a GPU falls off the bus, and ranks wait",
            "nodes",
            Cause.GPU_FAULT,
            ["n1"],
            [_made(XidReport, 6, xid=79, asks="REBOOT", gpu="2"), *waits],
        ),
        _case(
            "a machine falls silent",
            "nodes",
            (Cause.NODE_FAULT, Cause.NETWORK),
            ["n3"],
            [
                SilenceReport(report_id="", at_s=AT_S, instance_id="n3", silent_s=400.0),
                *_lates(range(12, 16), RpcStage.CONNECT),
            ],
            range(12, 16),
        ),
        _case(
            "a program crashes",
            "nodes",
            (Cause.WORKER_CRASH, Cause.APPLICATION),
            ["n0"],
            [_made(ExitReport, 3, signal=11), *(_made(ExitReport, n, signal=15, by_us=True) for n in ALL - {3})],
        ),
        _case(
            "uncorrected errors grow",
            "gpu_stages",
            Cause.GPU_FAULT,
            ["n2"],
            [
                _made(
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
                _made(
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
        _case(
            "a GPU computes wrongly",
            "gpu_stages",
            (Cause.GPU_FAULT, Cause.NUMERICAL),
            ["n2"],
            [_made(StageReport, 10, stage="rollout", gpu="1", probe=Check.PASSED, synchronised=True, matches=False)],
        ),
        _case(
            "a CUDA error without a cause",
            "gpu_stages",
            Cause.GPU_CONTEXT,
            ["n2"],
            [_made(StageReport, 10, stage="weights_update", gpu="1", error="CUDA error: launch failure")],
        ),
        _case(
            "an uncorrectable error in a log",
            "log_lines",
            Cause.GPU_FAULT,
            ["n1"],
            [_log(6, "CUDA error: uncorrectable ECC error encountered", "hardware_gpu_ecc"), *waits],
        ),
        _case(
            "a program asks too much memory",
            "log_lines",
            Cause.GPU_MEMORY,
            ["n1"],
            [_log(6, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 30 GiB", "cuda_oom"), *waits],
        ),
        _case(
            "a mistake in a configuration",
            "log_lines",
            (Cause.CONFIGURATION, Cause.APPLICATION),
            ["n1"],
            [_log(6, "ConfigAttributeError: Key 'launch' is not in struct", "user_error_config"), *waits],
        ),
        _case(
            "a disk is full",
            "log_lines",
            Cause.STORAGE,
            ["n1"],
            [_log(6, "OSError: [Errno 28] No space left on device", "storage_full"), *waits],
        ),
        _case(
            "a loss is no number",
            "log_lines",
            Cause.NUMERICAL,
            ["n1"],
            [_log(6, "AssertionError: Rank 6: found NaN in local grad norm", "numerical_nan"), *waits],
        ),
        _case(
            "too few GPUs",
            "log_lines",
            Cause.RESOURCES,
            [],
            [_log(0, "Total available GPUs 8 is less than total desired GPUs 16", "insufficient_resources")],
        ),
    ]


def _shared(cases: list[FaultCase]) -> None:
    """Events and locks between train and rollout on one GPU."""
    out_of_memory = _log(4, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 30 GiB", "cuda_oom")
    held = (Occupant(100, 40_000.0, "train"), Occupant(200, 500.0, "rollout"))
    cases += [
        _case(
            "an event is not delivered",
            "event_delivery",
            Cause.EVENT_UNDELIVERED,
            ["n1"],
            [
                _made(
                    EventReport,
                    4,
                    700.0,
                    request_id="e",
                    event="rollout_start",
                    state=Delivery.FAILED,
                    last_state=Delivery.SENT,
                    error="timed out",
                ),
                out_of_memory,
            ],
        ),
        _case(
            "an event is not acknowledged",
            "event_delivery",
            Cause.EVENT_UNPROCESSED,
            ["n1"],
            [
                _made(
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
        _case(
            "train holds the GPU",
            "locks",
            Cause.GPU_NOT_RELEASED,
            ["n1"],
            [
                _made(StageReport, 4, 60.0, stage="weights_update", moment="after", gpu="0", occupants=held),
                _made(StageReport, 4, 30.0, stage="rollout", moment="before", gpu="0", occupants=held),
                out_of_memory,
            ],
        ),
        _case(
            "a dead holder keeps the lock",
            "locks",
            Cause.LOCK_HELD,
            ["n1"],
            [
                _made(
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


def fault_cases() -> tuple[FaultCase, ...]:
    """Every case, in the order of the families above."""
    cases: list[FaultCase] = []
    for add in (_calls, _speeds, _machines, _shared):
        add(cases)
    return tuple(cases)
