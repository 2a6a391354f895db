"""One run of a scenario, from the first submission until every job is over and nothing is left to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from botocore.exceptions import ReadTimeoutError
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.adoption import Adoption
from gpu_recovery.core.job.record import TERMINAL, Job, JobStatus
from gpu_recovery.ports.errors import OutcomeUnknown, StaleRecord, TooManyConflicts, TryAgainSoon

from sandbox.cluster.model import health
from sandbox.cluster.model.records import ModelInstance
from sandbox.cluster.model.statuses import Ec2State, RebootBehaviour
from simulator.faults.injector import FaultInjector, ScriptedFaults, Source
from simulator.faults.schedule import TimedFault
from simulator.faults.transient import CallFault, EventFault
from simulator.invariants.fairness import FairnessCheck
from simulator.invariants.records import InvariantBroken
from simulator.lambda_runtime import TICK_S
from simulator.trials.scenario import JobOf, Scenario
from simulator.world import NeverHappened, World

OPERATOR_S = 3600.0
"""How often a person looks after gangs that the product only observes."""
EXPECTED_FAILURES = (TryAgainSoon, ReadTimeoutError, OutcomeUnknown, StaleRecord, TooManyConflicts)
"""What a function may raise, so that it is tried again. Anything else is a defect."""


@dataclass
class Played:
    """A run that is over. `violations`: what never may be and was, one sentence each."""

    world: World
    struck: list[EventFault | CallFault]
    violations: list[str] = field(default_factory=list)
    took: list[TimedFault] = field(default_factory=list)
    """The faults at their times that found something to happen to; `struck` are those in passing."""

    @property
    def jobs(self) -> tuple[Job, ...]:
        """In the order in which they were submitted."""
        return tuple(sorted(self.world.jobs(), key=lambda job: (job.queued_at, job.job_id)))

    def as_scenario(self, scenario: Scenario) -> Scenario:
        """The same run with every fault written down."""
        given = tuple(one for one in scenario.faults if not isinstance(one, (EventFault, CallFault)))
        return replace(scenario, faults=(*given, *self.struck))


def play(scenario: Scenario, source: Source | None = None) -> Played:
    """Run it. `source` says what goes wrong in passing; without it the scenario's own faults do."""
    trouble = FaultInjector(source or ScriptedFaults(scenario.faults), scenario.quiet_s)
    cluster = scenario.cluster
    world = World(
        instances=cluster.instances,
        gpus=cluster.gpus,
        policy=cluster.recovery_policy,
        adoption=Adoption(cluster.adopt),
        train_s=scenario.train_s,
        delivery=trouble.deliver,
        nemesis=trouble,
        agents=cluster.agents,
        diagnose=cluster.diagnose,
        lemons=cluster.lemons,
    )
    if cluster.group:
        for machine in world.model_instances():
            machine.tags[health.GROUP_TAG] = "gpus"
    if cluster.limits:
        world.store.save_limits(cluster.limits, 0)
    trouble.begin(world)
    played = Played(world, trouble.injected)
    try:
        _run(scenario, world, played.took)
        world.check_end()
    except InvariantBroken as broken:
        played.violations += str(broken).split("\n\n")[0].splitlines()
    except NeverHappened as waited:
        played.violations.append(f"liveness: {str(waited).splitlines()[0]}")
    played.violations += _defects(world)
    if not played.violations:
        played.violations += _unexpected(scenario, played)
    return played


def _strike(world: World, fault: TimedFault, took: list[TimedFault]) -> None:
    if fault.strike(world):
        took.append(fault)


def _run(scenario: Scenario, world: World, took: list[TimedFault]) -> None:
    for number, job in enumerate(scenario.jobs):
        world.timeline.after(job.at_s, _begin, world, job, number)
    for fault in scenario.faults:
        if not isinstance(fault, (EventFault, CallFault)):
            world.timeline.after(fault.at_s, _strike, world, fault, took)
    world.timeline.after(OPERATOR_S, _look_after, world)
    world.let_pass(scenario.quiet_s)
    world.timeline.after(TICK_S, _look_at_the_line, world, FairnessCheck(world))
    world.until(lambda: all(job.status in TERMINAL for job in world.jobs()), "a job did not end", scenario.limit_s)
    world.until(world.is_quiet, "every job has ended, but work is left", scenario.limit_s)


def _look_at_the_line(world: World, patience: FairnessCheck) -> None:
    world.transcript.broken += patience.check()
    world.timeline.after(TICK_S, _look_at_the_line, world, patience)


def _begin(world: World, job: JobOf, number: int) -> None:
    if not job.by_hand:
        job_id = world.submit(job.nnodes, job.gpus, **job.document())
        world.training.habits[job_id], world.log_output.habits[job_id] = job.habit, job.writes
        return
    free = [one for one in world.model_instances() if len(world.cluster.free_gpus(one)) >= job.gpus]
    if len(free) < job.nnodes:
        world.transcript.happened(f"a person finds no place for run-{number}")
        return
    world.log_output.habits[f"run-{number}"] = job.writes
    for rank, machine in enumerate(free[: job.nnodes]):
        world.transcript.happened(f"a person starts rank {rank} of run-{number} on {machine.instance_id}")
        world.start_by_hand(f"run-{number}", rank, job.nnodes, machine, gpus=job.gpus)


def _look_after(world: World) -> None:
    """Where the product only looks on, a person acts: stops ranks whose gang has lost one, reboots what hangs."""
    if world.policy.observe_only or world.recovery.adoption is Adoption.OBSERVE:
        for task in world.fleet.running():
            ours = world.recovery.adoption is not Adoption.OBSERVE or "--a" in (task.started_by or "")
            if (world.policy.observe_only or not ours) and not world.training.is_whole(task):
                world.stop_by_hand(task, "it hangs")
                if task.instance_id in world.fleet.stuck:
                    _end_by_hand(world, task.instance_id)
    for job in world.jobs():
        # What no agent of a machine ever told, only people notice: the README says so.
        hosts = [world.cluster.instances[one] for one in job.instances if one]
        if job.status is JobStatus.RUNNING and any(_is_gone_quiet(world, host) for host in hosts):
            world.transcript.happened(f"a person cancels {job.job_id}, which does not move")
            world.cancel(job.job_id)
        if job.held and job.status not in TERMINAL:
            world.transcript.happened(f"a person remembers {job.job_id}, which is held, and resumes it")
            world.resume(job.job_id)
    if world.store.load_fleet().deaf is not None:
        # So many are silent that the product decides nothing: whoever read its message looks at the machines.
        for instance_id in sorted(world.fleet.hung):
            _end_by_hand(world, instance_id)
    world.timeline.after(OPERATOR_S, _look_after, world)


def _is_gone_quiet(world: World, host: ModelInstance) -> bool:
    """Whether neither ECS nor the node API hears of a machine that EC2 finds running."""
    reports = world.agents is not None and host.instance_id not in world.fleet.hung
    return host.ec2_state is Ec2State.RUNNING and not host.agent_connected and not reports


def _end_by_hand(world: World, instance_id: str) -> None:
    """A person ends what runs on a machine: by a reboot or, where none takes place, by terminating it."""
    machine = world.cluster.instances[instance_id]
    if machine.reboot_behaviour is RebootBehaviour.IGNORED:
        world.transcript.happened(f"a person terminates {instance_id}, which hangs")
        world.fleet.terminate(machine)
    else:
        world.transcript.happened(f"a person reboots {instance_id}, which hangs")
        world.fleet.reboot(instance_id)


def _defects(world: World) -> Iterator[str]:
    """What functions raised that nobody foresaw."""
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
    """What the scenario wants otherwise."""
    world, expect, jobs = played.world, scenario.expect, played.jobs
    numbers = {job.job_id: number for number, job in enumerate(jobs)}
    quarantined = sum(one.status is InstanceStatus.QUARANTINED for one in world.instances())
    facts = {
        "jobs": tuple(str(job.status) for job in jobs),
        "attempts": tuple(job.attempt for job in jobs),
        "placed": tuple(numbers[job_id] for job_id in world.transcript.placed),
        "reboots": sum(world.fleet.boots.values()),
        "quarantined": quarantined,
    }
    for name, found in facts.items():
        wanted = getattr(expect, name)
        if wanted is not None and wanted != found:
            yield f"expected {name} to be {wanted}, found {found}"
    if expect.mails is not None and len(world.messages()) > expect.mails:
        yield f"expected at most {expect.mails} mails, found {len(world.messages())}"
