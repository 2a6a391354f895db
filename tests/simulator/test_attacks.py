"""Attacks on whole incidents: what must never be done to a healthy machine or a job that runs, however things fall.

Each was written against the production loop and found something. Those that are still open are marked as expected to
fail, strictly: whoever mends one takes its mark away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from gpu_recovery import fleet_controls
from gpu_recovery.core.events import QuarantineRequested
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.adoption import Adoption
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.ports.values import Ec2Instance

from sandbox.cluster.model import health, instances
from sandbox.cluster.model import tasks as model_tasks
from sandbox.cluster.model.cluster import ClusterModel, OperationResult
from sandbox.cluster.model.events import alarm_changed, health_changed, spot_warned
from sandbox.cluster.model.records import GpuFault, ModelInstance, Task
from sandbox.cluster.model.statuses import CuredBy, StatusCheck
from simulator.cloud.fleet import FleetTimings
from simulator.cloud.workloads import ScriptedCheck
from simulator.invocations import Effect, KillAt
from simulator.world import World
from simulator.world_builder import CLUSTER, TRAINING_FAMILY
from tests.simulator import incidents
from tests.simulator.incidents import ADAPTIVE, INCONCLUSIVE, QUICK

REPLACING = replace(ADAPTIVE, replace=True)
HOUR_S = 3600.0
DESTRUCTIVE = ("RebootInstances", "StopInstances", "TerminateInstanceInAutoScalingGroup")
DRAIN = "UpdateContainerInstancesState"


@dataclass
class Once:
    """Does something once, just before the first step of this name: in between a decision and its last act."""

    name: str
    do: Callable[[], object] = lambda: None
    done: bool = False

    def before(self, step: Effect) -> None:
        if step.name == self.name and not self.done:
            self.done = True
            self.do()

    def after(self, step: Effect) -> None:
        """Let the caller hear of it."""


def idle(number: int = 2, **given: Any) -> tuple[World, ModelInstance]:
    """Machines that wait for work, and the first of them."""
    world = World(**{"instances": number, "policy": REPLACING, **given})
    world.let_pass(5)
    return world, world.model_instance(0)


def working(**given: Any) -> tuple[World, str, ModelInstance]:
    """A job on one of two machines that trains for ever, and that machine."""
    world, job_id = incidents.running(1, **{"instances": 2, "train_s": None, **given})
    return world, job_id, world.cluster.instances[world.job(job_id).instances[0]]


def touched(world: World) -> Counter[str]:
    """How often each destructive call was made."""
    return Counter(step.name for step in world.invocations.done if step.name in DESTRUCTIVE)


def status(world: World, machine: ModelInstance) -> InstanceStatus:
    return world.instance(machine).status


# -- between the decision and the act ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("down_s", "boot_s"), [(15, 300), (120, 600)], ids=["slow boot", "slow stop"])
def test_who_died_after_stopping_a_machine_does_not_have_it_stopped_while_it_starts(down_s: int, boot_s: int) -> None:
    """The order is taken over when the machine is starting: another stop would be refused, and it be a person's."""
    calm, machine = idle()
    calm.fleet.announce(health.impair, machine, StatusCheck.SYSTEM)
    calm.until(lambda: bool(calm.calls("StopInstances")), "it was never stopped")
    died = KillAt(calm.calls("StopInstances")[0].number, after_it=True)
    world, machine = idle(nemesis=died, retries=False, timings=FleetTimings(down_s=down_s, boot_s=boot_s))
    world.fleet.announce(health.impair, machine, StatusCheck.SYSTEM)
    world.let_pass(2 * HOUR_S)
    assert (status(world, machine), touched(world)) == (InstanceStatus.AVAILABLE, {"StopInstances": 1})


def test_a_machine_that_a_person_quarantines_at_the_last_moment_is_not_rebooted() -> None:
    """The reboot is decided and the machine drained, when somebody with hands in it says so."""
    nemesis = Once(DRAIN)
    world, machine = idle(policy=ADAPTIVE, nemesis=nemesis)
    order = QuarantineRequested(at=world.timeline.now, by="ada", because="hands inside")
    nemesis.do = lambda: world.recovery.handle(machine.instance_id, replace(order, at=world.timeline.now))
    world.fleet.announce(health.impair, machine, StatusCheck.INSTANCE)
    world.let_pass(HOUR_S)
    assert "hands inside" in world.instance(machine).reason and not touched(world)


def test_a_retirement_called_off_while_its_replacement_waits_for_a_task_ends_no_machine() -> None:
    """Somebody's task holds the replacement up; by the time that has ended there is no reason left."""
    nemesis = Once(DRAIN)
    world, machine = idle(nemesis=nemesis)
    machine.tags[health.GROUP_TAG] = "gpus"
    tasks: list[Task] = []
    nemesis.do = lambda: tasks.append(world.start_by_hand("theirs", 0, 1, machine))
    world.fleet.plan(machine, "instance-retirement", HOUR_S + 100)
    world.let_pass(160)
    assert tasks and status(world, machine) is InstanceStatus.REPLACING
    world.fleet.announce(health.call_off, machine)
    world.let_pass(30)
    world.stop_by_hand(tasks[0])
    world.let_pass(HOUR_S)
    assert status(world, machine) is InstanceStatus.AVAILABLE and not touched(world)


def test_a_reboot_that_was_never_asked_for_is_no_reason_to_terminate_the_machine() -> None:
    """Somebody's task holds the reboot up until its deadline: what was never tried has not failed."""
    nemesis = Once(DRAIN)
    world, machine = idle(nemesis=nemesis)
    machine.tags[health.GROUP_TAG] = "gpus"
    tasks: list[Task] = []
    nemesis.do = lambda: tasks.append(world.start_by_hand("theirs", 0, 1, machine))
    world.fleet.announce(health.impair, machine, StatusCheck.INSTANCE)
    world.let_pass(600)
    assert world.store.load_fleet().repairing == frozenset(), "it keeps the others of the cluster waiting"
    world.let_pass(1800)
    world.stop_by_hand(tasks[0])
    world.let_pass(HOUR_S)
    assert (status(world, machine), touched(world)) == (InstanceStatus.AVAILABLE, {"RebootInstances": 1})


def test_a_job_that_its_owner_starts_anew_on_a_sick_machine_is_not_rebooted_away() -> None:
    """It has the name of the job that the repair is for; only a rank that could not be stopped may be ended by it."""
    nemesis = Once(DRAIN)
    world = incidents.started_by_hand(Adoption.RECOVER, nemesis=nemesis, train_s=None)
    machine = world.model_instance(0)
    nemesis.do = lambda: world.start_by_hand(incidents.HAND_JOB, 0, 2, machine)
    world.checks.script(machine, ScriptedCheck(CheckOutcome.REBOOT))
    world.fleet.end(next(task for task in world.fleet.running() if task.instance_id == machine.instance_id), 139)
    world.until(lambda: nemesis.done, "nothing was drained")
    world.let_pass(1200)
    assert not touched(world)


# -- other people's work -----------------------------------------------------------------------------------------------


def test_a_machine_without_gpus_is_nobodys_to_reboot() -> None:
    """A cluster has others, too: a service works on one of them, and EC2 finds that machine impaired."""
    world, _ = idle(policy=ADAPTIVE)
    world.fleet.launch(0)
    world.let_pass(30)
    machine = next(one for one in world.model_instances() if not one.gpus)
    request = {
        "cluster": CLUSTER,
        "taskDefinition": TRAINING_FAMILY,
        "startedBy": "ecs-svc/1",
        "placementConstraints": [{"type": "memberOf", "expression": f"ec2InstanceId == {machine.instance_id}"}],
    }
    definition = dict(world._described(TRAINING_FAMILY) or {})
    world.fleet.change(lambda now: model_tasks.run_task(world.cluster, request, definition, now))
    world.let_pass(60)
    world.fleet.announce(health.impair, machine, StatusCheck.INSTANCE)
    world.let_pass(HOUR_S)
    assert len(world.fleet.running()) == 1 and not touched(world) and not world.calls(DRAIN)


def test_nobody_is_stopped_for_a_repair_that_the_kill_switch_forbids() -> None:
    """The switch was pulled because jobs were stopped for nothing: they run on; unpaused, they leave."""
    world, job_id, machine = working()
    fleet_controls.pause(world.recovery, "ada", "it stops jobs for nothing")
    world.fleet.announce(health.impair, machine, StatusCheck.INSTANCE)
    world.let_pass(HOUR_S)
    assert not world.calls("StopTask") and world.job(job_id).attempt == 1
    assert "recovery is paused by ada" in world.instance(machine).reason
    fleet_controls.unpause(world.recovery)
    world.let_pass(HOUR_S)
    assert touched(world) == {"RebootInstances": 1} and world.job(job_id).status is JobStatus.RUNNING


def test_an_open_breaker_keeps_the_jobs_of_a_cluster_running() -> None:
    """Ten machines look bad within a minute: those blamed once it is open keep their jobs."""
    world = World(instances=10, train_s=None)
    world.let_pass(5)
    jobs = [world.submit(1) for _ in range(10)]
    for job_id in jobs:
        world.until_status(job_id, JobStatus.RUNNING)
    for machine in world.model_instances():
        world.fleet.announce(health.impair, machine, StatusCheck.INSTANCE)
    world.let_pass(600)
    assert sum(world.job(job_id).attempt == 1 for job_id in jobs) >= 10 - world.policy.breaker_instances_min
    assert sum(world.job(job_id).status is JobStatus.RUNNING for job_id in jobs) >= 5


def test_a_job_leaves_a_host_that_is_retired_whatever_the_brakes_say() -> None:
    """EC2 takes the host in an hour, paused or not."""
    world, job_id, machine = working(policy=REPLACING)
    fleet_controls.pause(world.recovery, "ada", "looking into something")
    world.fleet.plan(machine, "instance-retirement", HOUR_S + 100)
    world.let_pass(1200)
    assert world.job(job_id).attempt == 2 and not touched(world)


# -- words that come late, twice, or not -------------------------------------------------------------------------------


def _words_of_yesterday(world: World, machine: ModelInstance) -> Iterator[dict[str, Any]]:
    now = world.timeline.now
    yield spot_warned(world.cluster, machine, now)
    yield health_changed(world.cluster, machine, "ACCELERATED_COMPUTE", "IMPAIRED", "XID_79", now)
    yield alarm_changed(world.cluster, machine, StatusCheck.INSTANCE, "ALARM", now)
    yield alarm_changed(world.cluster, machine, StatusCheck.SYSTEM, "ALARM", now)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(4), ids=["spot", "gpus", "instance", "system"])
def test_a_word_of_yesterday_stops_no_job(number: int) -> None:
    """Given back from a queue of dead letters a day later, it is heard for the first time."""
    world, job_id, machine = working(policy=REPLACING, fidelity=QUICK)
    word = list(_words_of_yesterday(world, machine))[number]
    world.let_pass(24 * HOUR_S)
    world.deliver(word)
    world.let_pass(HOUR_S)
    assert world.job(job_id).attempt == 1 and status(world, machine) is InstanceStatus.AVAILABLE


@pytest.mark.parametrize("check", StatusCheck)
def test_alarms_of_anybody_move_no_job_and_no_machine(check: StatusCheck) -> None:
    """Set by hand again and again, on every machine, while EC2 finds all of them well."""
    world, job_id, _ = working(policy=REPLACING)
    for _ in range(20):
        for machine in world.model_instances():
            world.deliver(alarm_changed(world.cluster, machine, check, "ALARM", world.timeline.now))
        world.let_pass(30)
    assert world.job(job_id).attempt == 1 and not touched(world) and not world.calls("StopTask")
    assert {status(world, machine) for machine in world.model_instances()} == {InstanceStatus.AVAILABLE}


def test_an_event_that_ec2_puts_off_is_announced_once_more_and_not_every_minute() -> None:
    """Canceled, and there anew for a little later: both are shown for a week."""
    world, machine = idle()
    world.fleet.plan(machine, "instance-retirement", 30 * HOUR_S)
    world.let_pass(60)
    world.fleet.announce(health.call_off, machine)
    world.fleet.plan(machine, "instance-retirement", 30 * HOUR_S + 1200)
    world.let_pass(HOUR_S)
    assert len(world.messages()) <= 3 and world.instance(machine).departure is not None


def test_an_answer_of_ec2_with_nothing_in_it_ends_no_job() -> None:
    """One look shows none of the machines that the gang runs on; their agents are there all the time."""
    world, job_id = incidents.running(2, instances=4, train_s=None)
    world.let_pass(300)
    shown, asked = world.actions.ec2.describe, list[int]()

    def once_empty(ids: Sequence[str]) -> Mapping[str, Ec2Instance]:
        asked.append(len(ids))
        return shown(ids) if len(asked) > 1 else {}

    world.actions.ec2.describe = once_empty  # type: ignore[method-assign]
    world.let_pass(600)
    assert asked, "nobody asked"
    assert world.job(job_id).attempt == 1 and world.job(job_id).status is JobStatus.RUNNING


# -- evidence that waits -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer", [INCONCLUSIVE, ScriptedCheck(CheckOutcome.CONFIGURATION)], ids=["unsure", "misconfigured"]
)
def test_a_check_that_cannot_tell_takes_no_blame_back(answer: ScriptedCheck) -> None:
    """A GPU has fallen off the bus; half an hour later the fresh look at it fails. It does not work again for that."""
    world, _ = incidents.running(instances=3)
    sick = world.model_instance(0)
    fleet_controls.pause(world.recovery, "ada", "moving the cluster")
    world.break_gpu(sick)
    world.until(lambda: world.instance(sick).held is not None, "nothing was held back")
    world.checks.script(sick, answer)
    world.let_pass(ADAPTIVE.evidence_stale_s)
    fleet_controls.unpause(world.recovery)
    world.let_pass(HOUR_S)
    assert sick.faults and status(world, sick) is InstanceStatus.QUARANTINED
    assert "still counts" in world.instance(sick).reason


def test_a_held_reboot_for_ec2s_status_check_takes_place_however_old_its_evidence() -> None:
    """A check of GPUs shows nothing of what EC2 finds: passing it, the machine would be suspected for ever."""
    world, machine = idle(policy=ADAPTIVE)
    fleet_controls.pause(world.recovery, "ada", "moving the cluster")
    world.fleet.announce(health.impair, machine, StatusCheck.INSTANCE)
    world.let_pass(2 * ADAPTIVE.evidence_stale_s)
    fleet_controls.unpause(world.recovery)
    world.let_pass(HOUR_S)
    assert touched(world) == {"RebootInstances": 1} and not world.instance(machine).avoid_reason


def test_a_machine_whose_hosts_keep_failing_is_not_stopped_and_started_all_night() -> None:
    """Each new host lasts for an hour: after a few of them it is a person's."""
    world, machine = idle()
    for _ in range(12):
        world.fleet.announce(health.impair, machine, StatusCheck.SYSTEM)
        world.let_pass(REPLACING.relapse_window_s + 600)
    assert touched(world)["StopInstances"] <= REPLACING.reboots_max + 1
    assert status(world, machine) is InstanceStatus.QUARANTINED


# -- open --------------------------------------------------------------------------------------------------------------


def test_a_few_bad_minutes_of_ec2_do_not_cost_the_cluster() -> None:
    """Every host fails its status check for three minutes; an hour later the machines work."""
    world, _ = idle(10, policy=ADAPTIVE)
    for machine in world.model_instances():
        world.fleet.announce(health.impair, machine, StatusCheck.SYSTEM)
    world.let_pass(180)
    for machine in world.model_instances():
        machine.impaired.clear()
    world.let_pass(HOUR_S)
    assert all(status(world, machine) is InstanceStatus.AVAILABLE for machine in world.model_instances())


def test_a_watcher_that_cannot_make_up_its_mind_fails_no_job() -> None:
    """ECS finds the GPUs impaired and well again, and every check of ours passes."""
    world, job_id, _ = working()
    for _ in range(8):
        at = world.job(job_id).instances
        machine = world.cluster.instances[at[0]]
        world.fleet.announce(health.report_health, machine, "ACCELERATED_COMPUTE", "IMPAIRED", None)
        world.let_pass(20)
        world.fleet.announce(health.report_health, machine, "ACCELERATED_COMPUTE", "OK", None)
        world.let_pass(900)
    assert world.job(job_id).status is JobStatus.RUNNING


def test_a_group_whose_new_machines_are_bad_too_is_not_replaced_all_night(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bad image: each successor is blamed in its turn, one at a time, so the breaker sees nothing. Operators do."""
    launched = health.launch_in_place_of

    def bad(cluster: ClusterModel, gone: ModelInstance, now: Any) -> OperationResult:
        outcome = launched(cluster, gone, now)
        machine = cluster.instances[outcome.result["instance_id"]]
        instances.break_gpu(machine, machine.gpus[0], GpuFault("ecc", CuredBy.REPLACE))
        return outcome

    monkeypatch.setattr(health, "launch_in_place_of", bad)
    world, first = idle(4)
    first.tags[health.GROUP_TAG] = "gpus"
    instances.break_gpu(first, first.gpus[0], GpuFault("ecc", CuredBy.REPLACE))
    for _ in range(36):
        for one in world.instances():
            machine = world.cluster.instances[one.instance_id]
            if one.status is InstanceStatus.AVAILABLE and machine.faults:
                world.fleet.announce(health.report_health, machine, "ACCELERATED_COMPUTE", "IMPAIRED", "XID_48")
        world.let_pass(600)
    assert touched(world)["TerminateInstanceInAutoScalingGroup"] <= 6 and world.messages()


def test_observe_only_starts_no_check() -> None:
    """Decision 17 has it so: checks take GPUs from people."""
    world, machine = idle(policy=replace(ADAPTIVE, observe_only=True))
    world.fleet.announce(health.report_health, machine, "ACCELERATED_COMPUTE", "IMPAIRED", "XID_79")
    world.let_pass(HOUR_S)
    assert not world.calls("RunTask")


def test_a_persons_task_without_gpus_is_not_rebooted_away() -> None:
    """It prepares data on a machine whose GPUs nobody uses at the moment."""
    world, machine = idle(policy=ADAPTIVE)
    request = {
        "cluster": CLUSTER,
        "taskDefinition": TRAINING_FAMILY,
        "startedBy": "bob",
        "placementConstraints": [{"type": "memberOf", "expression": f"ec2InstanceId == {machine.instance_id}"}],
    }
    definition = dict(world._described(TRAINING_FAMILY) or {})
    world.fleet.change(lambda now: model_tasks.run_task(world.cluster, request, definition, now))
    world.let_pass(60)
    world.fleet.announce(health.impair, machine, StatusCheck.INSTANCE)
    world.let_pass(HOUR_S)
    assert not touched(world)


@pytest.mark.slow
def test_the_sixth_interruption_of_a_month_fails_no_job() -> None:
    """Each attempt has lasted for hours: that is life on Spot, and no storm of relaunches."""
    world, job_id, _ = working(fidelity=QUICK)
    for _ in range(7):
        world.until(lambda: world.job(job_id).status is not JobStatus.RECOVERING, "it was not placed again")
        world.let_pass(6 * HOUR_S)
        machine = world.cluster.instances[world.job(job_id).instances[0]]
        world.deliver(spot_warned(world.cluster, machine, world.timeline.now))
        world.let_pass(600)
    assert world.job(job_id).status is JobStatus.RUNNING
