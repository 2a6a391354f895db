"""Launch holds: jobs whose launch AWS would deny wait, because the deployment lacks a permission.

A hold begins with a denied launch. The fleet record has its scope: a task definition, or every launch. The hold stands
while a denied job of the scope is in the queue. While a denied job pauses, or a job of the scope is being launched, no
job of the hold starts. Then one job of the hold may start in each pass. The first launch that AWS does not deny removes
the scope from the fleet record, which ends the hold.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from gpu_recovery.core.fleet import DeniedLaunches, longest_launch_pause_s
from gpu_recovery.core.missing_permission import EVERYWHERE
from gpu_recovery.core.policy import RecoveryPolicy, duration
from gpu_recovery.core.queue.entry import Entry
from gpu_recovery.core.queue.snapshot import LaunchHold, WaitingJob


def launch_holds(
    entries: Collection[Entry], denied_launches: Mapping[str, DeniedLaunches], policy: RecoveryPolicy, now: datetime
) -> tuple[LaunchHold, ...]:
    """Return the holds of the denied launches.

    Args:
        entries: all queue entries.
        denied_launches: what the fleet record says of denied launches, by scope.
        policy: gives the longest pause.
        now: time of the pass.
    """
    holds = []
    for scope, denied in sorted(denied_launches.items()):
        affected = [entry for entry in entries if scope in (EVERYWHERE, entry.task_definition)]
        members = [entry for entry in affected if entry.lacks and entry.lacks_everywhere == (scope == EVERYWHERE)]
        if members:
            is_closed = any(entry.launching for entry in affected) or any(_pauses(entry, now) for entry in members)
            preempts = now >= denied.at + duration(longest_launch_pause_s(policy))
            holds.append(LaunchHold(scope, denied.permission, is_closed, preempts))
    return tuple(holds)


def _pauses(entry: Entry, now: datetime) -> bool:
    return entry.waits and not entry.held and entry.not_before is not None and entry.not_before > now


class LaunchHolds:
    """The launch holds of one pass. At most one job of each hold starts."""

    def __init__(self, holds: Iterable[LaunchHold]) -> None:
        self._holds = {hold.scope: hold for hold in holds}
        self._closed = {hold.scope for hold in self._holds.values() if hold.is_closed}

    def in_order_of_tries(self, waiting: Sequence[WaitingJob]) -> Sequence[WaitingJob]:
        """Return the jobs of a queue in the order in which they may start.

        In a hold of every launch the jobs with the fewest denials are tried first. AWS may deny only some of the jobs,
        and a job that can be launched ends the hold.
        """
        is_open = EVERYWHERE in self._holds and EVERYWHERE not in self._closed
        return sorted(waiting, key=lambda job: job.denials) if is_open else waiting

    def of(self, job: WaitingJob) -> LaunchHold | None:
        """Return the hold that the job belongs to, closed or not; None if there is none."""
        return self._holds.get(EVERYWHERE) or self._holds.get(job.task_definition)

    def closed(self, job: WaitingJob) -> LaunchHold | None:
        """Return the hold that keeps the job from starting; None if there is none."""
        return next((self._holds[scope] for scope in (EVERYWHERE, job.task_definition) if scope in self._closed), None)

    def begin_launch(self, job: WaitingJob) -> None:
        """Close the holds of the job, which starts in this pass or has jobs suspended for it."""
        self._closed |= {scope for scope in (EVERYWHERE, job.task_definition) if scope in self._holds}
