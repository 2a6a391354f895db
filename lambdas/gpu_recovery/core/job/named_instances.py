"""Instances that the failures of a job point to: suspected although their check passed, and used last.

A certain diagnosis, or a sign of a fault that no program can cause, names an instance. The job continues without the
instance, and its check runs in the background. If the check finds a fault, the instance is repaired. If it finds none,
the naming still counts: the instance is suspected (`Suspicion.named`). The job uses it last, until a stable run in
which the instance took part. If the gang ends there first again, it is a repeat offender (`repeat_offender.py`), whose
check is followed by a repair. A suspicion alone leads to no repair.

The same rank may end first on another instance. Then the program is probably the cause, and the suspicion is over.

An instance that is left out without being named, such as that of a first end, is used last for as long
(`Job.avoided`). A stable run without an instance proves nothing about the instance.

The scheduler uses these instances only after all others, and never excludes them: no job waits because of a suspicion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from gpu_recovery.core import events
from gpu_recovery.core.job import repeat_offender
from gpu_recovery.core.job.record import FirstEnd, Job, Suspicion
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step

_NOTE = "; checked without a finding: "
"""Begin of the addition to a reason about the check of a named instance. A later addition takes the place of it."""


def with_named(job: Job, instances: Iterable[str], policy: RecoveryPolicy, repaired: str = "") -> tuple[Suspicion, ...]:
    """Return the suspicions with the instances that the evidence of this attempt names. Each is being checked.

    An earlier naming of the same instance is replaced.

    Args:
        job: the job after the end of its attempt.
        instances: the instances that the evidence names.
        policy: the policy.
        repaired: the one of them that is a repeat offender, and is repaired whatever its check finds; "" for none.
    """
    named = tuple(name for name in instances if name in job.instances)
    if not policy.suspect_repeats or not named:
        return job.suspicions
    others = tuple(one for one in job.suspicions if not (one.named and one.instance_id in named))
    new = (Suspicion(job.attempt, job.instances.index(name), name, named=name != repaired) for name in named)
    return repeat_offender.bounded((*others, *new), policy)


def passed(job: Job, event: events.NamedInstancePassed, context: DecisionContext) -> Step | Ignore:
    """Suspect the named instance although its check found no fault, unless the program is the probable cause."""
    mine = next((one for one in job.suspicions if _is_awaited(one, event)), None)
    if mine is None:
        return Ignore("the job waits for no result about this instance")
    others = [one for one in job.suspicions if one.named and one.passed and _same_rank_elsewhere(one, mine)]
    others = [one for one in others if not one.lasted or one.attempt > mine.attempt - context.policy.suspect_window]
    elsewhere = mine.elsewhere or (others[-1].instance_id if others else "")
    after = {mine: replace(mine, passed=True, elsewhere=elsewhere)}
    after |= {one: replace(one, elsewhere=one.elsewhere or mine.instance_id) for one in others}
    told = f"{mine.instance_id}, named after attempt {mine.attempt} ({event.sentence})"
    if elsewhere:
        told += (
            f"; rank {mine.rank} failed first on {elsewhere} as well: the program is probably faulty, not an instance"
        )
    else:
        told += "; it is used last, until a stable run with it"
    reason = job.reason.partition(_NOTE)[0] + _NOTE + told
    suspicions = tuple(after.get(one, one) for one in job.suspicions)
    return Step(job.status, reason, {"suspicions": repeat_offender.bounded(suspicions, context.policy)})


def _is_awaited(suspicion: Suspicion, event: events.NamedInstancePassed) -> bool:
    is_open = suspicion.named and not suspicion.passed
    return is_open and (suspicion.attempt, suspicion.instance_id) == (event.attempt, event.instance_id)


def _same_rank_elsewhere(one: Suspicion | FirstEnd, other: Suspicion | FirstEnd) -> bool:
    return one.rank == other.rank and one.instance_id != other.instance_id


def left_out(job: Job, instances: Mapping[str, int], policy: RecoveryPolicy) -> dict[str, Any]:
    """Return the changes that leave these instances out of the next attempt, if there are enough others.

    Instances that were left out before are used last, too. If the rank under which an instance was left out has now
    ended first elsewhere, the instance is no longer avoided.

    Args:
        job: the job after the end of its attempt.
        instances: the instances to leave out, with the rank of each.
        policy: the policy.
    """
    return {"left_out": dict(instances), "avoided": _avoided(job, {*instances}, _last_end(job), policy)}


def after_stable_run(job: Job, policy: RecoveryPolicy) -> dict[str, Any]:
    """Return the changes after a stable run: its instances are trusted again, the others that are left out are not."""
    avoided = _avoided(job, {*job.instances}, None, policy)
    changes: dict[str, Any] = {"left_out": {}} if job.left_out else {}
    if any(one.named for one in job.suspicions):
        changes["suspicions"] = tuple(
            repeat_offender.after_run(job, one) if one.named else one for one in job.suspicions
        )
    return changes if avoided == job.avoided else {**changes, "avoided": avoided}


def _avoided(job: Job, without: set[str], end: FirstEnd | None, policy: RecoveryPolicy) -> tuple[FirstEnd, ...]:
    """Return the avoided instances with those of `Job.left_out`, the latest last.

    Of a named instance the check decides: it is suspected or repaired.

    Args:
        without: instances that do not belong to them any more.
        end: the first end of the attempt, which contradicts the entries of its rank; None for none.
    """
    named = {one.instance_id for one in job.suspicions if one.named}
    new = [FirstEnd(job.attempt, rank, name) for name, rank in sorted(job.left_out.items())]
    old = [one for one in job.avoided if one.instance_id not in job.left_out]
    kept = [one for one in (*old, *new) if one.instance_id not in without | named]
    remaining = [one for one in kept if end is None or not _same_rank_elsewhere(one, end)]
    return tuple(remaining[-policy.suspect_window :])


def _last_end(job: Job) -> FirstEnd | None:
    """Return the first end of the current attempt; None if it is unknown or explained."""
    return job.first_ends[-1] if job.first_ends and job.first_ends[-1].attempt == job.attempt else None


def contradicted(job: Job, faulty: Iterable[str], policy: RecoveryPolicy) -> tuple[Suspicion, ...]:
    """Return the suspicions after a first end without a check of the gang.

    A named instance is no longer suspected if the same rank has now ended first on another instance without a sign of
    a fault.

    Args:
        faulty: instances with a sign of a fault, which explains the end.
    """
    end = _last_end(job)
    if end is None or end.instance_id in faulty:
        return job.suspicions
    return tuple(
        replace(one, elsewhere=end.instance_id)
        if one.named and not one.elsewhere and repeat_offender.contradicts(end, replace(one, passed=True), policy)
        else one
        for one in job.suspicions
    )


def used_last(job: Job) -> dict[str, int]:
    """Return the instances that the job uses last, with the rank under which each failed. The last is used least.

    The order: those avoided since a stable run, the oldest first; those left out since; the suspected.
    """
    suspected = {one.instance_id: one.rank for one in job.suspicions if one.stands}
    weaker = {one.instance_id: one.rank for one in job.avoided}
    recent = dict(sorted(job.left_out.items()))
    order = dict.fromkeys(name for name in (*weaker, *recent) if name not in suspected)
    return {name: recent.get(name, weaker.get(name, 0)) for name in order} | suspected
