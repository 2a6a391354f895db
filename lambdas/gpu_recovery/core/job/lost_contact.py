"""Ranks that are not heard of any more: LOST is not FAILED, and nobody's GPUs are given back for a silence.

A job is LOST for each instance whose rank had been heard of and fell silent. A heartbeat of the same attempt brings it
back; an end that ECS confirms acts as in RUNNING. If neither comes, ECS and EC2 are asked: where they know of no life
either the gang is stopped and the machine repaired, and where they do it is the agent that is dead and not the machine.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.identifiers import attempt_id, listed
from gpu_recovery.core.job import stopping
from gpu_recovery.core.job.record import Job, JobStatus, StopPurpose
from gpu_recovery.core.job.stopping import record_only, stop
from gpu_recovery.core.notifications import jobs
from gpu_recovery.core.policy import within
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step

EXIT_REPORT_WITHIN = timedelta(seconds=15)
"""So long after an exit ECS is asked, unless it has told by then."""


def heartbeat_timed_out(job: Job, event: events.RankSilent, given: DecisionContext) -> Step | Ignore:
    """The first silent instance makes the job LOST; another one joins it, and the deadline stays."""
    if event.instance_id in job.silent:
        return Ignore("that is known")
    if event.instance_id not in job.instances:
        return Ignore("no rank of this attempt is there")
    silent = (*job.silent, event.instance_id)
    changes: dict[str, Any] = {"silent": silent, "heard": {**job.heard, event.instance_id: event.seen_at}}
    if job.status is JobStatus.LOST:
        return Step(JobStatus.LOST, _lost(silent, event.sentence), changes)
    decided_at = given.now + within(given.policy.lost_timeout_s)
    incident = job.incident_id or f"{attempt_id(job.job_id, job.attempt)}/lost/{job.version + 1}"
    note = jobs.contact_lost(job, incident, event.instance_id, event.sentence, decided_at)
    return Step(JobStatus.LOST, _lost(silent, event.sentence), {**changes, "incident_id": incident}, (note,))


def heartbeat_received(job: Job, event: events.RankHeard, given: DecisionContext) -> Step | Ignore:
    """A heartbeat of this attempt: heard of everywhere again, the job is RUNNING as if nothing had been.

    Kept even if the silence was not known: whoever tells of it late must find it over.
    """
    if event.instance_id not in job.instances:
        return Ignore("no rank of this attempt is there")
    changes: dict[str, Any] = {"heard": {**job.heard, event.instance_id: event.at}}
    if event.instance_id not in job.silent:
        return Step(job.status, job.reason, changes)
    left = tuple(instance for instance in job.silent if instance != event.instance_id)
    changes |= {"silent": left, "found_dead": tuple(one for one in job.found_dead if one != event.instance_id)}
    if left:
        return Step(JobStatus.LOST, f"{event.instance_id} is heard of again, {listed(left)} not yet", changes)
    reason = f"every rank is heard of again, the last on {event.instance_id}"
    return Step(JobStatus.RUNNING, reason, {**changes, "incident_id": None}, (jobs.contact_restored(job, reason),))


def rank_exited(job: Job, event: events.RankExited, given: DecisionContext) -> Step | Ignore:
    """A reason to ask ECS soon: an exit says neither who ended the rank nor that its GPUs are free.

    ECS mostly tells by itself, within seconds; a large gang that dies brings the look forward once, not for each rank.
    """
    if event.instance_id not in job.instances:
        return Ignore("no rank of this attempt is there")
    soon = given.now + EXIT_REPORT_WITHIN
    if job.look_at is not None and job.look_at <= soon:
        return Ignore("ECS is to be asked soon")
    return Step(job.status, job.reason, {"look_at": soon})


def ended(job: Job, event: events.AllRanksStopped, given: DecisionContext) -> Step:
    """As in RUNNING; but the incident was a silence, so an end that is a success is no recovery."""
    step = stopping.ended(job, event, given)
    if event.failure is not None:
        return step
    return replace(step, commands=tuple(one for one in step.commands if not isinstance(one, commands.PublishEvent)))


def lost_overdue(job: Job, event: events.JobDeadlineReached, given: DecisionContext) -> Step | Ignore:
    """The silence lasts: what ECS and EC2 say decides, unless so many are silent that it is not the machines."""
    later = {"deadline_at": given.now + within(given.policy.lost_timeout_s)}
    if event.deaf:
        return Step(JobStatus.LOST, f"nothing is decided about {listed(job.silent)}: {event.deaf}", later)
    dead = {instance: event.dead[instance] for instance in job.silent if instance in event.dead}
    if not dead:
        alive = f"ECS and EC2 find {listed(job.silent)} alive: its node agent is silent, not the machine"
        lives = dict.fromkeys(job.silent, event.at)
        changes = {"silent": (), "found_dead": (), "heard": {**job.heard, **lives}, "incident_id": None}
        return Step(JobStatus.RUNNING, alive, changes, (jobs.agent_silent(job, alive),))
    doubted = set(event.unsure) - set(job.found_dead)
    certain = {instance: sentence for instance, sentence in dead.items() if instance not in doubted}
    if not certain:
        first = next(iter(dead))
        again = {"found_dead": tuple(dead), "deadline_at": given.now + within(given.policy.poll_interval_s)}
        return Step(JobStatus.LOST, f"nothing is heard of {first}, and {dead[first]}; asked once more", again)
    dead, first = certain, next(iter(certain))
    reason = f"nothing is heard of {listed(tuple(dead))}, and {dead[first]}"
    step = stop(job, StopPurpose.DIAGNOSE, reason, given)
    if job.is_observed(given.policy):
        told = record_only(job, step, later)
        return replace(told, commands=()) if told.reason == job.reason else told
    # Nothing but a reboot, or the end of the machine, will ever confirm that these ranks have ended.
    repairs = tuple(
        commands.TellInstance(
            instance,
            events.RepairRequested(at=given.now, job_id=job.job_id, attempt=job.attempt, sentence=sentence),
        )
        for instance, sentence in dead.items()
    )
    return replace(step, commands=(*step.commands, *repairs))


def _lost(silent: tuple[str, ...], sentence: str) -> str:
    return f"lost contact with {listed(silent)}: {sentence}; its GPUs stay with the job"
