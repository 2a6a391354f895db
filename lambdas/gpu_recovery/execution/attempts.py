"""Carrying out the orders of a job: launching, stopping, observing and releasing a whole attempt at a time."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from gpu_recovery.core import commands, events
from gpu_recovery.core.attempt import Plan, Progress, news_of_stopped, untold
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.health_signals import MachineState
from gpu_recovery.core.heartbeat import Order, OrderKind
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.instance.record import Claim, Instance
from gpu_recovery.core.job.diagnosing import is_spared
from gpu_recovery.core.job.record import LIVE, TERMINAL, Job, JobStatus
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.state_machine import Pending
from gpu_recovery.core.task import OUR_STOP, Ending, EndingKind, LastStatus, RankFailure, TaskFact, ending
from gpu_recovery.execution.context import DONE, Acted, Kit, Message
from gpu_recovery.execution.hang_detection import stopped_progress
from gpu_recovery.execution.unregistered_tasks import instance_of, unseen_ranks
from gpu_recovery.ports.values import Refusal, state_of

STOP_GRACE_S = 5
"""Between the signal to leave and the one that nobody survives, where an agent ends a rank (seed 003: five seconds)."""


def launch(kit: Kit, job: Job, pending: Pending) -> Acted:
    """Claim every instance, then start every rank. Checked against the record first: it may no longer be wanted.

    One instance that is taken ends the launch, and by then others are claimed: the job gives them all back.
    """
    order: commands.LaunchAttempt = pending.command
    if job.status is not JobStatus.SUBMITTING or job.attempt != order.attempt:
        return Acted((_refused(kit, job, order.attempt, "the launch was given up"),))
    plan = kit.store.begin_attempt(
        Plan(job.job_id, order.attempt, order.instances, order.epochs, order.port_offset, ("",) * len(order.instances))
    )
    taken = _not_claimed(kit, job, plan, order.port_offset)
    if taken:
        first = plan.instances[min(taken)]
        return Acted((_refused(kit, job, order.attempt, f"{first} was no longer free"),))
    answers = kit.actions.run_ranks(job, plan)
    started = tuple("" if isinstance(answer, Refusal) else answer for answer in answers)
    kit.store.record_tasks(replace(plan, task_ids=started))
    refusals = [(rank, answer) for rank, answer in enumerate(answers) if isinstance(answer, Refusal)]
    if refusals:
        rank, refusal = refusals[0]
        sentence = f"ECS refused rank {rank} on {plan.instances[rank]}: {refusal.reason}"
        return Acted((_refused(kit, job, order.attempt, sentence, any(r.lasting for _, r in refusals)),))
    return Acted((Message(job.job_id, events.AttemptLaunched(at=kit.now, attempt=order.attempt)),))


def _not_claimed(kit: Kit, job: Job, plan: Plan, port_offset: int) -> list[int]:
    """Claim the instance of every rank; the ranks, in any order, whose instance is not free any more."""
    taken: list[int] = []

    def claim(wanted: tuple[int, str, int]) -> None:
        rank, instance_id, epoch = wanted
        one = Claim(plan.attempt, job.spec.gpus_per_node, port_offset, rank, epoch)
        if not kit.store.claim_instance(instance_id, job.job_id, one, epoch):
            taken.append(rank)

    kit.each(claim, list(zip(range(len(plan.instances)), plan.instances, plan.epochs, strict=True)))
    return taken


def _refused(kit: Kit, job: Job, attempt: int, sentence: str, lasting: bool = False) -> Message:
    event = events.LaunchRefused(at=kit.now, attempt=attempt, sentence=sentence, lasting=lasting)
    return Message(job.job_id, event)


def claim_for_person(kit: Kit, job: Job, pending: Pending) -> Acted:
    """Claim the instance of a person's rank, unless the gang has ended: nobody would take such a claim off again."""
    order: commands.ClaimInstance = pending.command
    if not _may_run(job, order.attempt):
        return DONE
    kit.store.claim_instance(order.instance_id, job.job_id, Claim(order.attempt, order.gpus, rank=order.rank), None)
    after = kit.store.load_job(job.job_id)
    if after is None or not _may_run(after, order.attempt):
        kit.store.release_instance(order.instance_id, job.job_id, False, order.attempt)
    return DONE


def _may_run(job: Job, attempt: int) -> bool:
    return job.attempt == attempt and job.status in LIVE


def stop(kit: Kit, job: Job, pending: Pending) -> Acted:
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


def suspend(kit: Kit, job: Job, pending: Pending) -> Acted:
    """Tell rank 0 that it must leave: ECS sends SIGTERM, which `gpu-recovery-run` takes for a notice.

    Where ECS knows no task of it the agent of its instance is asked for the same. Only there: a second SIGTERM ends the
    grace.
    """
    order: commands.SuspendAttempt = pending.command
    if order.attempt != job.attempt or job.status is not JobStatus.SUSPENDING:
        return DONE
    plan = kit.store.load_plan(job.job_id, order.attempt)
    task_id = plan.task_ids[0] if plan is not None and plan.task_ids else ""
    if not task_id:
        started = kit.actions.describe_tasks(kit.actions.tasks_started_by(attempt_id(job.job_id, order.attempt)))
        task_id = next((fact.task_id for fact in started if fact.rank == 0), "")
    name = attempt_id(job.job_id, order.attempt)
    known = bool(task_id) and kit.actions.stop_task(task_id, f"{OUR_STOP}{name} is to make room")
    if not known and job.instances and job.instances[0]:
        grace_s = job.spec.suspend_grace_s
        notice = Order(f"suspend/{name}", OrderKind.SUSPEND, job.job_id, order.attempt, grace_s)
        kit.store.give_order(job.instances[0], notice)
    return DONE


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
    seen = {fact.rank for fact in kit.actions.describe_tasks(task_ids)}
    known = {rank for rank, task_id in enumerate(plan.task_ids) if task_id}
    messages: list[Message] = []

    def enter(rank: int) -> None:
        addition = kit.store.add_stopped(job.job_id, job.attempt, rank, None)
        news = news_of_stopped(addition.after, False, kit.now) if addition else None
        if news is not None:
            messages.append(Message(job.job_id, news))

    kit.each(enter, sorted(set(range(len(plan.instances))) - seen - known))
    return Acted(tuple(messages))


def end_ranks(kit: Kit, job: Job, pending: Pending) -> Acted:
    """Leave the order to end the attempt's rank with the agent of each instance; where none was heard of, nobody can.

    The end itself is believed when ECS or a reboot confirms it.
    """
    order: commands.EndRanks = pending.command
    if order.attempt != job.attempt:
        return DONE
    stop_id = f"stop/{attempt_id(job.job_id, order.attempt)}"
    stop = Order(stop_id, OrderKind.STOP, job.job_id, order.attempt, STOP_GRACE_S)
    kit.each(lambda instance_id: kit.store.give_order(instance_id, stop), filter(None, job.instances))
    return DONE


def observe(kit: Kit, job: Job, pending: Pending) -> Acted:
    """Ask ECS about each rank whose end is not known, enter what it says, and report what the job has not heard."""
    order: commands.ObserveAttempt = pending.command
    plan = kit.store.load_plan(job.job_id, order.attempt)
    progress = kit.store.load_progress(job.job_id, order.attempt)
    if order.attempt != job.attempt or plan is None or progress is None:
        return DONE
    gone: tuple[Message, ...] = ()
    if job.status is not JobStatus.DIAGNOSING:
        plan = _with_tasks(kit, job, plan)
        _enter_ranks(kit, job, plan, progress)
        progress = kit.store.load_progress(job.job_id, order.attempt) or progress
        gone = _hosts_off(kit, list(filter(None, progress.unconfirmed(plan))))
    news = untold_to(job, progress, plan, kit.policy, kit.now) or (None if gone else _stalled(kit, job, plan))
    return Acted((*gone, Message(job.job_id, news))) if news else Acted(gone)


def _stalled(kit: Kit, job: Job, plan: Plan) -> events.JobEvent | None:
    """What a gang must hear that runs and does not get on, where its program says how far it is."""
    if not kit.policy.diagnose or job.status is not JobStatus.RUNNING:
        return None
    sentence = stopped_progress(kit.store, kit.policy, job, plan, kit.now)
    return events.ProgressStopped(at=kit.now, attempt=plan.attempt, sentence=sentence) if sentence else None


def _hosts_off(kit: Kit, instance_ids: list[str]) -> tuple[Message, ...]:
    """What instances must hear that EC2 shows stopped or terminated: ECS itself may never say so of a dead agent."""
    machines = kit.actions.machines(instance_ids) if instance_ids else {}
    running = MachineState.RUNNING
    found: list[Message] = []
    for one in dict.fromkeys([i for i in instance_ids if i not in machines or machines[i].state is not running]):
        state = state_of(one, machines, one not in machines and _lives(kit, one))
        if state is not None and state.is_off:
            found.append(Message(one, events.MachineSeen(at=kit.now, state=state)))
    return tuple(found)


def _lives(kit: Kit, instance_id: str) -> bool:
    record = kit.store.load_instance(instance_id)
    return record is not None and record.agent_connected


def untold_to(
    job: Job, progress: Progress, plan: Plan, policy: RecoveryPolicy, now: datetime
) -> events.JobEvent | None:
    """What the attempt's progress holds and `job` has not heard; the failure that an observed job records is heard.

    While its witnesses are to be heard again nothing is: whoever hears them says what follows, or has died of it.
    """
    hears = any(isinstance(one.command, commands.GatherEvidence) for one in job.commands)
    if hears and job.heard_again == job.attempt:
        return None
    news = untold(job.status, progress, plan, now, heard_again=job.heard_again == job.attempt)
    heard = job.is_observed(policy) and job.failure is not None and isinstance(news, events.RankFailed)
    return None if heard else news


def _with_tasks(kit: Kit, job: Job, plan: Plan) -> Plan:
    """The plan with the tasks that a launcher started and died before it entered them: else no look would find them."""
    if all(plan.task_ids) or job.started_by_person:
        return plan
    facts = kit.actions.describe_tasks(kit.actions.tasks_started_by(attempt_id(job.job_id, plan.attempt)))
    found = {fact.rank: fact.task_id for fact in facts}
    filled = replace(plan, task_ids=tuple(known or found.get(rank, "") for rank, known in enumerate(plan.task_ids)))
    if filled != plan:
        kit.store.record_tasks(filled)
    return filled


def _enter_ranks(kit: Kit, job: Job, plan: Plan, progress: Progress) -> None:
    """Enter what ECS says of the ranks whose end is not known; a task it neither knows nor lists has ended unseen."""
    asked = progress.unconfirmed_tasks(plan)
    shown = kit.actions.describe_tasks(asked)
    if (
        progress.all_running
        and len(shown) == len(asked)
        and {fact.last_status for fact in shown} == {LastStatus.RUNNING}
    ):
        return  # as at nearly every look at a gang of weeks
    facts = {fact.task_id: fact for fact in shown}
    listed = _listed(kit, job, plan) if len(facts) < len(asked) else frozenset()
    # What is known is not written again: a gang is looked at for weeks, and a refused write costs as much.
    run = {one for one, fact in facts.items() if fact.last_status == LastStatus.RUNNING}
    ranks = {task_id: rank for rank, task_id in enumerate(plan.task_ids)}
    news = [(one, ranks[one]) for one in asked if one not in run or ranks[one] not in progress.running]
    for task_id, rank in news:
        fact = facts.get(task_id)
        if fact is None and task_id in listed:
            continue  # ECS's answers do not agree yet: the next look asks again, and meanwhile the GPUs stay taken
        if fact is None:
            lost = Ending(EndingKind.CRASHED, None, "ended unseen: ECS no longer knows its task")
            failure = RankFailure(rank, plan.instances[rank], kit.now, lost)
            kit.store.add_stopped(job.job_id, plan.attempt, rank, failure)
        elif fact.last_status == LastStatus.STOPPED:
            kit.store.add_stopped(job.job_id, plan.attempt, rank, failure_of(fact, rank, plan.instances[rank]))
        elif fact.last_status == LastStatus.RUNNING:
            kit.store.add_running(job.job_id, plan.attempt, rank)


def _listed(kit: Kit, job: Job, plan: Plan) -> frozenset[str]:
    """The tasks of the attempt that ECS lists. A person's have no name in common: every task that is to run."""
    if job.started_by_person:
        return frozenset(fact.task_id for fact in kit.actions.running_tasks())
    return frozenset(kit.actions.tasks_started_by(attempt_id(job.job_id, plan.attempt)))


def failure_of(fact: TaskFact, rank: int, instance_id: str) -> RankFailure | None:
    """The failure that a STOPPED task is for its rank, None if it succeeded."""
    end = ending(fact, fact.main_container)
    return None if end.kind is EndingKind.SUCCEEDED else RankFailure(rank, instance_id, fact.at, end)


def check_instances(kit: Kit, job: Job, pending: Pending) -> Acted:
    """Ask every instance of the attempt; a rank whose instance was never learnt counts as one that could not tell."""
    order: commands.CheckInstances = pending.command
    if order.attempt != job.attempt or job.status not in (JobStatus.DIAGNOSING, JobStatus.RECOVERING):
        return DONE  # `job.instances` are another attempt's by now, or nobody waits for an answer
    if is_spared(job):
        return DONE
    messages: list[Message] = []
    conclusion = job.diagnosed
    request = replace(order.request, focus=conclusion.gpus) if conclusion is not None else order.request
    for rank, instance_id in enumerate(job.instances):
        if instance_id:
            messages.append(Message(instance_id, request))
            continue
        unknown = events.Checked(CheckOutcome.INCONCLUSIVE, "the rank never showed on which instance it was")
        kit.store.add_checked(job.job_id, order.attempt, rank, unknown)
    return Acted(tuple(messages))


def as_it_is_waited_for(record: Job | Instance, event: events.InstanceEvent) -> events.InstanceEvent:
    """The event for an instance. What is asked for when its job has gone on or ended is waited for by nobody."""
    if not isinstance(record, Job) or not isinstance(event, events.CheckRequested | events.RepairRequested):
        return event
    checked = (JobStatus.DIAGNOSING, JobStatus.RECOVERING)
    waits = record.status in checked if isinstance(event, events.CheckRequested) else record.status not in TERMINAL
    return event if waits and record.attempt == event.attempt else replace(event, awaited=False)


def release(kit: Kit, job: Job, pending: Pending) -> Acted:
    order: commands.ReleaseInstances = pending.command
    kept = set(order.keep_claims_of) | set(_not_ended(kit, job) if job.claims_kept else ())

    def give_back(instance_id: str) -> None:
        left_out_at = kit.now if instance_id in order.left_out else None
        kit.store.release_instance(instance_id, job.job_id, instance_id in kept, order.attempt, left_out_at)

    kit.each(give_back, filter(None, order.instances))
    return DONE


def _not_ended(kit: Kit, job: Job) -> tuple[str, ...]:
    """The instances of the attempt on which a rank's end is not confirmed: their GPUs are not free."""
    plan = kit.store.load_plan(job.job_id, job.attempt)
    progress = kit.store.load_progress(job.job_id, job.attempt)
    return progress.unconfirmed(plan) if plan is not None and progress is not None else ()
