"""docs/deploy.md about images, groups and quotas: commands that AWS accepts, and figures and names of the code."""

import ast
import re
from dataclasses import fields

import botocore.session
from botocore import xform_name
from gpu_recovery.core.policy import RecoveryPolicy

from infra.settings import DeploymentSettings
from tests.markdown import DEPLOY, ROOT, Page, bare

ADVISED = {"HealthCheck", "ReplaceUnhealthy", "AZRebalance"}
"""Processes of a group that terminate instances by a judgement of their own."""
NEEDED = {"Launch", "Terminate"}
"""Processes without which `gpu-recovery:replace` replaces nothing."""


def _section(heading: str) -> str:
    """The text below a heading of the second level."""
    (found,) = re.findall(rf"^## {heading}\n(.*?)(?=^## )", DEPLOY.text, re.MULTILINE | re.DOTALL)
    return str(found)


def _quotas() -> list[list[str]]:
    (table,) = [table for table in DEPLOY.tables() if table[0][0] == "Quota"]
    return table[1:]


def _numbers(text: str) -> list[int]:
    return [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", text)]


def test_the_commands_about_groups_are_of_auto_scaling() -> None:
    """Operation and options: a misspelt one would leave the group as it is, and nobody notices until a repair."""
    service = botocore.session.Session().get_service_model("autoscaling")
    operations = {xform_name(name, "-"): service.operation_model(name) for name in service.operation_names}
    commands = [line.split() for line in DEPLOY.commands() if line.startswith("aws autoscaling ")]
    assert len(commands) == 4
    for _, _, verb, *words in commands:
        members = operations[verb].input_shape.members
        known = {f"--{xform_name(name, '-')}" for name in members} | {"--query"}
        options = {word for word in words if word.startswith("--")}
        assert options <= known, verb
        required = {f"--{xform_name(name, '-')}" for name in operations[verb].input_shape.required_members}
        assert required <= options, verb


def test_what_replaces_instances_is_suspended_and_what_we_need_is_not() -> None:
    """Without Launch and Terminate, a replacement would end with an instance less."""
    (line,) = [line for line in DEPLOY.commands() if "suspend-processes" in line]
    assert set(line.partition("--scaling-processes ")[2].split()) == ADVISED
    section = _section("Auto Scaling groups")
    assert all(f"`{process}`" in section for process in NEEDED)


def test_the_rates_of_the_api_are_those_of_the_stage() -> None:
    """Users, their reads, the paths that the console polls, and nodes: a second and at once."""
    tree = ast.parse((ROOT / "infra/api.py").read_text(encoding="utf-8"))
    rates = {
        node.targets[0].id: [ast.literal_eval(word.value) for word in node.value.keywords]
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func).endswith("ThrottleSettings")
    }
    (row,) = [row for row in _quotas() if row[0].startswith("API Gateway")]
    assert _numbers(row[2]) == [number for name in ("_USERS", "_READS", "_POLLED", "_NODES") for number in rates[name]]


def test_the_limit_of_an_alarm_is_the_one_that_the_synthesis_enforces() -> None:
    """The page and the check are about the same quota."""
    (row,) = [row for row in _quotas() if row[0].startswith("CloudWatch: metrics")]
    (number,) = re.findall(r"^ALARM_METRICS_MAX = (\d+)$", (ROOT / "infra/metrics.py").read_text(), re.MULTILINE)
    assert _numbers(row[1]) == [int(number)]


def test_the_quota_of_codebuild_is_that_of_the_machine_and_of_the_images() -> None:
    """A new account may build one image at a time, so the others have to start within the time that the queue gives."""
    text = (ROOT / "infra/image_build.py").read_text(encoding="utf-8")
    ((_, starts_within_min),) = re.findall(r"^BUILD_WITHIN_MIN, STARTS_WITHIN_MIN = (\d+), (\d+)$", text, re.MULTILINE)
    (row,) = [row for row in _quotas() if row[0].startswith("CodeBuild")]
    assert row[0].endswith("Linux/Medium") and 'compute_type="BUILD_GENERAL1_MEDIUM"' in text
    assert _numbers(row[2]) == [len(list(ROOT.glob("*/Dockerfile")))]
    assert int(starts_within_min) in _numbers(row[3])


def test_settings_and_alarms_of_the_quotas_exist() -> None:
    """Whoever reaches a quota looks for the name."""
    index = Page(ROOT / "docs/runbooks/README.md")
    alarms = {span for row in index.tables()[0][1:] for span in re.findall(r"`(\w+)`", row[0])}
    spans = {bare(span) for row in _quotas() for cell in row for span in re.findall(r"`([^`]+)`", cell)}
    assert {span for span in spans if re.fullmatch(r"([A-Z][a-z]+){2,}", span)} <= alarms
    known = {each.name for each in fields(RecoveryPolicy)} | {each.name for each in fields(DeploymentSettings)}
    spans = {span.removeprefix("gpu-recovery:") for span in spans}
    named = {span for span in spans if re.fullmatch(r"[a-z]+(_[a-z]+)+", span)} - {"by_status"}
    assert "reserved_concurrency" in named and named <= known


def test_each_service_that_a_large_fleet_may_exhaust_is_among_the_quotas() -> None:
    """With a figure, what uses it, and what happens then."""
    services = {row[0].partition(":")[0] for row in _quotas()}
    expected = {
        "Lambda",
        "API Gateway",
        "ECS",
        "EC2",
        "EventBridge",
        "SNS",
        "DynamoDB",
        "CloudWatch",
        "CloudWatch Logs",
        "CodeBuild",
    }
    assert services == expected
    assert all(_numbers(row[1]) and row[2] and row[3] for row in _quotas())


def test_the_base_images_of_the_page_are_the_defaults_of_the_dockerfiles() -> None:
    """Whoever pins a base image adds the digest to the reference on the page."""
    (table,) = [table for table in DEPLOY.tables() if table[0][:2] == ["Image", "Setting"]]
    rows = {bare(image): (bare(setting), bare(default)) for image, setting, default in table[1:]}
    assert rows.keys() == {path.parent.name for path in ROOT.glob("*/Dockerfile")}
    for image, (setting, default) in rows.items():
        text = (ROOT / image / "Dockerfile").read_text(encoding="utf-8")
        assert re.findall(r"^ARG BASE_IMAGE=([^@\s]+)(?:@\S+)?$", text, re.MULTILINE) == [default]
        assert setting in text, "the Dockerfile names its setting"
