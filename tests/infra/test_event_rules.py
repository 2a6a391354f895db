"""Published events, run through the patterns of the synthesised rules."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.core.event_origin import RECORDED_SOURCES, SOURCES

from tests.infra.deployment import ACCOUNT, Deployment
from tests.infra.event_pattern import matches

pytestmark = pytest.mark.slow

EVENTS = Path(__file__).parents[1] / "events"
CLUSTER = f"arn:aws:ecs:us-east-1:{ACCOUNT}:cluster/nwcd-gpu-testing"
CHECK = f"arn:aws:ecs:us-east-1:{ACCOUNT}:task-definition/gpu-health-check"
TRAINING, CHECKS, INSTANCES = {"RulesTrainingTasks"}, {"RulesCheckTasks"}, {"RulesContainerInstances"}
MACHINES, PLANS, STATUS_CHECKS = {"RulesMachines"}, {"RulesMachinePlans"}, {"RulesStatusChecks"}
NO_RULE: set[str] = set()

# What wakes when these happen in our cluster. Every other file of the folder wakes nothing.
OF_A_CLUSTER = {
    "ecs_task_running_ec2_service_2016": TRAINING,
    "ecs_task_running_fargate_2020": TRAINING,
    "ecs_task_stopped_userinitiated_ec2_exit0_v7_cwlogs": TRAINING,
    "ecs_container_instance_active_2016": INSTANCES,
    "ecs_container_instance_active_go_fixture": INSTANCES,
}
# What wakes wherever in the account it happens, for these events name no cluster.
OF_A_MACHINE = {
    "ec2_rebalance_recommendation_doc": MACHINES,
    "ec2_rebalance_recommendation_nth": MACHINES,
    "ec2_spot_interruption_doc_placeholder_action": MACHINES,
    "ec2_spot_interruption_terminate_karpenter": MACHINES,
    "ec2_spot_interruption_terminate_nth": MACHINES,
    "ec2_state_change_pending_no_version": MACHINES,
    "ec2_state_change_pending_nth": MACHINES,
    "ec2_state_change_running_ruler": MACHINES,
    "ec2_state_change_stopped_doc": MACHINES,
    "ec2_state_change_terminated_doc": MACHINES,
    "ec2_state_change_terminated_powertools": MACHINES,
    "ec2_state_change_uppercase_RUNNING_pipes": MACHINES,
    "health_ec2_dedicated_host_network_maintenance_nth": PLANS,
    "health_ec2_instance_store_degraded": PLANS,
    "health_ec2_persistent_instance_retirement_real": PLANS,
    "health_odcr_underutilization": PLANS,
}
WOKEN = OF_A_CLUSTER | OF_A_MACHINE
DETAILS = sorted(path.stem for path in EVENTS.glob("detail_*.json"))


def _event(name: str) -> dict[str, Any]:
    loaded = json.loads((EVENTS / f"{name}.json").read_text())
    assert isinstance(loaded, dict)
    return loaded


def _patterns(deployment: Deployment) -> dict[str, dict[str, Any]]:
    rules = deployment.at_run_time("AWS::Events::Rule")
    return {name: rule["EventPattern"] for name, rule in rules.items() if "EventPattern" in rule}


def _woken(deployment: Deployment, event: dict[str, Any], **origin: str) -> set[str]:
    """The rules that match the event; it is of the deployment's account and region, unless `origin` says otherwise."""
    event = {**event, "account": ACCOUNT, "region": deployment.region, **origin}
    return {name for name, pattern in _patterns(deployment).items() if matches(pattern, event)}


def _in(cluster: str, event: dict[str, Any], **detail: Any) -> dict[str, Any]:
    """The event as it would read in this cluster; an event without a cluster stays without one."""
    moved = copy.deepcopy(event)
    if "clusterArn" in moved.get("detail", {}):
        moved["detail"].update(detail, clusterArn=cluster)
    return moved


def test_the_list_of_waking_events_names_files_that_exist() -> None:
    """A renamed file must not silently leave the list."""
    assert set(WOKEN) <= {path.stem for path in EVENTS.glob("*.json")}


@pytest.mark.parametrize("name", sorted(path.stem for path in EVENTS.glob("*.json")))
def test_an_event_of_our_cluster_wakes_the_function_it_should_and_no_other(deployment: Deployment, name: str) -> None:
    """As published but for the cluster."""
    assert _woken(deployment, _in(CLUSTER, _event(name))) == WOKEN.get(name, NO_RULE)


@pytest.mark.parametrize("name", sorted({path.stem for path in EVENTS.glob("*.json")} - set(OF_A_MACHINE)))
@pytest.mark.parametrize(
    "cluster",
    [
        "as published",
        f"{CLUSTER}-2",
        CLUSTER.replace("us-east-1", "us-west-2"),
        CLUSTER.replace(ACCOUNT, "999999999999"),
        CLUSTER.removesuffix("-testing"),
        "nwcd-gpu-testing",
    ],
)
def test_an_event_of_another_cluster_wakes_nothing(deployment: Deployment, name: str, cluster: str) -> None:
    """A longer name, a shorter one, another region, another account: none is ours."""
    event = _event(name)
    assert _woken(deployment, event if cluster == "as published" else _in(cluster, event)) == NO_RULE


@pytest.mark.parametrize(
    ("family", "status", "expected"),
    [
        ("gpu-health-check:1", "STOPPED", CHECKS),
        ("gpu-health-check:218", "STOPPED", CHECKS),
        ("gpu-health-check:1", "RUNNING", NO_RULE),
        ("gpu-health-check:1", "STOPPING", NO_RULE),
        ("gpu-health-check-2:1", "STOPPED", TRAINING),
        ("gpu-health:1", "RUNNING", TRAINING),
        ("gpu-training:3", "RUNNING", TRAINING),
        ("gpu-training:3", "STOPPED", TRAINING),
        ("gpu-training:3", "PENDING", NO_RULE),
        ("gpu-training:3", "DEPROVISIONING", NO_RULE),
        ("somebody-elses:9", "STOPPED", TRAINING),
    ],
)
def test_a_task_goes_by_family_and_last_status(
    deployment: Deployment, family: str, status: str, expected: set[str]
) -> None:
    """Any revision of the check family is a check, no other family is, and only ends and starts matter."""
    definition = CHECK.replace("gpu-health-check", family)
    event = _in(
        CLUSTER,
        _event("ecs_task_stopped_userinitiated_ec2_exit0_v7_cwlogs"),
        taskDefinitionArn=definition,
        lastStatus=status,
    )
    assert _woken(deployment, event) == expected


@pytest.mark.parametrize("name", DETAILS)
def test_a_stopped_task_without_exit_codes_or_containers_still_arrives(deployment: Deployment, name: str) -> None:
    """The files hold a `detail` alone; in the envelope of a stopped task none may be filtered away by what it lacks."""
    detail = {"taskDefinitionArn": f"{CHECK}-not:1", **_event(name), "clusterArn": CLUSTER, "lastStatus": "STOPPED"}
    event = {"source": "aws.ecs", "detail-type": "ECS Task State Change", "detail": detail}
    assert _woken(deployment, event) == TRAINING


@pytest.mark.parametrize("status", ["ACTIVE", "DRAINING", "INACTIVE", "REGISTERING", "a status of tomorrow"])
@pytest.mark.parametrize("connected", [True, False])
def test_every_state_of_a_container_instance_arrives(deployment: Deployment, status: str, connected: bool) -> None:
    """What ACTIVE means after a reboot is decided in code, so the rule must not choose."""
    event = _in(CLUSTER, _event("ecs_container_instance_active_2016"), status=status, agentConnected=connected)
    assert _woken(deployment, event) == INSTANCES


def _of_health(cluster: str) -> dict[str, Any]:
    """What ECS says of the health of a container instance: no published sample names a cluster of ours."""
    detail = {"clusterArn": cluster, "ec2InstanceId": "i-0123456789abcdef0", "healthChecks": []}
    return {"source": "aws.ecs", "detail-type": "ECS Container Instance Health Change", "detail": detail}


def test_the_health_of_a_container_instance_arrives_from_our_cluster_alone(deployment: Deployment) -> None:
    """Whatever its checks say, for the event of a recovery is as important as that of an impairment."""
    assert _woken(deployment, _of_health(CLUSTER)) == INSTANCES
    assert _woken(deployment, _of_health(f"{CLUSTER}-2")) == NO_RULE


def _alarm(namespace: str, *names: str) -> dict[str, Any]:
    """An alarm on metrics of one namespace."""
    alarm = _event("cloudwatch_alarm_servercputoohigh")
    (metric,) = alarm["detail"]["configuration"]["metrics"]
    found = [copy.deepcopy(metric) for _ in names]
    for one, name in zip(found, names, strict=True):
        one["metricStat"]["metric"].update(namespace=namespace, name=name)
    alarm["detail"]["configuration"]["metrics"] = found
    return alarm


@pytest.mark.parametrize("name", ["StatusCheckFailed", "StatusCheckFailed_System", "StatusCheckFailed_Instance"])
def test_an_alarm_on_a_status_check_arrives(deployment: Deployment, name: str) -> None:
    """In whatever state it is, and beside whatever other metric; the alarms of other metrics stay where they are."""
    assert _woken(deployment, _alarm("AWS/EC2", name)) == STATUS_CHECKS
    assert _woken(deployment, _alarm("AWS/EC2", "CPUUtilization", name)) == STATUS_CHECKS
    assert _woken(deployment, _alarm("Mine", name)) == NO_RULE


def test_an_interrupted_capacity_reservation_arrives(deployment: Deployment) -> None:
    """As a Spot interruption, under its own name."""
    spot = _event("ec2_spot_interruption_terminate_karpenter")
    reserved = {**spot, "detail-type": "EC2 Capacity Reservation Instance Interruption Warning"}
    assert _woken(deployment, reserved) == MACHINES


@pytest.mark.parametrize(
    "detail_type", ["Capacity Block Reservation Expiration Warning", "Capacity Block Expiration Warning"]
)
def test_the_end_of_a_capacity_block_arrives(deployment: Deployment, detail_type: str) -> None:
    """It names the reservation, and no instance that a rule could select by. The pages of AWS show both names."""
    spot = _event("ec2_spot_interruption_terminate_karpenter")
    detail = {"capacity-reservation-id": "cr-0123456789abcdef0", "end-date": "2026-11-21T10:00:00Z"}
    ending = {**spot, "detail-type": detail_type, "detail": detail}
    assert _woken(deployment, ending) == MACHINES


def test_an_event_from_another_source_wakes_nothing(deployment: Deployment) -> None:
    """The production template has no rule for test sources."""
    for name in WOKEN:
        assert _woken(deployment, {**_in(CLUSTER, _event(name)), "source": "sim.ecs"}) == NO_RULE


def test_every_rule_names_the_account_the_region_and_a_source_that_the_functions_accept(
    deployment: Deployment, china: Deployment
) -> None:
    """Another account may forward its events to our bus, and they keep their account."""
    for deployed in (deployment, china):
        assert len(_patterns(deployed)) == 7
        for name, pattern in _patterns(deployed).items():
            assert (pattern["account"], pattern["region"]) == ([ACCOUNT], [deployed.region])
            assert set(pattern["source"]) <= (RECORDED_SOURCES if name == "RulesRecordedEvents" else SOURCES)


def test_only_the_event_recorder_is_woken_by_our_own_bus(deployment: Deployment) -> None:
    """Every other rule is on the default bus, which alone has the events of AWS."""
    rules = deployment.at_run_time("AWS::Events::Rule")
    assert [name for name, rule in rules.items() if "EventBusName" in rule] == ["RulesRecordedEvents"]


@pytest.mark.parametrize("name", sorted(WOKEN))
@pytest.mark.parametrize("origin", [{"account": "999999999999"}, {"region": "eu-west-1"}], ids=["account", "region"])
def test_an_event_of_another_account_or_region_wakes_nothing(
    deployment: Deployment, name: str, origin: dict[str, str]
) -> None:
    """Also one that names our cluster or one of our instances."""
    assert _woken(deployment, _in(CLUSTER, _event(name)), **origin) == NO_RULE


def test_the_rules_follow_the_partition(china: Deployment) -> None:
    """In China the cluster ARN begins otherwise, and the same template must know it."""
    event = _event("ecs_container_instance_active_2016")
    in_china = CLUSTER.replace("arn:aws:", "arn:aws-cn:").replace("us-east-1", "cn-north-1")
    assert _woken(china, _in(in_china, event)) == INSTANCES
    assert _woken(china, _in(CLUSTER, event)) == NO_RULE
