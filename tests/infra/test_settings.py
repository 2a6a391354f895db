"""Settings are typed, checked, and wrong ones are refused by the name of their key."""

import ast
import json
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.core.policy import CHECK_S_BY_LEVEL, policy_from
from gpu_recovery.core.xid import XidProfile

from health_check.settings import TIMEOUT_S_BY_LEVEL
from health_check.xid_table import XidPolicy
from infra.settings import DeploymentSettings
from infra.settings_error import NAMESPACE, DeploymentSettingsError
from tests.infra.contexts import OWN_IMAGES, RAY
from tests.markdown import DOCS, Page

ROOT = Path(__file__).parents[2]
RAY_CLUSTER = {
    name: RAY[f"{NAMESPACE}{name}"]
    for name in ("ray_dashboard", "ray_control_store", "ray_subnet_ids", "ray_security_group_ids")
}
"""The settings of a Ray cluster."""


def _settings(**context: object) -> DeploymentSettings:
    return DeploymentSettings.from_context({f"{NAMESPACE}{name}": value for name, value in context.items()})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cluster_name", "arn:aws:ecs:us-east-1:111122223333:cluster/a"),
        ("cluster_name", ""),
        ("cluster_name", 7),
        ("training_task_families", ["gpu training"]),
        ("training_task_families", ["a", "a"]),
        ("training_task_families", 3),
        ("training_role_arns", ["my-role"]),
        ("node_role_arns", "gpu-nodes"),
        ("node_role_arns", "arn:aws:sts::111122223333:assumed-role/gpu-nodes/i-0123456789abcdef0"),
        ("training_role_arns", '["arn:aws:iam::111122223333:user/me"]'),
        ("node_agent", "DAEMON"),
        ("node_agent", True),
        ("api_auth", "IAM"),
        ("api_auth", "none"),
        ("api_roles", "operator"),
        ("api_roles", ["arn:aws:iam::111122223333:role/ops"]),
        ("training_log_groups", ["/ecs/*"]),
        ("training_log_groups", ["arn:aws:logs:us-east-1:111122223333:log-group:a"]),
        ("adopt", "yes"),
        ("user_priority_max", "URGENT"),
        ("user_priority_max", 30),
        ("preset", "Adaptive"),
        ("profile", "production"),
        ("policy", "attempts_max=3"),
        ("policy", {"attempts_max": [3]}),
        ("policy", {"Attempts": 3}),
        ("policy", {"preset": "classic"}),
        ("policy", {"chek_timeout_s": 1}),
        ("policy", {"poll_interval_s": 0}),
        ("policy", [1]),
        ("check_level", 0),
        ("check_level", 5),
        ("check_level", "two"),
        ("check_level", True),
        ("check_level", 1.5),
        ("check_reserves_gpus", "yes"),
        ("check_reserves_gpus", 2),
        ("check_family", "gpu-training"),
        ("alert_emails", "ops"),
        ("alert_emails", ["ops@example.com", "night@example"]),
        ("alert_endpoints", "http://alerts.example.com/"),
        ("alert_endpoints", "ops@example.com"),
        ("alert_endpoints", [7]),
        ("alert_endpoints", "https://"),
        ("alert_endpoints", "https://two words.example.com"),
        ("alert_endpoints", "arn:aws:sns:us-east-1:111122223333:topic"),
        ("alert_endpoints", "arn:aws:sqs:us-east-1:111122223333:incidents.fifo"),
        ("alert_endpoints", "arn:aws:sqs:cn-north-1:111122223333:incidents"),
        ("alert_endpoints", "arn:aws-cn:sqs:us-east-1:111122223333:incidents"),
        ("alert_endpoints", "arn:aws:sqs:us-gov-west-1:111122223333:incidents"),
        ("alert_endpoints", "arn:aws:sqs:us-east-1:1111:incidents"),
        ("alert_endpoints", ["https://a.example.com", "https://a.example.com"]),
        ("log_retention_days", 31),
        ("log_retention_days", 2),
        ("replace", "yes"),
        ("chat_topic", 2),
        ("policy", {"replace": True}),
        ("policy", {"observe_only": True}),
        ("policy", {"xid_profile": "aws"}),
        ("observe_only", "perhaps"),
        ("xid_policy", "amd"),
        ("check_host_engine", "both"),
        ("log_level", "TRACE"),
        ("bus_name", "default"),
        ("bus_name", "aws.ours"),
        ("topic_name", "has space"),
        ("job_table_name", "ab"),
        ("instance_table_name", "ecs-job-sub"),
        ("powertools_layer", "latest"),
        ("powertools_layer", "none"),
        ("managed_tag_key", "aws:owned"),
        ("job_id_prefix", "Upper"),
        ("reconcile_every_minutes", 60),
        ("reserved_concurrency", 1),
        ("reserved_concurrency", -2),
        ("reserved_concurrency", 11),
        ("reserved_concurrency", "all"),
        ("health_check_image", "two words"),
        ("health_check_base_image", "x; rm -rf /"),
        ("health_check_base_image", "mirror/dcgm@sha256:77"),
        ("ray_base_image", "python:3.13@sha512:" + 64 * "7"),
        ("agent_base_image", "--build-arg"),
        ("ray_image", "111122223333.dkr.ecr.us-east-1.amazonaws.com/ray:latest"),
        ("ray_image", "docker.io/ray@sha256:" + 64 * "7"),
        ("upgrade_from", 0.1),
        ("upgrade_from", "0.2"),
        ("function_name_prefix", "a/b"),
        ("stack_name", "1st"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_key(name: str, value: object) -> None:
    """The operator must learn which line to change."""
    with pytest.raises(DeploymentSettingsError, match=f"^{NAMESPACE}{name}: "):
        _settings(**{name: value})


@pytest.mark.parametrize("image", ["", "444455556666.dkr.ecr.eu-west-1.amazonaws.com/checks/gpu:7", "checks@sha256:77"])
def test_production_takes_a_check_that_nobody_can_replace(image: str) -> None:
    """The image runs as root on every GPU instance, and a tag can be moved. The message says how to find the digest."""
    assert _settings(health_check_image=image, profile="dev").health_check_image == image
    with pytest.raises(DeploymentSettingsError, match=r"must be build, or end in @sha256:.*describe-images"):
        _settings(health_check_image=image, profile="prod")
    for replaced_by_none in ("build", "checks@sha256:" + 64 * "7"):
        assert _settings(health_check_image=replaced_by_none, profile="prod").is_prod


@pytest.mark.parametrize(
    ("name", "built", "not_built"),
    [
        ("health_check_base_image", {}, [{"health_check_image": ""}]),
        ("ray_base_image", RAY_CLUSTER, [{}, {**RAY_CLUSTER, "ray_image": OWN_IMAGES[f"{NAMESPACE}ray_image"]}]),
        ("agent_base_image", {"build_agent_image": True}, [{}]),
    ],
)
def test_a_base_image_is_refused_where_nothing_is_built_on_it(
    name: str, built: dict[str, Any], not_built: list[dict[str, Any]]
) -> None:
    """The setting would have no effect, and its author would believe that it has."""
    base = {name: "mirror/base:4@sha256:" + 64 * "7"}
    assert getattr(_settings(**base, **built), name) == base[name]
    for settings in not_built:
        with pytest.raises(DeploymentSettingsError, match=f"^{NAMESPACE}{name}: has no effect unless"):
            _settings(**base, **settings)


@pytest.mark.parametrize(
    ("endpoint", "reason"),
    [
        ("https://ops:hunter2@alerts.example.com/gpu", "address at alerts.example.com has a password"),
        ("https://api.example.com/sns?apiKey=hunter2", "address at api.example.com has a password, a query"),
        ("https://api.example.com/sns#hunter2", "address at api.example.com has a password, a query"),
        ("https://hooks.slack.com/services/T0/B0/x", "set chat_topic"),
        ("arn:aws-cn:sqs:us-east-1:111122223333:a", "region us-east-1 is in partition aws, not aws-cn"),
        ("arn:aws:sqs:us-gov-east-1:111122223333:a", "region us-gov-east-1 is in partition aws-us-gov, not aws"),
    ],
)
def test_an_endpoint_is_refused_with_the_reason_and_without_its_secret(endpoint: str, reason: str) -> None:
    """The template shows what it subscribes to everyone who may read the stack, and the message lands in logs."""
    with pytest.raises(DeploymentSettingsError, match=re.escape(reason)) as caught:
        _settings(alert_endpoints=[endpoint])
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("partition_and_region", ["aws:eu-west-1", "aws-cn:cn-northwest-1", "aws-us-gov:us-gov-west-1"])
def test_a_queue_of_any_partition_can_be_an_endpoint(partition_and_region: str) -> None:
    """China and GovCloud as well as the commercial regions."""
    partition, region = partition_and_region.split(":")
    arn = f"arn:{partition}:sqs:{region}:111122223333:incidents"
    assert _settings(alert_endpoints=arn).alert_endpoints == (arn,)


@pytest.mark.parametrize("page", [DOCS["install"]], ids=lambda page: page.name)
def test_the_deployment_that_a_readme_shows_is_a_production_one(page: Page) -> None:
    """Who follows it to the letter keeps jobs and records when a stack is deleted by mistake."""
    settings = _shown_deployment(page)
    assert settings.is_prod and settings.adopt == "observe" and settings.alert_emails


@pytest.mark.parametrize("page", [DOCS["install"]], ids=lambda page: page.name)
def test_the_deployment_that_a_readme_shows_can_launch_the_job_that_it_shows(page: Page) -> None:
    """The task definition is allowed, and so are two roles. The line before shows which roles it names."""
    settings = _shown_deployment(page)
    commands = page.commands()
    (roles,) = [line for line in commands if line.startswith("aws ecs describe-task-definition")]
    words = shlex.split(roles)
    family = words[words.index("--task-definition") + 1]
    assert words[words.index("--query") + 1] == "taskDefinition.[executionRoleArn,taskRoleArn]"
    assert commands.index(roles) < next(
        at for at, line in enumerate(commands) if line.startswith("make deploy CONTEXT")
    )
    assert settings.training_task_families == (family,) and len(settings.training_role_arns) == 2
    submitted = [shlex.split(line) for line in commands if line.startswith("gpu-recovery submit --workload")]
    assert {line[line.index("--task-definition") + 1] for line in submitted} == {family}


def _shown_deployment(page: Page) -> DeploymentSettings:
    """The settings of the page's command to deploy."""
    (command,) = [line for line in page.commands() if line.startswith("make deploy CONTEXT")]
    words = shlex.split(shlex.split(command)[2].removeprefix("CONTEXT="))
    assert words[::2] == ["-c"] * (len(words) // 2)
    return DeploymentSettings.from_context(dict(word.split("=", 1) for word in words[1::2]))


ROLE = "arn:aws-cn:iam::111122223333:role/ops"


@pytest.mark.parametrize(
    ("auth", "roles", "reason"),
    [
        ("iam", {}, "must name a principal"),
        ("token", {ROLE: "operator"}, "has no effect unless gpu-recovery:api_auth is iam"),
        ("iam", {"arn:aws:sts::111122223333:assumed-role/ops/ana": "user"}, "is not the ARN of an IAM role"),
        ("iam", {"arn:aws:iam::111122223333:root": "operator"}, "is not the ARN of an IAM role"),
        ("iam", {"arn:aws:iam::111122223333:role/*": "user"}, "is not the ARN of an IAM role"),
        ("iam", {ROLE: "admin"}, "'admin', none of viewer, user, operator"),
        ("iam", {ROLE: ["user"]}, "none of viewer, user, operator"),
        ("iam", {ROLE: "user", ROLE.replace("ops", "team/ops"): "operator"}, "is named twice"),
        ("iam", {f"{ROLE}{number}": "user" for number in range(40)}, "at most 1200 fit into the function"),
    ],
)
def test_principals_that_cannot_be_meant_are_refused(auth: str, roles: dict[str, Any], reason: str) -> None:
    """A wildcard, a session or an unknown role would admit others than the operator means, or nobody."""
    with pytest.raises(DeploymentSettingsError, match=f"^{NAMESPACE}api_roles: .*{re.escape(reason)}"):
        _settings(api_auth=auth, api_roles=roles)


def test_principals_may_come_from_the_command_line() -> None:
    """As JSON, in every partition, and without their paths."""
    text = json.dumps({ROLE.replace("ops", "team/ops"): "operator"})
    assert _settings(api_auth="iam", api_roles=text).api_roles == {ROLE: "operator"}


def test_a_key_of_ours_that_does_not_exist_is_refused() -> None:
    """A misspelt key would otherwise leave the default in force without a word."""
    with pytest.raises(
        DeploymentSettingsError,
        match=f"^{NAMESPACE}cluster: there is no such setting; did you mean cluster_name?$".replace("?", "[?]"),
    ):
        _settings(cluster="production")


def test_every_wrong_setting_is_reported_at_once() -> None:
    """One synthesis, all mistakes."""
    with pytest.raises(DeploymentSettingsError) as caught:
        _settings(adopt="maybe", check_level=9)
    assert [line.split(": ")[0] for line in str(caught.value).splitlines()] == [
        "gpu-recovery:adopt",
        "gpu-recovery:check_level",
    ]


def test_keys_of_others_are_passed_over() -> None:
    """The CDK's own flags share the context."""
    assert DeploymentSettings.from_context({"@aws-cdk/core:x": True, "availability-zones": []}) == DeploymentSettings()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("check_level", "1", 1),
        ("check_level", 1.0, 1),
        ("reserved_concurrency", "2", 2),
        ("check_reserves_gpus", "false", False),
        ("alert_emails", "a@example.com, b@example.com", ("a@example.com", "b@example.com")),
        ("alert_emails", "", ()),
        ("training_task_families", '["llm", "vision"]', ("llm", "vision")),
        ("policy", '{"poll_interval_s": 60.0, "attempts_max": 2}', {"attempts_max": 2, "poll_interval_s": 60}),
        ("job_id_prefix", "team-a-", "team-a-"),
    ],
)
def test_text_from_the_command_line_becomes_the_typed_value(name: str, text: object, value: object) -> None:
    """`cdk -c` knows only text, and the CDK hands whole numbers over as doubles."""
    found = getattr(_settings(**{name: text}), name)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("profile", XidProfile)
def test_one_setting_says_whose_judgement_of_xids_the_check_and_the_control_plane_follow(profile: XidProfile) -> None:
    """Two that differ would have the one repair what the other lets pass."""
    settings = _settings(xid_policy=profile.value)
    assert policy_from(settings.recovery_policy).xid_profile is profile
    assert "xid_profile" not in _settings().recovery_policy
    assert XidPolicy(settings.xid_policy).value == profile.value


@pytest.mark.parametrize(("level", "seconds"), [(3, 2_880), (4, 10_980)])
def test_a_deep_check_must_be_given_its_time(level: int, seconds: int) -> None:
    """One that is cut short looks like a hang, and a hang costs a healthy machine a reboot."""
    times = {"check_timeout_s": seconds, "verify_timeout_s": seconds}
    assert _settings(check_level=level, policy=times).check_level == level
    for name in times:
        with pytest.raises(DeploymentSettingsError, match=f"{name} must be at least {seconds} for check_level {level}"):
            _settings(check_level=level, policy=times | {name: seconds - 1})


def test_the_times_of_the_levels_are_those_of_the_check_itself() -> None:
    """The container knows them, too, and a deployment may not import it."""
    assert {level: s for level, s in TIMEOUT_S_BY_LEVEL.items() if level} == CHECK_S_BY_LEVEL


@pytest.mark.parametrize(("profile", "days"), [("dev", 7), ("prod", 90)])
def test_logs_are_kept_as_long_as_the_profile_says_unless_a_setting_does(profile: str, days: int) -> None:
    """Development a week, production a quarter."""
    assert _settings(profile=profile).retention_days == days
    assert _settings(profile=profile, log_retention_days=30).retention_days == 30


def test_replacing_is_off_until_its_own_setting_turns_it_on() -> None:
    """No word about it in the policy means no; the setting is what the functions and IAM are both told."""
    assert "replace" not in _settings().recovery_policy
    assert policy_from(_settings().recovery_policy).replace is False
    assert policy_from(_settings(replace="true").recovery_policy).replace is True
    assert policy_from(_settings(observe_only="true").recovery_policy).observe_only is True


def test_settings_made_in_code_are_checked_too() -> None:
    """There is no way around the checks."""
    with pytest.raises(DeploymentSettingsError, match="gpu-recovery:cluster_name"):
        DeploymentSettings(cluster_name="two words")


def test_cdk_json_has_no_settings() -> None:
    """A value there would replace that of every settings file, and would be a second default."""
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    assert not [key for key in context if key.startswith(NAMESPACE)]


@pytest.mark.slow
def test_every_feature_flag_of_the_cdk_is_decided(assembly: Path) -> None:
    """A flag that is set after a release may replace resources, and the CDK counts undecided flags at each run."""
    artifacts = json.loads((assembly / "manifest.json").read_text())["artifacts"]
    flags = artifacts["aws-cdk-lib/feature-flag-report"]["properties"]["flags"]
    decided = json.loads((ROOT / "cdk.json").read_text())["context"]
    wanted = {name: flag for name, flag in flags.items() if flag["recommendedValue"] != _default(flag)}
    assert wanted and not wanted.keys() - decided.keys()


def _default(flag: dict[str, Any]) -> Any:
    return flag.get("unconfiguredBehavesLike", {}).get("v2", False)


def test_the_app_is_no_longer_than_a_screen() -> None:
    """Settings, then stacks: everything else has a place of its own."""
    assert len((ROOT / "app.py").read_text().splitlines()) <= 30


@cache
def _modules() -> dict[str, ast.Module]:
    return {path.name: ast.parse(path.read_text()) for path in [ROOT / "app.py", *(ROOT / "infra").glob("*.py")]}


def _imports(tree: ast.Module) -> set[str]:
    return {
        name
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [f"{node.module}.{alias.name}" for alias in node.names]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }


@pytest.mark.parametrize("name", sorted(_modules()))
def test_synthesis_reads_neither_aws_nor_the_process_environment(name: str) -> None:
    """Two people who synthesise the same commit with the same context get the same template.

    `app.py` compares account and region of the credentials with the settings file. It may refuse them, nothing more.
    """
    used = {"app.py": {"os"}, "bytecode.py": {"subprocess"}}  # bytecode.py compiles the sources with another Python
    read = {"boto3", "botocore", "os", "subprocess", "socket"} - used.get(name, set())
    assert not [each for each in _imports(_modules()[name]) if each.split(".")[0] in read]


@pytest.mark.parametrize("name", sorted(name for name in _modules() if name.endswith("_stack.py")))
def test_a_stack_composes_and_defines_no_resource_itself(name: str) -> None:
    """It reads like the picture: of the CDK it knows the stack and its tags."""
    of_the_cdk = {each for each in _imports(_modules()[name]) if each.startswith("aws_cdk")}
    assert of_the_cdk == {"aws_cdk.Stack", "aws_cdk.Tags"}


def test_functions_get_present_names_of_renamed_settings() -> None:
    """The former name stays in the context of the deployment and nowhere else."""
    settings = _settings(policy={"look_s": 60, "attempts_max": 2})
    assert list(settings.warnings) == ["renamed-setting:look_s"]
    assert settings.recovery_policy["poll_interval_s"] == 60 and "look_s" not in settings.recovery_policy
