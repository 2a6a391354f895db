"""The daemon of NVIDIA MPS in health reports of ECS: told apart from a fault of a GPU.

Since release 1.107.0 the ECS agent has two health checks of the type ACCELERATED_COMPUTE on EC2. One is about the GPUs.
The other is about the MPS daemon, which containers that share a GPU need: it is IMPAIRED after three probes in a row
have failed (agent/doctor/mps_daemon_healthcheck.go and ecs-agent/utils/mps/mps.go of aws/amazon-ecs-agent, pull
requests 5124 and 5125). A container with whole GPUs needs no MPS daemon, so the report is no reason to check or to
repair an instance.
"""

from __future__ import annotations

import re

from gpu_recovery.core.health_signals import HealthKind, HealthStatus

BY_SHARING_MODE = "ECS gives no reason; its GPUs are shared by NVIDIA MPS, so this is about the MPS daemon"
"""Sentence of a report without a reason about an instance with GPUs in the sharing mode NVIDIA_MPS."""
_MPS = re.compile(r"(?<![a-z])mps(?![a-z])", re.IGNORECASE)
"""The daemon, its program or its folder in a reason: "mps control daemon probe failed", "nvidia-cuda-mps-control",
"/run/mps-ecs"."""
_XID = re.compile(r"\bXID[ _]\d")


def names_mps_daemon(sentence: str) -> bool:
    """Return whether a reason of ECS is about the MPS daemon. A reason that also names an XID is about a GPU."""
    return bool(_MPS.search(sentence)) and not _XID.search(sentence)


def reason_by_sharing(kind: HealthKind, status: HealthStatus, sentence: str, gpus_shared: int) -> str:
    """Return the sentence of a report; without a reason, the one that the sharing modes of the GPUs give.

    Args:
        kind: the health source.
        status: its status.
        sentence: its reason; "" if it gives none.
        gpus_shared: number of GPUs of the instance that containers share by MPS.
    """
    is_impaired_gpu = kind is HealthKind.ACCELERATED_COMPUTE and status is HealthStatus.IMPAIRED
    return BY_SHARING_MODE if is_impaired_gpu and not sentence and gpus_shared > 0 else sentence
