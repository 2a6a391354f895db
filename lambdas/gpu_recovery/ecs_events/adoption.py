"""Adoption of tasks that users started, and refusal of tasks with a foreign JOB_ID."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpu_recovery.core import events
from gpu_recovery.core.attempt import Plan, RankTask
from gpu_recovery.core.instance.record import Claim
from gpu_recovery.core.job import state_machine
from gpu_recovery.core.job.adoption import Adoption, TaskIdentity, job_template, task_identity
from gpu_recovery.core.job.rank_overrides import OVERRIDES_CHARACTERS_MAX, characters_of_launch
from gpu_recovery.core.job.record import LIVE, TERMINAL, Job, JobStatus, Origin
from gpu_recovery.core.job.spec import JobSpec
from gpu_recovery.core.job.stop_timeout import too_long
from gpu_recovery.core.task import OUR_STOP, LastStatus, TaskFact
from gpu_recovery.ecs_events import rank_progress
from gpu_recovery.ecs_events.notify_once import notify_once
from gpu_recovery.execution.launch import claim_for_adopted
from gpu_recovery.execution.task_ownership import instance_of
from gpu_recovery.recovery import Recovery


def handle_user_task(recovery: Recovery, fact: TaskFact) -> None:
    """Adopt the task, record its rank, refuse it or leave it alone. A task without a JOB_ID costs no read."""
    identity = task_identity(fact.environment)
    if recovery.adoption is Adoption.OFF or identity is None:
        return None
    record = recovery.store.load_job(identity.job_id)
    if record is None:
        definition = recovery.actions.task_definition(fact.task_definition)
        spec = job_template(fact, identity.world_size, fact.gpus or 1, definition)
        characters = characters_of_launch(identity.job_id, spec)
        over = characters - OVERRIDES_CHARACTERS_MAX
        if recovery.adoption is Adoption.RECOVER and over > 0:
            reason = (
                f"its relaunch would have {characters} characters of overrides; ECS allows {OVERRIDES_CHARACTERS_MAX}"
            )
            return _refuse(recovery, fact, identity, reason, over)
        record = _adopt(recovery, spec, identity, definition)
    if record.origin is not Origin.ADOPTED:
        return _refuse(recovery, fact, identity, "that job was submitted to gpu-recovery and starts its own tasks")
    if record.status in TERMINAL and _is_newer(fact, record):
        newer = events.NewerTaskSeen(at=fact.at, attempt=record.attempt, created_at=fact.created_at or fact.at)
        recovery.handle(record.job_id, newer)
        record = recovery.store.load_job(identity.job_id) or record
    if not record.started_by_person:
        return _refuse(recovery, fact, identity, f"gpu-recovery runs attempt {record.attempt} of that job by itself")
    return _record_rank(recovery, fact, identity, record)


def _adopt(recovery: Recovery, spec: JobSpec, identity: TaskIdentity, definition: Mapping[str, Any] | None) -> Job:
    """Create the job record, with the first task as the template of every relaunch.

    If two ranks are seen at once, only the first creates the record, and both use that record.
    """
    hands_off = recovery.adoption is Adoption.OBSERVE
    decision = state_machine.adopted(identity.job_id, spec, hands_off, recovery.policy, recovery.clock())
    recovery.create_job(decision, "")
    if definition is not None and (reason := too_long(definition, recovery.policy)):
        from gpu_recovery.core.notifications.adoption import stop_timeout_too_long  # noqa: PLC0415 - a rare message

        notify_once(recovery, stop_timeout_too_long(identity.job_id, spec.task_definition, reason))
    return recovery.store.load_job(identity.job_id) or decision.record


def _record_rank(recovery: Recovery, fact: TaskFact, identity: TaskIdentity, record: Job) -> None:
    """Record the rank, claim its instance and deliver its state, or refuse the task.

    Hundreds of ranks are seen within a second. None of them writes an item that the others write, except the additions
    to the progress, which need no comparison.
    """
    if identity.world_size != record.spec.nnodes:
        return _refuse(recovery, fact, identity, f"that job has {record.spec.nnodes} ranks, not {identity.world_size}")
    if record.adopted_after and fact.created_at and fact.created_at <= record.adopted_after:
        return None  # a late event of a run that ended before this one was started
    store, rank, of_attempt = recovery.store, identity.rank, (record.job_id, record.attempt)
    known = store.load_task(*of_attempt, rank)
    if known is None and record.instances[rank]:  # an older release recorded the rank in the plan
        plan = store.load_plan(*of_attempt)
        known = RankTask(plan.task_ids[rank], record.instances[rank]) if plan is not None else None
    if known is not None and known.task_id != fact.task_id:
        return _refuse(recovery, fact, identity, f"rank {rank} of that job is task {known.task_id}")
    if known is None and record.status not in LIVE and record.stop_purpose is not None:
        return _stop(recovery, fact)
    if not store.has_progress(*of_attempt, rank):
        unknown = ("",) * record.spec.nnodes
        store.begin_attempt(Plan(*of_attempt, unknown, task_ids=unknown))
    is_new = known is None
    if known is None or not known.instance_id:
        instance_id = instance_of(store, recovery.actions, fact)
        recorded = store.record_task(*of_attempt, rank, RankTask(fact.task_id, instance_id))
        if recorded.task_id != fact.task_id:
            return _refuse(recovery, fact, identity, f"rank {rank} of that job is task {recorded.task_id}")
        known = recorded
    if known.instance_id and fact.last_status == LastStatus.RUNNING:
        claim = Claim(record.attempt, record.spec.gpus_per_node, rank=rank)
        after = claim_for_adopted(store, record, known.instance_id, claim)
        if is_new and after is not None and after.status is JobStatus.STOPPING:
            _stop(recovery, fact)  # the gang may have been stopped before this rank was recorded
    return rank_progress.record_rank_event(recovery, fact, *of_attempt, rank, known.instance_id)


def _stop(recovery: Recovery, fact: TaskFact) -> None:
    """Stop the task of a gang that was stopped before the task was seen: no other code would stop it."""
    recovery.actions.stop_tasks((fact.task_id,), f"{OUR_STOP}the gang of {fact.task_id} is over")


def _is_newer(fact: TaskFact, record: Job) -> bool:
    """Return whether the task was created after the job reached its present status."""
    return fact.created_at is not None and fact.created_at > record.status_at


def _refuse(recovery: Recovery, fact: TaskFact, identity: TaskIdentity, reason: str, over: int = 0) -> None:
    """Notify operators once, as soon as the task runs."""
    if fact.last_status == LastStatus.RUNNING:
        from gpu_recovery.core.notifications.adoption import adoption_refused  # noqa: PLC0415 - a rare message

        notify_once(recovery, adoption_refused(identity.job_id, fact.task_id, reason, over))
