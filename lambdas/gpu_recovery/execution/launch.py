"""Gang launch: claim every instance of an attempt, then start every rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from gpu_recovery.core import commands, events
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.fleet import Fleet, with_missing_permission, with_permission_granted
from gpu_recovery.core.health_signals import Ec2InstanceState
from gpu_recovery.core.heartbeat import AgentCommand, AgentCommandKind
from gpu_recovery.core.identifiers import attempt_id, listed
from gpu_recovery.core.instance.record import Claim
from gpu_recovery.core.job.rank_overrides import in_place_environment
from gpu_recovery.core.job.record import LIVE, Job, JobStatus
from gpu_recovery.core.job.spec import runs_preflight
from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.execution.context import (
    DONE,
    RANKS_AT_ONCE,
    UNFINISHED,
    CommandResult,
    ExecutionContext,
    FollowUp,
)
from gpu_recovery.execution.held_tasks import ended_meanwhile, held_tasks
from gpu_recovery.execution.warm_spares import ended_since, tasks_to_use
from gpu_recovery.ports.errors import TryAgainSoon
from gpu_recovery.ports.retry import SAVE_ATTEMPTS_MAX, save_with_retry
from gpu_recovery.ports.store import Store
from gpu_recovery.ports.values import Ec2Instance, Refusal

ABSENT_NAMED_MAX = 3
"""Largest number of absent instances that the reason of a refused launch names."""


def launch(context: ExecutionContext, job: Job, pending: PendingCommand) -> CommandResult:
    """Claim every instance, then start every rank, if the record still waits for this launch.

    A function that has no time for all ranks leaves the others. The plan shows which ranks have their task. If an
    instance or ECS refuses, the job receives `LaunchRefused` and releases the instances that were claimed.
    """
    command: commands.LaunchAttempt = pending.command
    if job.status is not JobStatus.SUBMITTING or job.attempt != command.attempt:
        return CommandResult((_launch_refused(context, job, command.attempt, "the launch was abandoned"),))
    # EC2 is asked before any claim: ECS may list an instance for a while after EC2 has terminated it.
    described = context.actions.describe_ec2(command.instances)
    absent = _absent_instances(command.instances, described)
    if absent:
        return CommandResult(tuple(_refused_by_ec2(context, job, command.attempt, absent, described)))
    plan = context.store.begin_attempt(
        Plan(
            job.job_id,
            command.attempt,
            command.instances,
            command.epochs,
            command.port_offset,
            ("",) * len(command.instances),
            signed=True,
            hold_s=command.hold_s,
            preflight=runs_preflight(job.spec, context.policy),
        )
    )
    left = [rank for rank, task_id in enumerate(plan.task_ids) if not task_id]
    taken = _unclaimed_ranks(context, job, plan, left, command)
    if taken:
        names = tuple(plan.instances[rank] for rank in sorted(taken))
        sentence = f"{names[0]} was no longer free"
        return CommandResult((_launch_refused(context, job, command.attempt, sentence, names),))
    master_ip = described[plan.instances[0]].private_ip
    ended: tuple[FollowUp, ...] = ()
    if command.in_place_of or tasks_to_use(job, command.attempt):
        plan, ended = start_in_place(context, job, plan, command.in_place_of, master_ip)
        left = [rank for rank in left if not plan.task_ids[rank]]
    refusals = _start(context, job, plan, left, master_ip)
    if refusals is None:
        return UNFINISHED
    lacks = next((refusal.lacks for _, refusal in refusals if refusal.lacks is not None), None)
    if command.is_probe and lacks is None:
        definition = job.spec.task_definition
        _change_fleet(context, lambda fleet: with_permission_granted(fleet, definition))
    if refusals:
        return CommandResult((FollowUp(job.job_id, _refused_by_ecs(context, job, plan, refusals)),))
    event = events.AttemptLaunched(at=context.now, attempt=command.attempt, ends_hold=command.is_probe)
    return CommandResult((FollowUp(job.job_id, event), *ended))


def start_in_place(
    context: ExecutionContext, job: Job, plan: Plan, held_attempt: int, master_ip: str
) -> tuple[Plan, tuple[FollowUp, ...]]:
    """Start the ranks on instances with a held task, or a warm spare, in that task, through the agents there.

    The plan names the tasks before a start command exists, so that an end of a task is an end of its rank here. A
    repeated launch sends the commands again; an agent starts an attempt once.

    Returns:
        The plan with the held tasks, and the events of ranks whose task has ended meanwhile.
    """
    held = {**held_tasks(context.store, job.job_id, (held_attempt,)), **tasks_to_use(job, plan.attempt)}
    used = {
        rank: held[name]
        for rank, name in enumerate(plan.instances)
        if name in held and plan.task_ids[rank] in ("", held[name].task_id)
    }
    task_ids = tuple(used[rank].task_id if rank in used else known for rank, known in enumerate(plan.task_ids))
    plan = replace(plan, task_ids=task_ids)
    context.store.record_tasks(plan, used)
    ended = ended_meanwhile(context, job.job_id, plan.attempt, used, ended_since(context.store, job, used.values()))

    def send(rank: int) -> None:
        start = AgentCommand(
            f"start/{attempt_id(job.job_id, plan.attempt)}",
            AgentCommandKind.START,
            job.job_id,
            used[rank].attempt,
            0,
            tuple(in_place_environment(job.spec, plan, rank, master_ip).items()),
            plan.attempt,
        )
        context.store.add_agent_command(plan.instances[rank], start)

    context.for_each(send, used)
    return plan, ended


def _absent_instances(instances: Sequence[str], described: Mapping[str, Ec2Instance]) -> dict[str, str]:
    """Return the instances on which no rank can start, each with what EC2 says about it, as a clause.

    Only rank 0 needs an answer: without the address of its instance the ranks do not find each other.
    """
    absent = {
        instance_id: f"EC2 shows {instance_id} {described[instance_id].state}"
        for instance_id in instances
        if instance_id in described and described[instance_id].state is not Ec2InstanceState.RUNNING
    }
    master = instances[0]
    if master not in absent and (master not in described or not described[master].private_ip):
        absent[master] = f"EC2 shows no address of {master}"
    return absent


def _refused_by_ec2(
    context: ExecutionContext, job: Job, attempt: int, absent: Mapping[str, str], described: Mapping[str, Ec2Instance]
) -> Iterator[FollowUp]:
    """Yield what each absent instance has to learn, and then the event that ends the launch."""
    for instance_id in absent:
        if instance_id in described and described[instance_id].state.is_off:
            yield FollowUp(instance_id, events.MachineSeen(at=context.now, state=described[instance_id].state))
    yield _launch_refused(context, job, attempt, listed(absent.values(), ABSENT_NAMED_MAX))


def _start(
    context: ExecutionContext, job: Job, plan: Plan, ranks: Sequence[int], master_ip: str
) -> list[tuple[int, Refusal]] | None:
    """Start `ranks` part by part, and record the tasks of each part in the plan.

    Returns:
        The refusals of the first part that has any; no further rank is started then. None if the time was over first.

    Raises:
        TryAgainSoon: AWS throttled a rank. The tasks of the other ranks of its part are recorded.
    """
    task_ids = list(plan.task_ids)
    for start in range(0, len(ranks), RANKS_AT_ONCE):
        if start and not context.has_time():
            return None
        part = ranks[start : start + RANKS_AT_ONCE]
        answers = context.actions.run_ranks(job, plan, part, master_ip, context.store.launch_key())
        refusals: list[tuple[int, Refusal]] = []
        throttles: list[TryAgainSoon] = []
        for rank, answer in zip(part, answers, strict=True):
            if isinstance(answer, Refusal):
                refusals.append((rank, answer))
            elif isinstance(answer, TryAgainSoon):
                throttles.append(answer)
            else:
                task_ids[rank] = answer
        context.store.record_tasks(replace(plan, task_ids=tuple(task_ids)), part)
        if refusals:
            return refusals
        if throttles:
            raise throttles[0]
    return []


def _unclaimed_ranks(
    context: ExecutionContext, job: Job, plan: Plan, ranks: Sequence[int], command: commands.LaunchAttempt
) -> list[int]:
    """Claim the instances of `ranks`. Return, in any order, the ranks with an instance that is no longer free."""
    taken: list[int] = []
    warm = tasks_to_use(job, command.attempt)

    def claim(placement: tuple[int, str, int]) -> None:
        rank, instance_id, epoch = placement
        rank_claim = Claim(plan.attempt, job.spec.gpus_per_node, command.port_offset, rank, epoch)
        before = warm[instance_id].attempt if instance_id in warm else command.in_place_of
        if not context.store.claim_instance(instance_id, job.job_id, rank_claim, epoch, before):
            taken.append(rank)

    context.for_each(claim, [(rank, plan.instances[rank], plan.epochs[rank]) for rank in ranks])
    return taken


def _launch_refused(
    context: ExecutionContext, job: Job, attempt: int, sentence: str, instances: tuple[str, ...] = ()
) -> FollowUp:
    event = events.LaunchRefused(at=context.now, attempt=attempt, sentence=sentence, instances=instances)
    return FollowUp(job.job_id, event)


def _refused_by_ecs(
    context: ExecutionContext, job: Job, plan: Plan, refusals: Sequence[tuple[int, Refusal]]
) -> events.LaunchRefused:
    """Return the event of a launch that ECS refused for some ranks.

    A lasting refusal decides before a missing permission, and a missing permission before any other.
    """
    rank, refusal = min(refusals, key=lambda each: (not each[1].lasting, each[1].lacks is None, each[0]))
    event = events.LaunchRefused(
        at=context.now,
        attempt=plan.attempt,
        sentence=f"ECS refused rank {rank} on {plan.instances[rank]}: {refusal.reason}",
        lasting=refusal.lasting,
        lacks=refusal.lacks,
        authorized=all(each.lacks is None for _, each in refusals),
        instances=tuple(plan.instances[refused] for refused, _ in refusals),
    )
    lacks = refusal.lacks
    if lacks is None:
        return event
    definition, attempt = job.spec.task_definition, attempt_id(plan.job_id, plan.attempt)

    def denied(fleet: Fleet) -> Fleet:
        return with_missing_permission(fleet, lacks, definition, attempt, context.policy, context.now)

    fleet = _change_fleet(context, denied)
    is_told = fleet.permissions[lacks.name].attempt != attempt
    return replace(event, is_told=is_told, pause_s=fleet.denied_launches[lacks.scope(definition)].pause_s)


def _change_fleet(context: ExecutionContext, change: Callable[[Fleet], Fleet]) -> Fleet:
    store = context.store
    contended = f"refused {SAVE_ATTEMPTS_MAX} times: other functions write the fleet record at the same time"
    return save_with_retry(store.load_fleet, change, store.save_fleet, SAVE_ATTEMPTS_MAX, contended)


def claim_adopted_instance(context: ExecutionContext, job: Job, pending: PendingCommand) -> CommandResult:
    """Claim the instance of an adopted rank. An older release gave such a command for each rank."""
    command: commands.ClaimInstance = pending.command
    if job.attempt == command.attempt:
        claim = Claim(command.attempt, command.gpus, rank=command.rank)
        claim_for_adopted(context.store, job, command.instance_id, claim)
    return DONE


def claim_for_adopted(store: Store, job: Job, instance_id: str, claim: Claim) -> Job | None:
    """Claim the instance of an adopted rank, unless the attempt has ended. Return the job as it is after the claim.

    A claim that is added after the end of the attempt would stay for ever, so the job is loaded again after the claim.
    """
    if not _may_run(job, claim.attempt):
        return job
    store.claim_instance(instance_id, job.job_id, claim, None)
    after = store.load_job(job.job_id)
    if after is None or not _may_run(after, claim.attempt):
        store.release_instance(instance_id, job.job_id, False, claim.attempt)
    return after


def _may_run(job: Job, attempt: int) -> bool:
    return job.attempt == attempt and job.status in LIVE
