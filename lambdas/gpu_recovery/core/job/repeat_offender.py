"""Suspicion by repetition: a machine on which a gang's ends begin again and again, though no check finds anything.

Of each attempt the job remembers which rank ended first, and where, if one rank ended and not the gang. When that has
been the same instance `suspect_after` times, the check that follows is told so, and the instance goes to its repair
even if it passes. `Job.first_ends` and `Job.suspicions` reach `suspect_window` attempts back; the attempt is their
fence, so that what is told twice counts once.

A program that always ends the same rank looks alike, until that rank runs elsewhere. So the rank is given to another
machine (`placement`), and who ends first next tells: the rank again, and it is the program; the machine again, under
another rank, and it is the machine, which its reboot has not cured. Until an attempt has lasted, no other machine is
suspected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpu_recovery.core.events import Checked
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.job.assessment import is_retried
from gpu_recovery.core.job.record import FirstEnd, Job, Suspicion
from gpu_recovery.core.policy import RecoveryPolicy

LISTED_MAX = 3


def with_first_end(job: Job, own_ends: int, policy: RecoveryPolicy) -> tuple[FirstEnd, ...]:
    """The first ends remembered once every rank of the job's attempt has ended, `own_ends` of them by themselves.

    Where more than half of the gang ended by itself, as it does after a collective's time-out, nobody ended first; in
    a gang of one somebody always does, which says no more than the failure itself. Where the number is 0, the attempt
    began under a release that did not count, and nobody can tell.
    """
    failure, before = job.failure, _recent_ends(job, policy)
    if failure is None or not failure.instance_id:
        return before
    if not 1 <= own_ends <= len(job.instances) // 2 or not is_retried(failure.ending.kind, policy):
        return before
    return (*before, FirstEnd(job.attempt, failure.rank, failure.instance_id))


def ended_first(job: Job, ends: tuple[FirstEnd, ...], policy: RecoveryPolicy) -> str:
    """The instance on which the job's attempt ended first; "" where nobody can tell, or no restart would cure it.

    ends: with that of this attempt. On one instance alone nobody else can have been first.
    """
    if len(job.instances) == 1 and job.failure is not None and is_retried(job.failure.ending.kind, policy):
        return job.failure.instance_id
    return ends[-1].instance_id if ends and ends[-1].attempt == job.attempt else ""


@dataclass(frozen=True, slots=True)
class SuspectInstance:
    """The instance that a job's ends speak against, and why; `again`: its repair on suspicion has not helped."""

    instance_id: str
    reason: str
    again: bool = False


NO_SUSPECT = SuspectInstance("", "")


def find_suspect(job: Job, ends: tuple[FirstEnd, ...], policy: RecoveryPolicy) -> SuspectInstance:
    """Whom `ends` speak against, the last of them being that of the job's attempt; or NOBODY.

    Nobody is suspected where no attempt would follow, nor past the repairs that the job may have.
    """
    last = ends[-1] if ends and ends[-1].attempt == job.attempt else None
    if not policy.suspect_repeats or last is None or not job.attempts_left(policy):
        return NO_SUSPECT
    known = _recent_suspicions(job, policy)
    if job.repairs >= policy.job_repairs_max or any(_contradicts(last, one, policy) for one in known):
        return NO_SUSPECT
    where = last.instance_id
    before = [one for one in known if one.instance_id == where]
    if any(one.rank != last.rank and one.stands for one in before):
        because = f"repaired on suspicion, it ended the gang of {job.job_id} first again, {_listed(last)}"
        return SuspectInstance(where, because, again=True)
    if any(one.stands for one in before) or any(not one.lasted for one in known if one.instance_id != where):
        return NO_SUSPECT
    here = [one for one in ends if one.instance_id == where]
    if len(here) < policy.suspect_after:
        return NO_SUSPECT
    because = f"{len(here)} times the gang of {job.job_id} ended there first, {_listed(*here)}"
    return SuspectInstance(where, because, again=bool(before))


def _listed(*ends: FirstEnd) -> str:
    return ", ".join(f"attempt {one.attempt} with rank {one.rank}" for one in ends[-LISTED_MAX:])


def _contradicts(end: FirstEnd, known: Suspicion, policy: RecoveryPolicy) -> bool:
    """Whether the rank that was suspected to have ended for its machine's sake has ended first on another.

    Long after it that is chance: another machine under that rank may be as bad.
    """
    counts = not known.lasted or known.attempt > end.attempt - policy.suspect_window
    return counts and end.rank == known.rank and end.instance_id != known.instance_id


def updated_suspicions(job: Job, results: Mapping[str, Checked], policy: RecoveryPolicy) -> dict[str, Any]:
    """What the job remembers once its checks are in: the changes of `first_ends` and `suspicions`.

    An end that a check explains is forgotten, and so are all those on the machine that is repaired now.
    """
    ends, known = _recent_ends(job, policy), _recent_suspicions(job, policy)
    last = ends[-1] if ends and ends[-1].attempt == job.attempt else None
    suspected = {one for one, result in results.items() if result.outcome is CheckOutcome.SUSPECTED}
    blamed = {one for one, result in results.items() if result.outcome.blames_hardware}
    if last is not None and not blamed:
        # It goes on: the program stays the one to blame for as long as this rank keeps ending first.
        known = tuple(
            replace(one, attempt=job.attempt, elsewhere=last.instance_id) if _contradicts(last, one, policy) else one
            for one in known
        )
    if last is not None and last.instance_id in suspected:
        known = (*known, Suspicion(job.attempt, last.rank, last.instance_id))
    explained = job.attempt if blamed else None
    kept = tuple(one for one in ends if one.attempt != explained and one.instance_id not in suspected | blamed)
    return {"first_ends": kept, "suspicions": known[-policy.suspect_window :]}


def suspicion_note(job: Job, after: tuple[Suspicion, ...]) -> str:
    """What its first end adds to what is known of the program or of a machine, to be added to a reason; often ""."""
    last = job.first_ends[-1] if job.first_ends and job.first_ends[-1].attempt == job.attempt else None
    if last is None:
        return ""
    for one in after:
        if one.elsewhere and one.attempt == job.attempt:
            ended = f"rank {one.rank} has ended first on {one.instance_id} and on {one.elsewhere}"
            return f"; {ended}: that speaks for the program, not for a machine"
    if any(one.stands and one.instance_id == last.instance_id and one.rank != last.rank for one in job.suspicions):
        return f"; its reboot on suspicion has not helped {last.instance_id}: that speaks for the machine"
    return ""


def after_stable_run(job: Job) -> dict[str, Any]:
    """The changes once an attempt has lasted: its machines have proved themselves, and others may be suspected.

    That a rank was suspected is remembered: a program that ends it sooner or later must not go through the fleet.
    """
    proved = set(job.instances)
    suspicions = tuple(
        replace(one, lasted=True, proved=one.proved or one.instance_id in proved) for one in job.suspicions
    )
    return {"first_ends": (), "suspicions": suspicions}


def _recent_suspicions(job: Job, policy: RecoveryPolicy) -> tuple[Suspicion, ...]:
    """Those that still count: for the window, until an attempt has lasted, and until the instance has proved itself."""
    since = job.attempt - policy.suspect_window
    return tuple(one for one in job.suspicions if one.attempt > since or not one.lasted or one.stands)


def _recent_ends(job: Job, policy: RecoveryPolicy) -> tuple[FirstEnd, ...]:
    return tuple(one for one in job.first_ends if one.attempt > job.attempt - policy.suspect_window)
