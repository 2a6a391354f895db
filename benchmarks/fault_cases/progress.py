"""Fault cases of slow or stopped trainings: stragglers, weight transfers, collectives."""

from __future__ import annotations

from gpu_recovery.core.diagnosis.observations import (
    CallTiming,
    NcclReport,
    PairReport,
    ProgressReport,
    RpcStage,
    WeightSyncReport,
)
from gpu_recovery.core.diagnosis.taxonomy import Cause

from benchmarks.fault_cases.case import ALL, FaultCase, case, hung, lates, made


def straggler_cases() -> list[FaultCase]:
    """Return the cases in which workers are slower than the others or make no progress."""
    slow = {4: 1.6}
    stages = [
        made(CallTiming, n, method="step", seconds=(1.5 if n // 2 % 4 == 3 else 1.0) + n / 500, stage=n // 2 % 4)
        for n in sorted(ALL)
    ]
    return [
        case(
            "a straggler",
            "stragglers",
            Cause.STRAGGLER,
            ["n1"],
            [made(CallTiming, n, method="step", seconds=slow.get(n, 1.0) + n / 500) for n in sorted(ALL)],
        ),
        case(
            "a slow node",
            "stragglers",
            Cause.STRAGGLER,
            ["n2"],
            [made(CallTiming, n, method="step", seconds=(1.6 if n // 4 == 2 else 1.0) + n / 500) for n in sorted(ALL)],
        ),
        case(
            "a long last stage without stages in the reports",
            "stragglers",
            Cause.UNEVEN_STAGE,
            [],
            [made(CallTiming, n, method="step", seconds=(1.6 if n > 13 else 1.0) + n / 500) for n in sorted(ALL)],
        ),
        case("an uneven stage", "stragglers", Cause.UNEVEN_STAGE, [], stages),
        case(
            "a worker stands still",
            "stragglers",
            Cause.WORKER_HANG,
            ["n0"],
            [made(ProgressReport, 1, 700.0 - 5.0 * k, value=7.0) for k in range(130)],
            [1],
        ),
        case(
            "all stand still behind one",
            "stragglers",
            Cause.WORKER_HANG,
            ["n2"],
            [made(ProgressReport, n, 700.0 - 50.0 * k, value=6.0 if n == 10 else 7.0) for n in ALL for k in range(14)],
            ALL,
        ),
        case(
            "all stand still",
            "stragglers",
            Cause.WORKER_HANG,
            [],
            [made(ProgressReport, n, 700.0 - 50.0 * k, value=7.0) for n in ALL for k in range(14)],
            ALL,
        ),
    ]


def weight_sync_cases() -> list[FaultCase]:
    """Return the cases in which transfers of weights are slow or fail."""
    return [
        case(
            "a slow upload",
            "weight_sync",
            Cause.NETWORK_SLOW,
            ["n0"],
            [made(WeightSyncReport, 1, upload_s=95.0), made(WeightSyncReport, 9, download_s=4.0)],
        ),
        case(
            "a slow download",
            "weight_sync",
            Cause.NETWORK_SLOW,
            ["n2"],
            [made(WeightSyncReport, 1, upload_s=4.0), made(WeightSyncReport, 9, download_s=95.0)],
        ),
        case(
            "a slow metadata server",
            "weight_sync",
            Cause.METADATA_SERVER,
            [],
            [
                *(made(WeightSyncReport, n, upload_s=95.0 + n) for n in range(4)),
                *(made(WeightSyncReport, n, download_s=80.0 + n) for n in range(8, 12)),
            ],
        ),
        case(
            "an adapter's port is down",
            "weight_sync",
            Cause.RDMA,
            ["n2"],
            [
                made(NcclReport, 9, 40.0, line="NCCL WARN NET/IB : mlx5_1:1 Got async event : port error"),
                *(
                    made(
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
    ]


def collective_cases() -> list[FaultCase]:
    """Return the cases in which a rank does not join a collective, and a case with a pairwise network test."""
    return [
        case("two ranks do not come", "collectives", Cause.WORKER_HANG, ["n3"], hung({12, 14})),
        case(
            "a rank does not come",
            "collectives",
            Cause.WORKER_HANG,
            ["n2"],
            [*hung({9}), *lates(sorted(ALL), RpcStage.HEADER)],
            ALL,
        ),
        case(
            "a pairwise test convicts",
            "collectives",
            Cause.NETWORK,
            ["n1"],
            [
                made(PairReport, round=at, instances=pair, passed="n1" not in pair, seconds=1.0)
                for at, pair in ((1, ("n0", "n1")), (1, ("n2", "n3")), (2, ("n0", "n2")), (2, ("n1", "n3")))
            ],
        ),
    ]
