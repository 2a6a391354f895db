"""Which job gets which GPUs next: `place` reads one frozen view of the cluster and answers for everyone in it.

The phases, each in a room of its own:

1. order       the line: effective priority, recovering gangs, those that made room before, first submission
2. allowance   quotas by user, priority and group, and how many jobs may run
3. packing     whole gangs or nothing; small jobs onto hosts in use; one rack or zone for a gang
4. line        who does not fit waits, and keeps what is his
5. backfill    the first that waits is promised hosts; others may use what that leaves over
6. preemption  those of lower priority make room, few and cheaply
7. reasons     everybody else hears what is missing
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import TypeVar

from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.queue.group_queue import GroupQueue, PassState
from gpu_recovery.core.queue.ordering import in_queue_order
from gpu_recovery.core.queue.quota_admission import QuotaAdmission
from gpu_recovery.core.queue.snapshot import Assignment, Host, Placement, Rejection, RunningJob, Snapshot

Grouped = TypeVar("Grouped", Host, RunningJob)


def place(snapshot: Snapshot, policy: RecoveryPolicy, now: datetime) -> Placement:
    """Who starts where, who makes room for whom, and what each of the others waits for.

    Pure: the same snapshot at the same time has the same answer, in whatever order it lists things. No GPU is given
    twice, and none that is not free already: whom others make room for starts in a later pass, when they have left.
    """
    hosts, running = _by_group(snapshot.hosts), _by_group(snapshot.running)
    left = max(0, policy.fleet_suspensions_max - snapshot.recent_preemptions)
    shared = PassState(policy, now, QuotaAdmission(snapshot), left)
    lines: dict[str, GroupQueue] = {}
    assignments: list[Assignment] = []
    short: list[Rejection] = []
    for job in in_queue_order(snapshot.waiting):
        line = lines.get(job.group)
        if line is None:
            line = lines[job.group] = GroupQueue(hosts.get(job.group, ()), running.get(job.group, ()), shared)
        answer = line.admit(job)
        if isinstance(answer, Assignment):
            assignments.append(answer)
        else:
            short.append(answer)
    return Placement(
        tuple(assignments),
        tuple(one for line in lines.values() for one in line.suspensions),
        tuple(short),
        tuple(
            line.backfill_window.reservation for _, line in sorted(lines.items()) if line.backfill_window is not None
        ),
        min((at for line in lines.values() for at in _next_changes(line, policy, now)), default=None),
    )


def _by_group(things: Iterable[Grouped]) -> dict[str, list[Grouped]]:
    found: dict[str, list[Grouped]] = {}
    for one in things:
        found.setdefault(one.group, []).append(one)
    return found


def _next_changes(line: GroupQueue, policy: RecoveryPolicy, now: datetime) -> Iterator[datetime]:
    """The times to come at which a job of this line that waits may be answered otherwise."""
    highest = line.highest_waiting
    if highest is None:
        return
    times: list[datetime | None] = [host.reserved_until for host in line.hosts.hosts.values() if host.reserved_until]
    for job in line.forecast.running:
        if line.backfill_window is not None:
            times.append(job.ends_at)  # an estimate that runs out
        if job.can_suspend and not job.leaving and job.asked <= highest:
            times += [job.demotes_at, job.since + timedelta(seconds=policy.preemption_protect_s)]
    if line.preemption.capped:
        times.append(now + timedelta(seconds=policy.pending_retry_s))
    yield from (at for at in times if at is not None and at > now)
