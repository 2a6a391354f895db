"""Answers of nvidia-smi for the tests of the preflight, and the names of its steps."""

from __future__ import annotations

STEPS = ("gpu_count", "recovery_action", "nvlink_fabric", "rdma_devices", "nccl_loopback", "dcgm_level_1")


def xml(*actions: str, fabric: str = "") -> str:
    """An answer of `nvidia-smi -q -x` with a GPU for each recovery action."""
    gpus = "".join(
        f"<gpu id='{n}'><uuid>GPU-{n}</uuid><gpu_recovery_action>{action}</gpu_recovery_action>{fabric}</gpu>"
        for n, action in enumerate(actions)
    )
    return f"<?xml version='1.0'?>\n<nvidia_smi_log>{gpus}</nvidia_smi_log>"
