"""The health check's task, the API and the outputs."""

import json
from pathlib import Path

import pytest
from gpu_recovery.job_api.router import ROUTES as JOB_API_ROUTES

from health_check.run import KILLED_WITHIN_S, TESTS_END_WITHIN_S
from tests.infra.deployment import ACCOUNT, Deployment

pytestmark = pytest.mark.slow


def test_the_health_check_is_a_privileged_task_on_the_hosts_network(deployment: Deployment) -> None:
    """DCGM needs the devices and the host's own view; GPUs are reserved per run, not here."""
    task = deployment.only("AWS::ECS::TaskDefinition")
    assert task["Family"] == "gpu-health-check"
    assert task["NetworkMode"] == "host"
    assert task["RequiresCompatibilities"] == ["EC2"]
    (container,) = task["ContainerDefinitions"]
    assert container["Name"] == "health-check"
    assert container["Command"] == ["python", "-m", "health_check"]
    assert container["Privileged"] is True
    assert container["Essential"] is True
    assert "ResourceRequirements" not in container
    environment = {one["Name"]: one["Value"] for one in container["Environment"]}
    assert environment == {"AWS_REGION": deployment.region, "XID_POLICY": "nvidia"}
    assert container["LogConfiguration"]["LogDriver"] == "awslogs"
    assert container["LogConfiguration"]["Options"]["awslogs-group"] == "HealthCheckLogs"


def test_a_stopped_check_has_the_time_that_the_documents_say(deployment: Deployment) -> None:
    """The time from SIGTERM to SIGKILL is longer than the end of a test in the engine of the host takes."""
    (container,) = deployment.only("AWS::ECS::TaskDefinition")["ContainerDefinitions"]
    stop_s = container["StopTimeout"]
    assert stop_s > TESTS_END_WITHIN_S + KILLED_WITHIN_S
    docs, ends_s = Path(__file__).parents[2] / "docs", f"{TESTS_END_WITHIN_S:.0f} s"
    page, chinese = ((docs / name).read_text(encoding="utf-8") for name in ("idle-checks.md", "idle-checks.zh.md"))
    assert f"After the `stopTimeout` of its task, {stop_s} s, ECS" in page and f"waits up to {ends_s} until" in page
    assert f"超过其任务的 `stopTimeout`（{stop_s} s）时，ECS" in chinese and f"最多等待 {ends_s}" in chinese
    decision = (docs / "decisions/0078-idle-checks-that-give-way.md").read_text(encoding="utf-8")
    assert f"about {stop_s} s later, the `stopTimeout` of its task" in decision


def test_the_check_sees_the_socket_of_the_hosts_engine_only_where_it_may_use_it(
    deployment: Deployment, production: Deployment
) -> None:
    """The folder is mounted read-only; connecting to a socket needs no more."""
    assert "Volumes" not in deployment.only("AWS::ECS::TaskDefinition")
    task = production.only("AWS::ECS::TaskDefinition", "HealthCheck")
    (container,) = task["ContainerDefinitions"]
    assert {"Name": "HOST_ENGINE", "Value": "host"} in container["Environment"]
    assert task["Volumes"] == [{"Name": "host-engine", "Host": {"SourcePath": "/run/nvidia-dcgm"}}]
    assert container["MountPoints"] == [
        {"ContainerPath": "/run/nvidia-dcgm", "ReadOnly": True, "SourceVolume": "host-engine"}
    ]


def test_the_check_can_leave_a_verdict_and_nothing_else(deployment: Deployment) -> None:
    """It runs privileged beside other people's work: its role is the smallest of all."""
    policy = deployment.only("AWS::IAM::Policy", "HealthCheckTaskRole")
    assert policy["Roles"] == ["HealthCheckTaskRole"]
    assert policy["PolicyDocument"]["Statement"] == [
        {"Effect": "Allow", "Action": "s3:PutObject", "Resource": "VerdictsBucket.Arn/verdicts/*"}
    ]


@pytest.mark.parametrize(
    ("where", "image", "repository"),
    [
        (
            "deployment",
            f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/ImagesHealthCheckRepository@sha256:ImagesHealthCheckImage.Sha256",
            "ImagesHealthCheckRepository.Arn",
        ),
        (
            "china",
            f"{ACCOUNT}.dkr.ecr.cn-north-1.amazonaws.com.cn/ImagesHealthCheckRepository"
            "@sha256:ImagesHealthCheckImage.Sha256",
            "ImagesHealthCheckRepository.Arn",
        ),
        (
            "own_images",
            f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/gpu-recovery-health-check:latest",
            f"arn:aws:ecr:us-east-1:{ACCOUNT}:repository/gpu-recovery-health-check",
        ),
        (
            "production",
            f"444455556666.dkr.ecr.eu-west-1.amazonaws.com/checks/gpu@sha256:{64 * '7'}",
            "arn:aws:ecr:eu-west-1:444455556666:repository/checks/gpu",
        ),
    ],
)
def test_ecs_may_pull_the_image_of_the_check(
    request: pytest.FixtureRequest, where: str, image: str, repository: str
) -> None:
    """From the one repository that holds it, in whatever account and region that is."""
    deployed: Deployment = request.getfixturevalue(where)
    assert deployed.only("AWS::ECS::TaskDefinition")["ContainerDefinitions"][0]["Image"] == image
    statements = deployed.only("AWS::IAM::Policy", "HealthCheckExecutionRole")["PolicyDocument"]["Statement"]
    (pull,) = (each for each in statements if "ecr:BatchGetImage" in each["Action"])
    assert pull["Resource"] == repository


POLLED = {f"GET /api/v2/{path}" for path in ("overview", "fleet/map", "fleet/members", "fleet/limits", "events")}
"""Routes that the web console polls."""
ROUTES = {
    **dict.fromkeys(POLLED, ("NONE", "FunctionsJobApiFunction.Arn")),
    "ANY /{proxy+}": ("NONE", "FunctionsJobApiFunction.Arn"),
    "GET /api/v2/{proxy+}": ("NONE", "FunctionsJobApiFunction.Arn"),
    "ANY /api/v1/{proxy+}": ("NONE", "FunctionsNodeApiFunction.Arn"),
    "POST /api/v1/signed/{proxy+}": ("AWS_IAM", "FunctionsNodeApiFunction.Arn"),
    "GET /": ("NONE", "ConsoleFunction.Arn"),
    "GET /console": ("NONE", "ConsoleFunction.Arn"),
    "GET /console/{proxy+}": ("NONE", "ConsoleFunction.Arn"),
}
CONSOLE = ("GET /", "GET /console", "GET /console/{proxy+}")
READS = "GET /api/v2/{proxy+}"
"""Route of the requests that read, which have a rate of their own."""
READ_RATE = {"ThrottlingRateLimit": 60, "ThrottlingBurstLimit": 120}
POLLED_RATE = {"ThrottlingRateLimit": 100, "ThrottlingBurstLimit": 200}
CONSOLE_RATE = {"ThrottlingRateLimit": 20, "ThrottlingBurstLimit": 60}


SIGNED_ROUTES = {
    **dict.fromkeys(POLLED, ("AWS_IAM", "FunctionsServed")),
    "ANY /{proxy+}": ("AWS_IAM", "FunctionsServed"),
    "GET /api/v2/{proxy+}": ("AWS_IAM", "FunctionsServed"),
    "POST /api/v1/signed/{proxy+}": ("AWS_IAM", "FunctionsNodeApiFunction.Arn"),
}


def _routes(deployment: Deployment) -> dict[str, tuple[str, str]]:
    """Authorization and function of each route."""
    integrations = deployment.of_type("AWS::ApiGatewayV2::Integration")
    assert {one["PayloadFormatVersion"] for one in integrations.values()} == {"2.0"}
    uris = {f"integrations/{name}": one["IntegrationUri"] for name, one in integrations.items()}
    return {
        route["RouteKey"]: (route["AuthorizationType"], uris[route["Target"]])
        for route in deployment.of_type("AWS::ApiGatewayV2::Route").values()
    }


def test_every_polled_route_is_one_of_the_job_api(deployment: Deployment) -> None:
    """A rate for a path that the function does not have would protect nothing."""
    assert {f"{route.method} {route.path}" for route in JOB_API_ROUTES} >= POLLED


def test_one_route_leads_every_request_but_those_of_nodes_and_of_the_console_to_the_job_api(
    deployment: Deployment,
) -> None:
    """No authorizer but IAM's: a function checks tokens, so that it also does where no API Gateway stands in front."""
    assert _routes(deployment) == ROUTES


def test_the_job_api_is_served_by_a_version_that_starts_from_a_snapshot(
    deployment: Deployment, production: Deployment
) -> None:
    """Lambda takes snapshots of published versions only. Without the setting there is neither version nor alias."""
    assert not deployment.of_type("AWS::Lambda::Alias") and not deployment.of_type("AWS::Lambda::Version")
    functions = production.of_type("AWS::Lambda::Function")
    snapshots = {name: function["SnapStart"] for name, function in functions.items() if "SnapStart" in function}
    assert snapshots == {"FunctionsJobApiFunction": {"ApplyOn": "PublishedVersions"}}
    alias = production.only("AWS::Lambda::Alias")
    assert alias["FunctionName"] == "FunctionsJobApiFunction"
    invoked = [one["FunctionName"] for one in production.of_type("AWS::Lambda::Permission").values()]
    assert "FunctionsServed" in invoked and "FunctionsJobApiFunction.Arn" not in invoked


@pytest.mark.parametrize("region", ["us-gov-west-1", "cn-north-1", "ap-southeast-6", "ap-east-2"])
def test_where_lambda_takes_no_snapshots_the_job_api_starts_as_others(validated: dict[str, Path], region: str) -> None:
    """CloudFormation would refuse the property there."""
    partition = {"us": "aws-us-gov", "cn": "aws-cn"}.get(region[:2], "aws")
    where = Deployment.read(validated["ray"], partition=partition, region=region)
    assert not [one for one in where.of_type("AWS::Lambda::Function").values() if "SnapStart" in one]


def test_with_iam_no_route_is_without_authorization(production: Deployment) -> None:
    """A request to another path reaches the signed route of the job API, never the function of nodes."""
    assert _routes(production) == SIGNED_ROUTES
    stage = production.only("AWS::ApiGatewayV2::Stage")
    assert stage["RouteSettings"].keys() == {"POST /api/v1/signed/{proxy+}", READS, *POLLED}


HTTP_API_WAITS_S = 30
"""Longest time for which an HTTP API waits for its integration; no quota raises it.

Source: API Gateway Developer Guide, "Quotas for configuring and running an HTTP API".
"""


def test_a_function_behind_the_api_ends_before_api_gateway_gives_up(deployment: Deployment) -> None:
    """After that time the caller gets 503, while the function would go on and its caller would try again."""
    integrations = deployment.of_type("AWS::ApiGatewayV2::Integration").values()
    assert integrations and all("TimeoutInMillis" not in one for one in integrations)
    functions = deployment.of_type("AWS::Lambda::Function")
    behind = {one["IntegrationUri"].removesuffix(".Arn") for one in integrations}
    assert {functions[name]["FunctionName"] for name in behind} == {
        "gpu-recovery-job_api",
        "gpu-recovery-node_api",
        "gpu-recovery-console",
    }
    assert all(functions[name]["Timeout"] < HTTP_API_WAITS_S for name in behind)


def test_a_fleets_reports_have_a_rate_of_their_own(deployment: Deployment) -> None:
    """Ten thousand instances every fifteen seconds, three times over; the stage is made after the routes it names."""
    stage = deployment.only("AWS::ApiGatewayV2::Stage")
    assert stage["RouteSettings"] == {
        route: {"ThrottlingRateLimit": 2_000, "ThrottlingBurstLimit": 4_000} for route in ROUTES if "/api/v1/" in route
    } | {READS: READ_RATE, **dict.fromkeys(POLLED, POLLED_RATE), **dict.fromkeys(CONSOLE, CONSOLE_RATE)}
    assert stage["RouteSettings"]["ANY /api/v1/{proxy+}"]["ThrottlingRateLimit"] >= 3 * 10_000 / 15
    (template,) = (one for one in deployment.templates.values() if "JobApiB972A796" in one["Resources"])
    routes = {
        name
        for name, one in template["Resources"].items()
        if one["Type"] == "AWS::ApiGatewayV2::Route" and "/api/v1/" in one["Properties"]["RouteKey"]
    }
    (made,) = (one for one in template["Resources"].values() if one["Type"] == "AWS::ApiGatewayV2::Stage")
    assert len(routes) == 2 and routes <= set(made["DependsOn"])


def test_the_api_is_throttled_and_its_requests_are_logged_without_headers(deployment: Deployment) -> None:
    """The bearer token travels in a header and must not reach a log."""
    stage = deployment.only("AWS::ApiGatewayV2::Stage")
    assert stage["StageName"] == "$default"
    assert stage["DefaultRouteSettings"] == {"ThrottlingBurstLimit": 100, "ThrottlingRateLimit": 50}
    assert stage["AccessLogSettings"]["DestinationArn"] == "JobApiAccessLogs.Arn"
    logged = json.loads(stage["AccessLogSettings"]["Format"])
    assert logged["status"] == "$context.status"
    assert not any(word in variable.lower() for variable in logged.values() for word in ("header", "body", "query"))


def test_the_outputs_name_what_a_person_or_a_script_needs(deployment: Deployment) -> None:
    """Their names are an interface: the sandbox and the documentation read them."""
    assert set(deployment.outputs("GpuRecovery")) == {
        "ApiUrl",
        "ApiId",
        "ConsoleUrl",
        "OperatorTokenSecretArn",
        "TopicArn",
        "EventBusName",
        "JobTableName",
        "InstanceTableName",
        "EventHistoryTableName",
        "VerdictBucketName",
        "HealthCheckTaskDefinitionArn",
        "SchedulerQueueUrl",
        "SchedulerDeadLettersQueueUrl",
        "UndeliveredQueueUrl",
        "FailedQueueUrl",
        "ClusterName",
        "EcsTaskHandlerFunctionName",
        "DcgmTaskMonitorFunctionName",
        "EcsInstanceMonitorFunctionName",
        "ReconcilerFunctionName",
        "SchedulerFunctionName",
        "CommandExecutorFunctionName",
        "EventRecorderFunctionName",
        "JobApiFunctionName",
        "NodeApiFunctionName",
        "HealthCheckLogGroupName",
    }
