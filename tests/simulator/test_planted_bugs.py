"""The simulator can fail: each of these bugs, planted in the product, is found by what the other tests ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery import execution
from gpu_recovery.core import commands
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.instance import registration
from gpu_recovery.core.instance.effects import verify
from gpu_recovery.core.job import state_machine
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.execution.context import DONE, CommandResult, ExecutionContext, FollowUp
from gpu_recovery.scheduler.schedule import schedule

from sandbox.cluster.model.statuses import RebootBehaviour
from simulator.cloud.workloads import ScriptedCheck
from simulator.faults.delivery import PROMPT_S, Envelope
from simulator.faults.operators import DeregisteredByHand, QuarantinedByHand
from simulator.invocations import KillAt
from simulator.world import World
from tests.simulator import incidents, planted_bugs
from tests.simulator.test_behaviours_delivery import At

pytestmark = pytest.mark.slow


def killed_everywhere(incident: Callable[..., incidents.Told]) -> None:
    """The incident once for each of its steps, killed after it."""
    world, job_id = incident()
    expected = incidents.ending(world, job_id)
    for number in range(len(world.invocations.steps)):
        world, job_id = incident(nemesis=KillAt(number, after_it=True), retries=False)
        assert incidents.ending(world, job_id) == expected


def test_no_attempt_fence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a failure of attempt 1 told again stops attempt 2."""
    world, job_id = incidents.running()
    failure = {"at": world.timeline.now, "attempt": 1}
    world.exit(job_id, 1, 139)
    stopped = world.until_status(job_id, JobStatus.STOPPING)
    assert stopped.failure is not None
    world.until(lambda: world.job(job_id).attempt == 2, "no attempt 2")
    world.until_status(job_id, JobStatus.RUNNING)
    planted_bugs.no_fence(monkeypatch)
    world.recovery.handle(job_id, state_machine.events.RankFailed(failure=stopped.failure, **failure))
    with pytest.raises(AssertionError):
        incidents.ended(world, job_id)
        assert world.job(job_id).attempt == 2


def test_acting_before_saving_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dying in between leaves ranks that no record knows."""
    planted_bugs.act_before_save(monkeypatch)
    with pytest.raises(AssertionError):
        killed_everywhere(incidents.success)


def test_a_reconnect_that_counts_as_a_reboot_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent flaps, the machine never boots, and a lucky check passes: back to work on the old boot."""

    def incident() -> None:
        world, _ = incidents.running()
        sick = world.model_instance(0)
        sick.reboot_behaviour = RebootBehaviour.IGNORED
        world.checks.script(sick, ScriptedCheck(CheckOutcome.REBOOT), ScriptedCheck(CheckOutcome.HEALTHY))
        world.break_gpu(sick)
        world.until(lambda: bool(world.calls("RebootInstances")), "no reboot was asked for")
        world.fleet.disconnect(sick)
        world.let_pass(20)
        world.fleet.reconnect(sick)
        world.let_pass(400)

    incident()
    planted_bugs.reconnect_is_reboot(monkeypatch)
    with pytest.raises(AssertionError, match="I6"):
        incident()


def test_no_revision_check_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stale writer is merged: two schedulers launch one job, or a job is lost."""
    planted_bugs.no_version_check(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        for number in range(40):
            nemesis = At(number, "scheduler")
            world = World(instances=3, train_s=incidents.TRAIN_S, nemesis=nemesis, retries=False)
            nemesis.work = lambda world=world: world.invoke("scheduler", lambda: schedule(world.recovery))  # type: ignore[misc]
            for job_id in [world.submit(), world.submit()]:
                world.until_end(job_id)
            world.check_end()
            assert world.failures == []
            assert [one.attempt for one in world.jobs()] == [1, 1] and len(world.cluster.tasks) == 4


def test_releasing_gpus_on_suspicion_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that does not end in time is taken for ended: the job runs twice."""
    planted_bugs.free_on_suspicion(monkeypatch)
    world, job_id = incidents.running(instances=3)
    world.fleet.stuck.add(world.model_instance(0).instance_id)
    world.exit(job_id, 1, 139)
    with pytest.raises(AssertionError, match=r"I1|I4|I12"):
        incidents.ended(world, job_id)


def test_a_late_release_that_takes_a_newer_claim_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The release of attempt 1 is carried out again while attempt 2 runs: its GPUs would be free for others."""

    def release(kit: ExecutionContext, record: Any, pending: Any) -> CommandResult:
        for instance_id in pending.command.instances:
            kit.store.release_instance(instance_id, record.job_id, False)
        return DONE

    monkeypatch.setitem(execution.HANDLERS, commands.ReleaseInstances, release)
    with pytest.raises(AssertionError, match="I1"):
        killed_everywhere(incidents.spot_interruption)


def test_a_check_that_a_later_attempt_pays_for_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks of attempt 1 are asked for again of the instances of attempt 2, and their claims go with it."""

    def check_whatever_runs(kit: ExecutionContext, record: Any, pending: Any) -> CommandResult:
        request = replace(pending.command.request, attempt=record.attempt)
        return CommandResult(tuple(FollowUp(instance_id, request) for instance_id in record.instances))

    monkeypatch.setitem(execution.HANDLERS, commands.CheckInstances, check_whatever_runs)
    with pytest.raises(AssertionError):
        killed_everywhere(incidents.gpu_fault_with_spare)


def test_a_quarantine_that_ends_with_the_registration_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An instance that an operator quarantined is deregistered, registers again, and passes its check."""

    def check(instance: Any, standing: Any, facts: Any, context: Any) -> Any:
        return verify(instance, "registered again", False, facts)

    monkeypatch.setattr(registration, "quarantined_again", check)
    world = World(instances=1)
    QuarantinedByHand(at_s=0, machines=(0,)).strike(world)
    world.let_pass(60)
    DeregisteredByHand(at_s=0, machines=(0,), registers_every_s=60).strike(world)
    with pytest.raises(AssertionError, match="I13"):
        world.let_pass(300)


def test_every_event_is_asked_for_by_somebody() -> None:
    """The world delivers what the model emits: a delivery that sees nothing would make every test here empty."""
    seen: list[str] = []

    def watch(envelope: Envelope) -> tuple[float, ...]:
        seen.append(envelope["detail-type"])
        return (PROMPT_S,)

    incidents.gpu_fault(delivery=watch)
    assert {"ECS Task State Change", "ECS Container Instance State Change"} <= set(seen) and len(seen) > 20
