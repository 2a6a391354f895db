"""Lost contact: heartbeat timeouts of ranks. LOST is not FAILED and releases no GPUs.

A job is LOST while a rank that used to report has a missing heartbeat. A heartbeat of the same attempt brings the job
back to RUNNING. An end that ECS confirms acts as in RUNNING. If neither comes until the deadline, ECS and EC2 are asked
about the instance. If neither of them finds it alive, the gang is stopped and the instance is repaired. If they find it
alive, the fault is in the node agent, not in the instance.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.identifiers import attempt_id, listed
from gpu_recovery.core.job import stopping
from gpu_recovery.core.job.completion import INCIDENT_CLOSED
from gpu_recovery.core.job.record import Job, JobStatus, StopPurpose
from gpu_recovery.core.job.stopping import record_only, stop
from gpu_recovery.core.notifications import jobs
from gpu_recovery.core.policy import duration
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step

EXIT_REPORT_WITHIN = timedelta(seconds=15)
"""Time after a reported exit at which ECS is polled, unless ECS has reported the end by then."""


def heartbeat_timed_out(job: Job, event: events.RankSilent, context: DecisionContext) -> Step | Ignore:
    """Record a missing heartbeat. The first makes the job LOST; each later one leaves the deadline unchanged."""
    if event.instance_id in job.silent:
        return Ignore("that is known")
    if event.instance_id not in job.instances:
        return Ignore("no rank of this attempt is there")
    silent = (*job.silent, event.instance_id)
    changes: dict[str, Any] = {"silent": silent, "heard": {**job.heard, event.instance_id: event.seen_at}}
    if job.status is JobStatus.LOST:
        return Step(JobStatus.LOST, _lost(silent, event.sentence), changes)
    decided_at = context.now + duration(context.policy.lost_timeout_s)
    incident = job.incident_id or f"{attempt_id(job.job_id, job.attempt)}/lost/{job.version + 1}"
    note = jobs.contact_lost(job, incident, event.instance_id, event.sentence, decided_at)
    return Step(JobStatus.LOST, _lost(silent, event.sentence), {**changes, "incident_id": incident}, (note,))


def heartbeat_received(job: Job, event: events.RankHeard, context: DecisionContext) -> Step | Ignore:
    """Record a heartbeat of this attempt. When no rank is missing any more, the job is RUNNING again.

    The time is recorded even if no timeout was known, so that a late RankSilent event is recognised as outdated.
    """
    if event.instance_id not in job.instances:
        return Ignore("no rank of this attempt is there")
    changes: dict[str, Any] = {"heard": {**job.heard, event.instance_id: event.at}}
    if event.instance_id not in job.silent:
        return Step(job.status, job.reason, changes)
    left = tuple(instance for instance in job.silent if instance != event.instance_id)
    changes |= {
        "silent": left,
        "found_dead": tuple(instance for instance in job.found_dead if instance != event.instance_id),
    }
    if left:
        return Step(JobStatus.LOST, f"{event.instance_id} reports again, {listed(left)} not yet", changes)
    reason = f"every rank reports again, the last on {event.instance_id}"
    if job.recovery_since is not None:  # the incident is a recovery, which ends when the training has gone on
        return Step(JobStatus.RUNNING, reason, changes)
    return Step(JobStatus.RUNNING, reason, {**changes, **INCIDENT_CLOSED}, (jobs.contact_restored(job, reason),))


def rank_exited(job: Job, event: events.RankExited, context: DecisionContext) -> Step | Ignore:
    """Poll ECS soon, because an exit says neither who ended the rank nor that its GPUs are free.

    ECS usually reports the end by itself within seconds. A large gang that ends brings the poll forward once, not once
    for each rank.
    """
    if event.instance_id not in job.instances:
        return Ignore("no rank of this attempt is there")
    soon = context.now + EXIT_REPORT_WITHIN
    if job.look_at is not None and job.look_at <= soon:
        return Ignore("ECS is to be asked soon")
    return Step(job.status, job.reason, {"look_at": soon})


def ended(job: Job, event: events.AllRanksStopped, context: DecisionContext) -> Step:
    """Act as in RUNNING, but report no recovery on success if the incident was only a missing heartbeat."""
    step = stopping.ended(job, event, context)
    if event.failure is not None or job.recovery_since is not None:
        return step
    return replace(
        step, commands=tuple(command for command in step.commands if not isinstance(command, commands.PublishEvent))
    )


def lost_overdue(job: Job, event: events.JobDeadlineReached, context: DecisionContext) -> Step | Ignore:
    """Decide by what ECS and EC2 say about the instances, unless a reporting outage is the likely cause."""
    later = {"deadline_at": context.now + duration(context.policy.lost_timeout_s)}
    if event.deaf:
        return Step(JobStatus.LOST, f"nothing is decided about {listed(job.silent)}: {event.deaf}", later)
    dead = {instance: event.dead[instance] for instance in job.silent if instance in event.dead}
    if not dead:
        alive = f"ECS and EC2 show {listed(job.silent)} running: only its node agent does not report"
        last_seen = dict.fromkeys(job.silent, event.at)
        changes = {"silent": (), "found_dead": (), "heard": {**job.heard, **last_seen}}
        if job.recovery_since is None:
            changes |= INCIDENT_CLOSED
        return Step(JobStatus.RUNNING, alive, changes, (jobs.agent_silent(job, alive),))
    doubted = set(event.unsure) - set(job.found_dead)
    certain = {instance: sentence for instance, sentence in dead.items() if instance not in doubted}
    if not certain:
        first = next(iter(dead))
        again = {"found_dead": tuple(dead), "deadline_at": context.now + duration(context.policy.poll_interval_s)}
        return Step(JobStatus.LOST, f"{first} does not report, and {dead[first]}; asking ECS and EC2 once more", again)
    dead, first = certain, next(iter(certain))
    reason = f"{listed(tuple(dead))} does not report, and {dead[first]}"
    step = stop(job, StopPurpose.DIAGNOSE, reason, context)
    if job.is_observed(context.policy):
        recorded = record_only(job, step, later)
        return replace(recorded, commands=()) if recorded.reason == job.reason else recorded
    # Only a reboot or the end of the instance can confirm that these ranks have ended.
    ranks: dict[str, tuple[int, ...]] = {}
    for rank, instance in enumerate(job.instances):
        if instance in dead:
            ranks[dead[instance]] = (*ranks.get(dead[instance], ()), rank)
    order = commands.EndUnconfirmed(job.attempt, context.now, ranks)
    return replace(step, commands=(*step.commands, order))


def _lost(silent: tuple[str, ...], sentence: str) -> str:
    return f"lost contact with {listed(silent)}: {sentence}; its GPUs stay claimed"
