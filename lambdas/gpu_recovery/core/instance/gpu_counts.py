"""Numbers of free GPUs: by our claims, by ECS, and by the sharing modes of the GPUs."""

from __future__ import annotations


def free_gpus(unclaimed: int, gpus_free: int | None) -> int:
    """Return the number of GPUs that are free by our claims and by ECS.

    Args:
        unclaimed: number of GPUs without a claim of ours.
        gpus_free: number of GPUs that ECS reports as free; None if it did not report it.
    """
    return max(0, unclaimed if gpus_free is None else min(unclaimed, gpus_free))


def whole_gpus_free(gpus: int, gpus_free: int | None, gpus_shared: int) -> int | None:
    """Return the number of GPUs that ECS can assign as a whole; None if ECS did not report it.

    A GPU that containers share by MPS is not free for a rank, which needs whole GPUs. Whether the remaining resources
    of ECS count such a GPU is not documented, so the smaller number counts.

    Args:
        gpus: number of registered GPUs.
        gpus_free: number of GPUs that ECS reports as free.
        gpus_shared: number of GPUs that containers share by MPS.
    """
    return None if gpus_free is None else max(0, min(gpus_free, gpus - gpus_shared))
