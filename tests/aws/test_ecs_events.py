"""What ECS says, in events as others published them, with the trap that each of them sets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.aws.ecs_events import EventUnreadable, detail_of, instance_fact, task_fact, time_of
from gpu_recovery.core.task import ContainerFact, EndingKind, ending
from hypothesis import given
from hypothesis import strategies as st

from tests.aws.records import NOW

EVENTS = Path(__file__).parents[1] / "events"
TASKS = sorted(path.name for path in EVENTS.glob("ecs_task_*.json"))
GPU_TASKS = sorted(path.name for path in EVENTS.glob("detail_gpu_task_*.json"))
INSTANCES = sorted(path.name for path in EVENTS.glob("ecs_container_instance_*.json"))
NO_PLACE = "detail_taskfailedtostart_resource_gpu_empty_containers.json"
AT_WORK = {"status": "ACTIVE", "agentConnected": True}
OTHERS = sorted({path.name for path in EVENTS.glob("*.json")} - {*TASKS, *GPU_TASKS, *INSTANCES, NO_PLACE})


def event(name: str) -> dict[str, Any]:
    """One published event."""
    loaded: dict[str, Any] = json.loads((EVENTS / name).read_text())
    return loaded


def with_arn(detail: Mapping[str, Any]) -> dict[str, Any]:
    """The recorded GPU tasks were published without their taskArn and lastStatus."""
    return {**detail, "taskArn": "arn:aws:ecs:region:123456789012:task/gpu/0123", "lastStatus": "STOPPED"}


def main_of(name: str) -> str:
    """In the recorded GPU tasks the other container is called like the main one, with -timeout at its end."""
    return min((one["name"] for one in event(name)["containers"]), key=len)


@pytest.mark.parametrize("name", TASKS)
def test_every_published_task_event_is_understood(name: str) -> None:
    """The id is the last element of the ARN, long or short, and its time is aware."""
    detail = detail_of(event(name))
    fact = task_fact(detail, NOW)
    assert detail["taskArn"].endswith(f"/{fact.task_id}") and "/" not in fact.task_id
    assert fact.last_status == detail["lastStatus"]
    assert fact.at.tzinfo is not None
    assert len(fact.containers) == len(detail["containers"])


@pytest.mark.parametrize("name", INSTANCES)
def test_every_published_container_instance_event_is_understood(name: str) -> None:
    """Whatever its detail-type says, and without a GPU among its resources."""
    instance_id, fact = instance_fact(detail_of(event(name)), NOW)
    assert instance_id == "i-f3a8506b"
    assert fact.container_instance_id == "b54a2a04-046f-4331-9d74-3f6d7f6ca315"
    assert (fact.ecs_status, fact.agent_connected, fact.ecs_version, fact.gpus) == ("ACTIVE", True, 14801, 0)


@pytest.mark.parametrize("name", OTHERS)
def test_an_event_about_something_else_is_unreadable_and_says_so(name: str) -> None:
    """It never becomes a task or an instance by accident."""
    for parse in (task_fact, instance_fact):
        with pytest.raises(EventUnreadable):
            parse(detail_of(event(name)), NOW)


@pytest.mark.parametrize("document", [{}, {"detail": None}, {"detail": "text"}, {"detail": []}])
def test_an_event_without_detail_is_unreadable(document: dict[str, Any]) -> None:
    """EventUnreadable, not a KeyError."""
    with pytest.raises(EventUnreadable):
        detail_of(document)


@pytest.mark.parametrize("family", ["_train", "-train", "t" * 255])
def test_every_family_that_ecs_takes_can_be_read(family: str) -> None:
    """A stranger's task that nobody can read would hide all others from the reconciler, and hold up every reboot."""
    arn = f"arn:aws:ecs:us-east-1:111122223333:task-definition/{family}:12"
    assert task_fact({"taskArn": "task/t", "taskDefinitionArn": arn}, NOW).task_definition == f"{family}:12"


@pytest.mark.parametrize("detail", [{}, {"taskArn": ""}, {"taskArn": None}])
def test_a_task_without_its_arn_is_unreadable(detail: dict[str, Any]) -> None:
    """Everything else may be missing."""
    with pytest.raises(EventUnreadable):
        task_fact(detail, NOW)


@pytest.mark.parametrize("name", ["containerInstanceArn", "ec2InstanceId", "status", "agentConnected"])
@pytest.mark.parametrize("value", [None, "", "  "])
def test_an_instance_without_its_names_or_whether_it_works_is_unreadable(name: str, value: Any) -> None:
    """An absent status read as none of those of a working instance would end every rank on the machine."""
    detail = AT_WORK | {"containerInstanceArn": "a/b", "ec2InstanceId": "i-1"} | {name: value}
    with pytest.raises(EventUnreadable, match=f"^{name}: is missing$"):
        instance_fact(detail, NOW)


HALF = "\ud800"


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("taskArn", {"taskArn": 7}),
        ("taskArn", {"taskArn": "arn:aws:ecs/"}),
        ("taskArn", {"taskArn": f"a/{HALF}"}),
        ("taskArn", {"taskArn": "a/" + "0" * 256}),
        ("taskArn", {"taskArn": "a/b c"}),
        ("lastStatus", {"lastStatus": ["STOPPED"]}),
        ("startedBy", {"startedBy": {"job": "sft"}}),
        ("startedBy", {"startedBy": "x--a" + "1" * 5_000}),
        ("version", {"version": "7"}),
        ("version", {"version": 7.0}),
        ("version", {"version": True}),
        ("version", {"version": float("nan")}),
        ("version", {"version": -1}),
        ("version", {"version": 10**400}),
        ("containers", {"containers": {}}),
        ("containers[1]", {"containers": [{}, "main"]}),
        ("containers[0].name", {"containers": [{"name": 1}]}),
        ("containers[0].exitCode", {"containers": [{"exitCode": "0"}]}),
        ("containers[0].exitCode", {"containers": [{"exitCode": False}]}),
        ("containers[0].reason", {"containers": [{"reason": 1}]}),
        ("containers[0].gpuIds[0]", {"containers": [{"gpuIds": [0]}]}),
        ("overrides", {"overrides": []}),
        ("overrides.containerOverrides", {"overrides": {"containerOverrides": "none"}}),
        (
            "overrides.containerOverrides[0].environment[0].value",
            {"overrides": {"containerOverrides": [{"environment": [{"name": "RANK", "value": 0}]}]}},
        ),
        (
            "overrides.containerOverrides[0].environment[0].value",
            {"overrides": {"containerOverrides": [{"environment": [{"name": "JOB_ID", "value": HALF}]}]}},
        ),
        ("stopCode", {"stopCode": 1}),
        ("stoppedReason", {"stoppedReason": ["x"]}),
        ("containerInstanceArn", {"containerInstanceArn": "a/\x00"}),
    ],
)
def test_a_field_of_the_wrong_kind_is_named(field: str, changes: dict[str, Any]) -> None:
    """Whoever finds the event among the dead letters reads which part of it nobody could use."""
    with pytest.raises(EventUnreadable) as refused:
        task_fact({"taskArn": "a/b", "lastStatus": "STOPPED"} | changes, NOW)
    assert refused.value.field == field
    assert str(refused.value) == f"{field}: {refused.value.problem}"


def test_words_for_people_are_cut_to_what_a_record_can_hold() -> None:
    """A reason is no identity: it is shortened and mended rather than refused."""
    fact = task_fact({"taskArn": "a/b", "stoppedReason": "x" * 9_000, "containers": [{"reason": f"a{HALF}b"}]}, NOW)
    assert (len(fact.stopped_reason), fact.containers[0].reason) == (1_024, "a?b")


@pytest.mark.parametrize("value", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"])
def test_a_time_before_or_after_all_times_is_none(value: str) -> None:
    """The calendar has a first and a last moment; neither may raise."""
    assert time_of(value) is None


# -- the traps ---------------------------------------------------------------------------------------------------------


def test_a_task_without_version_start_or_cluster_is_understood() -> None:
    """The smallest published event: no version, no startedBy, no group, no overrides."""
    fact = task_fact(detail_of(event("ecs_task_stopped_minimal_runvoy.json")), NOW)
    assert (fact.version, fact.started_by, fact.group, fact.environment) == (0, "", "", {})
    assert fact.containers == (ContainerFact("runner", 0),)
    assert fact.at == datetime(2024, 11, 7, 17, 27, tzinfo=UTC)


def test_a_running_task_may_hold_a_container_that_stopped_with_zero() -> None:
    """What the task says of itself counts."""
    fact = task_fact(detail_of(event("ecs_task_running_ec2_service_2016.json")), NOW)
    assert fact.last_status == "RUNNING" and fact.containers == (ContainerFact("xray", 0),)


def test_a_persons_stop_with_exit_code_zero_is_no_success() -> None:
    """UserInitiated, exit code 0."""
    fact = task_fact(detail_of(event("ecs_task_stopped_userinitiated_ec2_exit0_v7_cwlogs.json")), NOW)
    assert fact.containers[0].exit_code == 0
    assert ending(fact, fact.main_container).kind is EndingKind.STOPPED_BY_PERSON
    assert (fact.version, fact.container_instance_id) == (7, "0c304770a74540689f5bf39622b3d781")


def test_overrides_give_environment_and_command_but_only_ours_name_the_main_container() -> None:
    """Somebody's override without JOB_ID makes no container the main one."""
    fact = task_fact(detail_of(event("ecs_task_pending_ec2_two_containers_env_overrides.json")), NOW)
    assert fact.environment == {"env1": "value1", "env2": "value2"}
    assert (fact.main_container, fact.command) == ("", ())


def test_a_task_that_found_no_gpu_has_no_containers() -> None:
    """`containers: []` with RESOURCE:GPU: short of resources, not a crash."""
    fact = task_fact(detail_of(event(NO_PLACE)), NOW)
    assert fact.containers == ()
    assert ending(fact, "main").kind is EndingKind.SHORT_OF_RESOURCES


@pytest.mark.parametrize(
    ("name", "kind", "exit_code"),
    [
        ("detail_gpu_task_fast_success_taskfailedtostart_exit0.json", EndingKind.SUCCEEDED, 0),
        ("detail_gpu_task_success_sidecar_143.json", EndingKind.SUCCEEDED, 0),
        ("detail_gpu_task_taskfailedtostart_no_exitcodes.json", EndingKind.NEVER_STARTED, None),
        ("detail_gpu_task_terminationnotice_no_exitcodes.json", EndingKind.INTERRUPTED, None),
        ("detail_gpu_task_userinitiated_no_exitcodes.json", EndingKind.STOPPED_BY_PERSON, None),
    ],
)
def test_recorded_gpu_tasks_end_as_they_did(name: str, kind: EndingKind, exit_code: int | None) -> None:
    """Judged by the main container: a sidecar's 143 and TaskFailedToStart beside exit code 0 are no failures."""
    end = ending(task_fact(with_arn(event(name)), NOW), main_of(name))
    assert (end.kind, end.exit_code) == (kind, exit_code)


def test_every_recorded_gpu_task_is_judged() -> None:
    """The list above leaves none out."""
    assert len(GPU_TASKS) == 5


@pytest.mark.parametrize(
    ("arn", "task_id"),
    [
        ("arn:aws:ecs:us-east-1:123456789012:task/0a1b", "0a1b"),
        ("arn:aws-cn:ecs:cn-north-1:123456789012:task/cluster/0a1b", "0a1b"),
    ],
)
def test_short_and_long_arns_name_the_same_task(arn: str, task_id: str) -> None:
    """The last element, not the third."""
    assert task_fact({"taskArn": arn}, NOW).task_id == task_id


@pytest.mark.parametrize(
    ("text", "microsecond"),
    [
        ("2016-12-06T16:41:06Z", 0),
        ("2016-12-06T16:41:06.8Z", 800_000),
        ("2016-12-06T16:41:06.71Z", 710_000),
        ("2016-12-06T16:41:06.991Z", 991_000),
        ("2016-12-06T16:41:06.991234567Z", 991_234),
        ("2016-12-06T17:41:06.5+01:00", 500_000),
        ("2016-12-06T16:41:06", 0),
    ],
)
def test_times_are_read_whatever_their_fraction(text: str, microsecond: int) -> None:
    """ECS writes one to nine digits; a time without a zone is UTC."""
    assert time_of(text) == datetime(2016, 12, 6, 16, 41, 6, microsecond, tzinfo=UTC)


@pytest.mark.parametrize("value", ["yyyy-mm-ddThh:mm:ssZ", "", None, 17, {}])
def test_a_placeholder_is_no_time(value: Any) -> None:
    """Documentation prints such; the clock stands in."""
    assert time_of(value) is None
    assert task_fact({"taskArn": "a/b", "stoppedAt": value}, NOW).at == NOW


def test_an_end_that_ecs_hears_of_late_has_both_times() -> None:
    """`stoppedAt` is ECS's; when the containers had ended is what their machine says, or nobody."""
    late = {"taskArn": "a/b", "stoppedAt": "2026-11-21T03:10:00Z", "executionStoppedAt": "2026-11-21T03:04:00Z"}
    fact = task_fact(late, NOW)
    assert fact.ended_at is not None and (fact.at - fact.ended_at).total_seconds() == 360
    assert task_fact({"taskArn": "a/b", "stoppedAt": "2026-11-21T03:10:00Z"}, NOW).ended_at is None


def test_a_blank_before_an_instance_id_is_no_part_of_it() -> None:
    """A published sample has one."""
    detail = AT_WORK | {"containerInstanceArn": "arn/ci", "ec2InstanceId": " i-0123456789abcdef0"}
    assert instance_fact(detail, NOW)[0] == "i-0123456789abcdef0"


def test_gpus_are_counted_from_their_ids() -> None:
    """Registered GPUs are a set of UUIDs; a task's are listed at its containers."""
    resources = [{"name": "GPU", "type": "STRINGSET", "stringSetValue": ["GPU-1", "GPU-2"]}]
    detail = AT_WORK | {"containerInstanceArn": "a/ci", "ec2InstanceId": "i-1", "registeredResources": resources}
    assert instance_fact(detail, NOW)[1].gpus == 2
    containers = [{"name": "main", "gpuIds": ["GPU-1", "GPU-2"]}, {"name": "log"}]
    assert task_fact({"taskArn": "a/t", "containers": containers}, NOW).gpus == 2


def test_the_container_with_our_environment_is_the_main_one() -> None:
    """Its override names it and holds the command and the launch signature."""
    environment = [
        {"name": "JOB_ID", "value": "sft-1"},
        {"name": "GPU_RECOVERY_LAUNCH_SIGNATURE", "value": "t"},
        {"name": "EMPTY"},
        {"name": "NULL", "value": None},
        {"value": "of nothing"},
    ]
    overrides = {
        "containerOverrides": [{"name": "log"}, {"name": "main", "environment": environment, "command": ["train"]}]
    }
    fact = task_fact({"taskArn": "a/t", "overrides": overrides}, NOW)
    assert (fact.main_container, fact.command, fact.launch_signature) == ("main", ("train",), "t")
    assert fact.environment is not None and fact.environment["EMPTY"] == fact.environment["NULL"] == ""


def test_an_unknown_stop_code_is_kept_and_blamed_on_the_infrastructure() -> None:
    """AWS adds codes; none may raise."""
    fact = task_fact({"taskArn": "a/t", "stopCode": "InfrastructureHealth", "containers": []}, NOW)
    assert ending(fact, "").kind is EndingKind.HOST_FAULT


# -- whatever AWS leaves out next --------------------------------------------------------------------------------------

leaves = st.none() | st.just("") | st.integers(0, 9) | st.text(max_size=3)


def thinned(data: st.DataObject, document: Any) -> Any:
    """`document` with keys left out or set to null and unknown ones added, at every depth."""
    if isinstance(document, dict):
        kept = {k: thinned(data, v) for k, v in document.items() if data.draw(st.integers(0, 9)) > 0}
        nulls = {k: None for k in document if data.draw(st.integers(0, 19)) == 0}
        return {**kept, **nulls, "unheardOf": data.draw(leaves)}
    if isinstance(document, list):
        return [thinned(data, one) for one in document]
    return document


@given(st.data(), st.sampled_from([*TASKS, *INSTANCES]))
def test_whatever_is_left_out_an_event_is_understood_or_unreadable(data: st.DataObject, name: str) -> None:
    """No missing, empty or unknown field raises anything but EventUnreadable, and what is understood is judged."""
    detail = thinned(data, detail_of(event(name)))
    try:
        fact = task_fact(detail, NOW)
        ending(fact, fact.main_container)
    except EventUnreadable:
        assert not detail.get("taskArn")
    try:
        instance_fact(detail, NOW)
    except EventUnreadable:
        needed = ("containerInstanceArn", "ec2InstanceId", "status", "agentConnected")
        assert any(detail.get(name) in (None, "") for name in needed)
