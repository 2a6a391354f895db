"""Logs of a failed gang of four instances: what each rank wrote before the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.diagnosis.case import History, Topology, Worker
from gpu_recovery.core.diagnosis.diagnose import Diagnosis, diagnose
from gpu_recovery.core.diagnosis.observations import Observation
from gpu_recovery.execution.evidence import log_findings

from tests.aws.records import NOW

RANKS = range(4)
PLAN = Plan("job", 1, tuple(f"i-{rank}" for rank in RANKS))
WHERE = Topology.of(Worker(f"rank {rank}", f"i-{rank}", rank=rank) for rank in RANKS)
MOE_NOTE = (
    "[2025-01-29 08:52:43 TP5] Using default MoE config. Performance might be sub-optimal! Config file not found at "
    "/opt/sglang/configs/E=256,N=256.json"
)
"""SGLang prints this at every start with a mixture-of-experts model for which it has no tuned kernels."""
TIMEOUT = (
    "[rank{0}]:[E ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=5, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600123 milliseconds before timing out."
)
STEPS = ("step 1 loss 2.31", "step 2 loss 2.28", "step 3 loss 2.27")
TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/app/train.py", line 70, in main',
    "    trainer.fit(model)",
    '  File "/app/trainer.py", line 12, in fit',
    '    raise RuntimeError("no space left on device, CUDA out of memory, uncorrectable ECC")',
)
GANGS: Mapping[str, Mapping[int, Sequence[str]]] = {
    "time-out of a collective on all ranks": {rank: [*STEPS, TIMEOUT.format(rank)] for rank in RANKS},
    "an actor that died": {
        0: [*STEPS, "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."]
    },
    "an error of InfiniBand": {
        2: [
            *STEPS,
            "gpu2:1:2 [0] transport/net_ib.cc:2035 NCCL WARN NET/IB: Got completion from peer 10.0.0.2<54862> with "
            "status=12 opcode=0 len=0 vendor err 129 (Recv)",
        ]
    },
    "SIGKILL": {1: [*STEPS, "  exitcode  : -9 (pid: 4242)"]},
    "an illegal access": {3: [*TRACEBACK, "RuntimeError: CUDA error: an illegal memory access was encountered"]},
    "an NVLink error": {2: ["RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution"]},
    "XID 79": {2: ["NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."]},
    "a missing library": {rank: [*TRACEBACK, "ModuleNotFoundError: No module named 'flash_attn'"] for rank in RANKS},
    "an exception of the program": {0: [*STEPS, *TRACEBACK, "KeyError: 'hidden_size'"]},
    "two roots, ten lines apart": {
        1: [
            *STEPS * 2,
            "RuntimeError: CUDA error: uncorrectable ECC error encountered",
            *STEPS,
            "OSError: [Errno 28] No space left on device: '/data/checkpoints/step-4.pt'",
        ]
    },
    "full storage of the checkpoints": {
        0: ["OSError: [Errno 28] No space left on device: '/fsx/checkpoints/step-4.pt'"]
    },
    "the kernel's kill": {
        0: ["Memory cgroup out of memory: Killed process 4242 (python) total-vm:9kB, anon-rss:8kB", TIMEOUT.format(0)]
    },
}


def found_in(logs: Mapping[int, Sequence[str]], more: Sequence[Observation] = ()) -> Diagnosis:
    """Return the diagnosis of the logs, by rank, and of other observations, as the functions make it."""
    findings = [found for rank, lines in logs.items() for found in log_findings(rank, lines, PLAN, NOW)]
    return diagnose([*more, *findings], WHERE, History(), NOW.timestamp())
