"""Start idle checks: health checks of instances that no job uses and that have had no check for a period.

The cycle has listed the instances and the queue for its comparisons, so a cycle that begins no check costs no call.
Before a check begins, the queue is read again: a job may have been placed since. An instance decides again on its own
record (`core/instance/idle_check.py`): the listing may lag.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from gpu_recovery.core import events
from gpu_recovery.core.instance.idle_check import is_due, is_idle
from gpu_recovery.core.instance.record import InstanceStatus, ListedInstance
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.policy import PERCENT_MAX, RecoveryPolicy
from gpu_recovery.core.queue.entry import Entry
from gpu_recovery.core.queue.snapshot import NEEDS_NO_HOSTS, RejectionKind
from gpu_recovery.partial_failures import raise_all
from gpu_recovery.reconciler.cycle import Cycle

STARTS_MAX = 20
"""Upper bound of the idle checks that one cycle starts, so that a large fleet takes no time from other work."""
GROWS_WITHIN = timedelta(minutes=10)
"""Time within which a narrow job that may grow does so. After that its quota or a suspicion keeps it from growing."""
_NOT_FOR_AN_INSTANCE = NEEDS_NO_HOSTS | {RejectionKind.OWN}
"""Wait reasons of a job that could not start on one more instance."""


def start_idle_checks(cycle: Cycle) -> None:
    """Start the idle checks that are due and that the limits allow.

    Raises:
        ExceptionGroup: some checks could not be started. The others were started.
    """
    policy, now = cycle.recovery.policy, cycle.recovery.clock()
    if policy.idle_check_every_s == 0 or policy.observe_only:
        return
    listed = cycle.instances_in((InstanceStatus.AVAILABLE, InstanceStatus.CHECKING), [])
    due = [one for one in listed if is_due(one, policy, now)]
    if not due:
        return
    if not chosen_for_check(listed, due, cycle.queue_entries([]), policy, now):
        return
    # The claims of a job that was placed since are not written yet. Its entry in the queue names its instances.
    chosen = chosen_for_check(listed, due, cycle.recovery.store.load_queue([]), policy, now)
    failures = cycle.recovery.run_each(lambda one: cycle.handle(one.instance_id, events.IdleCheckDue(at=now)), chosen)
    raise_all("not every idle check could be started", failures)


def chosen_for_check(
    listed: Iterable[ListedInstance],
    due: Sequence[ListedInstance],
    entries: Iterable[Entry],
    policy: RecoveryPolicy,
    now: datetime,
) -> list[ListedInstance]:
    """Return the due instances whose check may begin, those without a check for longest first.

    The limits: a share of the idle instances; no instance that a job waits for; and of several idle instances of one
    size in a group, one stays without a check, for the next job.

    Args:
        listed: the instances that are AVAILABLE or CHECKING.
        due: those of them that are due.
        entries: the entries of the queue.
        policy: gives the share.
        now: the time.
    """
    entries = tuple(entries)
    given = {name for entry in entries for name in (*(() if entry.waits else entry.instances), *entry.spares)}
    checked = [one for one in listed if one.check is not None and one.check.idle is not None]
    idle = [one for one in listed if is_idle(one) and one.instance_id not in given]
    left = max(1, (len(idle) + len(checked)) * policy.idle_check_percent // PERCENT_MAX) - len(checked)
    free = Counter(_size(one) for one in idle)
    of_size = free + Counter(_size(one) for one in checked)
    waiting = [entry for entry in entries if _wants_an_instance(entry, policy, now)]
    chosen: list[ListedInstance] = []
    ready = (one for one in due if one.instance_id not in given)
    for one in sorted(ready, key=lambda one: (one.status_at, one.instance_id)):
        if len(chosen) >= min(left, STARTS_MAX):
            break
        size = _size(one)
        is_last = free[size] == 1 and of_size[size] > 1
        if is_last or any(entry.group == one.group and entry.gpus <= one.gpus for entry in waiting):
            continue
        free[size] -= 1
        chosen.append(one)
    return chosen


def _size(instance: ListedInstance) -> tuple[str, int]:
    return instance.group, instance.gpus


def _wants_an_instance(entry: Entry, policy: RecoveryPolicy, now: datetime) -> bool:
    """Return whether the job may need another instance soon: it waits for one, its attempt ends, or it may grow."""
    grows_at = entry.grows_at(policy)
    if entry.grows or (grows_at is not None and now < grows_at + GROWS_WITHIN):
        return True
    if not entry.waits:
        return entry.leaves or entry.status == JobStatus.DIAGNOSING
    return not entry.held and entry.known_short not in _NOT_FOR_AN_INSTANCE
