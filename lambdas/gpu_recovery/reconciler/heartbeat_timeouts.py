"""Who is not heard of: the heartbeats against the time, each minute, and what ECS and EC2 say when a silence lasts.

Nobody tells that an instance has fallen silent, so the reconciler compares. Too many at once, and it is we who do not
hear: then nothing is concluded from silence until enough of them report again.
"""

from __future__ import annotations

from datetime import datetime

from gpu_recovery.core import events
from gpu_recovery.core.fleet import Fleet, with_reporting
from gpu_recovery.core.health_signals import HealthKind, HealthStatus
from gpu_recovery.core.heartbeat import GpuHealth, Heartbeat, RankHeartbeat, ranks_to_forget
from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.core.liveness import Liveness, boot_event, is_fresh, latest_attempts, liveness
from gpu_recovery.core.notifications import fleet as fleet_notifications
from gpu_recovery.core.policy import within
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
"""The statuses of an instance that should be heard of: one under repair is expected to be silent."""
LISTENS_MAX = 2
"""Attempts to save the fleet limits in one round. Operators are told before each attempt."""


def check_heartbeats(this: Cycle) -> None:
    """Tell who has fallen silent, and what was heard and never told: somebody may have died between the two."""
    failures: list[Exception] = []
    recovery = this.recovery
    records = {one.instance_id: one for one in this.instances_in(MONITORED_STATUSES, failures)}
    beats = recovery.store.load_heartbeats(tuple(records), failures)
    now = recovery.clock()
    forgotten = {one for one, beat in beats.items() if now - beat.seen_at >= within(recovery.policy.heartbeat_forget_s)}
    failures += run_each(lambda one: _forget(recovery, records[one]), sorted(forgotten))
    beats = {one: beat for one, beat in beats.items() if one not in forgotten}
    lost = {one for one, beat in beats.items() if liveness(now - beat.seen_at, recovery.policy) is Liveness.LOST}
    # One that a person must mend anyway may be dead for days: it says nothing of the network.
    in_use = {one for one in beats if records[one].status is not InstanceStatus.QUARANTINED}
    fleet = _update_reporting(recovery, len(lost & in_use), len(in_use), now)
    fresh = [(records[one], beat) for one, beat in beats.items() if one not in lost]
    failures += run_each(lambda one: _deliver_missed(recovery, *one), fresh)
    failures += run_each(lambda one: _forget_ranks(recovery, one), beats.values())
    if fleet is not None and fleet.deaf is None:
        failures += run_each(lambda one: _handle_missing_ranks(recovery, *one), fresh)
        failures += run_each(lambda one: _handle_missing_heartbeat(recovery, records[one], beats[one]), sorted(lost))
        failures += run_each(lambda brakes: alert_silent_agents(recovery, brakes, records, beats), (fleet,))
    raise_all("not every heartbeat could be compared", failures)


def _update_reporting(recovery: Recovery, silent: int, reporting: int, now: datetime) -> Fleet | None:
    """The brakes, with whether so many are silent that it is not the machines; operators are told first, as of any
    brake. None where others write them all the time: the next round looks again, and until then nothing is concluded.
    """

    def listened(before: Fleet) -> Fleet:
        after = with_reporting(before, silent, reporting, recovery.policy, now)
        if after != before:
            recovery.notify(
                fleet_notifications.reporting_outage(after)
                if after.deaf is not None
                else fleet_notifications.reporting_restored(before)
            )
        return after

    try:
        return change_fleet(recovery, listened, LISTENS_MAX)
    except TooManyConflicts:
        return None


def _handle_missing_heartbeat(recovery: Recovery, record: Instance, beat: Heartbeat) -> None:
    heard = _not_ended(recovery, record, beat)
    if record.silent_since is not None:
        # A job that was told while not every rank of it ran did not listen; one that knows is told nothing new.
        sentence = f"last heard of at {record.silent_since:%H:%M:%S} UTC"
        for job_id, attempt in heard.items():
            _handle_lost_rank(recovery, job_id, attempt, beat.instance_id, record.silent_since, sentence)
    elif recovery.store.mark_heartbeat_missing(beat.instance_id, beat.seen_at):
        event = events.InstanceSilent(at=recovery.clock(), seen_at=beat.seen_at, heard=heard)
        recovery.handle(beat.instance_id, event)


def _not_ended(recovery: Recovery, record: Instance, beat: Heartbeat) -> dict[str, int]:
    """The attempts whose ranks had been heard of there, and of which ECS has not confirmed the end."""
    living: dict[str, int] = {}
    for rank in beat.ranks.values():
        claim = record.claims.get(rank.job_id)
        if claim is not None and claim.attempt == rank.attempt and not _has_ended(recovery, rank):
            living[rank.job_id] = rank.attempt
    return living


def _has_ended(recovery: Recovery, rank: RankHeartbeat) -> bool:
    progress = recovery.store.load_progress(rank.job_id, rank.attempt)
    return progress is not None and rank.rank in progress.stopped


def _handle_lost_rank(
    recovery: Recovery, job_id: str, attempt: int, instance_id: str, seen_at: datetime, sentence: str
) -> None:
    event = events.RankSilent(
        at=recovery.clock(), attempt=attempt, instance_id=instance_id, seen_at=seen_at, sentence=sentence
    )
    recovery.handle(job_id, event)


def _forget(recovery: Recovery, record: Instance) -> None:
    """No word for a day: its agent was taken away, and the instance works without one, as those that never had any."""
    if record.silent_since is not None:
        recovery.handle(record.instance_id, events.InstanceHeard(at=recovery.clock()))


def _forget_ranks(recovery: Recovery, beat: Heartbeat) -> None:
    """A heartbeat remembers no more ranks than its item may hold; a report is not kept waiting for that."""
    old = ranks_to_forget(beat)
    if old:
        recovery.store.forget_ranks(beat.instance_id, old)


def _deliver_missed(recovery: Recovery, record: Instance, beat: Heartbeat) -> None:
    if record.silent_since is not None:
        # Of the ranks that are remembered, those that the latest report spoke of; others are asked for at the job.
        latest = {log: rank for log, rank in beat.ranks.items() if rank.seen_at == beat.seen_at}
        recovery.handle(beat.instance_id, events.InstanceHeard(at=beat.seen_at, heard=latest_attempts(latest)))
    if beat.boot_id and beat.boot_id != record.boot_id and beat.booted_at is not None:
        recovery.handle(beat.instance_id, boot_event(beat, recovery.clock()))
    word = _undelivered_health(record, beat)
    if word is not None:
        now = recovery.clock()
        sentence = "" if word is HealthStatus.OK else "so says its agent"
        kind = HealthKind.NODE_AGENT
        recovery.handle(
            beat.instance_id, events.HealthReported(at=now, kind=kind, status=word, since=now, sentence=sentence)
        )


def _undelivered_health(record: Instance, beat: Heartbeat) -> HealthStatus | None:
    """What the agent says of the GPUs, where the record says otherwise: told to nobody, or taken back unheard."""
    known = record.health.get(HealthKind.NODE_AGENT)
    impaired = known is not None and known.status is HealthStatus.IMPAIRED
    if beat.health is GpuHealth.OK and impaired:
        return HealthStatus.OK
    return HealthStatus.IMPAIRED if beat.health is GpuHealth.IMPAIRED and not impaired else None


def _handle_missing_ranks(recovery: Recovery, record: Instance, beat: Heartbeat) -> None:
    """The instance reports, and says nothing of a rank that it used to speak of."""
    for log, rank in beat.ranks.items():
        claim = record.claims.get(rank.job_id)
        if claim is None or claim.attempt != rank.attempt or rank.silent:
            continue
        if is_fresh(rank.seen_at, recovery.clock(), recovery.policy) or _has_ended(recovery, rank):
            continue
        sentence = f"last reported at {rank.seen_at:%H:%M:%S} UTC, while the instance itself reports"
        _handle_lost_rank(recovery, rank.job_id, rank.attempt, beat.instance_id, rank.seen_at, sentence)
        recovery.store.mark_rank_heartbeat_missing(beat.instance_id, int(log), rank.seen_at)
