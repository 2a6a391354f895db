"""Carrying out a saved command. Each function may be repeated from its beginning, by whoever finds it not done.

A function answers with what became known by acting: messages for a machine, told before the command is settled (one
for the record itself settles it in the same write), and a time before which it is not to be tried again if it is not
done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from .core import check, commands, events
from .core.attempt import Plan, Progress, news_of_stopped, untold
from .core.check import CheckOutcome
from .core.instance.record import Claim, Instance, InstanceStatus, Reboot
from .core.job.adoption import carried
from .core.job.record import LIVE, Job, JobStatus
from .core.machine import Pending
from .core.names import attempt_id, instance_of_check
from .core.policy import RecoveryPolicy
from .core.task import OUR_STOP, Ending, EndingKind, LastStatus, RankFailure, TaskFact, ending
from .ports import Actions, OutcomeUnknown, Refusal, Store, VerdictUnreadable
from .unseen import instance_of, unseen_ranks

SUMMARY_CHARACTERS_MAX = 200
OTHERS_RETRY = timedelta(seconds=30)
CHECK_RETRY = timedelta(seconds=10)
"""A check refused for want of GPUs is tried again no sooner: the ranks' ends take a moment to free them."""


@dataclass(frozen=True, slots=True)
class Message:
    """An event for one record: the job's or instance's id, and what it must hear."""

    to: str
    event: events.JobEvent | events.InstanceEvent


@dataclass(frozen=True, slots=True)
class Acted:
    """What came of acting: messages to pass on, and `not_before` if the command is still to be done."""

    messages: tuple[Message, ...] = ()
    not_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class Kit:
    """What acting needs: where records are, how AWS is reached, under which policy, and what time it is."""

    store: Store
    actions: Actions
    policy: RecoveryPolicy
    now: datetime


DONE = Acted()
WORDS = (commands.NotifyOperator, commands.PublishEvent, commands.PokeScheduler)
"""Commands that only tell others: nothing waits for them, so their failure must not keep anything else waiting."""
GONE_FROM_ECS = "INACTIVE"


def act(kit: Kit, record: Job | Instance, pending: Pending) -> Acted:
    """Carry out one command of `record`, which must be the record as it was last saved."""
    command = pending.command
    match command:
        case commands.NotifyOperator():
            kit.actions.notify(command)
        case commands.PublishEvent():
            kit.actions.publish(command)
        case commands.PokeScheduler():
            kit.actions.poke_scheduler(command.key)
        case commands.TellJob():
            return Acted((Message(command.job_id, command.event),))
        case commands.TellInstance():
            return Acted((Message(command.instance_id, command.event),))
        case _:
            return _ACTS[type(command)](kit, record, pending)
    return DONE


# -- of a job ----------------------------------------------------------------------------------------------------------


def _launch(kit: Kit, job: Job, pending: Pending) -> Acted:
    """Claim every instance, then start every rank. Checked against the record first: it may no longer be wanted."""
    order: commands.LaunchAttempt = pending.command
    if job.status is not JobStatus.SUBMITTING or job.attempt != order.attempt:
        return Acted((_refused(kit, job, order.attempt, "the launch was given up"),))
    plan = kit.store.begin_attempt(
        Plan(job.job_id, order.attempt, order.instances, order.epochs, order.port_offset, ("",) * len(order.instances))
    )
    claim = Claim(order.attempt, job.spec.gpus_per_node, order.port_offset)
    for instance_id, epoch in zip(plan.instances, plan.epochs, strict=True):
        if not kit.store.claim_instance(instance_id, job.job_id, claim, epoch):
            return Acted((_refused(kit, job, order.attempt, f"{instance_id} was no longer free"),))
    answers = kit.actions.run_ranks(job, plan)
    started = tuple("" if isinstance(answer, Refusal) else answer for answer in answers)
    kit.store.record_tasks(replace(plan, task_ids=started))
    refusals = [(rank, answer) for rank, answer in enumerate(answers) if isinstance(answer, Refusal)]
    if refusals:
        rank, refusal = refusals[0]
        sentence = f"ECS refused rank {rank} on {plan.instances[rank]}: {refusal.reason}"
        return Acted((_refused(kit, job, order.attempt, sentence, any(r.lasting for _, r in refusals)),))
    return Acted((Message(job.job_id, events.AttemptLaunched(at=kit.now, attempt=order.attempt)),))


def _refused(kit: Kit, job: Job, attempt: int, sentence: str, lasting: bool = False) -> Message:
    event = events.LaunchRefused(at=kit.now, attempt=attempt, sentence=sentence, lasting=lasting)
    return Message(job.job_id, event)


def _claim_for_person(kit: Kit, job: Job, pending: Pending) -> Acted:
    """Claim the instance of a person's rank, unless the gang has ended: nobody would take such a claim off again."""
    order: commands.ClaimInstance = pending.command
    if not _may_run(job, order.attempt):
        return DONE
    kit.store.claim_instance(order.instance_id, job.job_id, Claim(order.attempt, order.gpus), None)
    after = kit.store.load_job(job.job_id)
    if after is None or not _may_run(after, order.attempt):
        kit.store.release_instance(order.instance_id, job.job_id, False, order.attempt)
    return DONE


def _may_run(job: Job, attempt: int) -> bool:
    return job.attempt == attempt and job.status in LIVE


def _stop(kit: Kit, job: Job, pending: Pending) -> Acted:
    """Stop every task of the attempt; a rank that never had one is entered as ended, unless one may still start."""
    order: commands.StopAttempt = pending.command
    if order.attempt != job.attempt:
        return DONE
    plan = kit.store.load_plan(job.job_id, order.attempt) if job.started_by_person else None
    if plan is not None:
        tasks = tuple(task_id for task_id in plan.task_ids if task_id)
    else:
        tasks = kit.actions.tasks_started_by(attempt_id(job.job_id, order.attempt))
        if not job.launched and (begun := kit.store.load_plan(job.job_id, order.attempt)) is not None:
            # The listing lags behind a launch that has only just been broken off; the plan knows what it started.
            tasks = tuple(dict.fromkeys((*tasks, *(task_id for task_id in begun.task_ids if task_id))))
    kit.actions.stop_tasks(tasks, f"{OUR_STOP}{attempt_id(job.job_id, order.attempt)} is being stopped")
    launching = any(isinstance(other.command, commands.LaunchAttempt) for other in job.commands)
    if job.launched or launching:
        return DONE
    found = _show_unseen(kit, job, plan) if plan is not None else ()
    return Acted(found) if found else _enter_never_started(kit, job, tasks)


def _show_unseen(kit: Kit, job: Job, plan: Plan) -> tuple[Message, ...]:
    """Ranks of a person's gang whose events were lost: shown to the job, which has them stopped too."""
    messages: list[Message] = []
    for rank, fact in unseen_ranks(kit.actions, plan):
        instance_id = instance_of(kit.store, kit.actions, fact)
        kit.store.record_task(plan, rank, instance_id, fact.task_id)
        seen = events.RankSeen(
            at=fact.at, attempt=plan.attempt, rank=rank, instance_id=instance_id, gpus=job.spec.gpus_per_node
        )
        messages.append(Message(job.job_id, seen))
    return tuple(messages)


def _enter_never_started(kit: Kit, job: Job, task_ids: tuple[str, ...]) -> Acted:
    # An attempt whose launcher died before it began has neither plan nor progress: begun here, it can end.
    blank = Plan(job.job_id, job.attempt, job.instances, task_ids=("",) * len(job.instances))
    plan = kit.store.begin_attempt(blank)
    seen = {_rank(fact) for fact in kit.actions.describe_tasks(task_ids)}
    known = {rank for rank, task_id in enumerate(plan.task_ids) if task_id}
    messages: list[Message] = []
    for rank in range(len(plan.instances)):
        if rank not in seen | known:
            addition = kit.store.add_stopped(job.job_id, job.attempt, rank, None)
            news = news_of_stopped(addition.after, False, kit.now) if addition else None
            messages += [Message(job.job_id, news)] if news else []
    return Acted(tuple(messages))


def _rank(fact: TaskFact) -> int | None:
    text = (fact.environment or {}).get("RANK", "")
    return int(text) if text.isdecimal() else None


def _observe(kit: Kit, job: Job, pending: Pending) -> Acted:
    """Ask ECS about each rank whose end is not known, enter what it says, and report what the job has not heard."""
    order: commands.ObserveAttempt = pending.command
    plan = kit.store.load_plan(job.job_id, order.attempt)
    progress = kit.store.load_progress(job.job_id, order.attempt)
    if order.attempt != job.attempt or plan is None or progress is None:
        return DONE
    gone: tuple[Message, ...] = ()
    if job.status is not JobStatus.DIAGNOSING:
        plan = _with_tasks(kit, job, plan)
        _enter_ranks(kit, job, plan, [rank for rank in range(progress.world) if rank not in progress.stopped])
        progress = kit.store.load_progress(job.job_id, order.attempt) or progress
        gone = _hosts_gone(kit, [i for i in progress.unconfirmed(plan) if i])
    news = untold_to(job, progress, plan, kit.now)
    return Acted((*gone, Message(job.job_id, news))) if news else Acted(gone)


def _hosts_gone(kit: Kit, instance_ids: list[str]) -> tuple[Message, ...]:
    """What instances must hear that EC2 shows stopped or terminated: ECS itself may never say so of a dead agent."""
    messages: list[Message] = []
    for instance_id in kit.actions.ended_instances(instance_ids) if instance_ids else ():
        instance = kit.store.load_instance(instance_id)
        if instance is not None and instance.status is not InstanceStatus.GONE:
            messages.append(Message(instance_id, seen_gone(instance, kit.now)))
    return tuple(messages)


def seen_gone(instance: Instance, now: datetime) -> events.InstanceObserved:
    """The fact that the instance's registration is over, where no event of ECS says so."""
    return events.InstanceObserved(
        at=now, ecs_version=instance.ecs_version, ecs_status=GONE_FROM_ECS, agent_connected=False,
        container_instance_id=instance.container_instance_id, gpus=instance.gpus, looked=True,
        availability_zone=instance.availability_zone,
    )  # fmt: skip


def untold_to(job: Job, progress: Progress, plan: Plan, now: datetime) -> events.JobEvent | None:
    """What the attempt's progress holds and `job` has not heard; the failure that an observed job records is heard."""
    news = untold(job.status, progress, plan, now)
    heard = job.hands_off and job.failure is not None and isinstance(news, events.RankFailed)
    return None if heard else news


def _with_tasks(kit: Kit, job: Job, plan: Plan) -> Plan:
    """The plan with the tasks that a launcher started and died before it entered them: else no look would find them."""
    if all(plan.task_ids) or job.started_by_person:
        return plan
    facts = kit.actions.describe_tasks(kit.actions.tasks_started_by(attempt_id(job.job_id, plan.attempt)))
    found = {_rank(fact): fact.task_id for fact in facts}
    filled = replace(plan, task_ids=tuple(known or found.get(rank, "") for rank, known in enumerate(plan.task_ids)))
    if filled != plan:
        kit.store.record_tasks(filled)
    return filled


def _enter_ranks(kit: Kit, job: Job, plan: Plan, ranks: list[int]) -> None:
    """Enter what ECS says of those ranks whose task is known; a task it no longer knows has ended unseen."""
    asked = {plan.task_ids[rank]: rank for rank in ranks if rank < len(plan.task_ids) and plan.task_ids[rank]}
    facts = {fact.task_id: fact for fact in kit.actions.describe_tasks(tuple(asked))}
    for task_id, rank in asked.items():
        fact = facts.get(task_id)
        if fact is None:
            lost = Ending(EndingKind.CRASHED, None, "ended unseen: ECS no longer knows its task")
            failure = RankFailure(rank, plan.instances[rank], kit.now, lost)
            kit.store.add_stopped(job.job_id, plan.attempt, rank, failure)
        elif fact.last_status == LastStatus.STOPPED:
            kit.store.add_stopped(job.job_id, plan.attempt, rank, failure_of(fact, rank, plan.instances[rank]))
        elif fact.last_status == LastStatus.RUNNING:
            kit.store.add_running(job.job_id, plan.attempt, rank)


def failure_of(fact: TaskFact, rank: int, instance_id: str) -> RankFailure | None:
    """The failure that a STOPPED task is for its rank, None if it succeeded."""
    end = ending(fact, fact.main_container)
    return None if end.kind is EndingKind.SUCCEEDED else RankFailure(rank, instance_id, fact.at, end)


def _check_instances(kit: Kit, job: Job, pending: Pending) -> Acted:
    """Ask every instance of the attempt; a rank whose instance was never learnt counts as one that could not tell."""
    order: commands.CheckInstances = pending.command
    if order.attempt != job.attempt or job.status not in (JobStatus.DIAGNOSING, JobStatus.RECOVERING):
        return DONE  # `job.instances` are another attempt's by now, or nobody waits for an answer
    messages: list[Message] = []
    for rank, instance_id in enumerate(job.instances):
        if instance_id:
            messages.append(Message(instance_id, order.request))
            continue
        unknown = events.Checked(CheckOutcome.INCONCLUSIVE, "the rank never showed on which instance it was")
        kit.store.add_checked(job.job_id, order.attempt, rank, unknown)
    return Acted(tuple(messages))


def _release(kit: Kit, job: Job, pending: Pending) -> Acted:
    order: commands.ReleaseInstances = pending.command
    kept = set(order.keep_claims_of) | set(_not_ended(kit, job) if job.claims_kept else ())
    for instance_id in order.instances:
        if instance_id:
            keep = instance_id in kept
            kit.store.release_instance(instance_id, job.job_id, keep, order.attempt)
    return DONE


def _not_ended(kit: Kit, job: Job) -> tuple[str, ...]:
    """The instances of the attempt on which a rank's end is not confirmed: their GPUs are not free."""
    plan = kit.store.load_plan(job.job_id, job.attempt)
    progress = kit.store.load_progress(job.job_id, job.attempt)
    return progress.unconfirmed(plan) if plan is not None and progress is not None else ()


# -- of an instance ----------------------------------------------------------------------------------------------------


def _run_check(kit: Kit, instance: Instance, pending: Pending) -> Acted:
    """Start the check. Refused, it stays to be done: the instance's deadline, not this function, gives it up."""
    order: commands.RunCheck = pending.command
    if instance.check is None or instance.check.check_id != order.check_id:
        return DONE
    answer = kit.actions.run_check(instance, order.check_id, pending.refusals)
    return Acted(not_before=kit.now + CHECK_RETRY) if isinstance(answer, Refusal) else DONE


def _stop_check(kit: Kit, instance: Instance, pending: Pending) -> Acted:
    order: commands.StopCheck = pending.command
    tasks = kit.actions.tasks_started_by(order.check_id)
    kit.actions.stop_tasks(tasks, f"{OUR_STOP}{order.check_id} took too long")
    return DONE


def _observe_check(kit: Kit, instance: Instance, pending: Pending) -> Acted:
    order: commands.ObserveCheck = pending.command
    facts = kit.actions.describe_tasks(kit.actions.tasks_started_by(order.check_id))
    stopped = [fact for fact in facts if fact.last_status == LastStatus.STOPPED]
    return Acted((check_ended(kit, stopped[-1]),)) if stopped and len(stopped) == len(facts) else DONE


def check_ended(kit: Kit, fact: TaskFact) -> Message:
    """The message that a finished check task is for its instance."""
    container = fact.container(fact.main_container)
    try:
        document = kit.actions.verdict(fact.started_by)
    except VerdictUnreadable as garbled:
        unreadable = check.Verdict(CheckOutcome.INCONCLUSIVE, str(garbled))
        return Message(
            fact.started_by.split("/")[1], events.CheckEnded(at=fact.at, check_id=fact.started_by, verdict=unreadable)
        )
    verdict = check.judge(
        container.exit_code if container else None, document, document_required=kit.policy.blame_needs_document
    )
    instance_id = fact.started_by.split("/")[1]
    return Message(instance_id, events.CheckEnded(at=fact.at, check_id=fact.started_by, verdict=verdict))


def _observe_instance(kit: Kit, instance: Instance, pending: Pending) -> Acted:
    described = kit.actions.describe_instance(instance.container_instance_id)
    if described is None:
        return DONE
    return Acted((Message(instance.instance_id, replace(described[1], looked=True)),))


def _drain(kit: Kit, instance: Instance, pending: Pending) -> Acted:
    if instance.status in (InstanceStatus.REBOOTING, InstanceStatus.QUARANTINED):
        kit.actions.drain(instance)
    return DONE


def _activate(kit: Kit, instance: Instance, pending: Pending) -> Acted:
    if instance.status not in (InstanceStatus.REBOOTING, InstanceStatus.QUARANTINED, InstanceStatus.GONE):
        kit.actions.activate(instance)
    return DONE


def _reboot(kit: Kit, instance: Instance, pending: Pending) -> Acted:
    """Reboot once. If an earlier actor died with this order, only a look at the boot tells whether it was heard."""
    order: commands.RebootInstance = pending.command
    if instance.status not in (InstanceStatus.REBOOTING, InstanceStatus.VERIFYING) or instance.epoch != order.epoch:
        return DONE
    uncertain = Message(instance.instance_id, events.RebootUncertain(at=kit.now, epoch=order.epoch))
    died_before = pending.tries > pending.refusals + 1  # each refusal was followed by one more try, on purpose
    if died_before or instance.status is InstanceStatus.VERIFYING:
        return Acted((uncertain,))
    if _others_work_on(kit, instance):
        return Acted(not_before=kit.now + OTHERS_RETRY)  # looked at afresh; the deadline of the reboot escalates
    try:
        refusal = kit.actions.reboot(instance.instance_id)
    except OutcomeUnknown:
        return Acted((uncertain,))
    if refusal is None:
        return DONE
    refused = events.RebootRefused(at=kit.now, epoch=order.epoch, sentence=refusal.reason)
    return Acted((Message(instance.instance_id, refused),))


def _others_work_on(kit: Kit, instance: Instance) -> bool:
    """Whether a task holds GPUs of the instance that is neither our check nor the rank that the reboot is to end."""
    reboot = instance.reboot
    own = attempt_id(reboot.job_id, reboot.attempt) if reboot is not None and reboot.job_id else ""
    return any(
        fact.gpus
        and fact.started_by != own
        and instance_of_check(fact.started_by) is None
        and not _is_rank_of(fact, reboot)
        for fact in kit.actions.tasks_on(instance)
    )


def _is_rank_of(fact: TaskFact, reboot: Reboot | None) -> bool:
    """Whether a person's task is a rank of the job that the reboot is for."""
    says = carried(fact.environment)
    return reboot is not None and says is not None and says.job_id == reboot.job_id


def _report_check(kit: Kit, instance: Instance, pending: Pending) -> Acted:
    """Enter the result for the instance's ranks; whoever completes the set tells the job that the barrier is down."""
    order: commands.ReportCheck = pending.command
    plan = kit.store.load_plan(order.job_id, order.attempt)
    outcome = CheckOutcome(order.outcome)
    # A gang may be large and the progress is one item: a healthy instance needs no words, the others few.
    summary = "" if outcome is CheckOutcome.HEALTHY else order.summary[:SUMMARY_CHARACTERS_MAX]
    messages: list[Message] = []
    for rank in _ranks_on(plan, instance):
        result = events.Checked(outcome, summary, order.repairing)
        addition = kit.store.add_checked(order.job_id, order.attempt, rank, result)
        if plan is not None and addition is not None and addition.after.all_checked:
            results = addition.after.results(plan)
            down = events.InstancesChecked(at=kit.now, attempt=order.attempt, results=results)
            messages.append(Message(order.job_id, down))
    return Acted(tuple(messages))


def _confirm_end(kit: Kit, instance: Instance, pending: Pending) -> Acted:
    """Enter that the instance's ranks have ended, whatever ECS may say of their tasks."""
    order: commands.ConfirmEnd = pending.command
    messages: list[Message] = []
    for rank in _ranks_on(kit.store.load_plan(order.job_id, order.attempt), instance):
        gone = Ending(EndingKind.INTERRUPTED, None, order.sentence)
        failure = RankFailure(rank, instance.instance_id, kit.now, gone)
        addition = kit.store.add_stopped(order.job_id, order.attempt, rank, failure)
        news = news_of_stopped(addition.after, addition.first_failure, kit.now) if addition else None
        messages += [Message(order.job_id, news)] if news else []
    return Acted(tuple(messages))


def _ranks_on(plan: Plan | None, instance: Instance) -> list[int]:
    """The ranks that the plan has on this instance: one, but a person may start several."""
    where = plan.instances if plan is not None else ()
    return [rank for rank, instance_id in enumerate(where) if instance_id == instance.instance_id]


_ACTS: dict[type, Callable[[Kit, Any, Pending], Acted]] = {
    commands.LaunchAttempt: _launch,
    commands.ClaimInstance: _claim_for_person,
    commands.StopAttempt: _stop,
    commands.ObserveAttempt: _observe,
    commands.CheckInstances: _check_instances,
    commands.ReleaseInstances: _release,
    commands.RunCheck: _run_check,
    commands.StopCheck: _stop_check,
    commands.ObserveCheck: _observe_check,
    commands.ObserveInstance: _observe_instance,
    commands.DrainInstance: _drain,
    commands.ActivateInstance: _activate,
    commands.RebootInstance: _reboot,
    commands.ReportCheck: _report_check,
    commands.ConfirmEnd: _confirm_end,
}
