"""Repeat offender: a chronically faulty instance that passes its checks, found by the failures of one job.

The attempts of the job end there first again and again. `core/instance/lemons.py` scores the failures of all jobs.

If at most half of the gang ended by itself, the job saves the rank that ended first, and its instance. When the same
instance was first `suspect_after` times, the next check request names it as suspect. Such an instance is repaired even
if it passes the check.
`Job.first_ends` and `Job.suspicions` reach `suspect_window` attempts back. Entries are fenced by attempt, so a repeated
event counts once.

A program that always ends the same rank looks like a bad instance until that rank runs elsewhere. So the scheduler
gives the rank to another instance (`core/queue/host_selection.py`). The next first end decides. If the same rank ends
first again, the program is the cause. If the same instance is first again under another rank, the instance is the
cause, and its reboot has not cured it. Until a stable run, no other instance is suspected.

An instance that a diagnosis named, and whose check passed, is suspected as well (`named_instances.py`). The failure
that named the instance counts as one first end. No repair has followed, so the rules about repaired instances do not
apply.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpu_recovery.core.events import Checked
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.job.assessment import is_retried
from gpu_recovery.core.job.record import FirstEnd, Job, Suspicion
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.policy import RecoveryPolicy

LISTED_MAX = 3
"""Upper bound of the first ends that a reason lists."""


def follows_rank(ends: tuple[FirstEnd, ...], attempt: int) -> bool:
    """Return whether the first ends follow a rank from one instance to another. Then the program is the probable cause.

    An instance on which the gang ended first under several ranks may be faulty all the same.

    Args:
        ends: the first ends since the last stable run, the last of them that of `attempt` if it is known.
        attempt: the attempt that has ended.
    """
    last = ends[-1] if ends and ends[-1].attempt == attempt else None
    if last is None or any(end.instance_id == last.instance_id and end.rank != last.rank for end in ends):
        return False
    return any(end.rank == last.rank and end.instance_id != last.instance_id for end in ends)


def with_first_end(job: Job, own_ends: int, policy: RecoveryPolicy) -> tuple[FirstEnd, ...]:
    """Return the remembered first ends after every rank of the attempt has ended.

    If more than half of the gang ended by itself, as after the timeout of a collective, no rank counts as first. In a
    gang of one the first end adds no information to the failure itself.

    Args:
        own_ends: number of ranks that ended unsuccessfully without being stopped. 0: the attempt began under a release
            that did not count them, so the first end is unknown.
    """
    failure, before = job.failure, _recent_ends(job, policy)
    if failure is None or not failure.instance_id:
        return before
    if not 1 <= own_ends <= len(job.instances) // 2 or not is_retried(failure.ending, policy):
        return before
    # The ends are counted once while the containers are held, and again when the containers have ended.
    earlier = tuple(end for end in before if end.attempt != job.attempt)
    return (*earlier, FirstEnd(job.attempt, failure.rank, failure.instance_id))


def ended_together(job: Job, policy: RecoveryPolicy) -> bool:
    """Return whether the held attempt ended without a first end: more than half of its gang ended by itself.

    The first end of an attempt whose containers are held is noted before its evidence is collected.
    """
    failure = job.failure
    if failure is None or not failure.instance_id or not is_retried(failure.ending, policy):
        return False
    return job.holding and len(job.instances) > 1 and all(end.attempt != job.attempt for end in job.first_ends)


def ended_first(job: Job, ends: tuple[FirstEnd, ...], policy: RecoveryPolicy) -> str:
    """Return the instance on which the attempt ended first.

    Return "" if that is unknown or if a restart would not cure the ending. In an attempt on a single instance, that
    instance was first.

    Args:
        ends: the first ends, including that of this attempt.
    """
    if len(job.instances) == 1 and job.failure is not None and is_retried(job.failure.ending, policy):
        return job.failure.instance_id
    return ends[-1].instance_id if ends and ends[-1].attempt == job.attempt else ""


@frozen_dataclass()
class SuspectInstance:
    """The repeat offender of a job and the reason.

    Attributes:
        again: an earlier repair on suspicion has not helped.
        named: the evidence of an earlier attempt named the instance. It may name the instance again.
    """

    instance_id: str
    reason: str
    again: bool = False
    named: bool = False


NO_SUSPECT = SuspectInstance("", "")
"""The result of `find_suspect` if no instance is suspected."""


def find_suspect(job: Job, ends: tuple[FirstEnd, ...], policy: RecoveryPolicy) -> SuspectInstance:
    """Return the instance that `ends` make a repeat offender, or NO_SUSPECT.

    No instance is suspected if no attempt would follow, or if the job has used up its repairs.

    Args:
        ends: the first ends; the last is that of the current attempt.
    """
    last = ends[-1] if ends and ends[-1].attempt == job.attempt else None
    if not policy.suspect_repeats or last is None or not job.attempts_left(policy):
        return NO_SUSPECT
    known = _recent_suspicions(job, policy)
    where = last.instance_id
    namings = [one for one in known if one.named and one.stands and one.instance_id == where]
    against_program = [one for one in known if contradicts(last, one, policy)]
    if any(one.rank != last.rank for one in namings):
        # The instance fails under two ranks. It may have taken the place, and so the rank, of another named instance.
        against_program = [one for one in against_program if not one.named]
    if job.repairs >= policy.job_repairs_max or against_program or follows_rank(ends, job.attempt):
        return NO_SUSPECT
    known = tuple(suspicion for suspicion in known if not suspicion.named)
    before = [suspicion for suspicion in known if suspicion.instance_id == where]
    if any(suspicion.rank != last.rank and suspicion.stands for suspicion in before):
        because = f"after a repair on suspicion, the gang of {job.job_id} failed there first again, {_listed(last)}"
        return SuspectInstance(where, because, again=True)
    if any(suspicion.stands for suspicion in before) or any(
        not suspicion.lasted for suspicion in known if suspicion.instance_id != where
    ):
        return NO_SUSPECT
    here = [end for end in ends if end.instance_id == where]
    # The failure that named the instance counts as well, because its check has not explained it.
    earlier = [FirstEnd(one.attempt, one.rank, where) for one in namings if one.attempt < here[0].attempt]
    here = [*earlier, *here]
    if len(here) < policy.suspect_after:
        return NO_SUSPECT
    because = f"the gang of {job.job_id} failed there first {len(here)} times, {_listed(*here)}"
    if earlier:
        because = f"{because}; the evidence named it after attempt {earlier[-1].attempt}, and its check found no fault"
    return SuspectInstance(where, because, again=bool(before), named=bool(earlier))


def _listed(*ends: FirstEnd) -> str:
    """Return the newest first ends as text."""
    return ", ".join(f"attempt {end.attempt} with rank {end.rank}" for end in ends[-LISTED_MAX:])


def contradicts(end: FirstEnd, known: Suspicion, policy: RecoveryPolicy) -> bool:
    """Return whether the first end `end` contradicts the suspicion `known`: the same rank, on another instance.

    If a stable run has followed the suspicion, an end `suspect_window` or more attempts later does not contradict it:
    the other instance may be faulty too. A named instance whose check has not passed may be faulty, so its rank proves
    nothing.
    """
    counts = not known.lasted or known.attempt > end.attempt - policy.suspect_window
    counts = counts and (known.passed or not known.named)
    return counts and end.rank == known.rank and end.instance_id != known.instance_id


def updated_suspicions(job: Job, results: Mapping[str, Checked], policy: RecoveryPolicy) -> dict[str, Any]:
    """Return the changes of `first_ends` and `suspicions` after the checks of the attempt.

    A first end that a check explains is dropped, and so are all first ends on an instance that is repaired now.
    """
    ends, known = _recent_ends(job, policy), _recent_suspicions(job, policy)
    last = ends[-1] if ends and ends[-1].attempt == job.attempt else None
    suspected = {instance for instance, result in results.items() if result.outcome is CheckOutcome.SUSPECTED}
    blamed = {instance for instance, result in results.items() if result.outcome.blames_hardware}
    if last is not None and not blamed and last.instance_id not in suspected:
        # The suspicion against the program is renewed for as long as this rank keeps ending first.
        known = tuple(
            replace(suspicion, attempt=job.attempt, elsewhere=last.instance_id)
            if contradicts(last, suspicion, policy)
            else suspicion
            for suspicion in known
        )
    if last is not None and last.instance_id in suspected:
        known = (*known, Suspicion(job.attempt, last.rank, last.instance_id))
    explained = job.attempt if blamed else None
    remaining = tuple(end for end in ends if end.attempt != explained and end.instance_id not in suspected | blamed)
    known = tuple(one for one in known if not (one.named and one.instance_id in suspected | blamed))
    return {"first_ends": remaining, "suspicions": bounded(known, policy)}


def bounded(suspicions: tuple[Suspicion, ...], policy: RecoveryPolicy) -> tuple[Suspicion, ...]:
    """Return the newest suspicions of each kind, at most `suspect_window` of a kind.

    The kinds: repaired instances, named instances that passed their check, and other named instances. Most of the last
    are repaired, and they must not displace those that passed.
    """
    newest: list[Suspicion] = []
    count: Counter[tuple[bool, bool]] = Counter()
    for one in reversed(suspicions):
        count[one.named, one.passed] += 1
        if count[one.named, one.passed] <= policy.suspect_window:
            newest.append(one)
    return tuple(reversed(newest))


def suspicion_note(job: Job, after: tuple[Suspicion, ...]) -> str:
    """Return what the first end says about the program or an instance, as an addition to a reason; often ""."""
    last = job.first_ends[-1] if job.first_ends and job.first_ends[-1].attempt == job.attempt else None
    if last is None:
        return ""
    for suspicion in after:
        if suspicion.elsewhere and suspicion.attempt == job.attempt:
            ended = f"rank {suspicion.rank} failed first on {suspicion.instance_id} and on {suspicion.elsewhere}"
            return f"; {ended}: the program is probably faulty, not an instance"
    if any(
        suspicion.stands and suspicion.instance_id == last.instance_id and suspicion.rank != last.rank
        for suspicion in job.suspicions
        if not suspicion.named
    ):
        return f"; its reboot on suspicion has not helped {last.instance_id}: the instance is probably faulty"
    return ""


def after_stable_run(job: Job) -> dict[str, Any]:
    """Return the changes after a stable run: its instances are exonerated, and other instances may be suspected.

    Suspicions of a rank are kept, so that a program that ends this rank now and then does not put the whole fleet under
    suspicion.
    """
    return {"first_ends": (), "suspicions": tuple(after_run(job, suspicion) for suspicion in job.suspicions)}


def after_run(job: Job, suspicion: Suspicion) -> Suspicion:
    """Return a suspicion after a stable run of the job. The instances of the run are exonerated."""
    return replace(suspicion, lasted=True, proved=suspicion.proved or suspicion.instance_id in job.instances)


def _recent_suspicions(job: Job, policy: RecoveryPolicy) -> tuple[Suspicion, ...]:
    """Return the suspicions that count.

    A suspicion counts for `suspect_window` attempts, and longer while no stable run has followed it or while it stands.
    """
    since = job.attempt - policy.suspect_window
    return tuple(
        suspicion
        for suspicion in job.suspicions
        if suspicion.attempt > since or not suspicion.lasted or suspicion.stands
    )


def _recent_ends(job: Job, policy: RecoveryPolicy) -> tuple[FirstEnd, ...]:
    """Return the first ends within the last `suspect_window` attempts."""
    return tuple(end for end in job.first_ends if end.attempt > job.attempt - policy.suspect_window)
