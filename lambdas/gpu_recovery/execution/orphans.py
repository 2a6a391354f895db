"""Orphans: ranks with a claim on an instance whose registration with ECS has ended."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from gpu_recovery.core import commands, events
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.health_signals import Ec2InstanceState
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.instance.record import ENDED_REGISTRATION, Instance, RankOnInstance
from gpu_recovery.core.instance.registration import may_replace
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.task import TaskFact
from gpu_recovery.execution.context import CommandResult, ExecutionContext, FollowUp
from gpu_recovery.execution.task_ownership import tasks_of_ranks
from gpu_recovery.ports.values import ec2_state_of

ORPHANS_RETRY = timedelta(seconds=30)
"""Time before the question about an instance with orphans is repeated, if its answer is not final."""
ORPHANS_MAX = timedelta(minutes=10)
"""Time after which a rank is an orphan although ECS lists its task or names its registration, and describes neither."""


def end_orphans(context: ExecutionContext, instance: Instance) -> CommandResult:
    """Ask EC2 and ECS about an instance whose registration ended under its ranks. Return what ends them for certain.

    An instance that is off has ended them. An instance that runs is rebooted, within the limits of the fleet, but not
    for a job that is only observed. An instance on its way to another state is asked about again.

    A rank that ECS shows under a later registration is no orphan. ECS may have started it there before the later
    registration was known here. If ECS contradicts itself for `ORPHANS_MAX`, the instance is rebooted all the same.
    """
    name = instance.instance_id
    state = ec2_state_of(name, context.actions.describe_ec2((name,)), instance.agent_connected)
    if state is not None and state.is_off:
        return CommandResult((FollowUp(name, events.MachineSeen(at=context.now, state=state)),))
    if state is not None and state is not Ec2InstanceState.RUNNING:
        return CommandResult(not_before=context.now + ORPHANS_RETRY)
    found: dict[str, list[RankOnInstance]] = {}
    orphans: list[RankOnInstance] = []
    is_final, observed_only = True, set[RankOnInstance]()
    is_late = instance.orphans is not None and context.now >= instance.orphans.since + ORPHANS_MAX
    for rank in instance.orphaned_ranks:
        job, plan = context.store.load_job(rank.job_id), context.store.load_plan(rank.job_id, rank.attempt)
        if job is not None and job.hands_off:
            observed_only.add(rank)
        tasks = _tasks_of(context, instance, rank, job, plan)
        shown = context.actions.describe_tasks(tasks, []) if tasks and all(tasks) else ()
        registration = _later_registration(instance, tasks, shown)
        if registration:
            found.setdefault(registration, []).append(rank)
        elif job is not None and _may_change(context, job, rank, tasks, shown, is_late):
            is_final = False
        else:
            orphans.append(rank)
    messages: list[FollowUp] = []
    for registration, ranks in found.items():
        observation = _observed_under(context, name, registration, ranks)
        is_present = registration == instance.container_instance_id
        if observation is None and not is_late:
            is_final = False
        elif observation is None or not (is_present or may_replace(instance, observation)):
            orphans += ranks
        else:
            # It may be ignored as outdated, so the question is repeated until the record has none of these orphans.
            messages.append(FollowUp(name, observation))
            is_final = False
    messages += [FollowUp(name, _repair_of(context, rank)) for rank in orphans if rank not in observed_only]
    return CommandResult(tuple(messages), None if is_final else context.now + ORPHANS_RETRY)


def _tasks_of(
    context: ExecutionContext, instance: Instance, rank: RankOnInstance, job: Job | None, plan: Plan | None
) -> list[str]:
    """Return the ids of the tasks of the attempt on the instance, with those of warm spares; "" for an unknown task."""
    if job is None:
        return []
    name = instance.instance_id
    spares = [one.task_id for one in job.spares if (one.instance_id, one.attempt) == (name, rank.attempt)]
    if plan is None or name not in plan.instances:
        return spares
    tasks = zip(plan.instances, tasks_of_ranks(context, job, plan), strict=True)
    return [*spares, *(task_id for instance_id, task_id in tasks if instance_id == name)]


def _later_registration(instance: Instance, tasks: list[str], shown: tuple[TaskFact, ...]) -> str:
    """Return the registration under which ECS shows all these tasks, unless it has ended; "" if there is none.

    A task that cannot be read is not shown.
    """
    names = [fact.container_instance_id for fact in shown if not fact.is_orphaned]
    ended = (*instance.past_registrations, *((instance.container_instance_id,) if instance.registration_over else ()))
    return names[0] if names and len(names) == len(tasks) and len(set(names)) == 1 and names[0] not in ended else ""


def _may_change(
    context: ExecutionContext,
    job: Job,
    rank: RankOnInstance,
    tasks: list[str],
    shown: tuple[TaskFact, ...],
    is_late: bool,
) -> bool:
    """Return whether ECS may answer otherwise soon: a task is being started, or is listed and was not described.

    An adopted task, and a task that was held or was a spare, may not carry the name of the attempt. So the listing is
    not asked for them.
    """
    if not all(tasks):
        return _is_being_started(job, rank)
    missing = set(tasks) - {fact.task_id for fact in shown}
    if not missing or is_late:
        return False
    if job.started_by_person or job.held_attempt or job.spares_started:
        return True
    return not missing.isdisjoint(context.actions.tasks_started_by(attempt_id(job.job_id, rank.attempt)))


def _is_being_started(job: Job, rank: RankOnInstance) -> bool:
    """Return whether a launch of the attempt, or the start of a warm spare, may still start a task."""
    pending = (one.command for one in job.commands)
    return any(
        isinstance(command, commands.StartSpare)
        or (isinstance(command, commands.LaunchAttempt) and command.attempt == rank.attempt)
        for command in pending
    )


def _observed_under(
    context: ExecutionContext, name: str, registration: str, ranks: list[RankOnInstance]
) -> events.InstanceObserved | None:
    """Return the state of the registration with the ranks that ECS shows there.

    Return None if ECS describes no registration of the instance that lasts.
    """
    described = context.actions.describe_instance(registration)
    if described is None or described[0] != name or described[1].ecs_status in ENDED_REGISTRATION:
        return None
    return replace(described[1], looked=True, ranks={rank.job_id: rank.attempt for rank in ranks})


def _repair_of(context: ExecutionContext, rank: RankOnInstance) -> events.RepairRequested:
    """Return the request for the reboot that ends the orphan."""
    attempt = attempt_id(rank.job_id, rank.attempt)
    sentence = f"its registration with ECS has ended, and EC2 shows it running: {attempt} may still run on it"
    return events.RepairRequested(at=context.now, job_id=rank.job_id, attempt=rank.attempt, sentence=sentence)
