"""Checks of the account that no emulator can show: answers in the documented shapes, by botocore's Stubber."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
from botocore.stub import Stubber
from gpu_recovery.core.policy import PRESETS, RecoveryPolicy
from gpu_recovery_client import RecoveryClient
from gpu_recovery_client.account import access, images, survey
from gpu_recovery_client.account import settings_file as client_files
from gpu_recovery_client.account.access import Account
from gpu_recovery_client.account.deployment import (
    OF_THEIR_OWN,
    SWITCHES,
    Deployment,
    check_layer,
    check_subscriptions,
    deployed,
)
from gpu_recovery_client.account.examination import CHECKS, Examination
from gpu_recovery_client.account.findings import DEFAULTS, Finding, Settings
from gpu_recovery_client.account.images import check_health_check_image, check_image
from gpu_recovery_client.account.instances import Fleet, check_auto_scaling, unprivileged
from gpu_recovery_client.account.names import NAMES, check_names
from gpu_recovery_client.account.node_agents import check_tokens, run_health_check
from gpu_recovery_client.account.quotas import LAUNCH_TIMEOUT_S, check_quotas
from gpu_recovery_client.account.settings_file import changed, toml
from gpu_recovery_client.account.tasks import trusts
from hypothesis import given, strategies

from infra import settings as deployment_settings
from infra import settings_file as deployment_files
from infra.settings import DeploymentSettings
from infra.settings_file import settings_of
from tests.client.conftest import TOKEN, URL, FakeApi, token_view

REGION, ACCOUNT = "us-east-1", "111122223333"
REGISTRY = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com"
NOW = datetime(2026, 11, 27, 9, 0, tzinfo=UTC)
TOPIC = f"arn:aws:sns:{REGION}:{ACCOUNT}:gpu-training-notifications"
Stub = Callable[[str], Stubber]


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    """An account with credentials that no service knows."""
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.setenv(f"AWS_{name}", "test")
    made = Account(REGION)
    made.__dict__["account_id"] = ACCOUNT
    return made


@pytest.fixture
def stub(account: Account) -> Iterator[Stub]:
    """The answers of a service, in order; botocore checks their shapes and the requests."""
    stubbers: list[Stubber] = []

    def made(service: str) -> Stubber:
        client = boto3.client(service, region_name=REGION)  # type: ignore[call-overload]
        account._clients[service] = client
        stubber = Stubber(client)
        stubber.activate()
        stubbers.append(stubber)
        return stubber

    yield made
    for one in stubbers:
        one.assert_no_pending_responses()


def machine(number: int, kind: str = "p5.48xlarge", **more: Any) -> dict[str, Any]:
    """A GPU instance as EC2 describes it."""
    options = {"CoreCount": 96, "ThreadsPerCore": 2}
    return {"InstanceId": f"i-{number}", "InstanceType": kind, "Architecture": "x86_64", "CpuOptions": options, **more}


def quotas(stub: Stub, p_vcpus: float, concurrency: int = 1000) -> None:
    """The account has these quotas."""
    quota = {"QuotaName": "Running On-Demand P instances", "QuotaCode": "L-417A185B", "Value": p_vcpus}
    stub("service-quotas").add_response("list_service_quotas", {"Quotas": [quota]}, {"ServiceCode": "ec2"})
    stub("lambda").add_response("get_account_settings", {"AccountLimit": {"ConcurrentExecutions": concurrency}}, {})


def test_a_quota_without_room_for_a_replacement_is_found(account: Account, stub: Stub) -> None:
    """Two instances of 192 vCPUs; a Spot instance counts elsewhere."""
    fleet = Fleet((), described=[machine(1), machine(2), machine(3, InstanceLifecycle="spot")])
    quotas(stub, 384)
    (found,) = check_quotas(account, Settings({"replace": True}), fleet)
    assert "use 384, and a replacement would bring them to 576" in found.sentence
    assert found.command.endswith("--quota-code L-417A185B --desired-value 576")
    quotas(stub, 576)
    assert [*check_quotas(account, Settings({"replace": True}), fleet)] == []
    quotas(stub, 384)
    assert [*check_quotas(account, Settings({}), fleet)] == []


def test_a_new_account_with_ten_executions_of_lambda_is_found(account: Account, stub: Stub) -> None:
    """Events of a gang would wait for each other."""
    stub("lambda").add_response("get_account_settings", {"AccountLimit": {"ConcurrentExecutions": 10}}, {})
    (found,) = check_quotas(account, Settings({}), Fleet(()))
    assert (found.subject, found.sentence) == ("Lambda concurrent executions", "the account has 10")


def test_a_launch_that_takes_longer_than_its_timeout_is_found(account: Account, stub: Stub) -> None:
    """By the documented rate of RunTask. No API of AWS returns the rate of an account."""
    fleet = Fleet([f"i-{number}" for number in range(2_048)])
    for policy, expected in (({}, []), ({"launch_timeout_s": 40}, ["ECS RunTask"])):
        stub("lambda").add_response("get_account_settings", {"AccountLimit": {"ConcurrentExecutions": 1000}}, {})
        found = [*check_quotas(account, Settings({"policy": policy}, "settings/lab.toml"), fleet)]
        assert [one.subject for one in found] == expected


@pytest.mark.parametrize("file", ["settings/lab.toml", ""])
def test_the_advice_about_a_threshold_can_be_followed(account: Account, stub: Stub, file: str, tmp_path: Path) -> None:
    """In a file the threshold belongs to the table of the policy. In the context the policy is one key with JSON."""
    stub("lambda").add_response("get_account_settings", {"AccountLimit": {"ConcurrentExecutions": 1000}}, {})
    policy = {"attempts_max": 5, "launch_timeout_s": 40}
    fleet = Fleet([f"i-{number}" for number in range(2_048)])
    (found,) = check_quotas(account, Settings({"policy": policy}, file), fleet)
    place, _, change = found.command.partition(": " if file else " to ")
    value, _, after = change.partition("; " if file else ", and ")
    if file:
        assert (place, after) == ("in settings/lab.toml, in the table [policy]", "then make deploy NAME=lab")
        (tmp_path / "settings").mkdir()
        (tmp_path / file).write_text(f"[policy]\nattempts_max = 5\n{value}\n")
        context = {"gpu-recovery:settings": "lab"}
    else:
        assert (place.split()[0], after) == ("set", "deploy again")
        context = {place.split()[1]: value}
    settings, _ = settings_of(context, tmp_path, {})
    assert settings.policy == {"attempts_max": 5, "launch_timeout_s": 97}


def test_an_email_that_is_not_confirmed_is_found(account: Account, stub: Stub) -> None:
    """SNS then has no ARN for the subscription (Amazon SNS API Reference, ListSubscriptionsByTopic)."""
    pending = {"Protocol": "email", "Endpoint": "a@example.com", "SubscriptionArn": "PendingConfirmation"}
    stub("sns").add_response("list_subscriptions_by_topic", {"Subscriptions": [pending]}, {"TopicArn": TOPIC})
    deployment = Deployment(account, "GpuRecovery", "CREATE_COMPLETE", {"TopicArn": TOPIC})
    (found,) = check_subscriptions(deployment, Settings({"alert_emails": ("a@example.com",)}))
    assert found.subject == "a@example.com" and "open the link in the e-mail" in found.command


def test_a_stack_whose_creation_failed_is_not_deployed(account: Account, stub: Stub) -> None:
    """It has no outputs, which the checks of a deployment read."""
    stack = {"StackName": "GpuRecovery", "CreationTime": NOW, "StackStatus": "ROLLBACK_COMPLETE"}
    stub("cloudformation").add_response("describe_stacks", {"Stacks": [stack]}, {"StackName": "GpuRecovery"})
    assert deployed(account, "GpuRecovery") is None


def names_taken(stub: Stub, state: str) -> None:
    """The account has the job table of the defaults, and a state stack with this status, or none."""
    formation = stub("cloudformation")

    def described(name: str, status: str) -> None:
        if status:
            stack = {"StackName": name, "CreationTime": NOW, "StackStatus": status}
            formation.add_response("describe_stacks", {"Stacks": [stack]}, {"StackName": name})
        else:
            formation.add_client_error("describe_stacks", "ValidationError", f"Stack with id {name} does not exist")

    described("GpuRecoveryState", state)
    if state not in ("", "ROLLBACK_COMPLETE"):
        return
    described("GpuRecovery", "")
    stub("sns").add_client_error("get_topic_attributes", "NotFound")
    stub("events").add_client_error("describe_event_bus", "ResourceNotFoundException")
    tables = stub("dynamodb")
    tables.add_response("describe_table", {"Table": {"TableName": "ecs-job-sub"}}, {"TableName": "ecs-job-sub"})
    for _ in range(2):
        tables.add_client_error("describe_table", "ResourceNotFoundException")


@pytest.mark.parametrize("state", ["", "ROLLBACK_COMPLETE"])
def test_a_name_that_is_taken_before_the_first_deployment_is_found(account: Account, stub: Stub, state: str) -> None:
    """A table that a deleted or a failed state stack has retained, too: CloudFormation refuses to create it again."""
    names_taken(stub, state)
    assert [one.subject for one in check_names(account, Settings({}))] == ["ecs-job-sub"]


@pytest.mark.parametrize("state", ["CREATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE"])
def test_a_deployment_whose_first_attempt_failed_keeps_its_names(account: Account, stub: Stub, state: str) -> None:
    """Its state stack owns the table. Another name would replace the table by an empty one."""
    names_taken(stub, state)
    assert [*check_names(account, Settings({}))] == []


def test_a_topic_without_any_subscriber_is_found(account: Account, stub: Stub) -> None:
    """Nobody would learn of a failure."""
    stub("sns").add_response("list_subscriptions_by_topic", {"Subscriptions": []}, {"TopicArn": TOPIC})
    deployment = Deployment(account, "GpuRecovery", "CREATE_COMPLETE", {"TopicArn": TOPIC})
    (found,) = check_subscriptions(deployment, Settings({}, "settings/prod.toml"))
    assert "no confirmed subscriber" in found.sentence and "in settings/prod.toml: alert_emails" in found.command


def test_a_built_image_for_instances_of_another_architecture_is_found(account: Account) -> None:
    """The deployment builds for x86_64 only."""
    fleet = Fleet((), described=[machine(1), machine(2, Architecture="arm64")])
    (found,) = check_health_check_image(account, Settings({}), fleet)
    assert found.subject == "i-2" and "--platform linux/arm64" in found.command
    assert [*check_health_check_image(account, Settings({}), Fleet((), described=[machine(1)]))] == []


def test_the_architecture_of_an_image_of_one_platform_is_in_its_configuration(
    account: Account, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ECR gives a signed address of the configuration (OCI Image Format Specification, config)."""
    digest = "sha256:" + 64 * "a"
    monkeypatch.setattr(images, "_config", {"https://signed": {"architecture": "arm64"}}.__getitem__)
    for kind, expected in (("x86_64", 1), ("arm64", 0)):
        ecr = stub("ecr")
        ecr.add_response("batch_get_image", {"images": [{"imageManifest": json.dumps({"config": {"digest": digest}})}]})
        ecr.add_response("get_download_url_for_layer", {"downloadUrl": "https://signed", "layerDigest": digest})
        found = [*check_image(account, f"{REGISTRY}/train:7", {kind: ["i-1"]}, "tasks", "gpu-training")]
        assert len(found) == expected


def test_an_image_of_another_registry_is_left_out(account: Account) -> None:
    """The caller may have no permission there. No call is made."""
    for reference in ("nvcr.io/nvidia/pytorch:25.01-py3", f"999999999999.dkr.ecr.{REGION}.amazonaws.com/train:7"):
        assert [*check_image(account, reference, {"x86_64": ["i-1"]}, "tasks", "gpu-training")] == []


def test_a_repository_that_does_not_exist_is_an_image_that_does_not_exist(account: Account, stub: Stub) -> None:
    """ECR answers with an error then."""
    stub("ecr").add_client_error("batch_get_image", "RepositoryNotFoundException")
    (found,) = check_image(account, f"{REGISTRY}/train@sha256:{64 * 'b'}", {}, "tasks", "gpu-training")
    assert "does not exist" in found.sentence


def test_a_call_that_is_denied_is_no_passed_check(account: Account, stub: Stub) -> None:
    """The check is named among those that were not made."""
    stub("lambda").add_client_error("get_account_settings", "AccessDeniedException", "not authorized")
    examination = Examination()
    examination.check("quotas", lambda: check_quotas(account, Settings({}), Fleet(())))
    assert examination.checked == [] and examination.not_checked[0].startswith("quotas: AWS did not answer: ")


def test_a_public_layer_in_a_region_without_it_is_found(account: Account) -> None:
    """Ningxia and GovCloud."""
    account.region = "cn-northwest-1"
    (found,) = check_layer(account, Settings({"powertools_layer": "public"}, "settings/prod.toml"))
    assert found.command == 'in settings/prod.toml: powertools_layer = "own"; then make deploy NAME=prod'


def test_a_layer_for_another_runtime_is_found(account: Account, stub: Stub) -> None:
    """The functions run Python 3.13 on arm64."""
    arn = f"arn:aws:lambda:{REGION}:{ACCOUNT}:layer:mine:1"
    answer = {"CompatibleRuntimes": ["python3.12"], "CompatibleArchitectures": ["arm64"]}
    stub("lambda").add_response("get_layer_version_by_arn", answer, {"Arn": arn})
    (found,) = check_layer(account, Settings({"powertools_layer": arn}))
    assert "python3.12" in found.sentence


def test_an_agent_that_refuses_privileged_containers_is_found() -> None:
    """As Bottlerocket's by default: no health check starts there."""
    allows = {"ec2InstanceId": "i-1", "attributes": [{"name": "com.amazonaws.ecs.capability.privileged-container"}]}
    (found,) = unprivileged([allows, {"ec2InstanceId": "i-2", "attributes": []}])
    assert found.subject == "i-2" and "allow-privileged-containers" in found.sentence


def test_a_group_without_the_tag_is_found_where_instances_are_replaced() -> None:
    """IAM tests the tag of the group, not of its instances."""
    group = {
        "AutoScalingGroupName": "gpus",
        "SuspendedProcesses": [{"ProcessName": name} for name in ("HealthCheck", "ReplaceUnhealthy", "AZRebalance")],
        "NewInstancesProtectedFromScaleIn": True,
    }
    (found,) = check_auto_scaling(Fleet((), groups=[group]), Settings({"replace": True}))
    assert "Key=gpu-recovery:managed,Value=true,PropagateAtLaunch=true" in found.command
    assert [*check_auto_scaling(Fleet((), groups=[group]), Settings({}))] == []
    tagged = {**group, "Tags": [{"Key": "gpu-recovery:managed", "Value": "true"}]}
    assert [*check_auto_scaling(Fleet((), groups=[tagged]), Settings({"replace": True}))] == []


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (
            {"Effect": "Allow", "Principal": {"Service": ["ecs-tasks.amazonaws.com"]}, "Action": ["sts:AssumeRole"]},
            True,
        ),
        ({"Effect": "Deny", "Principal": {"Service": "ecs-tasks.amazonaws.com"}, "Action": "sts:AssumeRole"}, False),
        ({"Effect": "Allow", "Principal": {"Service": "ecs.amazonaws.com"}, "Action": "sts:AssumeRole"}, False),
        ({"Effect": "Allow", "Principal": "*", "Action": "sts:TagSession"}, False),
    ],
)
def test_a_trust_policy_is_read_in_each_of_its_forms(statement: dict[str, Any], expected: bool) -> None:
    """IAM accepts one item or a list, and returns JSON text that is URL-encoded to some clients."""
    policy = {"Statement": statement}
    assert trusts(policy, "ecs-tasks.amazonaws.com") is expected
    assert trusts(json.dumps({"Statement": [statement]}), "ecs-tasks.amazonaws.com") is expected


# -- the running deployment by its API ---------------------------------------------------------------------------------


def of_tokens(api: FakeApi, tokens: dict[str, list[dict[str, Any]]], **settings: Any) -> list[Finding]:
    """The findings about instances with these tokens."""

    def answer(request: httpx.Request) -> httpx.Response:
        name = request.url.path.split("/")[-2]
        return httpx.Response(200, json={"instance_id": name, "tokens": tokens[name]})

    api.answer = answer
    with RecoveryClient(URL, TOKEN, httpx.MockTransport(api)) as client:
        views = [{"instance_id": name, "status": "AVAILABLE"} for name in tokens]
        return [*check_tokens(client, Settings(settings), views, NOW)]


def issued(live: bool = True, days: int = 90) -> dict[str, Any]:
    """A token that ends after so many days."""
    ends = (NOW + timedelta(days=days)).isoformat().replace("+00:00", "Z")
    return token_view(instance_id="i-1", live=live) | {"expires_at": ends}


def test_tokens_that_are_missing_expired_or_end_soon_are_found(api: FakeApi) -> None:
    """Where agents use tokens. The newer of two tokens counts."""
    tokens = {"i-1": [issued()], "i-2": [], "i-3": [issued(live=False)], "i-4": [issued(days=6)]}
    found = of_tokens(api, {**tokens, "i-5": [issued(days=2), issued()]})
    assert [(one.subject, one.sentence) for one in found] == [
        ("i-2", "the instance has no token"),
        ("i-3", "every token of the instance has expired or is revoked"),
        ("i-4", "the token of the instance expires at 2026-12-03 09:00 UTC"),
    ]
    assert found[0].command.startswith("gpu-recovery token issue i-2")
    assert of_tokens(api, tokens, node_agent="daemon") == [] and of_tokens(api, {"i-2": []}) == []


def test_no_token_is_missed_where_agents_may_use_a_role(api: FakeApi) -> None:
    """Where the settings name a role of instances. The end of a token is told."""
    tokens = {"i-1": [issued()], "i-2": [], "i-3": [issued(live=False)], "i-4": [issued(days=6)]}
    role = ["arn:aws:iam::111122223333:role/node"]
    assert [one.subject for one in of_tokens(api, tokens, node_role_arns=role)] == ["i-4"]
    assert [one.subject for one in of_tokens(api, tokens, node_role_arns=[])] == ["i-2", "i-3", "i-4"]


class Machine:
    """An instance that goes through these statuses, one for each look."""

    def __init__(self, *statuses: str, claims: dict[str, int] | None = None) -> None:
        self.statuses, self.calls, self.claims = list(statuses), [], claims or {}

    def instance(self, instance_id: str) -> dict[str, Any]:
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return {"instance_id": instance_id, "status": status, "reason": "because", "claims": self.claims}

    def tokens(self, instance_id: str) -> dict[str, Any]:
        raise AssertionError(instance_id)

    def quarantine(self, instance_id: str, because: str = "") -> None:
        self.calls.append("quarantine")

    def release(self, instance_id: str) -> None:
        self.calls.append("release")


@pytest.mark.parametrize(
    ("statuses", "sentence"),
    [
        (("AVAILABLE", "QUARANTINED", "QUARANTINED", "VERIFYING", "AVAILABLE"), ""),
        (("AVAILABLE", "QUARANTINED", "VERIFYING", "QUARANTINED"), "the instance is QUARANTINED: because"),
        (("AVAILABLE", "QUARANTINED", "VERIFYING"), "after 60 s it is still VERIFYING"),
        (("AVAILABLE", "QUARANTINED", "GONE"), "the instance is GONE"),
    ],
)
def test_a_health_check_that_does_not_pass_is_found(statuses: tuple[str, ...], sentence: str) -> None:
    """The instance is taken out of use, released, and must be back in use at the end."""
    api, pauses = Machine(*statuses), []
    found = [*run_health_check(api, "i-1", timeout_s=60, pause=pauses.append, report=lambda text: None)]
    assert api.calls == ["quarantine", "release"] and sum(pauses) <= 60
    assert [sentence in one.sentence for one in found] == ([True] if sentence else [])


@pytest.mark.parametrize(
    ("api", "why"),
    [(Machine("REBOOTING"), "it is REBOOTING"), (Machine("AVAILABLE", claims={"sft-1": 1}), "it works for sft-1")],
)
def test_an_instance_that_is_in_use_is_left_alone(api: Machine, why: str) -> None:
    """A check would take GPUs from a job."""
    (found,) = run_health_check(api, "i-1", timeout_s=60, pause=lambda s: None, report=lambda text: None)
    assert why in found.sentence and api.calls == []


def test_a_job_that_was_placed_before_the_quarantine_leaves_no_check() -> None:
    """The release of an instance with a job makes no health check, so AVAILABLE would prove nothing."""
    api = Machine("AVAILABLE", "QUARANTINED", "AVAILABLE")
    looked = iter([{}, {"sft-1": 1}, {"sft-1": 1}])
    look = api.instance

    def instance(instance_id: str) -> dict[str, Any]:
        return look(instance_id) | {"claims": next(looked)}

    api.instance = instance  # type: ignore[method-assign]
    (found,) = run_health_check(api, "i-1", timeout_s=60, pause=lambda s: None, report=lambda text: None)
    assert "it works for sft-1" in found.sentence and api.calls == ["quarantine", "release"]


def test_an_interrupted_health_check_names_the_command_that_ends_the_quarantine() -> None:
    """Nothing but a release ends the quarantine of an operator."""
    api, told = Machine("AVAILABLE", "CHECKING"), list[str]()

    def pause(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        [*run_health_check(api, "i-1", timeout_s=60, pause=pause, report=told.append)]
    assert told[-1].endswith("gpu-recovery release i-1")


# -- settings ----------------------------------------------------------------------------------------------------------


def test_the_defaults_are_those_of_the_deployment() -> None:
    """The client is installed without the code of the deployment."""
    deployment = DeploymentSettings()
    assert {name: getattr(deployment, name) for name in DEFAULTS} == dict(DEFAULTS)
    assert DEFAULTS["xid_policy"] == RecoveryPolicy().xid_profile
    assert {LAUNCH_TIMEOUT_S} == {policy.launch_timeout_s for policy in PRESETS.values()}
    assert survey.PROFILE_DAYS == deployment_settings.PROFILE_RETENTION_DAYS
    assert {*OF_THEIR_OWN} == {*deployment_settings.SETTINGS_OF_THEIR_OWN, "preset"}
    assert SWITCHES == deployment_settings.SWITCHES


def test_settings_files_are_those_of_the_deployment() -> None:
    """Of the client and of the deployment: where they are, their names, their keys, and what no two of them share."""
    here, there = client_files, deployment_files
    assert (there.FOLDER, there.NAME, tuple(there.TARGET)) == (here.FOLDER, here.NAME, here.TARGET)
    assert {*NAMES, "cluster_name"} == {*there.UNIQUE}


def test_a_changed_file_keeps_its_comments_and_other_lines() -> None:
    """Only the assignment of a changed key is replaced, also if it has several lines."""
    text = '# mine\nadopt = "off"  # for now\nemails = [\n  "a", # x\n]\n\n[policy]\nadopt = 1\n'
    new = changed(text, {"adopt": "observe", "emails": ["b"], "replace": True})
    assert new == '# mine\nadopt = "observe"\nemails = [\n  "b",\n]\nreplace = true\n\n[policy]\nadopt = 1\n'


@given(strategies.text(strategies.characters(exclude_categories=["Cs"])))
def test_any_text_is_written_as_toml(text: str) -> None:
    """TOML allows no control character in a string: an address that was pasted with a newline or a tab, for example."""
    assert tomllib.loads(f"k = {toml(text)}") == {"k": text}


def test_the_region_of_the_environment_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """AWS_REGION, which the AWS CLI and the CDK read and botocore does not."""
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    assert access.Account().region == "eu-central-1"
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(Exception, match="no AWS region is selected"):
        access.Account()


def test_the_page_lists_every_check() -> None:
    """docs/deploy.md has one row for each."""
    page = (Path(__file__).parents[3] / "docs/deploy.md").read_text()
    section = page.split("### Checks of doctor")[1].split("###")[0]
    assert re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE) == list(CHECKS)
