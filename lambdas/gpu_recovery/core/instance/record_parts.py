"""Parts of the record of an instance: a quarantine that only an operator ends, the idle check, and the free GPUs.

An idle check is a health check of an instance that no job uses. It gives way to a job at once (`idle_check.py`).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from gpu_recovery.core.lazy_dataclass import frozen_dataclass

OF_EARLIER_RELEASE = "an operator, as recorded by an earlier release"
"""`Quarantine.by` of a record without the field. It may be an operator's quarantine, so it is treated as such."""
PASS_COUNTS_FOR = timedelta(days=1)
"""Time for which a passed idle check is evidence for its instance. A fault after the pass ends that at once."""


@frozen_dataclass()
class Quarantine:
    """A quarantine that only an operator ends. It outlasts the registration of the instance with ECS.

    Attributes:
        reason: why the instance was quarantined, as a sentence.
        by: the operator who asked for the quarantine; "" if no operator did.
    """

    since: datetime
    reason: str
    by: str = ""


@frozen_dataclass()
class IdleCheck:
    """What makes a health check an idle check.

    Attributes:
        preempted_by: the job for which the check is being stopped; "" while the check may run to its end.
        preempted_at: time of the order to stop the check; None without an order.
    """

    preempted_by: str = ""
    preempted_at: datetime | None = None


@frozen_dataclass()
class IdleCheckResult:
    """The last idle check of an instance, and the last idle check that the instance passed.

    Attributes:
        ended_at: end of the last idle check.
        outcome: its `CheckOutcome`; "" for a check that was stopped for a job, or that ECS did not start.
        passed_at: end of the last idle check that the instance passed; None if it passed none.
        level: DCGM run level of that check; 0 without such a check.
        failed_level: DCGM run level of an idle check that found a fault, until a check at this level passes; 0 without
            such a fault. A check at a lower level might not find the fault again.
    """

    ended_at: datetime
    outcome: str = ""
    passed_at: datetime | None = None
    level: int = 0
    failed_level: int = 0


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
