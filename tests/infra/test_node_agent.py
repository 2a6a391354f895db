"""The daemon service of the node agent: what it may, where it runs, and what it needs of the host."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_agent.reset_settings import INSTANCE_TYPE, SERVICE
from gpu_recovery_agent.settings import SIGNED_REPORTS, AgentSettings

from infra.setting_readers import UNIT
from infra.settings import DeploymentSettings
from infra.settings_error import DeploymentSettingsError
from tests.infra.conftest import ROOT
from tests.infra.deployment import ACCOUNT, Deployment
from tests.infra.test_image_build import LOGIN, PULL, granted

pytestmark = pytest.mark.slow
FAMILY = "gpu-recovery-agent"


def container(deployment: Deployment) -> dict:
    (task,) = (each for each in deployment.of_type("AWS::ECS::TaskDefinition").values() if each["Family"] == FAMILY)
    (found,) = task["ContainerDefinitions"]
    return found


def environment(deployment: Deployment) -> dict[str, str]:
    return {each["Name"]: each["Value"] for each in container(deployment)["Environment"]}


def test_without_the_setting_there_is_no_service(deployment: Deployment, own_images: Deployment) -> None:
    """And no role that may report."""
    for deployed in (deployment, own_images):
        assert not deployed.of_type("AWS::ECS::Service")
        assert not [name for name in deployed.resources if "NodeAgent/" in name]
        variables = deployed.only("AWS::Lambda::Function", "NodeApi")["Environment"]["Variables"]
        assert variables["NODE_AGENT_ROLE_ARN"] == ""
        variables = deployed.only("AWS::Lambda::Function", "EcsTaskHandler")["Environment"]["Variables"]
        assert variables["NODE_AGENT_FAMILY"] == ""


def test_each_gpu_instance_has_one_agent_and_never_two(with_ray: Deployment) -> None:
    """A second agent would displace the first: a deployment ends the old task before it starts the new one."""
    service = with_ray.only("AWS::ECS::Service")
    assert (service["SchedulingStrategy"], service["ServiceName"]) == ("DAEMON", FAMILY)
    assert [each["Type"] for each in service["PlacementConstraints"]] == ["memberOf"]
    configuration = service["DeploymentConfiguration"]
    assert (configuration["MinimumHealthyPercent"], configuration["MaximumPercent"]) == (0, 100)
    assert configuration["DeploymentCircuitBreaker"] == {"Enable": True, "Rollback": True}


@pytest.mark.parametrize(
    ("instance_type", "is_chosen"),
    [
        *((name, True) for name in ("p5.48xlarge", "p6-b200.48xlarge", "g6e.xlarge", "gr6.4xlarge")),
        *((name, False) for name in ("m7i.large", "c5.large", "t3.micro", "r6g.large")),
    ],
)
def test_the_service_runs_where_gpus_are(with_ray: Deployment, instance_type: str, is_chosen: bool) -> None:
    """By the instance type, an attribute that ECS itself sets."""
    (constraint,) = with_ray.only("AWS::ECS::Service")["PlacementConstraints"]
    patterns = re.findall(r"attribute:ecs\.instance-type =~ (\S+?)[ )]", constraint["Expression"])
    assert len(patterns) == 2
    assert any(re.fullmatch(pattern, instance_type) for pattern in patterns) is is_chosen
    assert "attribute:ecs.cpu-architecture == x86_64" in constraint["Expression"], (
        "the image is built for no other processor"
    )


def test_the_role_of_the_agent_sends_reports_and_nothing_else(with_ray: Deployment) -> None:
    """It runs privileged beside other people's work."""
    api = f"arn:aws:execute-api:us-east-1:{ACCOUNT}:JobApi"
    assert granted(with_ray, "NodeAgentTaskRole") == {("execute-api:Invoke", f"{api}/$default/POST{SIGNED_REPORTS}")}
    assert granted(with_ray, "NodeAgentExecutionRole") == (
        LOGIN
        | {(action, "ImagesAgentRepository.Arn") for action in PULL}
        | {(f"logs:{each}", "NodeAgentLogs.Arn") for each in ("CreateLogStream", "PutLogEvents")}
    )


@pytest.mark.parametrize("role", ["NodeAgentTaskRole", "NodeAgentExecutionRole"])
def test_only_tasks_of_this_account_have_the_roles(with_ray: Deployment, role: str) -> None:
    """Who can assume the task's role names a task, and so an instance."""
    (statement,) = with_ray.only("AWS::IAM::Role", role)["AssumeRolePolicyDocument"]["Statement"]
    assert (statement["Action"], statement["Principal"]) == ("sts:AssumeRole", {"Service": "ecs-tasks.amazonaws.com"})
    assert statement["Condition"] == {
        "StringEquals": {"aws:SourceAccount": ACCOUNT},
        "ArnLike": {"aws:SourceArn": f"arn:aws:ecs:us-east-1:{ACCOUNT}:*"},
    }


def test_the_functions_know_the_role_and_the_family(with_ray: Deployment) -> None:
    """The one accepts its signatures, the other learns where its tasks run."""
    variables = with_ray.only("AWS::Lambda::Function", "NodeApi")["Environment"]["Variables"]
    assert variables["NODE_AGENT_ROLE_ARN"] == "NodeAgentTaskRole.Arn"
    variables = with_ray.only("AWS::Lambda::Function", "EcsTaskHandler")["Environment"]["Variables"]
    assert variables["NODE_AGENT_FAMILY"] == FAMILY


def test_no_agent_starts_before_its_event_can_be_recorded(with_ray: Deployment) -> None:
    """ECS reports the start of a task once. Without a rule, or with the former function, no one learns its instance."""
    (service,) = (each for each in with_ray.resources.values() if each["Type"] == "AWS::ECS::Service")
    awaited = {re.sub(r"[0-9A-F]{8}$", "", name) for name in service["DependsOn"]}
    assert "RulesTrainingTasks" in awaited
    assert any(name.startswith("RulesTrainingTasksAllowEventRule") for name in awaited)
    (target,) = with_ray.of_type("AWS::Events::Rule")["RulesTrainingTasks"]["Targets"]
    assert target["Arn"].endswith("EcsTaskHandlerFunction.Arn"), (
        "so the function is updated before the rule is compared"
    )


def test_the_agent_starts_with_the_settings_of_the_task(with_ray: Deployment) -> None:
    """It signs, and has no token anywhere."""
    given = environment(with_ray)
    settings = AgentSettings.from_environment(given | {"GPU_RECOVERY_API_URL": "https://h"})
    assert settings.signs and settings.token_file is None and settings.region == "us-east-1"
    assert given["HOST_ROOT"] == "/proc/1/root"
    mounted = {each["ContainerPath"]: each["ReadOnly"] for each in container(with_ray)["MountPoints"]}
    assert mounted == {str(settings.state_folder): False, str(settings.running_folder): False}
    (command,) = container(with_ray)["Command"]
    assert command.endswith("exec gpu-recovery-agent") and f"chmod 1777 {settings.running_folder}" in command


def test_the_agent_sees_the_gpus_and_reserves_none(with_ray: Deployment) -> None:
    """A GPU that it reserved could be used by nobody else; the default runtime would pass it no device."""
    found = container(with_ray)
    assert found["Privileged"] is True and "ResourceRequirements" not in found
    assert found["ReadonlyRootFilesystem"] is True
    (task,) = (each for each in with_ray.of_type("AWS::ECS::TaskDefinition").values() if each["Family"] == FAMILY)
    assert (task["PidMode"], task["NetworkMode"]) == ("host", "host")


def test_the_daemon_resets_gpus_on_the_named_instance_types(with_ray: Deployment, tmp_path: Path) -> None:
    """With the programs of the instance, because the image has neither nvidia-smi nor systemctl."""
    product = tmp_path / INSTANCE_TYPE
    product.parent.mkdir(parents=True)
    given = environment(with_ray) | {"GPU_RECOVERY_API_URL": "https://h", "HOST_SYS": str(tmp_path)}
    for kind, is_able in (("p4d.24xlarge", True), ("g5.xlarge", False)):
        product.write_text(f"{kind}\n")
        settings = AgentSettings.from_environment(given)
        assert bool(settings.reset.command) is is_able
    assert (settings.reset.services, settings.reset.root) == (("nvidia-dcgm.service",), Path("/proc/1/root"))
    assert settings.gpu_events


def test_a_unit_that_the_stack_accepts_is_one_for_the_agent() -> None:
    """An agent that refused the setting would not start."""
    assert SERVICE.pattern == UNIT


def test_the_daemon_resets_no_gpus_by_default() -> None:
    """No default of a setting switches a reset or the preview of GPU Operational Events on."""
    settings = DeploymentSettings(node_agent="daemon")
    assert (settings.agent_gpu_reset_instance_types, settings.agent_gpu_events) == ((), False)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"agent_gpu_reset_instance_types": "p5.*"}, "agent_gpu_reset_instance_types"),
        ({"agent_gpu_events": True}, "agent_gpu_events"),
        ({"agent_gpu_reset_services": "dcgm", "node_agent": "daemon"}, "agent_gpu_reset_services"),
        ({"agent_gpu_reset_instance_types": "p5 or p4", "node_agent": "daemon"}, "agent_gpu_reset_instance_types"),
        (
            {"agent_gpu_reset_services": "--now", "agent_gpu_reset_instance_types": "*", "node_agent": "daemon"},
            "agent_gpu_reset_services",
        ),
    ],
)
def test_a_setting_of_the_daemon_without_effect_is_refused(given: dict[str, Any], name: str) -> None:
    """Its author would believe that it has an effect."""
    with pytest.raises(DeploymentSettingsError, match=f"^gpu-recovery:{name}: "):
        DeploymentSettings(**given)


@pytest.mark.parametrize(
    ("types", "policy", "warned"),
    [
        ("p5.*", {"gpu_reset": True}, ""),
        ("", {}, ""),
        ("p5.*", {}, "gpu-recovery:policy: gpu_reset is off"),
        ("", {"gpu_reset": True}, "gpu-recovery:agent_gpu_reset_instance_types: names no type"),
    ],
)
def test_half_of_the_settings_of_a_reset_is_warned_of(types: str, policy: dict[str, Any], warned: str) -> None:
    """A reset needs the policy and an agent that may reset GPUs."""
    settings = DeploymentSettings(node_agent="daemon", agent_gpu_reset_instance_types=types, policy=policy)
    assert [text.split(",")[0] for text in settings.warnings.values()] == ([warned] if warned else [])


def test_a_hanging_agent_is_replaced(with_ray: Deployment) -> None:
    """The file that the health check compares is the file that the agent touches."""
    found = container(with_ray)
    check = found["HealthCheck"]
    assert check["Command"][0] == "CMD-SHELL"
    assert environment(with_ray)["GPU_RECOVERY_ALIVE_FILE"] in check["Command"][1]
    assert check["Interval"] * check["Retries"] <= 180, "no later than the timeout of a heartbeat"


def test_the_log_of_the_agent_has_a_retention_and_blocks_nobody(with_ray: Deployment) -> None:
    """A log service that is away must not stop the heartbeats."""
    options = container(with_ray)["LogConfiguration"]
    assert options["LogDriver"] == "awslogs"
    assert options["Options"]["awslogs-group"] == "NodeAgentLogs" and options["Options"]["mode"] == "non-blocking"
    assert with_ray.of_type("AWS::Logs::LogGroup")["NodeAgentLogs"]["RetentionInDays"] == 7
    assert with_ray.outputs("GpuRecovery")["AgentLogGroupName"] == "NodeAgentLogs"


def test_the_page_for_a_daemon_of_your_own_has_the_same_container(with_ray: Deployment) -> None:
    """`agent/ecs-daemon.json` differs in its token and its log, and in nothing that the GPUs need."""
    task = json.loads((ROOT / "agent/ecs-daemon.json").read_text())
    (own,) = task["containerDefinitions"]
    ours = container(with_ray)
    for name in (
        "Privileged",
        "ReadonlyRootFilesystem",
        "Cpu",
        "Memory",
        "MemoryReservation",
        "StopTimeout",
        "Essential",
    ):
        assert own[name[0].lower() + name[1:]] == ours[name], name
    assert (own["entryPoint"], own["command"]) == (ours["EntryPoint"], ours["Command"])
    assert {name[0].upper() + name[1:]: value for name, value in own["healthCheck"].items()} == ours["HealthCheck"]
    same = {"GPU_RECOVERY_STATE_DIR", "GPUTASKER_RUNNING_TASKS_DIR", "GPU_RECOVERY_ALIVE_FILE", "HOST_ROOT"}
    given = {each["name"]: each["value"] for each in own["environment"]}
    assert {name: given[name] for name in same} == {name: environment(with_ray)[name] for name in same}


def test_in_china_the_service_has_the_arns_of_its_partition(validated: dict[str, Path]) -> None:
    """One template serves every partition."""
    deployed = Deployment.read(validated["ray"], partition="aws-cn", region="cn-north-1")
    assert granted(deployed, "NodeAgentTaskRole") == {
        ("execute-api:Invoke", f"arn:aws-cn:execute-api:cn-north-1:{ACCOUNT}:JobApi/$default/POST{SIGNED_REPORTS}")
    }
    found = container(deployed)
    assert found["Image"].startswith(f"{ACCOUNT}.dkr.ecr.cn-north-1.amazonaws.com.cn/ImagesAgentRepository@sha256:")
    assert environment(deployed)["GPU_RECOVERY_REGION"] == "cn-north-1"


@pytest.mark.parametrize("name", ["check_family", "training_task_families"])
def test_no_other_tasks_share_the_family_of_the_agent(name: str) -> None:
    """The event of such a task would name the instance of an agent."""
    family = {"check_family": FAMILY, "training_task_families": (FAMILY,)}[name]
    with pytest.raises(DeploymentSettingsError, match="gpu-recovery:node_agent"):
        DeploymentSettings(node_agent="daemon", **{name: family})
    assert not DeploymentSettings(**{name: family}).runs_agent
