"""Whether the whole gang is checked before a failed job continues, by what the node agents report after the failure.

A check of the gang takes every GPU for minutes. It is not needed if the agent of every instance has reported since the
failure and shows no fault, and if this is the first failure in a row: `why_gang_is_checked`. The job then continues at
once. An instance with a sign of a fault is checked in the background and left out. The instance on which the gang
failed first is used last; if another instance takes its place, it is checked in the background as well.

A faulty instance may show no sign. So the second failure without a sign has the whole gang checked, if no stable run
and no check lies between. Decision 63. Each check that finds nothing doubles the number of failures before the next
check: the same check so soon would find nothing again. A very large gang fails often by chance, so its first check
comes after the third failure. The exception: the same rank failed first on two instances. Then the program is the
probable cause, and a check of the gang would find nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.identifiers import listed
from gpu_recovery.core.job import hang_stops, named_instances, remedy_outcomes, repeat_offender
from gpu_recovery.core.job.assessment import assess
from gpu_recovery.core.job.completion import (
    is_stable,
    poke_scheduler,
    retry_delay,
    unless_suspended,
    with_blamed,
    with_cool_down,
)
from gpu_recovery.core.job.held_ranks import kept_instances
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.passive_evidence import PassiveEvidence
from gpu_recovery.core.policy import GangCheck
from gpu_recovery.core.recovery_expectation.published_times import RATE_PER_1000_INSTANCE_DAYS
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step

BY_CHANCE_MAX = 0.1
"""Failures that a gang has by chance within `stable_run_s`, at the published rate. From this number on two failures so
soon may have two causes, so the third has the gang checked. These are gangs of about 740 instances."""
WITHOUT_FAULT_MAX = 5
"""Checks without a fault that count. After them every 33rd failure has the gang checked, in a large gang every 65th."""


def why_gang_is_checked(job: Job, evidence: PassiveEvidence | None, context: DecisionContext) -> str:
    """Return why the whole gang must be checked before the job continues; "" if no check of the whole gang is needed.

    Args:
        job: the job after the end of every rank.
        evidence: the passive evidence of the attempt; None to ask only what does not depend on it.
    """
    policy = context.policy
    if policy.gang_check is GangCheck.ALWAYS:
        return "the policy checks every gang"
    if policy.relaunch_on_same_instances or job.is_observed(policy):
        return "the job waits for its own instances"
    if not job.attempts_left(policy):
        return "the attempt was the last"
    if _failed_again(job, context) and not repeat_offender.follows_rank(job.first_ends, job.attempt):
        return "the job has failed again soon after it continued without a check"
    diagnosis = job.diagnosed
    if diagnosis is not None and diagnosis.decided and not diagnosis.allows_restart:
        return "the diagnosis asks for a check"
    healthy = {name: events.Checked(CheckOutcome.HEALTHY, "", repairing=False) for name in job.instances}
    if not assess(job, healthy, policy).continues:
        return "only a fault of an instance would let the job continue"
    return "" if evidence is None else _why_by(job, evidence, context)


def _failed_again(job: Job, context: DecisionContext) -> bool:
    """Return whether enough failures without a sign came before this one for a check of the gang."""
    rate_per_s = RATE_PER_1000_INSTANCE_DAYS / 1_000 / 86_400
    by_chance = len(job.instances) * rate_per_s * context.policy.stable_run_s
    first = 1 if by_chance < BY_CHANCE_MAX else 2
    is_due = job.unexplained >= first * 2**job.checks_without_fault and job.unchecked < job.attempt
    return is_due and not is_stable(job, context)


def without_check(job: Job, faulty: Collection[str], context: DecisionContext) -> dict[str, Any]:
    """Return the changes of a failure after which the job continues without a check of its gang.

    Args:
        job: the job before it continues.
        faulty: the instances that are found faulty. They explain the failure.
        context: the policy and the time. After a stable run that no poll saw, the failures before do not count.
    """
    is_first = is_stable(job, context)
    return {
        "unchecked": job.attempt,
        "unexplained": (0 if is_first else job.unexplained) + (not faulty),
        "checks_without_fault": 0 if is_first else job.checks_without_fault,
    }


def checked_gang(job: Job, results: Mapping[str, events.Checked]) -> dict[str, Any]:
    """Return the changes of a check of the whole gang.

    A check that an instance has not answered may have missed a fault.

    Args:
        job: the job before the check ended.
        results: the result of the check on each instance.
    """
    outcomes, without_fault = {result.outcome for result in results.values()}, job.checks_without_fault
    if any(outcome.blames_hardware or outcome is CheckOutcome.SUSPECTED for outcome in outcomes):
        without_fault = 0
    elif outcomes == {CheckOutcome.HEALTHY} and results.keys() >= set(job.instances):
        without_fault = min(without_fault + 1, WITHOUT_FAULT_MAX)
    return {"unchecked": 0, "unexplained": 0, "checks_without_fault": without_fault}


def _why_by(job: Job, evidence: PassiveEvidence, context: DecisionContext) -> str:
    """Return why the passive evidence is not enough; "" if it is."""
    if evidence.silent:
        return f"{evidence.silent} agent(s) have not reported since the failure, such as that of {evidence.example}"
    faulty = tuple(evidence.faulty)
    if 2 * len(faulty) > len(set(job.instances)):
        return "more than half of the instances show a fault"
    if job.repairs + len(faulty) > context.policy.job_repairs_max:
        return "the job has had too many repairs"
    return ""


def passive_evidence(job: Job, event: events.PassiveEvidenceCollected, context: DecisionContext) -> Step | Ignore:
    """Continue the job without a check of its gang if the passive evidence is enough; else the checks go on."""
    order = check_to_come(job)
    if order is None or job.heard_again == job.attempt:
        return Ignore("the checks of this attempt have begun")
    if order.request.suspect:
        return Ignore(f"{order.request.suspect} is suspected and will be checked with the others")
    if why := why_gang_is_checked(job, event.evidence, context):
        return Ignore(f"the gang is checked: {why}")
    return continued(job, event.evidence, order.request, context)


def check_to_come(job: Job) -> commands.CheckInstances | None:
    """Return the pending command to check the instances of this attempt, or None if it was carried out."""
    checks = (pending.command for pending in job.commands if isinstance(pending.command, commands.CheckInstances))
    return next((check for check in checks if check.attempt == job.attempt), None)


def continued(
    job: Job,
    evidence: PassiveEvidence,
    request: events.CheckRequested,
    context: DecisionContext,
    restarted: str = "started again",
) -> Step:
    """Queue the job again without a check of its gang.

    Args:
        job: the job.
        evidence: the passive evidence of the attempt.
        request: the request to check an instance with a sign of a fault.
        context: the policy and the time.
        restarted: how the reason names a restart.
    """
    faulty = tuple(name for name in dict.fromkeys(job.instances) if name in evidence.faulty)
    first = repeat_offender.ended_first(job, job.first_ends, context.policy)
    first = first if first in job.instances else ""
    last_used = tuple(dict.fromkeys((*faulty, *filter(None, (first,)))))
    others = tuple(name for name in job.instances if name not in faulty)
    changes: dict[str, Any] = {
        **remedy_outcomes.failed_again(job, job.diagnosed, faulty, context),
        **hang_stops.explained(job, faulty),
        **with_cool_down(job, context),
        "attempts_counted": job.attempts_counted + 1,
        **without_check(job, faulty, context),
        "first_ends": tuple(end for end in job.first_ends if end.instance_id not in faulty),
        "repairing": (),
        "repairs": job.repairs + len(faulty),
        "check_if_unused": first if first not in faulty else "",
    }
    named = tuple(name for name in faulty if name not in evidence.doubtful)
    after = replace(job, suspicions=named_instances.contradicted(job, faulty, context.policy))
    changes["suspicions"] = named_instances.with_named(after, named, context.policy)
    if last_used:
        ranks = {name: job.instances.index(name) for name in last_used}
        changes |= named_instances.left_out(job, ranks, context.policy)
    if faulty:
        changes["blamed"] = with_blamed(job, faulty)
    told = "; ".join(f"{name}: {evidence.faulty[name]}" for name in faulty)
    seen = f"{listed(faulty)} checked in the background ({told})" if faulty else "no agent shows a fault"
    where = f", elsewhere than on {listed(last_used)} if there is room" if last_used else ""
    reason = f"{seen}; {restarted} without a check of the gang{where}{retry_delay(changes, context)}"
    # The check of a faulty instance takes the claim of the job over, so no job is placed there before.
    left_out = (first,) if first in others else ()
    release = commands.ReleaseInstances(others, attempt=job.attempt, left_out=left_out)
    checks = (commands.TellInstance(name, replace(request, named=name in named)) for name in faulty)
    orders = (release, *checks, poke_scheduler(job))
    return unless_suspended(job, Step(JobStatus.RECOVERING, f"{job.stop_reason}; {reason}", changes, orders))


def check_of_unused(
    job: Job, chosen: set[str], context: DecisionContext
) -> tuple[commands.TellInstance | commands.ReleaseInstances, ...]:
    """Return the command to check the instance on which the gang failed first, if another instance took its place.

    If the job still has a container there, the check waits for its end, and takes the claim over.

    Args:
        job: the job before its next attempt.
        chosen: the instances of the next attempt.
    """
    name = job.check_if_unused
    if not name or name in chosen:
        return ()
    request = events.CheckRequested(
        at=context.now,
        job_id=job.job_id,
        attempt=job.attempt,
        may_reboot=job.repairs < context.policy.job_repairs_max,
        since=job.running_at,
        awaited=False,
        first=name,
        alone=len(job.instances) == 1,
    )
    if name in kept_instances(job):
        return (commands.ReleaseInstances((name,), attempt=job.attempt, check=request),)
    return (commands.TellInstance(name, request),)
