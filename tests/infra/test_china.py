"""The same templates in China and in GovCloud: right ARNs, right principals, nothing that the regions there lack."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.auth.principals import without_path

from tests.infra.contexts import EVERYTHING
from tests.infra.deployment import Deployment, listed

pytestmark = pytest.mark.slow

PRINCIPALS = {
    "apigateway.amazonaws.com",
    "cloudwatch.amazonaws.com",
    "codebuild.amazonaws.com",
    "ecs-tasks.amazonaws.com",
    "events.amazonaws.com",
    "lambda.amazonaws.com",
}
"""Services whose principal has no `.cn` in China either. That of EC2 has one, so it does not belong here."""
SERVICES = {
    "ApiGatewayV2",
    "CDK",
    "CloudWatch",
    "CodeBuild",
    "DynamoDB",
    "ECR",
    "ECS",
    "Events",
    "IAM",
    "KMS",
    "Lambda",
    "Logs",
    "S3",
    "SNS",
    "SQS",
    "SecretsManager",
}
"""Services of both regions in China. Amazon Q in chat applications, Cognito user pools and Lambda URLs are missing."""
MISSING = ("AWS::Chatbot::", "AWS::Cognito::", "AWS::Lambda::Url", "AsyncEvent")
"""Kinds of resources and the beginning of metrics that are not there."""
_PRINCIPAL = re.compile(r"[a-z0-9-]+\.amazonaws\.com(?:\.cn)?")


def _texts(*deployments: Deployment) -> dict[str, str]:
    """The templates as text, without the ARNs that the settings themselves hold."""
    given = "|".join(
        [
            *EVERYTHING["gpu-recovery:training_role_arns"],
            *EVERYTHING["gpu-recovery:node_role_arns"],
            *filter(None, map(without_path, EVERYTHING["gpu-recovery:api_roles"])),
        ]
    )
    return {
        f"{number}/{name}": re.sub(given, "", json.dumps(template))
        for number, deployment in enumerate(deployments)
        for name, template in deployment.templates.items()
    }


def test_no_arn_names_a_partition(deployment: Deployment, production: Deployment) -> None:
    """`arn:aws:` in a template would deploy in China and allow nothing; an ARN of the settings is the user's own."""
    given = EVERYTHING["gpu-recovery:alert_endpoints"].split(",")[1]
    for name, text in _texts(deployment, production).items():
        assert re.findall(r"arn:aws[a-z-]*:[^\"]{0,60}", text.replace(f'"{given}"', '""')) == [], name


def test_no_host_name_is_written_out(deployment: Deployment, production: Deployment) -> None:
    """Every host of AWS ends in `.cn` there; what is left are the names of service principals."""
    given = EVERYTHING["gpu-recovery:health_check_image"].split("/")[0]
    for name, text in _texts(deployment, production).items():
        assert set(_PRINCIPAL.findall(text.replace(given, ""))) <= PRINCIPALS, name


def test_the_template_has_an_answer_for_every_partition(elsewhere: Deployment) -> None:
    """Every ARN is of the partition and the region, and nothing is looked up that is not there."""
    found = re.findall(r"arn:(\S+?):\w+:([\w-]*):", json.dumps(list(elsewhere.resources.values())))
    assert set(found) == {(elsewhere.partition, elsewhere.region), (elsewhere.partition, "")}
    layers = {name for each in elsewhere.package_functions().values() for name in each["Layers"]}
    assert layers == {"FunctionsPowertools"}


def test_every_principal_is_one_that_china_knows(china: Deployment) -> None:
    """Who may assume a role, use a resource, or be passed a role."""
    named = {name for _, _, statement in china.allow_statements() for name in _services(statement.get("Principal"))}
    for role in china.of_type("AWS::IAM::Role").values():
        named |= {name for one in role["AssumeRolePolicyDocument"]["Statement"] for name in _services(one["Principal"])}
    named |= {permission["Principal"] for permission in china.of_type("AWS::Lambda::Permission").values()}
    assert named == PRINCIPALS


def _services(principal: Any) -> list[str]:
    return listed(principal["Service"]) if isinstance(principal, dict) and "Service" in principal else []


def test_every_resolved_arn_is_of_china(china: Deployment) -> None:
    """Statements, layers, alarm actions, key policies: wherever an ARN stands."""
    found = re.findall(r"arn:(\S+?):", json.dumps(list(china.resources.values())))
    assert set(found) == {"aws-cn"}


def test_only_services_of_both_regions_are_used(deployment: Deployment, production: Deployment) -> None:
    """A service that is added has to be looked up first."""
    for where in (deployment, production):
        types = {resource["Type"] for resource in where.resources.values()} - {"Custom::BuiltImage"}
        assert {kind.split("::")[1] for kind in types} <= SERVICES
    for name, text in _texts(deployment, production).items():
        assert not [missing for missing in MISSING if missing in text], name


def test_event_source_mappings_have_no_tags(with_ray: Deployment, production: Deployment) -> None:
    """They can have none in China and in GovCloud; other resources have ours."""
    for where in (with_ray, production):
        mappings = where.of_type("AWS::Lambda::EventSourceMapping").values()
        assert mappings and not any("Tags" in each for each in mappings)
        tag = {"Key": "Project", "Value": "gpu-recovery"}
        assert all(tag in each["Tags"] for each in where.of_type("AWS::SQS::Queue").values())


def test_no_stack_has_tags_of_its_own(validated: dict[str, Path]) -> None:
    """CloudFormation would spread them to every resource, mappings too, whatever the template leaves out.

    Without the feature flag `explicitStackTags` in cdk.json the CDK makes tags of the stack out of those of its
    resources.
    """
    for name, folder in validated.items():
        artifacts = json.loads((folder / "manifest.json").read_text())["artifacts"].values()
        stacks = [each for each in artifacts if each["type"] == "aws:cloudformation:stack"]
        assert len(stacks) == 2 and not any("tags" in each["properties"] for each in stacks), name


def test_with_iam_every_route_is_authorized_by_api_gateway(in_china_with_iam: Deployment) -> None:
    """Without an ICP filing API Gateway in China answers no other route."""
    routes = in_china_with_iam.of_type("AWS::ApiGatewayV2::Route").values()
    assert {route["RouteKey"] for route in routes} == {
        "ANY /{proxy+}",
        "GET /api/v2/events",
        "GET /api/v2/fleet/limits",
        "GET /api/v2/fleet/map",
        "GET /api/v2/fleet/members",
        "GET /api/v2/overview",
        "GET /api/v2/{proxy+}",
        "POST /api/v1/signed/{proxy+}",
    }
    assert {route["AuthorizationType"] for route in routes} == {"AWS_IAM"}


def test_functions_are_traced_where_lambda_works_with_x_ray(deployment: Deployment, china: Deployment) -> None:
    """In China it does not; there they have what a function has that says nothing."""
    for where, mode in ((deployment, "Active"), (china, "PassThrough")):
        modes = {function["TracingConfig"]["Mode"] for function in where.package_functions().values()}
        assert modes == {mode}
