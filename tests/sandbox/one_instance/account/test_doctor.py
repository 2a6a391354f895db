"""The verb doctor against a deployment: each defect is planted in the account, found, and gone after it is removed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_client.account.examination import CHECKS
from gpu_recovery_client.api import RecoveryClient
from gpu_recovery_client.cli import app
from typer.testing import CliRunner

from sandbox import sandbox
from tests.sandbox.patience import wait_until

pytestmark = pytest.mark.slow
ACCOUNT = "000000000000"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/training"
IMAGE = "gpu-recovery-health-check"
TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": {"Service": "ecs-tasks.amazonaws.com"}, "Action": "sts:AssumeRole"},
    ],
}
FILE: dict[str, Any] = {"region": "us-east-1", "account": ACCOUNT, "health_check_image": ""}
"""The settings of the sandbox as a settings file."""


class Doctor:
    """The verb in the account of the sandbox."""

    def __init__(self, folder: Path, state: dict[str, Any]) -> None:
        self.folder, self.state = folder, state
        (folder / "settings").mkdir()
        (folder / "cdk.json").write_text("{}")

    def client(self, service: str) -> Any:
        """A client of the account; ECS and EC2 are those of the cluster."""
        url = self.state["ecs_endpoint_url" if service in ("ecs", "ec2") else "endpoint_url"]
        return sandbox.client(service, url, self.state)

    def run(self, *words: str) -> tuple[int, dict[str, Any]]:
        """The exit code and the document of the verb."""
        result = CliRunner().invoke(app.app, ["doctor", *words, "--json"])
        assert result.stdout.startswith("{"), result.output + repr(result.exception)
        return result.exit_code, json.loads(result.stdout)

    def found(self, check: str, name: str = "lab", **settings: Any) -> list[dict[str, str]]:
        """The findings of one check for a settings file."""
        lines = [f"{key} = {json.dumps(value)}" for key, value in {**FILE, **settings}.items()]
        (self.folder / f"settings/{name}.toml").write_text("\n".join(lines))
        skipped = [word for other in CHECKS if other != check for word in ("--skip", other)]
        code, view = self.run(name, *skipped)
        assert view["not_checked"] == []
        assert code == (1 if view["findings"] else 0)
        assert all(one["check"] == check and one["why"] and one["command"] for one in view["findings"])
        return list(view["findings"])


@pytest.fixture
def doctor(state: dict[str, Any], account_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Doctor:
    """The verb, with the credentials of the sandbox in the environment, in a folder of its own."""
    monkeypatch.setenv("GPU_RECOVERY_API_URL", state["api_url"])
    monkeypatch.setenv("GPU_RECOVERY_TOKEN", state["operator_token"])
    monkeypatch.setenv("GPU_RECOVERY_CONFIG", str(account_folder / "config.toml"))
    return Doctor(account_folder, state)


@contextmanager
def image(doctor: Doctor, name: str, *architectures: str) -> Iterator[None]:
    """An image for these architectures in a repository of the account."""
    ecr = doctor.client("ecr")
    ecr.create_repository(repositoryName=name)
    manifests = [
        {
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": f"sha256:{number:064x}",
            "size": 1,
            "platform": {"architecture": kind, "os": "linux"},
        }
        for number, kind in enumerate(architectures)
    ]
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": manifests}
    ecr.put_image(
        repositoryName=name,
        imageManifest=json.dumps(index),
        imageManifestMediaType=index["mediaType"],
        imageTag="latest",
    )
    yield
    ecr.delete_repository(repositoryName=name, force=True)


@contextmanager
def role(doctor: Doctor, trust: dict[str, Any]) -> Iterator[None]:
    """The role of the training tasks."""
    iam = doctor.client("iam")
    iam.create_role(RoleName="training", AssumeRolePolicyDocument=json.dumps(trust))
    yield
    iam.delete_role(RoleName="training")


def definition(doctor: Doctor, family: str, **changes: Any) -> str:
    """Register a task definition like that of the sandbox's trainer. Returns its family."""
    container = {
        "name": "trainer",
        "image": changes.pop("image", "trainer:latest"),
        "memory": 1024,
        "essential": True,
        "resourceRequirements": [{"type": "GPU", "value": "8"}],
        "logConfiguration": {
            "logDriver": "awslogs",
            "options": {
                "awslogs-group": changes.pop("group", "/ecs/gpu-training"),
                "awslogs-region": "us-east-1",
                "awslogs-stream-prefix": "train",
            },
        },
    }
    given = {"networkMode": "host", "requiresCompatibilities": ["EC2"], **changes}
    doctor.client("ecs").register_task_definition(family=family, containerDefinitions=[container], **given)
    return family


def deregister(doctor: Doctor, family: str) -> None:
    """Make every revision of the family inactive."""
    ecs = doctor.client("ecs")
    for arn in ecs.list_task_definitions(familyPrefix=family)["taskDefinitionArns"]:
        ecs.deregister_task_definition(taskDefinition=arn)


def test_a_deployment_without_a_defect_passes_every_check(doctor: Doctor) -> None:
    """With the settings of a file, and with those that the deployed functions have."""
    with image(doctor, IMAGE, "amd64"):
        (doctor.folder / "settings/lab.toml").write_text('region = "us-east-1"\nhealth_check_image = ""\n')
        code, view = doctor.run("lab")
        assert (code, view["findings"], view["not_checked"]) == (0, [], [])
        assert {*view["checked"]} == {*CHECKS} - {"names", "health-check"}
        code, view = doctor.run()
        assert (code, view["findings"], view["not_checked"]) == (0, [], [])
        assert {"cluster", "tasks", "roles", "functions", "rules", "tokens"} <= {*view["checked"]}
        assert [one["check"] for one in view["notes"]] == ["evidence"]  # no node agent runs in this sandbox


# -- before the deployment ---------------------------------------------------------------------------------------------


def test_credentials_of_another_account_are_found(doctor: Doctor) -> None:
    """They would make the deployment a second time."""
    (found,) = doctor.found("credentials", account="111122223333")
    assert "111122223333" in found["sentence"] and ACCOUNT in found["sentence"]


def test_a_missing_and_an_old_bootstrap_are_found(doctor: Doctor) -> None:
    """With the command for this account and region."""
    ssm, name = doctor.client("ssm"), "/cdk-bootstrap/hnb659fds/version"
    assert doctor.found("bootstrap") == []
    version = ssm.get_parameter(Name=name)["Parameter"]["Value"]
    ssm.put_parameter(Name=name, Value="3", Type="String", Overwrite=True)
    try:
        (found,) = doctor.found("bootstrap")
        assert found["command"] == f"npx cdk bootstrap aws://{ACCOUNT}/us-east-1" and "version 3" in found["sentence"]
        ssm.delete_parameter(Name=name)
        (found,) = doctor.found("bootstrap")
        assert "not bootstrapped" in found["sentence"]
    finally:
        ssm.put_parameter(Name=name, Value=version, Type="String", Overwrite=True)


def test_a_cluster_that_does_not_exist_is_found(doctor: Doctor) -> None:
    """The setting to change is named with its file."""
    (found,) = doctor.found("cluster", cluster_name="nope")
    assert found["subject"] == "nope" and "in settings/lab.toml: cluster_name = " in found["command"]


def test_an_instance_without_the_tag_is_found(doctor: Doctor) -> None:
    """With the command that tags it."""
    skipped = [word for other in CHECKS if other not in ("cluster", "instances") for word in ("--skip", other)]
    (doctor.folder / "settings/lab.toml").write_text('region = "us-east-1"\nmanaged_tag_value = "yes"\n')
    code, view = doctor.run("lab", *skipped)
    (found,) = view["findings"]
    (instance,) = doctor.client("ec2").describe_instances()["Reservations"][0]["Instances"]
    assert code == 1 and found["subject"] == instance["InstanceId"]
    assert found["command"].endswith(f"--resources {found['subject']} --tags Key=gpu-recovery:managed,Value=yes")


@pytest.mark.parametrize(
    ("changes", "sentence", "command"),
    [
        ({"networkMode": "awsvpc"}, "the network mode is awsvpc, not host", '"networkMode": "host"'),
        ({"group": "/ecs/other"}, "/ecs/other is not in training_log_groups", '"/ecs/gpu-training", "/ecs/other"'),
        ({"group": "/ecs/other"}, "/ecs/other does not exist", "create-log-group --log-group-name /ecs/other"),
        (
            {"image": f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/train:7"},
            "us-east-1.amazonaws.com/train:7 does not exist",
            "--repository-name train",
        ),
    ],
    ids=["network mode", "log group not allowed", "log group missing", "image missing"],
)
def test_a_task_definition_that_cannot_run_is_found(
    doctor: Doctor, changes: dict[str, Any], sentence: str, command: str
) -> None:
    """Before a job is refused."""
    family = definition(doctor, "planted", **changes)
    try:
        found = doctor.found("tasks", training_task_families=[family])
        (one,) = [one for one in found if sentence in one["sentence"]]
        assert one["subject"].startswith(family) and command in one["command"]
    finally:
        deregister(doctor, family)
    assert doctor.found("tasks") == []


def test_a_family_that_does_not_exist_is_found(doctor: Doctor) -> None:
    """Jobs that name it would be refused."""
    (found,) = doctor.found("tasks", training_task_families=["gpu-trainig"])
    assert found["subject"] == "gpu-trainig" and "no active task definition" in found["sentence"]


def test_a_task_definition_for_other_processors_is_found(doctor: Doctor) -> None:
    """ECS would place no task."""
    family = definition(doctor, "planted", runtimePlatform={"cpuArchitecture": "ARM64"})
    skipped = [word for other in CHECKS if other not in ("cluster", "tasks") for word in ("--skip", other)]
    text = f'region = "us-east-1"\ntraining_task_families = ["{family}"]\n'
    (doctor.folder / "settings/lab.toml").write_text(text)
    try:
        (found,) = doctor.run("lab", *skipped)[1]["findings"]
        assert found["sentence"] == "the task definition is for arm64, the GPU instances are x86_64"
    finally:
        deregister(doctor, family)


def test_roles_that_are_not_passed_missing_or_not_trusted_are_found(doctor: Doctor) -> None:
    """One after the other, until the role is right."""
    with role(doctor, TRUST):
        family = definition(doctor, "planted", executionRoleArn=ROLE)
    families = {"training_task_families": [family]}
    try:
        sentences = [one["sentence"] for one in doctor.found("roles", **families)]
        assert sentences == [f"the role {ROLE} is not in training_role_arns", "there is no such role in this account"]
        (found,) = doctor.found("roles", training_role_arns=[ROLE], **families)
        assert found["subject"] == ROLE
        with role(doctor, json.loads(json.dumps(TRUST).replace("ecs-tasks", "ec2"))):
            (found,) = doctor.found("roles", training_role_arns=[ROLE], **families)
            assert found["sentence"] == "the role does not trust ecs-tasks.amazonaws.com"
        with role(doctor, TRUST):
            (found,) = doctor.found("roles", **families)
            assert f'training_role_arns = ["{ROLE}"]' in found["command"]
            assert doctor.found("roles", training_role_arns=[ROLE], **families) == []
    finally:
        deregister(doctor, family)


def test_an_image_that_is_missing_or_for_other_processors_is_found(doctor: Doctor) -> None:
    """That of the health check."""
    skipped = [word for other in CHECKS if other not in ("cluster", "image") for word in ("--skip", other)]
    (doctor.folder / "settings/lab.toml").write_text('region = "us-east-1"\nhealth_check_image = ""\n')
    (found,) = doctor.run("lab", *skipped)[1]["findings"]
    assert found["sentence"].endswith("/gpu-recovery-health-check:latest does not exist")
    with image(doctor, IMAGE, "arm64"):
        (found,) = doctor.run("lab", *skipped)[1]["findings"]
        assert "is for arm64" in found["sentence"] and "--platform linux/amd64" in found["command"]
    with image(doctor, IMAGE, "arm64", "amd64"):
        assert doctor.run("lab", *skipped)[1]["findings"] == []


def test_a_layer_that_does_not_exist_is_found(doctor: Doctor) -> None:
    """The functions could not be created."""
    layer = f"arn:aws:lambda:us-east-1:{ACCOUNT}:layer:nope:1"
    (found,) = doctor.found("layer", powertools_layer=layer)
    assert found["subject"] == layer and 'powertools_layer = "own"' in found["command"]


def test_names_that_are_taken_are_found_before_the_first_deployment(doctor: Doctor) -> None:
    """Here by the deployment of the sandbox; in an account by the tables of an older installation."""
    found = doctor.found("names", stack_name="Other")
    assert {one["subject"] for one in found} == {
        *("gpu-training-notifications", "gpu-recovery", "ecs-job-sub", "ecs_container_instance"),
        "gpu-recovery-event-history",
    }
    others = {
        "topic_name": "t",
        "bus_name": "b",
        "job_table_name": "jobs",
        "instance_table_name": "instances",
        "event_history_table_name": "events",
    }
    assert doctor.found("names", stack_name="Other", **others) == []


def test_a_quota_of_lambda_that_is_too_small_is_found(doctor: Doctor) -> None:
    """The account of the sandbox has 573 concurrent executions or so; a reservation may not use all of them."""
    assert doctor.found("quotas") == []
    limit = doctor.client("lambda").get_account_settings()["AccountLimit"]["ConcurrentExecutions"]
    (found,) = doctor.found("quotas", reserved_concurrency=limit // 2)
    assert "which leaves less than 100" in found["sentence"] and "reserved_concurrency = 0" in found["command"]


# -- the running deployment --------------------------------------------------------------------------------------------


def test_a_function_without_its_layer_is_found(doctor: Doctor) -> None:
    """Someone has changed it by hand."""
    functions, name = doctor.client("lambda"), "gpu-recovery-event_recorder"
    layers = [one["Arn"] for one in functions.get_function_configuration(FunctionName=name)["Layers"]]
    assert doctor.found("functions") == []
    functions.update_function_configuration(FunctionName=name, Layers=[])
    try:
        (found,) = doctor.found("functions")
        assert (found["subject"], found["sentence"]) == (name, "the function has lost its layer")
    finally:
        functions.update_function_configuration(FunctionName=name, Layers=layers)


def test_a_function_that_is_stopped_is_found(doctor: Doctor) -> None:
    """By a reserved concurrency of 0; the printed command is the call that ends it."""
    functions, name = doctor.client("lambda"), "gpu-recovery-event_recorder"
    functions.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=0)
    try:
        (found,) = doctor.found("functions")
        assert found["command"] == f"aws lambda delete-function-concurrency --function-name {name}"
    finally:
        functions.delete_function_concurrency(FunctionName=name)
    assert doctor.found("functions") == []


def test_another_runtime_is_found(doctor: Doctor) -> None:
    """The layer has libraries for the runtime of the stack."""
    functions, name = doctor.client("lambda"), "gpu-recovery-console"
    before = functions.get_function_configuration(FunctionName=name)["Runtime"]
    functions.update_function_configuration(FunctionName=name, Runtime="python3.12")
    try:
        (found,) = doctor.found("functions")
        assert found["command"].endswith(f"--function-name {name} --runtime {before}")
    finally:
        functions.update_function_configuration(FunctionName=name, Runtime=before)


def test_a_rule_that_is_disabled_is_found(doctor: Doctor) -> None:
    """With the command that enables it."""
    events = doctor.client("events")
    rule = next(one["Name"] for one in events.list_rules()["Rules"] if "RulesMachinePlans" in one["Name"])
    assert doctor.found("rules") == []
    events.disable_rule(Name=rule)
    try:
        (found,) = doctor.found("rules")
        assert found["command"] == f"aws events enable-rule --name {rule}"
    finally:
        events.enable_rule(Name=rule)


def test_a_subscription_that_nobody_confirmed_is_found(doctor: Doctor, state: dict[str, Any]) -> None:
    """And an address of the settings that is not subscribed at all. MiniStack lets only web addresses confirm."""
    sns, address = doctor.client("sns"), "oncall@example.com"
    topic = {"TopicArn": state["topic_arn"]}
    assert doctor.found("subscriptions") == []
    (found,) = doctor.found("subscriptions", alert_emails=[address])
    assert found["subject"] == address and "not subscribed" in found["sentence"]
    endpoint = "http://127.0.0.1:9/alerts"
    sns.subscribe(**topic, Protocol="http", Endpoint=endpoint)
    try:
        (found,) = doctor.found("subscriptions")
        assert (found["subject"], found["sentence"]) == (endpoint, "the subscription is not confirmed")
    finally:
        for one in sns.list_subscriptions_by_topic(**topic)["Subscriptions"]:
            if one["Endpoint"] == endpoint:
                sns.unsubscribe(SubscriptionArn=one["SubscriptionArn"])
    assert doctor.found("subscriptions") == []


def test_a_dead_letter_is_found(doctor: Doctor) -> None:
    """With its number and with what the queue holds."""
    sqs = doctor.client("sqs")
    url = next(one for one in sqs.list_queues()["QueueUrls"] if "QueuesUndelivered" in one)
    assert doctor.found("dead-letters") == []
    sqs.send_message(QueueUrl=url, MessageBody="{}")
    try:
        (found,) = doctor.found("dead-letters")
        assert found["sentence"] == "1 messages wait: events that EventBridge could not deliver"
    finally:
        sqs.purge_queue(QueueUrl=url)


def test_a_role_that_the_functions_may_not_pass_is_found(doctor: Doctor) -> None:
    """By the simulator of IAM, for each function that launches: the file has the role, the deployment has not."""
    with role(doctor, TRUST):
        found = doctor.found("permissions", training_role_arns=[ROLE])
    assert [one["subject"] for one in found] == [
        f"gpu-recovery-{name}" for name in ("scheduler", "command_executor", "reconciler")
    ]
    assert all(ROLE in one["sentence"] for one in found)


def test_one_health_check_goes_from_end_to_end(doctor: Doctor, state: dict[str, Any]) -> None:
    """The instance is back in use at the end. A script must say that it agrees."""
    (instance,) = doctor.client("ec2").describe_instances()["Reservations"][0]["Instances"]
    words = ["--skip", "image", "--health-check", instance["InstanceId"]]
    refused = CliRunner().invoke(app.app, ["doctor", *words])
    assert refused.exit_code == 2 and "needs --yes" in refused.output
    result = CliRunner().invoke(app.app, ["doctor", *words, "--yes"])
    assert result.exit_code == 0, result.output
    assert f"{instance['InstanceId']}: VERIFYING: " in result.stderr and "health-check" in result.stdout
    with sandbox_api(state) as client:
        wait_until(lambda: client.instance(instance["InstanceId"])["status"] == "AVAILABLE")


def sandbox_api(state: dict[str, Any]) -> Any:
    """A client of the deployment."""
    return RecoveryClient(state["api_url"], state["operator_token"])
