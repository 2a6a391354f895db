"""The events are shaped as AWS prints them, and the model is pure."""

import ast
import json
from datetime import datetime
from pathlib import Path

import pytest

from sandbox.cluster.model import health, instances, tasks

REPOSITORY = Path(__file__).resolve().parents[4]
SAMPLES = REPOSITORY / "tests/events"
# In AWS's documentation of the event, and in no recorded EC2 task sample.
DOCUMENTED = {"attributes", "enableExecuteCommand", "containers[].gpuIds", "containers[].memory", "containers[].reason"}
OVERRIDES = "overrides.containerOverrides[]"


def shape(value, path=""):
    """Every key path below a value with the JSON type at its end; lists are looked into."""
    if isinstance(value, dict):
        return {pair for key, inner in value.items() for pair in shape(inner, f"{path}.{key}".strip("."))}
    if isinstance(value, list):
        return {pair for inner in value for pair in shape(inner, f"{path}[]")} or {(path, "list")}
    return {(path, type(value).__name__)}


def sample(*names):
    """The union of some recorded events' shapes."""
    return {pair for name in names for pair in shape(json.loads((SAMPLES / f"{name}.json").read_text()))}


def unknown(event, *names):
    """Key paths of ours that the samples do not have, or have with another type."""
    recorded = sample(*names)
    lists = {path for path, _ in recorded if "[]" in path}
    extra = set()
    for path, kind in shape(event):
        inner = path.removeprefix("detail.")
        is_empty_list = kind == "list" and any(known.startswith(f"{path}[]") for known in lists)
        is_allowed = any(inner.startswith(prefix) for prefix in (*DOCUMENTED, OVERRIDES))
        if (path, kind) not in recorded and not is_empty_list and not is_allowed:
            extra.add((path, kind))
    return extra


def test_a_task_event_has_the_keys_and_types_of_the_recorded_ones(scene):
    """Against the recorded EC2 task: nothing invented, and everything a consumer could rely on."""
    task = scene.running("1", scene.first, startedBy="job--a01")
    scene.do(tasks.stop_task, task.arn, "done")
    scene.do(tasks.process_ended, task, 143)
    stopped = [e for e in scene.events if e["detail-type"] == "ECS Task State Change"][-1]
    recorded = "ecs_task_stopped_userinitiated_ec2_exit0_v7_cwlogs"
    assert unknown(stopped, recorded, "ecs_task_pending_ec2_two_containers_env_overrides") == set()
    theirs = json.loads((SAMPLES / f"{recorded}.json").read_text())
    not_ours = {"capacityProviderName"}  # the instances belong to none
    assert set(theirs) - set(stopped) == set()
    assert set(theirs["detail"]) - set(stopped["detail"]) == not_ours
    left_out = {"imageDigest", "memoryReservation"}  # there is no image; this container has a hard limit
    assert set(theirs["detail"]["containers"][0]) - set(stopped["detail"]["containers"][0]) == left_out


def test_a_container_instance_event_has_the_keys_and_types_of_the_recorded_ones(scene):
    """GPUs are a STRINGSET resource like the ports."""
    event = scene.events[-1]
    assert unknown(event, "ecs_container_instance_active_2016") - {("detail.attributes[].value", "str")} == set()
    theirs = json.loads((SAMPLES / "ecs_container_instance_active_2016.json").read_text())
    assert set(theirs["detail"]) == set(event["detail"])
    names = [resource["name"] for resource in event["detail"]["remainingResources"]]
    assert names == ["CPU", "MEMORY", "PORTS", "PORTS_UDP", "GPU"]


@pytest.mark.parametrize(
    ("operation", "recorded"),
    [
        (instances.begin_stop, "ec2_state_change_pending_nth"),
        (health.warn_of_spot_interruption, "ec2_spot_interruption_terminate_nth"),
    ],
)
def test_ec2_events_have_exactly_the_recorded_shape(scene, operation, recorded):
    """Source aws.ec2, the instance id in detail."""
    scene.do(operation, scene.first)
    event = scene.events[-1]
    assert shape(event) == sample(recorded)
    assert event["detail"]["instance-id"] == scene.first.instance_id
    assert event["source"] == "aws.ec2"


def test_event_times_are_whole_seconds_and_details_have_milliseconds(scene):
    """As AWS prints them; both are readable."""
    event = scene.events[-1]
    assert datetime.strptime(event["time"], "%Y-%m-%dT%H:%M:%SZ")
    assert datetime.strptime(event["detail"]["updatedAt"], "%Y-%m-%dT%H:%M:%S.%fZ")


def test_the_same_seed_and_story_make_the_same_events(new_scene):
    """Ids are counted, not drawn: a run can be repeated to the byte."""

    def story(scene):
        task = scene.running("2", scene.first)
        scene.do(instances.went_down, scene.first)
        scene.do(instances.came_back, scene.first)
        scene.do(tasks.process_ended, task, 0)
        return json.dumps(scene.events)

    assert story(new_scene()) == story(new_scene())


def test_the_model_has_no_clock_socket_process_or_chance():
    """It runs under virtual time in the simulator: standard library values only."""
    allowed = {"hashlib", "uuid", "json", "re", "collections", "dataclasses", "datetime", "enum", "ipaddress"}
    allowed |= {"itertools", "typing"}
    modules = sorted((REPOSITORY / "sandbox/cluster/model").glob("*.py"))
    assert "cluster.py" in {path.name for path in modules}
    for path in modules:
        tree = ast.parse(path.read_text())
        imports = {
            name.split(".")[0] if not name.startswith("sandbox.cluster.model.") else "model"
            for node in ast.walk(tree)
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        }
        calls = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert imports <= allowed | {"model"}, path.name
        assert not calls & {"now", "utcnow", "today", "uuid1", "uuid4"}, path.name
