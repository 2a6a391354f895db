"""Stop the idle checks that a pass of the scheduler has found in the way of a job."""

from __future__ import annotations

from gpu_recovery.core import events
from gpu_recovery.core.queue.snapshot import CheckToStop, Placement
from gpu_recovery.recovery import Recovery


def stop_checks(recovery: Recovery, placement: Placement) -> list[Exception]:
    """Order the stop of each idle check that a job waits for, and return the failures.

    The instance is given to the job in a later pass, when the end of the check is confirmed. An order that is not
    delivered is repeated by the next pass.
    """

    def stop(check: CheckToStop) -> None:
        event = events.IdleCheckPreempted(at=recovery.clock(), check_id=check.check_id, job_id=check.job_id)
        recovery.handle(check.host_id, event)

    return recovery.run_each(stop, placement.stops)
