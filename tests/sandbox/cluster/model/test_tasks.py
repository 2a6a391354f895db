"""What RunTask, StopTask and the agents' facts do to the model."""

from datetime import timedelta

import pytest

from sandbox.cluster.model import describe, instances, tasks
from sandbox.cluster.model.cluster import AwsApiError
from sandbox.cluster.model.statuses import ContainerInstanceStatus, ProcessState, TaskStatus

TASK = "ECS Task State Change"
CONTAINER_INSTANCE = "ECS Container Instance State Change"


def test_a_placed_task_holds_its_gpus_and_releases_them_when_it_stops(scene):
    """GPUs are taken by UUID from the instance's free ones and come back with STOPPED."""
    task = scene.running("3", scene.first)
    assert set(task.gpu_ids) == set(scene.first.gpus[:3])
    assert scene.cluster.free_gpus(scene.first) == [scene.first.gpus[3]]
    scene.do(tasks.process_ended, task, 0)
    assert scene.cluster.free_gpus(scene.first) == list(scene.first.gpus)


def test_all_means_every_gpu_of_the_instance(scene):
    """`ALL` takes the whole instance, and finds no place beside another task's GPU."""
    assert scene.run("ALL", scene.first)["tasks"][0]["containers"][0]["gpuIds"] == list(scene.first.gpus)
    scene.run("1", scene.second)
    assert scene.run("ALL", scene.second)["failures"] == [{"arn": scene.second.arn, "reason": "RESOURCE:GPU"}]


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ({"cpu": 10**6}, "RESOURCE:CPU"),
        ({"memory": 10**8}, "RESOURCE:MEMORY"),
        ({"resourceRequirements": [{"type": "GPU", "value": "5"}]}, "RESOURCE:GPU"),
    ],
)
def test_what_does_not_fit_is_a_failure_with_ecs_reason(scene, override, reason):
    """The answer is a success without tasks, and says per instance what was short."""
    request = scene.request(overrides={"containerOverrides": [{"name": "main"} | override]})
    answer = scene.do(tasks.run_task, request, scene.train)
    assert answer["tasks"] == []
    assert {failure["reason"] for failure in answer["failures"]} == {reason}
    assert {failure["arn"] for failure in answer["failures"]} == {scene.first.arn, scene.second.arn}


def test_a_disconnected_agent_is_the_failure_agent(scene):
    """An instance whose agent is away takes no task."""
    scene.do(instances.agent_disconnected, scene.first)
    assert scene.run("1", scene.first)["failures"] == [{"arn": scene.first.arn, "reason": "AGENT"}]


def test_a_draining_instance_is_no_placement_target(scene):
    """Drained, it is passed over; alone and constrained to, it satisfies no constraint."""
    drain = {"containerInstances": [scene.first.arn], "status": "DRAINING"}
    scene.do(instances.update_container_instances_state, drain)
    assert scene.run("1")["tasks"][0]["containerInstanceArn"] == scene.second.arn
    failures = scene.run("1", scene.first)["failures"]
    assert {failure["reason"] for failure in failures} == {"MemberOf placement constraint unsatisfied."}


def test_a_cluster_without_active_instances_refuses_the_request(scene):
    """ECS raises then, instead of answering failures."""
    for instance in scene.cluster.instances.values():
        instance.status = ContainerInstanceStatus.DRAINING
    with pytest.raises(AwsApiError, match="No Container Instances were found"):
        scene.run("1")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("attribute:ecs.availability-zone == us-east-1b", "second"),
        ("attribute:ecs.availability-zone != us-east-1b", "first"),
        ("attribute:ecs.availability-zone in [us-east-1b, us-east-1z]", "second"),
        ("attribute:ecs.os-type == linux and attribute:ecs.availability-zone == us-east-1b", "second"),
        ("attribute:missing exists or attribute:ecs.availability-zone == us-east-1b", "second"),
    ],
)
def test_placement_expressions_choose_by_attribute(scene, expression, expected):
    """The cluster query language as far as it is used."""
    constraint = [{"type": "memberOf", "expression": expression}]
    answer = scene.run("1", placementConstraints=constraint)
    assert answer["tasks"][0]["containerInstanceArn"] == getattr(scene, expected).arn


def test_the_same_client_token_and_request_answer_the_same_task(scene):
    """A repeated RunTask starts nothing and emits nothing."""
    first = scene.run("1", clientToken="a" * 64)
    events = len(scene.events)
    again = scene.run("1", clientToken="a" * 64)
    assert [t["taskArn"] for t in again["tasks"]] == [t["taskArn"] for t in first["tasks"]]
    assert len(scene.cluster.tasks) == 1
    assert len(scene.events) == events


def test_answers_show_the_whole_task_unless_few_listen(scene):
    """Orders answer what DescribeTasks shows; with a mute cluster they name the task, and describing shows it all."""
    whole = scene.run("1")["tasks"][0]
    assert whole["containers"][0]["name"] == "main"
    assert scene.do(tasks.stop_task, whole["taskArn"], None)["task"].keys() > {"stoppedReason", "containers"}
    scene.cluster.mute = lambda task: False
    named = scene.run("1")["tasks"][0]
    assert named.keys() == {"taskArn", "tags"}
    assert scene.do(tasks.stop_task, named["taskArn"], None)["task"] == {"taskArn": named["taskArn"]}
    shown = describe.describe_tasks(scene.cluster, {"tasks": [named["taskArn"]]}, scene.now)["tasks"][0]
    assert shown["containers"][0]["name"] == "main"


def test_a_client_token_with_other_parameters_is_a_conflict(scene):
    """ConflictException names the existing task."""
    arn = scene.run("1", clientToken="t")["tasks"][0]["taskArn"]
    with pytest.raises(AwsApiError) as refused:
        scene.run("2", clientToken="t")
    assert refused.value.code == "ConflictException"
    assert refused.value.members == {"resourceIds": [arn]}


def test_a_request_for_several_tasks_may_place_some_and_its_token_returns_these(scene):
    """Each task is placed or fails on its own. A repeated request starts nothing and tells no failure."""
    answer = scene.run("4", count=3, clientToken="t")
    placed = [task["taskArn"] for task in answer["tasks"]]
    assert len(placed) == len({task["containerInstanceArn"] for task in answer["tasks"]}) == 2
    assert {failure["reason"] for failure in answer["failures"]} == {"RESOURCE:GPU"}
    again = scene.run("4", count=3, clientToken="t")
    assert [task["taskArn"] for task in again["tasks"]] == placed and again["failures"] == []


def test_a_client_token_whose_request_failed_may_be_used_again(scene):
    """Nothing was started, so nothing is remembered."""
    assert scene.run("5", clientToken="t")["failures"]
    assert scene.run("1", clientToken="t")["tasks"]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"startedBy": "x" * 129}, "startedBy"),
        ({"startedBy": "a b"}, "startedBy"),
        ({"count": 11}, "count"),
        ({"clientToken": "x" * 65}, "clientToken"),
        ({"overrides": {"containerOverrides": [{"name": "main", "command": ["x" * 8192]}]}}, "8192"),
        ({"overrides": {"containerOverrides": [{"name": "other"}]}}, "not a container"),
        ({"cluster": "another"}, "Cluster not found"),
    ],
)
def test_requests_beyond_ecs_limits_are_refused(scene, members, message):
    """Limits are errors, not truncations."""
    with pytest.raises(AwsApiError, match=message):
        scene.run("1", **members)
    assert scene.cluster.tasks == {}


def test_a_task_walks_its_lifecycle_and_its_main_container_gives_the_exit_code(scene):
    """PROVISIONING to STOPPED, versions by one; the sidecar is stopped with SIGTERM beside it."""
    task = scene.running("1")
    scene.do(tasks.process_ended, task, 1)
    told = scene.told(TASK)
    assert [d["lastStatus"] for d in told] == ["PROVISIONING", "PENDING", "RUNNING", "DEPROVISIONING", "STOPPED"]
    assert [d["version"] for d in told] == [1, 2, 3, 4, 5]
    assert told[-1]["stopCode"] == "EssentialContainerExited"
    assert {c["name"]: c["exitCode"] for c in told[-1]["containers"]} == {"main": 1, "sidecar": 143}


def test_stop_task_is_a_wish_that_the_agent_carries_out(scene):
    """desiredStatus first, the exit code when the process has ended; the reason is the caller's."""
    task = scene.running("1")
    scene.do(tasks.stop_task, task.arn, "gpu-recovery: stopped")
    assert (task.last_status, task.desired_status) == (TaskStatus.RUNNING, TaskStatus.STOPPED)
    assert tasks.agent_work(scene.cluster, scene.cluster.instance_of(task)) == ([], [task])
    scene.do(tasks.stopping, task)
    scene.do(tasks.process_ended, task, 143)
    last = scene.told(TASK)[-1]
    assert (last["stopCode"], last["stoppedReason"]) == ("UserInitiated", "gpu-recovery: stopped")
    assert last["containers"][0]["exitCode"] == 143


def test_stopping_a_task_twice_changes_nothing_the_second_time(scene):
    """The first caller's reason stays; a stopped task stays as it was."""
    task = scene.running("1")
    scene.do(tasks.stop_task, task.arn, "first")
    events = len(scene.events)
    scene.do(tasks.stop_task, task.arn, "second")
    assert (task.stopped_reason, len(scene.events)) == ("first", events)


def test_a_task_stopped_before_its_process_has_no_exit_code(scene):
    """No startedAt, no exitCode: a handler must not trip over it."""
    arn = scene.run("1")["tasks"][0]["taskArn"]
    scene.do(tasks.stop_task, arn, None)
    last = scene.told(TASK)[-1]
    assert last["lastStatus"] == "STOPPED"
    assert "startedAt" not in last
    assert all("exitCode" not in container for container in last["containers"])


def test_a_container_that_cannot_start_is_task_failed_to_start(scene):
    """The reason is on the container, in docker's words."""
    scene.run("1")
    task = next(iter(scene.cluster.tasks.values()))
    scene.do(tasks.process_failed, task, "no such file")
    last = scene.told(TASK)[-1]
    assert last["stopCode"] == "TaskFailedToStart"
    assert last["containers"][0]["reason"] == "CannotStartContainerError: no such file"


def test_an_end_behind_a_disconnected_agent_is_reported_when_it_is_back(scene):
    """ECS says RUNNING until then: the zombie every recovery system must expect."""
    task = scene.running("1")
    instance = scene.cluster.instance_of(task)
    scene.do(instances.agent_disconnected, instance)
    scene.do(tasks.process_ended, task, 7)
    assert task.last_status is TaskStatus.RUNNING
    scene.do(instances.agent_reconnected, instance)
    assert task.last_status is TaskStatus.STOPPED
    assert scene.told(TASK)[-1]["containers"][0]["exitCode"] == 7


def test_a_stop_wished_while_the_agent_is_away_waits_for_it(scene):
    """RUNNING with desiredStatus STOPPED, and no work for an agent that is not there."""
    task = scene.running("1")
    instance = scene.cluster.instance_of(task)
    scene.do(instances.agent_disconnected, instance)
    scene.do(tasks.stop_task, task.arn, None)
    assert tasks.agent_work(scene.cluster, instance) == ([], [])
    scene.do(instances.agent_reconnected, instance)
    assert tasks.agent_work(scene.cluster, instance) == ([], [task])
    assert (task.last_status, task.process) == (TaskStatus.RUNNING, ProcessState.RUNNING)


def test_every_placement_and_stop_makes_an_active_event(scene):
    """The noise that must not be taken for a finished reboot, with what is left on the instance."""
    task = scene.running("3", scene.first)
    scene.do(tasks.process_ended, task, 0)
    told = [d for d in scene.told(CONTAINER_INSTANCE) if d["ec2InstanceId"] == scene.first.instance_id]
    assert [d["status"] for d in told] == ["ACTIVE"] * 3
    assert [d["version"] for d in told] == [1, 2, 3]
    assert [len(d["remainingResources"][-1]["stringSetValue"]) for d in told] == [4, 1, 4]


def test_list_tasks_filters_and_defaults_to_running(scene):
    """startedBy, family, containerInstance and desiredStatus; a stopped task is listed only when asked for."""
    one = scene.run("1", scene.first, startedBy="job--a01")["tasks"][0]["taskArn"]
    two = scene.run("1", scene.second, startedBy="job--a02")["tasks"][0]["taskArn"]
    scene.do(tasks.stop_task, two, None)

    def listed(**request):
        return describe.list_tasks(scene.cluster, request, scene.now)["taskArns"]

    assert listed() == [one]
    assert listed(startedBy="job--a01") == [one]
    assert listed(startedBy="job--a02", desiredStatus="STOPPED") == [two]
    assert listed(containerInstance=scene.second.arn) == []
    assert listed(family="train") == [one]
    assert listed(family="other") == []
    others = {"family": "train", "containerInstance": scene.first.arn, "serviceName": "s", "launchType": "EC2"}
    for name, value in others.items():
        with pytest.raises(AwsApiError, match="only filter"):
            listed(startedBy="job--a01", **{name: value})


def test_list_tasks_pages(scene):
    """maxResults tasks a page, in order of creation, and a token while there are more."""
    made = [
        scene.run("1", where)["tasks"][0]["taskArn"] for where in (scene.second, scene.first, scene.second, scene.first)
    ]
    first = describe.list_tasks(scene.cluster, {"maxResults": 3}, scene.now)
    rest = describe.list_tasks(scene.cluster, {"maxResults": 3, "nextToken": first["nextToken"]}, scene.now)
    assert (len(first["taskArns"]), len(rest["taskArns"])) == (3, 1)
    assert "nextToken" not in rest
    assert first["taskArns"] + rest["taskArns"] == made


def test_describe_tasks_reports_missing_ids_and_takes_at_most_a_hundred(scene):
    """An unknown id is a failure MISSING beside the found ones."""
    arn = scene.run("1")["tasks"][0]["taskArn"]
    answer = describe.describe_tasks(scene.cluster, {"tasks": [arn, "f" * 32]}, scene.now)
    assert [task["taskArn"] for task in answer["tasks"]] == [arn]
    assert [failure["reason"] for failure in answer["failures"]] == ["MISSING"]
    with pytest.raises(AwsApiError):
        describe.describe_tasks(scene.cluster, {"tasks": ["x"] * 101}, scene.now)


def test_a_stopped_task_is_forgotten_after_an_hour(scene):
    """ECS promises no more than that."""
    task = scene.running("1")
    scene.do(tasks.process_ended, task, 0)
    later = scene.now + timedelta(minutes=59)
    assert describe.describe_tasks(scene.cluster, {"tasks": [task.arn]}, later)["tasks"]
    later += timedelta(minutes=2)
    assert describe.describe_tasks(scene.cluster, {"tasks": [task.arn]}, later)["failures"][0]["reason"] == "MISSING"


def test_what_is_kept_of_stopped_tasks_ends_after_a_day(scene):
    """Else a cluster of weeks would grow without bound. What still runs is kept, and what has stopped since."""
    runs, ended, late = scene.running("1"), scene.running("1"), scene.running("1")
    scene.do(tasks.process_ended, ended, 0)
    scene.now += timedelta(hours=23)
    scene.do(tasks.process_ended, late, 0)
    new = scene.running("1")
    scene.cluster.forget(scene.now)
    assert list(scene.cluster.tasks) == [one.task_id for one in (runs, ended, late, new)]
    scene.now += timedelta(hours=2)
    scene.cluster.forget(scene.now)
    assert list(scene.cluster.tasks) == [one.task_id for one in (runs, late, new)]


def test_stopping_a_task_deletes_its_tags_and_events_never_have_any(scene):
    """Nothing may be correlated through tags."""
    arn = scene.run("1", tags=[{"key": "job", "value": "1"}])["tasks"][0]["taskArn"]
    request = {"tasks": [arn], "include": ["TAGS"]}
    assert describe.describe_tasks(scene.cluster, request, scene.now)["tasks"][0]["tags"]
    scene.do(tasks.stop_task, arn, None)
    assert describe.describe_tasks(scene.cluster, request, scene.now)["tasks"][0]["tags"] == []
    assert all("tags" not in detail for detail in scene.told(TASK))
