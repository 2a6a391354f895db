"""Observe an attempt: ask ECS and EC2 about its ranks, and find events that the job did not receive."""

from __future__ import annotations

from datetime import datetime

from gpu_recovery.core import commands, events
from gpu_recovery.core.attempt import AttemptProgress, Plan, undelivered_event
from gpu_recovery.core.errors import RecoveryError
from gpu_recovery.core.health_signals import Ec2InstanceState
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.progress_timeout import is_judged
from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.core.task import Ending, EndingKind, LastStatus, RankFailure, failure_of
from gpu_recovery.execution.context import DONE, CommandResult, ExecutionContext, FollowUp
from gpu_recovery.execution.hang_detection import find_hang
from gpu_recovery.execution.held_tasks import end_in_place, is_of_attempt
from gpu_recovery.execution.task_ownership import may_run_on, with_unrecorded_tasks
from gpu_recovery.execution.training_progress import describe_continued, kept_work
from gpu_recovery.execution.warm_spares import observe_spares
from gpu_recovery.ports.values import ec2_state_of


def observe(context: ExecutionContext, job: Job, pending: PendingCommand) -> CommandResult:
    """Ask ECS about each rank without a confirmed end, record the answers, and return what the job did not receive.

    If the job has received everything, a running job is tested for a hang, and for the success of an open recovery.
    """
    command: commands.ObserveAttempt = pending.command
    plan = context.store.load_plan(job.job_id, command.attempt)
    progress = context.store.load_progress(job.job_id, command.attempt)
    if command.attempt != job.attempt or plan is None or progress is None:
        return DONE
    powered_off: tuple[FollowUp, ...] = ()
    orphaned: RankFailure | None = None
    if job.status is not JobStatus.DIAGNOSING:
        plan = with_unrecorded_tasks(context, job, plan)
        orphaned = _record_ranks(context, job, plan, progress)
        progress = context.store.load_progress(job.job_id, command.attempt) or progress
        powered_off = _powered_off_events(context, list(filter(None, progress.unconfirmed(plan))))
    event = undelivered_event(job, progress, plan, context.policy, context.now)
    if event is None and orphaned is not None:
        event = events.RankFailed(at=context.now, attempt=plan.attempt, failure=orphaned)
    elif event is None and not powered_off:
        event = _hang_event(context, job, plan) or _continued_event(context, job, plan)
    spares = observe_spares(context, job) if job.spares else ()
    told = (*powered_off, *spares)
    return CommandResult((*told, FollowUp(job.job_id, event))) if event else CommandResult(told)


def _hang_event(context: ExecutionContext, job: Job, plan: Plan) -> events.JobEvent | None:
    """Return the event of a running job that hangs, by its progress or by what its agents see; None if it does not."""
    if not context.policy.diagnose or job.status is not JobStatus.RUNNING:
        return None

    def is_confirmed(since: datetime) -> bool:
        if job.is_observed(context.policy):
            return False  # it is not stopped, so the heartbeats of all its instances are not read at each poll
        from gpu_recovery.execution.quiet_gang import is_confirmed_hang  # noqa: PLC0415 - needed seldom

        return is_confirmed_hang(context.store, context.policy, job, plan, since, context.now)

    hang = find_hang(context.store, context.policy, job, plan, context.now, is_confirmed)
    if hang is not None:
        return events.ProgressStopped(
            at=context.now,
            attempt=plan.attempt,
            sentence=hang.sentence,
            since=hang.since,
            progress=hang.progress,
            confirmed=hang.confirmed,
        )
    if not is_judged(context.policy):
        return None
    from gpu_recovery.execution.quiet_gang import suspected_hang  # noqa: PLC0415 - needed seldom

    return suspected_hang(context.store, context.policy, job, plan, context.now)


def _continued_event(context: ExecutionContext, job: Job, plan: Plan) -> events.JobEvent | None:
    """Return the event that the training of a relaunched job has gone on; None if no incident or downtime is open."""
    if job.status is not JobStatus.RUNNING or not job.is_down:
        return None
    sentence = describe_continued(context.store, context.policy, job, plan, context.now.timestamp())
    if not sentence:
        return None
    kept: datetime | None = None
    trained_at = job.running_at
    try:
        kept, first = kept_work(context.store, job, plan)
        trained_at = first or job.running_at
    except RecoveryError:
        sentence = f"{sentence}; up to when its work was kept is unknown: its former progress could not be read"
    return events.TrainingContinued(
        at=context.now, attempt=plan.attempt, sentence=sentence, kept_until=kept, trained_at=trained_at
    )


def _powered_off_events(context: ExecutionContext, instance_ids: list[str]) -> tuple[FollowUp, ...]:
    """Return an event for each instance that EC2 shows stopped or terminated.

    ECS may never report this of an instance with a dead agent.
    """
    ec2_instances = context.actions.describe_ec2(instance_ids) if instance_ids else {}
    running = Ec2InstanceState.RUNNING
    follow_ups: list[FollowUp] = []
    for instance_id in dict.fromkeys(
        [i for i in instance_ids if i not in ec2_instances or ec2_instances[i].state is not running]
    ):
        state = ec2_state_of(
            instance_id, ec2_instances, instance_id not in ec2_instances and _is_alive(context, instance_id)
        )
        if state is not None and state.is_off:
            follow_ups.append(FollowUp(instance_id, events.MachineSeen(at=context.now, state=state)))
    return tuple(follow_ups)


def _is_alive(context: ExecutionContext, instance_id: str) -> bool:
    record = context.store.load_instance(instance_id)
    return record is not None and record.agent_connected


def _record_ranks(context: ExecutionContext, job: Job, plan: Plan, progress: AttemptProgress) -> RankFailure | None:
    """Record what ECS says about the ranks without a confirmed end.

    A task that ECS neither describes nor lists has ended without an event, unless its instance was deregistered by
    force.

    Returns:
        The failure of the first rank whose process may run on after a forced deregistration; None if there is none.
    """
    orphaned: RankFailure | None = None
    task_ids = progress.unconfirmed_tasks(plan)
    described = context.actions.describe_tasks(task_ids)
    if (
        progress.all_running
        and len(described) == len(task_ids)
        and {fact.last_status for fact in described} == {LastStatus.RUNNING}
    ):
        return None  # the result of nearly every poll of a long job
    facts = {fact.task_id: fact for fact in described}
    listed = _tasks_of_attempt(context, job, plan) if len(facts) < len(task_ids) else frozenset()
    # Known facts are not written again: a job is polled for weeks, and a refused write costs as much as another.
    running = {task_id for task_id, fact in facts.items() if fact.last_status == LastStatus.RUNNING}
    ranks = {task_id: rank for rank, task_id in enumerate(plan.task_ids)}
    changed = [
        (task_id, ranks[task_id])
        for task_id in task_ids
        if task_id not in running or ranks[task_id] not in progress.running
    ]
    for task_id, rank in changed:
        fact = facts.get(task_id)
        if fact is None and task_id in listed:
            continue  # ECS's answers are not consistent yet: the next poll asks again, and the GPUs stay claimed
        ended = fact is None or fact.last_status == LastStatus.STOPPED
        if ended and may_run_on(context.store, fact, job.job_id, plan.attempt, plan.instances[rank]):
            if fact is not None:
                orphaned = orphaned or failure_of(fact, rank, plan.instances[rank])
        elif fact is None:
            lost = Ending(EndingKind.CRASHED, None, "ended unseen: ECS no longer knows its task")
            failure = RankFailure(rank, plan.instances[rank], context.now, lost)
            context.store.add_stopped(job.job_id, plan.attempt, rank, failure)
        elif fact.last_status == LastStatus.STOPPED:
            is_started = rank in progress.running or is_of_attempt(fact, job, plan.attempt)
            end = end_in_place(failure_of(fact, rank, plan.instances[rank]), is_started)
            context.store.add_stopped(job.job_id, plan.attempt, rank, end)
        elif fact.last_status == LastStatus.RUNNING and is_of_attempt(fact, job, plan.attempt):
            context.store.add_running(job.job_id, plan.attempt, rank)
    return orphaned


def _tasks_of_attempt(context: ExecutionContext, job: Job, plan: Plan) -> frozenset[str]:
    """Return the attempt's tasks that ECS lists.

    Adopted tasks share no `startedBy`, and a task that was held carries that of an earlier attempt. All running tasks
    are returned then.
    """
    if job.started_by_person or job.held_attempt or job.spares_started:
        return frozenset(fact.task_id for fact in context.actions.running_tasks())
    return frozenset(context.actions.tasks_started_by(attempt_id(job.job_id, plan.attempt)))
