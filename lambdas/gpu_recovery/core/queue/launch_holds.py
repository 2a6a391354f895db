"""Launch holds: jobs whose launch AWS would deny wait, because the deployment lacks a permission.

A hold begins with a denied launch. The fleet record has its scope: a task definition, or every launch. While a denied
job pauses, or a job of the scope is being launched, no job of the hold starts. Then one job of the hold may start in
each pass, as a probe. The first probe that AWS does not deny removes the scope from the fleet record, which ends the
hold.

AWS will probably deny a probe, so no running job loses work and no host stays idle for a probe. A job of the hold
starts only on hosts that are free. After a day without a denied launch the job counts as every other job: others are
suspended and hosts are kept for the job. On a full cluster a granted permission is noticed when such a job starts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from gpu_recovery.core.fleet import PERMISSION_TOLD_FOR, DeniedLaunches
from gpu_recovery.core.missing_permission import EVERYWHERE
from gpu_recovery.core.queue.entry import Entry
from gpu_recovery.core.queue.snapshot import LaunchHold, WaitingJob


def launch_holds(
    entries: Collection[Entry], denied_launches: Mapping[str, DeniedLaunches], now: datetime
) -> tuple[LaunchHold, ...]:
    """Return the holds of the denied launches.

    Args:
        entries: all queue entries.
        denied_launches: what the fleet record says of denied launches, by scope.
        now: time of the pass.
    """
    holds = []
    for scope, denied in sorted(denied_launches.items()):
        affected = [entry for entry in entries if scope in (EVERYWHERE, entry.task_definition)]
        members = [entry for entry in affected if entry.lacks and entry.lacks_everywhere == (scope == EVERYWHERE)]
        blocks = any(entry.launching for entry in affected) or any(_pauses(entry, now) for entry in members)
        has_precedence = now >= denied.at + PERMISSION_TOLD_FOR
        holds.append(LaunchHold(scope, denied.permission, blocks, has_precedence))
    return tuple(holds)


def _pauses(entry: Entry, now: datetime) -> bool:
    return entry.waits and not entry.held and entry.not_before is not None and entry.not_before > now


class LaunchHolds:
    """The launch holds of one pass. At most one job of each hold starts."""

    def __init__(self, holds: Iterable[LaunchHold]) -> None:
        self._holds = {hold.scope: hold for hold in holds}
        self._blocking = {hold.scope for hold in self._holds.values() if hold.blocks}

    def in_order_of_tries(self, waiting: Sequence[WaitingJob]) -> Sequence[WaitingJob]:
        """Return the jobs of a queue in the order in which they may start.

        In a hold of every launch the jobs with the fewest denials are tried first. AWS may deny only some of the jobs,
        and a job that can be launched ends the hold.
        """
        may_try = EVERYWHERE in self._holds and EVERYWHERE not in self._blocking
        return sorted(waiting, key=lambda job: job.denials) if may_try else waiting

    def is_probe(self, job: WaitingJob) -> bool:
        """Return whether the launch of the job tries whether a missing permission has been granted."""
        return bool(self._scopes(job))

    def may_delay_others(self, job: WaitingJob) -> bool:
        """Return whether jobs may be suspended and hosts kept for the job: no launch of its holds was denied lately."""
        return all(self._holds[scope].has_precedence for scope in self._scopes(job))

    def blocking(self, job: WaitingJob) -> LaunchHold | None:
        """Return the hold that keeps the job from starting; None if there is none."""
        return next((self._holds[scope] for scope in self._scopes(job) if scope in self._blocking), None)

    def begin_launch(self, job: WaitingJob) -> None:
        """Block the holds of the job, which starts in this pass or has jobs suspended for it."""
        self._blocking |= set(self._scopes(job))

    def _scopes(self, job: WaitingJob) -> list[str]:
        return [scope for scope in (EVERYWHERE, job.task_definition) if scope in self._holds]
