"""Warm spares: containers of a running job that wait on idle instances, with the image pulled and the wrapper up.

After a failure that leaves an instance out, the rank of that instance starts in the container of a warm spare, as a
held rank starts in its container. No task is started and no image is pulled then.

The scheduler offers idle instances while no job waits for GPUs. A warm spare has a claim of its job, so its GPUs belong
to nobody else. It gives way as soon as a job waits for GPUs or an elastic job of at least the same priority can grow,
and when its own job leaves its instances. A spare is in
the record until the end of its container is known. Its number is never used again within the job: the number, not the
attempt, fences the events about it. Decision 68.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.identifiers import listed
from gpu_recovery.core.job.completion import poke_scheduler
from gpu_recovery.core.job.held_ranks import container_hold_s
from gpu_recovery.core.job.record import Job, JobStatus, Origin, StopPurpose, WarmSpare
from gpu_recovery.core.policy import RecoveryPolicy, duration
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step

MAY_KEEP = frozenset(
    {
        JobStatus.SUBMITTING,
        JobStatus.SUBMITTED,
        JobStatus.RUNNING,
        JobStatus.LOST,
        JobStatus.STOPPING,
        JobStatus.DIAGNOSING,
        JobStatus.RECOVERING,
    }
)
"""Statuses in which the job may still use its warm spares. In every other status it releases them.

A job that grows may use them in SUSPENDING, too.
"""
RETRY_S = 300
"""Seconds without a further warm spare after one has ended unused, because its image may end each of them at once."""


def wanted(job: Job, policy: RecoveryPolicy) -> int:
    """Return the number of warm spares that the job should have while it runs."""
    number = policy.warm_spares if job.spec.warm_spares is None else job.spec.warm_spares
    ours = job.origin is Origin.SUBMITTED and not job.started_by_person and not job.is_observed(policy)
    return number if ours and container_hold_s(job.spec, policy) > 0 else 0


def missing(job: Job, context: DecisionContext) -> int:
    """Return the number of warm spares that a running job lacks; 0 while it waits after the end of an unused one."""
    if job.status is not JobStatus.RUNNING or (job.spares_after is not None and context.now < job.spares_after):
        return 0
    return max(0, wanted(job, context.policy) - sum(spare.waits for spare in job.spares))


def poke_if_missing(job: Job, context: DecisionContext) -> tuple[commands.PokeScheduler, ...]:
    """Return the command that asks the scheduler for idle instances, if the job lacks warm spares."""
    return (poke_scheduler(job),) if missing(job, context) else ()


def offered(job: Job, event: events.SparesOffered, context: DecisionContext) -> Step | Ignore:
    """Start warm spares on the offered instances, as many as the job lacks."""
    lacks, taken = missing(job, context), {*job.instances, *(spare.instance_id for spare in job.spares)}
    free = [pair for pair in zip(event.instances, event.epochs, strict=True) if pair[0] not in taken][:lacks]
    if not free:
        return Ignore("the job lacks no warm spare")
    first = job.spec.nnodes + job.spares_started
    spares = tuple(
        WarmSpare(instance_id, number, job.attempt, epoch) for number, (instance_id, epoch) in enumerate(free, first)
    )
    changes = {"spares": (*job.spares, *spares), "spares_started": job.spares_started + len(spares)}
    reason = f"starting warm spare(s) on {listed(spare.instance_id for spare in spares)}"
    return Step(job.status, reason, changes, tuple(commands.StartSpare(spare.number) for spare in spares))


def seen(job: Job, event: events.SpareSeen, context: DecisionContext) -> Step | Ignore:
    """Record the task of a warm spare, and whether its container runs."""
    spare = spare_of(job, event.number)
    if spare is None:
        return Ignore("the end of this warm spare is known")
    after = replace(spare, task_id=spare.task_id or event.task_id, runs=spare.runs or event.runs)
    if after == spare:
        return Ignore("that is known")
    return Step(job.status, job.reason, {"spares": _with(job, after)})


def ended(job: Job, event: events.SpareEnded, context: DecisionContext) -> Step | Ignore:
    """Forget a warm spare whose container has ended, and release its instance unless a rank was placed there.

    After an end that the job did not ask for, no further one is started for `RETRY_S`.
    """
    spare = spare_of(job, event.number)
    if spare is None:
        return Ignore("the end of this warm spare is known")
    changes: dict[str, Any] = {"spares": tuple(other for other in job.spares if other is not spare)}
    if spare.taken_by:
        return Step(job.status, job.reason, changes)
    reason = job.reason
    if spare.waits:
        changes["spares_after"] = context.now + duration(RETRY_S)
        told = f"the warm spare on {spare.instance_id} has ended unused: {event.sentence}"
        reason = told if job.status is JobStatus.RUNNING else job.reason
    release = commands.ReleaseInstances((spare.instance_id,), attempt=spare.attempt)
    return Step(job.status, reason, changes, (release, poke_scheduler(job)))


def recalled(job: Job, event: events.SparesRecalled, context: DecisionContext) -> Step | Ignore:
    """Release the warm spares, because another job waits for GPUs or can grow."""
    return released(job, tuple(spare for spare in job.spares if spare.waits), event.sentence)


def released(job: Job, spares: tuple[WarmSpare, ...], why: str) -> Step | Ignore:
    """Return the step that ends these warm spares. Their instances are released after the end of their containers."""
    if not spares:
        return Ignore("the job has no warm spare to release")
    told = f"releasing the warm spare(s) on {listed(spare.instance_id for spare in spares)}: {why}"
    reason = told if job.status is JobStatus.RUNNING else job.reason
    return Step(job.status, reason, {"spares": _leaving(job, spares)}, (*_releases(spares), poke_scheduler(job)))


def spare_on(job: Job, instance_id: str) -> tuple[WarmSpare, ...]:
    """Return the warm spare on the instance, if one waits there."""
    return tuple(spare for spare in job.spares if spare.waits and spare.instance_id == instance_id)


def spare_of(job: Job, number: int) -> WarmSpare | None:
    """Return the warm spare with this number; None if its end is known."""
    return next((spare for spare in job.spares if spare.number == number), None)


def ready_instances(job: Job) -> tuple[str, ...]:
    """Return the instances on which a rank of the next attempt may start in the container of a warm spare."""
    return tuple(spare.instance_id for spare in job.spares if spare.waits and spare.runs and spare.task_id)


def taken(job: Job, attempt: int, instances: tuple[str, ...]) -> dict[str, Any]:
    """Return the changes when the attempt is placed on these instances: it takes the warm spares there."""
    chosen = set(ready_instances(job)) & set(instances)
    if not chosen:
        return {}
    spares = (replace(one, taken_by=attempt) if one.waits and one.instance_id in chosen else one for one in job.spares)
    return {"spares": tuple(spares)}


def without_use(job: Job, step: Step) -> Step:
    """Return the step, which also releases the warm spares if the job cannot use them in its next status."""
    spares = tuple(spare for spare in step.changes.get("spares", job.spares) if spare.waits)
    grows = step.changes.get("stop_purpose", job.stop_purpose) is StopPurpose.GROW
    if not spares or step.status in MAY_KEEP or (step.status is JobStatus.SUSPENDING and grows):
        return step
    after = replace(job, spares=step.changes.get("spares", job.spares))
    changes = {**step.changes, "spares": _leaving(after, spares)}
    wakes = any(isinstance(order, commands.PokeScheduler) for order in step.commands)
    orders = (*_releases(spares), *step.commands, *(() if wakes else (poke_scheduler(job),)))
    return replace(step, changes=changes, commands=orders)


def _with(job: Job, after: WarmSpare) -> tuple[WarmSpare, ...]:
    return tuple(after if spare.number == after.number else spare for spare in job.spares)


def _leaving(job: Job, spares: tuple[WarmSpare, ...]) -> tuple[WarmSpare, ...]:
    numbers = {spare.number for spare in spares}
    return tuple(replace(spare, leaves=True) if spare.number in numbers else spare for spare in job.spares)


def _releases(spares: tuple[WarmSpare, ...]) -> tuple[commands.ReleaseInstances, ...]:
    """Return the commands that release the instances of these warm spares.

    A later attempt may have been placed on the instance of a spare that was never started. So each release names the
    attempt of its spares, and keeps the claim of a later attempt.
    """
    attempts = dict.fromkeys(spare.attempt for spare in spares)
    return tuple(
        commands.ReleaseInstances(tuple(one.instance_id for one in spares if one.attempt == attempt), attempt=attempt)
        for attempt in attempts
    )
