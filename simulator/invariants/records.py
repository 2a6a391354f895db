"""The invariants that must hold after every step, for the records and for the modelled instances.

Each check yields one sentence for each violation. A sentence begins with the number of the invariant.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime

from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.instance.record import IN_REPAIR, Instance, InstanceStatus, RepairLevel
from gpu_recovery.core.job.record import TERMINAL, Job, JobStatus, Origin
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.state_machine import due_at

from sandbox.cluster.model.records import Task
from simulator.cloud.held_ranks import is_running
from simulator.cloud.task_environment import environment
from simulator.invariants import quotas
from simulator.world_view import WorldView


class InvariantBroken(AssertionError):
    """An invariant does not hold. The message contains the violations and the transcript."""


_WAITS_FOR_NOTHING = (InstanceStatus.AVAILABLE, InstanceStatus.GONE)
_OUT_OF_USE = (InstanceStatus.QUARANTINED, InstanceStatus.GONE)


def broken(world: WorldView, instances: Collection[Instance]) -> Iterator[str]:
    """Yield a sentence for each invariant that does not hold now. `instances`: all instance records."""
    jobs = world.jobs()
    adopted = {job.job_id for job in jobs if job.origin is Origin.ADOPTED}
    yield from of_records(world, jobs, instances, adopted)
    yield from of_processes(world, world.fleet.running(), world.cluster.tasks.values(), adopted)
    repairing = {instance.instance_id for instance in instances if instance.under_repair}
    yield from of_the_budget(world, repairing, len(instances))
    yield from quotas.miscounted(world.store, jobs)


def of_records(
    world: WorldView, jobs: Collection[Job], instances: Collection[Instance], adopted: Collection[str]
) -> Iterator[str]:
    """Check what each of these records must satisfy. `adopted`: the ids of all jobs that operators started."""
    yield from _owners(instances, adopted)
    yield from _waiting(jobs, instances)
    yield from _counts(jobs, world.policy)
    yield from _quarantined(world.quarantined, instances)


def of_processes(
    world: WorldView, running: Collection[Task], launched: Collection[Task], adopted: Collection[str]
) -> Iterator[str]:
    """Check the running processes.

    Args:
        world: The world.
        running: Running tasks, with all other running tasks on the same instances.
        launched: Tasks of whole attempts, running or not.
        adopted: The ids of all jobs that operators started.
    """
    yield from _shared(running)
    yield from _attempts(world, launched, adopted)
    yield from _claimed(world, running)
    yield from _widths(world, running)


_REPAIRED = (*IN_REPAIR, InstanceStatus.QUARANTINED)


def _owners(instances: Iterable[Instance], adopted: Collection[str]) -> Iterator[str]:
    """I1: no GPU is claimed by two jobs.

    Claims of gangs that operators started do not count here. They show what ECS has assigned already, perhaps before
    the
    product received the event. ECS then refuses the rank that the product has planned there.
    """
    for instance in instances:
        if not instance.claims:
            continue
        job_ids = [job_id for job_id in instance.claims if job_id not in adopted]
        claimed = sum(instance.claims[job_id].gpus for job_id in job_ids)
        if claimed > instance.gpus_most:
            yield (
                f"I1: {claimed} of {instance.gpus_most} GPUs of {instance.instance_id} "
                f"are claimed by {', '.join(job_ids)}"
            )


def _shared(running: Iterable[Task]) -> Iterator[str]:
    """I1 for processes: no two processes use one GPU."""
    users: dict[str, Task] = {}
    for task in running:
        for gpu in task.gpu_ids:
            if gpu in users:
                yield f"I1: {gpu} is used by {users[gpu].started_by} and {task.started_by}"
            users[gpu] = task


def _waiting(jobs: Iterable[Job], instances: Iterable[Instance]) -> Iterator[str]:
    """I2: no job is lost, and no record waits without a deadline."""
    for job in jobs:
        if job.status not in TERMINAL and _next(job.deadline_at, job.look_at, job) is None:
            yield f"I2: {job.job_id} is {job.status} and nothing will ever look at it"
    for instance in instances:
        if (
            instance.status not in _WAITS_FOR_NOTHING
            and _next(instance.deadline_at, instance.look_at, instance) is None
        ):
            yield f"I2: {instance.instance_id} is {instance.status} and nothing will ever look at it"


def _next(deadline: datetime | None, look: datetime | None, record: Job | Instance) -> datetime | None:
    return due_at(deadline, look, record.commands)


def _counts(jobs: Iterable[Job], policy: RecoveryPolicy) -> Iterator[str]:
    """I3: counted attempts do not exceed the attempt limit."""
    for job in jobs:
        attempts_max = job.attempts_max(policy)
        if job.attempts_counted > attempts_max or (job.attempts_counted >= attempts_max and job.status not in TERMINAL):
            yield f"I3: {job.job_id} is {job.status} with {job.attempts_counted} of {attempts_max} attempts counted"


def _quarantined(quarantined: Collection[str], instances: Iterable[Instance]) -> Iterator[str]:
    """I13: an instance that an operator has quarantined is out of use until an operator releases it.

    Args:
        quarantined: the instances that an operator has quarantined and not released, by the answers of the job API.
        instances: the records.
    """
    for instance in instances:
        if instance.instance_id in quarantined and instance.status not in _OUT_OF_USE:
            yield f"I13: {instance.instance_id} is {instance.status} without a release: {instance.reason}"


def _attempts(world: WorldView, launched: Iterable[Task], adopted: Collection[str]) -> Iterator[str]:
    """I4: processes of one attempt of a job run at a time, and each rank of a launched attempt has one task.

    In a container that was held, a later attempt runs than the attempt that ECS names.
    """
    present = world.fleet.ranks
    live: defaultdict[str, set[str]] = defaultdict(set)
    ranks: Counter[tuple[str, str]] = Counter()
    for task in launched:
        env, started_by = environment(task), task.started_by or ""
        if "CHECK_ID" in env or "JOB_ID" not in env:
            continue
        if "--a" in started_by:
            ranks[(started_by, env["RANK"])] += 1
        if is_running(task, present) and ("--a" in started_by or env["JOB_ID"] in adopted):
            live[env["JOB_ID"]].add(present.attempt_name(task))
    for job_id, attempts in live.items():
        if len(attempts) > 1:
            yield f"I4: {job_id} runs as {' and '.join(sorted(attempts))} at once"
    for (started_by, rank), count in ranks.items():
        if count > 1:
            yield f"I4: rank {rank} of {started_by} was started {count} times"


def _claimed(world: WorldView, running: Iterable[Task]) -> Iterator[str]:
    """I1 for claims: a running rank that the product launched has its claim until its end is confirmed."""
    for task in running:
        job_id, _, attempt = (task.started_by or "").partition("--a")
        if not attempt or "JOB_ID" not in environment(task):
            continue
        record = world.store.load_instance(task.instance_id)
        claim = record.claims.get(job_id) if record is not None else None
        known_gone = record is None or record.status is InstanceStatus.GONE
        is_later = task.task_id in world.fleet.ranks.present
        runs = world.fleet.ranks.attempt(task) if is_later else int(attempt)
        # The launch of the next attempt takes the claim of a held rank over before the attempt starts there.
        is_claimed = claim is not None and (
            claim.attempt == runs or (task.task_id in world.fleet.ranks.held and claim.attempt > runs)
        )
        if not known_gone and not is_claimed:
            yield f"I1: {task.started_by} runs on {task.instance_id} without a claim on it"


def _widths(world: WorldView, running: Iterable[Task]) -> Iterator[str]:
    """I4 for elastic jobs: each process knows how many ranks its attempt has, and is one of them."""
    elastic = {job.job_id: job for job in world.jobs() if job.spec.nnodes_min is not None}
    for task in running if elastic else ():
        variables = world.fleet.ranks.environment(task)
        job = elastic.get(variables.get("JOB_ID", ""))
        if job is None or not is_running(task, world.fleet.ranks) or variables["ATTEMPT"] != str(job.attempt):
            continue
        if int(variables["WORLD_SIZE"]) != len(job.instances) or int(variables["RANK"]) >= len(job.instances):
            told = f"rank {variables['RANK']} of {variables['WORLD_SIZE']}"
            yield f"I4: a rank of {job.job_id} was started as {told}, and the attempt has {len(job.instances)} ranks"


def of_the_budget(world: WorldView, repairing: Collection[str], instances: int) -> Iterator[str]:
    """I5: the instances under repair stay within the repair budget, and the fleet record lists exactly them."""
    fleet = world.store.load_fleet()
    if repairing != fleet.repairing:
        yield f"I5: {sorted(repairing)} are under repair, but the fleet's record says {sorted(fleet.repairing)}"
    if len(repairing) > max(1, instances * world.policy.repair_budget_percent // 100):
        yield f"I5: {len(repairing)} instances are under repair at once"


def returned_to_work(world: WorldView, before: Instance, after: Instance) -> Iterator[str]:
    """I6: an instance becomes AVAILABLE again only after proof of its reboot and a passing health check."""
    if before.status not in _REPAIRED or after.status is not InstanceStatus.AVAILABLE or before.withdrawn:
        return
    instance = world.cluster.instances[after.instance_id]
    if before.status is not InstanceStatus.VERIFYING or before.check is None:
        yield f"I6: {after.instance_id} went from {before.status} back to work without a check"
    if after.boot_id != instance.boot_id:
        yield f"I6: {after.instance_id} works again, but the check saw another boot than the machine has"
    booted = before.need is None or before.need.rung is not RepairLevel.RESET
    if before.reboot is not None and booted and instance.boot_id == before.reboot.boot_id:
        yield f"I6: {after.instance_id} works again on the boot it had before it was to be rebooted"
    verdict = world.checks.bucket.get(before.check.check_id) if before.check is not None else None
    if verdict is None and not world.policy.require_verdict_document:
        return  # the exit code alone decides
    if verdict is None or verdict.outcome is not CheckOutcome.HEALTHY:
        yield f"I6: {after.instance_id} works again, but its last check did not pass"


def rebooted(world: WorldView, instance_id: str) -> Iterator[str]:
    """I12: a reboot never ends a rank that no command was to end."""
    record = world.store.load_instance(instance_id)
    ends_ranks = record is not None and record.reboot is not None and record.reboot.ends is not None
    for task in world.fleet.running():
        is_rank = "CHECK_ID" not in environment(task) and is_running(task, world.fleet.ranks)
        if task.instance_id == instance_id and is_rank and not ends_ranks:
            yield f"I12: {instance_id} is rebooted under {task.started_by}"


def reset_under_ranks(world: WorldView, instance_id: str) -> Iterator[str]:
    """I12 for a reset: the GPUs of an instance are not reset while a rank runs on it."""
    for task in world.fleet.running():
        is_rank = "CHECK_ID" not in environment(task) and is_running(task, world.fleet.ranks)
        if task.instance_id == instance_id and is_rank:
            yield f"I12: the GPUs of {instance_id} are reset under {task.started_by}"


def cut_off(world: WorldView, instance_id: str, ordered_at: datetime) -> Iterator[str]:
    """I12 for a late reboot: no rank began on the instance after the order to reboot it."""
    for task in world.fleet.running():
        begun_at = task.process_started_at
        if task.instance_id == instance_id and "--a" in (task.started_by or "") and begun_at and begun_at > ordered_at:
            yield f"I12: {task.started_by} was begun on {instance_id}, whose reboot was still to come"


def unannounced_failures(world: WorldView) -> Iterator[str]:
    """I7: each terminal failure is announced under its own incident id.

    It is announced at least once, and more than once only if an invocation was interrupted. Checked at the end of a
    run.
    """
    for job in world.jobs():
        if job.status is not JobStatus.FAILED:
            continue
        messages = [
            message
            for _, message in world.actions.notified
            if message.incident_id == job.incident_id and "FAILED" in message.subject
        ]
        if not messages:
            yield f"I7: nobody was told that {job.job_id} failed"
        if len(messages) > 1 + world.invocations.interrupted:
            yield f"I7: {len(messages)} messages say that {job.job_id} failed"


def left_behind(world: WorldView) -> Iterator[str]:
    """Check the end of a run: every job has ended, and no claim, reservation or pending command is left."""
    for job in world.jobs():
        if job.status not in TERMINAL:
            yield f"I2: {job.job_id} is still {job.status}: {job.reason}"
            continue
        if job.commands:
            yield f"I2: {job.job_id} has ended with {len(job.commands)} command(s) left: {job.commands[0].command}"
        for instance in world.instances():
            if job.job_id in instance.claims and "never confirmed" not in job.reason:
                yield f"I1: {instance.instance_id} is still claimed by {job.job_id}, which is {job.status}"
            if instance.reserved_for == job.job_id:
                yield f"I1: {instance.instance_id} is still reserved for {job.job_id}, which is {job.status}"
    for instance in world.instances():
        if instance.commands:
            yield f"I2: {instance.instance_id} is {instance.status} with {instance.commands[0].command} left to do"
