"""Parser of `gpuDevices` of a container instance: the sharing mode of each GPU.

DescribeContainerInstances returns the field for instances that support GPU sharing (ECS API reference, GpuDevice;
botocore 1.44.8 has it, 1.43.106 does not). botocore drops members that its model lacks. With an older SDK the field is
therefore missing, and the GPUs count as before. Whether the event of a container instance has the field is not
documented.
"""

from __future__ import annotations

from typing import NamedTuple

from gpu_recovery.aws.fields import Fields

IDLE, NVIDIA_MPS = "IDLE", "NVIDIA_MPS"
"""Sharing modes. DEDICATED and unknown modes count as taken."""
MODE_CHARACTERS_MAX = 64


class GpuSharing(NamedTuple):
    """How the GPUs of an instance are used.

    idle:   GPUs without a container.
    shared: GPUs that containers share by MPS.
    """

    idle: int
    shared: int


def gpu_sharing(instance: Fields) -> GpuSharing | None:
    """Return how the GPUs are used; None if the description has no GPU devices.

    Args:
        instance: the container instance.
    """
    devices = instance.each("gpuDevices") if instance.values.get("gpuDevices") else []
    if not devices:
        return None
    modes = [device.text("sharingMode", MODE_CHARACTERS_MAX) for device in devices]
    # A count above 0 contradicts IDLE: such a GPU is not free.
    idle = sum(mode == IDLE and not device.whole("containerCount") for mode, device in zip(modes, devices, strict=True))
    return GpuSharing(idle, modes.count(NVIDIA_MPS))
