"""One run of a scenario, from the first submission until every job has ended and no work is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from botocore.exceptions import ReadTimeoutError
from gpu_recovery.core.commands import NotifyOperator
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.adoption import Adoption
from gpu_recovery.core.job.record import TERMINAL, Job, JobStatus
from gpu_recovery.ports.errors import OutcomeUnknown, StaleRecord, TooManyConflicts, TryAgainSoon

from sandbox.cluster.model import health
from sandbox.cluster.model.records import ModelInstance
from sandbox.cluster.model.statuses import Ec2State, RebootBehaviour
from simulator.cloud.rate_limits import Costs
from simulator.fast.fidelity import LARGE, THOROUGH
from simulator.faults.injector import FaultInjector, ScriptedFaults, Source
from simulator.faults.schedule import TimedFault
from simulator.faults.transient import CallFault, EventFault
from simulator.invariants.fairness import FairnessCheck
from simulator.invariants.records import InvariantBroken
from simulator.lambda_runtime import TICK_S
from simulator.trials.scenario import ExpectedMail, JobOf, Scenario
from simulator.world import NeverHappened, World

OPERATOR_S = 3600.0
"""Seconds between two inspections by a simulated operator, of what the product leaves to operators."""
THOROUGH_INSTANCES_MAX = 100
"""Instances of the largest world in which every record is checked after each step. In larger worlds only the changed
records are."""
EXPECTED_FAILURES = (TryAgainSoon, ReadTimeoutError, OutcomeUnknown, StaleRecord, TooManyConflicts)
"""Exceptions that a function may raise in order to be retried. Any other exception is a defect."""


@dataclass
class Played:
    """A run that is over.

    struck:     the transient faults that struck.
    violations: one sentence for each violation.
    """

    world: World
    struck: list[EventFault | CallFault]
    violations: list[str] = field(default_factory=list)
    took: list[TimedFault] = field(default_factory=list)
    """The timed faults that applied to something."""

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The records of the jobs, in the order of submission."""
        return tuple(sorted(self.world.jobs(), key=lambda job: (job.queued_at, job.job_id)))

    def as_scenario(self, scenario: Scenario) -> Scenario:
        """Return the scenario with the timed faults and the transient faults that struck. It makes the same run."""
        timed = tuple(fault for fault in scenario.faults if not isinstance(fault, (EventFault, CallFault)))
        return replace(scenario, faults=(*timed, *self.struck))


def play(
    scenario: Scenario,
    source: Source | None = None,
    *,
    costs: Costs | None = None,
    begun: Callable[[World], object] = lambda world: None,
) -> Played:
    """Run the scenario.

    Args:
        scenario: The scenario.
        source: Decides which transient faults strike; None: those of the scenario.
        costs: What calls take, and AWS's limits on them; None: calls take no time and have no limit.
        begun: Called with the world before anything happens in it.

    Returns:
        The run with its violations. `scenario.expect` is compared only if no invariant is violated.
    """
    injector = FaultInjector(source or ScriptedFaults(scenario.faults), scenario.quiet_s)
    cluster = scenario.cluster
    world = World(
        instances=cluster.instances,
        gpus=cluster.gpus,
        policy=cluster.recovery_policy,
        adoption=Adoption(cluster.adopt),
        train_s=scenario.train_s,
        delivery=injector.deliver,
        nemesis=injector,
        agents=cluster.agents,
        diagnose=cluster.diagnose,
        lemons=cluster.lemons,
        fidelity=replace(LARGE, remembers=True) if cluster.instances > THOROUGH_INSTANCES_MAX else THOROUGH,
        costs=costs,
    )
    begun(world)
    if world.agents is not None:
        world.agents.reports_exits = cluster.diagnose
    if world.agents is not None and not cluster.wrapped:
        world.agents.unable |= world.cluster.instances.keys()
    if cluster.group:
        for instance in world.model_instances():
            instance.tags[health.GROUP_TAG] = "gpus"
    if cluster.limits:
        world.store.save_limits(cluster.limits, 0)
    injector.begin(world)
    played = Played(world, injector.injected)
    try:
        _run(scenario, world, played.took)
        world.check_end()
    except InvariantBroken as broken:
        played.violations += str(broken).split("\n\n")[0].splitlines()
    except NeverHappened as timeout:
        played.violations.append(f"liveness: {str(timeout).splitlines()[0]}")
    played.violations += _defects(world)
    if not played.violations:
        played.violations += _unexpected(scenario, played)
    return played


def _strike(world: World, fault: TimedFault, took: list[TimedFault]) -> None:
    if fault.strike(world):
        took.append(fault)


def _run(scenario: Scenario, world: World, took: list[TimedFault]) -> None:
    for number, job in enumerate(scenario.jobs):
        world.timeline.after(job.at_s, _start_job, world, job, number)
    for fault in scenario.faults:
        if not isinstance(fault, (EventFault, CallFault)):
            world.timeline.after(fault.at_s, _strike, world, fault, took)
    world.timeline.after(OPERATOR_S, _act_as_operator, world)
    world.let_pass(scenario.quiet_s)
    world.timeline.after(TICK_S, _check_fairness, world, FairnessCheck(world))
    world.until(lambda: all(job.status in TERMINAL for job in world.jobs()), "a job did not end", scenario.limit_s)
    world.until(world.is_quiet, "every job has ended, but work is left", scenario.limit_s)


def _check_fairness(world: World, fairness_check: FairnessCheck) -> None:
    world.transcript.broken += fairness_check.check()
    world.timeline.after(TICK_S, _check_fairness, world, fairness_check)


def _start_job(world: World, job: JobOf, number: int) -> None:
    if not job.by_hand:
        job_id = world.submit(**{"nnodes": job.nnodes, "gpus": job.gpus, **job.document()})
        world.training.habits[job_id], world.log_output.habits[job_id] = job.habit, job.writes
        return
    free = [candidate for candidate in world.model_instances() if len(world.cluster.free_gpus(candidate)) >= job.gpus]
    if len(free) < job.nnodes:
        world.transcript.happened(f"a person finds no place for run-{number}")
        return
    world.log_output.habits[f"run-{number}"] = job.writes
    for rank, instance in enumerate(free[: job.nnodes]):
        world.transcript.happened(f"a person starts rank {rank} of run-{number} on {instance.instance_id}")
        world.start_by_hand(f"run-{number}", rank, job.nnodes, instance, gpus=job.gpus)


def _act_as_operator(world: World) -> None:
    """Do what an operator does where the product only observes or cannot know.

    The operator stops ranks of gangs that have lost a rank, and ends processes that hang. The operator cancels jobs on
    instances that no longer report, and resumes held jobs. During a reporting outage the operator reboots hung
    instances.
    """
    if world.policy.observe_only or world.recovery.adoption is Adoption.OBSERVE:
        for task in world.fleet.running():
            is_managed = world.recovery.adoption is not Adoption.OBSERVE or "--a" in (task.started_by or "")
            if (world.policy.observe_only or not is_managed) and not world.training.is_whole(task):
                if task.is_live:  # StopTask does not reach an orphan of a forced deregistration
                    world.stop_by_hand(task, "it hangs")
                if task.instance_id in world.fleet.stuck:
                    _end_by_hand(world, task.instance_id)
        _terminate_orphans(world)
    _terminate_last_holders(world)
    for job in world.jobs():
        # Only operators notice an instance from which neither agent reports: the README says so.
        hosts = [world.cluster.instances[instance_id] for instance_id in job.instances if instance_id]
        if job.status is JobStatus.RUNNING and any(_is_unreported(world, host) for host in hosts):
            world.transcript.happened(f"a person cancels {job.job_id}, which does not move")
            world.cancel(job.job_id)
        if job.held and job.status not in TERMINAL:
            world.transcript.happened(f"a person remembers {job.job_id}, which is held, and resumes it")
            world.resume(job.job_id)
    if world.store.load_fleet().deaf is not None:
        # During a reporting outage the product decides nothing; an operator who was notified inspects the instances.
        for instance_id in sorted(world.fleet.hung):
            _end_by_hand(world, instance_id)
    world.timeline.after(OPERATOR_S, _act_as_operator, world)


def _terminate_orphans(world: World) -> None:
    """Terminate the instances with orphans of observed jobs: the product ends none, and nothing else proves the end."""
    observed = {job.job_id for job in world.jobs() if world.policy.observe_only or job.hands_off}
    for record in world.instances():
        if any(rank.job_id in observed for rank in record.orphaned_ranks):
            world.transcript.happened(f"a person terminates {record.instance_id}, which may run an orphan")
            world.fleet.terminate(world.cluster.instances[record.instance_id])


def _terminate_last_holders(world: World) -> None:
    """Terminate the quarantined instances that may still run a container of a job that has ended, as the mail asks.

    The product has done everything that it can: no reboot has ended the container. The release of the GPUs waits.
    """
    waiting = {job.job_id for job in world.jobs() if job.status in TERMINAL and job.commands}
    for record in world.instances() if waiting else ():
        if record.needs_operator and waiting & record.claims.keys():
            world.transcript.happened(f"a person terminates {record.instance_id}, as the mail asks")
            world.fleet.terminate(world.cluster.instances[record.instance_id])


def _is_unreported(world: World, host: ModelInstance) -> bool:
    """Return whether neither ECS agent nor node agent reports from an instance that EC2 shows as running."""
    reports = world.agents is not None and host.instance_id not in world.fleet.hung
    return host.ec2_state is Ec2State.RUNNING and not host.agent_connected and not reports


def _end_by_hand(world: World, instance_id: str) -> None:
    """End the processes of an instance as an operator: by a reboot, or by termination if reboots are ignored."""
    instance = world.cluster.instances[instance_id]
    if instance.reboot_behaviour is RebootBehaviour.IGNORED:
        world.transcript.happened(f"a person terminates {instance_id}, which hangs")
        world.fleet.terminate(instance)
    else:
        world.transcript.happened(f"a person reboots {instance_id}, which hangs")
        world.fleet.reboot(instance_id)


def _defects(world: World) -> Iterator[str]:
    """Yield a sentence for each unexpected exception and each broken invariant that a function raised."""
    for name, failure in world.failures:
        for leaf in _leaves(failure):
            if isinstance(leaf, InvariantBroken):
                yield str(leaf).splitlines()[0]
            elif not isinstance(leaf, EXPECTED_FAILURES):
                yield f"{name} raised {type(leaf).__name__}: {leaf}"


def _leaves(failure: BaseException) -> Iterator[BaseException]:
    if isinstance(failure, BaseExceptionGroup):
        for inner in failure.exceptions:
            yield from _leaves(inner)
    else:
        yield failure


def _unexpected(scenario: Scenario, played: Played) -> Iterator[str]:
    """Yield a sentence for each fact that differs from `scenario.expect`."""
    world, expect, jobs = played.world, scenario.expect, played.jobs
    numbers = {job.job_id: number for number, job in enumerate(jobs)}
    quarantined = sum(instance.status is InstanceStatus.QUARANTINED for instance in world.instances())
    facts = {
        "jobs": tuple(str(job.status) for job in jobs),
        "attempts": tuple(job.attempt for job in jobs),
        "placed": tuple(numbers[job_id] for job_id in world.transcript.placed),
        "reboots": sum(world.fleet.boots.values()),
        "quarantined": quarantined,
    }
    for name, actual in facts.items():
        expected = getattr(expect, name)
        if expected is not None and expected != actual:
            yield f"expected {name} to be {expected}, found {actual}"
    if expect.mails is not None and len(world.messages()) > expect.mails:
        yield f"expected at most {expect.mails} mails, found {len(world.messages())}"
    if expect.mail is not None:
        yield from _unexpected_mails(expect.mail, world.messages())


def _unexpected_mails(expected: Sequence[ExpectedMail], messages: Sequence[NotifyOperator]) -> Iterator[str]:
    """Yield a sentence for each difference between the expected messages and those that were sent."""
    if len(expected) != len(messages):
        found = "; ".join(f"{message.severity} {message.subject}" for message in messages)
        yield f"expected {len(expected)} mails, found {len(messages)}: {found}"
        return
    threads = list(dict.fromkeys(message.incident_id for message in messages))
    for number, (mail, message) in enumerate(zip(expected, messages, strict=True)):
        facts = (message.severity, threads.index(message.incident_id))
        if mail.subject not in message.subject or facts != (mail.severity, mail.thread):
            wanted = f"{mail.severity} {mail.subject} in thread {mail.thread}"
            yield f"expected mail {number} to be {wanted}, found {message.subject} in thread {facts[1]}"
        for text in mail.has:
            if text not in message.body:
                yield f"expected mail {number} ({message.subject}) to have {text!r}"
        for text in mail.lacks:
            if text in message.body:
                yield f"expected mail {number} ({message.subject}) not to have {text!r}"
