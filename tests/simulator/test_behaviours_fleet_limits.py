"""The brakes, in whole incidents: what many sick machines, a person's switch and other people's work hold back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from gpu_recovery import fleet_controls
from gpu_recovery.core.commands import Channel, NotifyOperator
from gpu_recovery.core.events import QuarantineRequested
from gpu_recovery.core.fleet import Breaker, budget
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.health_signals import Ec2InstanceState
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.adoption import Adoption
from gpu_recovery.core.job.record import CloseCause, JobStatus
from gpu_recovery.ports.values import Ec2Instance

from sandbox.cluster.model import health
from sandbox.cluster.model.statuses import RebootBehaviour, StatusCheck
from simulator.cloud.workloads import ScriptedCheck
from simulator.world import World
from tests.simulator import incidents
from tests.simulator.incidents import ADAPTIVE, CLASSIC

MAINTENANCE_TAG = "gpu-recovery:maintenance"
WITHHELD = ("StopTask", "RebootInstances", "UpdateContainerInstancesState", "RunTask")
BLAMED = ScriptedCheck(CheckOutcome.REBOOT)


def subjects(world: World) -> list[str]:
    """The subjects of the messages that operators got."""
    return [message.subject for message in world.messages()]


def most_at_once(world: World) -> int:
    """How many instances are under repair now."""
    return sum(one.under_repair for one in world.instances())


# -- the budget and the breaker ----------------------------------------------------------------------------------------


def test_the_repairs_of_many_idle_instances_are_one_message() -> None:
    """The first two have mails of their own, and their returns; the third mail names all, and no more follow."""
    world = World(instances=40)
    world.let_pass(120)
    sick = [world.model_instance(number) for number in range(7)]
    for machine in sick:
        world.fleet.announce(health.impair, machine, StatusCheck.INSTANCE)
    world.until(lambda: len(world.calls("RebootInstances")) == len(sick), "not all are rebooted")
    world.until(lambda: most_at_once(world) == 0, "some are under repair for ever", 3_600)
    assert {world.instance(machine).status for machine in sick} == {InstanceStatus.AVAILABLE}
    begun = [subject for subject in subjects(world) if "its repair has begun" in subject]
    returned = [subject for subject in subjects(world) if "in use again" in subject]
    (digest,) = (message for message in world.messages() if "instances are under repair at once" in message.subject)
    assert (len(begun), len(returned), len(world.messages())) == (2, 2, 5)
    assert "3 instances are under repair at once" in digest.subject
    assert sum(machine.instance_id in digest.body for machine in sick) == 3


def test_two_faulty_instances_of_eight_are_mended_one_after_the_other() -> None:
    """A fifth of eight is one: the second waits for the first, and the job for both."""
    world, job_id = incidents.running(8)
    world.break_gpu(world.model_instance(2))
    world.break_gpu(world.model_instance(5))
    world.until(lambda: any(one.held for one in world.instances()), "nothing was held back")
    (held,) = [one for one in world.instances() if one.held is not None]
    assert "1 of at most 1" in held.reason and most_at_once(world) == 1
    world, job_id = incidents.ended(world, job_id)
    assert world.job(job_id).status is JobStatus.SUCCEEDED
    assert Counter(step.given["instance"] for step in world.calls("RebootInstances")).most_common(1)[0][1] == 1


def test_every_held_repair_gets_its_turn_although_later_faults_may_overtake_it() -> None:
    """One repair at a time, and faults come faster than that. Each other instance overtakes with one reboot at most."""
    policy = replace(ADAPTIVE, repair_budget_percent=12, breaker_instances_min=9, breaker_instances_max=9)
    world = World(instances=8, train_s=None, policy=policy)
    for job_id in [world.submit(1) for _ in world.model_instances()]:
        world.until_status(job_id, JobStatus.RUNNING)
    for machine in world.model_instances():
        world.break_gpu(machine)
        world.let_pass(100)
    waiting = [one.instance_id for one in world.instances() if one.held is not None]
    assert len(waiting) > 4 and budget(world.store.load_fleet(), policy) == 1
    world.until(lambda: all(one.healed_at is not None for one in world.instances()), "one never had its turn", 7200)
    assert set(Counter(step.given["instance"] for step in world.calls("RebootInstances")).values()) == {1}
    assert not [subject for subject in subjects(world) if "needs an operator" in subject]


def test_a_rack_that_fails_opens_the_breaker_and_reboots_almost_nobody() -> None:
    """Six of ten look bad at once: that is not six machines. One may try after a while, and what heals it heals all."""
    world, job_id = incidents.running(10)
    for number in range(6):
        world.break_gpu(world.model_instance(number))
    world.until(lambda: world.store.load_fleet().breaker is Breaker.OPEN, "the breaker did not open")
    allowed = budget(world.store.load_fleet(), world.policy)
    world.let_pass(world.policy.breaker_probe_s - 60)
    assert len(world.calls("RebootInstances")) <= allowed
    assert sum("the circuit breaker is open" in subject for subject in subjects(world)) == 1
    world.until(lambda: world.store.load_fleet().breaker is Breaker.HALF_OPEN, "nobody tried")
    assert len(world.calls("RebootInstances")) <= allowed + 1
    world.until(lambda: world.store.load_fleet().breaker is Breaker.CLOSED, "the breaker did not close")
    world, job_id = incidents.ended(world, job_id)
    assert world.job(job_id).status is JobStatus.SUCCEEDED
    assert sum("the circuit breaker is closed" in subject for subject in subjects(world)) == 1


def test_a_broken_check_image_costs_no_machine_but_the_budgets() -> None:
    """Every check of the cluster suddenly blames: without a breaker each machine would be rebooted, then replaced."""
    world, job_id = incidents.running(10, policy=replace(ADAPTIVE, replace=True))
    for machine in world.model_instances():
        world.checks.script(machine, *[BLAMED] * 8)
    world.exit(job_id, 0, 139)
    world.until(lambda: world.store.load_fleet().breaker is Breaker.OPEN, "the breaker did not open")
    world.let_pass(2 * 3600)
    fleet = world.store.load_fleet()
    assert fleet.breaker is not Breaker.CLOSED
    rebooted = {step.given["instance"] for step in world.calls("RebootInstances")}
    replaced = {step.given["instance"] for step in world.calls("StopInstances")}
    probes = 2 * 3600 // world.policy.breaker_probe_s
    assert len(rebooted | replaced) <= budget(fleet, world.policy) + probes


def test_a_breaker_that_a_person_resets_lets_the_held_repairs_begin() -> None:
    """The operator has found the cause: nothing waits for the probe any more."""
    world, job_id = incidents.running(10)
    for number in range(6):
        world.break_gpu(world.model_instance(number))
    world.until(lambda: world.store.load_fleet().breaker is Breaker.OPEN, "the breaker did not open")
    fleet_controls.reset_breaker(world.recovery, "an operator")
    world.let_pass(300)
    assert world.store.load_fleet().breaker is Breaker.CLOSED and most_at_once(world) >= 1
    world, job_id = incidents.ended(world, job_id)
    assert world.job(job_id).status is JobStatus.SUCCEEDED


# -- a person's switches -----------------------------------------------------------------------------------------------


def test_while_recovery_is_paused_no_machine_is_rebooted() -> None:
    """The kill switch holds the repair back; unpaused, it begins, after a fresh look at what has grown old."""
    world, job_id = incidents.running()
    fleet_controls.pause(world.recovery, "ada", "moving the cluster")
    world.break_gpu(world.model_instance(0))
    world.let_pass(3600)
    assert world.calls("RebootInstances") == []
    held = world.instance(world.model_instance(0))
    assert held.status is InstanceStatus.QUARANTINED and "paused by ada: moving the cluster" in held.reason
    fleet_controls.unpause(world.recovery)
    world, job_id = incidents.ended(world, job_id)
    assert world.job(job_id).status is JobStatus.SUCCEEDED and len(world.calls("RebootInstances")) == 1


def test_a_machine_with_the_maintenance_tag_is_left_alone_until_it_is_taken_off() -> None:
    """The second look sees what no record holds."""
    world, job_id = incidents.running()
    world.model_instance(0).tags[MAINTENANCE_TAG] = "true"
    world.break_gpu(world.model_instance(0))
    world.let_pass(900)
    assert world.calls("RebootInstances") == []
    assert "maintenance tag" in world.instance(world.model_instance(0)).reason
    del world.model_instance(0).tags[MAINTENANCE_TAG]
    world, job_id = incidents.ended(world, job_id)
    assert world.job(job_id).status is JobStatus.SUCCEEDED and len(world.calls("RebootInstances")) == 1


def test_observe_only_touches_nothing_and_says_what_it_would_do() -> None:
    """A GPU fails: not a call that changes anything reaches AWS, and the message names the orders."""
    world, job_id = incidents.running(policy=replace(ADAPTIVE, observe_only=True))
    before = {name: len(world.calls(name)) for name in WITHHELD}
    world.break_gpu(world.model_instance(0))
    world.let_pass(3600)
    assert {name: len(world.calls(name)) for name in WITHHELD} == before
    job = world.job(job_id)
    assert job.status is JobStatus.RUNNING and "it would be STOPPING" in job.reason and "StopAttempt" in job.reason
    assert [subject for subject in subjects(world) if "would be stopped" in subject]


def test_an_instance_a_person_quarantines_gets_nothing_new_and_keeps_what_it_has() -> None:
    """The job on it goes on to its end; the next one is not placed there until the instance is released."""
    world, job_id = incidents.running(1, instances=1)
    machine = world.model_instance(0)
    order = QuarantineRequested(at=world.timeline.now, by="an operator", because="a fan is loud")
    world.recovery.handle(machine.instance_id, order)
    world.until_end(job_id)
    assert world.job(job_id).status is JobStatus.SUCCEEDED
    following = world.submit(1)
    world.let_pass(900)
    assert world.job(following).status is JobStatus.PENDING_RESOURCES
    world.release(machine)
    world.until_end(following)
    assert world.job(following).status is JobStatus.SUCCEEDED


def test_a_release_while_a_job_works_on_it_disturbs_nobody() -> None:
    """What was only withdrawn is simply given back."""
    world, job_id = incidents.running(1, instances=1)
    machine = world.model_instance(0)
    world.recovery.handle(machine.instance_id, QuarantineRequested(at=world.timeline.now, by="an operator"))
    world.let_pass(60)
    world.release(machine)
    world.let_pass(60)
    assert world.instance(machine).status is InstanceStatus.AVAILABLE
    world, job_id = incidents.ended(world, job_id)
    assert world.job(job_id).attempt == 1 and world.job(job_id).status is JobStatus.SUCCEEDED


# -- other people's work -----------------------------------------------------------------------------------------------


def test_who_works_on_a_sick_machine_is_asked_to_leave_before_it_is_rebooted() -> None:
    """Two jobs share a machine; one fails and its logs blame a GPU. The other moves, and that does not count."""
    world = World(instances=2, gpus=8, adoption=Adoption.RECOVER, train_s=incidents.TRAIN_S)
    machine = world.model_instance(0)
    ours, theirs = "run-ours", "run-theirs"
    for job_id in (ours, theirs):
        world.start_by_hand(job_id, 0, 1, machine, gpus=4)
    world.until(lambda: len(world.jobs()) == 2, "not both were adopted")
    world.until_status(ours, JobStatus.RUNNING)
    world.until_status(theirs, JobStatus.RUNNING)
    world.checks.script(machine, BLAMED)
    world.exit(ours, 0, 139)
    world.until(lambda: bool(world.calls("RebootInstances")), "the sick machine was never rebooted")
    assert world.job(theirs).attempts_uncounted == {CloseCause.REPAIR: 1} and world.job(theirs).attempts_counted == 0
    for job_id in (ours, theirs):
        world.until_end(job_id)
        assert world.job(job_id).status is JobStatus.SUCCEEDED
    world.check_end()


# -- the ladder --------------------------------------------------------------------------------------------------------


def test_a_machine_that_never_comes_back_is_stopped_and_started_on_another_host() -> None:
    """The reboot hangs the machine; where replacing is allowed, the next rung ends that."""
    world, job_id = incidents.running(policy=replace(ADAPTIVE, replace=True))
    world.model_instance(0).reboot_behaviour = RebootBehaviour.SILENT
    world.break_gpu(world.model_instance(0))
    world, job_id = incidents.ended(world, job_id)
    assert len(world.calls("RebootInstances")) == len(world.calls("StopInstances")) == 1
    assert world.job(job_id).status is JobStatus.SUCCEEDED
    assert world.instance(world.model_instance(0)).status is InstanceStatus.AVAILABLE


def test_a_machine_of_a_group_is_terminated_and_its_successor_takes_its_place() -> None:
    """What a reboot does not cure is replaced by its Auto Scaling group; the job waits for the new machine."""
    world, job_id = incidents.running(policy=replace(ADAPTIVE, replace=True))
    sick = world.model_instance(0)
    sick.tags["aws:autoscaling:groupName"] = "gpu-nodes"
    world.checks.script(sick, ScriptedCheck(CheckOutcome.REPLACE))
    world.exit(job_id, 0, 139)
    world, job_id = incidents.ended(world, job_id)
    assert len(world.calls("TerminateInstanceInAutoScalingGroup")) == 1 and world.calls("RebootInstances") == []
    assert world.job(job_id).status is JobStatus.SUCCEEDED
    assert sick.instance_id not in world.job(job_id).instances
    assert world.instance(sick).status is InstanceStatus.GONE


def test_replacing_is_off_unless_it_is_switched_on() -> None:
    """A person replaces, by default: no call that stops or terminates a machine is made."""
    for policy in (ADAPTIVE, CLASSIC):
        world, job_id = incidents.running(policy=policy)
        world.training.abort_code = 1
        world.checks.script(world.model_instance(0), ScriptedCheck(CheckOutcome.REPLACE))
        world.exit(job_id, 0, 1)
        world.until(
            lambda world=world: world.instance(world.model_instance(0)).status is InstanceStatus.QUARANTINED, "no"
        )  # type: ignore[misc]
        assert world.calls("StopInstances") == world.calls("TerminateInstanceInAutoScalingGroup") == []


def test_a_machine_blamed_again_soon_after_its_repair_is_not_rebooted_again() -> None:
    """The cool-down: a reboot that held for minutes has cured nothing."""
    world, _ = incidents.running(instances=3)
    sick = world.model_instance(0)
    world.break_gpu(sick)
    world.until(lambda: world.instance(sick).healed_at is not None, "it was never mended")
    again = world.submit(1)
    world.until_status(again, JobStatus.RUNNING)
    where = next(machine for machine in world.model_instances() if machine.instance_id in world.job(again).instances)
    assert where is sick
    world.break_gpu(sick)
    world.until(lambda: world.instance(sick).status is InstanceStatus.QUARANTINED, "it was not given to a person")
    assert len(world.calls("RebootInstances")) == 1 and "its last repair held for less" in world.instance(sick).reason


def test_a_dead_agents_zombie_tasks_go_with_its_registration() -> None:
    """The agent dies, then the machine: ECS would count its tasks as running for ever, and the job would wait."""
    world, job_id = incidents.running(instances=3)
    dead = world.model_instance(0)
    world.fleet.disconnect(dead)
    world.let_pass(30)
    world.transcript.happened("gpu-0 is terminated while its agent is dead")
    world.fleet.terminate(dead)
    world, job_id = incidents.ended(world, job_id)
    assert world.job(job_id).status is JobStatus.SUCCEEDED
    assert world.instance(dead).status is InstanceStatus.GONE
    assert len(world.calls("DeregisterContainerInstance")) == 1


# -- the hands on the brakes -------------------------------------------------------------------------------------------


def test_paused_again_it_has_been_paused_since_the_first_time() -> None:
    """Whoever watches how long the pause lasts must not be set back by a new reason."""
    world, _ = incidents.running()
    fleet_controls.pause(world.recovery, "ada", "moving the cluster")
    first = world.store.load_fleet().pause
    world.let_pass(600)
    fleet_controls.pause(world.recovery, "bob", "still moving")
    second = world.store.load_fleet().pause
    assert first is not None and second is not None
    assert second.at == first.at and (second.by, second.because) == ("bob", "still moving")


def test_a_channel_that_fails_keeps_no_other_from_being_told() -> None:
    """The chat topic is broken: the mail goes out once, and the failure is raised."""
    world, _ = incidents.running()
    told: list[str] = []

    def notify(message: NotifyOperator) -> None:
        told.append(message.channel)
        if message.channel == Channel.MAIL:
            raise ConnectionError("the topic is not there")

    world.actions.notify = notify  # type: ignore[method-assign]
    recovery = replace(world.recovery, channels=(Channel.MAIL, Channel.CHAT))
    with pytest.raises(ExceptionGroup, match="not every channel"):
        recovery.notify(NotifyOperator("incident/1", "SEV3", "subject", "body"))
    assert told == [Channel.MAIL, Channel.CHAT]


@pytest.mark.parametrize("state", [Ec2InstanceState.STOPPING, Ec2InstanceState.SHUTTING_DOWN])
def test_a_machine_that_somebody_is_stopping_is_not_rebooted(state: Ec2InstanceState) -> None:
    """Between the decision and the call it began to stop: EC2 would refuse, and a person be woken for nothing."""
    world, job_id = incidents.running()
    machine = world.model_instance(0)
    really, looks = world.actions.describe_ec2, iter([state])

    def machines(instance_ids: Sequence[str]) -> Mapping[str, Ec2Instance]:
        shown = really(instance_ids)
        sick = world.instance(machine).status is InstanceStatus.REBOOTING and machine.instance_id in shown
        passing = next(looks, None) if sick else None
        return {**shown, machine.instance_id: replace(shown[machine.instance_id], state=passing)} if passing else shown

    world.actions.describe_ec2 = machines  # type: ignore[method-assign]
    world.break_gpu(machine)
    world.until(lambda: world.instance(machine).status is InstanceStatus.REBOOTING, "no reboot was decided")
    assert world.calls("RebootInstances") == []
    world, job_id = incidents.ended(world, job_id)
    assert world.job(job_id).status is JobStatus.SUCCEEDED and len(world.calls("RebootInstances")) == 1
    assert not [subject for subject in subjects(world) if "needs an operator" in subject]
