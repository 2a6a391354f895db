"""What watchers say of the model's machines, what EC2 plans with them, and what a group does for those it loses."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from sandbox.cluster.model import describe, health, instances
from sandbox.cluster.model.cluster import AwsApiError
from sandbox.cluster.model.statuses import ContainerInstanceStatus, Ec2State, StatusCheck, TaskStatus
from sandbox.cluster.model.views import iso
from tests.sandbox.cluster.model.test_events import sample, shape

RESTART = (instances.begin_stop, instances.stopped, instances.begin_start, instances.started)
TERMINATE = (instances.begin_terminate, instances.terminated)
SAMPLES = Path(__file__).resolve().parents[3] / "events"


def test_a_recommendation_has_exactly_the_recorded_shape(scene):
    """An ARN with a zone for its region, and nothing but the id in its detail."""
    scene.do(health.recommend_rebalance, scene.first)
    event = scene.events[-1]
    assert shape(event) == sample("ec2_rebalance_recommendation_nth")
    assert event["detail"] == {"instance-id": scene.first.instance_id}


def test_a_health_event_has_the_keys_of_the_recorded_one(scene):
    """And the status and the page that newer ones have."""
    scene.do(health.schedule, scene.first, "instance-retirement", scene.now + timedelta(hours=2))
    event = scene.events[-1]
    theirs = json.loads((SAMPLES / "health_ec2_persistent_instance_retirement_real.json").read_text())
    newer = {"statusCode", "page", "totalPages", "affectedAccount", "eventScopeCode"}
    assert set(event["detail"]) - set(theirs["detail"]) == newer
    assert set(theirs["detail"]) <= set(event["detail"])
    assert event["source"] == "aws.health"
    assert event["detail"]["startTime"] == "Sat, 21 Nov 2026 11:00:02 GMT"


def test_an_alarm_has_the_keys_of_the_recorded_one(scene):
    """The metric and its instance where the published alarm on an instance has them."""
    scene.do(health.impair, scene.first, StatusCheck.SYSTEM)
    event = scene.events[-1]
    theirs = json.loads((SAMPLES / "cloudwatch_alarm_servercputoohigh.json").read_text())
    assert set(event["detail"]) == set(theirs["detail"])
    ours, recorded = (one["detail"]["configuration"]["metrics"][0] for one in (event, theirs))
    assert set(ours["metricStat"]["metric"]) == set(recorded["metricStat"]["metric"])
    assert ours["metricStat"]["metric"]["dimensions"] == {"InstanceId": scene.first.instance_id}
    assert event["detail"]["state"]["value"] == "ALARM"


def test_the_health_of_a_container_instance_has_no_version(scene):
    """As ECS sends it; the reason carries the XID."""
    scene.do(health.report_health, scene.first, "ACCELERATED_COMPUTE", "IMPAIRED", "XID_79")
    (told,) = scene.told("ECS Container Instance Health Change")
    assert "version" not in told
    (check,) = told["healthChecks"]
    assert (check["type"], check["status"], check["statusReason"]) == ("ACCELERATED_COMPUTE", "IMPAIRED", "XID_79")


def test_the_health_of_a_container_instance_is_described_on_request_until_it_boots(scene):
    """With the times of the event, to the millisecond; the check of a new boot has not reported yet."""
    scene.do(health.report_health, scene.first, "ACCELERATED_COMPUTE", "IMPAIRED", "XID_79")
    (told,) = scene.told("ECS Container Instance Health Change")

    def described(*include):
        request = {"containerInstances": [scene.first.arn], "include": list(include)}
        return describe.describe_container_instances(scene.cluster, request)["containerInstances"][0]

    assert "healthStatus" not in described()
    (check,) = described("CONTAINER_INSTANCE_HEALTH")["healthStatus"]["details"]
    assert [iso(check["lastStatusChange"])] == [entry["lastStatusChange"] for entry in told["healthChecks"]]
    assert (check["type"], check["status"], check["statusReason"]) == ("ACCELERATED_COMPUTE", "IMPAIRED", "XID_79")
    reboot(scene, scene.first)
    assert "healthStatus" not in described("CONTAINER_INSTANCE_HEALTH")


def reboot(scene, instance):
    """Off, and back."""
    scene.do(instances.went_down, instance)
    scene.do(instances.came_back, instance)


@pytest.mark.parametrize(("check", "after_reboot"), [(StatusCheck.INSTANCE, False), (StatusCheck.SYSTEM, True)])
def test_a_failing_check_has_its_cure(scene, check, after_reboot):
    """A reboot cures the machine, only another host cures the host."""
    scene.do(health.impair, scene.first, check)
    reboot(scene, scene.first)
    assert (check in scene.first.impaired) is after_reboot
    for step in RESTART:
        scene.do(step, scene.first)
    assert scene.first.impaired == {}


def test_a_plan_for_a_host_ends_with_the_host(scene):
    """Stopped and started before its time, the machine is no longer where it was planned for."""
    scene.do(health.schedule, scene.first, "instance-retirement", scene.now)
    reboot(scene, scene.first)
    assert [one.description for one in scene.first.scheduled] == ["The instance is running on degraded hardware"]
    for _ in range(2):
        for step in RESTART:
            scene.do(step, scene.first)
    (event,) = scene.first.scheduled
    assert event.description == "[Completed] The instance is running on degraded hardware"


def test_a_plan_that_is_called_off_is_still_shown(scene):
    """Health closes its event, under the ARN that it had."""
    scene.do(health.schedule, scene.first, "system-reboot", scene.now)
    scene.do(health.call_off, scene.first)
    scene.do(health.call_off, scene.first)
    (event,) = scene.first.scheduled
    assert event.description.startswith("[Canceled] EC2")
    opened, closed = scene.told("AWS Health Event")
    assert (opened["statusCode"], closed["statusCode"]) == ("upcoming", "closed")
    assert opened["eventArn"] == closed["eventArn"]


def test_a_plan_that_ec2_does_not_make_is_refused(scene):
    """A misspelt one would test nothing."""
    with pytest.raises(AwsApiError, match="instance-holiday"):
        health.schedule(scene.cluster, scene.first, "instance-holiday", scene.now, scene.now)


# -- stopping and terminating ------------------------------------------------------------------------------------------


def test_a_machine_stopped_behind_a_dead_agent_keeps_its_tasks_until_the_agent_is_back(scene):
    """ECS has only the agent to hear it from."""
    task = scene.running("4", scene.first)
    scene.do(instances.agent_disconnected, scene.first)
    for step in RESTART[:2]:
        scene.do(step, scene.first)
    assert (task.last_status, scene.first.status) == (TaskStatus.RUNNING, ContainerInstanceStatus.ACTIVE)
    for step in RESTART[2:]:
        scene.do(step, scene.first)
    assert (task.last_status, scene.first.agent_connected) == (TaskStatus.STOPPED, True)


def test_a_machine_terminated_behind_a_dead_agent_is_a_zombie_until_it_is_deregistered(scene):
    """ACTIVE, without an agent, its task RUNNING: by force alone ECS gives it up."""
    task = scene.running("4", scene.first)
    scene.do(instances.agent_disconnected, scene.first)
    for step in TERMINATE:
        scene.do(step, scene.first)
    (view,) = describe.describe_container_instances(scene.cluster, {"containerInstances": [scene.first.arn]})[
        "containerInstances"
    ]
    assert (view["status"], view["agentConnected"], view["runningTasksCount"]) == ("ACTIVE", False, 1)
    scene.do(instances.deregister, scene.first.arn, force=True)
    assert (task.last_status, scene.first.status) == (TaskStatus.STOPPED, ContainerInstanceStatus.INACTIVE)


def test_ec2_forgets_a_terminated_machine_after_an_hour(scene):
    """A stopped one it never forgets."""
    for step in TERMINATE:
        scene.do(step, scene.first)
    scene.do(instances.begin_stop, scene.second)
    known = [scene.cluster.known_to_ec2(scene.now + timedelta(minutes=after)) for after in (59, 61)]
    assert known == [[scene.first, scene.second], [scene.second]]


# -- Auto Scaling ------------------------------------------------------------------------------------------------------


def test_a_group_puts_another_machine_in_the_place_of_one_that_it_lost(scene):
    """Ids and boot of its own, the same size and tags but for the name, and nothing of what was wrong."""
    scene.first.tags[health.GROUP_TAG] = "gpus"
    scene.first.lifecycle = "spot"
    scene.do(health.impair, scene.first, StatusCheck.SYSTEM)
    for step in TERMINATE:
        scene.do(step, scene.first)
    made = scene.cluster.instances[scene.do(health.launch_in_place_of, scene.first)["instance_id"]]
    assert made not in (scene.first, scene.second)
    assert made.arn != scene.first.arn
    assert made.boot_id != scene.first.boot_id
    assert (len(made.gpus), made.lifecycle, health.group_of(made)) == (4, "spot", "gpus")
    assert made.tags == {**scene.first.tags, "Name": "gpu-2"}
    assert (made.impaired, made.ec2_state) == ({}, Ec2State.RUNNING)
    running, registered = scene.events[-2:]
    assert running["detail"] == {"instance-id": made.instance_id, "state": "running"}
    assert registered["detail"]["ec2InstanceId"] == made.instance_id


def test_a_group_knows_only_its_own(scene):
    """One that is in no group, one that it has lost, and one that never was."""
    scene.second.tags[health.GROUP_TAG] = "gpus"
    assert health.member(scene.cluster, scene.second.instance_id) is scene.second
    for step in TERMINATE:
        scene.do(step, scene.second)
    for stranger in (scene.first.instance_id, scene.second.instance_id, "i-0"):
        with pytest.raises(AwsApiError, match="No managed instance found"):
            health.member(scene.cluster, stranger)
