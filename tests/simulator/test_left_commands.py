"""Commands that the API functions leave are executed once, by the command executor or else by the reconciler."""

from __future__ import annotations

from collections import Counter

import pytest
from gpu_recovery.core.events import CancelRequested
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus

from simulator.cloud.rate_limits import TIMEOUT_S, Costs
from simulator.cloud.workloads import ScriptedCheck
from simulator.fast.fidelity import THOROUGH, UNCHECKED, Fidelity
from simulator.faults.delivery import PROMPT_S, Delivery, Envelope, losing
from simulator.invocations import Effect, Killed
from simulator.lambda_runtime import EXECUTOR, RECONCILER, TICK_S, WAKE
from simulator.world import World
from tests.simulator.incidents import count_operations


def delayed(*seconds: float) -> Delivery:
    """Wake-ups arrive after each of `seconds`; events arrive once."""

    def deliver(envelope: Envelope) -> tuple[float, ...]:
        return seconds if envelope["detail-type"] == WAKE else (PROMPT_S,)

    return deliver


def stops(world: World) -> list[Effect]:
    """The calls that stopped a task."""
    return world.calls("StopTask")


@pytest.mark.parametrize(
    ("delivery", "function"),
    [
        (delayed(PROMPT_S), EXECUTOR),
        (delayed(PROMPT_S, PROMPT_S), EXECUTOR),
        (delayed(TICK_S * 2), RECONCILER),
        (losing(lambda envelope: envelope["detail-type"] == WAKE), RECONCILER),
    ],
    ids=["prompt", "doubled", "late", "lost"],
)
def test_a_canceled_gang_is_stopped_once_whatever_happens_to_the_wake_up(delivery: Delivery, function: str) -> None:
    """By the command executor, or by the reconciler within its minute; never by the function that answered."""
    world = World(instances=2, delivery=delivery)
    job_id = world.submit()
    world.until_status(job_id, JobStatus.RUNNING)
    world.cancel(job_id)
    assert not stops(world)
    world.let_pass(TICK_S + 1)
    assert [step.invocation for step in stops(world)] == [function] * 2
    world.let_pass(TICK_S * 2)
    assert len(stops(world)) == 2
    assert world.job(job_id).status is JobStatus.CANCELED


def test_a_fault_that_an_agent_reports_is_checked_without_a_call_of_the_node_api() -> None:
    """The command executor runs the check; the node API makes no call to ECS."""
    world = World(instances=2, agents=True)
    world.let_pass(60)
    machine = world.model_instance(0)
    world.break_gpu(machine)
    world.until(lambda: world.instance(machine).status is InstanceStatus.CHECKING, "a check")
    world.let_pass(2 * PROMPT_S)
    assert [step.invocation for step in world.calls("RunTask")] == [EXECUTOR]


def test_a_command_executor_that_is_killed_costs_one_lease() -> None:
    """The commands are leased then, so its retry finds nothing; the reconciler executes them when the lease ends."""

    class Kill:
        """Kills the command executor before its first call that stops a task."""

        done = False

        def before(self, step: Effect) -> None:
            """Kill it once."""
            if step.invocation == EXECUTOR and step.name == "StopTask" and not self.done:
                self.done = True
                raise Killed

        def after(self, step: Effect) -> None:
            """Let the rest pass."""

    kill = Kill()
    world = World(instances=2, nemesis=kill)
    job_id = world.submit()
    world.until_status(job_id, JobStatus.RUNNING)
    world.cancel(job_id)
    world.until_end(job_id)
    assert kill.done
    assert world.job(job_id).status is JobStatus.CANCELED
    assert {step.invocation for step in stops(world)} == {RECONCILER}


def gang_in(status: JobStatus, nnodes: int, fidelity: Fidelity = UNCHECKED) -> tuple[World, str]:
    """A gang in this status, and its world, in which calls take no time."""
    world = World(instances=nnodes, fidelity=fidelity, costs=Costs(), agents=True)
    job_id = world.submit(nnodes)
    world.until_status(job_id, JobStatus.RUNNING)
    world.training.ignores_signals = status is JobStatus.STOPPING
    for instance in world.model_instances():
        world.checks.script(instance, ScriptedCheck(outcome=None))
    if status is not JobStatus.RUNNING:
        world.exit(job_id, 0, 134)
        world.until_status(job_id, status)
    return world, job_id


def calls_of_a_cancel(status: JobStatus, nnodes: int, force: bool) -> Counter[str]:
    """The calls that the job API makes for the cancellation of a gang of this size."""
    world, job_id = gang_in(status, nnodes)
    by_a_person = CancelRequested(at=world.timeline.now, attempt=1, by="a person", force=force)
    counted = count_operations(world)
    world.invocations.run("job_api", lambda: world.api_recovery.handle(job_id, by_a_person))
    calls = counted.copy()
    if status is not JobStatus.STOPPING:
        world.until_end(job_id)
        assert not any(record.claims or record.reserved_for for record in world.instances())
    return calls


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("status", [JobStatus.RUNNING, JobStatus.STOPPING, JobStatus.DIAGNOSING])
def test_the_cancellation_of_a_gang_costs_its_api_the_same_calls_at_every_size(status: JobStatus, force: bool) -> None:
    """Its ranks are stopped, and its instances released, by the command executor."""
    assert calls_of_a_cancel(status, 40, force) == calls_of_a_cancel(status, 20, force)


def test_the_scheduler_is_woken_after_the_release_that_was_left() -> None:
    """Woken before, it would find the instances of the canceled job reserved, and the next job would wait a minute."""
    world, job_id = gang_in(JobStatus.DIAGNOSING, 20, THOROUGH)
    before = len(world.invocations.done)
    world.cancel(job_id)
    world.until(lambda: not world.job(job_id).commands, "commands are left")
    names = ("store.release_instance", "SendMessage")
    steps = [step for step in world.invocations.done[before:] if step.name in names]
    assert [step.name for step in steps if step.given.get("key", job_id).startswith(job_id)][-21:] == [
        *["store.release_instance"] * 20,
        "SendMessage",
    ]
    assert {step.invocation for step in steps if step.name == "store.release_instance"} == {EXECUTOR}


@pytest.mark.parametrize(
    "nnodes", [pytest.param(600, marks=pytest.mark.slow), pytest.param(3_000, marks=pytest.mark.full)]
)
def test_a_large_gang_is_canceled_at_once_and_stopped_by_one_invocation(nnodes: int) -> None:
    """After a burst of 100, 40 are stopped in a second: far beyond the time in which a user gets an answer."""
    world = World(instances=nnodes, fidelity=UNCHECKED, costs=Costs(call_s=0.06, store_s=0.01))
    job_id = world.submit(nnodes)
    world.let_pass(nnodes / 5)
    assert world.job(job_id).status is JobStatus.RUNNING
    assert world.meter is not None
    world.meter.longest.clear()
    killed = len(world.invocations.killed)
    world.cancel(job_id)
    assert world.job(job_id).status is JobStatus.STOPPING
    assert world.meter.longest["job_api"] < 1
    world.let_pass(nnodes / 10)
    assert world.job(job_id).status is JobStatus.CANCELED
    assert (nnodes - 100) / 40 - 2.5 < world.meter.longest[EXECUTOR] < TIMEOUT_S[EXECUTOR]
    assert len(world.invocations.killed) == killed
