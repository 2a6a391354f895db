"""Gang placement: `place` answers for every queued job of one immutable cluster snapshot.

The phases, each in a module of its own:

1. `ordering`                   effective priority, recovering gangs, earlier suspensions, first submission
2. `quota_admission`            quotas by user, priority and group, and the number of running jobs
3. `packing`, `host_selection`  a whole gang or none; small jobs onto hosts in use; one rack or zone for a gang
4. `group_queue`                a job that does not fit waits; its reserved hosts stay reserved
   `launch_holds`               a job that AWS would deny waits, and delays no other job
5. `backfill`                   the first waiting job is promised hosts; others may use the rest
6. `preemption`                 jobs of lower priority are suspended, as few and as cheap as possible
7. `wait_reasons`               every other job gets the reason why it waits
   `unusable_hosts`             the hosts that get no job, in the words of that reason
8. `growth`                     running elastic jobs get the instances that no waiting job can use
9. `idle_checks`                a job that needs a host under an idle check stops the check first

An elastic job takes part with the width that `width` chooses before phase 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import TypeVar

from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.queue import idle_checks
from gpu_recovery.core.queue.group_queue import GroupQueue, PassState
from gpu_recovery.core.queue.growth import groups_in_need, growths, may_grow
from gpu_recovery.core.queue.launch_holds import LaunchHolds
from gpu_recovery.core.queue.ordering import in_queue_order
from gpu_recovery.core.queue.quota_admission import QuotaAdmission
from gpu_recovery.core.queue.snapshot import (
    Assignment,
    Growth,
    Host,
    Placement,
    Rejection,
    RunningJob,
    Snapshot,
    SpareRecall,
)

Grouped = TypeVar("Grouped", Host, RunningJob)


def place(snapshot: Snapshot, policy: RecoveryPolicy, now: datetime) -> Placement:
    """Decide which jobs start where, which jobs are suspended for others, and why the other jobs wait.

    Pure: the same snapshot at the same time has the same answer, in any order of its contents. No GPU is given twice,
    and only free GPUs are given. So a job for which others are suspended starts in a later pass, after they have left.
    """
    placement = _placed(snapshot, policy, now)
    after_checks = idle_checks.after_checks(snapshot)
    if after_checks is None or not idle_checks.may_need_stops(snapshot, placement, now):
        return placement
    return idle_checks.with_stops(snapshot, placement, _placed(after_checks, policy, now), now)


def _placed(snapshot: Snapshot, policy: RecoveryPolicy, now: datetime) -> Placement:
    """Return the placement on the usable hosts."""
    hosts, running = _by_group(snapshot.hosts), _by_group(snapshot.running)
    left = max(0, policy.fleet_suspensions_max - snapshot.recent_preemptions)
    quota = QuotaAdmission(snapshot)
    shared = PassState(policy, now, quota, left, LaunchHolds(snapshot.launch_holds), snapshot.repairs_held_by)
    queues: dict[str, GroupQueue] = {}
    assignments: list[Assignment] = []
    rejections: list[Rejection] = []
    checked, kept = {host.host_id for host in snapshot.hosts if host.free_after_check}, dict[str, tuple[str, ...]]()
    for job in shared.launch_holds.in_order_of_tries(in_queue_order(snapshot.waiting)):
        queue = queues.get(job.group)
        if queue is None:
            queue = queues[job.group] = GroupQueue(hosts.get(job.group, ()), running.get(job.group, ()), shared)
        answer = queue.admit(job)
        if isinstance(answer, Assignment):
            assignments.append(answer)
        else:
            rejections.append(answer)
            if keeps := checked & queue.hosts.held:
                kept[job.job_id] = tuple(sorted(keeps))
                checked -= keeps
    for group in sorted(may_grow(snapshot.running, now) - queues.keys()):
        queues[group] = GroupQueue(hosts.get(group, ()), running.get(group, ()), shared)
    in_need = groups_in_need(rejections) | snapshot.paused
    growing = tuple(growths({group: one for group, one in queues.items() if group not in in_need}, quota, now))
    return Placement(
        tuple(assignments),
        tuple(suspension for queue in queues.values() for suspension in queue.suspensions),
        tuple(rejections),
        tuple(
            queue.backfill_window.reservation
            for _, queue in sorted(queues.items())
            if queue.backfill_window is not None
        ),
        min(
            (
                *(at for queue in queues.values() for at in _next_changes(queue, policy, now)),
                *(job.grows_at for job in snapshot.running if job.grows_at is not None and job.grows_at > now),
            ),
            default=None,
        ),
        quota.left_places,
        tuple(one for one in growing if isinstance(one, Growth)),
        tuple(one for one in growing if isinstance(one, SpareRecall)),
        kept=kept,
    )


def _by_group(items: Iterable[Grouped]) -> dict[str, list[Grouped]]:
    """Return the hosts or jobs by their group."""
    groups: dict[str, list[Grouped]] = {}
    for item in items:
        groups.setdefault(item.group, []).append(item)
    return groups


def _next_changes(queue: GroupQueue, policy: RecoveryPolicy, now: datetime) -> Iterator[datetime]:
    """Yield the future times at which the answer to a waiting job of this queue may change."""
    highest = queue.highest_waiting
    if highest is None:
        return
    times: list[datetime | None] = [*queue.width_waits]
    times += [host.reserved_until for host in queue.hosts.hosts.values() if host.reserved_until]
    for job in queue.forecast.running:
        if queue.backfill_window is not None:
            times.append(job.ends_at)  # an estimate that runs out
        if job.can_suspend and not job.leaving and job.asked <= highest:
            times += [job.demotes_at, job.since + timedelta(seconds=policy.preemption_protect_s)]
    if queue.preemption.capped:
        times.append(now + timedelta(seconds=policy.pending_retry_s))
    yield from (at for at in times if at is not None and at > now)
