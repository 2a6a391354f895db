"""Commands that the API functions leave are executed once, by the command executor or else by the reconciler."""

from __future__ import annotations

import pytest
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus

from simulator.faults.delivery import PROMPT_S, Delivery, Envelope, losing
from simulator.invocations import Effect, Killed
from simulator.lambda_runtime import EXECUTOR, RECONCILER, TICK_S, WAKE
from simulator.world import World


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
