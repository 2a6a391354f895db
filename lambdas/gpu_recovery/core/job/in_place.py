"""Restart in place: the next attempt starts in the containers of the attempt before.

While the job is STOPPING with its ranks held, the evidence is collected. If the diagnosis restarts the job without the
check of all instances, the next attempt uses the containers. Instances that the diagnosis leaves out are replaced: only
their ranks become new tasks. In every other case the containers are stopped in ECS, and the recovery goes on as without
held ranks. The check of all instances reserves all GPUs, so it cannot run beside held tasks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.job import repeat_offender
from gpu_recovery.core.job.diagnosing import diagnosed
from gpu_recovery.core.job.held_ranks import stop_containers
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.job.stopping import check_request
from gpu_recovery.core.policy import duration
from gpu_recovery.core.state_machine import DecisionContext, Ignore, PendingCommand, Step, replace_fields

IN_PLACE = "restarted in place"
"""How a reason names a restart in the containers of the attempt before."""


def all_held(job: Job, event: events.AllRanksHeld, context: DecisionContext) -> Step | Ignore:
    """Collect the evidence of a gang whose processes have ended, while its containers wait."""
    if not job.holding:
        return Ignore("the containers are being stopped")
    if event.without_evidence:
        return stop_containers(job, f"{job.reason}; it shows no cause, so every instance is checked", context)
    if job.held_attempt == job.attempt:
        return Ignore("the evidence is being collected")
    ends = repeat_offender.with_first_end(job, event.own_ends, context.policy)
    suspect = repeat_offender.find_suspect(job, ends, context.policy)
    if suspect.instance_id:
        return stop_containers(job, f"{suspect.instance_id} is suspected: {suspect.reason}", context)
    changes = {
        "held_attempt": job.attempt,
        "first_ends": ends,
        "deadline_at": context.now + duration(context.policy.hold_confirm_s),
    }
    reason = "every process has ended and the containers wait: reading the evidence"
    return Step(JobStatus.STOPPING, reason, changes, (commands.GatherEvidence(job.attempt),))


def diagnosed_while_held(job: Job, event: events.Diagnosed, context: DecisionContext) -> Step | Ignore:
    """Restart the job in place if the diagnosis restarts it without the check of all instances."""
    if not job.holding or job.held_attempt != job.attempt:
        return Ignore("not every rank of it has ended")
    order = commands.CheckInstances(job.attempt, check_request(job, 0, context))
    pending = PendingCommand("", order, context.now)
    as_stopped = replace_fields(job, {"status": JobStatus.DIAGNOSING, "commands": (*job.commands, pending)})
    step = diagnosed(as_stopped, event, context, IN_PLACE)
    let_go = tuple(i for i in job.instances if i in _left_out(job, step)) if isinstance(step, Step) else ()
    if isinstance(step, Ignore) or step.status is not JobStatus.RECOVERING or len(let_go) == len(job.instances):
        return stop_containers(job, f"{event.conclusion.summary}; the containers are not used again", context)
    changes: dict[str, Any] = {**step.changes, "holding": False, "let_go": let_go}
    return Step(step.status, step.reason, changes, _orders(step, let_go))


def _left_out(job: Job, step: Step) -> set[str]:
    """Return the instances that the next attempt avoids, by this step or by an earlier diagnosis."""
    checked = {order.instance_id for order in step.commands if isinstance(order, commands.TellInstance)}
    return checked | set(step.changes.get("left_out", job.left_out))


def _orders(step: Step, let_go: tuple[str, ...]) -> tuple[Any, ...]:
    """Return the commands of a restart, without the release of the instances that the next attempt may use.

    A check takes over the claim of its instance, so it waits for the end of the task there.
    """
    orders: list[Any] = []
    checked = {order.instance_id for order in step.commands if isinstance(order, commands.TellInstance)}
    for order in step.commands:
        if isinstance(order, commands.ReleaseInstances):
            released = tuple(instance for instance in order.instances if instance in let_go and instance not in checked)
            orders += [replace(order, instances=released)] if released else []
        elif isinstance(order, commands.TellInstance) and isinstance(order.event, events.CheckRequested):
            one = (order.instance_id,)
            orders.append(commands.ReleaseInstances(one, attempt=order.event.attempt, check=order.event))
        else:
            orders.append(order)
    return tuple(orders)
