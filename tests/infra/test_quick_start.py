"""The quick start: with the default parameters it deploys the resources of the two stacks, and nothing else."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.functions import FUNCTIONS
from infra.permissions import Permission as P
from infra.settings import DeploymentSettings
from infra.settings_error import DeploymentSettingsError
from release.archives import CHECKSUMS, archive
from release.quick_start_parameters import PARAMETERS, PlaceholderMisplaced, with_references
from release.quick_start_template import TEMPLATE, TemplatesDiffer, quick_start_template
from tests.infra.conftest import run
from tests.infra.deployment import ACCOUNT, Deployment
from tests.infra.test_cfn_lint import BY_PARTITION, lint

ROOT = Path(__file__).parents[2]
SETTINGS = (ROOT / "docs/settings.md").read_text()
NO_VALUE = {"Ref": "AWS::NoValue"}
RESOURCES_MAX, BYTES_MAX = 500, 1_000_000
"""Limits of a template in S3: AWS CloudFormation User Guide, "CloudFormation quotas"."""
DEFAULTS = {
    **{parameter.name: parameter.default or "" for parameter in PARAMETERS},
    "ReleaseBucket": f"cdk-hnb659fds-assets-{ACCOUNT}-us-east-1",
    "ClusterName": "nwcd-gpu-testing",
}
"""The values with which the quick start is a deployment of `make deploy` with default settings."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The quick start, written without credentials, network and Docker."""
    found = tmp_path_factory.mktemp("quick-start")
    run(found, ["-m", "release.quick_start", "--into", str(found / "written")])
    return found / "written"


@pytest.fixture(scope="module")
def template(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / TEMPLATE).read_text())
    return found


def deployed(template: Mapping[str, Any], **parameters: str) -> Deployment:
    """The resources as CloudFormation creates them with these parameters."""
    values = {**DEFAULTS, **parameters}
    resources = {
        name: _given(resource, values)
        for name, resource in template["Resources"].items()
        if "Condition" not in resource or values[resource["Condition"].removeprefix("Has")]
    }
    found = Deployment({"QuickStart": {**template, "Resources": resources}}, {})
    for name, resource in resources.items():
        found.resources[f"QuickStart/{name}"] = found.resolve(resource, found.templates["QuickStart"])
    return found


def _given(value: Any, parameters: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_given(each, parameters) for each in value if _given(each, parameters) != NO_VALUE or not _asks(each)]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"Ref"}:
        return parameters.get(value["Ref"], value)
    if _asks(value):
        condition, if_given, if_empty = value["Fn::If"]
        return _given(if_given if parameters[condition.removeprefix("Has")] else if_empty, parameters)
    return {key: _given(each, parameters) for key, each in value.items()}


def _asks(value: Any) -> bool:
    """Whether a part of a template depends on an optional parameter."""
    return (
        isinstance(value, dict) and "Fn::If" in value and value["Fn::If"][0] in {each.condition for each in PARAMETERS}
    )


def _comparable(resource: dict[str, Any]) -> dict[str, Any]:
    """A resource without differences that the functions cannot see."""
    variables = resource.get("Properties", {}).get("Environment", {}).get("Variables", {})
    if "RECOVERY_POLICY" in variables:
        policy = json.loads(variables["RECOVERY_POLICY"])
        variables["RECOVERY_POLICY"] = {
            key: value for key, value in policy.items() if (key, value) != ("observe_only", False)
        }
    for name in variables.keys() & {"TRAINING_TASK_FAMILIES", "TRAINING_ROLE_ARNS", "TRAINING_LOG_GROUPS"}:
        variables[name] = variables[name].split()
    for statement in resource.get("Properties", {}).get("PolicyDocument", {}).get("Statement", []):
        if isinstance(statement["Resource"], list):
            statement["Resource"].sort()
    return {key: value for key, value in resource.items() if key != "Metadata"}


@pytest.mark.slow
def test_the_quick_start_deploys_what_the_stacks_deploy(template: dict[str, Any], deployment: Deployment) -> None:
    """A deployment by the quick start is not another product."""
    stacks = {
        name: _comparable(deployment.resolve(resource, stack))
        for stack in deployment.templates.values()
        for name, resource in stack["Resources"].items()
        if resource["Type"] != "AWS::CDK::Metadata"
    }
    quick = {name.split("/")[1]: _comparable(each) for name, each in deployed(template).resources.items()}
    assert quick.keys() == stacks.keys()
    assert [name for name in quick if quick[name] != stacks[name]] == []


@pytest.mark.slow
def test_the_parameters_reach_the_functions_and_their_permissions(template: dict[str, Any]) -> None:
    """A value that a policy lacks would be a job that can be submitted and never launched."""
    roles = {f"TrainingRoleArn{number}": f"arn:aws:iam::{ACCOUNT}:role/train{number}" for number in (1, 2, 3)}
    families = {"TrainingTaskFamily": "llm", "TrainingTaskFamily2": "vision", "TrainingTaskFamily3": "speech"}
    given = {**roles, **families, "ClusterName": "research", "ManagedTagValue": "yes", "TrainingLogGroup": "/ecs/llm"}
    found = deployed(template, **given, AlertEmail="ops@example.com", ObserveOnly="true")
    (api,) = [each for name, each in found.of_type("AWS::Lambda::Function").items() if "JobApi" in name]
    variables = api["Environment"]["Variables"]
    assert variables["TRAINING_TASK_FAMILIES"].split() == ["llm", "vision", "speech"]
    assert variables["TRAINING_ROLE_ARNS"].split() == list(roles.values())
    assert (variables["ECS_CLUSTER_NAME"], variables["TRAINING_LOG_GROUPS"]) == ("research", "/ecs/llm")
    assert json.loads(variables["RECOVERY_POLICY"])["observe_only"] is True
    statements = [each for _, _, each in found.allow_statements()]
    # Functions that only launch health checks have one resource in place of a list.
    launches = [each["Resource"] for each in statements if each["Action"] == "ecs:RunTask" and "vision" in str(each)]
    passed = [each["Resource"] for each in statements if each["Action"] == "iam:PassRole" and "train2" in str(each)]
    assert len(launches) == len(passed) == len([row for row in FUNCTIONS if P.RUN_TRAINING in row.permissions])
    assert all(sum(f":task-definition/{name}:*" in str(each) for name in families.values()) == 3 for each in launches)
    assert all(set(roles.values()) <= set(each) for each in passed)
    text = json.dumps(found.resources)
    assert "cluster/research" in text and "nwcd-gpu-testing" not in text
    assert [each["Endpoint"] for _, each in found.of_type("AWS::SNS::Subscription").items()] == ["ops@example.com"]
    tagged = [
        each["Condition"]["StringEquals"] for each in statements if "ResourceTag" in json.dumps(each.get("Condition"))
    ]
    assert tagged and all(each == {"aws:ResourceTag/gpu-recovery:managed": "yes"} for each in tagged)


@pytest.mark.slow
def test_the_template_is_valid_in_every_partition(folder: Path) -> None:
    """cfn-lint knows the limits and the patterns of CloudFormation."""
    assert lint([folder / TEMPLATE], *BY_PARTITION) == []
    found = json.loads((folder / TEMPLATE).read_text())
    assert len(found["Resources"]) < RESOURCES_MAX and (folder / TEMPLATE).stat().st_size < BYTES_MAX


@pytest.mark.slow
def test_every_file_that_the_template_names_is_beside_it(folder: Path) -> None:
    """With the checksum of the list."""
    names = {path.name for path in folder.iterdir()} - {TEMPLATE, CHECKSUMS}
    assert names == set(re.findall(r"[0-9a-f]{64}\.zip", (folder / TEMPLATE).read_text()))
    listed = dict(reversed(line.split("  ")) for line in (folder / CHECKSUMS).read_text().splitlines())
    assert listed == {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in {*names, TEMPLATE}}


@pytest.mark.slow
def test_no_placeholder_is_left(template: dict[str, Any]) -> None:
    """Else a deployment would name a cluster or a bucket that does not exist."""
    text = json.dumps({name: each for name, each in template.items() if name != "Parameters"}, indent=1)
    assert [each.placeholder for each in PARAMETERS if each.placeholder in text] == []


SETTING = {
    "ClusterName": "cluster_name",
    "ManagedTagValue": "managed_tag_value",
    "AlertEmail": "alert_emails",
    "TrainingTaskFamily": "training_task_families",
    "TrainingTaskFamily2": "training_task_families",
    "TrainingRoleArn1": "training_role_arns",
    "TrainingLogGroup": "training_log_groups",
    "ObserveOnly": "observe_only",
}
VALUES = (
    *("research", "a b", "a/b", "/ecs/llm", "true", "false", "ops@example.com", "ops@example", "a,b", "x" * 300),
    *("arn:aws-cn:iam::111122223333:role/teams/train", "arn:aws:iam::1111:role/train", "günther"),
)


@pytest.mark.parametrize("parameter", SETTING)
def test_a_parameter_accepts_what_its_setting_accepts(parameter: str) -> None:
    """CloudFormation checks the pattern before it creates anything; no function checks the value later."""
    (found,) = (each for each in PARAMETERS if each.name == parameter)
    setting = SETTING[parameter]
    is_list = setting in ("alert_emails", "training_task_families", "training_role_arns", "training_log_groups")
    accepted = []
    for value in VALUES:
        try:
            DeploymentSettings(**{setting: [value] if is_list else value})
        except DeploymentSettingsError:
            continue
        accepted.append(value)
    assert accepted and [value for value in VALUES if re.fullmatch(found.pattern, value)] == accepted
    assert bool(re.fullmatch(found.pattern, "")) == found.optional


def test_the_page_explains_every_parameter_and_its_default() -> None:
    """In the order of the table, with the settings that docs/settings.md explains."""
    page = (ROOT / "docs/quick-start.md").read_text()
    (rows,) = [part for part in page.split("\n\n") if part.startswith("| Parameter |")]
    explained: dict[str, str] = {}
    for row in rows.splitlines()[2:]:
        names, defaults, meaning = (cell.strip() for cell in row.strip("|").split("|"))
        values = [one.strip() for one in defaults.split(",")]
        explained |= dict(zip(names.replace("`", "").split(", "), values * 3, strict=False))
        assert all(f"gpu-recovery:{name}`" in SETTINGS for name in re.findall(r"`([a-z]+(?:_[a-z]+)+)`", meaning)), row
    default = {None: "required", "": "empty"}
    assert explained == {each.name: default.get(each.default, f"`{each.default}`") for each in PARAMETERS}
    asked = re.findall(r"ParameterKey=(\w+)", page)
    assert {each.name for each in PARAMETERS if each.default is None} <= set(asked) <= explained.keys()


# -- without a synthesis -----------------------------------------------------------------------------------------------


def test_a_placeholder_becomes_a_reference_within_its_text() -> None:
    """In a function of CloudFormation the parts stay in one list."""
    name = {"Ref": "ClusterName"}
    assert with_references({"A": "QuickStartCluster", "B": "cluster/QuickStartCluster/*"}) == {
        "A": name,
        "B": {"Fn::Join": ["", ["cluster/", name, "/*"]]},
    }
    joined = {"Fn::Join": ["", ["arn:", {"Ref": "AWS::Partition"}, ":cluster/QuickStartCluster"]]}
    assert with_references(joined) == {"Fn::Join": ["", ["arn:", {"Ref": "AWS::Partition"}, ":cluster/", name]]}


def test_an_item_of_an_optional_parameter_is_left_out_if_that_is_empty() -> None:
    """IAM refuses a statement whose list has an empty resource."""
    assert with_references({"Resource": ["QuickStartFamily2", "other"]}) == {
        "Resource": [{"Fn::If": ["HasTrainingTaskFamily2", {"Ref": "TrainingTaskFamily2"}, NO_VALUE]}, "other"]
    }


@pytest.mark.parametrize("misplaced", [{"tag/QuickStartTagValue": "x"}, {"A": {"Fn::Sub": "${X}/QuickStartCluster"}}])
def test_a_placeholder_that_cannot_become_a_reference_is_refused(misplaced: dict[str, Any]) -> None:
    """It would reach the account as it is."""
    with pytest.raises(PlaceholderMisplaced):
        with_references(misplaced)


@pytest.mark.parametrize(
    ("state", "recovery"),
    [
        ({"Outputs": {}, "Rules": {}}, {}),
        ({"Outputs": {}, "Resources": {"A": {"Type": "x", "Properties": {}}}}, {"Resources": {"A": {"Type": "y"}}}),
    ],
)
def test_stacks_that_do_not_fit_together_are_refused(state: dict[str, Any], recovery: dict[str, Any]) -> None:
    """A section or a resource would be lost without a word."""
    with pytest.raises(TemplatesDiffer):
        quick_start_template(state, recovery)


def test_two_archives_of_the_same_files_have_the_same_bytes(tmp_path: Path) -> None:
    """The key of a file in the bucket is the hash of its content, and CloudFormation updates a function by its key."""
    for number, umask in enumerate((0o644, 0o664)):
        (tmp_path / f"{number}").mkdir()
        for name in ("b.py", "a.py")[:: 1 - 2 * number]:
            (tmp_path / f"{number}" / name).write_text("x = 1\n")
            (tmp_path / f"{number}" / name).chmod(umask)
        archive(tmp_path / f"{number}", tmp_path / f"{number}.zip")
    assert (tmp_path / "0.zip").read_bytes() == (tmp_path / "1.zip").read_bytes()
