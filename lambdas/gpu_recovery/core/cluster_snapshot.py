"""Cluster snapshot of a scheduler pass, built from the queue entries and the instance records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from gpu_recovery.core.fleet import Fleet, holding_limit
from gpu_recovery.core.instance.fault_history import grade
from gpu_recovery.core.instance.idle_check import gpus_after_idle_check, has_passed
from gpu_recovery.core.instance.out_of_use import out_of_use
from gpu_recovery.core.instance.record import InstanceStatus, ListedInstance
from gpu_recovery.core.policy import RecoveryPolicy, duration
from gpu_recovery.core.queue.entry import NOTHING, Entry, running_job, waiting_job
from gpu_recovery.core.queue.launch_holds import launch_holds
from gpu_recovery.core.queue.quota import QuotaKey, QuotaLimits
from gpu_recovery.core.queue.run_time_estimates import JobKind, UsualRunTime
from gpu_recovery.core.queue.snapshot import NEEDS_NO_HOSTS, Host, RejectionKind, Snapshot, WaitingJob

WAITING_MAX = 200
"""Upper bound of the jobs of the other backend to which a pass leaves places."""
NO_LIMITS = Fleet()
"""A fleet record that holds no repair and no launch."""


def snapshot_of(
    entries: Collection[Entry],
    instances: Iterable[ListedInstance],
    policy: RecoveryPolicy,
    now: datetime,
    used: Mapping[QuotaKey, int],
    limits: QuotaLimits,
    usual: Mapping[JobKind, UsualRunTime] = NOTHING,
    fleet: Fleet = NO_LIMITS,
    on_ray: Iterable[Entry] = (),
) -> Snapshot:
    """Return one view of the jobs that may start now, the jobs that hold quota, and all instances.

    A gang between two attempts that may not start yet counts as running, but without instances.

    Args:
        entries: the queue entries.
        instances: the instance records.
        policy: gives reservations and priorities.
        now: time of the pass.
        used: instances in use, by quota.
        limits: limits of the quotas.
        usual: usual run time by kind of job.
        fleet: the fleet record: launches that AWS denies, and what holds repairs.
        on_ray: the queue entries of jobs on Ray, if the number of running jobs is limited.
    """
    instances = tuple(instances)
    by_id = {instance.instance_id: instance for instance in instances}
    groups = {instance.instance_id: instance.group for instance in instances}
    entries = [_in_home_group(entry, groups) for entry in entries]
    reserved, promised = _reserved_for(entries, policy, now), _promised(entries)
    kept = {instance_id: entry for entry in entries for instance_id in entry.kept}
    paused = (entry for entry in entries if entry.waits and entry.holds_quota and not entry.may_start(now))
    return Snapshot(
        waiting=tuple(
            replace(waiting_job(entry, policy, now, usual), returning=_returning(entry, by_id))
            if entry.nodes_min
            else waiting_job(entry, policy, now, usual)
            for entry in entries
            if entry.may_start(now)
        ),
        running=(
            *(running_job(entry, policy, now, usual) for entry in entries if not entry.waits),
            *(replace(running_job(entry, policy, now), hosts=()) for entry in paused),
        ),
        hosts=tuple(
            _host(
                instance,
                reserved,
                promised.get(instance.instance_id, {}),
                _lemon(instance, policy, now),
                kept.get(instance.instance_id),
                now,
            )
            for instance in instances
        ),
        used=used,
        limits=limits,
        recent_preemptions=sum(entry.recent_preemptions(policy, now) for entry in entries),
        launch_holds=launch_holds(entries, fleet.denied_launches, now),
        repairs_held_by=holding_limit(fleet, policy, now),
        elsewhere=running_by_user(on_ray),
        paused=frozenset(entry.group for entry in entries if _pauses(entry, now)),
    )


def _pauses(entry: Entry, now: datetime) -> bool:
    """Return whether the job waits for the time of its next try, and will need hosts then."""
    waits = entry.waits and not entry.held and not entry.may_start(now)
    return waits and entry.known_short not in NEEDS_NO_HOSTS


def running_by_user(entries: Iterable[Entry]) -> Mapping[str, int]:
    """Return the number of jobs by user that count as running: they hold GPUs, or keep their quota while they wait."""
    return Counter(entry.user for entry in entries if not entry.waits or entry.holds_quota)


def waiting_for_a_place(entries: Iterable[Entry], policy: RecoveryPolicy, now: datetime) -> tuple[WaitingJob, ...]:
    """Return the first jobs that wait for nothing but a place among the running jobs, as far as their pass has said.

    A job that its pass has not seen yet is one of them. A job that lacks GPUs is none: a place would stay empty.
    """
    waiting = (
        waiting_job(entry, policy, now)
        for entry in entries
        if entry.may_start(now) and not entry.holds_quota and (entry.fresh or entry.known_short == RejectionKind.JOBS)
    )
    return tuple(sorted(waiting, key=lambda job: (-job.priority, job.queued_at, job.job_id))[:WAITING_MAX])


def _in_home_group(entry: Entry, groups: Mapping[str, str]) -> Entry:
    """Return the entry with the group of its instances, because tasks that a user started by hand name no group."""
    if entry.group:
        return entry
    group = next((groups[instance_id] for instance_id in entry.instances if groups.get(instance_id)), "")
    return replace(entry, group=group) if group else entry


def _returning(entry: Entry, instances: Mapping[str, ListedInstance]) -> int:
    """Return the number of usable instances of the last attempt that still have its claim, which is being released.

    Instances that the job leaves do not count: a check takes their claim over.
    """
    others = {*entry.kept, *entry.let_go, *entry.suspects}
    own = (instances[name] for name in entry.instances if name in instances and name not in others)
    return sum(entry.job_id in instance.claims and is_usable(instance) for instance in own)


def _reserved_for(entries: Iterable[Entry], policy: RecoveryPolicy, now: datetime) -> dict[str, tuple[str, datetime]]:
    """Return, by vacated instance, the job that it is reserved for and the end of the reservation."""
    queued = {entry.job_id for entry in entries if entry.waits and not entry.held}
    reserved: dict[str, tuple[str, datetime]] = {}
    for entry in entries:
        if entry.waits and entry.suspended_at is not None and entry.suspended_for in queued:
            until = entry.suspended_at + duration(policy.vacated_reservation_s)
            if until > now:
                reserved |= dict.fromkeys(entry.instances, (entry.suspended_for, until))
    return reserved


def _promised(entries: Iterable[Entry]) -> dict[str, dict[str, int]]:
    """Return the assigned GPUs of placed jobs by instance and job. Their claims may not be written yet."""
    promised: dict[str, dict[str, int]] = {}
    for entry in entries:
        if not (entry.waits or entry.works or entry.leaves):
            for instance_id in filter(None, entry.instances):
                promised.setdefault(instance_id, {})[entry.job_id] = entry.gpus
    return promised


def _lemon(instance: ListedInstance, policy: RecoveryPolicy, now: datetime) -> float:
    return grade(instance.past, now) if instance.past and policy.lemon_order else 0.0


def gpus_kept(instance: ListedInstance, job_id: str, attempt: int) -> int:
    """Return the number of GPUs that the job still claims, for its next attempt.

    The claim is that of its last attempt, or that of a warm spare, which an earlier attempt may have started.
    """
    claim = instance.claims.get(job_id)
    return claim.gpus if claim is not None and claim.attempt <= attempt else 0


def _host(
    instance: ListedInstance,
    reserved: Mapping[str, tuple[str, datetime]],
    promised: Mapping[str, int],
    lemon: float,
    keeps: Entry | None,
    now: datetime,
) -> Host:
    """Return the instance as the queue sees it. `keeps`: the entry of the job that may use its claim again."""
    reserved_for, until = reserved.get(instance.instance_id, ("", None))
    if instance.reserved_for:
        reserved_for, until = instance.reserved_for, None
    free_again = gpus_kept(instance, keeps.job_id, keeps.attempt) if keeps is not None else 0
    if keeps is not None and free_again:
        reserved_for, until = keeps.job_id, None
    departure = instance.departure
    unclaimed = sum(gpus for job_id, gpus in promised.items() if job_id not in instance.claims)
    after_check, check_id = gpus_after_idle_check(instance, now) if not (reserved_for or unclaimed) else (0, "")
    return Host(
        host_id=instance.instance_id,
        group=instance.group,
        gpus=instance.gpus,
        free=instance.gpus_to_give(unclaimed) + free_again,
        usable=is_usable(instance),
        counts=instance.status not in (InstanceStatus.GONE, InstanceStatus.QUARANTINED),
        epoch=instance.epoch,
        rack=instance.rack,
        zone=instance.availability_zone,
        reserved_for=reserved_for,
        reserved_until=until,
        port_offsets=tuple(sorted(claim.port_offset for claim in instance.claims.values())),
        leaves_at=departure.leaves_at if departure is not None else None,
        lemon=lemon,
        out_of_use=out_of_use(instance),
        healed_at=instance.healed_at,
        free_after_check=after_check,
        check_id=check_id,
        passed_check=has_passed(instance, now),
    )


def is_usable(instance: ListedInstance) -> bool:
    """Return whether the instance may be given to a job: it is AVAILABLE and nothing puts it out of use."""
    return instance.status is InstanceStatus.AVAILABLE and out_of_use(instance) is None
