"""What happens to instances: draining, reboots, agents, stops, terminations, faults."""

import pytest

from sandbox.cluster.model import describe, instances, tasks, views
from sandbox.cluster.model.cluster import AwsApiError
from sandbox.cluster.model.records import GpuFault
from sandbox.cluster.model.statuses import (
    ContainerInstanceStatus,
    CuredBy,
    Ec2State,
    ProcessState,
    RebootBehaviour,
    TaskStatus,
)

TASK = "ECS Task State Change"
CONTAINER_INSTANCE = "ECS Container Instance State Change"
EC2_STATE = "EC2 Instance State-change Notification"


def test_a_reboot_keeps_the_arn_and_the_status_and_changes_the_boot(scene):
    """No EC2 event; agentConnected false then true, with higher versions; a new boot id and time."""
    scene.running("4", scene.first)
    arn, boot_id, booted_at, since = scene.first.arn, scene.first.boot_id, scene.first.booted_at, len(scene.events)
    scene.do(instances.went_down, scene.first)
    scene.do(instances.came_back, scene.first)
    told = scene.told(CONTAINER_INSTANCE, since)
    assert [d["agentConnected"] for d in told] == [False, True, True]
    assert {d["status"] for d in told} == {"ACTIVE"}
    assert {d["containerInstanceArn"] for d in told} == {arn}
    assert scene.told(EC2_STATE) == []
    assert scene.first.ec2_state is Ec2State.RUNNING
    assert scene.first.boot_id != boot_id
    assert scene.first.booted_at > booted_at


@pytest.mark.parametrize(("exit_code", "reason"), [(137, None), (None, "ContainerVanishedError: container not found")])
def test_tasks_killed_by_a_reboot_are_reported_only_when_the_agent_is_back(scene, exit_code, reason):
    """Nobody called StopTask, so the stop code is the container's own exit."""
    task = scene.running("4", scene.first)
    scene.do(instances.went_down, scene.first, exit_code=exit_code)
    assert (task.last_status, task.process) == (TaskStatus.RUNNING, ProcessState.ENDED)
    assert scene.cluster.free_gpus(scene.first) == []
    scene.do(instances.came_back, scene.first)
    last = scene.told(TASK)[-1]
    main = last["containers"][0]
    assert (last["lastStatus"], last["stopCode"]) == ("STOPPED", "EssentialContainerExited")
    assert (main.get("exitCode"), main.get("reason")) == (exit_code, reason)
    assert scene.cluster.free_gpus(scene.first) == list(scene.first.gpus)


def test_a_machine_whose_agent_never_returns_has_rebooted_unseen(scene):
    """The boot id is new, and ECS still says disconnected and RUNNING."""
    task, boot_id = scene.running("4", scene.first), scene.first.boot_id
    scene.do(instances.went_down, scene.first)
    scene.do(instances.came_back, scene.first, agent_connects=False)
    assert scene.first.boot_id != boot_id
    assert not scene.first.agent_connected
    assert task.last_status is TaskStatus.RUNNING


def test_a_drained_instance_stays_draining_through_a_reboot(scene):
    """Only UpdateContainerInstancesState makes it ACTIVE again."""
    drain = {"containerInstances": [scene.first.arn], "status": "DRAINING"}
    scene.do(instances.update_container_instances_state, drain)
    scene.do(instances.went_down, scene.first)
    scene.do(instances.came_back, scene.first)
    assert scene.first.status is ContainerInstanceStatus.DRAINING
    assert scene.told(CONTAINER_INSTANCE)[-1]["status"] == "DRAINING"


def test_draining_leaves_running_tasks_alone(scene):
    """Standalone tasks are the caller's to stop."""
    task = scene.running("4", scene.first)
    drain = {"containerInstances": [scene.first.arn], "status": "DRAINING"}
    answer = scene.do(instances.update_container_instances_state, drain)
    assert answer["containerInstances"][0]["status"] == "DRAINING"
    assert (task.last_status, task.desired_status) == (TaskStatus.RUNNING, TaskStatus.RUNNING)


def test_state_updates_name_what_they_cannot_do(scene):
    """MISSING for an unknown instance, INACTIVE for a deregistered one, an error for another status."""
    scene.do(instances.deregister, scene.first.arn, force=False)
    request = {"containerInstances": ["f" * 32, scene.first.arn], "status": "DRAINING"}
    failures = scene.do(instances.update_container_instances_state, request)["failures"]
    assert [failure["reason"] for failure in failures] == ["MISSING", "INACTIVE"]
    with pytest.raises(AwsApiError):
        scene.do(instances.update_container_instances_state, request | {"status": "INACTIVE"})


def test_deregistering_needs_force_while_tasks_are_there_and_ends_zombies(scene):
    """Forced, the tasks are STOPPED for ECS without exit codes, even behind a dead agent."""
    task = scene.running("4", scene.first)
    scene.do(instances.agent_disconnected, scene.first)
    with pytest.raises(AwsApiError, match="running tasks"):
        scene.do(instances.deregister, scene.first.arn, force=False)
    answer = scene.do(instances.deregister, scene.first.arn, force=True)
    assert answer["containerInstance"]["status"] == "INACTIVE"
    assert task.last_status is TaskStatus.STOPPED
    assert "exitCode" not in scene.told(TASK)[-1]["containers"][0]
    assert scene.first.arn not in describe.list_container_instances(scene.cluster, {})["containerInstanceArns"]


def test_an_orphan_outlives_its_registration_and_ends_with_the_boot(scene):
    """Forced, the process runs on, also under a new registration with another ARN, which counts every GPU as free."""
    task, arn = scene.running("4", scene.first), scene.first.arn
    scene.do(instances.deregister, scene.first.arn, force=True)
    scene.do(instances.register_again, scene.first)
    assert task.runs and scene.first.arn != arn
    assert scene.cluster.free_gpus(scene.first) == list(scene.first.gpus)
    assert scene.cluster.find_container_instance(arn) is None
    assert views.task_view(scene.cluster, task)["containerInstanceArn"] == arn
    scene.do(instances.went_down, scene.first)
    assert not task.runs


def test_stop_and_start_report_ec2_states_and_bring_a_new_machine(scene):
    """stopping, stopped, pending, running; the tasks end with the host; same ARN, another boot."""
    task, arn, boot_id = scene.running("4", scene.first), scene.first.arn, scene.first.boot_id
    for step in (instances.begin_stop, instances.stopped, instances.begin_start, instances.started):
        scene.do(step, scene.first)
    assert [d["state"] for d in scene.told(EC2_STATE)] == ["stopping", "stopped", "pending", "running"]
    assert task.stopped_reason == f"Host EC2 (instance {scene.first.instance_id}) stopped."
    assert scene.first.agent_connected
    assert scene.first.arn == arn
    assert scene.first.boot_id != boot_id


def test_terminating_deregisters_only_through_a_connected_agent(scene):
    """A cut-off instance leaves its registration and zombie tasks behind."""
    seen, unseen = scene.running("4", scene.first), scene.running("4", scene.second)
    scene.do(instances.agent_disconnected, scene.second)
    for instance in (scene.first, scene.second):
        scene.do(instances.begin_terminate, instance)
        scene.do(instances.terminated, instance)
    assert [d["state"] for d in scene.told(EC2_STATE)] == ["shutting-down", "terminated"] * 2
    assert (scene.first.status, seen.last_status) == (ContainerInstanceStatus.INACTIVE, TaskStatus.STOPPED)
    assert (scene.second.status, unseen.last_status) == (ContainerInstanceStatus.ACTIVE, TaskStatus.RUNNING)


def test_a_terminated_or_stubborn_instance_ignores_a_reboot(scene):
    """RebootInstances answers success all the same."""
    scene.first.reboot_behaviour = RebootBehaviour.IGNORED
    scene.do(instances.begin_terminate, scene.second)
    both = [scene.first.instance_id, scene.second.instance_id]
    assert instances.request_reboot(scene.cluster, both) == []
    with pytest.raises(AwsApiError, match="i-unknown"):
        instances.request_reboot(scene.cluster, ["i-unknown"])


@pytest.mark.parametrize(
    ("cured_by", "after_reset", "after_reboot", "after_replacement"),
    [
        (CuredBy.RESET, False, False, False),
        (CuredBy.REBOOT, True, False, False),
        (CuredBy.REPLACE, True, True, False),
        (CuredBy.NEVER, True, True, True),
    ],
)
def test_a_fault_ends_with_its_cure_and_not_before(scene, cured_by, after_reset, after_reboot, after_replacement):
    """A reset cures some, a reboot cures more, another machine still more, and some nothing cures."""
    instances.break_gpu(scene.first, scene.first.gpus[2], GpuFault("xid79", cured_by))
    boot_id = scene.first.boot_id
    instances.gpus_reset(scene.first)
    assert (bool(scene.first.faults), scene.first.boot_id) == (after_reset, boot_id)
    scene.do(instances.went_down, scene.first)
    scene.do(instances.came_back, scene.first)
    assert bool(scene.first.faults) is after_reboot
    for step in (instances.begin_stop, instances.stopped, instances.begin_start, instances.started):
        scene.do(step, scene.first)
    assert bool(scene.first.faults) is after_replacement


def test_tasks_wait_for_an_agent_that_went_away_before_starting_them(scene):
    """PENDING through a reboot, and work for the agent afterwards."""
    arn = scene.run("4", scene.first)["tasks"][0]["taskArn"]
    scene.do(instances.went_down, scene.first)
    assert tasks.agent_work(scene.cluster, scene.first) == ([], [])
    scene.do(instances.came_back, scene.first)
    wanted, _ = tasks.agent_work(scene.cluster, scene.first)
    assert [task.arn for task in wanted] == [arn]
    assert wanted[0].last_status is TaskStatus.PENDING


def test_describe_container_instances_shows_gpus_and_tags_on_request(scene):
    """Registered and remaining GPU UUIDs, running and pending counts, and MISSING for strangers."""
    scene.running("1", scene.first)
    scene.run("1", scene.first)
    request = {"containerInstances": [scene.first.arn, "f" * 32], "include": ["TAGS"]}
    answer = describe.describe_container_instances(scene.cluster, request)
    view = answer["containerInstances"][0]
    remaining = {r["name"]: r for r in view["remainingResources"]}
    assert remaining["GPU"]["stringSetValue"] == list(scene.first.gpus[2:])
    assert remaining["CPU"]["integerValue"] == scene.first.cpu - 400
    assert (view["runningTasksCount"], view["pendingTasksCount"]) == (1, 1)
    assert {"key": "gpu-recovery:managed", "value": "true"} in view["tags"]
    assert [failure["reason"] for failure in answer["failures"]] == ["MISSING"]


def test_list_container_instances_filters_by_status_and_expression(scene):
    """INACTIVE ones are listed only when asked for."""
    scene.do(instances.deregister, scene.first.arn, force=False)

    def listed(**request):
        return describe.list_container_instances(scene.cluster, request)["containerInstanceArns"]

    assert listed() == [scene.second.arn]
    assert listed(status="INACTIVE") == [scene.first.arn]
    assert listed(filter=f"ec2InstanceId == {scene.first.instance_id}") == []
    assert listed(filter=f"ec2InstanceId == {scene.second.instance_id}") == [scene.second.arn]


def test_announce_repeats_the_registration_of_connected_agents(scene):
    """For rules deployed after the instances: an ACTIVE event each, with a higher version."""
    scene.do(instances.agent_disconnected, scene.second)
    since, version = len(scene.events), scene.first.version
    scene.do(instances.announce)
    told = scene.told(CONTAINER_INSTANCE, since)
    assert [(d["ec2InstanceId"], d["version"]) for d in told] == [(scene.first.instance_id, version + 1)]
