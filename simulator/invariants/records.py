"""What must hold after every step, asked of the records and of what is really so on the machines."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime

from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.core.job.record import TERMINAL, Job, JobStatus, Origin
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.state_machine import due_at

from sandbox.cluster.model.records import Task
from sandbox.cluster.model.statuses import ProcessState
from simulator.cloud.workloads import environment
from simulator.invariants import quotas
from simulator.world_view import WorldView


class InvariantBroken(AssertionError):
    """Something happened that never may."""


_WAITS_FOR_NOTHING = (InstanceStatus.AVAILABLE, InstanceStatus.GONE)


def broken(world: WorldView, instances: Collection[Instance]) -> Iterator[str]:
    """Every invariant that does not hold now, as a sentence that begins with its number. `instances`: all records."""
    jobs = world.jobs()
    adopted = {job.job_id for job in jobs if job.origin is Origin.ADOPTED}
    yield from of_records(world, jobs, instances, adopted)
    yield from of_processes(world, world.fleet.running(), world.cluster.tasks.values(), adopted)
    repairing = {one.instance_id for one in instances if one.under_repair}
    yield from of_the_budget(world, repairing, len(instances))
    yield from quotas.miscounted(world.store, jobs)


def of_records(
    world: WorldView, jobs: Collection[Job], instances: Collection[Instance], adopted: Collection[str]
) -> Iterator[str]:
    """What each of these records must keep by itself. `adopted`: every job that people started."""
    yield from _owners(instances, adopted)
    yield from _waiting(jobs, instances)
    yield from _counts(jobs, world.policy)


def of_processes(
    world: WorldView, running: Collection[Task], launched: Collection[Task], adopted: Collection[str]
) -> Iterator[str]:
    """What really runs: `running`, with everything else on the same instances; `launched`, with the whole attempts."""
    yield from _shared(running)
    yield from _attempts(launched, adopted)
    yield from _claimed(world, running)


_REPAIRED = (InstanceStatus.REBOOTING, InstanceStatus.REPLACING, InstanceStatus.VERIFYING, InstanceStatus.QUARANTINED)


def _owners(instances: Iterable[Instance], adopted: Collection[str]) -> Iterator[str]:
    """I1: no GPU is owned by two jobs.

    The claim of a gang that people started counts for nothing here: it says what ECS has given away already, perhaps
    before we heard of it, and then ECS refuses the rank that we had planned there.
    """
    for one in instances:
        if not one.claims:
            continue
        ours = [job_id for job_id in one.claims if job_id not in adopted]
        claimed = sum(one.claims[job_id].gpus for job_id in ours)
        if claimed > one.gpus_most:
            yield f"I1: {claimed} of {one.gpus_most} GPUs of {one.instance_id} are claimed by {', '.join(ours)}"


def _shared(running: Iterable[Task]) -> Iterator[str]:
    """I1, as it really is: no two processes use one GPU."""
    users: dict[str, Task] = {}
    for task in running:
        for gpu in task.gpu_ids:
            if gpu in users:
                yield f"I1: {gpu} is used by {users[gpu].started_by} and {task.started_by}"
            users[gpu] = task


def _waiting(jobs: Iterable[Job], instances: Iterable[Instance]) -> Iterator[str]:
    """I2: no job is lost, none waits without a deadline."""
    for job in jobs:
        if job.status not in TERMINAL and _next(job.deadline_at, job.look_at, job) is None:
            yield f"I2: {job.job_id} is {job.status} and nothing will ever look at it"
    for one in instances:
        if one.status not in _WAITS_FOR_NOTHING and _next(one.deadline_at, one.look_at, one) is None:
            yield f"I2: {one.instance_id} is {one.status} and nothing will ever look at it"


def _next(deadline: datetime | None, look: datetime | None, record: Job | Instance) -> datetime | None:
    return due_at(deadline, look, record.commands)


def _counts(jobs: Iterable[Job], policy: RecoveryPolicy) -> Iterator[str]:
    """I3: counted attempts are no more than there may be."""
    for job in jobs:
        most = job.attempts_max(policy)
        if job.attempts_counted > most or (job.attempts_counted >= most and job.status not in TERMINAL):
            yield f"I3: {job.job_id} is {job.status} with {job.attempts_counted} of {most} attempts counted"


def _attempts(launched: Iterable[Task], adopted: Collection[str]) -> Iterator[str]:
    """I4: one live attempt of a job, and one task per rank of an attempt that we launched."""
    live: defaultdict[str, set[str]] = defaultdict(set)
    ranks: Counter[tuple[str, str]] = Counter()
    for task in launched:
        env, started_by = environment(task), task.started_by or ""
        if "CHECK_ID" in env or "JOB_ID" not in env:
            continue
        if "--a" in started_by:
            ranks[(started_by, env["RANK"])] += 1
        if task.process is ProcessState.RUNNING and ("--a" in started_by or env["JOB_ID"] in adopted):
            live[env["JOB_ID"]].add(started_by)
    for job_id, attempts in live.items():
        if len(attempts) > 1:
            yield f"I4: {job_id} runs as {' and '.join(sorted(attempts))} at once"
    for (started_by, rank), count in ranks.items():
        if count > 1:
            yield f"I4: rank {rank} of {started_by} was started {count} times"


def _claimed(world: WorldView, running: Iterable[Task]) -> Iterator[str]:
    """I1 from the other side: a rank that we launched and that runs has its claim, until its end is confirmed."""
    for task in running:
        job_id, _, attempt = (task.started_by or "").partition("--a")
        if not attempt:
            continue
        record = world.store.load_instance(task.instance_id)
        claim = record.claims.get(job_id) if record is not None else None
        known_gone = record is None or record.status is InstanceStatus.GONE
        if not known_gone and (claim is None or claim.attempt != int(attempt)):
            yield f"I1: {task.started_by} runs on {task.instance_id} without a claim on it"


def of_the_budget(world: WorldView, repairing: Collection[str], instances: int) -> Iterator[str]:
    """I5: never more than the health budget under repair, and the fleet's record knows exactly who is."""
    fleet = world.store.load_fleet()
    if repairing != fleet.repairing:
        yield f"I5: {sorted(repairing)} are under repair, but the fleet's record says {sorted(fleet.repairing)}"
    if len(repairing) > max(1, instances * world.policy.repair_budget_percent // 100):
        yield f"I5: {len(repairing)} instances are under repair at once"


def returned_to_work(world: WorldView, before: Instance, after: Instance) -> Iterator[str]:
    """I6: an instance works again only after proof of its reboot and a passing check."""
    if before.status not in _REPAIRED or after.status is not InstanceStatus.AVAILABLE or before.withdrawn:
        return
    machine = world.cluster.instances[after.instance_id]
    if before.status is not InstanceStatus.VERIFYING or before.check is None:
        yield f"I6: {after.instance_id} went from {before.status} back to work without a check"
    if after.boot_id != machine.boot_id:
        yield f"I6: {after.instance_id} works again, but the check saw another boot than the machine has"
    if before.reboot is not None and machine.boot_id == before.reboot.boot_id:
        yield f"I6: {after.instance_id} works again on the boot it had before it was to be rebooted"
    verdict = world.checks.bucket.get(before.check.check_id) if before.check is not None else None
    if verdict is None and not world.policy.require_verdict_document:
        return  # the exit code alone decides
    if verdict is None or verdict.outcome is not CheckOutcome.HEALTHY:
        yield f"I6: {after.instance_id} works again, but its last check did not pass"


def rebooted(world: WorldView, instance_id: str) -> Iterator[str]:
    """I12: a reboot never ends a rank that nobody wanted ended."""
    record = world.store.load_instance(instance_id)
    wanted = record is not None and record.reboot is not None and record.reboot.ends is not None
    for task in world.fleet.running():
        if task.instance_id == instance_id and "CHECK_ID" not in environment(task) and not wanted:
            yield f"I12: {instance_id} is rebooted under {task.started_by}"


def cut_off(world: WorldView, instance_id: str, ordered_at: datetime) -> Iterator[str]:
    """I12, when the machine really goes down: nothing was begun there since the order, as if it had been obeyed."""
    for task in world.fleet.running():
        begun_at = task.process_started_at
        if task.instance_id == instance_id and "--a" in (task.started_by or "") and begun_at and begun_at > ordered_at:
            yield f"I12: {task.started_by} was begun on {instance_id}, whose reboot was still to come"


def unannounced_failures(world: WorldView) -> Iterator[str]:
    """I7: every terminal failure is announced at least once, under its own incident id, and more than once only
    if somebody died in between. Asked when nothing more is to come."""
    for job in world.jobs():
        if job.status is not JobStatus.FAILED:
            continue
        told = [m for _, m in world.actions.notified if m.incident_id == job.incident_id and "FAILED" in m.subject]
        if not told:
            yield f"I7: nobody was told that {job.job_id} failed"
        if len(told) > 1 + world.invocations.interrupted:
            yield f"I7: {len(told)} messages say that {job.job_id} failed"


def left_behind(world: WorldView) -> Iterator[str]:
    """What must be so once a job has ended and everything is quiet: nothing runs and nothing is kept for it."""
    for job in world.jobs():
        if job.status not in TERMINAL:
            yield f"I2: {job.job_id} is still {job.status}: {job.reason}"
            continue
        if job.commands:
            yield f"I2: {job.job_id} has ended with {len(job.commands)} command(s) left: {job.commands[0].command}"
        for one in world.instances():
            if job.job_id in one.claims and "never confirmed" not in job.reason:
                yield f"I1: {one.instance_id} is still claimed by {job.job_id}, which is {job.status}"
            if one.reserved_for == job.job_id:
                yield f"I1: {one.instance_id} is still reserved for {job.job_id}, which is {job.status}"
    for one in world.instances():
        if one.commands:
            yield f"I2: {one.instance_id} is {one.status} with {one.commands[0].command} left to do"
