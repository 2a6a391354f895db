"""Taking a person's training tasks into our care, and refusing those that use a JOB_ID which is not theirs."""

from __future__ import annotations

from gpu_recovery.core import events
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.job import state_machine
from gpu_recovery.core.job.adoption import Adoption, TaskIdentity, job_template, task_identity
from gpu_recovery.core.job.record import LIVE, TERMINAL, Job, Origin
from gpu_recovery.core.notifications import jobs
from gpu_recovery.core.task import OUR_STOP, LastStatus, TaskFact
from gpu_recovery.ecs_events import rank_progress
from gpu_recovery.execution.unregistered_tasks import instance_of
from gpu_recovery.recovery import Recovery


def handle_user_task(recovery: Recovery, fact: TaskFact) -> None:
    """Adopt the task, enter its news, refuse it, or leave it alone. Reads nothing for a task without a JOB_ID."""
    says = task_identity(fact.environment)
    if recovery.adoption is Adoption.OFF or says is None:
        return None
    record = recovery.store.load_job(says.job_id)
    if record is None:
        record = _adopt(recovery, fact, says)
    if record.origin is not Origin.ADOPTED:
        return _refuse(recovery, fact, says, "that job was submitted to gpu-recovery and starts its own tasks")
    if record.status in TERMINAL and _is_newer(fact, record):
        newer = events.NewerTaskSeen(at=fact.at, attempt=record.attempt, created_at=fact.created_at or fact.at)
        recovery.handle(record.job_id, newer)
        record = recovery.store.load_job(says.job_id) or record
    if not record.started_by_person:
        return _refuse(recovery, fact, says, f"gpu-recovery runs attempt {record.attempt} of that job by itself")
    return _record_rank(recovery, fact, says, record)


def _adopt(recovery: Recovery, fact: TaskFact, says: TaskIdentity) -> Job:
    """Keep the first task as the template of every relaunch. Of two ranks seen at once, one makes the record."""
    spec = job_template(fact, says.world_size, fact.gpus or 1)
    hands_off = recovery.adoption is Adoption.OBSERVE
    decision = state_machine.adopted(says.job_id, spec, hands_off, recovery.policy, recovery.clock())
    recovery.create_job(decision, "")
    return recovery.store.load_job(says.job_id) or decision.record


def _record_rank(recovery: Recovery, fact: TaskFact, says: TaskIdentity, record: Job) -> None:
    if says.world_size != record.spec.nnodes:
        return _refuse(recovery, fact, says, f"that job has {record.spec.nnodes} ranks, not {says.world_size}")
    if record.adopted_after and fact.created_at and fact.created_at <= record.adopted_after:
        return None  # a late word about a run that ended before this one was started
    nobody = ("",) * record.spec.nnodes
    plan = recovery.store.begin_attempt(Plan(record.job_id, record.attempt, nobody, task_ids=nobody))
    known = plan.task_ids[says.rank]
    if known not in ("", fact.task_id):
        return _refuse(recovery, fact, says, f"rank {says.rank} of that job is task {known}")
    if not known and record.status not in LIVE and record.stop_purpose is not None:
        # Its gang was stopped before this rank showed itself: nobody else would ever stop it.
        return recovery.actions.stop_tasks((fact.task_id,), f"{OUR_STOP}the gang of {fact.task_id} is over")
    instance_id = plan.instances[says.rank] or instance_of(recovery.store, recovery.actions, fact)
    if not known:
        recovery.store.record_task(plan, says.rank, instance_id, fact.task_id)
    if instance_id and record.instances[says.rank] != instance_id:
        seen = events.RankSeen(
            at=fact.at, attempt=record.attempt, rank=says.rank, instance_id=instance_id, gpus=record.spec.gpus_per_node
        )
        recovery.handle(record.job_id, seen)
    return rank_progress.record_rank_event(recovery, fact, record.job_id, record.attempt, says.rank, instance_id)


def _is_newer(fact: TaskFact, record: Job) -> bool:
    return fact.created_at is not None and fact.created_at > record.status_at


def _refuse(recovery: Recovery, fact: TaskFact, says: TaskIdentity, reason: str) -> None:
    """Tell operators once the task runs, and once only. What was told is kept as an attempt without ranks."""
    told = f"{says.job_id}/refused/{fact.task_id}"
    if fact.last_status == LastStatus.RUNNING and recovery.store.load_progress(told, 0) is None:
        recovery.notify(jobs.adoption_refused(says.job_id, fact.task_id, reason))
        recovery.store.begin_attempt(Plan(told, 0, ()))
