"""The server on loopback, asked by a real boto3."""

import json
import socket
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address

import boto3
import pytest
from botocore.exceptions import ClientError

from sandbox import sandbox
from sandbox.cluster.model.cluster import AwsApiError
from sandbox.cluster.task_definitions import ForwardedDefinitions
from sandbox.processes import SandboxError
from tests.sandbox.cluster.conftest import KEYS
from tests.sandbox.patience import PATIENCE_S

NAME = "nwcd-gpu-testing"


def code_of(call, **params):
    """The error code and HTTP status that a call is refused with."""
    with pytest.raises(ClientError) as refused:
        call(**params)
    response = refused.value.response
    return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]


def test_run_task_answers_tasks_and_failures(server, instance_id):
    """GPU ids, versions and times come through JSON 1.1; what does not fit is a failure in a 200."""
    definition = server.define(["sleep", "60"])
    task = server.run(definition, instance_id, "2", startedBy="job--a01")["tasks"][0]
    assert len(task["containers"][0]["gpuIds"]) == 2
    assert (task["version"], task["startedBy"]) == (1, "job--a01")
    assert abs(task["createdAt"] - datetime.now(UTC)) < timedelta(minutes=1)
    assert server.run(definition, instance_id, "1")["failures"][0]["reason"] == "RESOURCE:GPU"
    listed = server.ecs.list_tasks(cluster=NAME, startedBy="job--a01")["taskArns"]
    assert listed == [task["taskArn"]]
    server.ecs.stop_task(cluster=NAME, task=task["taskArn"], reason="gpu-recovery: test")
    assert server.until_status(task["taskArn"], "STOPPED")["stoppedReason"] == "gpu-recovery: test"


def test_a_client_token_conflict_carries_the_existing_tasks(server, instance_id):
    """resourceIds beside the message, as the service model has it."""
    definition = server.define(["sleep", "60"])
    task = server.run(definition, instance_id, "1", clientToken="token")["tasks"][0]
    assert server.run(definition, instance_id, "1", clientToken="token")["tasks"][0]["taskArn"] == task["taskArn"]
    with pytest.raises(server.ecs.exceptions.ConflictException) as refused:
        server.run(definition, instance_id, "2", clientToken="token")
    assert refused.value.response["resourceIds"] == [task["taskArn"]]


def test_ecs_errors_are_the_service_s_own(server):
    """Typed exceptions, so that production code's `except` clauses are exercised."""
    with pytest.raises(server.ecs.exceptions.ClusterNotFoundException):
        server.ecs.list_tasks(cluster="another")
    assert code_of(server.ecs.stop_task, cluster=NAME, task="f" * 32) == ("InvalidParameterException", 400)
    assert code_of(server.ecs.describe_task_definition, taskDefinition="none") == ("ClientException", 400)


def test_unknown_operations_say_so_by_name(server):
    """501, never an empty success."""
    assert code_of(server.ecs.list_services, cluster=NAME) == ("UnsupportedOperation", 501)
    assert code_of(server.ec2.describe_vpcs) == ("UnsupportedOperation", 501)


def test_container_instances_are_drained_described_and_listed(server, instance_id):
    """State changes come back in the answer and in the next Describe."""
    listed = server.ecs.list_container_instances(cluster=NAME, filter=f"ec2InstanceId == {instance_id}")
    (arn,) = listed["containerInstanceArns"]
    changed = server.ecs.update_container_instances_state(cluster=NAME, containerInstances=[arn], status="DRAINING")
    assert changed["containerInstances"][0]["status"] == "DRAINING"
    described = server.ecs.describe_container_instances(cluster=NAME, containerInstances=[arn])
    view = described["containerInstances"][0]
    assert (view["status"], view["ec2InstanceId"], view["agentConnected"]) == ("DRAINING", instance_id, True)
    gone = server.ecs.deregister_container_instance(cluster=NAME, containerInstance=arn)
    assert gone["containerInstance"]["status"] == "INACTIVE"
    clusters = server.ecs.describe_clusters(clusters=[NAME, "other"])
    assert clusters["clusters"][0]["status"] == "ACTIVE"
    assert clusters["failures"][0]["reason"] == "MISSING"


def test_ec2_describes_instances_by_id_and_filter(server, instance_id):
    """Nested query parameters in, XML with times and tags out."""
    described = server.ec2.describe_instances(InstanceIds=[instance_id])
    (view,) = [i for r in described["Reservations"] for i in r["Instances"]]
    assert view["State"] == {"Code": 16, "Name": "running"}
    assert IPv4Address(view["PrivateIpAddress"]).is_loopback
    assert {"Key": "gpu-recovery:managed", "Value": "true"} in view["Tags"]
    assert abs(view["LaunchTime"] - datetime.now(UTC)) < timedelta(minutes=5)

    def found(*filters):
        pages = server.ec2.get_paginator("describe_instances").paginate(
            Filters=[{"Name": name, "Values": values} for name, values in filters], PaginationConfig={"PageSize": 5}
        )
        return [i["InstanceId"] for page in pages for r in page["Reservations"] for i in r["Instances"]]

    everything = [i["instance_id"] for i in server.get("state")["instances"]]
    assert found(("tag:gpu-recovery:managed", ["true"])) == everything
    assert found(("private-ip-address", [view["PrivateIpAddress"]])) == [instance_id]
    assert found(("tag:gpu-recovery:managed", ["false"])) == []
    assert instance_id in found(("instance-state-name", ["pending", "run*"]), ("tag-key", ["Name"]))
    assert code_of(server.ec2.describe_instances, Filters=[{"Name": "nonsense", "Values": ["1"]}])[1] == 400


def test_ec2_status_tags_and_errors(server, instance_id):
    """The calls around a reboot, and the refusals EC2 gives."""
    statuses = server.ec2.describe_instance_status(InstanceIds=[instance_id])["InstanceStatuses"]
    assert [s["InstanceStatus"]["Status"] for s in statuses] == ["ok"]
    tags = server.ec2.describe_tags(Filters=[{"Name": "resource-id", "Values": [instance_id]}])["Tags"]
    assert {tag["Key"]: tag["Value"] for tag in tags}["gpu-recovery:managed"] == "true"
    unknown = ["i-0123456789abcdef0"]
    assert code_of(server.ec2.reboot_instances, InstanceIds=unknown)[0] == "InvalidInstanceID.NotFound"
    assert code_of(server.ec2.reboot_instances, InstanceIds=[instance_id], DryRun=True) == ("DryRunOperation", 412)


def test_task_definitions_may_live_behind_another_endpoint(server):
    """Registered here, described through the forwarding client, with the other side's errors passed on."""
    forwarded = ForwardedDefinitions(server.url, "us-east-1", KEYS)
    arn = server.define(["true"], family="forwarded")
    assert forwarded.describe_task_definition(taskDefinition="forwarded")["taskDefinition"]["taskDefinitionArn"] == arn
    assert forwarded.list_task_definitions(familyPrefix="forwarded")["taskDefinitionArns"] == [arn]
    forwarded.deregister_task_definition(taskDefinition=arn)
    with pytest.raises(AwsApiError, match="ClientException"):
        forwarded.describe_task_definition(taskDefinition="forwarded")


def test_a_malformed_request_is_refused_by_the_service_model(server):
    """A member of the wrong type, sent past boto3's own checks."""
    client = boto3.client(
        "ecs",
        endpoint_url=server.url,
        region_name="us-east-1",
        **KEYS,
        config=boto3.session.Config(parameter_validation=False),
    )
    assert code_of(client.run_task, taskDefinition="train", count="many")[0] == "InvalidParameterException"


def test_the_sandbox_paths_refuse_what_they_do_not_know(server, instance_id):
    """Mistakes of a tester get an answer that names them."""
    for mistake in ({"kind": "gremlins"}, {}, {"kind": "xid79", "cured_by": "prayer"}):
        with pytest.raises(SandboxError, match=r"answered 400: .*InvalidParameterException"):
            server.post("fault", instance=instance_id, **mistake)
    with pytest.raises(SandboxError, match="answered 404"):
        server.post("nothing")


def test_launch_and_announce_emit_active_events(server):
    """Instances can be added, and registered again for rules that came later."""
    (new,) = server.post("launch", count=1, gpus=1)["instances"]
    before = server.get("events")["next"]
    server.post("announce")
    later = server.get(f"events?after={before}")["events"]
    told = {e["detail"]["ec2InstanceId"]: e["detail"] for e in later if "ec2InstanceId" in e["detail"]}
    assert (told[new]["status"], told[new]["version"]) == ("ACTIVE", 2)
    server.ec2.terminate_instances(InstanceIds=[new])


def test_the_server_listens_on_loopback_only(server):
    """Nothing of the sandbox is for the network."""
    port = int(server.url.rsplit(":", 1)[1])
    own = socket.gethostbyname(socket.gethostname())
    if own.startswith("127."):
        own = "127.0.0.2"  # another loopback address: the server is bound to exactly 127.0.0.1
    with pytest.raises(OSError, match=r"refused|timed out|unreachable"):
        socket.create_connection((own, port), timeout=2)
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(f"{server.url}/", timeout=PATIENCE_S)


def test_a_machine_of_a_group_is_terminated_through_auto_scaling(server):
    """The query protocol as Auto Scaling speaks it; the activity comes back, and another machine comes up."""
    (instance_id,) = server.post("launch", gpus=2, group="gpus")["instances"]
    groups = server.client("autoscaling")
    known = {one["instance_id"] for one in server.get("state")["instances"]}
    answer = groups.terminate_instance_in_auto_scaling_group(
        InstanceId=instance_id, ShouldDecrementDesiredCapacity=False
    )
    assert answer["Activity"]["AutoScalingGroupName"] == "gpus"
    assert answer["Activity"]["StatusCode"] == "InProgress"
    assert abs(answer["Activity"]["StartTime"] - datetime.now(UTC)) < timedelta(minutes=1)
    server.until(lambda: server.instance(instance_id)["ec2_state"] == "terminated", "the end")
    server.until(lambda: len(server.get("state")["instances"]) > len(known), "another machine")
    (tags,) = (
        one["Tags"]
        for page in server.ec2.describe_instances(
            Filters=[{"Name": "tag:aws:autoscaling:groupName", "Values": ["gpus"]}]
        )["Reservations"]
        for one in page["Instances"]
        if one["InstanceId"] not in known
    )
    assert {"Key": "aws:autoscaling:groupName", "Value": "gpus"} in tags


def test_a_group_that_shrinks_launches_no_other(server):
    """Its capacity is decremented."""
    (instance_id,) = server.post("launch", gpus=1, group="small")["instances"]
    count = len(server.get("state")["instances"])
    groups = server.client("autoscaling")
    groups.terminate_instance_in_auto_scaling_group(InstanceId=instance_id, ShouldDecrementDesiredCapacity=True)
    server.until(lambda: server.instance(instance_id)["ec2_state"] == "terminated", "the end")
    (other,) = server.post("launch", gpus=1)["instances"]  # launched later than the other would have been
    boot_id = server.instance(other)["boot_id"]
    server.ec2.reboot_instances(InstanceIds=[other])
    server.until(lambda: server.instance(other)["boot_id"] != boot_id, "a boot, which takes as long as a launch")
    assert len(server.get("state")["instances"]) == count + 1


def test_auto_scaling_refuses_in_its_own_words(server, instance_id):
    """A machine in no group, one that does not exist, a request that is none."""
    groups = server.client("autoscaling")
    call = groups.terminate_instance_in_auto_scaling_group
    for stranger in (instance_id, "i-0123456789abcdef0"):
        refused = code_of(call, InstanceId=stranger, ShouldDecrementDesiredCapacity=False)
        assert refused == ("ValidationError", 400)
    assert code_of(groups.describe_auto_scaling_groups) == ("UnsupportedOperation", 501)


def statuses(server, *instance_ids):
    answer = server.ec2.describe_instance_status(InstanceIds=list(instance_ids), IncludeAllInstances=True)
    return {one["InstanceId"]: one for one in answer["InstanceStatuses"]}


def test_status_checks_and_plans_come_through_the_wire(server, instance_id):
    """Impaired since when, and what is planned for when, as times."""
    server.post("impair", instance=instance_id, check="system")
    server.post("schedule", instance=instance_id, code="instance-retirement", in_s=3600)
    shown = statuses(server, instance_id)[instance_id]
    (detail,) = shown["SystemStatus"]["Details"]
    assert (shown["SystemStatus"]["Status"], shown["InstanceStatus"]["Status"]) == ("impaired", "ok")
    assert abs(detail["ImpairedSince"] - datetime.now(UTC)) < timedelta(minutes=1)
    (event,) = shown["Events"]
    assert event["Code"] == "instance-retirement"
    assert event["NotBefore"] - datetime.now(UTC) > timedelta(minutes=50)
    since = {e["source"] for e in server.get("events")["events"]}
    assert {"aws.health", "aws.cloudwatch"} <= since


def test_a_machine_that_is_off_has_no_status(server, instance_id):
    """Not applicable, neither ok nor impaired."""
    server.ec2.stop_instances(InstanceIds=[instance_id])
    server.until(lambda: server.instance(instance_id)["ec2_state"] == "stopped", "stopped")
    shown = statuses(server, instance_id)[instance_id]
    assert (shown["InstanceState"]["Name"], shown["SystemStatus"]["Status"]) == ("stopped", "not-applicable")


def test_a_question_by_id_fails_for_all_when_one_is_unknown(server, instance_id):
    """By filter it does not."""
    ask = server.ec2.describe_instance_status
    assert code_of(ask, InstanceIds=[instance_id, "i-0"]) == ("InvalidInstanceID.NotFound", 400)
    both = [{"Name": "instance-id", "Values": [instance_id, "i-0"]}]
    (found,) = server.ec2.describe_instances(Filters=both)["Reservations"]
    assert found["Instances"][0]["InstanceId"] == instance_id


def test_lifecycle_and_root_device_are_shown(server):
    """Only a machine that is not simply on demand has a lifecycle."""
    (spot,) = server.post("launch", lifecycle="spot")["instances"]
    (plain,) = server.post("launch")["instances"]
    shown = {}
    for page in server.ec2.describe_instances(InstanceIds=[spot, plain])["Reservations"]:
        for one in page["Instances"]:
            shown[one["InstanceId"]] = (one.get("InstanceLifecycle"), one["RootDeviceType"])
    assert shown == {spot: ("spot", "ebs"), plain: (None, "ebs")}


def test_a_registration_is_taken_away_by_force(server, instance_id):
    """With its task, over the wire."""
    arn = server.run(server.define(["sleep", "60"]), instance_id)["tasks"][0]["taskArn"]
    server.until_status(arn, "RUNNING")
    server.post("fault", instance=instance_id, kind="agent_lost")
    where = server.instance(instance_id)["container_instance_arn"]
    refused = code_of(server.ecs.deregister_container_instance, cluster=NAME, containerInstance=where)
    assert refused == ("InvalidParameterException", 400)
    server.ecs.deregister_container_instance(cluster=NAME, containerInstance=where, force=True)
    assert server.task(arn)["lastStatus"] == "STOPPED"
    again = code_of(server.ecs.deregister_container_instance, cluster=NAME, containerInstance=where, force=True)
    assert again == ("InvalidParameterException", 400)


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("impair", {"check": "nothing"}),
        ("schedule", {"code": "instance-holiday"}),
        ("impair", {"instance": "i-0"}),
        ("health", {"kind": "DAEMON"}),
    ],
)
def test_a_watcher_that_cannot_speak_is_an_error(server, instance_id, what, body):
    """It would test nothing."""
    with pytest.raises(SandboxError, match="answered 400"):
        server.post(what, **({"instance": instance_id} | body))


def test_a_fault_on_an_unknown_instance_names_the_running_ones(server, instance_id, tmp_path):
    """A sentence, and not the document of the answer: people read it in the command line."""
    state = {"sandbox": KEYS | {"ecs_endpoint_url": server.url}}
    (tmp_path / "state.json").write_text(json.dumps(state))
    with pytest.raises(SandboxError) as refused:
        sandbox.fault(tmp_path, "i-0123456789abcdef0", "xid79")
    assert str(refused.value).startswith("there is no instance i-0123456789abcdef0; the running instances are i-")
    assert instance_id in str(refused.value)
