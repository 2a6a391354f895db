"""The idle check in the record of an instance: the check under way, and the results that later decisions read.

An idle check is a health check of an instance that no job uses. It gives way to a job at once (`idle_check.py`).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from gpu_recovery.core.lazy_dataclass import frozen_dataclass

PASS_COUNTS_FOR = timedelta(days=1)
"""Time for which a passed idle check is evidence for its instance. A fault after the pass ends that at once."""


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
