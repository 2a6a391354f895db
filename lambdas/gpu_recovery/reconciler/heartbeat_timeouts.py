"""Heartbeat timeouts: compare every heartbeat with the time, once a minute.

No event reports a missing heartbeat, so the reconciler compares. If too many heartbeats are missing at once, the cause
is taken to be the reporting. Then no missing heartbeat has a consequence until enough instances report again.
"""

from __future__ import annotations

from datetime import datetime

from gpu_recovery.core import events
from gpu_recovery.core.fleet import Fleet, with_reporting
from gpu_recovery.core.health_signals import HealthKind, HealthStatus
from gpu_recovery.core.heartbeat import GpuHealth, Heartbeat, RankHeartbeat, ranks_to_forget
from gpu_recovery.core.instance.liveness import is_missing_heartbeat_expected
from gpu_recovery.core.instance.record import InstanceStatus, ListedInstance
from gpu_recovery.core.liveness import Liveness, boot_event, is_fresh, latest_attempts, liveness
from gpu_recovery.core.notifications import fleet as fleet_notifications
from gpu_recovery.core.policy import duration
from gpu_recovery.fleet_controls import change_fleet
from gpu_recovery.partial_failures import raise_all, run_each
from gpu_recovery.ports.errors import TooManyConflicts
from gpu_recovery.reconciler.agent_alerts import alert_silent_agents
from gpu_recovery.reconciler.cycle import Cycle
from gpu_recovery.recovery import Recovery

MONITORED_STATUSES = (
    InstanceStatus.AVAILABLE,
    InstanceStatus.CHECKING,
    InstanceStatus.VERIFYING,
    InstanceStatus.QUARANTINED,
)
"""Statuses in which a heartbeat is expected. During a repair it is expected to be missing."""
FLEET_SAVE_ATTEMPTS_MAX = 2
"""Upper bound of attempts to save the fleet limits in one cycle. Operators are notified before each attempt."""


def check_heartbeats(cycle: Cycle) -> None:
    """Deliver heartbeat timeouts, and reports that were saved without an event.

    The second case arises if a function was killed after it saved a heartbeat and before it delivered the event.

    Raises:
        ExceptionGroup: some heartbeats could not be compared. The others were handled.
    """
    failures: list[Exception] = []
    recovery = cycle.recovery
    records = {instance.instance_id: instance for instance in cycle.instances_in(MONITORED_STATUSES, failures)}
    beats = recovery.store.load_heartbeats(tuple(records), failures)
    now = recovery.clock()
    cycle.utilisation = {
        name: beat.utilisation
        for name, beat in beats.items()
        if beat.utilisation and is_fresh(beat.seen_at, now, recovery.policy)
    }
    forgotten = {
        name for name, beat in beats.items() if now - beat.seen_at >= duration(recovery.policy.heartbeat_forget_s)
    }
    failures += run_each(lambda name: _forget(recovery, records[name]), sorted(forgotten))
    beats = {name: beat for name, beat in beats.items() if name not in forgotten}
    compared = {
        name: beat
        for name, beat in beats.items()
        if not is_missing_heartbeat_expected(records[name], beat, now, recovery.policy)
    }
    lost = {name for name, beat in compared.items() if liveness(now - beat.seen_at, recovery.policy) is Liveness.LOST}
    # A quarantined instance may be down for days, so its missing heartbeat is no evidence of a reporting outage.
    in_use = {name for name in compared if records[name].status is not InstanceStatus.QUARANTINED}
    fleet = _update_reporting(recovery, len(lost & in_use), len(in_use), now)
    cycle.fleet = fleet or cycle.fleet
    fresh = [(records[name], beat) for name, beat in compared.items() if name not in lost]
    failures += run_each(lambda pair: _deliver_missed(recovery, *pair), fresh)
    failures += run_each(lambda beat: _forget_ranks(recovery, records[beat.instance_id], beat), beats.values())
    if fleet is not None and fleet.deaf is None:
        failures += run_each(lambda pair: _handle_missing_ranks(recovery, *pair), fresh)
        failures += recovery.run_each(
            lambda name: _handle_missing_heartbeat(recovery, records[name], beats[name]), sorted(lost)
        )
        failures += run_each(lambda limits: alert_silent_agents(recovery, limits, records, beats), (fleet,))
    raise_all("not every heartbeat could be compared", failures)


def _update_reporting(recovery: Recovery, silent: int, reporting: int, now: datetime) -> Fleet | None:
    """Save whether a reporting outage begins or ends, and return the fleet limits.

    Operators are notified before the save, as for every fleet limit.

    Args:
        silent: number of instances with a heartbeat timeout.
        reporting: number of instances that have a heartbeat.

    Returns:
        The saved limits; None if other writers won at every attempt. Then this cycle draws no conclusion from missing
        heartbeats, and the next cycle tries again.
    """

    def updated(before: Fleet) -> Fleet:
        after = with_reporting(before, silent, reporting, recovery.policy, now)
        if after != before:
            recovery.notify(
                fleet_notifications.reporting_outage(after)
                if after.deaf is not None
                else fleet_notifications.reporting_restored(before)
            )
        return after

    try:
        return change_fleet(recovery, updated, FLEET_SAVE_ATTEMPTS_MAX)
    except TooManyConflicts:
        return None


def _handle_missing_heartbeat(recovery: Recovery, record: ListedInstance, beat: Heartbeat) -> None:
    """Report a heartbeat timeout to the instance, or a known timeout to jobs that still need the event."""
    attempts = _not_ended(recovery, record, beat)
    if record.silent_since is not None:
        # A job that was still starting ignored the first event. A job that knows of the loss ignores the repeat.
        sentence = f"last report at {record.silent_since:%H:%M:%S} UTC"
        for job_id, attempt in attempts.items():
            _handle_lost_rank(recovery, job_id, attempt, beat.instance_id, record.silent_since, sentence)
    elif recovery.store.mark_heartbeat_missing(beat.instance_id, beat.seen_at):
        event = events.InstanceSilent(at=recovery.clock(), seen_at=beat.seen_at, heard=attempts)
        recovery.handle(beat.instance_id, event)


def _not_ended(recovery: Recovery, record: ListedInstance, beat: Heartbeat) -> dict[str, int]:
    """Return the attempt of each job with a rank in the heartbeat, if ECS has not confirmed the end of that rank."""
    living: dict[str, int] = {}
    for rank in beat.ranks.values():
        claim = record.claims.get(rank.job_id)
        if claim is not None and claim.attempt == rank.attempt and not _has_ended(recovery, rank):
            living[rank.job_id] = rank.attempt
    return living


def _has_ended(recovery: Recovery, rank: RankHeartbeat) -> bool:
    """Return whether ECS has confirmed the end of the rank."""
    progress = recovery.store.load_progress(rank.job_id, rank.attempt)
    return progress is not None and rank.rank in progress.stopped


def _handle_lost_rank(
    recovery: Recovery, job_id: str, attempt: int, instance_id: str, seen_at: datetime, sentence: str
) -> None:
    event = events.RankSilent(
        at=recovery.clock(), attempt=attempt, instance_id=instance_id, seen_at=seen_at, sentence=sentence
    )
    recovery.handle(job_id, event)


def _forget(recovery: Recovery, record: ListedInstance) -> None:
    """Withdraw the heartbeat timeout of an instance that sent no heartbeat for `policy.heartbeat_forget_s` (a day).

    Its agent was removed, and the instance works without an agent, as instances do that never had one.
    """
    if record.silent_since is not None:
        recovery.handle(record.instance_id, events.InstanceHeard(at=recovery.clock()))


def _forget_ranks(recovery: Recovery, record: ListedInstance, beat: Heartbeat) -> None:
    """Remove ended ranks, and ranks above the limit, from a heartbeat. Reports do not wait for this work."""
    old = ranks_to_forget(beat, {job_id: claim.attempt for job_id, claim in record.claims.items()})
    if old:
        recovery.store.forget_ranks(beat.instance_id, old)


def _deliver_missed(recovery: Recovery, record: ListedInstance, beat: Heartbeat) -> None:
    """Deliver the events that follow from a saved heartbeat, where the instance record lacks them."""
    if record.silent_since is not None:
        # Only the ranks of the latest report have been seen. A LOST job checks its other ranks when the job is due.
        latest = {log: rank for log, rank in beat.ranks.items() if rank.seen_at == beat.seen_at}
        recovery.handle(beat.instance_id, events.InstanceHeard(at=beat.seen_at, heard=latest_attempts(latest)))
    if beat.boot_id and beat.boot_id != record.boot_id and beat.booted_at is not None:
        recovery.handle(beat.instance_id, boot_event(beat, recovery.clock()))
    status = _undelivered_health(record, beat)
    if status is not None:
        now = recovery.clock()
        sentence = "" if status is HealthStatus.OK else beat.sentence or "as its agent reports"
        kind = HealthKind.NODE_AGENT
        recovery.handle(
            beat.instance_id, events.HealthReported(at=now, kind=kind, status=status, since=now, sentence=sentence)
        )


def _undelivered_health(record: ListedInstance, beat: Heartbeat) -> HealthStatus | None:
    """Return the GPU health of the heartbeat if the record says otherwise, else None.

    The event was lost: either the impairment or its end was saved with the heartbeat and not delivered.
    """
    known = record.health.get(HealthKind.NODE_AGENT)
    impaired = known is not None and known.status is HealthStatus.IMPAIRED
    if beat.health is GpuHealth.OK and impaired:
        return HealthStatus.OK
    return HealthStatus.IMPAIRED if beat.health is GpuHealth.IMPAIRED and not impaired else None


def _handle_missing_ranks(recovery: Recovery, record: ListedInstance, beat: Heartbeat) -> None:
    """Handle ranks that the heartbeat holds and the latest reports of the instance no longer mention."""
    for log, rank in beat.ranks.items():
        claim = record.claims.get(rank.job_id)
        if claim is None or claim.attempt != rank.attempt or rank.silent:
            continue
        if is_fresh(rank.seen_at, recovery.clock(), recovery.policy) or _has_ended(recovery, rank):
            continue
        sentence = f"last reported at {rank.seen_at:%H:%M:%S} UTC, while the instance itself reports"
        _handle_lost_rank(recovery, rank.job_id, rank.attempt, beat.instance_id, rank.seen_at, sentence)
        recovery.store.mark_rank_heartbeat_missing(beat.instance_id, int(log), rank.seen_at)
